//! The process that runsc starts for a session.
//!
//! **A stopped command.** The session's own command has no shell above it that could resume it.
//! A shell never comes here: it ignores SIGTSTP, and its jobs stop and go on under its own eyes.
//! But `lazaret up -- vim` with `:suspend`, or a program that answers ^Z with SIGSTOP, would leave a
//! terminal that answers to nothing. Over ssh the kernel discards such a stop, since the process
//! group is an orphan; here the wrapper, which belongs to the same terminal session, sees it, says so
//! on the terminal and continues the command, which then draws its screen again. A command that
//! was stopped because it touched the terminal from the background gets the foreground first.
//!
//! **The end.** When the command ended, what it left behind may finish for a moment (think of
//! `exec > >(tee log)`), is then asked to end by SIGTERM, and after another moment is killed. When the
//! Runtime Supervisor ends the session, all of it is killed at once.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, tcsetpgrp};

use super::events::{Change, Events, Wake, reap, send};
use super::{FAILED, SessionError, command, say, step, tree};
use crate::domain::runtime::GuestProcess;
use crate::sys::guest::until_exec;
use crate::wire::lifeline;

/// How long what a command left behind may go on undisturbed.
const FINISH: Duration = Duration::from_millis(100);

/// How long it then has to react to SIGTERM.
const TERMINATE: Duration = Duration::from_millis(50);

/// How long the rest of a group gets to stop as well, when the command was stopped: one that is continued
/// too early would stop after that, unseen, since it need not be a child of the wrapper.
const SETTLE: Duration = Duration::from_millis(20);

/// How often a session is told that its stopped command was continued.
const NOTICES: u32 = 3;

/// What a stopped command's user is told.
const NOTICE: &[u8] = b"\r\nlazaret: stopped, but there is no shell to return to: continued\r\n";

/// Exit status of a session that was ended by order: that of a command ended by SIGKILL.
const KILLED: u8 = 128 + Signal::SIGKILL as u8;

/// Runs a session's command and gives its exit status. `lifeline` leads to the Runtime Supervisor.
pub fn run(process: &GuestProcess, lifeline: UnixStream) -> u8 {
    let mut events = match prepare(lifeline) {
        Ok(events) => events,
        Err(error) => return failed(&error),
    };
    let status = match events.begun() {
        false => KILLED,
        true => match until_exec(|| command::run(process)).map_err(step("start the session's command")) {
            Ok(command) => carry(process, command, &mut events),
            Err(error) => failed(&error),
        },
    };
    events.tell(lifeline::ENDED);
    status
}

fn failed(error: &SessionError) -> u8 {
    say(&error.to_string());
    FAILED
}

/// Makes this process what it has to be before anything may happen to it.
fn prepare(lifeline: UnixStream) -> Result<Events, SessionError> {
    let mut events = Events::block(Some(lifeline)).map_err(step("block signals"))?;
    let _ = prctl::set_name(c"lazaret-session");
    prctl::set_child_subreaper(true).map_err(step("keep the session's processes together"))?;
    events.tell(lifeline::READY);
    Ok(events)
}

/// Sees the command and what it started to their end.
fn carry(process: &GuestProcess, command: i32, events: &mut Events) -> u8 {
    if !process.interactive {
        leave_streams();
    }
    match wait_for(events, command, process) {
        Some(status) => {
            finish(events);
            status
        }
        None => {
            tree::end(events);
            KILLED
        }
    }
}

/// Reaps until the command has ended, and gives its status; nothing when the session is to end.
fn wait_for(events: &mut Events, command: i32, process: &GuestProcess) -> Option<u8> {
    let mut notices = if process.interactive { NOTICES } else { 0 };
    loop {
        match events.next(None) {
            Some(Wake::Forward(signal)) => send(-command, signal),
            Some(Wake::Hangup) => return None,
            Some(Wake::Other) | None => {}
            Some(Wake::Child) => loop {
                match reap() {
                    Ok(Some((pid, Change::Ended(status)))) if pid == command => return Some(status),
                    Ok(Some((pid, Change::Stopped(signal)))) if pid == command => {
                        resume(command, signal, process, &mut notices);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return Some(FAILED),
                }
            },
        }
    }
}

/// Continues a stopped command.
fn resume(command: i32, stop: i32, process: &GuestProcess, notices: &mut u32) {
    std::thread::sleep(SETTLE);
    let background = [Signal::SIGTTIN, Signal::SIGTTOU].iter().any(|&signal| stop == signal as i32);
    if background {
        let group = Pid::from_raw(command);
        // Without the terminal it would stop again at once, for ever.
        if !process.interactive || tcsetpgrp(std::io::stderr(), group).is_err() {
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

/// Gives what the command left behind its time, then ends it.
fn finish(events: &mut Events) {
    if rest_ends(events, FINISH) {
        return;
    }
    tree::terminate();
    if !rest_ends(events, TERMINATE) {
        tree::end(events);
    }
}

/// Reaps until no process is left, which it tells by `true`, or the time is over, or the session is to end.
fn rest_ends(events: &mut Events, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        match reap() {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => continue,
            Ok(None) => {}
            Err(_) => return true,
        }
        if matches!(events.next(Some(deadline)), None | Some(Wake::Hangup)) {
            return false;
        }
    }
}
