//! Client Sessions of a published generation: who asks, who is admitted, who lives.
//!
//! Role: owns the active-session registry and its records in the Domain Store. Parent: the coordinator.
//! Children: one [`Session`] actor each; a session that fails has its processes killed and its record
//! dropped, and no other session notices. If this actor fails, the coordinator takes the generation down.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::generation::GenerationContext;
use super::messages::{HostMessage, LinkMessage, RegistryMessage, SessionMessage};
use super::prepared::PreparedSession;
use super::records::Records;
use super::session::{Session, SessionArguments, SessionStreams, open};
use crate::actors::{self, ended};
use crate::core::admission::{Inadmissible, admit};
use crate::core::generation::{Change, SessionProcess, SessionRecord};
use crate::core::lifecycle::Event;
use crate::core::restart::{Child, Verdict, decide};
use crate::core::session::SessionEvent;
use crate::domain::escaped::escape;
use crate::domain::failure::Failure;
use crate::domain::ids::{ClientCliId, ConfigFingerprint, SessionId};
use crate::domain::runtime::GuestProcess;
use crate::domain::session::{SessionEnd, SessionRequest, SessionSummary, Terminal};
use crate::identity::channel::ServerChannel;
use crate::identity::peer::{Component, PeerIdentity};
use crate::store::writer::WriteError;
use crate::wire::client::{ClientMessage, CoordinatorMessage, DomainStatus, LiveSessions, Refusal};
use crate::wire::lease::{CoordinatorOrder, ExecOutcome, InnerProcess};

/// How long an authenticated client may take to say what it wants.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);

/// What the registry is made of.
pub struct RegistryArguments {
    /// The generation.
    pub generation: Arc<GenerationContext>,
    /// The link to the Runtime Supervisor.
    pub link: ActorRef<LinkMessage>,
    /// The store.
    pub store: Records,
    /// The parent.
    pub coordinator: ActorRef<HostMessage>,
}

struct Live {
    actor: ActorRef<SessionMessage>,
    summary: SessionSummary,
}

/// State of the registry.
pub struct RegistryState {
    arguments: RegistryArguments,
    sessions: BTreeMap<SessionId, Live>,
    prepared: Option<PreparedSession>,
    admission: Admission,
}

/// Whether sessions are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Open,
    /// The generation is about to end, or has lost its supervisor.
    Closed,
    /// Like [`Admission::Closed`], and the coordinator is to be told when no session is left.
    Ending,
}

/// The registry actor.
pub struct Registry;

impl Actor for Registry {
    type Msg = RegistryMessage;
    type State = RegistryState;
    type Arguments = RegistryArguments;

    async fn pre_start(
        &self,
        _: ActorRef<RegistryMessage>,
        arguments: RegistryArguments,
    ) -> Result<RegistryState, ActorProcessingErr> {
        let prepared = PreparedSession::order(&arguments.generation, &arguments.link);
        Ok(RegistryState { arguments, sessions: BTreeMap::new(), prepared, admission: Admission::Open })
    }

