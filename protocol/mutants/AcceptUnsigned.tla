--------------------------- MODULE AcceptUnsigned ---------------------------
\* The signature of a request is not verified.
\* Instance:  Escalations
\* Replaces:  Authentic
\* Caught by: FR_10_RegisteredInPublication
EXTENDS MCLazaret

M_Authentic(d, m) ==
    /\ m.generation = Generation(d)
    /\ DomainOf[m.session] = d
    /\ session[m.session] \in {"Opening", "Running"}
=============================================================================
