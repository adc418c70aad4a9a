------------------------- MODULE LeaseBeforeUnmount -------------------------
\* The lease is deleted from the catalog while the prepared lower is still mounted.
\* Instance:  Generation
\* Replaces:  ReleaseLease
\* Caught by: FR_22_MountedUnderLease
EXTENDS MCLazaret

M_ReleaseLease(d) ==
    /\ Cleaning(d)
    /\ document[d].release = "Intended"
    /\ HasLease(d)
    /\ catalog' = [catalog EXCEPT !.leases = {l \in @ : ~(l.domain = d /\ l.generation = Generation(d))}]
    /\ Must(\A p \in Mounts : world[d][p] \notin Generations, "FR_17")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, budget>>
=============================================================================
