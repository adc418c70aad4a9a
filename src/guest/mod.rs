//! What `lazaret-guest` does inside the sandbox.

pub mod command_line;
