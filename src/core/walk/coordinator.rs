//! The Host Coordinator's part of the walk: what it does for its effects, its tasks and what it hears.

use std::collections::{BTreeMap, VecDeque};

use super::supervisor::{Order, Report, Supervisor};
use super::system::{
    Action, Coordinator, Job, System, Task, Then, Thing, Write, artifact, exec_of, failed, ownership, participants,
    place, process_of, session_id, target,
};
use crate::core::generation::fixtures::{self, process};
use crate::core::generation::{self, Change, GenerationDocument, Ownership, Participant, next_generation};
use crate::core::lifecycle::{self, Effect, Event, Lifecycle, Purpose};
use crate::core::recovery::{self, Found, FoundKind, Inquiry, Listener, Observed, Owner, RecoveryEffect, Sighting};
use crate::core::session::{self, SessionEffect, SessionEvent, SessionPhase};
use crate::domain::failure::Failure;
use crate::domain::ids::SessionId;
use crate::domain::ownership::ProcessIdentity;
use crate::domain::session::SessionEnd;

impl System {
    pub(super) fn lead(&mut self) -> &mut Coordinator {
        self.coordinator.as_mut().expect("a coordinator leads")
    }

    /// A process that is neither the document's leader nor its recoverer.
    pub(super) fn new_coordinator(&self, purpose: Purpose) -> Coordinator {
        let known = |pid: i32| {
            self.document.as_ref().is_some_and(|document| {
                let recoverer = document.recoverer.as_ref().map(|process| process.pid);
                document.identity.leader.pid == pid || recoverer == Some(pid)
            })
        };
        let pid = (10..).find(|pid| !known(*pid)).expect("there are enough");
        let (life, effects) = Lifecycle::start(purpose);
        Coordinator {
            identity: process(pid),
            life,
            effects: effects.into(),
            events: VecDeque::new(),
            tasks: BTreeMap::new(),
            writes: VecDeque::new(),
            clock: false,
            admits: false,
            sessions: BTreeMap::new(),
        }
    }

    pub(super) fn advance(&mut self, event: Event) {
        let coordinator = self.lead();
        let (life, effects) = lifecycle::step(coordinator.life.clone(), event);
        coordinator.life = life;
        coordinator.effects.extend(effects);
    }

    fn begin(&mut self, job: Job, actions: impl IntoIterator<Item = Action>) {
        let task = Task { actions: actions.into_iter().collect(), waits: false };
        self.lead().tasks.insert(job, task);
    }

    pub(super) fn submit(&mut self, changes: Vec<Change>, then: Then) {
        self.lead().writes.push_back(Write { changes, then });
    }

    pub(super) fn run_effect(&mut self) {
        let effect = self.lead().effects.pop_front().expect("there is an effect");
        let generation = self.generation();
        match effect {
            Effect::Recover => self.begin(Job::Recovery, [Action::Plan(Event::Recovered)]),
            Effect::Prepare => self.begin(Job::Preparation, [Action::Tell(Event::Prepared)]),
            Effect::AbandonPreparation => drop(self.lead().tasks.remove(&Job::Preparation)),
            Effect::Begin => self.begin_generation(),
            Effect::SpawnSupervisor => {
                for participant in [Participant::RuntimeSupervisor, Participant::NetworkNamespace] {
                    self.world.insert(participant, Thing::Ours(generation));
                }
                self.supervisor = Some(Supervisor::default());
                let participant = Participant::RuntimeSupervisor;
                let owned = Change::Own(participant.clone(), ownership(&participant, generation));
                self.submit(vec![owned], Then::Record);
                self.lead().events.push_back(Event::SupervisorSpawned);
            }
            Effect::AcquireLease => {
                let owned = Change::Own(Participant::Lease, Ownership::Artifact(artifact()));
                let told = Action::Tell(Event::LeaseAcquired);
                self.begin(Job::Lease, [Action::Acquire, Action::Apply(vec![owned]), told]);
            }
            Effect::Build => self.order(Order::Build),
            Effect::Publish => self.publish(),
            Effect::ReportPublished | Effect::ReportRecovered | Effect::ReportFailed => {}
            Effect::AwaitFirstSession | Effect::StartLinger => {
                self.lead().admits = true;
                self.lead().clock = true;
            }
            Effect::StopLinger => self.lead().clock = false,
            Effect::CloseIfIdle => {
                if self.lead().sessions.is_empty() {
                    self.lead().admits = false;
                    self.lead().events.push_back(Event::Quiet);
                }
            }
            Effect::RecordTearDown(reason) => self.submit(vec![Change::BeginTearDown(reason)], Then::Ignore),
            Effect::Unpublish => {
                for participant in [Participant::Publication, Participant::Socket] {
                    let recorded = self.document.as_ref().and_then(|document| document.ownership(&participant));
                    if recorded.is_some() && self.is_ours(&participant) {
                        self.world.remove(&participant);
                    }
                }
            }
            Effect::EndSessions(_) => {
                self.lead().admits = false;
                let sessions: Vec<_> = self.lead().sessions.keys().cloned().collect();
                for session in sessions {
                    self.session(&session, SessionEvent::End(SessionEnd::TornDown("down".to_owned())));
                }
                self.report_end();
            }
            Effect::TearDown => self.order(Order::TearDown),
            Effect::Release => self.begin(Job::Release, [Action::Plan(Event::Released)]),
            Effect::Exit => {
                self.coordinator = None;
                self.end_supervisor();
                self.reports.clear();
            }
        }
    }

