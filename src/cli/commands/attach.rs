//! `lazaret attach`: another session in a Domain that is already published, whatever its
//! configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::args::{DomainArgs, EscapeArgs, ProjectArgs, StartArgs};
use crate::cli::connect::Reach;
use crate::cli::domains::{self, FindError};
use crate::cli::error::CliError;
use crate::cli::open::{self, Command};
use crate::cli::places::Places;
use crate::cli::waiting::{self, Waiting};
use crate::cli::{hint, output, question, start};
use crate::domain::workspace::{DomainRecord, Workspace};
use crate::identity::ClientChannel;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    meant: DomainArgs,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    escape: EscapeArgs,
    /// Command to run [default: the running profile's]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Attaches.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    let record = domains::find(&places, &args.meant).map_err(|error| not_found(error, &args))?;
    // Without a readable profile the session merely gets fewer variables, and a loss is recovered
    // by the next start.
    let recovery = start::recovery_of(&places, &record)?;
    let pass = recovery.as_ref().map(|start| start.profile.environment.pass.clone()).unwrap_or_default();
    let command = Command {
        argv: args.command,
        directory: record.workspace().map(|workspace| standing_in(&workspace, &args.meant.project)).unwrap_or_default(),
        pass,
        streams: open::standard_streams(),
        escape: args.escape.escape_char,
    };
    question::block_on(async {
        let channel = join(&places, &record, &args.start).await?;
        let ended = open::session(channel, &command, None).await?;
        open::conclude(ended, &record.domain, recovery).await
    })?
}

/// Joins what runs; waits for what is under way, and starts nothing.
async fn join(places: &Places, record: &DomainRecord, args: &StartArgs) -> Result<ClientChannel, CliError> {
    let runtime = places.runtime(&record.domain);
    let mut waiting = Waiting::new(record.domain.clone(), runtime.clone(), args.wait, args.verbosity());
    loop {
        match waiting.reach().await? {
            Reach::Published(channel) => return Ok(*channel),
            Reach::Absent if waiting::under_way(&runtime).is_none() => {
                let start = hint::up(Some(&record.profile), record.workspace().as_ref());
                let text = format!("{} is not running", record.domain);
                return Err(CliError::message(text).hint(format!("start it: {start}")));
            }
            Reach::Absent | Reach::Changing(_) => {
                if let Some(channel) = waiting.for_other().await? {
                    waiting.progress.clear();
                    return Ok(channel);
                }
            }
        }
    }
}

/// Says what was not found; a command that was given in the place of a sandbox is told apart.
fn not_found(error: FindError, args: &Args) -> CliError {
    let meant = match &error {
        FindError::NoSuchName(name) if args.command.is_empty() => Some(output::word(name)),
        _ => None,
    };
    let profile = args.meant.project.profile.as_ref().map(|profile| format!(" -p {profile}")).unwrap_or_default();
    let error = error.into_cli();
    match meant {
        Some(command) => error.hint(format!("to run it as a command: lazaret attach{profile} -- {command}")),
        None => error,
    }
}

/// Gives the current directory below the workspace, when it is below.
fn standing_in(workspace: &Workspace, project: &ProjectArgs) -> PathBuf {
    let current = project.directory.as_deref().unwrap_or(Path::new(".")).canonicalize().unwrap_or_default();
    current.strip_prefix(workspace.path()).map(Path::to_owned).unwrap_or_default()
}