    async fn handle(
        &self,
        myself: ActorRef<RegistryMessage>,
        message: RegistryMessage,
        state: &mut RegistryState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RegistryMessage::Connected { channel, identity, pid } => listen(myself, channel, identity, pid),
            RegistryMessage::Asked { channel, client, pid, message } => match message {
                ClientMessage::Open { request, configuration } => {
                    state.open(&myself, channel, client, pid, request, configuration).await;
                }
                ClientMessage::Status => {
                    let status = state.status().await;
                    answer(channel, CoordinatorMessage::Status(Box::new(status)));
                }
                ClientMessage::Down { live } => state.down(channel, live)?,
                other => {
                    let text = format!("{} is no first message", other.name());
                    answer(channel, CoordinatorMessage::Refused(Refusal::Invalid(text)));
                }
            },
            RegistryMessage::Started { session, exec, guest_pid } => state.started(session, exec, guest_pid).await,
            RegistryMessage::ExecEnded(session, outcome) if state.is_prepared(&session) => {
                tracing::warn!(%session, ?outcome, "a prepared session ended");
                state.prepared = None;
                state.record_end(&session).await;
            }
            RegistryMessage::ExecEnded(session, outcome) => {
                state.tell(&session, SessionEvent::ExecEnded(outcome.into()))
            }
            RegistryMessage::PreparationOverdue => {
                if let Some(prepared) = &mut state.prepared {
                    tracing::info!(session = %prepared.session, "nobody registers for the prepared session");
                    prepared.overdue = true;
                    let session = prepared.session.clone();
                    state.kill(&session).ok();
                }
            }
            RegistryMessage::SessionClosed(session) => state.closed(session).await?,
            RegistryMessage::SessionStuck(session) => {
                let failure = Failure::message(format!("the processes of session {session} could not be killed"));
                state.arguments.coordinator.cast(HostMessage::Event(failure.into()))?;
            }
            RegistryMessage::CloseIfIdle if state.sessions.is_empty() => {
                state.admission = Admission::Closed;
                state.arguments.coordinator.cast(HostMessage::Event(Event::Quiet))?;
            }
            RegistryMessage::CloseIfIdle => {}
            RegistryMessage::EndAll(end) => {
                state.admission = Admission::Ending;
                state.tell_all(|| SessionEvent::End(end.clone()));
                state.report_end()?;
            }
            RegistryMessage::SupervisorGone(how) => {
                state.close();
                let lost = SessionEnd::SandboxLost(format!("the Runtime Supervisor ended: {how}"));
                state.tell_all(|| SessionEvent::ExecEnded(lost.clone()));
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<RegistryMessage>,
        event: SupervisionEvent,
        state: &mut RegistryState,
    ) -> Result<(), ActorProcessingErr> {
        let Some((actor, how)) = ended(event) else { return Ok(()) };
        let unasked = state.sessions.iter().find(|(_, live)| live.actor.get_id() == actor);
        let Some(session) = unasked.map(|(session, _)| session.clone()) else { return Ok(()) };
        if let Verdict::EndSession(session, why) = decide(Child::Session(session), &how) {
            tracing::error!(%session, why, "its processes are killed");
            state.kill(&session).ok();
            state.closed(session).await?;
        }
        Ok(())
    }
}

/// Waits for a client's first message in a task of its own.
fn listen(registry: ActorRef<RegistryMessage>, mut channel: ServerChannel, identity: PeerIdentity, pid: i32) {
    let Component::Client(client) = identity.component else {
        tracing::warn!(pid, "a peer that is no Client CLI is refused");
        return;
    };
    tokio::spawn(async move {
        match tokio::time::timeout(FIRST_MESSAGE, channel.next()).await {
            Ok(Some(Ok(message))) => {
                registry.cast(RegistryMessage::Asked { channel, client, pid, message }).ok();
            }
            Ok(Some(Err(error))) => tracing::warn!(%client, %error, "a client's first message is not one"),
            Ok(None) => {}
            Err(_) => tracing::warn!(%client, "a client said nothing"),
        }
    });
}

/// A session's streams, and the order that starts its command with the descriptors that go along.
type Streams = (SessionStreams, CoordinatorOrder, Vec<OwnedFd>);

/// Takes a prepared session's streams over, or makes new ones.
fn streams(
    session: &SessionId,
    terminal: Terminal,
    process: GuestProcess,
    prepared: Option<PreparedSession>,
) -> io::Result<Streams> {
    if let Some(PreparedSession { streams, .. }) = prepared {
        streams.resize(terminal)?;
        return Ok((streams, CoordinatorOrder::BeginSession { session: session.clone() }, Vec::new()));
    }
    let (streams, handed) = open(terminal)?;
    Ok((streams, CoordinatorOrder::StartSession { session: session.clone(), process }, handed))
}

/// Sends a last message in a task of its own.
fn answer(mut channel: ServerChannel, message: CoordinatorMessage) {
    tokio::spawn(async move {
        let sending = async {
            channel.send(message).await?;
            channel.close().await
        };
        tokio::time::timeout(FIRST_MESSAGE, sending).await.ok();
    });
}

impl RegistryState {
    async fn open(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        channel: ServerChannel,
        client: ClientCliId,
        pid: i32,
        request: SessionRequest,
        configuration: Option<ConfigFingerprint>,
    ) {
        if self.admission != Admission::Open {
            return answer(channel, CoordinatorMessage::Refused(Refusal::GoingDown));
        }
        let session = match &self.prepared {
            Some(prepared) if prepared.serves(&request) => prepared.session.clone(),
            Some(_) => {
                myself.send_after(FIRST_MESSAGE, || RegistryMessage::PreparationOverdue);
                SessionId::mint()
            }
            None => SessionId::mint(),
        };
        let generation = self.arguments.generation.clone();
        let process = match admit(&generation.grant(), &session, &request, configuration.as_ref()) {
            Ok(process) => process,
            Err(Inadmissible::ConfigurationDiffers) => {
                let running = Box::new(generation.profile.clone());
                return answer(channel, CoordinatorMessage::Refused(Refusal::ConfigurationDiffers { running }));
            }
            Err(other) => return answer(channel, CoordinatorMessage::Refused(Refusal::Invalid(other.to_string()))),
        };
        let summary = summarise(&session, &client, pid, &request, &process);
        let record =
            SessionRecord { id: session.clone(), client: Some(client), registered_at: summary.since, process: None };
        let prepared = self.prepared.take_if(|prepared| prepared.session == session);
        let change = if prepared.is_some() { Change::AdoptSession(record) } else { Change::RegisterSession(record) };
        if let Err(error) = self.arguments.store.apply(vec![change]).await {
            if prepared.is_some() {
                self.forget(session.clone()).await;
            }
            // A new session is refused only by a generation that is ending for another reason.
            if let WriteError::Refused(refusal) = &error {
                tracing::info!(%refusal, "a session comes too late");
                return answer(channel, CoordinatorMessage::Refused(Refusal::GoingDown));
            }
            tracing::error!(error = &error as &dyn std::error::Error, "a session can't be recorded");
            let refusal = Refusal::Invalid(format!("the session can't be recorded: {error}"));
            return answer(channel, CoordinatorMessage::Refused(refusal));
        }
        let started = prepared.as_ref().is_some_and(|prepared| prepared.started);
        let streams = match streams(&session, request.terminal, process, prepared) {
            Ok(streams) => streams,
            Err(error) => {
                tracing::error!(%session, %error, "a session's streams can't be made");
                let refusal = Refusal::Invalid(format!("the session's streams can't be made: {error}"));
                answer(channel, CoordinatorMessage::Refused(refusal));
                return self.forget(session).await;
            }
        };
        match self.spawn(myself, &session, channel, streams).await {
            Ok(actor) => {
                tracing::info!(%session, client = %summary.client, pid, command = ?summary.command, "session opened");
                self.sessions.insert(session.clone(), Live { actor, summary });
                if started {
                    self.tell(&session, SessionEvent::Started);
                }
                self.arguments.coordinator.cast(HostMessage::Event(Event::SessionOpened(session))).ok();
            }
            Err(error) => {
                tracing::error!(%session, error = &*error, "a session can't be started");
                self.forget(session).await;
            }
        }
    }

