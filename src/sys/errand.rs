//! Small tasks that must be done as root of a mapped namespace, by executing this program again.
//!
//! Files in a prepared lower or a scratch tree belong to subordinate ids, and only a process to
//! which these are mapped may remove them. The executable's `main` calls [`run`] first.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use super::directories::{open_root, remove_tree};
use super::mounts::overlay_supported;
use super::namespaces::{MappedCommand, NamespaceError, own_ids, run_mapped};
use crate::domain::artifact::IdMapping;
use crate::domain::failure::Failure;

/// First argument of this program when it removes trees.
const REMOVE: &str = "__remove";
/// First argument of this program when it only shows that it can run.
const NOTHING: &str = "__nothing";
/// First argument of this program when it tries an overlay.
const TRY_OVERLAY: &str = "__try-overlay";

/// A task that was not done.
#[derive(Debug, thiserror::Error)]
pub enum ErrandError {
    /// It could not be begun.
    #[error("cannot run {task} in new namespaces")]
    Namespace {
        /// The task.
        task: &'static str,
        /// Why.
        source: NamespaceError,
    },
    /// The directory that holds a tree could not be opened.
    #[error("cannot open the directory {path}")]
    Parent {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It failed.
    #[error("{said}")]
    Failed {
        /// What it said.
        said: String,
        /// How it ended.
        status: ExitStatus,
    },
}

/// Removes trees that hold files of mapped ids, as [`remove_tree`] does; none of the paths may be
/// relative. Only their parents need to be reachable for this user: the mapped ids need not reach them.
pub async fn remove_trees(mapping: &IdMapping, paths: &[PathBuf]) -> Result<(), ErrandError> {
    let mut arguments = Vec::new();
    let mut fds = Vec::new();
    let mut names = Vec::new();
    for path in paths {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrandError::Parent { path: path.clone(), source: io::ErrorKind::InvalidInput.into() });
        };
        let opened = match open_root(parent) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(ErrandError::Parent { path: parent.to_owned(), source }),
        };
        // Above the standard streams.
        let number = 3 + fds.len() as RawFd;
        let passed = format!("/proc/self/fd/{number}");
        arguments.push(Path::new(&passed).join(name).into_os_string());
        names.push((passed, parent.display().to_string()));
        fds.push((opened, number));
    }
    if arguments.is_empty() {
        return Ok(());
    }
    let sent = send("the removal", REMOVE, arguments, fds, mapping.clone()).await;
    sent.map_err(|error| match error {
        // In the words of the caller's paths, the longer numbers first.
        ErrandError::Failed { said, status } => {
            let said = names.iter().rev().fold(said, |said, (passed, parent)| said.replace(passed, parent));
            ErrandError::Failed { said, status }
        }
        other => other,
    })
}

/// Tries to run in new namespaces under a mapping.
pub async fn try_namespaces(mapping: &IdMapping) -> Result<(), ErrandError> {
    send("a trial", NOTHING, Vec::new(), Vec::new(), mapping.clone()).await
}

/// Tries to mount an overlay with its writable layer in this private directory.
pub async fn try_overlay(directory: &Path) -> Result<(), ErrandError> {
    send("a trial of overlays", TRY_OVERLAY, vec![directory.into()], Vec::new(), own_ids()).await
}

async fn send(
    task: &'static str,
    name: &str,
    arguments: Vec<OsString>,
    fds: Vec<(OwnedFd, RawFd)>,
    mapping: IdMapping,
) -> Result<(), ErrandError> {
    let command = MappedCommand {
        executable: PathBuf::from("/proc/self/exe"),
        argv: [OsString::from(format!("lazaret: {task}")), name.into()].into_iter().chain(arguments).collect(),
        env: Vec::new(),
        fds,
        mapping,
    };
    let output = run_mapped(command).await.map_err(|source| ErrandError::Namespace { task, source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = if said.is_empty() { format!("{task} failed: {}", output.status) } else { said };
    Err(ErrandError::Failed { said, status: output.status })
}

/// Does the task that this process was executed for; `None` when it was executed for something else.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    let task = arguments.next()?;
    let each: fn(&Path) -> Result<(), Box<dyn std::error::Error>> = match task.as_bytes() {
        name if name == REMOVE.as_bytes() => |path| Ok(remove_tree(path)?),
        name if name == NOTHING.as_bytes() => |_| Ok(()),
        name if name == TRY_OVERLAY.as_bytes() => |path| Ok(overlay_supported(path)?),
        _ => return None,
    };
    let mut status = ExitCode::SUCCESS;
    for path in arguments {
        // One that fails keeps no other from being done.
        if let Err(error) = each(Path::new(&path)) {
            report(error.as_ref());
            status = ExitCode::FAILURE;
        }
    }
    Some(status)
}

fn report(error: &dyn std::error::Error) {
    let text = Failure::of(error).line();
    // Nobody is left to tell when this fails.
    let _ = io::Write::write_all(&mut io::stderr(), format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(arguments: &[&str]) -> Option<bool> {
        let status = run(arguments.iter().map(OsString::from))?;
        Some(format!("{status:?}") == format!("{:?}", ExitCode::SUCCESS))
    }

    #[test]
    fn only_errands_are_taken() {
        assert_eq!(run_with(&["lazaret"]), None);
        assert_eq!(run_with(&["lazaret", "up", "__remove"]), None);
        assert_eq!(run_with(&["lazaret", "__removes"]), None);
    }

    #[test]
    fn every_tree_is_tried() {
        let base = tempfile::tempdir().unwrap();
        let tree = base.path().join("tree");
        std::fs::create_dir_all(tree.join("a")).unwrap();
        assert_eq!(run_with(&["lazaret", "__remove", "/", tree.to_str().unwrap()]), Some(false));
        assert!(!tree.exists());
        assert_eq!(run_with(&["lazaret", "__remove", tree.to_str().unwrap()]), Some(true));
    }
}
