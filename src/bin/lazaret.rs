//! The Client CLI, which is also the Host Coordinator and the Runtime Supervisor when it is
//! executed again with a hidden first argument.
//!
//! The hidden roles are told apart before anything else happens: both must begin with one thread.

use std::process::ExitCode;

use lazaret::actors::{host, runtime};
use lazaret::{cli, wire};

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(role) if role == wire::bootstrap::COORDINATOR => {
            // So that the directory it was started in can be unmounted while the Domain lives.
            let _ = std::env::set_current_dir("/");
            host::main()
        }
        Some(role) if role == wire::lease::SUPERVISOR => runtime::main(),
        _ => cli::main(),
    }
}