    /// Ends what there may be of a session that came to nothing.
    async fn forget(&self, session: SessionId) {
        self.kill(&session).ok();
        self.record_end(&session).await;
    }

    /// Orders a session's processes killed.
    fn kill(&self, session: &SessionId) -> Result<(), ActorProcessingErr> {
        let order = CoordinatorOrder::KillSession { session: session.clone() };
        Ok(self.arguments.link.cast(LinkMessage::Order(order, Vec::new()))?)
    }

    /// Takes a session's record away.
    async fn record_end(&self, session: &SessionId) {
        if let Err(error) = self.arguments.store.apply(vec![Change::EndSession(session.clone())]).await {
            tracing::error!(%session, error = &error as &dyn std::error::Error, "a session's end can't be recorded");
        }
    }

    async fn spawn(
        &self,
        myself: &ActorRef<RegistryMessage>,
        session: &SessionId,
        channel: ServerChannel,
        (streams, order, handed): Streams,
    ) -> Result<ActorRef<SessionMessage>, Box<dyn std::error::Error + Send + Sync>> {
        let arguments = SessionArguments {
            session: session.clone(),
            generation: self.arguments.generation.clone(),
            channel,
            streams,
            order,
            handed,
            link: self.arguments.link.clone(),
            registry: myself.clone(),
        };
        Ok(actors::spawn(myself, Session, arguments).await?)
    }

