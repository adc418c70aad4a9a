//! The session's command, from its first moment, in the wrapper's memory, to the `execve`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use nix::sys::signal::SigSet;
use nix::unistd::{Gid, Pid, Uid, chdir, fchown, getpid, setpgid, tcsetpgrp};

use super::{FAILED, SessionError, exec, privileges, say, step};
use crate::domain::runtime::GuestProcess;
use crate::sys::guest::{close_on_exec_from, stay_until_exec};

/// Becomes the command. Returns only when that fails: the exit status, after a message.
pub(super) fn run(process: &GuestProcess) -> u8 {
    if let Err(error) = prepare(process) {
        say(&error.to_string());
        return FAILED;
    }
    if let Err(error) = chdir(OsStr::from_bytes(&process.directory)) {
        let reason = error.desc().to_lowercase();
        say(&format!("cannot enter directory '{}': {reason}", exec::printable(&process.directory)));
        return FAILED;
    }
    let failure = exec::replace(&process.argv, &process.env);
    say(&failure.to_string());
    if let Some(hint) = failure.hint() {
        say(&format!("hint: {hint}"));
    }
    failure.status()
}

/// Takes the foreground, gives up what the command must not have, and restores what it expects.
fn prepare(process: &GuestProcess) -> Result<(), SessionError> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(step("make a process group"))?;
    if process.interactive {
        // From a background group this raises SIGTTOU, which is blocked here, as is everything.
        tcsetpgrp(std::io::stdin(), getpid()).map_err(step("take the terminal's foreground"))?;
    }
    own_streams(process);
    privileges::drop_to(process)?;
    close_on_exec_from(3).map_err(step("mark inherited descriptors"))?;
    stay_until_exec();
    SigSet::empty().thread_set_mask().map_err(step("unblock signals"))
}

/// Gives the standard streams to the command's user. The sandbox keeps an owner of its own for
/// each, which is who runsc started; another could not open `/dev/tty` or `/dev/stdout`. The owner on
/// the host is not touched, and a stream that refuses is no reason not to run the command.
fn own_streams(process: &GuestProcess) {
    let owner = (Some(Uid::from_raw(process.uid)), Some(Gid::from_raw(process.gid)));
    let _ = fchown(std::io::stdin(), owner.0, owner.1);
    let _ = fchown(std::io::stdout(), owner.0, owner.1);
    let _ = fchown(std::io::stderr(), owner.0, owner.1);
}
