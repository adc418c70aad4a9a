//! Waiting for a pid file without polling, by inotify(7).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys::readiness;

/// A pid file that a process of ours will write.
///
/// runsc writes the file in place or renames it there, depending on its version; both end with an event
/// after which the content is complete.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    events: AsyncFd<OwnedFd>,
}

impl PidFile {
    /// Watches for the file. Called before its writer is started; its directory must exist.
    pub fn watch(path: PathBuf) -> io::Result<Self> {
        let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        add_watch(&events, directory, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO)?;
        Ok(Self { path, events: readiness::watch(events, Interest::READABLE)? })
    }

    /// Waits until the file holds a process id.
    pub async fn written(&self) -> io::Result<i32> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); 1024];
            let mut reader = Reader::new(self.events.get_ref(), &mut buffer);
            while reader.next().is_ok() {}
            ready.clear_ready();
            if let Some(pid) = self.read() {
                return Ok(pid);
            }
        }
    }

    /// Gives the process id when the file holds one already.
    pub fn read(&self) -> Option<i32> {
        read(&self.path)
    }
}

fn read(path: &Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_file_is_seen_when_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let file = PidFile::watch(path.clone()).unwrap();
        assert_eq!(file.read(), None);
        std::fs::write(directory.path().join("other"), "7").unwrap();
        std::fs::write(&path, "").unwrap();
        std::fs::write(&path, "42").unwrap();
        let pid = tokio::time::timeout(Duration::from_secs(5), file.written()).await.unwrap();
        assert_eq!(pid.unwrap(), 42);
    }
}
