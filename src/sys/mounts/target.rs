//! Where a mount goes, and what can go wrong on the way.

use std::fmt::{self, Display};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::descriptor_path;

/// A mount that could not be made, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The target cannot be opened.
    #[error("cannot open the mount point {path}")]
    Target {
        /// The target.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file system cannot be configured.
    #[error("cannot set up a mount of type {filesystem}{said}")]
    Configure {
        /// Its type.
        filesystem: &'static str,
        /// What the kernel said beside its answer; empty, or begins with a colon.
        said: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The source cannot be cloned for a bind mount.
    #[error("cannot clone the source of a bind mount")]
    Clone(#[source] io::Error),
    /// The attributes cannot be set.
    #[error("cannot restrict a mount")]
    Restrict(#[source] io::Error),
    /// The mount cannot be attached.
    #[error("cannot attach a mount to {target}")]
    Attach {
        /// The target, as it is called.
        target: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The mount cannot be removed.
    #[error("cannot unmount {path}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The mount cannot be looked up.
    #[error("cannot identify the mount at {path}")]
    Identify {
        /// The mount point.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Where a mount goes.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A path whose last component is not followed.
    Path(&'a Path),
    /// An opened file or directory.
    Descriptor(BorrowedFd<'a>),
}

impl<'a> From<&'a Path> for Target<'a> {
    fn from(path: &'a Path) -> Self {
        Self::Path(path)
    }
}

impl<'a> From<&'a PathBuf> for Target<'a> {
    fn from(path: &'a PathBuf) -> Self {
        Self::Path(path)
    }
}

impl<'a> From<BorrowedFd<'a>> for Target<'a> {
    fn from(fd: BorrowedFd<'a>) -> Self {
        Self::Descriptor(fd)
    }
}

impl<'a> From<&'a OwnedFd> for Target<'a> {
    fn from(fd: &'a OwnedFd) -> Self {
        Self::Descriptor(fd.as_fd())
    }
}

impl Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Descriptor(fd) => match std::fs::read_link(descriptor_path(*fd)) {
                Ok(path) => path.display().fmt(f),
                Err(_) => write!(f, "descriptor {}", fd.as_raw_fd()),
            },
        }
    }
}
