//! The command line: its verbs, and which file carries each out.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use super::commands;
use super::error::CliError;

const AFTER_HELP: &str = "\
Exit status: the command's own in a session (128+N when signal N ended it), 127 when it was not found, \
126 when it can't be executed, 125 when Lazaret itself failed, 2 when the command line is wrong.";

/// Rootless gVisor sandboxes for AI coding agents
#[derive(Debug, Parser)]
#[command(name = "lazaret", version, about, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start or join this project's sandbox and open a session in it
    Up(commands::up::Args),
    /// Run a command in this project's sandbox with pipes for its input and output
    Run(commands::run::Args),
    /// Open another session in a sandbox that is already running
    Attach(commands::attach::Args),
    /// Take a sandbox down and wait until nothing of it is left
    Down(commands::down::Args),
    /// Show what runs in this project's sandbox
    Status(commands::status::Args),
    /// List sandboxes
    Ls(commands::ls::Args),
    /// Show a sandbox's log
    Logs(commands::logs::Args),
    /// Check and show the configuration
    Config(commands::config::Args),
    /// Write a commented starter configuration
    Init(commands::init::Args),
    /// Print a completion script for a shell
    Completions(commands::completions::Args),
    /// Check what this machine has of what is needed, and say how to get the rest
    Doctor(commands::doctor::Args),
    /// Print the manual page, or write all of them into a directory
    Man(commands::man::Args),
    /// Prepare base images ahead of time, or list prepared ones
    Image(commands::image::Args),
}

impl Command {
    /// Runs the command and gives the status to end with.
    pub fn run(self) -> Result<ExitCode, CliError> {
        match self {
            Self::Up(args) => commands::up::run(args),
            Self::Run(args) => commands::run::run(args),
            Self::Attach(args) => commands::attach::run(args),
            Self::Down(args) => commands::down::run(args),
            Self::Status(args) => commands::status::run(args),
            Self::Ls(args) => commands::ls::run(args),
            Self::Logs(args) => commands::logs::run(args),
            Self::Config(args) => commands::config::run(args),
            Self::Init(args) => commands::init::run(args),
            Self::Completions(args) => commands::completions::run(args, Cli::command()),
            Self::Doctor(args) => commands::doctor::run(args),
            Self::Man(args) => commands::man::run(args, Cli::command()),
            Self::Image(args) => commands::image::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("lazaret").chain(line.iter().copied()))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_keeps_its_own_options() {
        for line in [&["run", "--", "make", "-j4", "--", "-p"][..], &["run", "make", "-j4", "--", "-p"]] {
            match parse(line).unwrap().command {
                Command::Run(args) => assert_eq!(args.command, ["make", "-j4", "--", "-p"], "{line:?}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(parse(&["run", "--no-such-option"]).is_err(), "a mistyped option is not a command");
    }

    #[test]
    fn values_are_checked() {
        assert!(parse(&["up", "-p", "../x"]).is_err());
        assert!(parse(&["up", "--wait", "-1"]).is_err());
        assert!(parse(&["up", "--escape-char", "ab"]).is_err());
        assert!(parse(&["up", "--escape-char", "none", "--wait", "0.5"]).is_ok());
    }
}
