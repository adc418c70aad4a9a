//! `lazaret run`: a command in the project's Domain, with pipes for its input and output.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::args::{EscapeCharacter, ProjectArgs, StartArgs};
use crate::cli::error::CliError;
use crate::cli::open::StreamKind;
use crate::cli::work::{self, Greeting, Work};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    start: StartArgs,
    /// Command to run, with its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    work::run(Work {
        project: args.project,
        start: args.start,
        argv: args.command,
        streams: StreamKind::Pipes,
        escape: EscapeCharacter::None,
        greeting: Greeting::Left,
    })
}
