//! The channel between a Client CLI and a Host Coordinator: enrolment, mutual TLS, messages.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::codec::Framed;

use super::anchor::{AnchorError, TrustAnchor};
use super::enrolment::{ClientKey, EnrolmentError};
use super::peer::{Component, IdentityError, PeerIdentity};
use super::tls::{self, TlsError};
use crate::domain::ids::ClientCliId;
use crate::wire::client::{ClientMessage, CoordinatorMessage};
use crate::wire::frame::{CLIENT_FRAME_LIMIT, FrameError, MessageCodec};
use crate::wire::hello::{Hello, HelloRefusal, HelloReply, PROTOCOL_VERSION, Publication};

/// The coordinator's end: sends [`CoordinatorMessage`]s and receives [`ClientMessage`]s.
pub type ServerChannel =
    Framed<tokio_rustls::server::TlsStream<UnixStream>, MessageCodec<CoordinatorMessage, ClientMessage>>;

/// The client's end: sends [`ClientMessage`]s and receives [`CoordinatorMessage`]s.
pub type ClientChannel =
    Framed<tokio_rustls::client::TlsStream<UnixStream>, MessageCodec<ClientMessage, CoordinatorMessage>>;

/// How long each step of the handshake may take.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest frame of the plain exchange, in bytes.
const HELLO_LIMIT: usize = 8 << 10;

/// How many bytes a channel collects before a writer waits for the peer.
const SEND_BUFFER: usize = 128 << 10;

