//! What a Runtime Supervisor is told to build for a generation, as data.
//!
//! The Host Coordinator decides all of it; the Runtime Supervisor decides nothing about grants.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ids::{ConfigFingerprint, DomainId, Generation, SandboxId, SidecarId};
use super::network::{NetworkPolicy, ProbePlan};
use super::profile::{Access, GuestPath};
use super::workspace::Protection;

/// One writable layer over a read-only directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayPlan {
    /// Upper directory; created by the supervisor, mode 0700 parents already there.
    #[serde(with = "super::escaped::path")]
    pub upper: PathBuf,
    /// Work directory on the same file system.
    #[serde(with = "super::escaped::path")]
    pub work: PathBuf,
    /// Where the supervisor mounts the merged view, in its own mount namespace.
    #[serde(with = "super::escaped::path")]
    pub merged: PathBuf,
}

/// One State Anchor: an overlay of PATH in the prepared lower.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchorPlan {
    /// The persistent sandbox path; its lower is the same path below the prepared lower, resolved
    /// without leaving it, or nothing when the image has no such directory.
    pub path: GuestPath,
    /// Its overlay.
    pub overlay: OverlayPlan,
}

/// The Agent Workspace's staging.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspacePlan {
    /// The canonical workspace on the host.
    #[serde(with = "super::escaped::path")]
    pub source: PathBuf,
    /// Where the supervisor stages it with its protections.
    #[serde(with = "super::escaped::path")]
    pub staged: PathBuf,
    /// Protective mounts, parents before children.
    pub protections: Vec<Protection>,
    /// Directory for the content of hidden paths, of this generation.
    #[serde(with = "super::escaped::path")]
    pub hidden: PathBuf,
}

/// One volume's staging.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumePlan {
    /// Canonical host path.
    #[serde(with = "super::escaped::path")]
    pub source: PathBuf,
    /// Where it appears in the sandbox.
    pub guest: GuestPath,
    /// Whether the sandbox may write.
    pub access: Access,
    /// Where the supervisor stages it.
    #[serde(with = "super::escaped::path")]
    pub staged: PathBuf,
}

/// Fixed files that the supervisor puts into the sandbox's root before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFile {
    /// Path in the sandbox.
    pub path: GuestPath,
    /// Content.
    pub content: String,
}

/// Everything that a Runtime Supervisor needs for one generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimePlan {
    /// The Domain.
    pub domain: DomainId,
    /// The generation.
    pub generation: Generation,
    /// The Configuration Fingerprint it was derived from.
    pub configuration: ConfigFingerprint,
    /// The Network Sidecar role instance.
    pub sidecar: SidecarId,
    /// The Agent Sandbox.
    pub sandbox: SandboxId,
    /// The user that sessions run as. Owns a persistent path that the image does not have, and the
    /// directories that stand in for hidden ones.
    pub uid: u32,
    /// That user's primary group.
    pub gid: u32,
    /// The prepared lower's tree, never written.
    #[serde(with = "super::escaped::path")]
    pub lower: PathBuf,
    /// The root overlay of this generation.
    pub root: OverlayPlan,
    /// State Anchors.
    pub anchors: Vec<AnchorPlan>,
    /// The workspace.
    pub workspace: WorkspacePlan,
    /// Volumes.
    pub volumes: Vec<VolumePlan>,
    /// The fixed control mounts, staged like volumes: what the sandbox must not write is mounted read-only
    /// on the host, since a user namespace in the sandbox can lift a read-only mount of gVisor's own.
    pub control: Vec<VolumePlan>,
    /// Files put into the root.
    pub root_files: Vec<RootFile>,
    /// Short private directory for runsc's `--root`, its bundle and its logs.
    #[serde(with = "super::escaped::path")]
    pub runsc_directory: PathBuf,
    /// Generation scratch that the supervisor removes at teardown, since subordinate ids own files in it.
    #[serde(with = "super::escaped::path")]
    pub scratch: PathBuf,
    /// The runsc executable, absolute.
    #[serde(with = "super::escaped::path")]
    pub runsc: PathBuf,
    /// The slirp4netns executable, absolute.
    #[serde(with = "super::escaped::path")]
    pub slirp4netns: PathBuf,
    /// Network policy to install.
    pub policy: NetworkPolicy,
    /// What the probe tries.
    pub probe: ProbePlan,
    /// The OCI runtime specification, `config.json`, complete but for the network namespace path,
    /// which the supervisor fills in after it has verified its own namespace (SR-12).
    pub oci_spec: serde_json::Value,
}

/// Path of the enforcement network namespace as runsc, in the supervisor's pid namespace, sees it.
pub const ENFORCEMENT_NAMESPACE: &str = "/proc/1/ns/net";

/// Search path of a process that is given none, in the sandbox and in the Runtime Supervisor.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Directory of the fixed control mounts in the sandbox.
pub const GUEST_CONTROL: &str = "/run/lazaret";

/// The guest executable in the sandbox.
pub const GUEST_EXECUTABLE: &str = "/run/lazaret/bin/lazaret-guest";

/// One session's process, ready to be given to `lazaret-guest session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestProcess {
    /// Argument vector, not empty.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory in the sandbox, absolute.
    pub directory: Vec<u8>,
    /// User id in the sandbox.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether the standard streams are a terminal.
    pub interactive: bool,
}
