//! The Storage Catalog's lock: a flock(2) with a bounded wait, which a dead process can't hold.

use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::sys::lock::{FileLock, try_lock};

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file can't be opened.
    #[error("can't lock {}", path.display())]
    Open {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process held it all the time.
    #[error("{} was held by {} for {} s", path.display(), holder(*pid), wait.as_secs_f32())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, as far as `/proc/locks` tells.
        pid: Option<i32>,
        /// How long was waited.
        wait: Duration,
    },
}

fn holder(pid: Option<i32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The held lock; dropping it lets go.
#[derive(Debug)]
pub(super) struct CatalogLock(#[expect(dead_code, reason = "held for its drop")] FileLock);

impl CatalogLock {
    /// Takes the lock, trying again for at most `wait`.
    pub(super) fn take(path: &Path, wait: Duration) -> Result<Self, LockError> {
        let error = |source| LockError::Open { path: path.to_owned(), source };
        let began = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(lock) = try_lock(path).map_err(error)? {
                return Ok(Self(lock));
            }
            if began.elapsed() >= wait {
                return Err(LockError::Held { path: path.to_owned(), pid: holding_process(path), wait });
            }
            // flock(2) has no time limit, and a signal to bound it would reach the whole process.
            std::thread::sleep(pause.min(wait.saturating_sub(began.elapsed())));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Finds a lock's holder in `/proc/locks` (proc(5)), by inode.
fn holding_process(path: &Path) -> Option<i32> {
    let inode = std::fs::symlink_metadata(path).ok()?.st_ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in_line(line, inode))
}

/// Reads `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. The device is not compared: on some file
/// systems stat(2) gives another one than the kernel's own.
fn holder_in_line(line: &str, inode: u64) -> Option<i32> {
    let mut fields = line.split_whitespace().skip(1);
    if fields.next() != Some("FLOCK") {
        return None;
    }
    let pid = fields.nth(2)?.parse().ok()?;
    let found: u64 = fields.next()?.rsplit(':').next()?.parse().ok()?;
    (found == inode && pid > 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_found_by_inode() {
        assert_eq!(holder_in_line("1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF", 1234), Some(4711));
        assert_eq!(holder_in_line("1: FLOCK  ADVISORY  WRITE 4711 08:01:1235 0 EOF", 1234), None);
        assert_eq!(holder_in_line("2: POSIX  ADVISORY  WRITE 4711 08:01:1234 0 EOF", 1234), None);
        assert_eq!(holder_in_line("1: -> FLOCK  ADVISORY  WRITE 12 08:01:1234 0 EOF", 1234), None);
        assert_eq!(holder_in_line("", 1234), None);
    }

    #[test]
    fn a_held_lock_is_waited_for_and_then_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = CatalogLock::take(&path, Duration::ZERO).unwrap();
        let error = CatalogLock::take(&path, Duration::from_millis(30)).unwrap_err();
        let LockError::Held { pid, .. } = &error else { panic!("{error}") };
        assert_eq!(*pid, Some(std::process::id() as i32), "{error}");
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || CatalogLock::take(&path, Duration::from_secs(10)).map(drop)
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
        waiter.join().unwrap().unwrap();
    }
}
