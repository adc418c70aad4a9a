//! The Client CLI, which is also the Host Coordinator and the Runtime Supervisor when it is
//! executed again with a hidden first argument.
//!
//! The hidden roles are told apart before anything else happens: both must begin with one thread.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(role) if role == "__coordinator" => lazaret::actors::host::main(),
        Some(role) if role == "__supervisor" => lazaret::actors::runtime::main(),
        _ => lazaret::cli::main(),
    }
}
