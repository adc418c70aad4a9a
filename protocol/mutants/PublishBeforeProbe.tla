------------------------- MODULE PublishBeforeProbe -------------------------
\* The generation is published although the sandbox has not tried the policy.
\* Instance:  Generation
\* Replaces:  Attested Publish
\* Caught by: FR_18_PublishedIsReady
EXTENDS MCLazaret

M_Attested(d) ==
    /\ phase[d] = "Building"
    /\ \A p \in Participants \ Later : Intent(d, p) = "Owned"
    /\ phase' = [phase EXCEPT ![d] = "Publishing"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

M_Publish(d) ==
    /\ phase[d] = "Publishing" /\ Decision(d) = "Starting"
    /\ document[d].readiness
    /\ \A p \in Participants \ {"Publication"} : Intent(d, p) = "Owned"
    /\ document' = [document EXCEPT ![d].decision = "Published"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>
=============================================================================
