//! The executable inside the sandbox. See [`lazaret::guest`].

use std::process::ExitCode;

fn main() -> ExitCode {
    // A panic is a failure of Lazaret's own, told apart from anything that a command may return.
    let status = std::panic::catch_unwind(lazaret::guest::run).unwrap_or(lazaret::guest::session::FAILED);
    ExitCode::from(status)
}
