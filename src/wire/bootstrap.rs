//! What a starting Host Coordinator and the Client CLI that started it say to each other.
//!
//! The client creates a SOCK_SEQPACKET pair (`sys::seqpacket::pair`), passes one end to the coordinator
//! as [`DESCRIPTOR`], and sends one [`Start`]; a packet is one message, encoded by
//! [`super::frame::encode`]. The coordinator sends [`Progress`] until [`StartOutcome`]. While the start is under way the client's
//! end being closed cancels it; after [`StartOutcome::Published`] the pair is closed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::failure::Failure;
use crate::domain::ids::ClientCliId;
use crate::domain::profile::Profile;
use crate::domain::session::SessionRequest;
use crate::domain::workspace::Workspace;

/// The hidden first argument that makes the executable a Host Coordinator.
pub const COORDINATOR: &str = "__coordinator";

/// The coordinator's descriptor of the bootstrap pair, the first after the standard streams.
pub const DESCRIPTOR: i32 = 3;

/// Everything that a Host Coordinator needs to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The client that starts it and is the first to know how that went.
    pub client: ClientCliId,
    /// The validated profile.
    pub profile: Profile,
    /// The canonical workspace.
    pub workspace: Workspace,
    /// The Storage Root.
    pub storage_root: PathBuf,
    /// The directory of all Domains' runtime directories.
    pub runtime_base: PathBuf,
    /// What to do.
    pub mode: StartMode,
    /// The session that the starting client is going to register once the generation is published.
    pub first: Option<SessionRequest>,
}

/// What a Host Coordinator is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartMode {
    /// Recover what is left over, then start a generation and publish it.
    Serve,
    /// Only recover what an earlier generation left over.
    Recover,
}

/// A phase of a start, as shown to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// A named phase began.
    Phase(String),
    /// Something that the developer should know; it does not stop the start.
    Notice(String),
    /// Bytes of a download.
    Download {
        /// What is fetched.
        what: String,
        /// Bytes so far.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
}

/// One message of the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootstrapMessage {
    /// Where the start is.
    Progress(Progress),
    /// How it ended. Last message.
    Outcome(StartOutcome),
}

/// How a start ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartOutcome {
    /// The generation is published.
    Published,
    /// Recovery is done and nothing was published.
    Recovered,
    /// Another coordinator holds the Domain lock (OR-1).
    LockHeld,
    /// It failed.
    Failed(Failure),
}

/// What a start in progress is doing, in the runtime directory (`startup.json`), for callers that
/// lost the race and wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartupRecord {
    /// The coordinator's process id.
    pub pid: i32,
    /// The phase.
    pub phase: String,
    /// When the phase began, seconds since the epoch.
    pub since: i64,
}
