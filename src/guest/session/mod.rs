//! `lazaret-guest session`: one session's process in a pid namespace of its own.
//!
//! ```text
//! runsc exec ─ wrapper            what runsc started: passes signals in and the status out
//!                └─ leader        process 1 of the session's pid namespace, with its own /proc: reaps
//!                     └─ command  own process group, in the foreground of the terminal
//! ```
//!
//! The leader dies with the wrapper (PDEATHSIG), and a pid namespace dies with its process 1, so
//! one SIGKILL of the wrapper ends everything that the session ever started, however it was
//! daemonised, and nothing else.

mod command;
mod exec;
mod leader;
mod privileges;
pub(in crate::guest) mod signals;
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
