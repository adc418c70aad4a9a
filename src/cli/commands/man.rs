//! `lazaret man`: manual pages made from the command line's definition.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::error::CliError;
use crate::cli::output;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to write lazaret.1 and a page for every command into
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the main page of this command line, or writes all of them.
pub fn run(args: Args, command_line: clap::Command) -> Result<ExitCode, CliError> {
    match args.out {
        Some(directory) => {
            fs_err::create_dir_all(&directory)?;
            clap_mangen::generate_to(command_line, &directory)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command_line).render(&mut page)?;
            output::bytes(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
