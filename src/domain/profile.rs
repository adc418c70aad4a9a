//! Agent Profiles, validated. What cannot be written in one cannot be granted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::artifact::{ImageSource, UserSpec};
use super::escalation::EscalationRule;
use super::ids::{ConfigFingerprint, ProfileName};
use super::network::NetworkGrant;

/// A path in the sandbox: absolute, without `.` or `..` components, not `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GuestPath(String);

/// The text is not a path that can be granted in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a sandbox path: it must be absolute, not '/', and without '.' or '..' components")]
pub struct InvalidGuestPath(pub String);

impl GuestPath {
    /// Gives the path's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Gives the path without its leading slash, to be joined below a root.
    pub fn below_root(&self) -> &str {
        &self.0[1..]
    }

    /// Tells whether this path is `other` or lies beneath it.
    pub fn is_within(&self, other: &GuestPath) -> bool {
        std::path::Path::new(&self.0).starts_with(&other.0)
    }
}

impl TryFrom<String> for GuestPath {
    type Error = InvalidGuestPath;
    fn try_from(text: String) -> Result<Self, InvalidGuestPath> {
        let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        match text.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest)) {
            Some(rest) if rest.split('/').all(plain) => Ok(Self(format!("/{rest}"))),
            _ => Err(InvalidGuestPath(text)),
        }
    }
}

impl From<GuestPath> for String {
    fn from(path: GuestPath) -> String {
        path.0
    }
}

impl std::fmt::Display for GuestPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the sandbox may write to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Reading only.
    #[serde(rename = "ro")]
    ReadOnly,
    /// Reading and writing.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// A host path granted to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Host path, canonical.
    #[serde(with = "super::escaped::path")]
    pub host: PathBuf,
    /// Where it appears in the sandbox.
    pub guest: GuestPath,
    /// Whether the sandbox may write to it.
    pub access: Access,
}

/// Environment of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Variables with fixed values.
    pub set: BTreeMap<String, String>,
    /// Names whose values pass through from the client's environment.
    pub pass: Vec<String>,
}

/// How the Agent Workspace is presented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceGrant {
    /// Whether Git-ignored paths are isolated (SR-13, FR-9).
    pub isolate_ignored: bool,
    /// Editor directories to hide, by name at the workspace's top, such as `.vscode`.
    pub hide: Vec<String>,
}

/// Resource limits; absent means none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Open files per process (RLIMIT_NOFILE).
    pub open_files: Option<u64>,
    /// Processes per user in the sandbox (RLIMIT_NPROC).
    pub processes: Option<u64>,
    /// Address space per process, in bytes (RLIMIT_AS).
    pub memory: Option<u64>,
    /// Largest file a process may write, in bytes (RLIMIT_FSIZE).
    pub file_size: Option<u64>,
    /// Size of `/tmp` and of `/dev/shm` in bytes; they are held in memory.
    pub tmp: u64,
}

/// A validated Agent Profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The profile's name.
    pub name: ProfileName,
    /// The base image.
    pub image: ImageSource,
    /// The user that sessions run as; absent means the image's.
    pub user: Option<UserSpec>,
    /// The command of a session that names none; empty means the user's login shell.
    pub command: Vec<String>,
    /// Environment of sessions.
    pub environment: Environment,
    /// Sandbox paths that persist as State Anchors; none lies beneath another.
    pub persistent: Vec<GuestPath>,
    /// Host paths granted.
    pub volumes: Vec<Volume>,
    /// Network granted.
    pub network: NetworkGrant,
    /// How the workspace is presented.
    pub workspace: WorkspaceGrant,
    /// Escalation rules.
    pub escalation: Vec<EscalationRule>,
    /// Resource limits.
    pub limits: Limits,
    /// How long a Domain stays after its last session ended.
    pub linger: Duration,
}

impl Profile {
    /// Gives the Configuration Fingerprint: a digest over the whole validated content.
    pub fn fingerprint(&self) -> ConfigFingerprint {
        let canonical = serde_json::to_vec(self).expect("a profile has only string keys");
        ConfigFingerprint::of(&canonical)
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
