------------------------------- MODULE Lazaret -------------------------------
(***************************************************************************)
(* The application protocol of Lazaret: how a Domain generation is         *)
(* started, published, served, taken down and recovered, how Client        *)
(* Sessions and Host Escalations live in it, and how prepared artifacts    *)
(* are shared between Domains.                                             *)
(*                                                                         *)
(* Three kinds of state stand beside each other and may disagree:          *)
(*                                                                         *)
(*   durable     document (Domain Store), catalog (Storage Catalog),       *)
(*               anchor.intended: survive every crash                      *)
(*   volatile    phase, session, escalation ...: die with their process    *)
(*   the world   world, disk, exec, command ...: survive whoever made them,*)
(*               and strangers may put their things in their place         *)
(*                                                                         *)
(* A message is not a variable of its own. A step that a message causes is *)
(* enabled from its sending on and may come any time later: that is delay. *)
(* What the untrusted sandbox writes into the Escalation Mailbox may       *)
(* arrive at any time, any number of times, or never: that is loss,        *)
(* duplication and forgery at once. Lease and client sockets are           *)
(* connections: they lose messages only when an end dies.                  *)
(*                                                                         *)
(* `breaches` is always empty. An action that does something which a       *)
(* requirement restricts compares what it did with the true state of       *)
(* affairs, independently of its guard, and names the requirement when the *)
(* two disagree. Only a broken model has a breach.                         *)
(*                                                                         *)
(* README.md maps actions to functions and variables to types.             *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Domains,         \* Domain IDs
    Clients,         \* Client CLIs; each stands for one command after another
    DomainOf,        \* [Clients -> Domains]
    Requests,        \* Escalation Request IDs
    Commands,        \* host commands that may be asked for
    Rule,            \* [Commands -> {"Allow", "Deny", "Ask"}]: the profile's escalation rules
    Artifacts,       \* prepared-artifact IDs
    Preparations,    \* Preparation IDs
    ReadyArtifacts,  \* artifacts that are prepared from the beginning
    Directories,     \* participants that are directories of the host
    Sockets,         \* participants that are sockets of the host
    Mounts,          \* participants that are mounts of the Runtime Supervisor
    Helpers,         \* participants that are helper processes of the Runtime Supervisor
    ForeignPlaces,   \* participants whose place a stranger may take
    Survivors,       \* processes that may outlive the Runtime Supervisor
    Faults,          \* kinds of faults that happen
    Features,        \* parts that are used: Prepare, Collect, Reset, PreparedSession, Escalate, Down, Patience
    MaxGeneration,   \* generations of a Domain that are looked at
    MaxFaults        \* how many faults; `Unlimited`: any number

Participants ==
    Directories \cup Sockets \cup Mounts \cup Helpers
    \cup {"Lease", "RuntimeSupervisor", "NetworkNamespace", "Runsc", "Publication"}

Paths     == Directories \cup Sockets \cup {"Publication"}
Inner     == Mounts \cup Helpers \cup {"NetworkNamespace", "Runsc"}   \* end with the Runtime Supervisor
Processes == Helpers \cup {"RuntimeSupervisor", "Runsc"}
Things    == Participants \ {"Lease"}                                \* the lease lies in the catalog

Generations == 1..MaxGeneration
Nothing     == 0
Foreign     == MaxGeneration + 1
NoOne       == "NoOne"
Unlimited   == 99

Decisions == {"None", "Starting", "Published", "TearingDown", "Recovering", "Clean"}
Intents   == {"None", "Intended", "Owned", "Released"}
Phases    == {"None", "Recovering", "Resetting", "Preparing", "Beginning", "Building", "Publishing",
              "Published", "TearingDown", "Releasing", "Ended"}
Releases  == {"NotBegun", "Intended", "Unmounted", "Deleted"}

VARIABLES
    client,       \* volatile: a Client CLI's state and the generation whose publication it read
    coordinator,  \* volatile: the Host Coordinator that a client spawned
    phase,        \* volatile: core::lifecycle of the Domain's leader
    document,     \* durable: the generation document
    world,        \* the world: whose thing is at each participant's place
    supervisor,   \* volatile: the Runtime Supervisor
    policy,       \* the world: the network policy in the enforcement namespace
    prepared,     \* the world: the generation of the process that was prepared for a session nobody has yet
    session,      \* volatile: core::session
    exec,         \* the world: a session's `runsc exec` client and what it runs in the guest
    catalog,      \* durable: artifacts, preparations, leases
    disk,         \* the world: prepared trees
    anchor,       \* a State Anchor: durable intent to reset it, and its layers in the world
    escalation,   \* volatile: accepted escalations
    answers,      \* developers' answers on their way to the coordinator
    approved,     \* history: what was approved, by whom it may be, since the request was accepted
    command,      \* the world: host commands
    breaches,     \* requirements that were broken
    budget        \* faults that may still happen

vars == <<client, coordinator, phase, document, world, supervisor, policy, prepared, session, exec,
          catalog, disk, anchor, escalation, answers, approved, command, breaches, budget>>

peers       == <<client, coordinator>>
inside      == <<supervisor, policy, prepared>>
served      == <<session, exec>>
stored      == <<catalog, disk>>
escalations == <<escalation, answers, approved, command>>

------------------------------------------------------------------------------
(* Reading the state.                                                        *)

ClientsOf(d)  == {c \in Clients : DomainOf[c] = d}
Leaders(d)    == {c \in ClientsOf(d) : coordinator[c] = "Leader"}
Led(d)        == Leaders(d) # {}
Generation(d) == document[d].generation
Decision(d)   == document[d].decision
Intent(d, p)  == document[d].intent[p]
Left(d, p)    == Intent(d, p) \in {"Intended", "Owned"}
AnyLeft(d, P) == \E p \in P : Left(d, p)

Leases(d)     == {l \in catalog.leases : l.domain = d}
HasLease(d)   == \E l \in Leases(d) : l.generation = Generation(d)

\* The generation's own thing is at the participant's place: pid and start time, inode and birth time, catalog row.
Ours(d, p) == IF p = "Lease" THEN HasLease(d)
              ELSE world[d][p] # Nothing /\ world[d][p] = Generation(d)

EscalationsOf(d) == {r \in Requests : escalation[r].phase # "None" /\ DomainOf[escalation[r].session] = d}
CommandsOf(d)    == {r \in Requests : command[r].state # "None" /\ command[r].domain = d}

NoSession(d)  == \A c \in ClientsOf(d) : session[c] = "None"
Serving(d)    == phase[d] = "Published" /\ Decision(d) = "Published"
Admitted(c)   == /\ Serving(DomainOf[c])
                 /\ document[DomainOf[c]].sessions[c] # "None"
                 /\ session[c] \in {"Opening", "Running"}

\* The leader removes what is left, of a dead generation or of its own.
Cleaning(d) == \/ phase[d] = "Recovering" /\ Decision(d) = "Recovering"
               \/ phase[d] = "Releasing" /\ Decision(d) \in {"TearingDown", "Recovering"}

Must(holds, requirement) == breaches' = IF holds THEN breaches ELSE breaches \cup {requirement}

Fault(kind) == /\ kind \in Faults
               /\ budget # 0
               /\ budget' = IF budget = Unlimited THEN budget ELSE budget - 1

\* The sets of participants that one transaction may name. A bounded instance takes the whole set.
Transactions(P) == SUBSET P \ {{}}

------------------------------------------------------------------------------
(* The beginning.                                                            *)

NoDocument ==
    [generation |-> 0, decision |-> "None", intent |-> [p \in Participants |-> "None"],
     artifact |-> NoOne, readiness |-> FALSE, probe |-> FALSE, release |-> "NotBegun",
     sessions |-> [c \in Clients |-> "None"], prepared |-> "None", commands |-> [r \in Requests |-> "None"]]

NoEscalation  == [phase |-> "None", session |-> NoOne, command |-> NoOne, outcome |-> NoOne]
NoCommand     == [state |-> "None", domain |-> NoOne]
NoPreparation == [state |-> "None", owner |-> NoOne, artifact |-> NoOne]
NoClient      == [state |-> "Idle", generation |-> 0]

Init ==
    /\ client = [c \in Clients |-> NoClient]
    /\ coordinator = [c \in Clients |-> "None"]
    /\ phase = [d \in Domains |-> "None"]
    /\ document = [d \in Domains |-> NoDocument]
    /\ world = [d \in Domains |-> [p \in Things |-> Nothing]]
    /\ supervisor = [d \in Domains |-> "None"]
    /\ policy = [d \in Domains |-> "None"]
    /\ prepared = [d \in Domains |-> Nothing]
    /\ session = [c \in Clients |-> "None"]
    /\ exec = [c \in Clients |-> "None"]
    /\ catalog = [artifact |-> [a \in Artifacts |-> IF a \in ReadyArtifacts THEN "Ready" ELSE "None"],
                  preparation |-> [q \in Preparations |-> NoPreparation],
                  leases |-> {}]
    /\ disk = [tree |-> [a \in Artifacts |-> IF a \in ReadyArtifacts THEN "Complete" ELSE "Absent"],
               partial |-> [q \in Preparations |-> "Absent"]]
    /\ anchor = [d \in Domains |-> [intended |-> FALSE, upper |-> "Prior", aside |-> FALSE]]
    /\ escalation = [r \in Requests |-> NoEscalation]
    /\ answers = {}
    /\ approved = [r \in Requests |-> {}]
    /\ command = [r \in Requests |-> NoCommand]
    /\ breaches = {}
    /\ budget = MaxFaults

------------------------------------------------------------------------------
(* Client CLI.                                                               *)

\* A command finds no publication and spawns a Host Coordinator for its Domain.
SpawnCoordinator(c) ==
    /\ client[c].state \in {"Idle", "Waiting"}
    /\ coordinator[c] = "None"
    /\ world[DomainOf[c]]["Publication"] \notin Generations
    /\ client' = [client EXCEPT ![c].state = "Waiting"]
    /\ coordinator' = [coordinator EXCEPT ![c] = "Candidate"]
    /\ UNCHANGED <<phase, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* A command reads the publication record, which says where and with whom to register.
Discover(c) ==
    LET found == world[DomainOf[c]]["Publication"] IN
    /\ client[c].state \in {"Idle", "Waiting"}
    /\ session[c] = "None" /\ exec[c] = "None"
    /\ found \in Generations
    /\ client' = [client EXCEPT ![c] = [state |-> "Joining", generation |-> found]]
    /\ UNCHANGED <<coordinator, phase, document, world, inside, served, stored, anchor, escalations,
                   breaches, budget>>

\* Nobody answers where the record says: its coordinator is gone, or does not serve yet or any more. The client spawns
\* one of its own, unless it has, and looks again.
FailToConnect(c) ==
    /\ client[c].state = "Joining"
    /\ ~Serving(DomainOf[c])
    /\ client' = [client EXCEPT ![c] = [state |-> "Waiting", generation |-> 0]]
    /\ coordinator' = [coordinator EXCEPT ![c] = IF @ = "None" THEN "Candidate" ELSE @]
    /\ UNCHANGED <<phase, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* The client has waited as long as it may for a coordinator that another client started.
GiveUp(c) ==
    /\ "Patience" \in Features
    /\ client[c].state = "Waiting" /\ coordinator[c] = "None"
    /\ client' = [client EXCEPT ![c] = NoClient]
    /\ UNCHANGED <<coordinator, phase, document, world, inside, served, stored, anchor, escalations,
                   breaches, budget>>

\* The client is killed, or its developer interrupts it.
CrashClient(c) ==
    /\ Fault("Client")
    /\ client[c].state # "Idle"
    /\ client' = [client EXCEPT ![c] = NoClient]
    /\ UNCHANGED <<coordinator, phase, document, world, inside, served, stored, anchor, escalations, breaches>>

------------------------------------------------------------------------------
(* Election and the leader's life before a generation.                       *)

Elect(c) ==
    LET d == DomainOf[c] IN
    /\ coordinator[c] = "Candidate"
    /\ ~Led(d)
    /\ coordinator' = [coordinator EXCEPT ![c] = "Leader"]
    /\ phase' = [phase EXCEPT ![d] = "Recovering"]
    /\ UNCHANGED <<client, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* The Domain lock is held: the candidate ends, its client waits for the leader's publication.
LoseElection(c) ==
    /\ coordinator[c] = "Candidate"
    /\ Led(DomainOf[c])
    /\ coordinator' = [coordinator EXCEPT ![c] = "None"]
    /\ UNCHANGED <<client, phase, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* Nothing is left over and no reset is half done; only from here on does the leader start something new.
Recovered(d) ==
    /\ phase[d] = "Recovering"
    /\ Decision(d) \in {"None", "Clean"}
    /\ ~anchor[d].intended
    /\ phase' = [phase EXCEPT ![d] = "Preparing"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* The leader was started to recover only.
ReportRecovered(d) ==
    /\ phase[d] = "Recovering"
    /\ Decision(d) \in {"None", "Clean"}
    /\ ~anchor[d].intended
    /\ phase' = [phase EXCEPT ![d] = "Ended"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

Unmade(d) == phase[d] \in {"Recovering", "Preparing"} \/ (phase[d] = "Beginning" /\ Decision(d) \in {"None", "Clean"})

\* A step failed before anything was made.
StartupFails(d) ==
    /\ Unmade(d)
    /\ \/ Fault("Step")
       \/ phase[d] = "Beginning" /\ Generation(d) = MaxGeneration /\ UNCHANGED budget   \* the instance's bound
    /\ phase' = [phase EXCEPT ![d] = "Ended"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches>>

\* The leader ends. Its startup pipe tells the client that spawned it; a preparation of its own is given up.
Exit(d) ==
    /\ phase[d] = "Ended"
    /\ phase' = [phase EXCEPT ![d] = "None"]
    /\ coordinator' = [c \in Clients |-> IF c \in Leaders(d) THEN "None" ELSE coordinator[c]]
    /\ client' = [c \in Clients |-> IF c \in Leaders(d) /\ client[c].state = "Waiting" THEN NoClient ELSE client[c]]
    /\ catalog' = [catalog EXCEPT !.preparation =
                    [q \in Preparations |-> IF @[q].owner \in Leaders(d) THEN [@[q] EXCEPT !.owner = NoOne] ELSE @[q]]]
    /\ UNCHANGED <<document, world, inside, served, disk, anchor, escalations, breaches, budget>>

------------------------------------------------------------------------------
(* Reset of a State Anchor (OR-5, SR-14).                                    *)

\* The intent is durable before the layer is touched; nothing of a generation is left.
IntendReset(d) ==
    /\ "Reset" \in Features
    /\ phase[d] = "Recovering"
    /\ Decision(d) \in {"None", "Clean"}
    /\ ~anchor[d].intended
    /\ anchor' = [anchor EXCEPT ![d].intended = TRUE]
    /\ phase' = [phase EXCEPT ![d] = "Resetting"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, escalations, breaches, budget>>

\* An interrupted reset is carried on by the next leader, whatever it was started for.
Resets(d) == anchor[d].intended /\ phase[d] \in {"Resetting", "Recovering"} /\ Decision(d) \in {"None", "Clean"}

SetLayerAside(d) ==
    /\ Resets(d)
    /\ anchor[d].upper = "Prior" /\ ~anchor[d].aside
    /\ anchor' = [anchor EXCEPT ![d].upper = "Missing", ![d].aside = TRUE]
    /\ Must(\A p \in Mounts : world[d][p] \notin Generations, "SR_14")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, escalations, budget>>

MakeEmptyLayer(d) ==
    /\ Resets(d)
    /\ anchor[d].upper = "Missing"
    /\ anchor' = [anchor EXCEPT ![d].upper = "Empty"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, escalations, breaches, budget>>

DiscardLayer(d) ==
    /\ Resets(d)
    /\ anchor[d].upper = "Empty" /\ anchor[d].aside
    /\ anchor' = [anchor EXCEPT ![d].aside = FALSE]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, escalations, breaches, budget>>

FinishReset(d) ==
    /\ Resets(d)
    /\ anchor[d].upper = "Empty" /\ ~anchor[d].aside
    \* What the next generation writes makes it a prior layer again.
    /\ anchor' = [anchor EXCEPT ![d].intended = FALSE, ![d].upper = "Prior"]
    /\ phase' = IF phase[d] = "Resetting" THEN [phase EXCEPT ![d] = "Ended"] ELSE phase
    /\ UNCHANGED <<peers, document, world, inside, served, stored, escalations, breaches, budget>>

------------------------------------------------------------------------------
(* Preparation of an artifact (FR-22, OR-7).                                 *)

Preparation(q) == catalog.preparation[q]
Owns(q)        == Preparation(q).state # "None" /\ Preparation(q).owner # NoOne

\* A ready artifact is found in the catalog.
FindArtifact(d, a) ==
    /\ phase[d] = "Preparing"
    /\ catalog.artifact[a] = "Ready"
    /\ phase' = [phase EXCEPT ![d] = "Beginning"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

BeginPreparation(d, q, a) ==
    /\ "Prepare" \in Features
    /\ phase[d] = "Preparing"
    /\ catalog.artifact[a] # "Ready"
    /\ Preparation(q).state = "None"
    /\ \A other \in Preparations : Preparation(other).owner \notin Leaders(d)
    /\ \E c \in Leaders(d) :
        catalog' = [catalog EXCEPT !.preparation[q] = [state |-> "Intended", owner |-> c, artifact |-> a]]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>

MakePreparation(q) ==
    /\ Owns(q)
    /\ Preparation(q).state = "Intended" /\ disk.partial[q] = "Absent"
    /\ disk' = [disk EXCEPT !.partial[q] = "Empty"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, catalog, anchor, escalations, breaches, budget>>

OwnPreparation(q) ==
    /\ Owns(q)
    /\ Preparation(q).state = "Intended" /\ disk.partial[q] = "Empty"
    /\ catalog' = [catalog EXCEPT !.preparation[q].state = "Owned"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>

FillPreparation(q) ==
    /\ Owns(q)
    /\ Preparation(q).state = "Owned" /\ disk.partial[q] = "Empty"
    /\ disk' = [disk EXCEPT !.partial[q] = "Filled"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, catalog, anchor, escalations, breaches, budget>>

SealPreparation(q) ==
    /\ Owns(q)
    /\ Preparation(q).state = "Owned" /\ disk.partial[q] = "Filled"
    /\ catalog' = [catalog EXCEPT !.preparation[q].state = "Sealed"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>

\* rename(2) with RENAME_NOREPLACE, under the catalog lock, and never to a place that is being removed.
RenamePreparation(q) ==
    LET a == Preparation(q).artifact IN
    /\ Owns(q)
    /\ Preparation(q).state = "Sealed" /\ disk.partial[q] = "Filled"
    /\ disk.tree[a] = "Absent"
    /\ catalog.artifact[a] # "Removing"
    /\ disk' = [disk EXCEPT !.tree[a] = q, !.partial[q] = "Absent"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, catalog, anchor, escalations, breaches, budget>>

\* Another preparation of the same artifact was first; this one removes its own tree.
DiscardPreparation(q) ==
    LET a == Preparation(q).artifact IN
    /\ Owns(q)
    /\ Preparation(q).state = "Sealed" /\ disk.partial[q] = "Filled"
    /\ disk.tree[a] # "Absent"
    /\ disk' = [disk EXCEPT !.partial[q] = "Absent"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, catalog, anchor, escalations, breaches, budget>>

\* The tree is at its artifact's place. Its owner does it, or whoever reclaims a sealed one that was renamed.
CompletePreparation(q) ==
    LET a == Preparation(q).artifact IN
    /\ Preparation(q).state = "Sealed" /\ disk.partial[q] = "Absent"
    /\ disk.tree[a] # "Absent"
    /\ catalog.artifact[a] # "Removing"
    /\ Preparation(q).owner = NoOne => disk.tree[a] = q
    /\ catalog' = [catalog EXCEPT !.artifact[a] = "Ready", !.preparation[q] = NoPreparation]
    /\ disk' = [disk EXCEPT !.tree[a] = "Complete"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, anchor, escalations, breaches, budget>>

\* Its owner gives it up, since a step failed or the start is cancelled, and removes it as anybody would.
GiveUpPreparation(q) ==
    /\ Owns(q)
    /\ Fault("Step") \/ (UNCHANGED budget /\ phase[DomainOf[Preparation(q).owner]] = "Ended")
    /\ catalog' = [catalog EXCEPT !.preparation[q].owner = NoOne]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches>>

\* Somebody removes the directory of a preparation whose owner is gone.
ReclaimPreparation(q) ==
    /\ Preparation(q).state # "None" /\ Preparation(q).owner = NoOne
    /\ disk.partial[q] # "Absent"
    /\ disk' = [disk EXCEPT !.partial[q] = "Absent"]
    /\ Must(Preparation(q).owner = NoOne, "OR_7")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, catalog, anchor, escalations, budget>>

\* Nothing of a preparation is left: its owner is gone, or its artifact was removed while it came second.
AbandonPreparation(q) ==
    LET a == Preparation(q).artifact IN
    /\ Preparation(q).state # "None"
    /\ disk.partial[q] = "Absent"
    /\ \/ Preparation(q).owner = NoOne /\ disk.tree[a] # q
       \/ Preparation(q).owner # NoOne /\ Preparation(q).state = "Sealed" /\ disk.tree[a] = "Absent"
    /\ catalog' = [catalog EXCEPT !.preparation[q] = NoPreparation]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>

(* Garbage collection of artifacts: a command of the developer that holds the catalog lock for each step. *)

BeginRemoval(a) ==
    /\ "Collect" \in Features
    /\ catalog.artifact[a] = "Ready"
    /\ \A l \in catalog.leases : l.artifact # a
    /\ catalog' = [catalog EXCEPT !.artifact[a] = "Removing"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>

RemoveArtifact(a) ==
    /\ catalog.artifact[a] = "Removing"
    /\ disk.tree[a] # "Absent"
    /\ disk' = [disk EXCEPT !.tree[a] = "Absent"]
    /\ Must((\A l \in catalog.leases : l.artifact # a) /\ disk.tree[a] = "Complete", "OR_7")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, catalog, anchor, escalations, budget>>

FinishRemoval(a) ==
    /\ catalog.artifact[a] = "Removing"
    /\ disk.tree[a] = "Absent"
    /\ catalog' = [catalog EXCEPT !.artifact[a] = "None"]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>

------------------------------------------------------------------------------
(* Start of a generation: intent, making, ownership.                         *)

\* Identities are minted; the number was never used.
BeginGeneration(d, a) ==
    /\ phase[d] = "Beginning"
    /\ Decision(d) \in {"None", "Clean"}
    /\ Generation(d) < MaxGeneration
    /\ document' = [document EXCEPT ![d] =
                     [NoDocument EXCEPT !.generation = Generation(d) + 1, !.decision = "Starting", !.artifact = a]]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* One transaction: resources are going to be made.
Intend(d, P) ==
    /\ phase[d] = "Beginning"
    /\ Decision(d) = "Starting"
    /\ \A p \in P : Intent(d, p) = "None"
    /\ document' = [document EXCEPT ![d].intent = [p \in Participants |-> IF p \in P THEN "Intended" ELSE @[p]]]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

MayMake(d, p) == Intent(d, p) = "Intended" /\ world[d][p] = Nothing

Put(d, p) == world' = [world EXCEPT ![d][p] = Generation(d)]

\* mkdir(2) by the Host Coordinator.
MakeDirectory(d, p) ==
    /\ p \in Directories
    /\ phase[d] = "Beginning" /\ Decision(d) = "Starting"
    /\ MayMake(d, p)
    /\ Put(d, p)
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>

\* Every intent is durable, the directories are ours.
Begun(d) ==
    /\ phase[d] = "Beginning" /\ Decision(d) = "Starting"
    /\ \A p \in Participants : Intent(d, p) # "None"
    /\ \A p \in Directories : Intent(d, p) = "Owned"
    /\ phase' = [phase EXCEPT ![d] = "Building"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* Something could not be made or recorded: what was made of the generation is recovered by its own leader.
BeginFails(d) ==
    /\ phase[d] = "Beginning" /\ Decision(d) = "Starting"
    /\ Fault("Step") \/ (UNCHANGED budget /\ \E p \in Directories : Intent(d, p) = "Intended" /\ world[d][p] = Foreign)
    /\ phase' = [phase EXCEPT ![d] = "Releasing"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches>>

\* The lease is written into the catalog; only of a ready artifact.
AcquireLease(d) ==
    LET a == document[d].artifact IN
    /\ phase[d] \in {"Building", "TearingDown"}   \* under way when the end began
    /\ Intent(d, "Lease") = "Intended" /\ ~HasLease(d)
    /\ catalog.artifact[a] = "Ready"
    /\ catalog' = [catalog EXCEPT !.leases = @ \cup {[domain |-> d, generation |-> Generation(d), artifact |-> a]}]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, breaches, budget>>

\* Its death signal is armed and its lease socket held before it runs.
SpawnSupervisor(d) ==
    /\ phase[d] = "Building"
    /\ supervisor[d] = "None"
    /\ MayMake(d, "RuntimeSupervisor")
    /\ Put(d, "RuntimeSupervisor")
    /\ supervisor' = [supervisor EXCEPT ![d] = "Waiting"]
    /\ UNCHANGED <<peers, phase, document, policy, prepared, served, stored, anchor, escalations, breaches, budget>>

\* The plan is sent once lease and supervisor are recorded (FR-22).
OrderBuild(d) ==
    /\ phase[d] = "Building"
    /\ supervisor[d] = "Waiting"
    /\ Intent(d, "Lease") = "Owned" /\ Intent(d, "RuntimeSupervisor") = "Owned"
    /\ supervisor' = [supervisor EXCEPT ![d] = "Building"]
    /\ UNCHANGED <<peers, phase, document, world, policy, prepared, served, stored, anchor, escalations,
                   breaches, budget>>

\* The Runtime Supervisor makes namespace, helpers and mounts, in any order.
Make(d, p) ==
    /\ p \in Inner \ {"Runsc"}
    /\ supervisor[d] = "Building"
    /\ MayMake(d, p)
    /\ p \in Helpers => Ours(d, "NetworkNamespace")
    /\ Put(d, p)
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>

\* The Network Sidecar role installs the derived policy and reads it back.
InstallPolicy(d, effect) ==
    /\ supervisor[d] = "Building"
    /\ policy[d] = "None"
    /\ Ours(d, "NetworkNamespace") /\ \A p \in Helpers : Ours(d, p)
    /\ policy' = [policy EXCEPT ![d] = effect]
    /\ UNCHANGED <<peers, phase, document, world, supervisor, prepared, served, stored, anchor, escalations, breaches>>

\* A policy that reads back as it should and does not bind the sandbox is a fault.
PolicyTakesEffect(d) == InstallPolicy(d, "Effective") /\ UNCHANGED budget
PolicyHasNoEffect(d) == InstallPolicy(d, "Ineffective") /\ Fault("Policy")

\* runsc is started when mounts, helper and policy are ready, and not before (SR-5).
StartSandbox(d) ==
    /\ supervisor[d] = "Building"
    /\ policy[d] # "None"
    /\ \A p \in Mounts \cup Helpers : Ours(d, p)
    /\ MayMake(d, "Runsc")
    /\ Put(d, "Runsc")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>

\* What was made is recorded with its exact identity.
Prerequisites(p) ==
    IF p \in Mounts THEN {"RuntimeSupervisor", "Lease"}
    ELSE IF p \in Helpers \cup {"NetworkNamespace"} THEN {"RuntimeSupervisor"}
    ELSE IF p = "Runsc" THEN {"RuntimeSupervisor", "NetworkNamespace"} \cup Helpers \cup Mounts
    ELSE IF p = "Publication" THEN Sockets
    ELSE {}

Own(d, p) ==
    /\ phase[d] \in {"Beginning", "Building", "Publishing", "Published", "TearingDown"}
    /\ Decision(d) \in {"Starting", "Published", "TearingDown"}
    /\ Intent(d, p) = "Intended"
    /\ Ours(d, p)
    /\ \A q \in Prerequisites(p) : Intent(d, q) = "Owned"
    /\ p = "Runsc" => document[d].readiness
    /\ p = "Publication" => Decision(d) # "Starting"
    /\ document' = [document EXCEPT ![d].intent[p] = "Owned"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* Network readiness of this generation's own namespace is durable.
AttestNetwork(d) ==
    /\ phase[d] = "Building" /\ Decision(d) = "Starting"
    /\ ~document[d].readiness
    /\ policy[d] # "None"
    /\ \A p \in Helpers \cup {"RuntimeSupervisor", "NetworkNamespace"} : Intent(d, p) = "Owned"
    /\ document' = [document EXCEPT ![d].readiness = TRUE]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* The sandbox itself tried what is denied and what is permitted (FR-20).
AcceptProbe(d) ==
    /\ phase[d] = "Building" /\ Decision(d) = "Starting"
    /\ ~document[d].probe
    /\ Ours(d, "Runsc") /\ policy[d] = "Effective"
    /\ Intent(d, "Runsc") = "Owned"
    /\ document' = [document EXCEPT ![d].probe = TRUE]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

Later == Sockets \cup {"Publication"}

Attested(d) ==
    /\ phase[d] = "Building"
    /\ document[d].probe
    /\ \A p \in Participants \ Later : Intent(d, p) = "Owned"
    /\ phase' = [phase EXCEPT ![d] = "Publishing"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

BindSocket(d, p) ==
    /\ p \in Sockets
    /\ \/ phase[d] = "Publishing" /\ Decision(d) = "Starting"
       \/ phase[d] = "TearingDown" /\ document[d].probe                 \* under way when the end began
    /\ MayMake(d, p)
    /\ Put(d, p)
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>

\* The decision is durable before a client can find the generation.
Publish(d) ==
    /\ phase[d] = "Publishing" /\ Decision(d) = "Starting"
    /\ document[d].readiness /\ document[d].probe
    /\ \A p \in Participants \ {"Publication"} : Intent(d, p) = "Owned"
    /\ document' = [document EXCEPT ![d].decision = "Published"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

WritePublication(d) ==
    /\ \/ phase[d] = "Publishing" /\ Decision(d) = "Published"
       \/ phase[d] = "TearingDown" /\ document[d].probe /\ \A p \in Sockets : Intent(d, p) = "Owned"
    /\ MayMake(d, "Publication")
    /\ Put(d, "Publication")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>

PublicationOpen(d) ==
    /\ phase[d] = "Publishing" /\ Decision(d) = "Published"
    /\ Intent(d, "Publication") = "Owned"
    /\ phase' = [phase EXCEPT ![d] = "Published"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

------------------------------------------------------------------------------
(* Client Sessions.                                                          *)

\* A peer is who its certificate says: role, Domain, generation's Trust Anchor (SR-9, SR-16).
Accepts(d, credential) == credential = [role |-> "Client", domain |-> d, generation |-> Generation(d)]

\* Durable before the process is ordered.
RegisterSession(d, c) ==
    /\ client[c].state = "Joining"
    /\ DomainOf[c] = d
    /\ Serving(d)
    /\ Accepts(d, [role |-> "Client", domain |-> d, generation |-> client[c].generation])
    /\ session[c] = "None" /\ document[d].sessions[c] = "None"
    /\ document' = [document EXCEPT ![d].sessions[c] = "Intended"]
    /\ session' = [session EXCEPT ![c] = "Opening"]
    /\ exec' = [exec EXCEPT ![c] = "Ordered"]
    /\ client' = [client EXCEPT ![c].state = "Registered"]
    /\ Must(Decision(d) = "Published" /\ client[c].generation = Generation(d), "FR_10")
    /\ UNCHANGED <<coordinator, phase, world, inside, stored, anchor, escalations, budget>>

\* The client read the record of an earlier generation, and looks again.
RefuseStale(d, c) ==
    /\ client[c].state = "Joining"
    /\ DomainOf[c] = d
    /\ Serving(d)
    /\ ~Accepts(d, [role |-> "Client", domain |-> d, generation |-> client[c].generation])
    /\ client' = [client EXCEPT ![c] = [state |-> "Waiting", generation |-> 0]]
    /\ UNCHANGED <<coordinator, phase, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* Somebody else knocks: another Domain's client, a component of another role, a process of the sandbox.
Credentials == [role : {"Client", "AgentSandbox"}, domain : Domains \cup {"elsewhere"}, generation : Generations]

RefuseForeign(d, credential) ==
    /\ Serving(d)
    /\ credential.domain # d \/ credential.role # "Client"
    /\ Must(~Accepts(d, credential), "SR_9")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, escalations, budget>>

\* The session that the starting client announced is recorded without a client, with the generation's intents.
PrepareSession(d) ==
    /\ "PreparedSession" \in Features
    /\ phase[d] = "Beginning" /\ Decision(d) = "Starting"
    /\ document[d].prepared = "None"
    /\ \A p \in Directories : Intent(d, p) = "Intended"
    /\ document' = [document EXCEPT ![d].prepared = "Intended"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* Its `runsc exec` client is started as soon as the sandbox is there, beside the probe and before publication.
\* Its wrapper holds the command back in the guest.
StartPreparedSession(d) ==
    /\ document[d].prepared = "Intended"
    /\ supervisor[d] = "Building" /\ Ours(d, "Runsc")
    /\ prepared[d] = Nothing
    /\ prepared' = [prepared EXCEPT ![d] = Generation(d)]
    /\ UNCHANGED <<peers, phase, document, world, supervisor, policy, served, stored, anchor, escalations,
                   breaches, budget>>

\* Its exact processes are recorded: `StartSession` of a session without a client.
OwnPreparedSession(d) ==
    /\ Led(d) /\ Decision(d) \in {"Starting", "Published", "TearingDown"}
    /\ document[d].prepared = "Intended"
    /\ prepared[d] # Nothing
    /\ document' = [document EXCEPT ![d].prepared = "Owned"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* A client registers for exactly what was prepared: the session becomes its own. Otherwise as `RegisterSession`.
\* When the prepared process was lost meanwhile, its client is told.
AdoptSession(d, c) ==
    /\ client[c].state = "Joining"
    /\ DomainOf[c] = d
    /\ Serving(d)
    /\ Accepts(d, [role |-> "Client", domain |-> d, generation |-> client[c].generation])
    /\ session[c] = "None" /\ document[d].sessions[c] = "None"
    /\ document[d].prepared # "None"
    /\ document' = [document EXCEPT ![d].sessions[c] = document[d].prepared, ![d].prepared = "None"]
    /\ session' = [session EXCEPT ![c] = IF document[d].prepared = "Owned" THEN "Running" ELSE "Opening"]
    /\ exec' = [exec EXCEPT ![c] = IF prepared[d] # Nothing THEN "Held" ELSE "Over"]
    /\ prepared' = [prepared EXCEPT ![d] = Nothing]
    /\ client' = [client EXCEPT ![c].state = "Registered"]
    /\ Must(Decision(d) = "Published" /\ client[c].generation = Generation(d), "FR_10")
    /\ UNCHANGED <<coordinator, phase, world, supervisor, policy, stored, anchor, escalations, budget>>

\* Nobody registers for it although somebody else did: it is killed.
KillPreparedSession(d) ==
    /\ phase[d] = "Published"
    /\ supervisor[d] = "Building"
    /\ prepared[d] # Nothing
    /\ \E c \in ClientsOf(d) : session[c] # "None"
    /\ prepared' = [prepared EXCEPT ![d] = Nothing]
    /\ UNCHANGED <<peers, phase, document, world, supervisor, policy, served, stored, anchor, escalations,
                   breaches, budget>>

\* The prepared process ended by itself, or was lost.
LosePrepared(d) ==
    /\ Fault("Exec")
    /\ prepared[d] # Nothing
    /\ prepared' = [prepared EXCEPT ![d] = Nothing]
    /\ UNCHANGED <<peers, phase, document, world, supervisor, policy, served, stored, anchor, escalations, breaches>>

\* A prepared session of which nothing is left is no session any more: `EndSession` of one without a client.
ForgetPrepared(d) ==
    /\ document[d].prepared # "None" /\ prepared[d] = Nothing
    /\ \/ phase[d] \in {"Building", "Publishing", "Published"} /\ Ours(d, "Runsc")
       \/ phase[d] = "TearingDown" /\ supervisor[d] \in {"TearingDown", "Dying", "None"}
       \/ Cleaning(d) /\ supervisor[d] = "None"
    /\ document' = [document EXCEPT ![d].prepared = "None"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* An order may still be on its way when the generation begins to end.
Runs(d, c) == Must(Decision(d) \in {"Published", "TearingDown"} /\ document[d].sessions[c] # "None"
                   /\ document[d].probe /\ policy[d] = "Effective", "FR_10")

\* The Runtime Supervisor lets the command of an adopted session begin.
BeginSession(d, c) ==
    /\ DomainOf[c] = d
    /\ session[c] # "None" /\ exec[c] = "Held"
    /\ supervisor[d] = "Building" /\ Ours(d, "Runsc")
    /\ exec' = [exec EXCEPT ![c] = "Running"]
    /\ Runs(d, c)
    /\ UNCHANGED <<peers, phase, document, world, inside, session, stored, anchor, escalations, budget>>

\* The Runtime Supervisor starts a session's process.
SpawnSession(d, c) ==
    /\ DomainOf[c] = d
    /\ exec[c] = "Ordered"
    /\ supervisor[d] = "Building" /\ Ours(d, "Runsc")
    /\ exec' = [exec EXCEPT ![c] = "Running"]
    /\ Runs(d, c)
    /\ UNCHANGED <<peers, phase, document, world, inside, session, stored, anchor, escalations, budget>>

\* The order arrives when no sandbox is there, or not any more.
SpawnSessionFails(d, c) ==
    /\ DomainOf[c] = d
    /\ exec[c] = "Ordered"
    /\ supervisor[d] # "Building" \/ ~Ours(d, "Runsc")
    /\ exec' = [exec EXCEPT ![c] = "Over"]
    /\ UNCHANGED <<peers, phase, document, world, inside, session, stored, anchor, escalations, breaches, budget>>

\* The session's exact processes are recorded; input flows from here on.
StartSession(d, c) ==
    /\ DomainOf[c] = d
    /\ session[c] \in {"Opening", "Ending"}
    /\ exec[c] \in {"Held", "Running"}
    /\ document[d].sessions[c] = "Intended"
    /\ Decision(d) \in {"Published", "TearingDown"}
    /\ document' = [document EXCEPT ![d].sessions[c] = "Owned"]
    /\ session' = [session EXCEPT ![c] = IF @ = "Opening" THEN "Running" ELSE @]
    /\ UNCHANGED <<peers, phase, world, inside, exec, stored, anchor, escalations, breaches, budget>>

\* Window size, Interrupt, Quit, Suspend, input: traffic of a live session with its own process.
ControlSession(c) ==
    /\ client[c].state = "Registered"
    /\ session[c] = "Running" /\ Admitted(c)
    /\ Must(Admitted(c) /\ document[DomainOf[c]].sessions[c] = "Owned", "FR_15")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, escalations, budget>>

\* The coordinator ends a session: no traffic reaches it any more, and its processes are going to be killed.
Close(d, c) ==
    /\ DomainOf[c] = d
    /\ Led(d)
    /\ session[c] \in {"Opening", "Running"}
    /\ session' = [session EXCEPT ![c] = "Ending"]
    /\ UNCHANGED <<peers, phase, document, world, inside, exec, stored, anchor, escalations, breaches, budget>>

\* Its client is gone, or the generation ends.
CloseSession(d, c) == Close(d, c) /\ (client[c].state # "Registered" \/ phase[d] = "TearingDown")

\* The session's process tree in the guest is killed, and nothing else; a process not known yet is waited for.
KillSession(d, c) ==
    /\ DomainOf[c] = d
    /\ session[c] = "Ending"
    /\ exec[c] \in {"Held", "Running"}
    /\ supervisor[d] \in {"Building", "TearingDown"}
    /\ exec' = [exec EXCEPT ![c] = "Over"]
    /\ UNCHANGED <<peers, phase, document, world, inside, session, stored, anchor, escalations, breaches, budget>>

\* The command ends by itself, or the process that carries it.
SessionExits(c) ==
    /\ exec[c] \in {"Held", "Running"}
    /\ session[c] # "None"
    /\ exec' = [exec EXCEPT ![c] = "Over"]
    /\ UNCHANGED <<peers, phase, document, world, inside, session, stored, anchor, escalations, breaches, budget>>

\* Nothing of the session is left; its client hears how it ended.
EndSession(d, c) ==
    /\ DomainOf[c] = d
    /\ session[c] # "None"
    /\ exec[c] = "Over"
    /\ \A r \in Requests : escalation[r].session = c => escalation[r].phase = "Settled"
    /\ Decision(d) \in {"Published", "TearingDown"}
    /\ document' = [document EXCEPT ![d].sessions[c] = "None"]
    /\ session' = [session EXCEPT ![c] = "None"]
    /\ exec' = [exec EXCEPT ![c] = "None"]
    /\ client' = [client EXCEPT ![c] = IF @.state = "Registered" THEN NoClient ELSE @]
    /\ UNCHANGED <<coordinator, phase, world, inside, stored, anchor, escalations, breaches, budget>>

------------------------------------------------------------------------------
(* Host Escalation (SR-7, FR-5).                                             *)

\* What the untrusted Escalation Client may write: anything. A signature is genuine when the session's anchor made it,
\* which every process of the sandbox can use, also one of an earlier generation or of a session that ended.
Messages == [request : Requests, session : Clients, generation : Generations, command : Commands, signed : BOOLEAN]

Authentic(d, m) ==
    /\ m.signed
    /\ m.generation = Generation(d)
    /\ DomainOf[m.session] = d
    /\ session[m.session] \in {"Opening", "Running"}

\* A request is accepted once: its ID is remembered as long as the generation lives.
AcceptEscalation(d, m) ==
    /\ "Escalate" \in Features
    /\ Serving(d)
    /\ Authentic(d, m)
    /\ escalation[m.request].phase = "None" /\ command[m.request].state = "None"
    /\ escalation' = [escalation EXCEPT ![m.request] =
                       [phase |-> "Accepted", session |-> m.session, command |-> m.command, outcome |-> NoOne]]
    /\ Must(Admitted(m.session) /\ m.signed /\ m.generation = Generation(d), "FR_10")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, command, budget>>

\* Forged, stale, of an unknown session, or a request that was seen already.
RefuseEscalation(d, m) ==
    /\ "Escalate" \in Features
    /\ Serving(d)
    /\ ~Authentic(d, m) \/ escalation[m.request].phase # "None"
    /\ UNCHANGED vars

Settle(r, outcome) == escalation' = [escalation EXCEPT ![r].phase = "Ended", ![r].outcome = outcome]

AutoApprove(d, r) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Accepted" /\ Rule[escalation[r].command] = "Allow"
    /\ Admitted(escalation[r].session)
    /\ escalation' = [escalation EXCEPT ![r].phase = "Approved"]
    /\ approved' = [approved EXCEPT ![r] = {escalation[r].command}]
    /\ document' = [document EXCEPT ![d].commands[r] = "Intended"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, answers, command, breaches, budget>>

AutoDeny(d, r) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Accepted" /\ Rule[escalation[r].command] = "Deny"
    /\ Settle(r, "Denied")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, command,
                   breaches, budget>>

\* The prompt goes to the client whose session asks.
PromptTo(d, r, c) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Accepted" /\ Rule[escalation[r].command] = "Ask"
    /\ c = escalation[r].session
    /\ client[c].state = "Registered" /\ Admitted(c)
    /\ escalation' = [escalation EXCEPT ![r].phase = "Prompted"]
    /\ Must(c = escalation[r].session /\ Admitted(c), "FR_5")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, command, budget>>

\* The developer answers what the prompt shows.
AnswerPrompt(r, verdict) ==
    /\ escalation[r].phase = "Prompted"
    /\ client[escalation[r].session].state = "Registered"
    /\ ~\E a \in answers : a.request = r
    /\ answers' = answers \cup {[request |-> r, command |-> escalation[r].command, verdict |-> verdict]}
    /\ approved' = IF verdict = "Approve" THEN [approved EXCEPT ![r] = {escalation[r].command}] ELSE approved
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, escalation, command, breaches, budget>>

Matches(answer, r) == answer.request = r /\ answer.command = escalation[r].command

\* The intent to run the command is durable with the approval.
Approve(d, r, answer) ==
    /\ answer \in answers /\ answer.verdict = "Approve"
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Prompted"
    /\ Matches(answer, r)
    /\ Admitted(escalation[r].session)
    /\ escalation' = [escalation EXCEPT ![r].phase = "Approved"]
    /\ answers' = answers \ {answer}
    /\ document' = [document EXCEPT ![d].commands[r] = "Intended"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, approved, command, breaches, budget>>

Deny(d, r, answer) ==
    /\ answer \in answers /\ answer.verdict = "Deny"
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Prompted"
    /\ Matches(answer, r)
    /\ Settle(r, "Denied")
    /\ answers' = answers \ {answer}
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, approved, command, breaches, budget>>

\* An answer that comes too late, or to nothing, has no effect.
DropAnswer(answer) ==
    /\ answer \in answers
    /\ escalation[answer.request].phase # "Prompted"
    /\ answers' = answers \ {answer}
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, escalation, approved, command,
                   breaches, budget>>

\* The process is spawned and held back: it dies with the coordinator as long as it is not let go.
SpawnHostCommand(d, r) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Approved"
    /\ Admitted(escalation[r].session)
    /\ document[d].commands[r] = "Intended"
    /\ command[r].state = "None"
    /\ command' = [command EXCEPT ![r] = [state |-> "Held", domain |-> d]]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, escalation, answers, approved,
                   breaches, budget>>

OwnHostCommand(d, r) ==
    /\ r \in EscalationsOf(d)
    /\ command[r].state = "Held"
    /\ document[d].commands[r] = "Intended"
    /\ document' = [document EXCEPT ![d].commands[r] = "Owned"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* The argument vector is executed without a shell; its exact process is recorded.
ExecuteHostCommand(d, r) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Approved"
    /\ Admitted(escalation[r].session)
    /\ command[r].state = "Held"
    /\ document[d].commands[r] = "Owned"
    /\ command' = [command EXCEPT ![r].state = "Running"]
    /\ escalation' = [escalation EXCEPT ![r].phase = "Running"]
    /\ Must(escalation[r].command \in approved[r], "SR_7")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, budget>>

HostCommandExits(d, r) ==
    /\ r \in CommandsOf(d)
    /\ command[r].state = "Running"
    /\ command' = [command EXCEPT ![r] = NoCommand]
    /\ IF escalation[r].phase = "Running" THEN Settle(r, "Executed") ELSE UNCHANGED escalation
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, breaches, budget>>

Undecided == {"Accepted", "Prompted", "Approved", "Running"}

\* The requester takes it back, its session ends, or the generation does. A command that runs is killed with it.
StopEscalation(r, outcome) ==
    /\ escalation[r].phase \in Undecided
    /\ Settle(r, outcome)
    /\ command' = [command EXCEPT ![r] = NoCommand]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, breaches, budget>>

CancelEscalation(d, r) == r \in EscalationsOf(d) /\ Led(d) /\ StopEscalation(r, "Cancelled")
TimeOut(d, r)          == r \in EscalationsOf(d) /\ Led(d) /\ StopEscalation(r, "TimedOut")

\* Its process is gone; the document says so before the result is delivered.
ReleaseHostCommand(d, r) ==
    /\ document[d].commands[r] # "None"
    /\ command[r].state = "None"
    /\ \/ r \in EscalationsOf(d) /\ escalation[r].phase = "Ended" /\ Decision(d) \in {"Published", "TearingDown"}
       \/ Cleaning(d) /\ r \notin EscalationsOf(d)
    /\ document' = [document EXCEPT ![d].commands[r] = "None"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* The result is written where only the requesting session looks for it.
DeliverResult(d, r, c) ==
    /\ r \in EscalationsOf(d)
    /\ escalation[r].phase = "Ended"
    /\ document[d].commands[r] = "None"
    /\ c = escalation[r].session
    /\ escalation' = [escalation EXCEPT ![r].phase = "Settled"]
    /\ Must(c = escalation[r].session, "FR_5")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, answers, approved, command, budget>>

\* Recovery kills a host command that outlived its coordinator, exactly.
KillHostCommand(d, r) ==
    /\ Cleaning(d)
    /\ document[d].commands[r] = "Owned"
    /\ command[r].state = "Running" /\ command[r].domain = d
    /\ command' = [command EXCEPT ![r] = NoCommand]
    /\ UNCHANGED <<peers, phase, document, world, inside, served, stored, anchor, escalation, answers, approved,
                   breaches, budget>>

------------------------------------------------------------------------------
(* Teardown by the generation's own coordinator (FR-6).                      *)

Ending(d) ==
    /\ phase' = [phase EXCEPT ![d] = "TearingDown"]
    /\ document' = [document EXCEPT ![d].decision = "TearingDown",
                     ![d].release = IF Left(d, "Lease") THEN "Intended" ELSE @]
    /\ UNCHANGED <<peers, world, inside, served, stored, anchor, escalations, breaches>>

\* The last session ended and the linger time is over.
LingerElapsed(d) == Serving(d) /\ NoSession(d) /\ Ending(d) /\ UNCHANGED budget

\* The developer takes the Domain down.
DownRequested(d) == "Down" \in Features /\ phase[d] = "Published" /\ Ending(d) /\ UNCHANGED budget

\* The client that started the Domain went away before publication.
CancelStartup(d) ==
    /\ \A c \in Leaders(d) : client[c].state = "Idle"
    /\ UNCHANGED budget
    /\ \/ phase[d] \in {"Building", "Publishing"} /\ Ending(d)
       \/ /\ Unmade(d)
          /\ phase' = [phase EXCEPT ![d] = "Ended"]
          /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches>>

\* A process that the sandbox stands on is gone, or a step can't succeed.
Lost(d) ==
    \/ supervisor[d] \in {"None", "Dying"} /\ Intent(d, "RuntimeSupervisor") # "Intended"
    \/ supervisor[d] = "Dying"
    \/ \E p \in Helpers \cup {"Runsc"} : Intent(d, p) = "Owned" /\ ~Ours(d, p)
    \/ supervisor[d] = "Building" /\ policy[d] # "None" /\ \E p \in Helpers : ~Ours(d, p)
    \/ policy[d] = "Ineffective" /\ Intent(d, "Runsc") = "Owned"
    \/ phase[d] = "Building" /\ ~HasLease(d) /\ catalog.artifact[document[d].artifact] # "Ready"
    \/ phase[d] \in {"Building", "Publishing"} /\ \E p \in Participants \ {"Lease"} : world[d][p] = Foreign

\* The generation is going to end: its sessions are closed to traffic before that is durable.
CloseBeforeEnd(d, c) == Close(d, c) /\ phase[d] = "Published" /\ ("Down" \in Features \/ Lost(d))

\* A step failed, the probe did, or a process that the sandbox stands on was lost.
Failed(d) ==
    /\ phase[d] \in {"Building", "Publishing", "Published"}
    /\ \/ Lost(d) /\ UNCHANGED budget
       \/ phase[d] # "Published" /\ Fault("Step")
    /\ Ending(d)

\* No client finds the generation any more: exactly our record and sockets go, once what is
\* under way is recorded. In a recovery as well.
RemoveFile(d, p) ==
    /\ p \in Sockets \cup {"Publication"}
    /\ (phase[d] = "TearingDown" /\ Intent(d, p) = "Owned") \/ Cleaning(d)
    /\ Left(d, p)
    /\ Ours(d, p)
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ Must(Ours(d, p), "FR_7")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, budget>>

OrderTearDown(d) ==
    /\ phase[d] = "TearingDown"
    /\ supervisor[d] \in {"Waiting", "Building"}
    /\ supervisor' = [supervisor EXCEPT ![d] = "TearingDown"]
    /\ UNCHANGED <<peers, phase, document, world, policy, prepared, served, stored, anchor, escalations, breaches, budget>>

ExecsOver(d) == exec' = [c \in Clients |-> IF DomainOf[c] = d /\ exec[c] \in {"Held", "Running"}
                                           THEN IF session[c] = "None" THEN "None" ELSE "Over"
                                           ELSE exec[c]]

\* The sandbox goes first, with everything that runs in it, prepared session included.
EndSandbox(d) ==
    /\ supervisor[d] = "TearingDown"
    /\ Ours(d, "Runsc")
    /\ world' = [world EXCEPT ![d]["Runsc"] = Nothing]
    /\ prepared' = [prepared EXCEPT ![d] = Nothing]
    /\ ExecsOver(d)
    /\ UNCHANGED <<peers, phase, document, supervisor, policy, session, stored, anchor, escalations, breaches, budget>>

\* Then what it was built on.
TakeDown(d, p) ==
    /\ p \in Mounts \cup Helpers
    /\ supervisor[d] = "TearingDown"
    /\ ~Ours(d, "Runsc")
    /\ Ours(d, p)
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>

\* Directories that only a process with the Domain's identity mapping can empty; exactly ours, and nothing is mounted.
RemoveStorage(d, p) ==
    /\ p \in Directories
    /\ supervisor[d] = "TearingDown"
    /\ \A q \in Mounts \cup {"Runsc"} : ~Ours(d, q)
    /\ Ours(d, p)
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ Must(Ours(d, p), "FR_7")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, budget>>

SupervisorExits(d) ==
    /\ supervisor[d] = "TearingDown"
    /\ \A p \in Mounts \cup Helpers \cup {"Runsc"} : ~Ours(d, p)
    /\ supervisor' = [supervisor EXCEPT ![d] = "Dying"]
    /\ UNCHANGED <<peers, phase, document, world, policy, prepared, served, stored, anchor, escalations, breaches, budget>>

\* Sessions are closed and the supervisor is gone: what is left is removed as a recovery would.
BeginRelease(d) ==
    /\ phase[d] = "TearingDown"
    /\ NoSession(d)
    /\ \A r \in EscalationsOf(d) : escalation[r].phase = "Settled"
    /\ supervisor[d] = "None"
    /\ phase' = [phase EXCEPT ![d] = "Releasing"]
    /\ escalation' = [r \in Requests |-> IF r \in EscalationsOf(d) THEN NoEscalation ELSE escalation[r]]
    /\ approved' = [r \in Requests |-> IF r \in EscalationsOf(d) THEN {} ELSE approved[r]]
    /\ answers' = {a \in answers : a.request \notin EscalationsOf(d)}
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, command, breaches, budget>>

------------------------------------------------------------------------------
(* Recovery, and the last part of every teardown (FR-7, FR-13, FR-17).       *)

\* A later coordinator takes charge, or the own one of a generation that was never built; only from here on does it
\* touch anything.
BeginRecovery(d) ==
    /\ phase[d] = "Recovering" \/ (phase[d] = "Releasing" /\ Decision(d) = "Starting")
    /\ Decision(d) \in {"Starting", "Published", "TearingDown", "Recovering"}
    /\ document' = [document EXCEPT ![d].decision = "Recovering"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

IntendLeaseRelease(d) ==
    /\ Cleaning(d)
    /\ Left(d, "Lease") /\ document[d].release = "NotBegun"
    /\ document' = [document EXCEPT ![d].release = "Intended"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* Through a pidfd, after comparing pid, start time and boot. In a teardown: its deadline expired.
KillSupervisor(d) ==
    /\ phase[d] = "TearingDown" \/ Cleaning(d)
    /\ Intent(d, "RuntimeSupervisor") = "Owned"
    /\ Ours(d, "RuntimeSupervisor") /\ supervisor[d] # "Dying"
    /\ supervisor' = [supervisor EXCEPT ![d] = "Dying"]
    /\ Must(Ours(d, "RuntimeSupervisor"), "FR_7")
    /\ UNCHANGED <<peers, phase, document, world, policy, prepared, served, stored, anchor, escalations, budget>>

\* A recorded process that outlived the Runtime Supervisor is killed, exactly.
KillProcess(d, p) ==
    /\ p \in Processes \ {"RuntimeSupervisor"}
    /\ Cleaning(d)
    /\ supervisor[d] = "None"
    /\ Intent(d, p) = "Owned"
    /\ Ours(d, p)
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ Must(Ours(d, p), "FR_7")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, budget>>

\* An owned directory is removed with its content, an intended one by rmdir(2); nothing is mounted below it.
RemoveDirectory(d, p) ==
    /\ p \in Directories
    /\ Cleaning(d)
    /\ Left(d, p)
    /\ ~AnyLeft(d, Inner)
    /\ Ours(d, p)
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ Must(Ours(d, p) /\ \A q \in Mounts : world[d][q] # Generation(d), "FR_7")
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, budget>>

\* What may be recorded as gone. At a process's place a stranger means that ours is gone; at a path he stays and is named.
\* A process that was intended and never recorded is waited for: it dies with the coordinator that made it.
Releasable(d) ==
    {p \in Participants \ {"Lease"} :
        /\ Left(d, p)
        /\ ~Ours(d, p)
        /\ p \in Paths => world[d][p] = Nothing
        /\ p \in Mounts /\ Left(d, "Lease") => document[d].release # "NotBegun"
        /\ p = "RuntimeSupervisor" => ~AnyLeft(d, Inner)
        /\ p \in Directories => ~AnyLeft(d, Mounts)}

Release(d, P) ==
    /\ Cleaning(d)
    /\ P \subseteq Releasable(d)
    /\ document' = [document EXCEPT ![d].intent = [p \in Participants |-> IF p \in P THEN "Released" ELSE @[p]]]
    \* A released process's number is forgotten; whoever has it is no concern of the Domain.
    /\ world' = [world EXCEPT ![d] = [p \in Things |-> IF p \in P /\ @[p] = Foreign THEN Nothing ELSE @[p]]]
    /\ UNCHANGED <<peers, phase, inside, served, stored, anchor, escalations, breaches, budget>>

\* A session of the dead generation: its processes ended with the supervisor.
ForgetSession(d, c) ==
    /\ Cleaning(d)
    /\ document[d].sessions[c] # "None"
    /\ exec[c] \notin {"Held", "Running"}
    /\ document' = [document EXCEPT ![d].sessions[c] = "None"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

ConfirmUnmounted(d) ==
    /\ Cleaning(d)
    /\ document[d].release = "Intended"
    /\ ~AnyLeft(d, Mounts \cup {"Runsc"})
    /\ document' = [document EXCEPT ![d].release = "Unmounted"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* The catalog's record of exactly this generation is deleted; nothing of the prepared lower is mounted (FR-17).
ReleaseLease(d) ==
    /\ Cleaning(d)
    /\ document[d].release = "Unmounted"
    /\ HasLease(d)
    /\ catalog' = [catalog EXCEPT !.leases = {l \in @ : ~(l.domain = d /\ l.generation = Generation(d))}]
    /\ Must(\A p \in Mounts : world[d][p] \notin Generations, "FR_17")
    /\ UNCHANGED <<peers, phase, document, world, inside, served, disk, anchor, escalations, budget>>

ConfirmCatalogDelete(d) ==
    /\ Cleaning(d)
    /\ document[d].release = "Unmounted"
    /\ ~HasLease(d)
    /\ document' = [document EXCEPT ![d].release = "Deleted", ![d].intent["Lease"] = "Released"]
    /\ UNCHANGED <<peers, phase, world, inside, served, stored, anchor, escalations, breaches, budget>>

Finish(d) ==
    /\ Cleaning(d)
    /\ ~AnyLeft(d, Participants)
    /\ \A c \in Clients : document[d].sessions[c] = "None"
    /\ document[d].prepared = "None"
    /\ \A r \in Requests : document[d].commands[r] = "None"
    /\ document' = [document EXCEPT ![d] = [NoDocument EXCEPT !.generation = Generation(d), !.decision = "Clean"]]
    /\ phase' = IF phase[d] = "Releasing" THEN [phase EXCEPT ![d] = "Ended"] ELSE phase
    /\ UNCHANGED <<peers, world, inside, served, stored, anchor, escalations, breaches, budget>>

\* Something can't be removed or recorded: it is left to the next leader.
ReleaseFails(d) ==
    /\ phase[d] = "Releasing"
    /\ Fault("Step")
    /\ phase' = [phase EXCEPT ![d] = "Ended"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches>>

\* Everything that is provably ours is gone; what is not is left alone and named, and the Domain does not become clean.
Refuse(d) ==
    /\ Cleaning(d)
    /\ \E p \in Paths : Left(d, p) /\ world[d][p] = Foreign
    /\ \A p \in Participants : Left(d, p) => p \in Paths /\ world[d][p] = Foreign
    /\ document[d].prepared = "None"
    /\ phase' = [phase EXCEPT ![d] = "Ended"]
    /\ UNCHANGED <<peers, document, world, inside, served, stored, anchor, escalations, breaches, budget>>

------------------------------------------------------------------------------
(* Crashes, the kernel, strangers.                                           *)

\* A Host Coordinator is killed at any moment: its memory, its connections and what it holds back go with it.
\* The Runtime Supervisor gets its death signal; until it is gone everything that it made is there.
CrashCoordinator(c) ==
    LET d    == DomainOf[c]
        lead == coordinator[c] = "Leader"
        mine == IF lead THEN EscalationsOf(d) ELSE {}
        held == IF lead THEN {r \in CommandsOf(d) : command[r].state = "Held"} ELSE {}
        at(x) == lead /\ DomainOf[x] = d
    IN
    /\ Fault("Coordinator")
    /\ coordinator[c] # "None"
    /\ coordinator' = [coordinator EXCEPT ![c] = "None"]
    /\ client' = [x \in Clients |-> IF (at(x) /\ client[x].state = "Registered") \/ (x = c /\ client[x].state = "Waiting")
                                    THEN NoClient ELSE client[x]]
    /\ phase' = IF lead THEN [phase EXCEPT ![d] = "None"] ELSE phase
    /\ supervisor' = IF lead /\ supervisor[d] # "None" THEN [supervisor EXCEPT ![d] = "Dying"] ELSE supervisor
    /\ session' = [x \in Clients |-> IF at(x) THEN "None" ELSE session[x]]
    /\ exec' = [x \in Clients |-> IF at(x) /\ exec[x] \notin {"Held", "Running"} THEN "None" ELSE exec[x]]
    /\ escalation' = [r \in Requests |-> IF r \in mine THEN NoEscalation ELSE escalation[r]]
    /\ approved' = [r \in Requests |-> IF r \in mine THEN {} ELSE approved[r]]
    /\ answers' = {a \in answers : a.request \notin mine}
    /\ command' = [r \in Requests |-> IF r \in held THEN NoCommand ELSE command[r]]
    /\ catalog' = [catalog EXCEPT !.preparation =
                    [q \in Preparations |-> IF @[q].owner = c THEN [@[q] EXCEPT !.owner = NoOne] ELSE @[q]]]
    /\ UNCHANGED <<document, world, policy, prepared, disk, anchor, breaches>>

CrashSupervisor(d) ==
    /\ Fault("Supervisor")
    /\ supervisor[d] \notin {"None", "Dying"}
    /\ supervisor' = [supervisor EXCEPT ![d] = "Dying"]
    /\ UNCHANGED <<peers, phase, document, world, policy, prepared, served, stored, anchor, escalations, breaches>>

\* The kernel has ended the Runtime Supervisor and all of its namespaces: processes, mounts, network.
\* A recorded process may have escaped that.
SupervisorGone(d, survivors) ==
    /\ supervisor[d] = "Dying"
    /\ survivors \subseteq {p \in Survivors : Ours(d, p) /\ Intent(d, p) = "Owned"}
    /\ survivors # {} => "Survivor" \in Faults
    /\ world' = [world EXCEPT ![d] =
                  [p \in Things |-> IF p \in Inner \cup {"RuntimeSupervisor"} /\ @[p] \in Generations /\ p \notin survivors
                                    THEN Nothing ELSE @[p]]]
    /\ supervisor' = [supervisor EXCEPT ![d] = "None"]
    /\ policy' = [policy EXCEPT ![d] = "None"]
    /\ prepared' = [prepared EXCEPT ![d] = Nothing]
    /\ ExecsOver(d)
    /\ UNCHANGED <<peers, phase, document, session, stored, anchor, escalations, breaches, budget>>

\* The connectivity helper, or attached runsc, dies by itself; with runsc goes the sandbox.
CrashProcess(d, p) ==
    /\ p \in Helpers \cup {"Runsc"}
    /\ Fault(IF p = "Runsc" THEN "Runsc" ELSE "Helper")
    /\ supervisor[d] # "None"
    /\ Ours(d, p)
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ prepared' = IF p = "Runsc" THEN [prepared EXCEPT ![d] = Nothing] ELSE prepared
    /\ IF p = "Runsc" THEN ExecsOver(d) ELSE UNCHANGED exec
    /\ UNCHANGED <<peers, phase, document, supervisor, policy, session, stored, anchor, escalations, breaches>>

\* A stranger's thing replaces ours at a path, or lies there before ours is made.
Intrude(d, p) ==
    /\ Fault("Foreign")
    /\ p \in Paths \cap ForeignPlaces
    /\ Left(d, p)
    /\ world[d][p] # Foreign
    /\ world' = [world EXCEPT ![d][p] = Foreign]
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches>>

\* A recorded process is gone and another one gets its pid.
ReusePid(d, p) ==
    /\ Fault("PidReuse")
    /\ p \in Processes \cap ForeignPlaces
    /\ Intent(d, p) = "Owned"
    /\ world[d][p] = Nothing
    /\ world' = [world EXCEPT ![d][p] = Foreign]
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches>>

\* The developer moves the stranger's thing away, as the refusal says.
MoveAway(d, p) ==
    /\ p \in Paths
    /\ world[d][p] = Foreign
    /\ world' = [world EXCEPT ![d][p] = Nothing]
    /\ UNCHANGED <<peers, phase, document, inside, served, stored, anchor, escalations, breaches, budget>>

------------------------------------------------------------------------------
(* All steps, by who takes them.                                             *)

ClientNext(c) ==
    \/ SpawnCoordinator(c) \/ Discover(c) \/ FailToConnect(c) \/ GiveUp(c)
    \/ Elect(c) \/ LoseElection(c) \/ ControlSession(c) \/ SessionExits(c)
    \/ CrashClient(c) \/ CrashCoordinator(c)

LeaderNext(d) ==
    \/ Recovered(d) \/ ReportRecovered(d) \/ StartupFails(d) \/ Exit(d)
    \/ IntendReset(d) \/ SetLayerAside(d) \/ MakeEmptyLayer(d) \/ DiscardLayer(d) \/ FinishReset(d)
    \/ \E a \in Artifacts : FindArtifact(d, a) \/ BeginGeneration(d, a)
    \/ \E a \in Artifacts, q \in Preparations : BeginPreparation(d, q, a)
    \/ \E P \in Transactions({p \in Participants : Intent(d, p) = "None"}) : Intend(d, P)
    \/ \E p \in Participants : MakeDirectory(d, p) \/ Own(d, p) \/ BindSocket(d, p)
    \/ PrepareSession(d) \/ OwnPreparedSession(d) \/ ForgetPrepared(d)
    \/ Begun(d) \/ BeginFails(d) \/ AcquireLease(d) \/ SpawnSupervisor(d) \/ OrderBuild(d)
    \/ AttestNetwork(d) \/ AcceptProbe(d) \/ Attested(d) \/ Publish(d) \/ WritePublication(d) \/ PublicationOpen(d)
    \/ LingerElapsed(d) \/ DownRequested(d) \/ CancelStartup(d) \/ Failed(d)
    \/ OrderTearDown(d) \/ BeginRelease(d)
    \/ BeginRecovery(d) \/ IntendLeaseRelease(d) \/ KillSupervisor(d)
    \/ \E p \in Participants : RemoveFile(d, p) \/ KillProcess(d, p) \/ RemoveDirectory(d, p)
    \/ \E P \in Transactions(Releasable(d)) : Release(d, P)
    \/ \E c \in Clients : ForgetSession(d, c) \/ CloseBeforeEnd(d, c)
    \/ ConfirmUnmounted(d) \/ ReleaseLease(d) \/ ConfirmCatalogDelete(d) \/ Finish(d) \/ Refuse(d) \/ ReleaseFails(d)

SessionNext(d, c) ==
    \/ RegisterSession(d, c) \/ RefuseStale(d, c) \/ AdoptSession(d, c) \/ SpawnSession(d, c)
    \/ BeginSession(d, c) \/ SpawnSessionFails(d, c) \/ StartSession(d, c) \/ CloseSession(d, c) \/ KillSession(d, c) \/ EndSession(d, c)

SupervisorNext(d) ==
    \/ \E p \in Inner : Make(d, p) \/ TakeDown(d, p)
    \/ PolicyTakesEffect(d) \/ PolicyHasNoEffect(d) \/ StartSandbox(d) \/ StartPreparedSession(d) \/ KillPreparedSession(d)
    \/ EndSandbox(d) \/ SupervisorExits(d) \/ \E p \in Directories : RemoveStorage(d, p)

PreparationNext(q) ==
    \/ MakePreparation(q) \/ OwnPreparation(q) \/ FillPreparation(q) \/ SealPreparation(q) \/ RenamePreparation(q)
    \/ DiscardPreparation(q) \/ CompletePreparation(q) \/ GiveUpPreparation(q) \/ ReclaimPreparation(q)
    \/ AbandonPreparation(q)

CollectorNext(a) == BeginRemoval(a) \/ RemoveArtifact(a) \/ FinishRemoval(a)

EscalationNext(d, r) ==
    \/ AutoApprove(d, r) \/ AutoDeny(d, r) \/ \E c \in Clients : PromptTo(d, r, c) \/ DeliverResult(d, r, c)
    \/ \E answer \in answers : Approve(d, r, answer)
    \/ \E answer \in answers : Deny(d, r, answer)
    \/ SpawnHostCommand(d, r) \/ OwnHostCommand(d, r) \/ ExecuteHostCommand(d, r) \/ HostCommandExits(d, r)
    \/ CancelEscalation(d, r) \/ TimeOut(d, r) \/ ReleaseHostCommand(d, r) \/ KillHostCommand(d, r)

SandboxNext(d) == \E m \in Messages : AcceptEscalation(d, m) \/ RefuseEscalation(d, m)

DeveloperNext ==
    \/ \E r \in Requests, verdict \in {"Approve", "Deny"} : AnswerPrompt(r, verdict)
    \/ \E answer \in answers : DropAnswer(answer)

WorldNext(d) ==
    \/ CrashSupervisor(d) \/ LosePrepared(d)
    \/ \E survivors \in SUBSET Survivors : SupervisorGone(d, survivors)
    \/ \E p \in Participants : CrashProcess(d, p) \/ Intrude(d, p) \/ ReusePid(d, p)
    \/ \E p \in Paths : MoveAway(d, p)
    \/ \E credential \in Credentials : RefuseForeign(d, credential)

Next ==
    \/ \E c \in Clients : ClientNext(c)
    \/ \E d \in Domains : LeaderNext(d) \/ SupervisorNext(d) \/ WorldNext(d) \/ SandboxNext(d)
    \/ \E d \in Domains, c \in Clients : SessionNext(d, c)
    \/ \E d \in Domains, r \in Requests : EscalationNext(d, r)
    \/ \E q \in Preparations : PreparationNext(q)
    \/ \E a \in Artifacts : CollectorNext(a)
    \/ DeveloperNext

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
(* Invariants, each named after the requirement that it protects.            *)

TypeOK ==
    /\ client \in [Clients -> [state : {"Idle", "Waiting", "Joining", "Registered"}, generation : 0..MaxGeneration]]
    /\ coordinator \in [Clients -> {"None", "Candidate", "Leader"}]
    /\ phase \in [Domains -> Phases]
    /\ document \in [Domains -> [generation : 0..MaxGeneration, decision : Decisions,
                                 intent : [Participants -> Intents], artifact : Artifacts \cup {NoOne},
                                 readiness : BOOLEAN, probe : BOOLEAN, release : Releases,
                                 sessions : [Clients -> {"None", "Intended", "Owned"}],
                                 prepared : {"None", "Intended", "Owned"},
                                 commands : [Requests -> {"None", "Intended", "Owned"}]]]
    /\ world \in [Domains -> [Things -> 0..Foreign]]
    /\ supervisor \in [Domains -> {"None", "Waiting", "Building", "TearingDown", "Dying"}]
    /\ policy \in [Domains -> {"None", "Effective", "Ineffective"}]
    /\ prepared \in [Domains -> 0..MaxGeneration]
    /\ session \in [Clients -> {"None", "Opening", "Running", "Ending"}]
    /\ exec \in [Clients -> {"None", "Ordered", "Held", "Running", "Over"}]
    /\ catalog.artifact \in [Artifacts -> {"None", "Ready", "Removing"}]
    /\ catalog.preparation \in [Preparations -> [state : {"None", "Intended", "Owned", "Sealed"},
                                                 owner : Clients \cup {NoOne}, artifact : Artifacts \cup {NoOne}]]
    /\ catalog.leases \subseteq [domain : Domains, generation : Generations, artifact : Artifacts]
    /\ disk.tree \in [Artifacts -> Preparations \cup {"Absent", "Complete"}]
    /\ disk.partial \in [Preparations -> {"Absent", "Empty", "Filled"}]
    /\ anchor \in [Domains -> [intended : BOOLEAN, upper : {"Prior", "Missing", "Empty"}, aside : BOOLEAN]]
    /\ escalation \in [Requests -> [phase : {"None", "Ended", "Settled"} \cup Undecided,
                                    session : Clients \cup {NoOne}, command : Commands \cup {NoOne},
                                    outcome : {"Denied", "Executed", "Cancelled", "TimedOut", NoOne}]]
    /\ command \in [Requests -> [state : {"None", "Held", "Running"}, domain : Domains \cup {NoOne}]]

\* OR-1: at most one leader, and only it has a phase.
OR_1_OneLeader ==
    \A d \in Domains : Cardinality(Leaders(d)) <= 1 /\ (Led(d) <=> phase[d] # "None")

\* FR-21: nothing of ours is in the world without durable intent of its very generation.
FR_21_NoResourceWithoutIntent ==
    \A d \in Domains :
        /\ \A p \in Things : world[d][p] \in Generations => world[d][p] = Generation(d) /\ Left(d, p)
        /\ \A l \in Leases(d) : l.generation = Generation(d) /\ Left(d, "Lease")

\* SR-5: no sandbox before the network policy.
SR_5_NoSandboxBeforePolicy ==
    \A d \in Domains : Ours(d, "Runsc") /\ supervisor[d] # "None" => policy[d] # "None"

\* FR-2, FR-16, FR-18, FR-20: published means ready, probed, leased, helped and attached, all of this generation.
FR_18_PublishedIsReady ==
    \A d \in Domains : Decision(d) = "Published" =>
        /\ document[d].readiness /\ document[d].probe
        /\ \A p \in Participants \ {"Publication"} : Intent(d, p) = "Owned"
        /\ HasLease(d)
        /\ policy[d] # "Ineffective"
        /\ Ours(d, "Publication") => phase[d] # "Building"

\* FR-22, SR-15: nothing of a prepared lower is mounted without this generation's lease of it.
FR_22_MountedUnderLease ==
    \A d \in Domains, p \in Mounts : Ours(d, p) => HasLease(d)

\* FR-10: sessions are registered and run only in a published generation, with its own credentials.
FR_10_RegisteredInPublication ==
    /\ "FR_10" \notin breaches
    /\ \A c \in Clients : LET d == DomainOf[c] IN
        /\ exec[c] \in {"Ordered", "Held"} => document[d].sessions[c] # "None"
        /\ exec[c] = "Running" => document[d].sessions[c] # "None"
                                  /\ Decision(d) \in {"Published", "TearingDown", "Recovering"}

\* FR-10: the prepared session is this generation's, belongs to nobody, and is never left behind.
FR_10_PreparedIsHeld ==
    \A d \in Domains : prepared[d] # Nothing =>
        prepared[d] = Generation(d) /\ document[d].prepared # "None" /\ supervisor[d] # "None"

\* SR-9, SR-16: foreign credentials are never accepted.
SR_9_NoForeignCredential == "SR_9" \notin breaches

\* FR-15: session traffic only of a registered session with its recorded process.
FR_15_TrafficOfSession == "FR_15" \notin breaches

\* SR-7: a host command runs only after an approval of exactly that request.
SR_7_ApprovedExactly ==
    /\ "SR_7" \notin breaches
    /\ \A r \in Requests : escalation[r].phase \in {"Approved", "Running"} => escalation[r].command \in approved[r]

\* FR-5: prompts and results go to the requester only.
FR_5_ToItsOwner == "FR_5" \notin breaches

\* OR-3: no host command is stranded: one that runs is recorded exactly, and none outlives the generation.
OR_3_NoStrandedCommand ==
    \A d \in Domains : \A r \in CommandsOf(d) :
        /\ Decision(d) \notin {"None", "Clean"}
        /\ command[r].state = "Running" => document[d].commands[r] = "Owned"

\* FR-7, FR-13: only exactly owned things are touched.
FR_7_OnlyOwnedIsTouched == "FR_7" \notin breaches

\* FR-17: the lease is deleted after the unmount.
FR_17_ReleaseOrder == "FR_17" \notin breaches

\* OR-7: an artifact is never reclaimed under a lease, a preparation never while it is in progress.
OR_7_NothingReclaimedInUse ==
    /\ "OR_7" \notin breaches
    /\ \A l \in catalog.leases : catalog.artifact[l.artifact] = "Ready"
    /\ \A a \in Artifacts : catalog.artifact[a] = "Ready" => disk.tree[a] # "Absent"
    /\ \A q \in Preparations : Preparation(q).state \in {"Owned", "Sealed"} /\ Owns(q) =>
        \/ disk.partial[q] # "Absent"
        \/ Preparation(q).state = "Sealed"

\* OR-5: whoever mounts a State Anchor finds the prior layer or a new empty one.
OR_5_WholeLayer ==
    \A d \in Domains :
        /\ ~anchor[d].intended => anchor[d].upper # "Missing" /\ ~anchor[d].aside
        /\ Decision(d) \notin {"None", "Clean"} => ~anchor[d].intended

\* SR-14: a layer is set aside only when nothing is mounted.
SR_14_ResetInactive == "SR_14" \notin breaches

\* FR-6, FR-7: a clean Domain has nothing.
FR_6_CleanMeansNothing ==
    \A d \in Domains : Decision(d) \in {"None", "Clean"} =>
        /\ \A p \in Things : world[d][p] \notin Generations
        /\ Leases(d) = {}
        /\ supervisor[d] = "None" /\ policy[d] = "None" /\ prepared[d] = Nothing
        /\ \A c \in ClientsOf(d) : exec[c] \notin {"Held", "Running"} /\ session[c] = "None"
        /\ CommandsOf(d) = {}

------------------------------------------------------------------------------
(* Liveness, and what it rests on: whoever can take a step takes one some day. Nothing is assumed of crashes, of     *)
(* strangers, of the developer, of commands in the sandbox or on the host: each may happen, answer or end, or not.   *)
(* A client's patience is strongly fair: the clock of its wait runs on while it tries for the lock again and again.  *)

Looks(c) == \/ client[c].state = "Waiting" /\ (SpawnCoordinator(c) \/ Discover(c))
            \/ FailToConnect(c)

Collects(a) == RemoveArtifact(a) \/ FinishRemoval(a)

Fairness ==
    /\ \A d \in Domains : /\ WF_vars(LeaderNext(d))
                         /\ WF_vars(SupervisorNext(d))
                         /\ WF_vars(SupervisorGone(d, {}))
                         /\ \A c \in ClientsOf(d) : WF_vars(SessionNext(d, c))
                         /\ \A r \in Requests : WF_vars(EscalationNext(d, r))
    /\ \A c \in Clients : /\ WF_vars(Looks(c))
                         /\ WF_vars(Elect(c) \/ LoseElection(c))
                         /\ SF_vars(GiveUp(c))
    /\ \A q \in Preparations : WF_vars(PreparationNext(q))
    /\ \A a \in Artifacts : WF_vars(Collects(a))

FairSpec == Spec /\ Fairness

\* OR-2: every accepted request ends.
OR_2_RequestsEnd == \A r \in Requests : escalation[r].phase \in Undecided ~> escalation[r].phase \notin Undecided

\* FR-6: every teardown ends.
FR_6_TeardownEnds == \A d \in Domains : phase[d] \in {"TearingDown", "Releasing"} ~> phase[d] \in {"Ended", "None"}

\* FR-7: every recovery ends: clean, and something new may start, or refused; unless its coordinator dies as well.
FR_7_RecoveryEnds == \A d \in Domains : phase[d] = "Recovering" ~> phase[d] # "Recovering"

\* OR-3: no client waits for ever, whatever another one does.
OR_3_NobodyBlocked ==
    \A c \in Clients : client[c].state \in {"Waiting", "Joining"} ~> client[c].state \in {"Registered", "Idle"}

\* FR-15: a session that is to end ends.
FR_15_SessionsEnd == \A c \in Clients : session[c] = "Ending" ~> session[c] = "None"


(* The smallest instance, for Lazaret.cfg. *)
OneDomain == [c \in Clients |-> CHOOSE d \in Domains : TRUE]
AskAlways == [k \in Commands |-> "Ask"]

------------------------------------------------------------------------------
(* Step properties.                                                          *)

\* OR-2: an accepted escalation ends once; how it ended never changes, and nothing is asked or run for it afterwards.
OR_2_EndsOnce ==
    [][\A r \in Requests :
        escalation[r].phase \in {"Ended", "Settled"} =>
            \/ escalation'[r] = NoEscalation
            \/ /\ escalation'[r].phase \in {"Ended", "Settled"}
               /\ escalation'[r].outcome = escalation[r].outcome
               /\ escalation'[r].session = escalation[r].session
               /\ command'[r].state = "None"]_vars

\* FR-7: a refusal leaves the stranger's thing; only its developer moves it away.
FR_7_ForeignStays ==
    [][\A d \in Domains, p \in Paths : world[d][p] = Foreign /\ world'[d][p] # Foreign => MoveAway(d, p)]_vars

\* A generation's number is used once.
FR_13_GenerationsGrow ==
    [][\A d \in Domains : Generation(d) <= document'[d].generation
        /\ (document'[d].generation # Generation(d) => Decision(d) \in {"None", "Clean"})]_vars

=============================================================================
