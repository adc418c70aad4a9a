//! The state of the walk, and its steps: the Host Coordinator's part, what clients and the developer do, and faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::supervisor::{Report, Supervisor, Work};
use crate::core::generation::fixtures::{self, process};
use crate::core::generation::{self, Change, Decision, GenerationDocument, Ownership, Participant, Target};
use crate::core::lifecycle::{Effect, Event, Lifecycle, Phase, Purpose};
use crate::core::recovery::RecoveryEffect;
use crate::core::session::{SessionEvent, SessionPhase};
use crate::domain::failure::Failure;
use crate::domain::ids::{ArtifactId, Generation, SessionId};
use crate::domain::ownership::{PathIdentity, ProcessIdentity};

/// How much may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    /// Deaths of the coordinator, the supervisor or runsc.
    pub(super) crashes: u8,
    /// Strangers' files in places of ours.
    pub(super) strangers: u8,
    /// Sessions.
    pub(super) sessions: u8,
    /// Generations.
    pub(super) generations: u64,
    /// Steps of a build that fail.
    pub(super) failures: u8,
}

/// What lies at the place of a participant, or runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Thing {
    Ours(Generation),
    Stranger,
}

/// A write of the Domain Store that is queued.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) changes: Vec<Change>,
    pub(super) then: Then,
}

/// Who waits for a write.
#[derive(Debug, Clone)]
pub(super) enum Then {
    /// Nobody; a refusal ends the generation.
    Record,
    /// Nobody; a refusal is what may happen.
    Ignore,
    /// The coordinator is told this.
    Tell(Event),
    /// This task goes on.
    GoOn(Job),
}

/// What a task of the coordinator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Job {
    Recovery,
    Preparation,
    Beginning,
    Lease,
    Publication,
    Release,
}

/// One step of a task.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Apply(Vec<Change>),
    Make(Participant),
    Acquire,
    Plan(Event),
    Recover(RecoveryEffect),
    Tell(Event),
}

/// A task: what is left of it, and whether it waits for a write.
#[derive(Debug, Clone, Default)]
pub(super) struct Task {
    pub(super) actions: VecDeque<Action>,
    pub(super) waits: bool,
}

/// A Host Coordinator.
#[derive(Debug, Clone)]
pub(super) struct Coordinator {
    pub(super) identity: ProcessIdentity,
    pub(super) life: Lifecycle,
    pub(super) effects: VecDeque<Effect>,
    pub(super) events: VecDeque<Event>,
    pub(super) tasks: BTreeMap<Job, Task>,
    pub(super) writes: VecDeque<Write>,
    pub(super) clock: bool,
    /// Whether the registry admits sessions.
    pub(super) admits: bool,
    pub(super) sessions: BTreeMap<SessionId, SessionPhase>,
}

/// Everything.
#[derive(Debug, Clone)]
pub(super) struct System {
    pub(super) left: Bounds,
    pub(super) document: Option<GenerationDocument>,
    pub(super) lease: Option<Generation>,
    pub(super) world: BTreeMap<Participant, Thing>,
    /// Whether the policy is in force in the network namespace.
    pub(super) policy: bool,
    /// Guest processes of sessions.
    pub(super) execs: BTreeSet<SessionId>,
    pub(super) coordinator: Option<Coordinator>,
    pub(super) supervisor: Option<Supervisor>,
    /// What the supervisor said and nobody has heard.
    pub(super) reports: VecDeque<Report>,
    /// Strangers that were put somewhere and must stay.
    pub(super) strangers: BTreeSet<Participant>,
}

/// What can happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A client starts a coordinator.
    SpawnCoordinator(Purpose),
    /// The coordinator carries out its next effect.
    RunEffect,
    /// The coordinator handles its next event.
    HandleEvent,
    /// The coordinator handles the supervisor's next report.
    HandleReport,
    /// The store writes.
    WriteNext,
    /// A task goes on.
    Advance(Job),
    LingerElapsed,
    Down,
    Cancel,
    RegisterSession,
    ClientGone(SessionId),
    Drained(SessionId),
    /// The supervisor handles its next order.
    Obey,
    /// A piece of the supervisor's work is done.
    Complete(Work),
    /// A piece of the supervisor's work fails.
    Fail(Work),
    SessionExits(SessionId),
    CrashCoordinator,
    /// The coordinator crashes, and its supervisor has not ended when the next one looks.
    CrashCoordinatorAlone,
    CrashSupervisor,
    CrashRunsc,
    PlantStranger(Participant),
    /// The developer moves a stranger's file away, as the refusal says.
    MoveAway(Participant),
}

