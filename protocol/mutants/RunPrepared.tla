------------------------------- MODULE RunPrepared -------------------------------
\* The prepared session is given its command before its client has registered.
\* Instance:  Sessions
\* Replaces:  BeginSession
\* Caught by: FR_10_RegisteredInPublication
EXTENDS MCLazaret

M_BeginSession(d, c) ==
    /\ DomainOf[c] = d
    /\ prepared[d] # Nothing /\ exec[c] = "None"
    /\ supervisor[d] = "Building" /\ Ours(d, "Runsc")
    /\ exec' = [exec EXCEPT ![c] = "Running"]
    /\ Runs(d, c)
    /\ UNCHANGED <<peers, phase, document, world, inside, session, stored, anchor, escalations, budget>>
=============================================================================
