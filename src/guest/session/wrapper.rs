//! The process that runsc starts for a session.

use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, pipe2};

use super::signals::{Change, Signals, Wake, reap, send};
use super::{FAILED, SessionError, leader, say, step};
use crate::domain::runtime::GuestProcess;
use crate::sys::guest::fork_single_threaded;

/// Runs a session's process and gives its exit status.
pub fn run(process: &GuestProcess) -> u8 {
    match start(process) {
        Ok(Running { signals, leader, lifeline: _lifeline }) => {
            leave_streams();
            wait_for(signals, leader)
        }
        Err(error) => {
            say(&error.to_string());
            FAILED
        }
    }
}

/// A session that was started.
struct Running {
    /// This process's signals.
    signals: Signals,
    /// The leader.
    leader: i32,
    /// Closed by the kernel when this process ends.
    lifeline: OwnedFd,
}

/// Makes the namespaces and forks the leader, which does not return from here.
fn start(process: &GuestProcess) -> Result<Running, SessionError> {
    let signals = Signals::block().map_err(step("block signals"))?;
    let namespaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    unshare(namespaces).map_err(step("make the session's namespaces"))?;
    let (watched, lifeline) = pipe2(OFlag::O_CLOEXEC).map_err(step("make a pipe"))?;
    match fork_single_threaded().map_err(step("fork the session's leader"))? {
        ForkResult::Parent { child } => Ok(Running { signals, leader: child.as_raw(), lifeline }),
        ForkResult::Child => {
            drop(lifeline);
            std::process::exit(leader::run(process, signals, watched).into())
        }
    }
}

/// Sleeps until the leader ended; signals that arrive meanwhile go to it.
fn wait_for(signals: Signals, leader: i32) -> u8 {
    loop {
        match signals.wait() {
            Wake::Forward(signal) => send(leader, signal),
            Wake::Other => {}
            Wake::Child => loop {
                match reap() {
                    Ok(Some((pid, Change::Ended(status)))) if pid == leader => return status,
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return FAILED,
                }
            },
        }
    }
}

/// Lets go of the standard streams, so that only the session's own processes hold them.
pub(super) fn leave_streams() {
    for stream in 0..=2 {
        let _ = nix::unistd::close(stream);
    }
}
