-------------------------- MODULE DeliverToAnybody --------------------------
\* A result is delivered to any session.
\* Instance:  Escalations
\* Replaces:  DeliverResult
\* Caught by: FR_5_ToItsOwner
EXTENDS MCLazaret

M_DeliverResult(d, r, c) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Ended"
    /\ document[d].commands[r] = "None"
    /\ escalation' = [escalation EXCEPT ![r].phase = "Settled"]
    /\ Must(c = escalation[r].session, "FR_5")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, command, budget>>
=============================================================================
