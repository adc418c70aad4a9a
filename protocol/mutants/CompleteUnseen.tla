--------------------------- MODULE CompleteUnseen ---------------------------
\* The second of two preparations completes without looking whether the tree is still there.
\* Instance:  Catalog
\* Replaces:  CompletePreparation
\* Caught by: OR_7_NothingReclaimedInUse
EXTENDS MCLazaret

M_CompletePreparation(q) ==
    LET a == Preparation(q).artifact IN
    /\ Preparation(q).state = "Sealed" /\ disk.partial[q] = "Absent"
    /\ catalog.artifact[a] # "Removing"
    /\ Preparation(q).owner = NoOne => disk.tree[a] = q
    /\ catalog' = [catalog EXCEPT !.artifact[a] = "Ready", !.preparation[q] = NoPreparation]
    /\ disk' = [disk EXCEPT !.tree[a] = IF @ = "Absent" THEN @ ELSE "Complete"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, anchor, escalations, breaches, budget>>
=============================================================================
