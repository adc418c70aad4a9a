------------------------------ MODULE MCLazaret ------------------------------
(***************************************************************************)
(* Bounded instances of Lazaret. Each configuration MCLazaret*.cfg looks   *)
(* at one part of the protocol closely and keeps the rest small; all are   *)
(* over the same actions and check the same invariants. protocol/README.md *)
(* says what each bounds and why.                                          *)
(***************************************************************************)
EXTENDS Lazaret, TLC

CONSTANTS c1, c2, d1, d2, k1, k2, k3

\* One transaction names everything that it may: that is how the coordinator writes, and it bounds the
\* interleavings. Which writes share a transaction changes only where a crash can fall between them.
Whole(P) == IF P = {} THEN {} ELSE {P}
Single(P) == {{p} : p \in P}

\* Each client has a Domain of its own; or both share one (`OneDomain`).
OwnDomains == (c1 :> d1) @@ (c2 :> d2)

EachRule == (k1 :> "Ask") @@ (k2 :> "Allow") @@ (k3 :> "Deny")

\* Clients of one Domain can be exchanged, and so can requests and preparations. Never used with liveness.
ClientsAlike == Permutations(Clients)
RequestsAlike == Permutations(Requests)
ClientsAndRequestsAlike == {f @@ g : f \in ClientsAlike, g \in RequestsAlike}

\* Domains can be exchanged together with their clients.
DomainsAlike == {f @@ g : f \in {(c1 :> c1) @@ (c2 :> c2) @@ (d1 :> d1) @@ (d2 :> d2),
                                 (c1 :> c2) @@ (c2 :> c1) @@ (d1 :> d2) @@ (d2 :> d1)},
                          g \in Permutations(Preparations)}

\* Two Domains meet in the catalog only. A Runtime Supervisor never opens it, and neither does a session; of an end it
\* sees one deletion. So it is enough to look at one supervisor and one end at a time and at no session; and while a
\* supervisor is at work, the other Domain is either not there or at its preparation or lease. Leases and preparations of
\* both stand side by side. States beyond that are found and checked, but not gone on from.
StorageAlone ==
    /\ Cardinality({d \in Domains : supervisor[d] # "None"}) <= 1
    /\ Cardinality({d \in Domains : Decision(d) \in {"TearingDown", "Recovering"}}) <= 1
    /\ \A d, e \in Domains : d # e /\ supervisor[d] \in {"Building", "TearingDown"} =>
        phase[e] \in {"None", "Preparing", "Building"}
    /\ \A c \in Clients : client[c].state # "Joining"
=============================================================================
