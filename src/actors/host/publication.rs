//! The Host Coordinator's socket while a generation is published.
//!
//! Role: accepts who joins. Parent: the coordinator, which keeps the socket and the publication record.
//! Children: none, but a task that accepts; each connection is authenticated in a task of its own, so
//! that a slow or hostile peer delays nobody. If this actor ends, connections queue up in the kernel until
//! the coordinator has started it again; when that has not helped a few times, the generation is taken down.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::net::UnixListener;
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use super::generation::GenerationContext;
use super::messages::RegistryMessage;
use super::reclaim::owned_identity;
use super::records::Records;
use crate::core::generation::{Change, Ownership, Participant};
use crate::identity::anchor::{AnchorError, TrustAnchor};
use crate::identity::channel::{self, Face};
use crate::identity::tls::TlsError;
use crate::store::writer::WriteError;
use crate::sys::private;
use crate::{fault, protocol_trace};

/// How many connections may be in their greeting at once. With more the oldest makes way: a client
/// greets within milliseconds, and one that says nothing keeps nobody out.
const GREETINGS: usize = 64;

/// How long to wait when descriptors or memory are short.
const SHORTAGE: Duration = Duration::from_millis(50);

/// The generation can't be published.
#[derive(Debug, thiserror::Error)]
pub enum PublicationError {
    /// The socket can't be bound.
    #[error("the socket {path} can't be bound")]
    Bind {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The Trust Anchor can't be made.
    #[error("the generation's Trust Anchor can't be made")]
    Anchor(#[from] AnchorError),
    /// The TLS configuration can't be made.
    #[error("the coordinator's TLS configuration can't be made")]
    Tls(#[from] TlsError),
    /// The publication can't be recorded.
    #[error("the publication can't be recorded")]
    Store(#[from] WriteError),
    /// The publication record can't be written.
    #[error("the publication record {path} can't be written")]
    Record {
        /// The record's path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Binds the socket, makes the publication durable, and writes the record that clients look for.
/// Connections queue up until [`Publisher`] accepts them.
pub async fn publish(
    generation: &GenerationContext,
    store: &Records,
) -> Result<(UnixListener, Arc<Face>), PublicationError> {
    let identity = &generation.identity;
    let anchor = TrustAnchor::mint(&identity.domain, &identity.profile, identity.generation, &identity.coordinator)?;
    let face = Arc::new(Face::new(anchor)?);
    let socket = generation.places.runtime.socket();
    let bind = |source| PublicationError::Bind { path: socket.clone(), source };
    let listener = UnixListener::bind(&socket).map_err(bind)?;
    protocol_trace::event("BindSocket").with("participant", &Participant::Socket.name()).write();
    let owned = Ownership::Path(owned_identity(&socket).map_err(bind)?);
    store.apply(vec![Change::Own(Participant::Socket, owned), Change::Publish]).await?;
    let path = generation.places.runtime.publication();
    let record = |source| PublicationError::Record { path: path.clone(), source };
    let content = serde_json::to_vec(face.publication()).map_err(|error| record(error.into()))?;
    private::make_file(&path, &content).map_err(record)?;
    protocol_trace::event("WritePublication").write();
    let owned = Ownership::Path(owned_identity(&path).map_err(record)?);
    store.apply(vec![Change::Own(Participant::Publication, owned)]).await?;
    Ok((listener, face))
}

/// What the publisher is made of.
#[derive(Clone)]
pub struct PublisherArguments {
    /// The bound socket.
    pub listener: Arc<UnixListener>,
    /// What clients are shown.
    pub face: Arc<Face>,
    /// Who takes authenticated connections.
    pub registry: ActorRef<RegistryMessage>,
}

/// What the publisher is told.
pub enum PublisherMessage {
    /// By the task that accepts: it ended, for this reason.
    Stuck(String),
}

/// The publisher actor.
pub struct Publisher;

impl Actor for Publisher {
    type Msg = PublisherMessage;
    type State = AbortOnDropHandle<()>;
    type Arguments = PublisherArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<PublisherMessage>,
        arguments: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(arguments)));
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            let why = accepting.await.map_or_else(|panic| panic.to_string(), |error| error.to_string());
            myself.cast(PublisherMessage::Stuck(why)).ok();
        })))
    }

    async fn handle(
        &self,
        _: ActorRef<PublisherMessage>,
        PublisherMessage::Stuck(why): PublisherMessage,
        _: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        Err(why.into())
    }
}

/// Accepts until the socket gives an error that does not pass.
async fn accept(PublisherArguments { listener, face, registry }: PublisherArguments) -> io::Error {
    fault::task("accept");
    let mut greetings: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // The peer is gone already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) if is_shortage(&error) => {
                tracing::warn!(%error, "a connection has to wait");
                tokio::time::sleep(SHORTAGE).await;
                continue;
            }
            Err(error) => return error,
        };
        greetings.retain(|greeting| !greeting.is_finished());
        if greetings.len() >= GREETINGS
            && let Some(oldest) = greetings.pop_front()
        {
            oldest.abort();
        }
        let (face, registry) = (face.clone(), registry.clone());
        let greeting = tokio::spawn(async move {
            let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).unwrap_or(0);
            match channel::accept(stream, &face).await {
                Ok((channel, identity)) => {
                    registry.cast(RegistryMessage::Connected { channel, identity, pid }).ok();
                }
                Err(error) => tracing::warn!(pid, error = &error as &dyn std::error::Error, "a connection is refused"),
            }
        });
        greetings.push_back(greeting.abort_handle());
    }
}

/// Tells whether descriptors or memory are short, which passes and does not end the Domain.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].iter().any(|errno| code == Some(errno.raw_os_error()))
}
