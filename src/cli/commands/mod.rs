//! One file a verb: its `Args` and its `run(Args) -> Result<ExitCode, CliError>`.

pub mod attach;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod down;
pub mod image;
pub mod init;
pub mod logs;
pub mod ls;
pub mod man;
pub mod run;
pub mod status;
pub mod up;
