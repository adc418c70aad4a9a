//! `lazaret completions`: a completion script made from the command line's definition.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::args::Cli;
use crate::cli::error::CliError;
use crate::cli::output;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lazaret", &mut script);
    output::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
