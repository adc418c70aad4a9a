//! The durable generation document: what one Domain generation intends, owns and has released.
//!
//! ```text
//!   (none) ──BeginGeneration──▶ Starting ──Publish──▶ Published
//!     ▲                            │ BeginTearDown        │ BeginTearDown
//!     │                            ▼                      ▼
//!   Clean ◀──Finish── TearingDown ◀───────────────────────┘
//!     ▲                    │
//!     └──Finish── Recovering ◀──BeginRecovery── any of Starting, Published, TearingDown, Recovering
//! ```
//!
//! Every external resource is one [`Participant`]. It moves `None → Intended → Owned → Released`
//! and never back: intent is durable before the resource is made, exact ownership after. [`apply`]
//! is the only way from one document to the next. Each [`Change`] is one action of the protocol
//! model and carries the action's name in its description; [`rules`] holds the guards.

#[cfg(test)]
pub(crate) mod fixtures;
mod refusal;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::refusal::Refusal;
pub use self::rules::apply;
use super::lifecycle::EndReason;
use crate::domain::artifact::IdMapping;
use crate::domain::ids::{
    ArtifactId, ClientCliId, ConfigFingerprint, CoordinatorId, DomainId, Generation, ProfileName, SandboxId, SessionId,
    SidecarId,
};
use crate::domain::network::{NetworkAttestation, ProbeReport};
use crate::domain::ownership::{MountIdentity, NamespaceIdentity, PathIdentity, ProcessIdentity};
use crate::domain::profile::GuestPath;
use crate::domain::workspace::Workspace;

/// The durable decision about a generation as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Decision {
    /// Resources are intended and made; nobody is admitted.
    Starting,
    /// Client Sessions are admitted.
    Published,
    /// Its own Host Coordinator takes it down.
    TearingDown,
    /// A later Host Coordinator removes what is left of it.
    Recovering,
    /// Nothing of it is left; the next generation may begin.
    Clean,
}

/// What is fixed when a generation begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationIdentity {
    /// The Domain, checked whenever the store is opened (SR-11).
    pub domain: DomainId,
    /// The Domain's Agent Profile.
    pub profile: ProfileName,
    /// The Domain's Agent Workspace.
    pub workspace: Workspace,
    /// The generation's ordinal.
    pub generation: Generation,
    /// The Session Coordinator, minted for this generation.
    pub coordinator: CoordinatorId,
    /// The Network Sidecar role instance, minted for this generation.
    pub sidecar: SidecarId,
    /// The Agent Sandbox, minted for this generation.
    pub sandbox: SandboxId,
    /// The Configuration Fingerprint.
    pub configuration: ConfigFingerprint,
    /// The Host Coordinator's process; its boot id is the boot that everything was made in.
    pub leader: ProcessIdentity,
    /// When it began, seconds since the epoch.
    pub began_at: i64,
}

/// One external resource of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Participant {
    /// The generation's directory below the runtime directory.
    RuntimeDirectory,
    /// The generation's scratch directory in the Domain Root.
    Scratch,
    /// The prepared-lower lease in the Storage Catalog.
    Lease,
    /// The Runtime Supervisor.
    RuntimeSupervisor,
    /// The connectivity helper.
    Helper,
    /// The enforcement network namespace.
    NetworkNamespace,
    /// The sandbox's root overlay.
    RootMount,
    /// The State Anchor at a persistent path.
    AnchorMount(GuestPath),
    /// The staged Agent Workspace with its protections.
    WorkspaceMount,
    /// The staged volume at a sandbox path.
    VolumeMount(GuestPath),
    /// The attached runsc client; sentry and gofer hang on it.
    Runsc,
    /// The Host Coordinator's socket.
    Socket,
    /// The publication record.
    Publication,
}

impl Participant {
    /// Tells whether it is a mount in the Runtime Supervisor's mount namespace.
    pub fn is_mount(&self) -> bool {
        matches!(self, Self::RootMount | Self::AnchorMount(_) | Self::WorkspaceMount | Self::VolumeMount(_))
    }

    /// Tells whether it ends with the Runtime Supervisor: its namespaces, what is mounted in them,
    /// and every process below process 1 of its pid namespace (pid_namespaces(7)).
    pub fn ends_with_supervisor(&self) -> bool {
        self.is_mount() || matches!(self, Self::Helper | Self::NetworkNamespace | Self::Runsc)
    }

