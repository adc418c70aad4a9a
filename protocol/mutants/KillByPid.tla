------------------------------ MODULE KillByPid ------------------------------
\* A recorded pid is killed without comparing the start time.
\* Instance:  Generation
\* Replaces:  KillProcess
\* Caught by: FR_7_OnlyOwnedIsTouched
EXTENDS MCLazaret

M_KillProcess(d, p) ==
    /\ p \in Processes \ {"RuntimeSupervisor"}
    /\ Cleaning(d)
    /\ supervisor[d] = "None"
    /\ Intent(d, p) = "Owned"
    /\ world[d][p] # Nothing
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ Must(Ours(d, p), "FR_7")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, budget>>
=============================================================================
