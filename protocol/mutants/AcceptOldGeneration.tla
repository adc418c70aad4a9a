------------------------- MODULE AcceptOldGeneration -------------------------
\* A credential of an earlier generation is good enough.
\* Instance:  Sessions
\* Replaces:  Accepts
\* Caught by: FR_10_RegisteredInPublication
EXTENDS MCLazaret

M_Accepts(d, credential) == credential.role = "Client" /\ credential.domain = d
=============================================================================
