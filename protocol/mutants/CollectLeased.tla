---------------------------- MODULE CollectLeased ----------------------------
\* An artifact is collected without looking at the leases.
\* Instance:  Catalog
\* Replaces:  BeginRemoval
\* Caught by: OR_7_NothingReclaimedInUse
EXTENDS MCLazaret

M_BeginRemoval(a) ==
    /\ "Collect" \in Features
    /\ catalog.artifact[a] = "Ready"
    /\ catalog' = [catalog EXCEPT !.artifact[a] = "Removing"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>
=============================================================================
