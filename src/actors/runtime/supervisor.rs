//! The root of the Runtime Supervisor's tree: carries out orders and what
//! [`Phase`] decides.
//!
//! Parent: none; its end is the process's end, and as process 1 that of everything in its namespaces.
//! Children and what the death of each means:
//!
//! - `lease`: nobody leads any more; the process exits at once.
//! - `helper`, `network`, `mounts`, `runsc`: each holds what only it knows, so none is started again.
//!   While building the build fails, later the sandbox counts as lost. What the actor held ends with it.
//! - `exec`, one a session: that session is ended in the sandbox and reported as lost, and no other.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, Message, SupervisionEvent};
use tokio::task::JoinHandle;
use tracing::{debug, error, info, warn};

use super::children::Children;
use super::exec::Begin;
use super::helper::{Helper, HelperArguments, HelperMessage, PreparedHelper};
use super::lease::{LeaseArguments, LeaseLink, LeaseMessage};
use super::messages::{ReceivedOrder, SessionNews, SupervisorMessage, spawn};
use super::mounts::{Mounts, MountsArguments, MountsMessage};
use super::network::{Network, NetworkArguments, NetworkMessage};
use super::runsc::command::Sandbox;
use super::runsc::{Runsc, RunscArguments, RunscMessage};
use super::sessions::{Sessions, Start};
use super::{runsc, storage};
use crate::actors::ended;
use crate::core::restart::{Child, Verdict, decide};
use crate::core::supervision::{Effect, Event, Phase};
use crate::domain::ids::SessionId;
use crate::domain::runtime::{GuestProcess, RuntimePlan};
use crate::fault;
use crate::sys::seqpacket::Lease;
use crate::wire::lease::{self, CoordinatorOrder, ExecOutcome, SupervisorReport};

/// How long everything up to the probed sandbox may take. The single steps have their own, shorter limits.
const BUILD_DEADLINE: Duration = Duration::from_secs(60);
/// How long a teardown may take before the kernel is left to finish it.
const TEAR_DOWN_DEADLINE: Duration = lease::TEAR_DOWN_LIMIT;
/// How long the last report may take to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a session waits for news of the sandbox itself.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// What the supervisor is started with.
pub struct SupervisorArguments {
    /// The open lease.
    pub lease: Lease,
    /// The plan, which arrived as the first order.
    pub plan: Arc<RuntimePlan>,
    /// The forked connectivity helper.
    pub helper: PreparedHelper,
    /// When this process began.
    pub began: Instant,
    /// Set when everything was taken down before the end.
    pub orderly: Arc<AtomicBool>,
}

/// What the supervisor remembers.
pub struct SupervisorState {
    phase: Phase,
    plan: Arc<RuntimePlan>,
    began: Instant,
    orderly: Arc<AtomicBool>,
    children: Children,
    lease: ActorRef<LeaseMessage>,
    helper: ActorRef<HelperMessage>,
    network: ActorRef<NetworkMessage>,
    mounts: ActorRef<MountsMessage>,
    runsc: ActorRef<RunscMessage>,
    sessions: Sessions,
    /// A session that is to start with the sandbox.
    prepared: Option<Prepared>,
    /// Set when the sandbox is gone but its sessions' clients are still ending.
    sandbox_gone: Option<Event>,
    /// Why the sandbox is lost.
    lost: Option<String>,
    deadline: Option<JoinHandle<()>>,
}

/// A session whose process waits for the sandbox.
struct Prepared {
    session: SessionId,
    process: GuestProcess,
    streams: Vec<OwnedFd>,
}

