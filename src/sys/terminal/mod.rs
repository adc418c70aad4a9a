//! The developer's terminal in raw mode, and its way back on every exit.
//!
//! What was changed is remembered in the process, not only in the guard, so that a panic hook, a
//! signal handler and exit(3) can undo it: see [`guard_exits`] and [`restore_all`]. Besides the
//! line discipline that concerns modes of the terminal itself, which programs in the session
//! switch by escape sequences and cannot switch back once the session is lost: see [`modes`].
//!
//! SIGKILL of this very process cannot be survived from inside: `stty sane` and `reset` mend a
//! terminal after that.

pub mod modes;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The terminal as it was found. Once published in [`SAVED`] it is never freed: a signal handler
/// may be reading it.
struct Saved {
    terminal: OwnedFd,
    attributes: Termios,
}

static SAVED: AtomicPtr<Saved> = AtomicPtr::new(null_mut());

/// A terminal in raw mode; dropping it restores the terminal.
#[derive(Debug)]
#[must_use = "the terminal is restored when this is dropped"]
pub struct RawMode(());

impl RawMode {
    /// Puts a terminal into raw mode. One terminal at a time: entering again first restores.
    pub fn enter(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        restore_all();
        guard_exits();
        let attributes = tcgetattr(terminal)?;
        let mut raw = attributes.clone();
        raw.make_raw();
        let saved = Box::new(Saved { terminal: terminal.try_clone_to_owned()?, attributes });
        // Published before the change: an exit in between restores what is not changed yet.
        SAVED.store(Box::into_raw(saved), Ordering::Release);
        let guard = Self(());
        tcsetattr(terminal, OptionalActions::Now, &raw)?;
        Ok(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore_all();
    }
}

/// Restores the terminal if it is in raw mode, and switches off what sessions left switched on.
/// Async-signal-safe; the second and later calls do nothing.
pub fn restore_all() {
    let saved = SAVED.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: a pointer in SAVED comes from a leaked box, is never freed, and is not changed after
    // it was published.
    let Some(saved) = (unsafe { saved.as_ref() }) else { return };
    // From the background the change would otherwise stop this process (termios(3), SIGTTOU).
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let mask = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    switch_off_modes(&saved.terminal);
    let _ = tcsetattr(&saved.terminal, OptionalActions::Now, &saved.attributes);
    if let Ok(mask) = mask {
        let _ = mask.thread_set_mask();
    }
}

fn switch_off_modes(terminal: &OwnedFd) {
    for sequence in modes::take_resets() {
        // A terminal that takes nothing any more must not hold the exit up.
        let mut fds = [PollFd::new(terminal, PollFlags::OUT)];
        let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 }));
        if !matches!(ready, Ok(1)) || rustix::io::write(terminal, sequence).is_err() {
            return;
        }
    }
}

/// Makes sure, once for the process, that a panic, exit(3) and a crash restore the terminal first.
///
/// Signals that ask a process to end are left to its own handling, which must let the guard drop or
/// call [`restore_all`].
pub fn guard_exits() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_all();
            report(panic);
        }));
        extern "C" fn at_exit() {
            restore_all();
        }
        // SAFETY: the function takes nothing, does not unwind, and lives as long as the program.
        unsafe { libc::atexit(at_exit) };
        for (signal, previous) in CRASHES.iter().zip(&PREVIOUS) {
            guard_crash(*signal, previous);
        }
    });
}

const CRASHES: [Signal; 5] = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGILL, Signal::SIGFPE, Signal::SIGABRT];

/// The handlers that were there before, among them Rust's own for stack overflow; leaked, as SAVED.
static PREVIOUS: [AtomicPtr<SigAction>; 5] = [const { AtomicPtr::new(null_mut()) }; 5];

fn guard_crash(signal: Signal, previous: &AtomicPtr<SigAction>) {
    let action = SigAction::new(SigHandler::Handler(crashed), SaFlags::SA_ONSTACK, SigSet::empty());
    // SAFETY: the handler makes only async-signal-safe calls.
    if let Ok(found) = unsafe { sigaction(signal, &action) } {
        previous.store(Box::into_raw(Box::new(found)), Ordering::Release);
    }
}

/// Restores, then lets the signal do what it would have done.
extern "C" fn crashed(number: libc::c_int) {
    restore_all();
    let found = CRASHES.iter().zip(&PREVIOUS).find(|(signal, _)| **signal as libc::c_int == number);
    if let Some((signal, previous)) = found {
        // SAFETY: as for SAVED: leaked, never freed, unchanged once published.
        if let Some(previous) = unsafe { previous.load(Ordering::Acquire).as_ref() } {
            // SAFETY: puts back an action that was installed before.
            let _ = unsafe { sigaction(*signal, previous) };
        }
        // Comes when this handler returns and the signal is no longer blocked.
        let _ = nix::sys::signal::raise(*signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::session::WindowSize;
    use crate::sys::pty;
    use rustix::termios::LocalModes;
    use std::os::fd::AsFd;

    fn is_raw(terminal: &OwnedFd) -> bool {
        !tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    #[test]
    fn the_guard_restores() {
        let _turn = modes::tests::turn();
        let pty = pty::open(WindowSize { rows: 24, columns: 80 }).unwrap();
        let guard = RawMode::enter(pty.slave.as_fd()).unwrap();
        assert!(is_raw(&pty.slave));
        drop(guard);
        assert!(!is_raw(&pty.slave));
    }

    #[test]
    fn a_panic_restores_before_it_unwinds() {
        let _turn = modes::tests::turn();
        let pty = pty::open(WindowSize { rows: 24, columns: 80 }).unwrap();
        let slave = pty.slave.try_clone().unwrap();
        let caught = std::panic::catch_unwind(|| {
            let guard = RawMode::enter(slave.as_fd()).unwrap();
            std::mem::forget(guard);
            panic!("on purpose, so that the hook runs");
        });
        assert!(caught.is_err());
        assert!(!is_raw(&pty.slave));
    }

    #[test]
    fn what_a_session_left_on_is_switched_off() {
        let _turn = modes::tests::turn();
        let pty = pty::open(WindowSize { rows: 24, columns: 80 }).unwrap();
        let guard = RawMode::enter(pty.slave.as_fd()).unwrap();
        modes::OutputModes::default().observe(b"\x1b[?1049h\x1b[?25l");
        drop(guard);
        let mut shown = [0u8; 64];
        let length = rustix::io::read(&pty.master, &mut shown).unwrap();
        assert!(shown[..length].starts_with(b"\x1b["), "{:?}", &shown[..length]);
    }
}
