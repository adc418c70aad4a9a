//! Who a peer is: certificates of one generation and the mutually authenticated channel (SR-9, SR-16).
//!
//! ```text
//! Client CLI                                   Host Coordinator
//!   connect(Publication, socket, id)             accept(stream, &Face)
//!     ── Hello{generation, CSR} ───────────────▶   uid by SO_PEERCRED, Domain, generation, CSR's signature
//!     ◀─────────────── Enrolled{certificate} ──    leaf signed by the generation's Trust Anchor
//!     ══ TLS 1.3, both sides with certificates ══
//!     coordinator's identity compared exactly      client's identity compared exactly
//! ```
//!
//! - [`crypto`]: the one cryptographic provider
//! - [`peer`]: what an identity is and how a certificate carries it
//! - [`anchor`]: the ephemeral Trust Anchor, which dies with its Host Coordinator
//! - [`enrolment`]: a client's key and signing request
//! - [`tls`]: the TLS configurations of both sides
//! - [`channel`]: the whole sequence above
#![warn(missing_docs)]

pub mod anchor;
pub mod channel;
pub mod crypto;
pub mod enrolment;
pub mod peer;
pub mod tls;

pub use anchor::TrustAnchor;
pub use channel::{ClientChannel, Face, ServerChannel};
pub use peer::{Component, PeerIdentity};
