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

use std::io::Write;

pub use wrapper::run;

/// Exit status of Lazaret's own failures.
pub const FAILED: u8 = 125;

/// A step of starting a session that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {cause}")]
pub(crate) struct SessionError {
    /// What was tried.
    step: &'static str,
    /// Why it failed.
    cause: std::io::Error,
}

/// Gives a function that says which step an error belongs to.
fn step<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> SessionError {
    move |cause| SessionError { step, cause: cause.into() }
}

/// Writes one line for the user to standard error; nothing can be done when that fails.
pub(super) fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("lazaret: {text}\n").as_bytes());
}
