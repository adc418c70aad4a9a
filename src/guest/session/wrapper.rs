//! The process that runsc starts for a session.

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::pipe2;

use super::signals::{FORWARDED, Signals};
use super::{FAILED, SessionError, leader, say, step};
use crate::domain::runtime::GuestProcess;
use crate::sys::guest::beside;

/// Runs a session's process and gives its exit status.
pub fn run(process: &GuestProcess) -> u8 {
    run_session(process).unwrap_or_else(|error| {
        say(&error.to_string());
        FAILED
    })
}

/// Makes the namespaces, starts the leader and waits for it.
fn run_session(process: &GuestProcess) -> Result<u8, SessionError> {
    let signals = Signals::block().map_err(step("block signals"))?;
    let namespaces = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    unshare(namespaces).map_err(step("make the session's namespaces"))?;
    // The kernel closes the lifeline when this process ends.
    let (watched, lifeline) = pipe2(OFlag::O_CLOEXEC).map_err(step("make a pipe"))?;
    let leader = move || {
        drop(lifeline);
        leader::run(process, signals, watched)
    };
    beside(signals.set(), FORWARDED, leader).map_err(step("start the session's leader"))
}
