---------------------------- MODULE DeleteByPath ----------------------------
\* Whatever lies at the path of the publication record is removed.
\* Instance:  Generation
\* Replaces:  RemoveFile
\* Caught by: FR_7_OnlyOwnedIsTouched
EXTENDS MCLazaret

M_RemoveFile(d, p) ==
    /\ p \in Sockets \cup {"Publication"}
    /\ (phase[d] = "TearingDown" /\ Intent(d, p) = "Owned") \/ Cleaning(d)
    /\ Left(d, p)
    /\ world[d][p] # Nothing
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ Must(Ours(d, p), "FR_7")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, budget>>
=============================================================================
