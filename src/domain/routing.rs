//! What the git router is told for one generation, and the vocabulary of its decisions.
//!
//! Paths of this module are workspace paths: bytes, relative to the Agent Workspace, components
//! separated by `/`, no empty, `.` or `..` component; the workspace itself is the empty path.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the content of a workspace path lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// In the host's project, shared both ways.
    Shared,
    /// In this Domain's Ignored Workspace State; the host's content, if there is any, is not shown (SR-13).
    Isolated,
}

/// Whether an entry is a directory, which decides what rules such as `build/` match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// Anything else; a symbolic link to a directory is one of these, as for Git.
    File,
}

/// A rule file outside the workspace's tree, or one that the sandbox can't reach, with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleText {
    /// The file on the host, for explanations.
    #[serde(with = "super::escaped::path")]
    pub origin: PathBuf,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// Where the repository lies that the workspace belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RepositoryKind {
    /// The workspace is in no repository: only the profile's lists apply.
    None,
    /// The workspace is a repository's working tree, and its `.git` is a directory in it.
    Own,
    /// The workspace lies below the top of a larger working tree, or its `.git` is a file that names a
    /// repository elsewhere: a linked worktree or a submodule.
    Outside {
        /// The workspace below the top of the working tree; empty when it is the top.
        prefix: Vec<u8>,
        /// `.gitignore` files of the directories from the top down to the workspace's parent, each with
        /// its directory relative to the top.
        above: Vec<(Vec<u8>, RuleText)>,
        /// The repository's `info/exclude`.
        exclude: Option<RuleText>,
    },
}

/// What rules the workspace's repository has, as far as they lie outside the workspace's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryRules {
    /// Where the repository is.
    pub kind: RepositoryKind,
    /// The file that `core.excludesFile` names, or Git's default for it (gitignore(5)).
    pub excludes: Option<RuleText>,
    /// `core.ignoreCase` (git-config(1)).
    pub ignore_case: bool,
}

/// What the git router is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterPlan {
    /// The guest's view of the developer: whom everything in the workspace belongs to.
    pub uid: u32,
    /// Their primary group.
    pub gid: u32,
    /// Whether Git-ignored paths are isolated (FR-9).
    pub isolate_ignored: bool,
    /// Patterns of paths that are isolated though Git does not ignore them, in the syntax of gitignore(5).
    pub isolate: Vec<String>,
    /// Patterns of paths that are shared though Git ignores them; host configuration alone may say so.
    pub expose: Vec<String>,
    /// Names at the workspace's top that are replaced by transient storage, such as `.vscode`.
    pub hide: Vec<String>,
    /// The repository's rules from outside the workspace.
    pub repository: RepositoryRules,
}
