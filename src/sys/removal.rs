//! Removes directory trees that hostile programs have made.
//!
//! The walk holds one descriptor, goes down by name and up by `..`, so that neither depth nor breadth
//! of a tree exhausts anything. It never follows a symbolic link, and never enters a mount: a
//! workspace that is still bound somewhere below is an error, not a loss.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat, unlinkat};
use rustix::io::Errno;

use super::directories::identity;
use crate::domain::ownership::DirectoryIdentity;

/// Something that could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove {path}")]
pub struct RemovalError {
    /// What.
    pub path: PathBuf,
    /// The kernel's answer.
    pub source: io::Error,
}

/// Removes a file, a symbolic link, or a directory with everything in it. A path that does not
/// exist is not an error. Directories whose mode denies their owner access are opened up first.
pub fn remove_tree(path: &Path) -> Result<(), RemovalError> {
    let failed = |error: Errno| RemovalError { path: path.to_owned(), source: error.into() };
    let Some(name) = path.file_name() else { return Err(failed(Errno::INVAL)) };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::Directory => {
            Walk { root: path.to_owned(), here: parent, above: Vec::new() }.run(name.to_owned())
        }
        Ok(_) => unlinkat(&parent, name, AtFlags::empty()).map_err(failed),
    }
}

/// A depth-first walk that removes behind itself.
struct Walk {
    /// The tree's path, for messages.
    root: PathBuf,
    /// The directory that the walk is in.
    here: OwnedFd,
    /// The directories above it up to the tree's parent: each one's identity, and the name below it
    /// that the walk took.
    above: Vec<(DirectoryIdentity, OsString)>,
}

impl Walk {
    fn run(mut self, top: OsString) -> Result<(), RemovalError> {
        self.down(top)?;
        while !self.above.is_empty() {
            match self.remove_files()? {
                Some(directory) => self.down(directory)?,
                None => self.up()?,
            }
        }
        Ok(())
    }

    /// Removes what is no directory; gives the first directory, or `None` when nothing is left.
    ///
    /// Reading starts anew after each directory, but what was removed does not come again, so that
    /// each entry is read a bounded number of times.
    fn remove_files(&self) -> Result<Option<OsString>, RemovalError> {
        let entries = Dir::read_from(&self.here).map_err(|error| self.failed(None, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(None, error))?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                return Ok(Some(name));
            }
            match unlinkat(&self.here, name.as_os_str(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                // Some file systems do not tell types in their listing.
                Err(Errno::ISDIR) => return Ok(Some(name)),
                Err(error) => return Err(self.failed(Some(name), error)),
            }
        }
        Ok(None)
    }

    fn down(&mut self, name: OsString) -> Result<(), RemovalError> {
        let identity = identity(&self.here).map_err(|source| self.failed_with(Some(&name), source))?;
        let next = self.enter(&name).map_err(|error| self.failed(Some(name.clone()), error))?;
        self.here = next;
        self.above.push((identity, name));
        Ok(())
    }

    fn enter(&self, name: &OsString) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // NO_XDEV stops at bind mounts too, which a device number would not show.
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let location = openat2(&self.here, name.as_os_str(), flags, Mode::empty(), how)?;
        if !Mode::from_raw_mode(fstat(&location)?.st_mode).contains(Mode::RWXU) {
            // By descriptor: chmod(2) by name would follow a link put in its place. Where it is
            // not ours to change the removal below says so.
            let path = format!("/proc/self/fd/{}", location.as_raw_fd());
            let _ = rustix::fs::chmod(path, Mode::RWXU);
        }
        openat(&location, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    fn up(&mut self) -> Result<(), RemovalError> {
        let Some((expected, name)) = self.above.pop() else { return Ok(()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(&self.here, c"..", flags, Mode::empty());
        let parent = parent.map_err(|error| self.failed(Some(name.clone()), error))?;
        if identity(&parent).map_err(|source| self.failed_with(Some(&name), source))? != expected {
            // The directory was moved while the walk was in it; nothing may be removed out there.
            return Err(self.failed(Some(name), Errno::STALE));
        }
        self.here = parent;
        match unlinkat(&self.here, name.as_os_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed(Some(name), error)),
        }
    }

    fn failed(&self, name: Option<OsString>, error: Errno) -> RemovalError {
        self.failed_with(name.as_ref(), error.into())
    }

    fn failed_with(&self, name: Option<&OsString>, source: io::Error) -> RemovalError {
        let mut path = self.root.parent().unwrap_or(Path::new("")).to_owned();
        path.extend(self.above.iter().map(|(_, name)| name).chain(name));
        RemovalError { path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_tree_goes_and_what_its_links_name_stays() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        for i in 0..2000 {
            fs::write(tree.join(format!("a/{i}")), "").unwrap();
            fs::create_dir(tree.join(format!("a/b/d{i}"))).unwrap();
        }
        symlink(&outside, tree.join("a/link")).unwrap();
        symlink("..", tree.join("a/b/up")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
        remove_tree(&tree).unwrap();
        remove_tree(&base.path().join("no/such/parent")).unwrap();
    }

    #[test]
    fn a_link_and_a_file_go_themselves() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("real")).unwrap();
        symlink("real", base.path().join("link")).unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        remove_tree(&base.path().join("link")).unwrap();
        remove_tree(&base.path().join("file")).unwrap();
        assert!(base.path().join("real").is_dir());
        assert!(!base.path().join("file").exists());
        assert!(base.path().join("link").symlink_metadata().is_err());
    }

    #[test]
    fn directories_that_deny_access_are_opened_up() {
        let base = tempfile::tempdir().unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("closed/inner")).unwrap();
        fs::write(tree.join("closed/inner/file"), "").unwrap();
        for path in ["closed/inner", "closed", ""] {
            fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn depth_is_no_limit() {
        let base = tempfile::tempdir().unwrap();
        let tree = base.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut here = rustix::fs::open(&tree, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&here, c"deeper", Mode::RWXU).unwrap();
            here = openat(&here, c"deeper", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