    /// Gives its name in the model's traces.
    pub fn name(&self) -> String {
        match self {
            Self::AnchorMount(path) => format!("AnchorMount {path}"),
            Self::VolumeMount(path) => format!("VolumeMount {path}"),
            other => format!("{other:?}"),
        }
    }
}

impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RuntimeDirectory => f.write_str("runtime directory"),
            Self::Scratch => f.write_str("scratch directory"),
            Self::Lease => f.write_str("prepared-lower lease"),
            Self::RuntimeSupervisor => f.write_str("Runtime Supervisor"),
            Self::Helper => f.write_str("connectivity helper"),
            Self::NetworkNamespace => f.write_str("network namespace"),
            Self::RootMount => f.write_str("root mount"),
            Self::AnchorMount(path) => write!(f, "State Anchor mount {path}"),
            Self::WorkspaceMount => f.write_str("workspace mount"),
            Self::VolumeMount(path) => write!(f, "volume mount {path}"),
            Self::Runsc => f.write_str("attached runsc"),
            Self::Socket => f.write_str("coordinator socket"),
            Self::Publication => f.write_str("publication record"),
        }
    }
}

/// Who owns the files in a directory, which decides how they can be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contents {
    /// The developer alone.
    Developer,
    /// Subordinate ids as well, so that only a process in a user namespace with this mapping can remove them.
    Mapped(IdMapping),
}

/// What is going to be made: enough to look for it, never proof that what is found is ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A process that dies with the process that records it (PR_SET_PDEATHSIG(2const)).
    Process,
    /// A namespace of the Runtime Supervisor.
    Namespace,
    /// A mount in the Runtime Supervisor's mount namespace.
    Mount,
    /// A directory that is made with mkdir(2) and stays empty until its ownership is durable.
    Directory {
        /// Where; the name belongs to this generation alone.
        #[serde(with = "crate::domain::escaped::path")]
        path: PathBuf,
        /// Who will own what is in it.
        contents: Contents,
    },
    /// A socket.
    Socket {
        /// Where.
        #[serde(with = "crate::domain::escaped::path")]
        path: PathBuf,
    },
    /// A record that names this generation's Session Coordinator ID, written by rename.
    Record {
        /// Where.
        #[serde(with = "crate::domain::escaped::path")]
        path: PathBuf,
    },
    /// A lease of this generation in the Storage Catalog.
    Lease {
        /// The artifact that is leased.
        artifact: ArtifactId,
    },
}

impl Target {
    /// Gives the path, for a target that has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Directory { path, .. } | Self::Socket { path } | Self::Record { path } => Some(path),
            Self::Process | Self::Namespace | Self::Mount | Self::Lease { .. } => None,
        }
    }
}

/// What was made, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ownership {
    /// A process.
    Process(ProcessIdentity),
    /// A namespace.
    Namespace(NamespaceIdentity),
    /// A mount.
    Mount(MountIdentity),
    /// What lies at the target's path.
    Path(PathIdentity),
    /// The lease of an artifact.
    Artifact(ArtifactId),
}

/// How far a participant is; one that the document does not name has no intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intent {
    /// It is going to be made and may exist.
    Intended(Target),
    /// It exists, and this is it.
    Owned {
        /// What was intended.
        target: Target,
        /// What was made.
        ownership: Ownership,
    },
    /// It is gone.
    Released,
}

/// How far the release of the prepared-lower lease is; the order is that of FR-17.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LeaseRelease {
    /// The lease, if there is one, is held.
    NotBegun,
    /// The intent to release is durable; mounts may go from here on.
    Intended,
    /// No mount of the prepared lower is left; the catalog record may go.
    Unmounted,
    /// The catalog record is deleted.
    Deleted,
}

/// The processes of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionProcess {
    /// The `runsc exec` client.
    pub exec: ProcessIdentity,
    /// The guest process in the sandbox's root pid namespace.
    pub guest_pid: i32,
}

/// One Client Session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The session.
    pub id: SessionId,
    /// The client that it is bound to; absent while it is prepared and nobody has registered for it.
    pub client: Option<ClientCliId>,
    /// When it was prepared, and later registered, seconds since the epoch.
    pub registered_at: i64,
    /// Its processes; absent while they are only intended.
    pub process: Option<SessionProcess>,
}

