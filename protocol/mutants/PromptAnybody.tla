---------------------------- MODULE PromptAnybody ----------------------------
\* Any registered client is asked.
\* Instance:  Escalations
\* Replaces:  PromptTo
\* Caught by: FR_5_ToItsOwner
EXTENDS MCLazaret

M_PromptTo(d, r, c) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Accepted" /\ Rule[escalation[r].command] = "Ask"
    /\ client[c].state = "Registered" /\ Admitted(c)
    /\ escalation' = [escalation EXCEPT ![r].phase = "Prompted"]
    /\ Must(c = escalation[r].session /\ Admitted(c), "FR_5")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, command, budget>>
=============================================================================
