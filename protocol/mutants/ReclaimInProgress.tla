-------------------------- MODULE ReclaimInProgress --------------------------
\* A preparation is reclaimed without looking whether its owner lives.
\* Instance:  Catalog
\* Replaces:  ReclaimPreparation
\* Caught by: OR_7_NothingReclaimedInUse
EXTENDS MCLazaret

M_ReclaimPreparation(q) ==
    /\ Preparation(q).state # "None"
    /\ disk.partial[q] # "Absent"
    /\ disk' = [disk EXCEPT !.partial[q] = "Absent"]
    /\ Must(Preparation(q).owner = NoOne, "OR_7")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, catalog, anchor, escalations, budget>>
=============================================================================
