----------------------------- MODULE RunPrepared -----------------------------
\* The prepared session is given its command before its client has registered.
\* Instance:  Sessions
\* Replaces:  AdoptSession
\* Caught by: FR_10_RegisteredInPublication
EXTENDS MCLazaret

M_AdoptSession(d, c) ==
    /\ c \in Leaders(d)
    /\ exec[c] = "None"
    /\ prepared[d] # Nothing
    /\ supervisor[d] = "Building" /\ Ours(d, "Runsc")
    /\ prepared' = [prepared EXCEPT ![d] = Nothing]
    /\ exec' = [exec EXCEPT ![c] = "Running"]
    /\ Runs(d, c)
    /\ UNCHANGED <<peers, phase, document, world, supervisor, policy, session, stored, anchor, escalations, budget>>
=============================================================================
