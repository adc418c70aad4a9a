//! Directories that the supervisor makes on the host, and who owns them.
//!
//! The supervisor is user 0 of the Domain's user namespace, which on the host is a subordinate id. What
//! it makes for itself it gives to the developer, so that the developer's own tools can look at it and
//! remove it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::MountsError;
use crate::domain::runtime::RuntimePlan;

/// The developer, by the ids that he has in the Domain's user namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    uid: Uid,
    gid: Gid,
}

/// Access mode and owner of a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    mode: Mode,
    owner: Owner,
}

impl Owner {
    /// Names the plan's user, to whom the developer is mapped.
    pub(super) fn of(plan: &RuntimePlan) -> Self {
        Self { uid: Uid::from_raw(plan.uid), gid: Gid::from_raw(plan.gid) }
    }

    /// Describes a directory of the developer's that everybody may enter.
    pub(super) fn public(self) -> Attributes {
        Attributes { mode: Mode::from_raw_mode(0o755), owner: self }
    }

    /// Describes a directory that only the developer may enter.
    pub(super) fn private(self) -> Attributes {
        Attributes { mode: Mode::from_raw_mode(0o700), owner: self }
    }
}

impl From<&Stat> for Attributes {
    fn from(status: &Stat) -> Self {
        let owner = Owner { uid: Uid::from_raw(status.st_uid), gid: Gid::from_raw(status.st_gid) };
        Self { mode: Mode::from_raw_mode(status.st_mode & 0o7777), owner }
    }
}

/// Gives the attributes of an opened directory.
pub(super) fn attributes(directory: BorrowedFd<'_>) -> io::Result<Attributes> {
    Ok(Attributes::from(&rustix::fs::statat(directory, c"", AtFlags::EMPTY_PATH)?))
}

/// Makes a directory with its missing parents, the parents private. One that is there already
/// is left as it is, but must be a directory.
pub(super) fn make(path: &Path, owner: Owner, attributes: Attributes) -> Result<(), MountsError> {
    let failed = |source| MountsError::Make { path: path.to_owned(), source };
    if let Some(parent) = path.parent()
        && stat(parent).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        make(parent, owner, owner.private())?;
    }
    match stat(path) {
        Ok(status) if is_directory(&status) => return Ok(()),
        Ok(_) => return Err(failed(Errno::NOTDIR.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    // Renamed into place when it is complete: a crash never leaves one with the wrong owner.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    make_complete(&fresh, path, attributes).map_err(|error| failed(error.into()))
}

fn make_complete(fresh: &Path, path: &Path, attributes: Attributes) -> Result<(), Errno> {
    match rustix::fs::mkdir(fresh, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let Owner { uid, gid } = attributes.owner;
    rustix::fs::chownat(CWD, fresh, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    let directory = rustix::fs::open(fresh, directory_flags(), Mode::empty())?;
    rustix::fs::fchmod(&directory, attributes.mode)?;
    rustix::fs::rename(fresh, path)
}

/// Makes an empty file to be mounted over.
pub(super) fn make_file(path: &Path, owner: Owner) -> Result<(), MountsError> {
    if let Some(parent) = path.parent() {
        make(parent, owner, owner.private())?;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))
        .and_then(|file| rustix::fs::fchown(&file, Some(owner.uid), Some(owner.gid)));
    made.map_err(|error| MountsError::Make { path: path.to_owned(), source: error.into() })
}

/// Opens a directory as a handle, not following a symbolic link in its last component.
pub(super) fn open(path: &Path) -> Result<OwnedFd, MountsError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |error: Errno| MountsError::Open { path: path.to_owned(), source: error.into() };
    rustix::fs::open(path, flags, Mode::empty()).map_err(failed)
}

/// Opens a file or directory as a handle, not following a symbolic link in its last component.
pub(super) fn open_any(path: &Path) -> Result<(OwnedFd, EntryKind), MountsError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |error: Errno| MountsError::Open { path: path.to_owned(), source: error.into() };
    let entry = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let kind = kind(entry.as_fd()).map_err(|source| MountsError::Open { path: path.to_owned(), source })?;
    Ok((entry, kind))
}

/// What an opened entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Directory,
    Other,
}

/// Tells what an opened entry is.
pub(super) fn kind(entry: BorrowedFd<'_>) -> io::Result<EntryKind> {
    let status = rustix::fs::statat(entry, c"", AtFlags::EMPTY_PATH)?;
    Ok(if is_directory(&status) { EntryKind::Directory } else { EntryKind::Other })
}

pub(super) fn is_directory(status: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Directory
}

pub(super) fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn stat(path: &Path) -> io::Result<Stat> {
    Ok(rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Gives a path below a directory for the `n`th of several things.
pub(super) fn numbered(directory: &Path, n: usize) -> PathBuf {
    directory.join(n.to_string())
}
