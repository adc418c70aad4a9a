//! The sandbox's root: an overlay of the prepared lower, and the fixed entries in it.
//!
//! The prepared lower is an image's content and hostile: a name in it may be a symbolic link to
//! anywhere. Everything here is done relative to the merged root's descriptor, symbolic links in
//! directories resolved as the sandbox would resolve them, and the last component never followed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::directories::{self, EntryKind, Owner};
use super::{Made, MountsError};
use crate::domain::profile::GuestPath;
use crate::domain::runtime::{GUEST_CONTROL, RootFile, RuntimePlan};
use crate::domain::workspace::GUEST_WORKSPACE;
use crate::sys::directories::{open_in_root, replace_in_root};
use crate::sys::mounts;

/// Mounts the root overlay and prepares its content.
pub(super) fn stage(plan: &RuntimePlan, owner: Owner, made: &mut Made) -> Result<(), MountsError> {
    let overlay = &plan.root;
    let lower = directories::open(&plan.lower)?;
    // The merged root has the owner and mode of the upper directory.
    let attributes = directories::attributes(lower.as_fd())
        .map_err(|source| MountsError::Open { path: plan.lower.clone(), source })?;
    directories::make(&overlay.upper, owner, attributes)?;
    directories::make(&overlay.work, owner, owner.private())?;
    directories::make(&overlay.merged, owner, owner.private())?;
    let (upper, work) = (directories::open(&overlay.upper)?, directories::open(&overlay.work)?);
    mounts::transient_overlay(lower.as_fd(), upper.as_fd(), work.as_fd(), &overlay.merged)?;
    made.record(&overlay.merged)?;

    let root = directories::open(&overlay.merged)?;
    for path in [GUEST_WORKSPACE, GUEST_CONTROL] {
        ensure_directory(root.as_fd(), Path::new(path)).map_err(|error| in_root(path, error))?;
    }
    for file in &plan.root_files {
        put_file(root.as_fd(), file).map_err(|error| in_root(file.path.as_str(), error))?;
    }
    Ok(())
}

/// Opens a directory of the prepared lower, resolved without leaving it. `None` when the image has
/// none there.
pub(super) fn lower_directory(lower: BorrowedFd<'_>, path: &GuestPath) -> Result<Option<OwnedFd>, MountsError> {
    match resolve(lower, Path::new(path.below_root())) {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(MountsError::Image { path: path.to_string(), source }),
    }
}

fn in_root(path: &str, source: io::Error) -> MountsError {
    MountsError::Root { path: path.to_owned(), source }
}

/// Opens a directory below a root as processes under that root would see it.
fn resolve(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let found = open_in_root(root, path.strip_prefix("/").unwrap_or(path))?;
    match directories::kind(found.as_fd())? {
        EntryKind::Directory => Ok(found),
        EntryKind::Other => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Makes sure that a path below the root is a directory and gives it. A component that is a link to
/// nowhere, or no directory at all, makes way: the image has nothing useful there.
fn ensure_directory(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    if let Ok(directory) = resolve(root, path) {
        return Ok(directory);
    }
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::NotADirectory)?;
    let parent = ensure_directory(root, parent)?;
    make_way(parent.as_fd(), name)?;
    rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
    // The mode above is subject to the umask.
    let made = rustix::fs::openat(&parent, name, directories::directory_flags(), Mode::empty())?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
    Ok(made)
}

/// Writes a file into the root in place of whatever has its name.
fn put_file(root: BorrowedFd<'_>, file: &RootFile) -> io::Result<()> {
    let path = Path::new(file.path.as_str());
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let parent = ensure_directory(root, parent)?;
    make_way(parent.as_fd(), name)?;
    replace_in_root(parent.as_fd(), Path::new(name), file.content.as_bytes(), 0o644)
}

/// Removes an entry that is not a directory with content.
fn make_way(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let status = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => status,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let flags = match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    Ok(rustix::fs::unlinkat(directory, name, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn file(path: &str) -> RootFile {
        RootFile { path: path.to_owned().try_into().unwrap(), content: "ours".into() }
    }

    #[test]
    fn a_file_takes_the_place_of_a_link_and_never_follows_it() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        std::fs::write(&outside, "theirs").unwrap();
        let root = base.path().join("root");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        symlink(&outside, root.join("etc/resolv.conf")).unwrap();
        let handle = directories::open(&root).unwrap();
        put_file(handle.as_fd(), &file("/etc/resolv.conf")).unwrap();
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "theirs");
        assert_eq!(std::fs::read_to_string(root.join("etc/resolv.conf")).unwrap(), "ours");
        assert!(!root.join("etc/resolv.conf").is_symlink());
    }

    #[test]
    fn a_linked_directory_is_resolved_within_the_root() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("root");
        std::fs::create_dir_all(root.join("usr/etc")).unwrap();
        symlink("/usr/etc", root.join("etc")).unwrap();
        symlink("../../../../..", root.join("up")).unwrap();
        let handle = directories::open(&root).unwrap();
        put_file(handle.as_fd(), &file("/etc/hosts")).unwrap();
        put_file(handle.as_fd(), &file("/up/escaped")).unwrap();
        assert_eq!(std::fs::read_to_string(root.join("usr/etc/hosts")).unwrap(), "ours");
        assert_eq!(std::fs::read_to_string(root.join("escaped")).unwrap(), "ours");
        assert!(!base.path().join("escaped").exists());
    }

    #[test]
    fn links_to_nowhere_and_loops_make_way_for_directories() {
        let root = tempfile::tempdir().unwrap();
        symlink("/var/run", root.path().join("run")).unwrap();
        std::fs::create_dir(root.path().join("var")).unwrap();
        symlink("/run", root.path().join("var/run")).unwrap();
        std::fs::write(root.path().join("workspace"), "a file").unwrap();
        let handle = directories::open(root.path()).unwrap();
        for path in [GUEST_CONTROL, GUEST_WORKSPACE] {
            ensure_directory(handle.as_fd(), Path::new(path)).unwrap();
            assert!(resolve(handle.as_fd(), Path::new(path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn a_missing_directory_of_the_image_is_no_error_and_a_file_is() {
        let lower = tempfile::tempdir().unwrap();
        std::fs::write(lower.path().join("file"), "").unwrap();
        let handle = directories::open(lower.path()).unwrap();
        let path = |text: &str| GuestPath::try_from(text.to_owned()).unwrap();
        assert!(lower_directory(handle.as_fd(), &path("/home/agent")).unwrap().is_none());
        assert!(lower_directory(handle.as_fd(), &path("/file")).is_err());
    }
}
