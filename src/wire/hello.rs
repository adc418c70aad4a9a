//! Enrolment: the plain exchange that precedes TLS on the Host Coordinator's socket.
//!
//! The client connects, sends one [`Hello`] frame and reads one [`HelloReply`]. Accepted, both ends
//! start TLS on the same stream, the client with the certificate it was just issued. The socket lies in
//! a 0700 directory and the coordinator checks the peer's user id (SO_PEERCRED, unix(7)).

use serde::{Deserialize, Serialize};

use crate::domain::ids::{ClientCliId, CoordinatorId, DomainId, Generation, ProfileName};

/// Version of everything in [`crate::wire`] that crosses the socket.
pub const PROTOCOL_VERSION: u32 = 1;

/// The client's first frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the client.
    pub version: u32,
    /// The Domain that the client wants.
    pub domain: DomainId,
    /// Its profile.
    pub profile: ProfileName,
    /// The generation that the publication record named.
    pub generation: Generation,
    /// The client's identity.
    pub client: ClientCliId,
    /// Certificate signing request in DER (RFC 2986), proving possession of the client's key.
    pub request: Vec<u8>,
}

/// The coordinator's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// The client's certificate in DER; TLS follows.
    Enrolled {
        /// The issued certificate.
        certificate: Vec<u8>,
        /// The Session Coordinator's identity.
        coordinator: CoordinatorId,
    },
    /// Nothing follows; the connection is closed.
    Refused(HelloRefusal),
}

/// Why a client was not enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum HelloRefusal {
    /// Client and coordinator are of different versions.
    #[error("this Domain runs protocol version {coordinator}, this lazaret speaks {client}")]
    Version {
        /// The coordinator's.
        coordinator: u32,
        /// The client's.
        client: u32,
    },
    /// The client means another Domain or profile.
    #[error("the socket belongs to another Domain")]
    WrongDomain,
    /// The client means another generation.
    #[error("generation {asked} is not the published one, {published}")]
    StaleGeneration {
        /// What the client asked for.
        asked: Generation,
        /// What is published.
        published: Generation,
    },
    /// The signing request is malformed or does not prove possession.
    #[error("the certificate signing request is not valid")]
    BadRequest,
    /// The Domain is not or no longer published.
    #[error("the Domain is being taken down")]
    NotPublished,
}

/// The publication record in the runtime directory (`publication.json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// [`PROTOCOL_VERSION`] of the coordinator.
    pub version: u32,
    /// The Domain.
    pub domain: DomainId,
    /// Its profile.
    pub profile: ProfileName,
    /// The published generation.
    pub generation: Generation,
    /// The Session Coordinator's identity.
    pub coordinator: CoordinatorId,
    /// The generation's Trust Anchor, a certificate in DER, as hexadecimal digits.
    pub trust_anchor: String,
}