/// The durable generation document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationDocument {
    /// What is fixed.
    pub identity: GenerationIdentity,
    /// The decision about the whole.
    pub decision: Decision,
    /// Each external resource's intent.
    pub participants: BTreeMap<Participant, Intent>,
    /// Live sessions.
    pub sessions: BTreeMap<SessionId, SessionRecord>,
    /// Network readiness: the fingerprint with what it was made from (FR-19).
    pub readiness: Option<NetworkAttestation>,
    /// What the probe inside the sandbox found (FR-20).
    pub probe: Option<ProbeReport>,
    /// How far the lease's release is.
    pub release: LeaseRelease,
    /// Why it ends, once its own coordinator decided so.
    pub end: Option<EndReason>,
    /// The Host Coordinator that recovers it.
    pub recoverer: Option<ProcessIdentity>,
}

impl GenerationDocument {
    /// Gives a participant's intent; nothing when it was never intended.
    pub fn intent(&self, participant: &Participant) -> Option<&Intent> {
        self.participants.get(participant)
    }

    /// Gives what a participant owns, while it does.
    pub fn ownership(&self, participant: &Participant) -> Option<&Ownership> {
        match self.participants.get(participant) {
            Some(Intent::Owned { ownership, .. }) => Some(ownership),
            _ => None,
        }
    }

    /// Gives the path that a participant was intended at, until it is released.
    pub fn path(&self, participant: &Participant) -> Option<&Path> {
        match self.participants.get(participant)? {
            Intent::Intended(target) | Intent::Owned { target, .. } => target.path(),
            Intent::Released => None,
        }
    }
}

/// Gives the number that the next generation has.
pub fn next_generation(document: Option<&GenerationDocument>) -> Generation {
    document.map_or(Generation(1), |document| document.identity.generation.next())
}

/// One step of a generation document. The first word of each description is the action's name in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `BeginGeneration`: the next generation starts; only after nothing or a clean one.
    Begin(Box<GenerationIdentity>),
    /// `Intend`: a resource is going to be made.
    Intend(Participant, Target),
    /// `Own`: an intended resource was made, and this is it.
    Own(Participant, Ownership),
    /// `AttestNetwork`: the policy is installed and was read back from the namespace.
    AttestNetwork(NetworkAttestation),
    /// `AcceptProbe`: the probe inside the sandbox found the policy to hold.
    AcceptProbe(ProbeReport),
    /// `Publish`: sessions are admitted from here on.
    Publish,
    /// `PrepareSession`: a session is going to be asked for; its process is intended, its command waits.
    PrepareSession(SessionRecord),
    /// `AdoptSession`: a prepared session is admitted for its client.
    AdoptSession(SessionRecord),
    /// `RegisterSession`: a session is admitted; its process is intended.
    RegisterSession(SessionRecord),
    /// `StartSession`: a session's processes run.
    StartSession(SessionId, SessionProcess),
    /// `EndSession`: nothing of a session is left.
    EndSession(SessionId),
    /// `LingerElapsed`, `DownRequested`, `CancelStartup` or `Failed`: the generation's own coordinator ends it for this
    /// reason; this is the intent to release the lease as well.
    BeginTearDown(EndReason),
    /// `BeginRecovery`: a later coordinator takes charge of what is left.
    BeginRecovery(ProcessIdentity),
    /// `Release`: a resource other than the lease is gone.
    Release(Participant),
    /// `IntendLeaseRelease`: the lease is going to be released; before any unmount by a recovery.
    IntendLeaseRelease,
    /// `ConfirmUnmounted`: no mount of the prepared lower is left.
    ConfirmUnmounted,
    /// `ConfirmCatalogDelete`: the catalog's lease record is deleted.
    ConfirmCatalogDelete,
    /// `Finish`: nothing is left and the Domain is clean.
    Finish,
}

impl Change {
    /// Gives the action's name in the model.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Begin(_) => "BeginGeneration",
            Self::Intend(..) => "Intend",
            Self::Own(..) => "Own",
            Self::AttestNetwork(_) => "AttestNetwork",
            Self::AcceptProbe(_) => "AcceptProbe",
            Self::Publish => "Publish",
            Self::PrepareSession(_) => "PrepareSession",
            Self::AdoptSession(_) => "AdoptSession",
            Self::RegisterSession(_) => "RegisterSession",
            Self::StartSession(..) => "StartSession",
            Self::EndSession(_) => "EndSession",
            Self::BeginTearDown(reason) => reason.action(),
            Self::BeginRecovery(_) => "BeginRecovery",
            Self::Release(_) => "Release",
            Self::IntendLeaseRelease => "IntendLeaseRelease",
            Self::ConfirmUnmounted => "ConfirmUnmounted",
            Self::ConfirmCatalogDelete => "ConfirmCatalogDelete",
            Self::Finish => "Finish",
        }
    }
}
