//! Opening a session for a command, carrying it, and saying how it ended.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::signal::Signal;

use super::args::EscapeCharacter;
use super::error::CliError;
use super::output::printable;
use super::session::output::WriteError;
use super::session::signals::{Presence, Signals};
use super::session::{self, Outcome, SessionError, Streams};
use super::start::{self, Recovery};
use super::{hint, terminal};
use crate::core::admission;
use crate::domain::failure::Failure;
use crate::domain::ids::{ConfigFingerprint, DomainId};
use crate::domain::session::{SessionEnd, SessionRequest, Terminal};
use crate::identity::ClientChannel;
use crate::sys::pty;
use crate::sys::signals::die_by;
use crate::wire::bootstrap::Start;

/// What the session's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// The user's terminal.
    Terminal,
    /// Pipes, even where the client's own are a terminal.
    Pipes,
}

/// What runs in a session and how.
#[derive(Debug)]
pub struct Command {
    /// The command; empty for the profile's.
    pub argv: Vec<OsString>,
    /// Working directory below the workspace.
    pub directory: PathBuf,
    /// Variables that the profile passes through.
    pub pass: Vec<String>,
    /// Its streams.
    pub streams: StreamKind,
    /// The escape character.
    pub escape: EscapeCharacter,
}

/// Tells what a session gets when it may have the terminal: the terminal, if standard input and
/// output are one.
pub fn standard_streams() -> StreamKind {
    if io::stdin().is_terminal() && io::stdout().is_terminal() { StreamKind::Terminal } else { StreamKind::Pipes }
}

impl Command {
    /// Gives the request, for a coordinator that may prepare for it; nothing when it is too large to be admitted.
    pub fn announce(&self) -> Option<SessionRequest> {
        let request = self.request().ok()?;
        let arguments = request.argv.iter().map(Vec::len).sum::<usize>();
        let variables = request.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        (arguments + variables <= admission::PROCESS_BYTES_LIMIT).then_some(request)
    }

    /// Makes the request, with this process's terminal and environment as they are now.
    fn request(&self) -> io::Result<SessionRequest> {
        let (terminal, terminal_name) = match self.streams {
            StreamKind::Terminal => {
                let stdin = io::stdin();
                (Terminal::Interactive(pty::size(stdin.as_fd())?), terminal::name(stdin.as_fd()))
            }
            StreamKind::Pipes => (Terminal::Pipes, String::new()),
        };
        let env = std::env::vars_os().filter(|(name, _)| {
            admission::describes_client(name.as_bytes())
                || self.pass.iter().any(|pass| name.as_os_str() == pass.as_str())
        });
        Ok(SessionRequest {
            argv: self.argv.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
            env: env.map(|(name, value)| (name.into_vec(), value.into_vec())).collect(),
            directory: self.directory.as_os_str().as_bytes().to_vec(),
            terminal,
            terminal_name,
        })
    }
}

/// Opens a session on a channel and carries it to its end.
pub async fn session(
    channel: ClientChannel,
    command: &Command,
    configuration: Option<ConfigFingerprint>,
) -> Result<Outcome, SessionError> {
    let request = command.request().map_err(SessionError::SetUp)?;
    let mut signals = Signals::take_over(Presence::Pipes).map_err(SessionError::SetUp)?;
    let open = tokio::select! {
        open = session::open(channel, request, configuration) => open?,
        signal = signals.ending() => return Ok(Outcome::Signalled(signal)),
    };
    drop(signals);
    let streams = own_streams().map_err(SessionError::SetUp)?;
    open.carry(streams, command.escape).await
}

/// Gives this process's standard streams, under new numbers.
fn own_streams() -> io::Result<Streams> {
    Ok(Streams {
        input: io::stdin().as_fd().try_clone_to_owned()?,
        output: io::stdout().as_fd().try_clone_to_owned()?,
        error: io::stderr().as_fd().try_clone_to_owned()?,
    })
}

/// Turns how a session ended into how this process ends. After a lost coordinator, what it left
/// over is removed first.
pub async fn conclude(outcome: Outcome, domain: &DomainId, recovery: Option<Start>) -> Result<ExitCode, CliError> {
    let logs = hint::logs(domain);
    if !matches!(outcome, Outcome::Ended(SessionEnd::Exited(_))) && standard_streams() == StreamKind::Terminal {
        // What the session wrote last may have no end of line.
        let _ = io::stderr().lock().write_all(b"\n");
    }
    match outcome {
        Outcome::Ended(SessionEnd::Exited(status)) => Ok(ExitCode::from(status)),
        Outcome::Ended(SessionEnd::NotStarted(text)) => {
            Err(CliError::causes(vec!["the command could not be started".into(), printable(&text)]))
        }
        Outcome::Ended(SessionEnd::SandboxLost(text)) => {
            Err(CliError::causes(vec!["the sandbox was lost".into(), printable(&text)]).hint(logs))
        }
        Outcome::Ended(SessionEnd::TornDown(text)) => {
            Err(CliError::causes(vec!["the sandbox was taken down".into(), printable(&text)]))
        }
        Outcome::Lost => Err(lost(recovery).await.hint(logs)),
        Outcome::OutputClosed => die_by(Signal::SIGPIPE),
        Outcome::OutputFailed(error) => Err(WriteError::Failed(error).into()),
        Outcome::Disconnected => Err(CliError::message("the session was ended by the escape sequence")),
        Outcome::Signalled(signal) => die_by(signal),
    }
}

async fn lost(recovery: Option<Start>) -> CliError {
    let mut failure = Failure::message("the connection to the sandbox's Host Coordinator was lost");
    if let Some(start) = recovery {
        match start::recover(start).await {
            Ok(Recovery::Done | Recovery::Elsewhere) => {}
            Err(error) => {
                failure.append(Failure::message("what it left over could not be removed"));
                failure.append(Failure { causes: error.chain(), hints: error.hints });
            }
        }
    }
    failure.into()
}