/// The root actor.
pub struct Supervisor;

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = SupervisorArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: SupervisorArguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let SupervisorArguments { lease, plan, helper, began, orderly } = arguments;
        let children = Children::default();
        children.reap_orphans()?;
        let sandbox = Sandbox::of(&plan);
        let supervisor = || myself.clone();
        let lease = LeaseArguments { lease, supervisor: supervisor() };
        let lease = spawn(&myself, LeaseLink, lease).await?;
        let helper = HelperArguments { supervisor: supervisor(), prepared: helper, children: children.clone() };
        let helper = spawn(&myself, Helper, helper).await?;
        let network = NetworkArguments { supervisor: supervisor(), plan: plan.clone() };
        let network = spawn(&myself, Network, network).await?;
        let mounts = MountsArguments { supervisor: supervisor(), plan: plan.clone() };
        let mounts = spawn(&myself, Mounts, mounts).await?;
        let runsc = RunscArguments {
            supervisor: supervisor(),
            plan: plan.clone(),
            sandbox: sandbox.clone(),
            children: children.clone(),
        };
        let runsc = spawn(&myself, Runsc, runsc).await?;
        myself.cast(SupervisorMessage::Resource(Event::BuildOrdered, None))?;
        Ok(SupervisorState {
            phase: Phase::default(),
            plan,
            began,
            orderly,
            children: children.clone(),
            lease,
            helper,
            network,
            mounts,
            runsc,
            sessions: Sessions::new(sandbox, children),
            prepared: None,
            sandbox_gone: None,
            lost: None,
            deadline: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: SupervisorMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Order(received) => {
                let ReceivedOrder { order, fds, permit } = *received;
                state.obey(&myself, order, fds).await?;
                drop(permit);
            }
            SupervisorMessage::Resource(Event::SandboxGone, report) if !state.sessions.is_empty() => {
                debug!("waiting for the sessions' clients");
                debug_assert!(report.is_none());
                state.sandbox_gone = Some(Event::SandboxGone);
            }
            SupervisorMessage::Resource(event, report) => state.step(&myself, event, report).await?,
            SupervisorMessage::Session(session, news) => state.session_news(&myself, session, news).await?,
            SupervisorMessage::DeadlineExpired => state.step(&myself, Event::DeadlineExpired, None).await?,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match ended(event) {
            Some((who, how)) => state.child_ended(&myself, who, &how).await,
            None => Ok(()),
        }
    }
}

impl SupervisorState {
    /// Takes the decision for an event and carries it out.
    async fn step(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        event: Event,
        report: Option<SupervisorReport>,
    ) -> Result<(), ActorProcessingErr> {
        let elapsed_us = self.began.elapsed().as_micros();
        let (phase, effects) = self.phase.step(event.clone());
        debug!(elapsed_us, ?event, ?phase, "step");
        self.phase = phase;
        let mut report = report;
        for effect in effects {
            self.run(myself, effect, &mut report).await?;
        }
        Ok(())
    }

    async fn run(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        effect: Effect,
        report: &mut Option<SupervisorReport>,
    ) -> Result<(), ActorProcessingErr> {
        let _around = fault::around(&effect);
        match effect {
            Effect::Announce => {
                if let Some(report) = report.take() {
                    self.report(report)?;
                }
            }
            Effect::StartBuildDeadline => self.set_deadline(myself, BUILD_DEADLINE),
            Effect::StartTearDownDeadline => self.set_deadline(myself, TEAR_DOWN_DEADLINE),
            Effect::StopDeadline => self.stop_deadline(),
            // An owner that is gone has failed the build, or is about to.
            Effect::StartHelper => drop(self.helper.cast(HelperMessage::Start)),
            Effect::StageMounts => drop(self.mounts.cast(MountsMessage::Stage)),
            Effect::PrepareNamespace => drop(self.network.cast(NetworkMessage::Prepare)),
            Effect::InstallPolicy => drop(self.network.cast(NetworkMessage::Install)),
            Effect::StartSandbox => drop(self.runsc.cast(RunscMessage::Start)),
            Effect::StartPreparedSession => {
                if let Some(Prepared { session, process, streams }) = self.prepared.take() {
                    let start = self.sessions.start(myself, session.clone(), process, Begin::OnOrder, streams).await?;
                    self.answer_start(session, start)?;
                }
            }
            Effect::ReportBuildFailed(failure) => {
                warn!(causes = ?failure.causes, "the build failed");
                self.report(SupervisorReport::BuildFailed(failure))?;
            }
            Effect::ReportLost(cause) => {
                warn!(cause, "the sandbox is lost");
                self.lost = Some(cause.clone());
                self.report(SupervisorReport::SandboxLost { cause })?;
            }
            Effect::EndSandbox => {
                self.prepared = None;
                self.end(myself, &self.runsc, RunscMessage::End);
            }
            Effect::Unmount => self.end(myself, &self.mounts, MountsMessage::Unmount),
            Effect::EndHelper => self.end(myself, &self.helper, HelperMessage::End),
            Effect::RemoveStorage => {
                let (plan, myself) = (self.plan.clone(), myself.clone());
                tokio::spawn(async move {
                    storage::remove(&plan).await;
                    let _ = myself.cast(SupervisorMessage::Resource(Event::StorageRemoved, None));
                });
            }
            Effect::ReportTornDown => self.report(SupervisorReport::TornDown)?,
            Effect::Exit => {
                let flushed = self.lease.call(LeaseMessage::Flush, Some(FLUSH_TIMEOUT)).await;
                info!(flushed = flushed.is_ok(), elapsed_us = self.began.elapsed().as_micros(), "ending");
                self.orderly.store(true, Ordering::Relaxed);
                myself.stop(None);
            }
        }
        Ok(())
    }

