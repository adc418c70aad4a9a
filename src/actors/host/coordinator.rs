//! The root actor of the Host Coordinator: carries out what [`crate::core::lifecycle`] decides.
//!
//! Role: leads one Domain generation. Parent: none, the process ends with it. Children: the store
//! writer, the runtime link and the registry; each holds something that nobody else has, so its loss
//! takes the generation down in order. The publisher holds nothing and is started again ([`crate::core::restart`]).

mod effects;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::begin::{self, Beginning};
use super::evidence;
use super::generation::{GenerationContext, Places};
use super::messages::{HostMessage, LinkMessage, RegistryMessage, SpawnRequest};
use super::preparation::PrepareRequest;
use super::preparing::Preparing;
use super::publication::{self, Publisher, PublisherArguments, PublisherMessage};
use super::reclaim;
use super::records::Records;
use super::registry::{Registry, RegistryArguments};
use super::runtime_link::RuntimeLink;
use super::startup::Startup;
use super::{lease, plan, task};
use crate::actors::{ended, spawn};
use crate::core::generation::{Change, Ownership, Participant};
use crate::core::lifecycle::{Effect, EndReason, Event, Lifecycle, Phase, Purpose, step};
use crate::core::restart::{Child, Verdict, decide};
use crate::domain::artifact::ArtifactManifest;
use crate::domain::failure::Failure;
use crate::domain::ids::DomainId;
use crate::domain::session::SessionEnd;
use crate::identity::channel::{Face, ServerChannel};
use crate::store::DomainStore;
use crate::store::writer::StoreWriter;
use crate::sys::seqpacket::Lease;
use crate::wire::bootstrap::{Start, StartMode, StartOutcome};
use crate::wire::lease::{CoordinatorOrder, SupervisorReport};
use crate::{fault, protocol_trace};

/// How long the client that started the Domain may take to register its session.
const FIRST_SESSION: Duration = Duration::from_secs(5);

/// How long one spawn of the supervisor may take.
const SPAWN_DEADLINE: u64 = 30_000;

/// What the coordinator is made of; the Domain lock is held.
pub struct CoordinatorArguments {
    /// The Domain.
    pub domain: DomainId,
    /// What the client asked for.
    pub start: Start,
    /// Where the Domain's things lie.
    pub places: Places,
    /// The store of the locked Domain.
    pub store: DomainStore,
    /// The bootstrap pair.
    pub bootstrap: Arc<Lease>,
    /// The exit status to give, set before the end.
    pub status: Arc<std::sync::Mutex<ExitCode>>,
}

/// State of the coordinator.
pub struct CoordinatorState {
    domain: DomainId,
    start: Start,
    places: Places,
    store: Records,
    startup: Startup,
    status: Arc<std::sync::Mutex<ExitCode>>,
    life: Lifecycle,
    artifact: Option<Box<ArtifactManifest>>,
    generation: Option<Arc<GenerationContext>>,
    link: ActorRef<LinkMessage>,
    registry: Option<ActorRef<RegistryMessage>>,
    publisher: Option<ActorRef<PublisherMessage>>,
    /// What a publisher is made of, and how many times one was started again, while the generation is published.
    published: Option<(PublisherArguments, u32)>,
    face: Option<Arc<Face>>,
    preparing: Option<Preparing>,
    /// Tasks that make something which a release must not overtake.
    making: Vec<tokio::task::JoinHandle<()>>,
    clock: Option<JoinHandle<Result<(), ractor::MessagingErr<HostMessage>>>>,
    held: Vec<ServerChannel>,
}

/// The coordinator actor.
pub struct Coordinator;

