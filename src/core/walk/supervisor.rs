//! The Runtime Supervisor's part of the walk.

use std::collections::{BTreeSet, VecDeque};

use super::system::{Step, System, Thing};
use crate::core::generation::Participant;
use crate::core::supervision::{Effect, Event, Phase};
use crate::domain::failure::Failure;
use crate::domain::ids::SessionId;

/// What the coordinator orders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Order {
    Build,
    StartSession(SessionId),
    KillSession(SessionId),
    TearDown,
}

/// What the supervisor reports; `Ended` is what its parent sees of its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Report {
    HelperReady,
    MountsReady,
    NetworkReady,
    SandboxCreated,
    Probed,
    BuildFailed,
    SandboxLost,
    SessionStarted(SessionId),
    SessionEnded(SessionId),
    Ended,
}

/// What is under way, and may be done at any time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Work {
    StartHelper,
    StageMounts,
    PrepareNamespace,
    InstallPolicy,
    StartSandbox,
    Probe,
    StartExec(SessionId),
    KillExec(SessionId),
    EndSandbox,
    Unmount,
    EndHelper,
    RemoveStorage,
}

/// A Runtime Supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Supervisor {
    phase: Phase,
    pub(super) orders: VecDeque<Order>,
    work: BTreeSet<Work>,
    sessions: BTreeSet<SessionId>,
}

impl Supervisor {
    pub(super) fn steps(&self, may_fail: bool) -> Vec<Step> {
        let mut steps = vec![];
        if !self.orders.is_empty() {
            steps.push(Step::Obey);
        }
        for work in &self.work {
            steps.push(Step::Complete(work.clone()));
            let building = matches!(
                work,
                Work::StartHelper | Work::StageMounts | Work::PrepareNamespace | Work::InstallPolicy | Work::Probe
            );
            if may_fail && building {
                steps.push(Step::Fail(work.clone()));
            }
        }
        steps.extend(self.sessions.iter().filter(|session| !self.starts(session)).cloned().map(Step::SessionExits));
        steps
    }

    fn starts(&self, session: &SessionId) -> bool {
        self.work.contains(&Work::StartExec(session.clone()))
    }
}

impl System {
    fn supervise(&mut self) -> &mut Supervisor {
        self.supervisor.as_mut().expect("a supervisor runs")
    }

    fn work(&mut self, work: Work) {
        self.supervise().work.insert(work);
    }

    pub(super) fn obey(&mut self) {
        match self.supervise().orders.pop_front().expect("there is an order") {
            Order::Build => self.supervision(Event::BuildOrdered, None),
            Order::TearDown => self.supervision(Event::TearDownOrdered, None),
            Order::StartSession(session) if self.supervise().phase.serves_sessions() => {
                self.supervise().sessions.insert(session.clone());
                self.work(Work::StartExec(session));
            }
            Order::StartSession(session) => self.tell(Report::SessionEnded(session)),
            Order::KillSession(session) => {
                if self.supervise().sessions.contains(&session) {
                    self.work(Work::KillExec(session));
                }
            }
        }
    }

    /// Does a piece of work, and what follows from it.
    pub(super) fn complete(&mut self, work: &Work) {
        self.supervise().work.remove(work);
        let generation = self.generation();
        let mut make = |participants: &[Participant]| {
            for participant in participants {
                self.world.insert(participant.clone(), Thing::Ours(generation));
            }
        };
        match work {
            Work::StartHelper => {
                make(&[Participant::Helper]);
                self.supervision(Event::HelperReady, Some(Report::HelperReady));
            }
            Work::StageMounts => {
                make(&[Participant::RootMount, Participant::WorkspaceMount]);
                self.supervision(Event::MountsReady, Some(Report::MountsReady));
            }
            Work::PrepareNamespace => self.supervision(Event::NamespacePrepared, None),
            Work::InstallPolicy => {
                self.policy = true;
                self.supervision(Event::PolicyAttested, Some(Report::NetworkReady));
            }
            Work::StartSandbox => {
                make(&[Participant::Runsc]);
                self.work(Work::Probe);
                self.supervision(Event::SandboxCreated, Some(Report::SandboxCreated));
            }
            Work::Probe => self.supervision(Event::ProbePassed, Some(Report::Probed)),
            Work::StartExec(session) => {
                self.execs.insert(session.clone());
                self.tell(Report::SessionStarted(session.clone()));
            }
            Work::KillExec(session) => self.exits(session),
            Work::EndSandbox => {
                self.end_execs();
                self.world.remove(&Participant::Runsc);
                self.supervision(Event::SandboxGone, None);
            }
            Work::Unmount => {
                self.world.retain(|participant, _| !participant.is_mount());
                self.supervision(Event::Unmounted, None);
            }
            Work::EndHelper => {
                self.world.remove(&Participant::Helper);
                self.supervision(Event::HelperGone, None);
            }
            Work::RemoveStorage => {
                if self.is_ours(&Participant::Scratch) {
                    self.world.remove(&Participant::Scratch);
                }
                self.supervision(Event::StorageRemoved, None);
            }
        }
    }

    pub(super) fn fail(&mut self, work: &Work) {
        self.supervise().work.remove(work);
        let failure = Failure::message("it failed");
        self.supervision(Event::Failed(failure), None);
    }

    /// A session's process tree is gone; one that did not run yet never will.
    pub(super) fn exits(&mut self, session: &SessionId) {
        let supervisor = self.supervise();
        supervisor.work.remove(&Work::StartExec(session.clone()));
        supervisor.work.remove(&Work::KillExec(session.clone()));
        if supervisor.sessions.remove(session) {
            self.execs.remove(session);
            self.tell(Report::SessionEnded(session.clone()));
        }
    }

    fn end_execs(&mut self) {
        for session in self.supervise().sessions.clone() {
            self.exits(&session);
        }
    }

    pub(super) fn lose_runsc(&mut self) {
        self.world.remove(&Participant::Runsc);
        self.end_execs();
        self.supervise().work.remove(&Work::Probe);
        self.supervision(Event::Lost("runsc ended".to_owned()), None);
    }

    fn supervision(&mut self, event: Event, report: Option<Report>) {
        let (phase, effects) = self.supervise().phase.step(event);
        self.supervise().phase = phase;
        let mut report = report;
        for effect in effects {
            match effect {
                Effect::Announce => {
                    if let Some(report) = report.take() {
                        self.tell(report);
                    }
                }
                Effect::StartBuildDeadline | Effect::StopDeadline | Effect::StartTearDownDeadline => {}
                Effect::StartHelper => self.work(Work::StartHelper),
                Effect::StageMounts => self.work(Work::StageMounts),
                Effect::PrepareNamespace => self.work(Work::PrepareNamespace),
                Effect::InstallPolicy => self.work(Work::InstallPolicy),
                Effect::StartSandbox => self.work(Work::StartSandbox),
                Effect::StartPreparedSession => {}
                Effect::ReportBuildFailed(_) => self.tell(Report::BuildFailed),
                Effect::ReportLost(_) => self.tell(Report::SandboxLost),
                Effect::EndSandbox => {
                    // What is being built comes to an end before it is taken down.
                    self.supervise().work.clear();
                    self.work(Work::EndSandbox);
                }
                Effect::Unmount => self.work(Work::Unmount),
                Effect::EndHelper => self.work(Work::EndHelper),
                Effect::RemoveStorage => self.work(Work::RemoveStorage),
                Effect::ReportTornDown => {}
                Effect::Exit => {
                    self.supervisor_ended();
                    return;
                }
            }
        }
    }
}