    fn begin_generation(&mut self) {
        let generation = next_generation(self.document.as_ref());
        let mut identity = fixtures::identity(generation.0);
        identity.leader = self.lead().identity.clone();
        let mut changes = vec![Change::Begin(Box::new(identity))];
        changes.extend(participants().into_iter().map(|participant| {
            let target = target(&participant);
            Change::Intend(participant, target)
        }));
        let scratch = Participant::Scratch;
        let owned = Change::Own(scratch.clone(), ownership(&scratch, generation));
        let told = Action::Tell(Event::Begun);
        self.begin(Job::Beginning, [Action::Apply(changes), Action::Make(scratch), Action::Apply(vec![owned]), told]);
    }

    fn publish(&mut self) {
        let generation = self.generation();
        let own = |participant: Participant| Change::Own(participant.clone(), ownership(&participant, generation));
        self.begin(
            Job::Publication,
            [
                Action::Make(Participant::Socket),
                Action::Apply(vec![own(Participant::Socket), Change::Publish]),
                Action::Make(Participant::Publication),
                Action::Apply(vec![own(Participant::Publication)]),
                Action::Tell(Event::PublicationOpen),
            ],
        );
    }

    /// Takes the first write of the queue, as one transaction.
    pub(super) fn write(&mut self) {
        let Write { changes, then } = self.lead().writes.pop_front().expect("there is a write");
        let mut document = self.document.clone();
        let refused = changes.iter().find_map(|change| match generation::apply(document.take(), change) {
            Ok(after) => {
                document = Some(after);
                None
            }
            Err(refusal) => Some(refusal),
        });
        if refused.is_none() {
            self.document = document;
        }
        let coordinator = self.lead();
        match (then, refused) {
            (Then::Record, Some(_)) | (Then::Tell(_), Some(_)) => coordinator.events.push_back(failed()),
            (Then::Record, None) | (Then::Ignore, _) => {}
            (Then::Tell(event), None) => coordinator.events.push_back(event),
            (Then::GoOn(job), refused) => {
                if let Some(task) = coordinator.tasks.get_mut(&job) {
                    task.waits = false;
                    if refused.is_some() {
                        task.actions = [Action::Tell(failed())].into();
                    }
                }
            }
        }
    }

