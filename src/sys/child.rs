//! Child processes held by pidfd (pidfd_open(2)): no process id is ever signalled after its reuse.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};
use tokio::io::{Interest, Ready};

use super::readiness;

/// A child of this process that it alone waits for. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
}

impl Child {
    /// Takes a child that nobody else waits for.
    pub(super) fn new(pid: i32, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd, status: None }
    }

    /// Gives the process id in this process's pid namespace. It stays the child's until it is waited for.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Gives the pidfd; it becomes readable when the child ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits until the child ends. Cancelling the future loses nothing.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        ended(self.pidfd.as_fd()).await?;
        self.wait_blocking()
    }

    /// Waits until the child ends, blocking this thread.
    pub fn wait_blocking(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.reap(WaitIdOptions::EXITED)? {
                return Ok(status);
            }
        }
    }

    /// Gives the exit status when the child has ended, without waiting.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.reap(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    /// Sends SIGKILL. A child that has ended is not an error.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal. A child that has ended is not an error.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // The only failure for a child of ours is ESRCH: it has ended already.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    fn reap(&mut self, options: WaitIdOptions) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let seen = rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(self.pidfd.as_fd()), options))?;
            self.status = seen.map(exit_status);
        }
        Ok(self.status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !matches!(self.try_wait(), Ok(None)) {
            return;
        }
        self.kill();
        // The end may take a moment, for the first process of a pid namespace as long as its last
        // member takes. A thread waits for it, so that neither a zombie nor a stalled caller results.
        if let Ok(pidfd) = self.pidfd.try_clone() {
            let wait = move || {
                let _ = rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED));
            };
            let _ = std::thread::Builder::new().name("reaper".into()).stack_size(64 << 10).spawn(wait);
        }
    }
}

/// Waits until the process behind a pidfd has ended, whether or not it is a child.
pub async fn ended(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    let watch = readiness::watch(pidfd.try_clone_to_owned()?, Interest::READABLE)?;
    loop {
        let mut ready = watch.readable().await?;
        if has_ended(watch.get_ref().as_fd())? {
            return Ok(());
        }
        ready.clear_ready_matching(Ready::READABLE);
    }
}

/// Tells whether the process behind a pidfd has ended, without waiting.
pub fn has_ended(pidfd: BorrowedFd<'_>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now)))?;
    Ok(fds[0].revents().contains(PollFlags::IN))
}

fn exit_status(seen: WaitIdStatus) -> ExitStatus {
    match (seen.exit_status(), seen.terminating_signal()) {
        (Some(code), _) => ExitStatus::from_raw((code & 0xff) << 8),
        // Bit 7 says that a core was dumped (wait(2)).
        (None, Some(signal)) => ExitStatus::from_raw((signal & 0x7f) | if seen.dumped() { 0x80 } else { 0 }),
        (None, None) => ExitStatus::from_raw(0),
    }
}

impl AsRawFd for Child {
    fn as_raw_fd(&self) -> i32 {
        self.pidfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::process::{LauncherCommand, fork_launcher};
    use std::path::PathBuf;

    fn shell(script: &str) -> Child {
        let command = LauncherCommand {
            executable: PathBuf::from("/bin/sh"),
            argv: ["sh", "-c", script].map(Into::into).to_vec(),
            env: Vec::new(),
            fds: Vec::new(),
        };
        fork_launcher(command).unwrap().launch().unwrap()
    }

    #[tokio::test]
    async fn wait_tells_an_exit_from_a_signal() {
        assert_eq!(shell("exit 7").wait().await.unwrap().code(), Some(7));
        assert_eq!(shell("kill -TERM $$").wait().await.unwrap().signal(), Some(15));
        let mut sleeper = shell("exec sleep 100");
        assert_eq!(sleeper.try_wait().unwrap(), None);
        sleeper.kill();
        assert_eq!(sleeper.wait().await.unwrap().signal(), Some(9));
        assert_eq!(sleeper.wait().await.unwrap().signal(), Some(9), "asking again gives the same");
    }

    #[tokio::test]
    async fn dropping_kills() {
        let sleeper = shell("exec sleep 100");
        let pidfd = sleeper.pidfd().try_clone_to_owned().unwrap();
        drop(sleeper);
        tokio::time::timeout(std::time::Duration::from_secs(5), ended(pidfd.as_fd())).await.unwrap().unwrap();
    }
}
