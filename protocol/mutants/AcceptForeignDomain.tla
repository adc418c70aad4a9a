------------------------- MODULE AcceptForeignDomain -------------------------
\* The Domain that a certificate names is not compared.
\* Instance:  Generation
\* Replaces:  Accepts
\* Caught by: SR_9_NoForeignCredential
EXTENDS MCLazaret

M_Accepts(d, credential) == credential.role = "Client" /\ credential.generation = Generation(d)
=============================================================================
