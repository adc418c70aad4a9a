//! What the coordinator's actors tell each other, in one place, so that parents and children need not
//! name each other's files for it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use ractor::RpcReplyPort;

use super::generation::GenerationContext;
use crate::core::lifecycle::Event;
use crate::core::session::SessionEvent;
use crate::domain::artifact::{ArtifactManifest, IdMapping};
use crate::domain::ids::{ClientCliId, DomainId, ProfileName, SessionId};
use crate::domain::ownership::ProcessIdentity;
use crate::domain::session::{SessionEnd, WindowSize};
use crate::identity::channel::{Face, ServerChannel};
use crate::identity::peer::PeerIdentity;
use crate::sys::namespaces::NamespaceError;
use crate::wire::client::ClientMessage;
use crate::wire::lease::{CoordinatorOrder, ExecOutcome, InnerProcess, SupervisorReport};

/// What the coordinator is told.
pub enum HostMessage {
    /// Something happened in the generation's life.
    Event(Event),
    /// The prepared lower is there.
    Prepared(Box<ArtifactManifest>),
    /// Identities and intents are durable.
    Begun(Arc<GenerationContext>),
    /// The supervisor reports.
    Report(SupervisorReport),
    /// The supervisor's process ended.
    SupervisorEnded(String),
    /// The socket is bound and the publication durable.
    PublicationReady(tokio::net::UnixListener, Arc<Face>),
    /// Keeps a connection open until this process ends.
    HoldUntilEnd(Box<ServerChannel>),
}

/// What the registry is told.
pub enum RegistryMessage {
    /// A client is authenticated.
    Connected {
        /// Its connection.
        channel: ServerChannel,
        /// Who it is.
        identity: PeerIdentity,
        /// Its process id (SO_PEERCRED).
        pid: i32,
    },
    /// A client said what it wants.
    Asked {
        /// Its connection.
        channel: ServerChannel,
        /// Its identity.
        client: ClientCliId,
        /// Its process id.
        pid: i32,
        /// What it wants.
        message: ClientMessage,
    },
    /// A session's process runs.
    Started {
        /// The session.
        session: SessionId,
        /// The `runsc exec` client.
        exec: InnerProcess,
        /// The guest process.
        guest_pid: i32,
    },
    /// A session's process ended.
    ExecEnded(SessionId, ExecOutcome),
    /// Nothing of a session is left.
    SessionClosed(SessionId),
    /// The time in which a prepared session is to be registered is over.
    PreparationOverdue,
    /// A session's processes can't be killed.
    SessionStuck(SessionId),
    /// Admits nobody from here on, if no session lives; the coordinator is told.
    CloseIfIdle,
    /// Ends every session, and admits nobody from here on; answered by `Event::SessionsEnded` when none is left.
    EndAll(SessionEnd),
    /// The supervisor is gone, and every process of every session with it.
    SupervisorGone(String),
}

/// What the link is told.
#[derive(Debug)]
pub enum LinkMessage {
    /// Spawns the supervisor.
    Spawn(SpawnRequest, RpcReplyPort<Result<ProcessIdentity, SpawnError>>),
    /// Sends an order with descriptors.
    Order(CoordinatorOrder, Vec<OwnedFd>),
    /// Orders everything taken down and kills the supervisor when that takes too long.
    TearDown,
    /// The time for the teardown is over.
    TearDownOverdue,
    /// The supervisor's process ended.
    Exited,
}

/// What the supervisor is spawned with.
#[derive(Debug)]
pub struct SpawnRequest {
    /// The Domain, for the process title.
    pub domain: DomainId,
    /// Its profile, for the process title.
    pub profile: ProfileName,
    /// The identity mapping of its user namespace.
    pub mapping: IdMapping,
    /// Its log file.
    pub log: PathBuf,
}

/// The supervisor can't be spawned.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The lease can't be made.
    #[error("the lifetime lease can't be made")]
    Lease(#[source] std::io::Error),
    /// The log file can't be opened.
    #[error("the supervisor's log {path} can't be opened")]
    Log {
        /// The log file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The process can't be created in its namespaces.
    #[error("the Runtime Supervisor can't be started")]
    Namespaces(#[source] NamespaceError),
    /// The process can't be identified; it may have ended.
    #[error("the Runtime Supervisor can't be identified")]
    Identity(#[source] std::io::Error),
}

/// What a session is told.
#[derive(Debug)]
pub enum SessionMessage {
    /// Something happened in its life.
    Event(SessionEvent),
    /// The client's terminal has a new size.
    Resize(WindowSize),
    /// The processes should have been gone by now.
    KillOverdue,
}
