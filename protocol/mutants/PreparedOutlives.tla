--------------------------- MODULE PreparedOutlives ---------------------------
\* A prepared session that nobody adopted outlives the supervisor.
\* Instance:  Sessions
\* Replaces:  SupervisorGone
\* Caught by: FR_10_PreparedIsHeld
EXTENDS MCLazaret

M_SupervisorGone(d, survivors) ==
    /\ supervisor[d] = "Dying"
    /\ survivors \subseteq {p \in Survivors : Ours(d, p) /\ Intent(d, p) = "Owned"}
    /\ survivors # {} => "Survivor" \in Faults
    /\ world' = [world EXCEPT ![d] =
                  [p \in Things |-> IF p \in Inner \cup {"RuntimeSupervisor"} /\ @[p] \in Generations /\ p \notin survivors
                                    THEN Nothing ELSE @[p]]]
    /\ supervisor' = [supervisor EXCEPT ![d] = "None"]
    /\ policy' = [policy EXCEPT ![d] = "None"]
    /\ UNCHANGED prepared
    /\ ExecsOver(d)
    /\ UNCHANGED <<peers, phase, document, session, stored, anchor, escalations, breaches, budget>>
=============================================================================
