//! Exclusive file locks (flock(2)) that end with their holder.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, lstat};
use rustix::io::Errno;

/// A held lock. It ends when this is dropped, or with the process however that ends.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Gives the locked file, for what its holder notes in it.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Takes the lock without waiting; `None` when another holds it. The file is made with mode 0600
/// when it is missing and is never followed when it is a symbolic link.
pub fn try_lock(path: &Path) -> io::Result<Option<FileLock>> {
    loop {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if is_at(&file, path)? {
            return Ok(Some(FileLock { file: File::from(file) }));
        }
        // Somebody removed or replaced the file between open and lock: the lock protects nothing.
    }
}

fn is_at(file: &OwnedFd, path: &Path) -> io::Result<bool> {
    let held = fstat(file)?;
    match lstat(path) {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_holder_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = try_lock(&path).unwrap().expect("free");
        assert!(try_lock(&path).unwrap().is_none());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(held);
        // Another test's child may share the open file until it executes its program.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while try_lock(&path).unwrap().is_none() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_removed_file_is_another_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let _old = try_lock(&path).unwrap().expect("free");
        std::fs::remove_file(&path).unwrap();
        let _new = try_lock(&path).unwrap().expect("a new file is not locked");
        assert!(try_lock(&path).unwrap().is_none());
    }

    #[test]
    fn a_symbolic_link_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert_eq!(try_lock(&path).unwrap_err().raw_os_error(), Some(nix::libc::ELOOP));
        assert!(!directory.path().join("elsewhere").exists());
    }
}
