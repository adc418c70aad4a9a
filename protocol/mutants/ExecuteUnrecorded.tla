-------------------------- MODULE ExecuteUnrecorded --------------------------
\* The host command is let go before its process is recorded.
\* Instance:  Escalations
\* Replaces:  ExecuteHostCommand
\* Caught by: OR_3_NoStrandedCommand
EXTENDS MCLazaret

M_ExecuteHostCommand(d, r) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Approved"
    /\ Admitted(escalation[r].session)
    /\ command[r].state = "Held"
    /\ command' = [command EXCEPT ![r].state = "Running"]
    /\ escalation' = [escalation EXCEPT ![r].phase = "Running"]
    /\ Must(escalation[r].command \in approved[r], "SR_7")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, budget>>
=============================================================================
