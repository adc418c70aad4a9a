//! The Agent Workspace.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::escaped::{escape, unescape};
use super::ids::{DomainId, ProfileName};

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

/// What `identity.json` in a Domain Root says: which pair the Domain ID was derived from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRecord {
    /// Layout version of this record; 1.
    pub version: u32,
    /// The Domain.
    pub domain: DomainId,
    /// Its profile.
    pub profile: ProfileName,
    /// Its canonical workspace, escaped as `domain::escaped` says.
    pub workspace: String,
}

impl DomainRecord {
    /// Describes the Domain of a profile and a workspace.
    pub fn new(profile: &ProfileName, workspace: &Workspace) -> Self {
        Self {
            version: 1,
            domain: DomainId::derive(profile, workspace.path()),
            profile: profile.clone(),
            workspace: escape(workspace.path().as_os_str().as_bytes()),
        }
    }

    /// Gives the workspace, when the record is consistent: its Domain ID is the one that profile
    /// and workspace give.
    pub fn workspace(&self) -> Option<Workspace> {
        let path = PathBuf::from(OsString::from_vec(unescape(&self.workspace).ok()?));
        let consistent = path.is_absolute() && DomainId::derive(&self.profile, &path) == self.domain;
        consistent.then_some(Workspace(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_its_workspace_back_only_when_it_is_consistent() {
        let workspace = Workspace::from_canonical(PathBuf::from(OsString::from_vec(b"/home/dev/\xff 100%".to_vec())));
        let record = DomainRecord::new(&"claude".parse().unwrap(), &workspace);
        assert_eq!(record.workspace(), Some(workspace));
        let moved = DomainRecord { workspace: "/elsewhere".into(), ..record };
        assert_eq!(moved.workspace(), None);
    }
}
