------------------------------ MODULE EndTwice ------------------------------
\* A time limit settles the request without killing the command, whose end settles it again.
\* Instance:  Escalations
\* Replaces:  StopEscalation
\* Caught by: OR_2_EndsOnce
EXTENDS MCLazaret

M_StopEscalation(r, outcome) ==
    /\ escalation[r].phase \in Undecided
    /\ Settle(r, outcome)
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, command, breaches, budget>>
=============================================================================
