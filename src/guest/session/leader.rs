//! Process 1 of a session's pid namespace.
//!
//! **A stopped command.** The session's own command has no shell above it that could resume it.
//! A shell never comes here: it ignores SIGTSTP, and its jobs stop and go on under its own eyes.
//! But `lazaret up -- vim` with `:suspend`, or a program that answers ^Z with SIGSTOP, would leave a
//! terminal that answers to nothing. Over ssh the kernel discards such a stop, since the process
//! group is an orphan; here the leader, which belongs to the same terminal session, sees it, says so
//! on the terminal and continues the command, which then draws its screen again. A command that
//! was stopped because it touched the terminal from the background gets the foreground first.
//!
//! **The end.** When the command ended, what it left behind may finish for a moment (think of
//! `exec > >(tee log)`), is then asked to end by SIGTERM, and after another moment dies with this process.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, tcsetpgrp};

use super::signals::{Change, Signals, Wake, reap, send};
use super::{FAILED, SessionError, command, say, step};
use crate::domain::runtime::GuestProcess;
use crate::sys::guest::until_exec;

/// How long what a command left behind may go on undisturbed.
const FINISH: Duration = Duration::from_millis(100);

/// How long it then has to react to SIGTERM.
const TERMINATE: Duration = Duration::from_millis(50);

/// How long the rest of a group gets to stop as well, when the command was stopped: one that is continued
/// too early would stop after that, unseen, since it need not be a child of the leader.
const SETTLE: Duration = Duration::from_millis(20);

/// How often a session is told that its stopped command was continued.
const NOTICES: u32 = 3;

/// What a stopped command's user is told.
const NOTICE: &[u8] = b"\r\nlazaret: stopped, but there is no shell to return to: continued\r\n";

/// Runs the session's command and gives its exit status. `wrapper` is a pipe's end that reports
/// a hang-up when the wrapper is gone.
pub(super) fn run(process: &GuestProcess, signals: Signals, wrapper: OwnedFd) -> u8 {
    match start(process, wrapper) {
        Ok(command) => {
            if !process.interactive {
                leave_streams();
            }
            let status = wait_for(signals, command, process.interactive);
            finish(signals);
            status
        }
        Err(error) => {
            say(&error.to_string());
            FAILED
        }
    }
}

/// Ties this process to the wrapper, gives the session its `/proc` and starts the command.
fn start(process: &GuestProcess, wrapper: OwnedFd) -> Result<i32, SessionError> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(step("tie the session to its wrapper"))?;
    // The wrapper may have died before that; its end of the pipe tells.
    let mut watched = [PollFd::new(wrapper.as_fd(), PollFlags::POLLIN)];
    if poll(&mut watched, PollTimeout::ZERO) != Ok(0) {
        return Err(step("start")(Errno::ESRCH));
    }
    drop(wrapper);
    let _ = prctl::set_name(c"lazaret-session");
    mount_proc().map_err(step("mount the session's /proc"))?;
    until_exec(|| command::run(process)).map_err(step("start the session's command"))
}

/// Replaces `/proc` by that of the session's pid namespace, for this mount namespace only.
fn mount_proc() -> nix::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    // Were the sandbox's own /proc left beneath, an unmount would show every session again.
    let _ = umount2("/proc", MntFlags::MNT_DETACH);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none)
}

/// Reaps until the command ended.
fn wait_for(signals: Signals, command: i32, interactive: bool) -> u8 {
    let mut notices = if interactive { NOTICES } else { 0 };
    loop {
        match signals.wait() {
            Wake::Forward(signal) => send(-command, signal),
            Wake::Other => {}
            Wake::Child => loop {
                match reap() {
                    Ok(Some((pid, Change::Ended(status)))) if pid == command => return status,
                    Ok(Some((pid, Change::Stopped(signal)))) if pid == command => {
                        resume(command, signal, interactive, &mut notices);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return FAILED,
                }
            },
        }
    }
}

/// Continues a stopped command.
fn resume(command: i32, stop: i32, interactive: bool, notices: &mut u32) {
    std::thread::sleep(SETTLE);
    let background = [Signal::SIGTTIN, Signal::SIGTTOU].iter().any(|&signal| stop == signal as i32);
    if background {
        let group = Pid::from_raw(command);
        // Without the terminal it would stop again at once, for ever.
        if !interactive || tcsetpgrp(std::io::stderr(), group).is_err() {
            return;
        }
    } else if *notices > 0 {
        *notices -= 1;
        let _ = nix::unistd::write(std::io::stderr(), NOTICE);
    }
    send(-command, Signal::SIGCONT);
}

/// Lets go of the standard streams, so that only the command and its children hold them.
fn leave_streams() {
    for stream in 0..=2 {
        let _ = nix::unistd::close(stream);
    }
}

/// Waits a bounded time for what the command left behind.
fn finish(signals: Signals) {
    if wait_for_rest(signals, FINISH) {
        return;
    }
    send(-1, Signal::SIGTERM);
    send(-1, Signal::SIGCONT);
    wait_for_rest(signals, TERMINATE);
}

/// Reaps until no process is left, which it tells by `true`, or the time is over.
fn wait_for_rest(signals: Signals, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let mut events = None;
    loop {
        match reap() {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => continue,
            Ok(None) => {}
            Err(_) => return true,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = PollTimeout::try_from(left) else { return false };
        if left.is_zero() {
            return false;
        }
        if events.is_none() {
            events = SignalFd::with_flags(signals.set(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok();
        }
        let Some(events) = &events else { return false };
        let mut watched = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut watched, timeout);
        while let Ok(Some(_)) = events.read_signal() {}
    }
}
