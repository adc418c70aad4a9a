//! One file a verb: its `Args` and its `run(Args) -> Result<ExitCode, CliError>`.

pub mod completions;
pub mod config;
pub mod image;
pub mod init;
pub mod man;
