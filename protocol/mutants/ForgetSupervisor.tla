-------------------------- MODULE ForgetSupervisor --------------------------
\* A process that was intended and never recorded is not waited for.
\* Instance:  Generation
\* Replaces:  Releasable
\* Caught by: FR_21_NoResourceWithoutIntent
EXTENDS MCLazaret

M_Releasable(d) ==
    {p \in Participants \ {"Lease"} :
        /\ Left(d, p)
        /\ ~Ours(d, p) \/ p \in Processes
        /\ p \in Paths => world[d][p] = Nothing
        /\ p \in Mounts /\ Left(d, "Lease") => document[d].release # "NotBegun"
        /\ p = "RuntimeSupervisor" => ~AnyLeft(d, Inner)
        /\ p \in Directories => ~AnyLeft(d, Mounts)}
=============================================================================
