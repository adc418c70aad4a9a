//! The directory with the guest executable that the sandbox sees.
//!
//! The sandbox gets a directory that holds nothing but the executable under its two names. A copy is
//! made once per build, below the Storage Root, so that no directory of the host's own is mounted.
//! The sandbox's kernel reads it as it reads any file: the host's execve(2), which refuses what is
//! still open for writing, is never asked to run the copy.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::domain::layout::StorageRoot;
use crate::guest::command_line::ESCALATE_NAME;
use crate::sys::{directories, executables};

/// Name of the guest executable.
pub const NAME: &str = "lazaret-guest";

/// The guest executable can't be made available.
#[derive(Debug, thiserror::Error)]
pub enum GuestExecutableError {
    /// It is not installed.
    #[error("{NAME} is neither beside this program nor in its libexec directory")]
    Missing,
    /// It can't be copied.
    #[error("{} can't be copied to {}", from.display(), to.display())]
    Copy {
        /// Source.
        from: PathBuf,
        /// Destination.
        to: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Gives the directory to mount, making the copy when there is none of this build yet.
pub fn stage(storage: &StorageRoot) -> Result<PathBuf, GuestExecutableError> {
    let from = executables::guest().ok_or(GuestExecutableError::Missing)?;
    let failed = |to: &Path| {
        let (from, to) = (from.clone(), to.to_owned());
        move |source| GuestExecutableError::Copy { from, to, source }
    };
    let facts = std::fs::metadata(&from).map_err(failed(storage.path()))?;
    let all = storage.path().join("guest");
    let directory = all.join(format!("{}-{}-{}", facts.len(), facts.ino(), facts.mtime_nsec() + facts.mtime()));
    if directory.is_dir() {
        return Ok(directory);
    }
    let making = all.join(format!(".making-{}", std::process::id()));
    let copy = || -> io::Result<()> {
        directories::ensure_private(&making).map_err(io::Error::other)?;
        let executable = making.join(NAME);
        std::fs::copy(&from, &executable)?;
        std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o555))?;
        std::fs::hard_link(&executable, making.join(ESCALATE_NAME))?;
        // Guest users other than the developer must be able to traverse it, inside the sandbox.
        std::fs::set_permissions(&making, std::fs::Permissions::from_mode(0o755))?;
        match std::fs::rename(&making, &directory) {
            // Another coordinator made the same copy.
            Err(_) if directory.is_dir() => std::fs::remove_dir_all(&making),
            renamed => renamed,
        }
    };
    copy().map_err(failed(&directory))?;
    Ok(directory)
}