    /// Lets a task do its next step.
    pub(super) fn go_on(&mut self, job: Job) {
        let generation = self.generation();
        let coordinator = self.coordinator.as_mut().expect("a coordinator leads");
        let task = coordinator.tasks.get_mut(&job).expect("the task is there");
        let action = task.actions.pop_front().expect("a task ends with what it tells");
        match action {
            Action::Apply(changes) => {
                task.waits = true;
                self.submit(changes, Then::GoOn(job));
            }
            Action::Make(participant) => {
                // What lies there already stays, and the step fails.
                if self.world.contains_key(&participant) {
                    task.actions = [Action::Tell(failed())].into();
                    return;
                }
                self.world.insert(participant, Thing::Ours(generation));
            }
            Action::Acquire => {
                assert!(self.lease.is_none(), "one generation of a Domain holds a lease");
                self.lease = Some(generation);
            }
            Action::Plan(done) => {
                let effects = self.plan();
                let told = if effects.1 { done } else { Event::Refused(Failure::message("something else lies there")) };
                let task = self.lead().tasks.get_mut(&job).expect("the task is there");
                task.actions = effects.0.into_iter().map(Action::Recover).chain([Action::Tell(told)]).collect();
            }
            Action::Recover(RecoveryEffect::Record(changes)) => {
                task.waits = true;
                self.submit(changes, Then::GoOn(job));
            }
            Action::Recover(effect) => self.recover(&effect),
            Action::Tell(event) => {
                self.lead().tasks.remove(&job);
                self.lead().events.push_back(event);
            }
        }
    }

    /// Compares the document with the world; gives what to do, and whether nothing was refused.
    fn plan(&mut self) -> (Vec<RecoveryEffect>, bool) {
        let Some(document) = self.document.clone() else { return (vec![], true) };
        let leader = self.lead().identity.clone();
        let inquiry = Inquiry::of(&document);
        let alive = |process: &ProcessIdentity| {
            let standing = [Participant::RuntimeSupervisor, Participant::Helper, Participant::Runsc];
            let standing = standing.iter().any(|participant| match self.world.get(participant) {
                Some(Thing::Ours(generation)) => process_of(participant, *generation) == *process,
                _ => false,
            });
            standing || self.execs.iter().any(|session| exec_of(session).exec == *process)
        };
        let sight = |participant: &Participant| match self.world.get(participant) {
            None => Sighting::Absent,
            Some(thing) => Sighting::Present(self.found(participant, thing, &document)),
        };
        let processes = inquiry.pids.iter().map(|pid| (*pid, process(*pid))).filter(|(_, process)| alive(process));
        let observed = Observed {
            leader,
            processes: processes.collect(),
            paths: inquiry.paths.keys().map(|participant| (participant.clone(), sight(participant))).collect(),
            lease: inquiry.lease.and_then(|_| self.lease.map(|_| artifact())),
        };
        let plan = recovery::plan(&document, &observed);
        (plan.effects, plan.refusals.is_empty())
    }

    fn found(&self, participant: &Participant, thing: &Thing, document: &GenerationDocument) -> Found {
        let owned = document.ownership(participant).is_some();
        let ours = matches!(thing, Thing::Ours(_));
        let kind = match participant {
            Participant::Scratch if ours && !owned => FoundKind::EmptyDirectory,
            Participant::Scratch => FoundKind::FilledDirectory,
            Participant::Socket if ours => FoundKind::Socket(Listener::None),
            Participant::Socket => FoundKind::Socket(Listener::Some),
            _ => FoundKind::File(ours.then(|| document.identity.coordinator.clone())),
        };
        let identity = match thing {
            Thing::Ours(generation) => place(participant, *generation),
            Thing::Stranger => fixtures::place(999_999),
        };
        Found { identity, owner: Owner::Developer, kind }
    }

    /// Runs an effect of a recovery. What removes compares the identity once more, so that a stranger stays.
    fn recover(&mut self, effect: &RecoveryEffect) {
        match effect {
            RecoveryEffect::Record(_) => unreachable!("a write is submitted"),
            RecoveryEffect::KillProcess(_) => {}
            RecoveryEffect::KillSupervisor(process) => {
                let generation = self.generation();
                if *process == process_of(&Participant::RuntimeSupervisor, generation) {
                    self.end_supervisor();
                }
            }
            RecoveryEffect::RemoveFile { participant, identity, .. }
            | RecoveryEffect::RemoveTree { participant, identity, .. }
            | RecoveryEffect::RemoveEmptyDirectory { participant, identity, .. } => {
                let same = match self.world.get(participant) {
                    Some(Thing::Ours(generation)) => place(participant, *generation) == *identity,
                    _ => false,
                };
                if same {
                    self.world.remove(participant);
                }
            }
            RecoveryEffect::DeleteLease { .. } => self.lease = None,
        }
    }

