//! The Client CLI, which is also the Host Coordinator and the Runtime Supervisor when it is
//! executed again with a hidden first argument.
//!
//! The hidden roles are told apart before anything else happens: both must begin with one thread.

use std::process::ExitCode;

fn main() -> ExitCode {
    lazaret::cli::main()
}
