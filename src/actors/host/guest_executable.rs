//! The guest executable on the host: where it is, and the directory that the sandbox sees.
//!
//! The sandbox gets a directory that holds nothing but the executable under its two names. A copy is
//! made once per build, below the Storage Root, so that no directory of the host's own is mounted.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::domain::layout::StorageRoot;
use crate::sys::directories;

/// Name of the guest executable.
pub const NAME: &str = "lazaret-guest";

/// Second name, under which it is the Escalation Client.
pub const ESCALATION_NAME: &str = "lazaret-escalate";

/// The guest executable can't be made available.
#[derive(Debug, thiserror::Error)]
pub enum GuestExecutableError {
    /// It is not installed.
    #[error("{NAME} is not beside {}", executable.display())]
    Missing {
        /// This program's own path.
        executable: PathBuf,
    },
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

/// Finds the guest executable: beside this program, or in `../libexec/lazaret`.
pub fn locate() -> Result<PathBuf, GuestExecutableError> {
    let executable = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("lazaret"));
    let beside = executable.parent().map(|directory| directory.join(NAME));
    let libexec = executable.parent().and_then(Path::parent).map(|prefix| prefix.join("libexec/lazaret").join(NAME));
    let found = [beside, libexec].into_iter().flatten().find(|path| path.is_file());
    found.ok_or(GuestExecutableError::Missing { executable })
}

/// Gives the directory to mount, making the copy when there is none of this build yet.
pub fn stage(storage: &StorageRoot) -> Result<PathBuf, GuestExecutableError> {
    let from = locate()?;
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
        std::fs::hard_link(&executable, making.join(ESCALATION_NAME))?;
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