/// A channel that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Nobody answers on the socket: the Domain is not published, whatever its record says.
    #[error("no coordinator answers on the socket")]
    NotServed(#[source] io::Error),
    /// The peer's user can't be asked of the kernel.
    #[error("the peer's user can't be read (SO_PEERCRED)")]
    Credentials(#[source] io::Error),
    /// The peer runs as another user.
    #[error("the peer runs as user {found}, not as user {own}")]
    ForeignUser {
        /// The peer's user id.
        found: u32,
        /// Ours.
        own: u32,
    },
    /// A step took too long.
    #[error("{step} took longer than {} seconds", STEP_TIMEOUT.as_secs())]
    Timeout {
        /// Which.
        step: &'static str,
    },
    /// The plain exchange failed.
    #[error("the greeting failed")]
    Greeting(#[source] FrameError),
    /// The peer closed the connection or sent something that is out of order.
    #[error("the peer left or broke the protocol during the greeting")]
    OutOfOrder,
    /// The client was not enrolled.
    #[error("the client was not enrolled")]
    Refused(#[source] HelloRefusal),
    /// A certificate can't be issued.
    #[error("the client's certificate can't be issued")]
    Issue(#[source] AnchorError),
    /// The client's key or request can't be made.
    #[error("the client's key can't be made")]
    Enrolment(#[from] EnrolmentError),
    /// The publication record's Trust Anchor is not a certificate.
    #[error("the publication record's Trust Anchor is malformed")]
    Record,
    /// A TLS configuration can't be built.
    #[error("TLS can't be set up")]
    Setup(#[from] TlsError),
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The peer is authentic but is not who it should be.
    #[error("the peer has the wrong identity")]
    Identity(#[from] IdentityError),
}

/// What a Host Coordinator shows to clients: its anchor, and whether it admits any.
#[derive(Debug)]
pub struct Face {
    anchor: TrustAnchor,
    tls: Arc<ServerConfig>,
    withdrawn: AtomicBool,
}

impl Face {
    /// Makes the face of a generation that is about to be published.
    pub fn new(anchor: TrustAnchor) -> Result<Self, TlsError> {
        let tls = tls::server(&anchor)?;
        Ok(Self { anchor, tls, withdrawn: AtomicBool::new(false) })
    }

    /// Gives the publication record to write once the socket listens.
    pub fn publication(&self) -> &Publication {
        self.anchor.publication()
    }

    /// Refuses all clients from now on, since the generation is no longer published.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
    }

    /// Decides on a greeting.
    fn admit(&self, hello: &Hello) -> Result<HelloReply, ChannelError> {
        let publication = self.anchor.publication();
        let refused = |refusal| Err(ChannelError::Refused(refusal));
        if hello.version != PROTOCOL_VERSION {
            return refused(HelloRefusal::Version { coordinator: PROTOCOL_VERSION, client: hello.version });
        }
        if hello.domain != publication.domain || hello.profile != publication.profile {
            return refused(HelloRefusal::WrongDomain);
        }
        if hello.generation != publication.generation {
            let published = publication.generation;
            return refused(HelloRefusal::StaleGeneration { asked: hello.generation, published });
        }
        if self.withdrawn.load(Ordering::Acquire) {
            return refused(HelloRefusal::NotPublished);
        }
        match self.anchor.enrol(&hello.client, &hello.request) {
            Ok(certificate) => Ok(HelloReply::Enrolled {
                certificate: certificate.to_vec(),
                coordinator: publication.coordinator.clone(),
            }),
            Err(AnchorError::Request(_)) => refused(HelloRefusal::BadRequest),
            Err(other) => Err(ChannelError::Issue(other)),
        }
    }
}

/// Accepts one connection: checks the peer's user, enrols it, and authenticates it by the
/// certificate it was just issued.
///
/// Needs no more than three [`STEP_TIMEOUT`]s. An error concerns this connection alone.
pub async fn accept(stream: UnixStream, face: &Face) -> Result<(ServerChannel, PeerIdentity), ChannelError> {
    check_user(&stream)?;
    let mut greeting = Framed::new(stream, MessageCodec::<HelloReply, Hello>::new(HELLO_LIMIT));
    let hello = within("the client's greeting", receive(&mut greeting)).await??;
    let reply = match face.admit(&hello) {
        Ok(reply) => reply,
        Err(error) => {
            if let ChannelError::Refused(refusal) = &error {
                let reply = HelloReply::Refused(refusal.clone());
                within("the refusal", greeting.send(reply)).await?.map_err(ChannelError::Greeting)?;
            }
            return Err(error);
        }
    };
    within("the enrolment", greeting.send(reply)).await?.map_err(ChannelError::Greeting)?;
    let stream = plain_stream(greeting)?;
    let handshake = TlsAcceptor::from(face.tls.clone()).accept(stream);
    let stream = within("the TLS handshake", handshake).await?.map_err(ChannelError::Handshake)?;
    let identity = face.anchor.client_identity(&hello.client);
    identity.verify(stream.get_ref().1.peer_certificates())?;
    Ok((framed(stream), identity))
}

/// Connects to a published generation, enrols, and checks that the peer is exactly the Session
/// Coordinator that the publication record names.
pub async fn connect(
    publication: &Publication,
    socket: &Path,
    client: &ClientCliId,
) -> Result<ClientChannel, ChannelError> {
    let anchor = hex::decode(&publication.trust_anchor).map_err(|_| ChannelError::Record)?;
    let anchor = CertificateDer::from(anchor);
    let stream = within("connecting", UnixStream::connect(socket)).await?.map_err(ChannelError::NotServed)?;
    check_user(&stream)?;
    let key = ClientKey::generate()?;
    let hello = Hello {
        version: PROTOCOL_VERSION,
        domain: publication.domain.clone(),
        profile: publication.profile.clone(),
        generation: publication.generation,
        client: client.clone(),
        request: key.request()?,
    };
    let mut greeting = Framed::new(stream, MessageCodec::<Hello, HelloReply>::new(HELLO_LIMIT));
    within("the greeting", greeting.send(hello)).await?.map_err(ChannelError::Greeting)?;
    let certificate = match within("the coordinator's answer", receive(&mut greeting)).await?? {
        HelloReply::Enrolled { certificate, coordinator } if coordinator == publication.coordinator => certificate,
        HelloReply::Enrolled { .. } => return Err(ChannelError::OutOfOrder),
        HelloReply::Refused(refusal) => return Err(ChannelError::Refused(refusal)),
    };
    let expected = PeerIdentity {
        component: Component::Coordinator(publication.coordinator.clone()),
        profile: publication.profile.clone(),
        domain: publication.domain.clone(),
        generation: publication.generation,
    };
    let config = tls::client(&anchor, CertificateDer::from(certificate), &key)?;
    let name = ServerName::try_from(expected.server_name()).map_err(|_| ChannelError::Record)?;
    let handshake = TlsConnector::from(config).connect(name, plain_stream(greeting)?);
    let stream = within("the TLS handshake", handshake).await?.map_err(ChannelError::Handshake)?;
    expected.verify(stream.get_ref().1.peer_certificates())?;
    Ok(framed(stream))
}

fn check_user(stream: &UnixStream) -> Result<(), ChannelError> {
    let found = stream.peer_cred().map_err(ChannelError::Credentials)?.uid();
    let own = rustix::process::geteuid().as_raw();
    if found == own { Ok(()) } else { Err(ChannelError::ForeignUser { found, own }) }
}

async fn within<T>(step: &'static str, work: impl Future<Output = T>) -> Result<T, ChannelError> {
    tokio::time::timeout(STEP_TIMEOUT, work).await.map_err(|_| ChannelError::Timeout { step })
}

async fn receive<S: Serialize, R: DeserializeOwned>(
    greeting: &mut Framed<UnixStream, MessageCodec<S, R>>,
) -> Result<R, ChannelError> {
    greeting.next().await.ok_or(ChannelError::OutOfOrder)?.map_err(ChannelError::Greeting)
}

/// Takes the stream back for TLS; bytes that came before their time would be lost in a buffer.
fn plain_stream<C>(greeting: Framed<UnixStream, C>) -> Result<UnixStream, ChannelError> {
    let parts = greeting.into_parts();
    if parts.read_buf.is_empty() { Ok(parts.io) } else { Err(ChannelError::OutOfOrder) }
}

fn framed<T: tokio::io::AsyncRead + tokio::io::AsyncWrite, S: Serialize, R>(
    stream: T,
) -> Framed<T, MessageCodec<S, R>> {
    let mut framed = Framed::with_capacity(stream, MessageCodec::new(CLIENT_FRAME_LIMIT), SEND_BUFFER);
    framed.set_backpressure_boundary(SEND_BUFFER);
    framed
}

#[cfg(test)]
mod tests;
