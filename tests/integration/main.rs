//! The real binaries, as an unprivileged user, against real runsc, slirp4netns and umoci.
//!
//! One file a capability; each gives its cases by `cases()`, and [`capabilities`] lists the files.
//! [`harness`] tells how the run is set up. Filters and flags are those of libtest.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
// Helpers exist for capabilities that use them; not each capability uses each.
#![allow(dead_code, unreachable_pub)]

mod harness;

mod actors;
mod config;
mod crashes;
mod doctor;
mod domain;
mod escape;
mod harness_itself;
mod identity;
mod images;
mod kill_matrix;
mod network;
mod protocol;
mod sessions;
mod state;
mod static_guest;
mod terminal;
mod workspace;

use harness::Case;

/// Gives every capability's name and cases; `tests/architecture.rs` checks that no file is missing.
fn capabilities() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("actors", actors::cases()),
        ("config", config::cases()),
        ("crashes", crashes::cases()),
        ("doctor", doctor::cases()),
        ("domain", domain::cases()),
        ("escape", escape::cases()),
        ("harness_itself", harness_itself::cases()),
        ("identity", identity::cases()),
        ("images", images::cases()),
        ("kill_matrix", kill_matrix::cases()),
        ("network", network::cases()),
        ("protocol", protocol::cases()),
        ("state", state::cases()),
        ("static_guest", static_guest::cases()),
        ("workspace", workspace::cases()),
        ("sessions", sessions::cases()),
        ("terminal", terminal::cases()),
    ]
}

fn main() -> std::process::ExitCode {
    harness::main(capabilities)
}
