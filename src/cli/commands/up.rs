//! `lazaret up`: starts or joins the project's Domain and opens a session in it.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::args::{EscapeArgs, ProjectArgs, StartArgs};
use crate::cli::error::CliError;
use crate::cli::open;
use crate::cli::work::{self, Greeting, Work};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    escape: EscapeArgs,
    /// Command to run, with its arguments [default: the profile's]
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Starts or joins.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    work::run(Work {
        project: args.project,
        start: args.start,
        argv: args.command,
        streams: open::standard_streams(),
        escape: args.escape.escape_char,
        greeting: Greeting::Shown,
    })
}
