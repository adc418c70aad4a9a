//! `lazaret completions`: a completion script made from the command line's definition.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::cli::error::CliError;
use crate::cli::output;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for this command line.
pub fn run(args: Args, mut command_line: clap::Command) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line, "lazaret", &mut script);
    output::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
