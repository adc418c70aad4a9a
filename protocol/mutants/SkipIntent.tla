----------------------------- MODULE SkipIntent -----------------------------
\* Directories are made before the intent to make them is durable.
\* Instance:  Generation
\* Replaces:  MayMake
\* Caught by: FR_21_NoResourceWithoutIntent
EXTENDS MCLazaret

M_MayMake(d, p) == Intent(d, p) \in {"None", "Intended"} /\ world[d][p] = Nothing
=============================================================================
