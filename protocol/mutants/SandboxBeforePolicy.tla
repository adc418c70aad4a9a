------------------------- MODULE SandboxBeforePolicy -------------------------
\* runsc is started while the policy is still being installed.
\* Instance:  Generation
\* Replaces:  StartSandbox
\* Caught by: SR_5_NoSandboxBeforePolicy
EXTENDS MCLazaret

M_StartSandbox(d) ==
    /\ supervisor[d] = "Building"
    /\ \A p \in Mounts \cup Helpers : Ours(d, p)
    /\ MayMake(d, "Runsc")
    /\ Put(d, "Runsc")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>
=============================================================================