    fn report(&self, report: SupervisorReport) -> Result<(), ActorProcessingErr> {
        Ok(self.lease.cast(LeaseMessage::Send(Box::new(report)))?)
    }

    fn set_deadline(&mut self, myself: &ActorRef<SupervisorMessage>, after: Duration) {
        self.stop_deadline();
        let myself = myself.clone();
        self.deadline = Some(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = myself.cast(SupervisorMessage::DeadlineExpired);
        }));
    }

    fn stop_deadline(&mut self) {
        if let Some(deadline) = self.deadline.take() {
            deadline.abort();
        }
    }

    async fn obey(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        order: CoordinatorOrder,
        fds: Vec<OwnedFd>,
    ) -> Result<(), ActorProcessingErr> {
        match order {
            CoordinatorOrder::Build(_) => warn!("a second build order is ignored"),
            CoordinatorOrder::StartSession { session, process } => {
                self.start_session(myself, session, process, fds).await?;
            }
            CoordinatorOrder::PrepareSession { session, process }
                if self.phase.takes_preparations() && self.prepared.is_none() =>
            {
                self.prepared = Some(Prepared { session, process, streams: fds });
            }
            CoordinatorOrder::PrepareSession { session, .. } => {
                self.answer_start(session, Start::Refused("no session can be prepared now"))?;
            }
            CoordinatorOrder::BeginSession { session } => self.sessions.begin(&session),
            CoordinatorOrder::SignalSession { session, event } => self.sessions.signal(&session, event),
            CoordinatorOrder::KillSession { session } => {
                match self.prepared.take_if(|prepared| prepared.session == session) {
                    Some(_) => self.answer_start(session, Start::Refused("it was ended before it began"))?,
                    None => self.sessions.kill(&session),
                }
            }
            CoordinatorOrder::TearDown => self.step(myself, Event::TearDownOrdered, None).await?,
        }
        Ok(())
    }

    async fn start_session(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        session: SessionId,
        process: GuestProcess,
        streams: Vec<OwnedFd>,
    ) -> Result<(), ActorProcessingErr> {
        let start = if self.phase.serves_sessions() {
            self.sessions.start(myself, session.clone(), process, Begin::AtOnce, streams).await?
        } else {
            Start::Refused("the sandbox is not ready")
        };
        self.answer_start(session, start)
    }

    /// Reports a session that was not started.
    fn answer_start(&self, session: SessionId, start: Start) -> Result<(), ActorProcessingErr> {
        match start {
            Start::Begun => Ok(()),
            Start::Already => {
                // The running one keeps its identity; an answer would end it for the coordinator.
                warn!(%session, "a session is started twice");
                Ok(())
            }
            Start::Refused(reason) => {
                let outcome = ExecOutcome::NotStarted(reason.to_owned());
                self.report(SupervisorReport::SessionEnded { session, outcome })
            }
        }
    }

    async fn session_news(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        session: SessionId,
        news: SessionNews,
    ) -> Result<(), ActorProcessingErr> {
        match news {
            SessionNews::Started { exec, guest_pid } => {
                if self.sessions.started(&session, exec, guest_pid) {
                    self.report(SupervisorReport::SessionStarted { session, exec, guest_pid })?;
                }
            }
            SessionNews::Ended(outcome) => {
                if self.phase.serves_sessions() && self.sessions.may_be_loss(&session, &outcome) {
                    let settled = move || SupervisorMessage::Session(session, SessionNews::Settled(outcome));
                    myself.send_after(SETTLE_TIME, settled);
                } else {
                    self.end_session(myself, session, outcome).await?;
                }
            }
            SessionNews::Settled(outcome) => {
                let outcome = self.lost.clone().map_or(outcome, ExecOutcome::SandboxLost);
                self.end_session(myself, session, outcome).await?;
            }
        }
        Ok(())
    }

    async fn end_session(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        session: SessionId,
        outcome: ExecOutcome,
    ) -> Result<(), ActorProcessingErr> {
        if !self.sessions.end(&session) {
            return Ok(());
        }
        self.report(SupervisorReport::SessionEnded { session, outcome })?;
        if self.sessions.is_empty()
            && let Some(event) = self.sandbox_gone.take()
        {
            self.step(myself, event, None).await?;
        }
        Ok(())
    }

    async fn child_ended(
        &mut self,
        myself: &ActorRef<SupervisorMessage>,
        who: ActorId,
        how: &str,
    ) -> Result<(), ActorProcessingErr> {
        let Some(child) = self.child(who) else { return Ok(()) };
        error!(?child, how, "an actor ended");
        match decide(child, how) {
            Verdict::Exit => std::process::exit(1),
            Verdict::TearDown(failure) => {
                self.step(myself, Event::Failed(failure), None).await?;
                // A teardown that is under way may wait for it.
                self.stand_in(myself, who);
            }
            Verdict::EndSession(session, why) => {
                self.sessions.abandon(&session);
                self.end_session(myself, session, ExecOutcome::SandboxLost(why)).await?;
            }
            Verdict::Restart => {}
        }
        Ok(())
    }

    /// Tells which child an actor is; a session's that was stopped in order is none any more.
    fn child(&self, id: ActorId) -> Option<Child> {
        if id == self.lease.get_id() {
            return Some(Child::Lease);
        }
        let owners = [
            (self.helper.get_id(), "helper"),
            (self.network.get_id(), "network"),
            (self.mounts.get_id(), "mounts"),
            (self.runsc.get_id(), "runsc"),
        ];
        let owner = owners.into_iter().find(|(actor, _)| *actor == id).map(|(_, name)| Child::Owner(name));
        owner.or_else(|| self.sessions.carried_by(id).map(Child::Session))
    }

    /// Has the owner of a resource end it.
    fn end<M: Message>(&self, myself: &ActorRef<SupervisorMessage>, owner: &ActorRef<M>, order: M) {
        if owner.cast(order).is_err() {
            self.stand_in(myself, owner.get_id());
        }
    }

    /// Says in place of an owner that is gone that what it held has ended.
    fn stand_in(&self, myself: &ActorRef<SupervisorMessage>, id: ActorId) {
        let event = if id == self.runsc.get_id() {
            Event::SandboxGone
        } else if id == self.mounts.get_id() {
            Event::Unmounted
        } else if id == self.helper.get_id() {
            Event::HelperGone
        } else {
            return;
        };
        let (children, myself) = (self.children.clone(), myself.clone());
        tokio::spawn(async move {
            if event == Event::SandboxGone {
                runsc::until_gone(&children).await;
            }
            let _ = myself.cast(SupervisorMessage::Resource(event, None));
        });
    }
}
