//! `lazaret-guest session`: one session's command, with whoever keeps its process tree together.
//!
//! ```text
//! runsc exec ─ wrapper      leads the terminal's session; hands signals in and the status out
//!                └─ command  own process group, in the foreground of the terminal
//!                     └─ …   whoever loses its parent becomes the wrapper's child
//! ```
//!
//! The wrapper is the subreaper of all that descends from it (PR_SET_CHILD_SUBREAPER(2const)), so that
//! nothing that the command starts, however it is daemonised, gets out of its reach: when the session
//! ends, [`tree`] kills it all. Should the wrapper itself be killed, what is left behind becomes init's
//! child, and [`init`](super::init) does the same when it is told to.
//!
//! All sessions are in the sandbox's one pid namespace. In a namespace of its own, which would do the
//! killing in one stroke, a session's shell is not in that of its terminal session's leader, which
//! runsc starts in the sandbox's; this gVisor then makes a process group anew when both a shell and
//! its child set it, as all do, and the terminal stays with the old one (journal 0008).
//!
//! [`lifeline`](crate::wire::lifeline) is how the Runtime Supervisor lets the command begin and has the session end.

mod command;
pub(in crate::guest) mod events;
mod exec;
mod privileges;
pub(in crate::guest) mod tree;
mod wrapper;

use nix::errno::Errno;

pub use wrapper::run;

/// Exit status of Lazaret's own failures.
pub const FAILED: u8 = 125;

/// A step of starting a session that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {reason}")]
struct SessionError {
    /// What was tried.
    step: &'static str,
    /// Why it failed.
    reason: String,
}

/// Gives a function that says which step an error belongs to.
fn step<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> SessionError {
    move |cause| {
        let cause = cause.into();
        let errno = cause.raw_os_error().map(|number| Errno::from_raw(number).desc().to_lowercase());
        SessionError { step, reason: errno.unwrap_or_else(|| cause.to_string()) }
    }
}

/// Writes one line for the user to standard error; nothing can be done when that fails. It does not
/// lock the stream, since the process that holds the lock may be killed in the middle.
pub(super) fn say(text: &str) {
    let _ = nix::unistd::write(std::io::stderr(), format!("lazaret: {text}\n").as_bytes());
}