    fn is_prepared(&self, session: &SessionId) -> bool {
        self.prepared.as_ref().is_some_and(|prepared| prepared.session == *session)
    }

    async fn started(&mut self, session: SessionId, exec: InnerProcess, guest_pid: i32) {
        match &mut self.prepared {
            Some(prepared) if prepared.session == session => prepared.started = true,
            _ => self.tell(&session, SessionEvent::Started),
        }
        let Some(exec) = self.arguments.generation.outer_process(&exec) else { return };
        let change = Change::StartSession(session.clone(), SessionProcess { exec, guest_pid });
        if let Err(error) = self.arguments.store.apply(vec![change]).await {
            // A session that ended in the meantime has no record any more.
            tracing::debug!(%session, %error, "a session's processes are not recorded");
        }
    }

    async fn closed(&mut self, session: SessionId) -> Result<(), ActorProcessingErr> {
        let Some(live) = self.sessions.remove(&session) else { return Ok(()) };
        // It does not stop by itself, as the event of its end would overtake its last message.
        live.actor.stop(None);
        tracing::info!(%session, "session closed");
        self.record_end(&session).await;
        self.arguments.coordinator.cast(HostMessage::Event(Event::SessionClosed(session)))?;
        self.report_end()
    }

    /// Tells the coordinator, when it waits for that, that no session is left.
    fn report_end(&self) -> Result<(), ActorProcessingErr> {
        if self.admission == Admission::Ending && self.sessions.is_empty() {
            self.arguments.coordinator.cast(HostMessage::Event(Event::SessionsEnded))?;
        }
        Ok(())
    }

    /// Admits nobody any more.
    fn close(&mut self) {
        if self.admission == Admission::Open {
            self.admission = Admission::Closed;
        }
    }

    fn down(&mut self, channel: ServerChannel, live: LiveSessions) -> Result<(), ActorProcessingErr> {
        if live == LiveSessions::Spare && !self.sessions.is_empty() {
            answer(channel, CoordinatorMessage::Refused(Refusal::SessionsLive(self.sessions.len())));
            return Ok(());
        }
        self.close();
        let mut channel = channel;
        let coordinator = self.arguments.coordinator.clone();
        // The connection is kept until this process ends, which tells the client that all is gone.
        tokio::spawn(async move {
            channel.send(CoordinatorMessage::GoingDown).await.ok();
            coordinator.cast(HostMessage::HoldUntilEnd(Box::new(channel))).ok();
            coordinator.cast(HostMessage::Event(Event::DownRequested)).ok();
        });
        Ok(())
    }

    async fn status(&self) -> DomainStatus {
        let generation = &self.arguments.generation;
        let document = self.arguments.store.document().await.ok().flatten();
        DomainStatus {
            sessions: self.sessions.values().map(|live| live.summary.clone()).collect(),
            ..generation.status(document.as_deref())
        }
    }

    fn tell(&self, session: &SessionId, event: SessionEvent) {
        if let Some(live) = self.sessions.get(session) {
            live.actor.cast(SessionMessage::Event(event)).ok();
        }
    }

    fn tell_all(&self, event: impl Fn() -> SessionEvent) {
        for live in self.sessions.values() {
            live.actor.cast(SessionMessage::Event(event())).ok();
        }
    }
}

fn summarise(
    session: &SessionId,
    client: &ClientCliId,
    pid: i32,
    request: &SessionRequest,
    process: &GuestProcess,
) -> SessionSummary {
    SessionSummary {
        id: session.clone(),
        client: client.clone(),
        client_pid: pid,
        command: process.argv.iter().map(|argument| escape(argument)).collect(),
        interactive: process.interactive,
        terminal_name: request.terminal_name.clone(),
        since: jiff::Timestamp::now().as_second(),
    }
}

impl From<ExecOutcome> for SessionEnd {
    fn from(outcome: ExecOutcome) -> Self {
        match outcome {
            ExecOutcome::Exited(status) => Self::Exited(status),
            ExecOutcome::NotStarted(why) => Self::NotStarted(why),
            ExecOutcome::SandboxLost(why) => Self::SandboxLost(why),
            ExecOutcome::ClientKilled(signal) => {
                Self::SandboxLost(format!("the session's runsc exec client was killed by signal {signal}"))
            }
        }
    }
}
