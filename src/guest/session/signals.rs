//! Signals, taken one at a time from a blocked set instead of by handlers.

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

/// Signals that a wrapper or leader hands on to the session's command.
pub(super) const FORWARDED: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// Signals that say that the process itself is broken; blocking them would hide that.
const FATAL: &[Signal] = &[
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGSYS,
];

/// Something that woke a waiting process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Wake {
    /// A child ended or stopped.
    Child,
    /// A signal to be handed on.
    Forward(Signal),
    /// A signal without a meaning here.
    Other,
}

/// The blocked signals of this process.
#[derive(Debug, Clone, Copy)]
pub(in crate::guest) struct Signals(SigSet);

impl Signals {
    /// Blocks every signal that is not fatal by nature.
    pub(in crate::guest) fn block() -> nix::Result<Self> {
        let mut set = SigSet::all();
        FATAL.iter().for_each(|&signal| set.remove(signal));
        set.thread_set_mask()?;
        Ok(Self(set))
    }

    /// Sleeps until a signal arrives.
    pub(in crate::guest) fn wait(self) -> Wake {
        // A realtime signal has no name in `Signal` and comes back as an error, already taken.
        self.0.wait().map_or(Wake::Other, classify)
    }

    /// Gives the set.
    pub(in crate::guest) fn set(&self) -> &SigSet {
        &self.0
    }
}

/// Says what a signal means to a waiting process.
fn classify(signal: Signal) -> Wake {
    match signal {
        Signal::SIGCHLD => Wake::Child,
        signal if FORWARDED.contains(&signal) => Wake::Forward(signal),
        _ => Wake::Other,
    }
}

/// Sends a signal to one process, or with a negative id to a group; a target that is gone is fine.
pub(super) fn send(target: i32, signal: Signal) {
    let _ = nix::sys::signal::kill(Pid::from_raw(target), signal);
}

/// What became of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Change {
    /// It ended; its exit status as a shell reports it.
    Ended(u8),
    /// It was stopped by a signal.
    Stopped(i32),
}

/// Takes what one child did, if any did something: its id and what became of it. `None` when no
/// child has news; an error when there is no child.
pub(in crate::guest) fn reap() -> rustix::io::Result<Option<(i32, Change)>> {
    use rustix::process::{WaitOptions, wait};
    let Some((pid, status)) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED)? else { return Ok(None) };
    let change = match status.stopping_signal() {
        Some(signal) => Change::Stopped(signal),
        None => Change::Ended(shell_status(status.exit_status(), status.terminating_signal())),
    };
    Ok(Some((pid.as_raw_nonzero().get(), change)))
}

/// Gives the exit status that a shell reports for a process that exited or died of a signal.
fn shell_status(exited: Option<i32>, signal: Option<i32>) -> u8 {
    let code = exited.or_else(|| signal.map(|signal| 128 + signal)).unwrap_or(i32::from(u8::MAX));
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_meaningful_signals_are_handed_on() {
        assert_eq!(classify(Signal::SIGCHLD), Wake::Child);
        assert_eq!(classify(Signal::SIGTERM), Wake::Forward(Signal::SIGTERM));
        assert_eq!(classify(Signal::SIGALRM), Wake::Other);
    }

    #[test]
    fn statuses_are_told_as_a_shell_tells_them() {
        assert_eq!(shell_status(Some(0), None), 0);
        assert_eq!(shell_status(Some(255), None), 255);
        assert_eq!(shell_status(None, Some(9)), 137);
        assert_eq!(shell_status(None, Some(64)), 192);
    }
}
