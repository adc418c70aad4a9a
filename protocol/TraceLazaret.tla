----------------------------- MODULE TraceLazaret -----------------------------
(***************************************************************************)
(* Replays traces of protocol events against Lazaret. `TraceData` is made  *)
(* from traces by scripts/trace.py; README.md has the events' format.      *)
(*                                                                         *)
(* An event is one action with its parameters, and is taken in the order   *)
(* of the trace. Between events, steps of the world and of processes that  *)
(* do not trace may be taken. A Host Coordinator that is killed may have   *)
(* taken one step that it could not write down any more: such a step must  *)
(* be its last.                                                            *)
(*                                                                         *)
(* A trace is accepted when some behaviour of the protocol has all of its  *)
(* events: when `matched` is printed for its last one.                     *)
(***************************************************************************)
EXTENDS Lazaret, Sequences, TLC, TraceData

VARIABLES
    trace,   \* which trace this is a behaviour of
    next,    \* the event that comes next
    doomed   \* Domains whose leader took a step that it did not write down

traceVars == <<vars, trace, next, doomed>>

Trace == Traces[trace].events

\* What a leader could not write down is one transaction.
Whole(P) == IF P = {} THEN {} ELSE {P}

ASSUME \A i \in 1..Len(Traces) : TLCSet(i, 0)

\* Tells how far a trace was matched.
Reached == IF next <= TLCGet(trace) THEN TRUE ELSE TLCSet(trace, next) /\ PrintT(<<"matched", trace, next>>)

\* Of a trace that is accepted no more behaviours are looked for.
Open == TLCGet(trace) < Len(Trace)

Takes(e) ==
    LET a == e.action IN
    CASE a = "SpawnCoordinator"     -> SpawnCoordinator(e.client)
      [] a = "Discover"             -> Discover(e.client)
      [] a = "FailToConnect"        -> FailToConnect(e.client)
      [] a = "GiveUp"               -> GiveUp(e.client)
      [] a = "Elect"                -> Elect(e.client)
      [] a = "LoseElection"         -> LoseElection(e.client)
      [] a = "Recovered"            -> Recovered(e.domain)
      [] a = "ReportRecovered"      -> ReportRecovered(e.domain)
      [] a = "StartupFails"         -> StartupFails(e.domain)
      [] a = "Exit"                 -> Exit(e.domain)
      [] a = "IntendReset"          -> IntendReset(e.domain)
      [] a = "SetLayerAside"        -> SetLayerAside(e.domain)
      [] a = "MakeEmptyLayer"       -> MakeEmptyLayer(e.domain)
      [] a = "DiscardLayer"         -> DiscardLayer(e.domain)
      [] a = "FinishReset"          -> FinishReset(e.domain)
      [] a = "FindArtifact"         -> FindArtifact(e.domain, e.artifact)
      [] a = "BeginPreparation"     -> BeginPreparation(e.domain, e.preparation, e.artifact)
      [] a = "MakePreparation"      -> MakePreparation(e.preparation)
      [] a = "OwnPreparation"       -> OwnPreparation(e.preparation)
      [] a = "FillPreparation"      -> FillPreparation(e.preparation)
      [] a = "SealPreparation"      -> SealPreparation(e.preparation)
      [] a = "GiveUpPreparation"    -> GiveUpPreparation(e.preparation)
      [] a = "RenamePreparation"    -> RenamePreparation(e.preparation)
      [] a = "DiscardPreparation"   -> DiscardPreparation(e.preparation)
      [] a = "CompletePreparation"  -> CompletePreparation(e.preparation)
      [] a = "ReclaimPreparation"   -> ReclaimPreparation(e.preparation)
                                       \/ (disk.partial[e.preparation] = "Absent" /\ UNCHANGED vars)   \* found removed
      [] a = "AbandonPreparation"   -> AbandonPreparation(e.preparation)
      [] a = "BeginRemoval"         -> BeginRemoval(e.artifact)
      [] a = "RemoveArtifact"       -> RemoveArtifact(e.artifact)
      [] a = "FinishRemoval"        -> FinishRemoval(e.artifact)
      [] a = "BeginGeneration"      -> BeginGeneration(e.domain, e.artifact)
      [] a = "Intend"               -> Intend(e.domain, e.participants)
      [] a = "MakeDirectory"        -> MakeDirectory(e.domain, e.participant)
      [] a = "Begun"                -> Begun(e.domain)
      [] a = "BeginFails"           -> BeginFails(e.domain) \/ StartupFails(e.domain)
      [] a = "AcquireLease"         -> AcquireLease(e.domain)
      [] a = "SpawnSupervisor"      -> SpawnSupervisor(e.domain)
      [] a = "OrderBuild"           -> OrderBuild(e.domain)
      [] a = "Make"                 -> Make(e.domain, e.participant)
      [] a = "PolicyTakesEffect"    -> PolicyTakesEffect(e.domain)
      [] a = "PolicyHasNoEffect"    -> PolicyHasNoEffect(e.domain)
      [] a = "StartSandbox"         -> StartSandbox(e.domain)
      [] a = "Own"                  -> Own(e.domain, e.participant)
      [] a = "AttestNetwork"        -> AttestNetwork(e.domain)
      [] a = "AcceptProbe"          -> AcceptProbe(e.domain)
      [] a = "Attested"             -> Attested(e.domain)
      [] a = "BindSocket"           -> BindSocket(e.domain, e.participant)
      [] a = "Publish"              -> Publish(e.domain)
      [] a = "WritePublication"     -> WritePublication(e.domain)
      [] a = "PublicationOpen"      -> PublicationOpen(e.domain)
      [] a = "RegisterSession"      -> RegisterSession(e.domain, e.client)
      [] a = "RefuseStale"          -> RefuseStale(e.domain, e.client)
      [] a = "PrepareSession"       -> PrepareSession(e.domain)
      [] a = "AdoptSession"         -> AdoptSession(e.domain, e.client)
      [] a = "StartPreparedSession" -> StartPreparedSession(e.domain)
      [] a = "KillPreparedSession"  -> KillPreparedSession(e.domain)
      [] a = "OwnPreparedSession"   -> OwnPreparedSession(e.domain)
      [] a = "ForgetPrepared"       -> ForgetPrepared(e.domain)
      [] a = "BeginSession"         -> BeginSession(e.domain, e.client)
      [] a = "SpawnSession"         -> SpawnSession(e.domain, e.client)
      [] a = "SpawnSessionFails"    -> SpawnSessionFails(e.domain, e.client)
      [] a = "StartSession"         -> IF e.client = "" THEN OwnPreparedSession(e.domain) ELSE StartSession(e.domain, e.client)
      [] a = "ControlSession"       -> ControlSession(e.client)
      [] a = "CloseSession"         -> CloseSession(e.domain, e.client) \/ CloseBeforeEnd(e.domain, e.client)
      [] a = "KillSession"          -> KillSession(e.domain, e.client)
      [] a = "EndSession"           -> IF e.client = "" THEN ForgetPrepared(e.domain)
                                       ELSE EndSession(e.domain, e.client) \/ ForgetSession(e.domain, e.client)
      [] a = "AcceptEscalation"     -> AcceptEscalation(e.domain,
                                          [request |-> e.request, session |-> e.client, command |-> e.command,
                                           generation |-> e.generation, signed |-> TRUE])
      [] a = "AutoApprove"          -> AutoApprove(e.domain, e.request)
      [] a = "AutoDeny"             -> AutoDeny(e.domain, e.request)
      [] a = "PromptTo"             -> PromptTo(e.domain, e.request, e.client)
      [] a = "AnswerPrompt"         -> AnswerPrompt(e.request, e.verdict)
      [] a = "Approve"              -> \E answer \in answers : Approve(e.domain, e.request, answer)
      [] a = "Deny"                 -> \E answer \in answers : Deny(e.domain, e.request, answer)
      [] a = "DropAnswer"           -> \E answer \in answers : answer.request = e.request /\ DropAnswer(answer)
      [] a = "SpawnHostCommand"     -> SpawnHostCommand(e.domain, e.request)
      [] a = "OwnHostCommand"       -> OwnHostCommand(e.domain, e.request)
      [] a = "ExecuteHostCommand"   -> ExecuteHostCommand(e.domain, e.request)
      [] a = "HostCommandExits"     -> HostCommandExits(e.domain, e.request)
      [] a = "CancelEscalation"     -> CancelEscalation(e.domain, e.request)
      [] a = "TimeOut"              -> TimeOut(e.domain, e.request)
      [] a = "ReleaseHostCommand"   -> ReleaseHostCommand(e.domain, e.request)
      [] a = "DeliverResult"        -> DeliverResult(e.domain, e.request, e.client)
      [] a = "KillHostCommand"      -> KillHostCommand(e.domain, e.request)
      [] a = "LingerElapsed"        -> LingerElapsed(e.domain)
      [] a = "DownRequested"        -> DownRequested(e.domain)
      [] a = "CancelStartup"        -> CancelStartup(e.domain)
      [] a = "Failed"               -> Failed(e.domain)
      [] a = "RemoveFile"           -> RemoveFile(e.domain, e.participant)
      [] a = "OrderTearDown"        -> OrderTearDown(e.domain)
      [] a = "EndSandbox"           -> EndSandbox(e.domain)
      [] a = "TakeDown"             -> TakeDown(e.domain, e.participant)
      [] a = "RemoveStorage"        -> RemoveStorage(e.domain, e.participant)
      [] a = "SupervisorExits"      -> SupervisorExits(e.domain)
      [] a = "BeginRelease"         -> BeginRelease(e.domain)
      [] a = "BeginRecovery"        -> BeginRecovery(e.domain)
      [] a = "IntendLeaseRelease"   -> IntendLeaseRelease(e.domain)
      [] a = "KillSupervisor"       -> KillSupervisor(e.domain)
                                       \/ (supervisor[e.domain] \in {"Dying", "None"} /\ UNCHANGED vars)   \* found dying
      [] a = "KillProcess"          -> KillProcess(e.domain, e.participant)
      [] a = "RemoveDirectory"      -> RemoveDirectory(e.domain, e.participant)
      [] a = "Release"              -> Release(e.domain, e.participants)
      [] a = "ForgetSession"        -> ForgetSession(e.domain, e.client)
      [] a = "ConfirmUnmounted"     -> ConfirmUnmounted(e.domain)
      [] a = "ReleaseLease"         -> ReleaseLease(e.domain)
      [] a = "ConfirmCatalogDelete" -> ConfirmCatalogDelete(e.domain)
      [] a = "Finish"               -> Finish(e.domain)
      [] a = "Refuse"               -> Refuse(e.domain)
      [] a = "ReleaseFails"         -> ReleaseFails(e.domain)
      [] OTHER                      -> FALSE

\* Events that a Host Coordinator writes carry its Domain; a leader that is doomed writes none any more.
Event ==
    /\ next <= Len(Trace)
    /\ LET e == Trace[next] IN
        /\ e.domain \notin doomed
        /\ Takes(e)
        /\ e.generation = 0 \/ document'[e.domain].generation = e.generation
    /\ next' = next + 1
    /\ Reached
    /\ UNCHANGED <<trace, doomed>>

\* Actions of processes that do not trace: none of their events is in the trace.
Untraced(action) == action \notin Traces[trace].actions

\* The event that comes next is one of these actions, with this client, Domain or request.
Comes(actions, field, value) == Trace[next].action \in actions /\ Trace[next][field] = value

\* The Domain's next coordinator event is an election: its leader writes nothing before, so it may have been killed.
ByCoordinator(e) == e.action \notin {"SpawnCoordinator", "Discover", "FailToConnect", "GiveUp", "LoseElection"}
Falls(d) ==
    \E i \in next..Len(Trace) :
        /\ Trace[i].domain = d /\ Trace[i].action = "Elect"
        /\ \A j \in next..(i - 1) : Trace[j].domain = d => ~ByCoordinator(Trace[j])

First(P) == IF P = {} THEN {} ELSE {CHOOSE p \in P : TRUE}

\* The world, and whoever does not trace. A step that can wait is taken right before the event that needs it, and
\* of steps whose order nobody sees one order is enough: that loses no behaviour and keeps the replay short.
SilentClient(c) ==
    \/ Untraced("SpawnCoordinator") /\ Comes({"Elect", "LoseElection"}, "client", c) /\ SpawnCoordinator(c)
    \/ /\ Untraced("FailToConnect") /\ Comes({"Elect", "LoseElection"}, "client", c)
       /\ Discover(c) \/ FailToConnect(c)
    \/ /\ Untraced("Discover")
       /\ \/ Comes({"RegisterSession", "AdoptSession"}, "client", c)
          \/ \E i \in next..Len(Trace) : Trace[i].action = "RefuseStale" /\ Trace[i].client = c
       /\ Discover(c)
    \/ /\ Comes({"CloseSession"}, "client", c) \/ Comes({"CancelStartup"}, "domain", DomainOf[c])
       /\ CrashClient(c)
    \/ Comes({"EndSession"}, "client", c) /\ session[c] # "None" /\ SessionExits(c)

SilentSession(d, c) ==
    \/ Untraced("SpawnSession") /\ Comes({"StartSession", "EndSession"}, "client", c) /\ SpawnSession(d, c)
    \/ Untraced("SpawnSessionFails") /\ Comes({"EndSession"}, "client", c) /\ SpawnSessionFails(d, c)
    \/ Untraced("KillSession") /\ Comes({"EndSession"}, "client", c) /\ KillSession(d, c)

Makeable(d) == {p \in Inner \ {"Runsc"} : MayMake(d, p) /\ (p \in Helpers => Ours(d, "NetworkNamespace"))}

SilentSupervisor(d) ==
    \/ Untraced("Make") /\ \E p \in First(Makeable(d)) : Make(d, p)
    \/ Untraced("PolicyTakesEffect") /\ PolicyTakesEffect(d)
    \/ Untraced("StartSandbox") /\ StartSandbox(d)
    \/ Untraced("StartPreparedSession") /\ StartPreparedSession(d)
    \/ Untraced("KillPreparedSession") /\ Comes({"EndSession", "ForgetPrepared"}, "domain", d) /\ KillPreparedSession(d)
    \/ Untraced("EndSandbox") /\ EndSandbox(d)
    \/ Untraced("TakeDown") /\ \E p \in First({q \in Mounts \cup Helpers : Ours(d, q)}) : TakeDown(d, p)
    \/ Untraced("RemoveStorage") /\ Trace[next].action # "RemoveDirectory" /\ \E p \in Directories : RemoveStorage(d, p)
    \/ Untraced("SupervisorExits") /\ SupervisorExits(d)

SilentWorld(d) ==
    \/ \E survivors \in SUBSET Survivors : SupervisorGone(d, survivors)
    \/ Comes({"EndSession", "ForgetPrepared"}, "domain", d) /\ LosePrepared(d)
    \/ Comes({"Failed"}, "domain", d) /\ \E p \in Participants : CrashProcess(d, p)
    \/ (Comes({"Failed"}, "domain", d) \/ phase[d] = "TearingDown") /\ CrashSupervisor(d)
    \/ ~Untraced("Failed") /\ PolicyHasNoEffect(d)
    \/ Comes({"Refuse"}, "domain", d) /\ \E p \in Trace[next].participants : Intrude(d, p)
    \/ Comes({"Elect"}, "domain", d) /\ \E p \in Paths : MoveAway(d, p)

SilentRequest(r) ==
    \/ /\ Untraced("AnswerPrompt") /\ Comes({"Approve", "Deny"}, "request", r)
       /\ AnswerPrompt(r, Trace[next].action)
    \/ /\ Untraced("HostCommandExits") /\ Comes({"ReleaseHostCommand"}, "request", r)
       /\ \E d \in Domains : HostCommandExits(d, r)

SilentPreparation(q) ==
    /\ Untraced("GiveUpPreparation") /\ Comes({"ReclaimPreparation", "AbandonPreparation"}, "preparation", q)
    /\ GiveUpPreparation(q)

Silent ==
    /\ next <= Len(Trace)
    /\ UNCHANGED <<trace, next>>
    /\ \/ /\ UNCHANGED doomed
          /\ \/ \E c \in Clients : SilentClient(c)
             \/ \E d \in Domains : SilentSupervisor(d) \/ SilentWorld(d) \/ \E c \in ClientsOf(d) : SilentSession(d, c)
             \/ \E r \in Requests : SilentRequest(r)
             \/ \E q \in Preparations : SilentPreparation(q)
       \/ \E c \in Clients : /\ coordinator[c] = "Leader" /\ Falls(DomainOf[c])
                           /\ CrashCoordinator(c)
                           /\ doomed' = doomed \ {DomainOf[c]}
       \* A leader's last step, which it could not write down ...
       \/ \E d \in Domains \ doomed :
           /\ Falls(d)
           /\ doomed' = doomed \cup {d}
           /\ \/ LeaderNext(d)
              \/ \E c \in Clients : SessionNext(d, c)
              \/ \E r \in Requests : EscalationNext(d, r)
              \/ \E q \in Preparations : Owns(q) /\ DomainOf[Preparation(q).owner] = d /\ PreparationNext(q)
       \* ... or the rest of its last transaction.
       \/ \E d \in doomed :
           /\ UNCHANGED doomed
           /\ \/ IntendLeaseRelease(d) \/ ConfirmUnmounted(d) \/ ConfirmCatalogDelete(d) \/ Finish(d)
              \/ \E c \in Clients : ForgetSession(d, c)
              \/ ForgetPrepared(d) \/ PrepareSession(d) \/ Publish(d)
              \/ \E P \in Whole({p \in Participants : Intent(d, p) = "None"}) : Intend(d, P)
              \/ \E p \in Participants : Own(d, p)
              \/ \E P \in Whole(Releasable(d)) : Release(d, P)

TraceInit == Init /\ trace \in 1..Len(Traces) /\ next = 1 /\ doomed = {}
TraceSpec == TraceInit /\ [][Event \/ Silent]_traceVars
===============================================================================
