//! The Agent Workspace.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A canonical host project directory: absolute, symlinks resolved, known to exist when made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Workspace(#[serde(with = "super::escaped::path")] PathBuf);

impl Workspace {
    /// Takes a path that the caller has canonicalised.
    pub fn from_canonical(path: PathBuf) -> Self {
        debug_assert!(path.is_absolute());
        Self(path)
    }

    /// Gives the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Where the Agent Workspace appears in the sandbox.
pub const GUEST_WORKSPACE: &str = "/workspace";

/// One narrow protective mount over the workspace (Git Sentry, specification 3.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Path below the workspace, relative.
    pub path: PathBuf,
    /// What the sandbox sees there.
    pub kind: ProtectionKind,
}

/// What a protective mount does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtectionKind {
    /// The host's content, read-only.
    ReadOnly,
    /// Sandbox-local transient storage in place of the host's content.
    Hidden,
    /// The host's content, writable, pinned as a mount point so that it can't be renamed or replaced.
    Pinned,
}
