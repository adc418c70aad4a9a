------------------------- MODULE ApproveWithoutMatch -------------------------
\* Any approval approves the request that waits.
\* Instance:  Escalations
\* Replaces:  Matches
\* Caught by: SR_7_ApprovedExactly
EXTENDS MCLazaret

M_Matches(answer, r) == TRUE
=============================================================================
