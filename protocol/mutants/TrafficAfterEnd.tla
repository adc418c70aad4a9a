--------------------------- MODULE TrafficAfterEnd ---------------------------
\* Input reaches a session although the generation is ending.
\* Instance:  Sessions
\* Replaces:  ControlSession
\* Caught by: FR_15_TrafficOfSession
EXTENDS MCLazaret

M_ControlSession(c) ==
    /\ client[c].state = "Registered"
    /\ session[c] = "Running"
    /\ Must(Admitted(c) /\ document[DomainOf[c]].sessions[c] = "Owned", "FR_15")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, escalations, budget>>
=============================================================================
