//! The Client CLI.
//!
//! - [`command_line`]: the verbs; [`args`]: arguments that several of them take
//! - [`commands`]: one file a verb, each with `Args` and `run`
//! - [`config`]: the developer's configuration
//! - [`error`]: how a failure is told, and its exit status; [`hint`]: commands that hints name
//! - [`output`]: colours, tables, JSON
//! - [`places`], [`project`]: where things lie, and which workspace is meant
#![warn(missing_docs)]

pub mod args;
pub mod command_line;
pub mod commands;
pub mod config;
pub mod connect;
pub mod coordinator;
pub mod document;
pub mod domains;
pub mod error;
pub mod hint;
pub mod open;
pub mod output;
pub mod places;
pub mod prerequisites;
pub mod progress;
pub mod project;
pub mod question;
pub mod session;
pub mod start;
pub mod terminal;
pub mod waiting;
pub mod work;

use std::process::ExitCode;

use clap::Parser;
use nix::sys::signal::Signal;

use crate::sys::signals::die_by;

pub use error::{CliError, ErrorKind};

/// Runs the Client CLI: reads the command line, runs the command, reports its failure.
pub fn main() -> ExitCode {
    if let Some(status) = crate::sys::errand::run(std::env::args_os()) {
        return status;
    }
    let cli = match command_line::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, with status 0; a closed output changes nothing.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match cli.command.run() {
        Ok(status) => status,
        // As every tool in front of `head`.
        Err(error) if error.is_broken_pipe() => die_by(Signal::SIGPIPE),
        Err(error) => error.report(),
    }
}
