----------------------------- MODULE TwoLeaders -----------------------------
\* The lock is not tried.
\* Instance:  Sessions
\* Replaces:  Elect
\* Caught by: OR_1_OneLeader
EXTENDS MCLazaret

M_Elect(c) ==
    LET d == DomainOf[c] IN
    /\ coordinator[c] = "Candidate"
    /\ coordinator' = [coordinator EXCEPT ![c] = "Leader"]
    /\ phase' = [phase EXCEPT ![d] = "Recovering"]
    /\ UNCHANGED <<client, document, world, inside, served, stored, anchor, escalations, breaches, budget>>
=============================================================================
