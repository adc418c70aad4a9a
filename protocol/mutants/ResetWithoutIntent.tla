------------------------- MODULE ResetWithoutIntent -------------------------
\* A layer is set aside before the intent to reset it is durable.
\* Instance:  Generation
\* Replaces:  SetLayerAside
\* Caught by: OR_5_WholeLayer
EXTENDS MCLazaret

M_SetLayerAside(d) ==
    /\ phase[d] = "Recovering" /\ Decision(d) \in {"None", "Clean"}
    /\ anchor[d].upper = "Prior" /\ ~anchor[d].aside
    /\ anchor' = [anchor EXCEPT ![d].upper = "Missing", ![d].aside = TRUE]
    /\ Must(\A p \in Mounts : world[d][p] \notin Generations, "SR_14")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, escalations, budget>>
=============================================================================