impl Step {
    pub(super) fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::CrashCoordinator
                | Self::CrashCoordinatorAlone
                | Self::CrashSupervisor
                | Self::CrashRunsc
                | Self::PlantStranger(_)
                | Self::Fail(_)
        )
    }

    /// Tells whether it is taken when all that is wanted is an end.
    pub(super) fn is_homeward(&self) -> bool {
        !self.is_fault()
            && !matches!(
                self,
                Self::RegisterSession | Self::SpawnCoordinator(Purpose::Serve) | Self::Cancel | Self::Down
            )
    }
}

/// Participants of the walk. The runtime directory and anchors behave as others that are in.
pub(super) fn participants() -> Vec<Participant> {
    use Participant::*;
    let (root, workspace) = (RootMount, WorkspaceMount);
    vec![Scratch, Lease, RuntimeSupervisor, Helper, NetworkNamespace, root, workspace, Runsc, Socket, Publication]
}

pub(super) fn position(participant: &Participant) -> u64 {
    participants().iter().position(|known| known == participant).expect("it is one of the walk's") as u64
}

pub(super) fn place(participant: &Participant, generation: Generation) -> PathIdentity {
    fixtures::place(1000 * generation.0 + position(participant))
}

/// Gives the process that a participant is in a generation.
pub(super) fn process_of(participant: &Participant, generation: Generation) -> ProcessIdentity {
    process((100 * generation.0 + position(participant)) as i32)
}

pub(super) fn target(participant: &Participant) -> Target {
    let resources = fixtures::resources();
    resources.into_iter().find(|(known, _, _)| known == participant).expect("it is a resource").1
}

/// Gives what a participant owns in a generation.
pub(super) fn ownership(participant: &Participant, generation: Generation) -> Ownership {
    let resources = fixtures::resources();
    match resources.into_iter().find(|(known, _, _)| known == participant).expect("it is a resource").2 {
        Ownership::Process(_) => Ownership::Process(process_of(participant, generation)),
        Ownership::Path(_) => Ownership::Path(place(participant, generation)),
        other => other,
    }
}

pub(super) fn artifact() -> ArtifactId {
    fixtures::artifact()
}

pub(super) fn session_id(number: u8) -> SessionId {
    fixtures::session(char::from_digit(u32::from(number), 16).expect("few sessions")).id
}

/// Gives the process of a session's `runsc exec`.
pub(super) fn exec_of(session: &SessionId) -> generation::SessionProcess {
    let digit = session.to_string().bytes().last().map_or(0, i32::from);
    generation::SessionProcess { exec: process(5000 + digit), guest_pid: digit }
}

pub(super) fn failed() -> Event {
    Failure::message("it failed").into()
}