impl Actor for Coordinator {
    type Msg = HostMessage;
    type State = CoordinatorState;
    type Arguments = CoordinatorArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<HostMessage>,
        arguments: CoordinatorArguments,
    ) -> Result<CoordinatorState, ActorProcessingErr> {
        let CoordinatorArguments { domain, start, places, store, bootstrap, status } = arguments;
        let startup = Startup::new(bootstrap, Some(places.runtime.startup()), myself.clone());
        let link = spawn(&myself, RuntimeLink, myself.clone()).await?;
        let writer = spawn(&myself, StoreWriter, store).await?;
        let store = Records::new(writer);
        let purpose = match start.mode {
            StartMode::Serve => Purpose::Serve,
            StartMode::Recover => Purpose::RecoverOnly,
        };
        let (life, _) = Lifecycle::start(purpose);
        Ok(CoordinatorState {
            domain,
            start,
            places,
            store,
            startup,
            status,
            life,
            artifact: None,
            generation: None,
            link,
            registry: None,
            publisher: None,
            published: None,
            face: None,
            preparing: None,
            making: Vec::new(),
            clock: None,
            held: Vec::new(),
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<HostMessage>,
        state: &mut CoordinatorState,
    ) -> Result<(), ActorProcessingErr> {
        state.run(&myself, Effect::Recover).await;
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<HostMessage>,
        message: HostMessage,
        state: &mut CoordinatorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            HostMessage::Event(event) => state.advance(&myself, event).await,
            HostMessage::Prepared(artifact) => {
                state.artifact = Some(artifact);
                state.advance(&myself, Event::Prepared).await;
            }
            HostMessage::Begun(generation) => {
                state.generation = Some(generation);
                state.advance(&myself, Event::Begun).await;
            }
            HostMessage::Report(report) => state.report(&myself, report).await,
            HostMessage::SupervisorEnded(how) => {
                state.tell_registry(RegistryMessage::SupervisorGone(how.clone()));
                state.advance(&myself, Event::SupervisorEnded { how }).await;
            }
            HostMessage::PublicationReady(listener, face) => state.open(&myself, listener, face).await?,
            HostMessage::HoldUntilEnd(channel) => state.held.push(*channel),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<HostMessage>,
        event: SupervisionEvent,
        state: &mut CoordinatorState,
    ) -> Result<(), ActorProcessingErr> {
        let Some((id, how)) = ended(event) else { return Ok(()) };
        let Some(child) = state.child(id) else { return Ok(()) };
        tracing::error!(?child, how, "an actor ended");
        match decide(child, &how) {
            Verdict::TearDown(failure) => {
                state.advance(&myself, failure.into()).await;
                state.let_go_of_sessions(&myself, id).await;
            }
            Verdict::Restart => state.publish_again(&myself).await?,
            Verdict::EndSession(..) | Verdict::Exit => {}
        }
        Ok(())
    }
}

impl CoordinatorState {
    async fn advance(&mut self, myself: &ActorRef<HostMessage>, event: Event) {
        let (life, effects) = step(self.life.clone(), event.clone());
        if life != self.life || !effects.is_empty() {
            tracing::info!(from = ?self.life.phase, to = ?life.phase, ?event, "generation");
        }
        if let Some(action) = event.action(&self.life) {
            match (&event, &self.artifact) {
                (Event::Prepared, Some(artifact)) => protocol_trace::event(action).with("artifact", &artifact.id),
                _ => protocol_trace::event(action),
            }
            .write();
        }
        self.life = life;
        for effect in effects {
            self.run(myself, effect).await;
        }
    }

    async fn run(&mut self, myself: &ActorRef<HostMessage>, effect: Effect) {
        let _around = fault::around(&effect);
        if let Some(action) = effect.action() {
            protocol_trace::event(action).write();
        }
        match effect {
            Effect::Recover => self.recover(myself, Event::Recovered),
            Effect::Prepare => self.prepare(myself),
            Effect::AbandonPreparation => {
                if let Some(preparing) = self.preparing.take() {
                    preparing.abandon().await;
                }
            }
            Effect::Begin => self.begin(myself),
            Effect::SpawnSupervisor => self.spawn_supervisor(myself).await,
            Effect::AcquireLease => self.acquire_lease(myself),
            Effect::Build => self.build(myself).await,
            Effect::Publish => self.publish(myself),
            Effect::ReportPublished => self.startup.outcome(StartOutcome::Published).await,
            Effect::ReportRecovered => self.startup.outcome(StartOutcome::Recovered).await,
            Effect::ReportFailed => self.report_failed().await,
            Effect::AwaitFirstSession => self.start_clock(myself, FIRST_SESSION),
            Effect::StartLinger => self.start_clock(myself, self.start.profile.linger),
            Effect::StopLinger => self.stop_clock(),
            Effect::CloseIfIdle => self.tell_registry(RegistryMessage::CloseIfIdle),
            Effect::RecordTearDown(reason) => {
                // FR-17: the intent to release the lease is durable before anything is unmounted.
                if let Err(error) = self.store.apply(vec![Change::BeginTearDown(reason)]).await {
                    tracing::error!(error = &error as &dyn std::error::Error, "the teardown can't be recorded");
                }
            }
            Effect::Unpublish => self.unpublish().await,
            Effect::EndSessions(reason) => {
                if let Some(generation) = &self.generation {
                    generation.end_traffic();
                }
                self.tell_registry(RegistryMessage::EndAll(session_end(&reason)));
            }
            Effect::TearDown => {
                self.link.cast(LinkMessage::TearDown).ok();
            }
            Effect::Release => {
                self.startup.phase("removing what is left");
                self.release(myself).await;
            }
            Effect::Exit => {
                self.startup.withdraw();
                self.store.close().await;
                // Stays when something else lies in it; the next leader makes it anew under the lock.
                std::fs::remove_dir(self.places.runtime.path()).ok();
                if let Ok(mut status) = self.status.lock() {
                    *status = if matches!(self.life.end, Some(EndReason::Failed(_))) {
                        ExitCode::FAILURE
                    } else {
                        ExitCode::SUCCESS
                    };
                }
                myself.stop(None);
            }
        }
    }

    async fn report(&mut self, myself: &ActorRef<HostMessage>, report: SupervisorReport) {
        let Some(generation) = self.generation.clone() else { return };
        match report {
            SupervisorReport::SessionStarted { session, exec, guest_pid } => {
                self.tell_registry(RegistryMessage::Started { session, exec, guest_pid });
            }
            SupervisorReport::SessionEnded { session, outcome } => {
                self.tell_registry(RegistryMessage::ExecEnded(session, outcome));
            }
            SupervisorReport::SandboxLost { cause } => {
                self.advance(myself, Failure::message(cause).into()).await;
            }
            SupervisorReport::BuildFailed(failure) => self.advance(myself, failure.into()).await,
            SupervisorReport::TornDown => tracing::info!("the supervisor took everything down"),
            evidence => match evidence::changes(&generation, evidence) {
                Ok((changes, evidence::Complete::No)) => self.record(myself, changes),
                Ok((changes, evidence::Complete::Yes)) => {
                    let (submitted, myself) = (self.store.apply(changes), myself.clone());
                    tokio::spawn(async move {
                        let event = match submitted.await {
                            Ok(_) => Event::Attested,
                            Err(error) => failed(&error),
                        };
                        myself.cast(HostMessage::Event(event)).ok();
                    });
                }
                // Whoever started it has learned of its end as well, and knows why. Nothing is published without it.
                Err(gone) => tracing::warn!(%gone, "evidence comes too late"),
            },
        }
    }

    /// Writes changes in the order of calls; a change that can't be written ends the generation.
    fn record(&self, myself: &ActorRef<HostMessage>, changes: Vec<Change>) {
        let (submitted, myself) = (self.store.apply(changes), myself.clone());
        tokio::spawn(async move {
            if let Err(error) = submitted.await {
                myself.cast(HostMessage::Event(failed(&error))).ok();
            }
        });
    }

    async fn open(
        &mut self,
        myself: &ActorRef<HostMessage>,
        listener: tokio::net::UnixListener,
        face: Arc<Face>,
    ) -> Result<(), ActorProcessingErr> {
        let Some(registry) = self.registry.clone().filter(|_| self.life.phase == Phase::Publishing) else {
            return Ok(());
        };
        let arguments = PublisherArguments { listener: listener.into(), face: face.clone(), registry };
        self.publisher = Some(spawn(myself, Publisher, arguments.clone()).await?);
        self.published = Some((arguments, 0));
        self.face = Some(face);
        self.advance(myself, Event::PublicationOpen).await;
        Ok(())
    }

    /// Tells which child an actor is, unless it was asked to end.
    fn child(&self, id: ActorId) -> Option<Child> {
        if let (Some(publisher), Some((_, restarts))) = (&self.publisher, &self.published)
            && publisher.get_id() == id
        {
            return Some(Child::Stateless("publisher", *restarts));
        }
        let name = if id == self.link.get_id() {
            "runtime link"
        } else if self.registry.as_ref().is_some_and(|registry| registry.get_id() == id) {
            "registry"
        } else if id == self.store.writer() {
            "store writer"
        } else {
            return None;
        };
        (self.life.phase != Phase::Ended).then_some(Child::Owner(name))
    }

    async fn publish_again(&mut self, myself: &ActorRef<HostMessage>) -> Result<(), ActorProcessingErr> {
        if let Some((arguments, restarts)) = &mut self.published {
            *restarts += 1;
            self.publisher = Some(spawn(myself, Publisher, arguments.clone()).await?);
        }
        Ok(())
    }

    /// Counts every session as ended when the registry is lost: they ended with it, and it can't say so.
    async fn let_go_of_sessions(&mut self, myself: &ActorRef<HostMessage>, lost: ActorId) {
        if self.registry.as_ref().is_some_and(|registry| registry.get_id() == lost) {
            self.advance(myself, Event::SessionsEnded).await;
        }
    }

    fn tell_registry(&self, message: RegistryMessage) {
        if let Some(registry) = &self.registry {
            registry.cast(message).ok();
        }
    }
}

fn failed(error: &dyn std::error::Error) -> Event {
    Failure::of(error).into()
}

fn session_end(reason: &EndReason) -> SessionEnd {
    match reason {
        EndReason::Failed(failure) => SessionEnd::SandboxLost(failure.line()),
        EndReason::Down => SessionEnd::TornDown("somebody ran `lazaret down`".to_owned()),
        EndReason::Idle => SessionEnd::TornDown("no session lived any more".to_owned()),
        EndReason::Cancelled => SessionEnd::TornDown("its start was cancelled".to_owned()),
    }
}
