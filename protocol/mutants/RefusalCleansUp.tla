--------------------------- MODULE RefusalCleansUp ---------------------------
\* A refusal removes the stranger's thing, so that the next start succeeds.
\* Instance:  Generation
\* Replaces:  Refuse
\* Caught by: FR_7_ForeignStays
EXTENDS MCLazaret

M_Refuse(d) ==
    /\ Cleaning(d)
    /\ \E p \in Paths : Left(d, p) /\ world[d][p] = Foreign
    /\ \A p \in Participants : Left(d, p) => p \in Paths /\ world[d][p] = Foreign
    /\ phase' = [phase EXCEPT ![d] = "Ended"]
    /\ world' = [world EXCEPT ![d]["Publication"] = Nothing]
    /\ UNCHANGED <<peers, document, inside, served, stored, anchor, escalations, breaches, budget>>
=============================================================================