impl System {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            left: bounds,
            document: None,
            lease: None,
            world: BTreeMap::new(),
            policy: false,
            execs: BTreeSet::new(),
            coordinator: None,
            supervisor: None,
            reports: VecDeque::new(),
            strangers: BTreeSet::new(),
        }
    }

    pub(super) fn decision(&self) -> Option<Decision> {
        self.document.as_ref().map(|document| document.decision)
    }

    pub(super) fn generation(&self) -> Generation {
        self.document.as_ref().map_or(Generation(0), |document| document.identity.generation)
    }

    pub(super) fn is_ours(&self, participant: &Participant) -> bool {
        matches!(self.world.get(participant), Some(Thing::Ours(_)))
    }

    /// Tells whether nothing is left to be done: no process runs, and the Domain is clean or was never used.
    pub(super) fn rests(&self) -> bool {
        let clean = matches!(self.decision(), None | Some(Decision::Clean));
        clean && self.coordinator.is_none() && !self.is_ours(&Participant::RuntimeSupervisor)
    }

    pub(super) fn tell(&mut self, report: Report) {
        self.reports.push_back(report);
    }

    /// Gives all that can happen next.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = self.steps_of_coordinator();
        if let Some(supervisor) = &self.supervisor {
            steps.extend(supervisor.steps(self.left.failures > 0));
        }
        steps.extend(self.faults());
        steps.extend(self.strangers.iter().cloned().map(Step::MoveAway));
        steps
    }

    pub(super) fn steps_of_coordinator(&self) -> Vec<Step> {
        let Some(coordinator) = &self.coordinator else {
            let mut steps = vec![];
            if !matches!(self.decision(), None | Some(Decision::Clean)) {
                steps.push(Step::SpawnCoordinator(Purpose::RecoverOnly));
            }
            if self.generation().0 < self.left.generations {
                steps.push(Step::SpawnCoordinator(Purpose::Serve));
            }
            return steps;
        };
        let mut steps = vec![];
        if coordinator.is_ready() {
            if !coordinator.effects.is_empty() {
                steps.push(Step::RunEffect);
            } else {
                if !coordinator.events.is_empty() {
                    steps.push(Step::HandleEvent);
                }
                if !self.reports.is_empty() {
                    steps.push(Step::HandleReport);
                }
                if coordinator.clock {
                    steps.push(Step::LingerElapsed);
                }
            }
        }
        if !coordinator.writes.is_empty() {
            steps.push(Step::WriteNext);
        }
        let making = [Job::Lease, Job::Publication].iter().any(|job| coordinator.tasks.contains_key(job));
        for (job, task) in &coordinator.tasks {
            // A release does not overtake what is being made.
            let overtakes = *job == Job::Release && making;
            if !task.waits && !overtakes {
                steps.push(Step::Advance(*job));
            }
        }
        // An own write is awaited by the registry, so that no other comes between.
        if coordinator.admits && coordinator.writes.is_empty() && self.is_ours(&Participant::Publication) {
            if self.left.sessions > 0 {
                steps.push(Step::RegisterSession);
            }
            steps.push(Step::Down);
        }
        if coordinator.life.phase < Phase::Published && coordinator.events.is_empty() {
            steps.push(Step::Cancel);
        }
        for (session, phase) in &coordinator.sessions {
            if matches!(phase, SessionPhase::Opening(_) | SessionPhase::Running) {
                steps.push(Step::ClientGone(session.clone()));
            }
            if matches!(phase, SessionPhase::Draining(_)) && coordinator.writes.is_empty() {
                steps.push(Step::Drained(session.clone()));
            }
        }
        steps
    }

    pub(super) fn faults(&self) -> Vec<Step> {
        let mut steps = vec![];
        if self.left.crashes > 0 {
            if self.coordinator.is_some() {
                steps.push(Step::CrashCoordinator);
                let recorded = self.document.as_ref().and_then(|d| d.ownership(&Participant::RuntimeSupervisor));
                if recorded.is_some() && self.is_ours(&Participant::RuntimeSupervisor) {
                    steps.push(Step::CrashCoordinatorAlone);
                }
            }
            if self.supervisor.is_some() {
                steps.push(Step::CrashSupervisor);
                if self.is_ours(&Participant::Runsc) {
                    steps.push(Step::CrashRunsc);
                }
            }
        }
        if self.left.strangers > 0 {
            let places = [Participant::Scratch, Participant::Socket, Participant::Publication];
            let free = places.into_iter().filter(|place| !self.world.contains_key(place));
            steps.extend(free.map(Step::PlantStranger));
        }
        steps
    }

    /// Takes a step.
    pub(super) fn take(mut self, step: &Step) -> Self {
        match step {
            Step::SpawnCoordinator(purpose) => self.coordinator = Some(self.new_coordinator(*purpose)),
            Step::RunEffect => self.run_effect(),
            Step::HandleEvent => {
                let event = self.lead().events.pop_front().expect("there is an event");
                self.advance(event);
            }
            Step::HandleReport => {
                let report = self.reports.pop_front().expect("there is a report");
                self.hear(report);
            }
            Step::WriteNext => self.write(),
            Step::Advance(job) => self.go_on(*job),
            Step::LingerElapsed => {
                self.lead().clock = false;
                self.advance(Event::LingerElapsed);
            }
            Step::Down => {
                self.lead().admits = false;
                self.lead().events.push_back(Event::DownRequested);
            }
            Step::Cancel => self.lead().events.push_back(Event::Cancelled),
            Step::RegisterSession => self.register(),
            Step::ClientGone(session) => self.session(session, SessionEvent::ClientGone),
            Step::Drained(session) => self.session(session, SessionEvent::Drained),
            Step::Obey => self.obey(),
            Step::Complete(work) => self.complete(work),
            Step::Fail(work) => {
                self.left.failures -= 1;
                self.fail(work);
            }
            Step::SessionExits(session) => self.exits(session),
            Step::CrashCoordinator => {
                self.left.crashes -= 1;
                self.coordinator = None;
                self.end_supervisor();
                self.reports.clear();
            }
            Step::CrashCoordinatorAlone => {
                self.left.crashes -= 1;
                self.coordinator = None;
                // It is about to die, and does nothing any more.
                self.supervisor = None;
                self.reports.clear();
            }
            Step::CrashSupervisor => {
                self.left.crashes -= 1;
                self.supervisor_ended();
            }
            Step::CrashRunsc => {
                self.left.crashes -= 1;
                self.lose_runsc();
            }
            Step::PlantStranger(place) => {
                self.left.strangers -= 1;
                self.world.insert(place.clone(), Thing::Stranger);
                self.strangers.insert(place.clone());
            }
            Step::MoveAway(place) => {
                self.world.remove(place);
                self.strangers.remove(place);
            }
        }
        self
    }
}

impl Coordinator {
    /// Tells whether nothing is awaited: a teardown's record is, before anything that it announces.
    pub(super) fn is_ready(&self) -> bool {
        let tears_down = |write: &Write| matches!(write.changes.first(), Some(Change::BeginTearDown(_)));
        !self.writes.iter().any(tears_down)
    }
}