    pub(super) fn hear(&mut self, report: Report) {
        let generation = self.generation();
        let own = |participant: Participant| Change::Own(participant.clone(), ownership(&participant, generation));
        match report {
            // One that has ended can't be looked up any more.
            Report::HelperReady if !self.is_ours(&Participant::Helper) => {}
            Report::SandboxCreated if !self.is_ours(&Participant::Runsc) => {}
            Report::HelperReady => {
                self.submit(vec![own(Participant::Helper), own(Participant::NetworkNamespace)], Then::Record);
            }
            Report::MountsReady => {
                self.submit(vec![own(Participant::RootMount), own(Participant::WorkspaceMount)], Then::Record);
            }
            Report::NetworkReady => self.submit(vec![Change::AttestNetwork(fixtures::attestation())], Then::Record),
            Report::SandboxCreated => self.submit(vec![own(Participant::Runsc)], Then::Record),
            Report::Probed => {
                self.submit(vec![Change::AcceptProbe(fixtures::probe(true))], Then::Tell(Event::Attested));
            }
            Report::BuildFailed | Report::SandboxLost => self.advance(failed()),
            Report::SessionStarted(session) => {
                self.session(&session, SessionEvent::Started);
                let process = exec_of(&session);
                self.submit(vec![Change::StartSession(session, process)], Then::Ignore);
            }
            Report::SessionEnded(session) => self.session(&session, SessionEvent::ExecEnded(SessionEnd::Exited(0))),
            Report::Ended => {
                self.lead().admits = false;
                let sessions: Vec<_> = self.lead().sessions.keys().cloned().collect();
                for session in sessions {
                    let lost = SessionEnd::SandboxLost("it ended".to_owned());
                    self.session(&session, SessionEvent::ExecEnded(lost));
                }
                self.advance(Event::SupervisorEnded { how: "it ended".to_owned() });
            }
        }
    }

    pub(super) fn register(&mut self) {
        let mut record = fixtures::session('1');
        record.id = session_id(self.left.sessions);
        record.client = fixtures::session(char::from_digit(u32::from(self.left.sessions), 16).expect("few")).client;
        let session = record.id.clone();
        match generation::apply(self.document.clone(), &Change::RegisterSession(record)) {
            Ok(document) => {
                self.left.sessions -= 1;
                self.document = Some(document);
                self.lead().sessions.insert(session.clone(), SessionPhase::Opening(vec![]));
                self.lead().events.push_back(Event::SessionOpened(session.clone()));
                self.order(Order::StartSession(session));
            }
            // It is going down.
            Err(_) => self.lead().admits = false,
        }
    }

    pub(super) fn session(&mut self, session: &SessionId, event: SessionEvent) {
        let Some(phase) = self.lead().sessions.get(session).cloned() else { return };
        let (phase, effects) = session::step(phase, event);
        self.lead().sessions.insert(session.clone(), phase);
        for effect in effects {
            match effect {
                SessionEffect::Kill => self.order(Order::KillSession(session.clone())),
                SessionEffect::Close => {
                    self.lead().sessions.remove(session);
                    self.submit(vec![Change::EndSession(session.clone())], Then::Ignore);
                    self.lead().events.push_back(Event::SessionClosed(session.clone()));
                    self.report_end();
                }
                SessionEffect::OpenInput
                | SessionEffect::Signal(_)
                | SessionEffect::Drain(_)
                | SessionEffect::LimitDrain => {}
            }
        }
    }

    /// Tells the coordinator, when it waits for that, that no session is left.
    fn report_end(&mut self) {
        let coordinator = self.lead();
        if coordinator.life.ending_sessions && coordinator.sessions.is_empty() {
            coordinator.events.push_back(Event::SessionsEnded);
        }
    }

    pub(super) fn order(&mut self, order: Order) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.orders.push_back(order);
        }
    }

    /// Whatever ends with process 1 of the supervisor's namespaces ends.
    pub(super) fn end_supervisor(&mut self) {
        self.supervisor = None;
        self.world.retain(|participant, _| {
            !participant.ends_with_supervisor() && *participant != Participant::RuntimeSupervisor
        });
        self.execs.clear();
        self.policy = false;
    }

    pub(super) fn supervisor_ended(&mut self) {
        self.end_supervisor();
        self.tell(Report::Ended);
    }
}
