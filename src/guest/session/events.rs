//! What a process without handlers waits for: its signals, all blocked and taken one at a time, and in a
//! session the lifeline.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::wire::lifeline;

/// Signals that a wrapper hands on to the session's command. SIGCONT is none of them: it only undoes a ^Z that
/// was typed before the wrapper could block it.
const FORWARDED: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
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
    /// The Runtime Supervisor's end of the lifeline is closed. Told once.
    Hangup,
    /// A signal without a meaning here.
    Other,
}

/// Everything that this process waits for.
#[derive(Debug)]
pub(in crate::guest) struct Events {
    signals: SignalFd,
    lifeline: Option<UnixStream>,
    hung_up: bool,
}

impl Events {
    /// Blocks every signal that is not fatal by nature.
    pub(in crate::guest) fn block(lifeline: Option<UnixStream>) -> nix::Result<Self> {
        let mut set = SigSet::all();
        FATAL.iter().for_each(|&signal| set.remove(signal));
        set.thread_set_mask()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { signals, lifeline, hung_up: false })
    }

    /// Sends a byte over the lifeline. Nobody may be there to take it any more.
    pub(super) fn tell(&mut self, byte: u8) {
        if let Some(lifeline) = &mut self.lifeline {
            let _ = lifeline.write_all(&[byte]);
        }
    }

    /// Waits for the order to begin; tells whether it came. Signals wait meanwhile.
    pub(super) fn begun(&mut self) -> bool {
        let mut byte = [0];
        let read = self.lifeline.as_mut().map(|lifeline| lifeline.read_exact(&mut byte));
        matches!(read, Some(Ok(()))) && byte == [lifeline::BEGIN]
    }

    /// Sleeps until something happens; nothing when `deadline` passed before.
    pub(in crate::guest) fn next(&mut self, deadline: Option<Instant>) -> Option<Wake> {
        loop {
            if let Ok(Some(signal)) = self.signals.read_signal() {
                // A realtime signal has no name in `Signal`.
                let signal = i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
                return Some(signal.map_or(Wake::Other, classify));
            }
            let timeout = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => PollTimeout::NONE,
                Some(left) if left.is_zero() => return None,
                Some(left) => PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
            };
            let lifeline = self.lifeline.as_ref().filter(|_| !self.hung_up);
            let mut watched = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            watched.extend(lifeline.map(|lifeline| PollFd::new(lifeline.as_fd(), PollFlags::POLLIN)));
            let _ = poll(&mut watched, timeout);
            if watched.get(1).is_some_and(|lifeline| lifeline.any().unwrap_or(true)) {
                // The supervisor says nothing more after BEGIN.
                let read = self.lifeline.as_mut().map(|lifeline| lifeline.read(&mut [0]));
                self.hung_up = !matches!(read, Some(Ok(1..)));
                if self.hung_up {
                    return Some(Wake::Hangup);
                }
            }
        }
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
