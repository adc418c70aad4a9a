//! Client CLI ↔ Host Coordinator messages, under mutual TLS.
//!
//! A connection carries one thing: a Client Session, or one question and its answer. Within a session:
//!
//! ```text
//! client                              coordinator
//!   Open(request)  ───────────────▶
//!                  ◀───────────────  Opened | Refused
//!   Input* InputEnd Resize Control ▶
//!                  ◀───────────────  Output* Notice*
//!                  ◀───────────────  Ended            (then both close)
//! ```
//!
//! `Opened` is on its way before anything of the session runs, so a client that loses the connection without
//! it may ask again, and one that has it must not: its command may have run.
//!
//! Input flows by credit, so that a control event never waits behind bytes that the session does not
//! read: the coordinator always reads the connection, and a client never has more unacknowledged
//! input bytes on their way than [`CoordinatorMessage::Opened`] granted. Each
//! [`CoordinatorMessage::InputTaken`] gives back what the session's terminal or pipe took.

use serde::{Deserialize, Serialize};

use crate::core::generation::GenerationDocument;
use crate::domain::ids::{ConfigFingerprint, CoordinatorId, DomainId, Generation, ProfileName, SandboxId, SessionId};
use crate::domain::profile::Profile;
use crate::domain::session::{ControlEvent, SessionEnd, SessionRequest, SessionSummary, WindowSize};

/// The input credit that a coordinator grants a session, in bytes: it has to hold as much in memory.
pub const INPUT_WINDOW: u32 = 256 << 10;

/// Which output stream bytes belong to; an interactive session has only [`Stream::Output`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output, or the terminal.
    Output,
    /// Standard error.
    Error,
}

/// What a client wants of live sessions when it takes the Domain down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LiveSessions {
    /// They are ended too.
    End,
    /// They are spared: the request is refused.
    Spare,
}

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMessage {
    /// Registers a Client Session. First message of a session connection.
    Open {
        /// What to run.
        request: SessionRequest,
        /// The Configuration Fingerprint that the client validated, which must be the Domain's;
        /// absent when the client joins whatever runs.
        configuration: Option<ConfigFingerprint>,
    },
    /// Bytes for the session's input.
    Input(#[serde(with = "crate::wire::frame::bytes")] Vec<u8>),
    /// End of the session's input.
    InputEnd,
    /// The client's terminal has a new size.
    Resize(WindowSize),
    /// A terminal event.
    Control(ControlEvent),
    /// Asks what runs. First and only message of its connection.
    Status,
    /// Takes the Domain down. First and only message of its connection; answered when all is gone.
    Down {
        /// What becomes of live sessions.
        live: LiveSessions,
    },
}

impl ClientMessage {
    /// Gives the message's name, for logs that must not hold its content.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "Open",
            Self::Input(_) => "Input",
            Self::InputEnd => "InputEnd",
            Self::Resize(_) => "Resize",
            Self::Control(_) => "Control",
            Self::Status => "Status",
            Self::Down { .. } => "Down",
        }
    }
}

/// What a coordinator sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinatorMessage {
    /// The session is registered.
    Opened {
        /// Its identity.
        session: SessionId,
        /// How many bytes of input the client may have on their way; [`INPUT_WINDOW`].
        input_window: u32,
    },
    /// The session took, or will never take, this many bytes of input: the client may send as many more.
    InputTaken(u32),
    /// The request is refused.
    Refused(Refusal),
    /// Bytes that the session wrote.
    Output(Stream, #[serde(with = "crate::wire::frame::bytes")] Vec<u8>),
    /// The session ended. Last message.
    Ended(SessionEnd),
    /// Answer to [`ClientMessage::Status`].
    Status(Box<DomainStatus>),
    /// The Domain is unpublished and being taken down; the connection closes when all is gone.
    GoingDown,
}

/// Why a request was refused. A refusal is data for the user, never a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The Domain runs under another configuration.
    #[error("the Domain runs with a different configuration")]
    ConfigurationDiffers {
        /// The configuration that it runs with, for the client to compare.
        running: Box<Profile>,
    },
    /// The Domain is being taken down.
    #[error("the Domain is being taken down")]
    GoingDown,
    /// Sessions are live and the request did not include them.
    #[error("live sessions: {0}")]
    SessionsLive(usize),
    /// The request is not valid; the text says what.
    #[error("{0}")]
    Invalid(String),
}

/// What runs in a Domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainStatus {
    /// The Domain.
    pub domain: DomainId,
    /// Its profile.
    pub profile: ProfileName,
    /// Its workspace, escaped as `domain::escaped` says.
    pub workspace: String,
    /// The published generation.
    pub generation: Generation,
    /// The Session Coordinator.
    pub coordinator: CoordinatorId,
    /// The Agent Sandbox.
    pub sandbox: SandboxId,
    /// The Configuration Fingerprint.
    pub configuration: ConfigFingerprint,
    /// What was asked for as base image.
    pub image: String,
    /// When it was published, seconds since the epoch.
    pub since: i64,
    /// Process ids of coordinator, supervisor, runsc and slirp4netns on the host.
    pub processes: Vec<(String, i32)>,
    /// Live sessions.
    pub sessions: Vec<SessionSummary>,
    /// Derived network policy, one line a rule.
    pub network: Vec<String>,
    /// State Anchors' sandbox paths.
    pub persistent: Vec<String>,
    /// The durable generation document; absent when the store does not answer.
    pub document: Option<Box<GenerationDocument>>,
}
