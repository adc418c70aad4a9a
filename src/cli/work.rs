//! From a command line to a session: configuration, checks, entering the Domain, the session.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::args::{EscapeCharacter, ProjectArgs, StartArgs};
use super::config::{self, ConfigDirs, ConfigError, HostPlaces, Loaded};
use super::error::{CliError, ErrorKind};
use super::open::{self, Command, StreamKind};
use super::output::{self, printable};
use super::places::Places;
use super::progress::Verbosity;
use super::project::{Project, ProjectError};
use super::session::signals::{Presence, Signals};
use super::session::{Outcome, SessionError};
use super::start::Entry;
use super::{hint, question};
use crate::domain::ids::DomainId;
use crate::domain::profile::Profile;
use crate::identity::ClientChannel;
use crate::policy::{explain, protections};
use crate::wire::bootstrap::{Start, StartMode};
use crate::wire::client::Refusal;

/// How often a generation that leaves just when it is joined may do so.
const LEAVING_LIMIT: u32 = 50;

/// What `up` and `run` ask for.
#[derive(Debug)]
pub struct Work {
    /// The project.
    pub project: ProjectArgs,
    /// How a start behaves.
    pub start: StartArgs,
    /// The command; empty for the profile's.
    pub argv: Vec<OsString>,
    /// The session's streams.
    pub streams: StreamKind,
    /// The escape character.
    pub escape: EscapeCharacter,
    /// Whether the user is told how the workspace is shared.
    pub greeting: Greeting,
}

/// Whether a command says how the workspace is shared before its session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// It does, in one line.
    Shown,
    /// It does not: its standard error is the command's.
    Left,
}

/// Enters the project's Domain and runs the session.
pub fn run(work: Work) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    let project = Project::locate(&work.project).map_err(ProjectError::into_cli)?;
    let loaded = load(&places, &project, &work.project)?;
    let sharing = protections::ignored_paths(&loaded.profile.workspace).map_err(|refusal| {
        let hint = refusal.hint();
        CliError::from(refusal).hint(hint)
    })?;
    let command = Command {
        argv: work.argv,
        directory: project.directory.clone(),
        pass: loaded.profile.environment.pass.clone(),
        streams: work.streams,
        escape: work.escape,
    };
    let domain = DomainId::derive(&loaded.profile.name, project.workspace.path());
    let start = places.start(loaded.profile.clone(), project.workspace.clone(), StartMode::Serve);
    let verbosity = work.start.verbosity();
    let announcing = Start { first: command.announce(), ..start.clone() };
    let mut entry = Entry::new(&places, announcing, work.start.wait, verbosity);
    if work.greeting == Greeting::Shown && verbosity == Verbosity::Normal {
        output::note(sharing);
    }
    question::block_on(async {
        let outcome = enter_and_open(&mut entry, &command, &loaded.profile, &domain).await?;
        open::conclude(outcome, &domain, Some(start)).await
    })?
}

fn load(places: &Places, project: &Project, args: &ProjectArgs) -> Result<Loaded, CliError> {
    let dirs = ConfigDirs::from_environment().map_err(ConfigError::into_cli)?;
    let loaded = config::load_profile(&dirs, args.profile.as_ref()).map_err(ConfigError::into_cli)?;
    let host =
        HostPlaces { config: &places.configuration, storage: places.storage.path(), runtime: &places.runtime_base };
    match config::check_placement(&loaded, &project.workspace, host) {
        Ok(()) => Ok(loaded),
        Err(error) => {
            let hint = error.hint();
            Err(CliError::from(error).hint(hint))
        }
    }
}

/// Enters, and enters again when the generation turns out to be leaving.
async fn enter_and_open(
    entry: &mut Entry,
    command: &Command,
    profile: &Profile,
    domain: &DomainId,
) -> Result<Outcome, CliError> {
    for _ in 0..LEAVING_LIMIT {
        let channel = enter(entry).await?;
        match open::session(channel, command, Some(profile.fingerprint())).await {
            Ok(outcome) => return Ok(outcome),
            Err(SessionError::Refused(Refusal::GoingDown) | SessionError::LostEarly(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(SessionError::Refused(Refusal::ConfigurationDiffers { running })) => {
                return Err(configuration_differs(&running, profile, domain));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(CliError::message("the sandbox goes down whenever it is joined").hint(hint::logs(domain)))
}

/// Enters the Domain; a signal meanwhile cancels a start that is under way.
async fn enter(entry: &mut Entry) -> Result<ClientChannel, CliError> {
    let mut signals = Signals::take_over(Presence::Pipes)?;
    let signal = tokio::select! {
        channel = entry.enter() => return channel,
        signal = signals.ending() => signal,
    };
    tokio::select! {
        () = entry.cancel() => {}
        // Asked twice: the coordinator notices by itself that nobody waits for it.
        _ = signals.ending() => {}
    }
    let number = u8::try_from(signal as i32).unwrap_or(Signal::SIGINT as u8);
    Err(CliError::message("cancelled").with_kind(ErrorKind::Signal(number)))
}

fn configuration_differs(running: &Profile, ours: &Profile, domain: &DomainId) -> CliError {
    let error = CliError::message("this project's sandbox runs with a different configuration");
    let differences = explain::difference(running, ours);
    let error = differences.iter().fold(error, |error, line| error.detail(printable(line)));
    error
        .hint(format!("to use the configuration as it is now: {}, then this again", hint::on("down", domain)))
        .hint(format!("to join the sandbox as it runs: {}", hint::on("attach", domain)))
}
