//! `lazaret down`: takes a Domain down and waits until nothing of it is left.

use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use inquire::InquireError;
use rustix::process::{Pid, PidfdFlags};

use crate::cli::args::{DomainArgs, StartArgs};
use crate::cli::connect::{self, Reach};
use crate::cli::domains::{self, FindError};
use crate::cli::error::{CliError, ErrorKind};
use crate::cli::output;
use crate::cli::places::Places;
use crate::cli::progress::ProgressDisplay;
use crate::cli::question::{self, QuestionError};
use crate::cli::{hint, start};
use crate::domain::workspace::DomainRecord;
use crate::identity::ClientChannel;
use crate::sys::process;
use crate::wire::client::{ClientMessage, CoordinatorMessage, LiveSessions, Refusal};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    meant: DomainArgs,
    /// End live sessions without asking
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    start: StartArgs,
}

/// How a request to go down was answered.
enum Answer {
    Down,
    NotRunning,
    SessionsLive(usize),
}

/// Takes it down.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    let record = match domains::find(&places, &args.meant) {
        Ok(record) => record,
        // What is asked for holds already.
        Err(none @ FindError::NoneHere { .. }) => {
            if !args.start.quiet {
                output::note(&format!("nothing to take down: {none}"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error.into_cli()),
    };
    let live = if args.yes { LiveSessions::End } else { LiveSessions::Spare };
    let ask = |live| question::block_on(take_down(&places, &record, live, &args.start))?;
    let mut answer = ask(live)?;
    if let Answer::SessionsLive(count) = answer {
        if !confirmed(count, &record)? {
            return Ok(ExitCode::from(ErrorKind::Own.status()));
        }
        answer = ask(LiveSessions::End)?;
    }
    let quiet = args.start.quiet;
    match answer {
        Answer::Down if !quiet => output::note(&format!("{} is down", record.domain)),
        Answer::NotRunning => {
            clean_up(&places, &record)?;
            if !quiet {
                output::note(&format!("{} was not running", record.domain));
            }
        }
        Answer::Down | Answer::SessionsLive(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn take_down(
    places: &Places,
    record: &DomainRecord,
    live: LiveSessions,
    args: &StartArgs,
) -> Result<Answer, CliError> {
    let mut progress = ProgressDisplay::begin(args.verbosity());
    progress.phase(format!("taking {} down", record.domain));
    let work = request(places, record, live);
    tokio::pin!(work);
    let limit = tokio::time::sleep(args.wait);
    tokio::pin!(limit);
    loop {
        tokio::select! {
            answer = &mut work => return answer,
            () = progress.due() => {}
            () = &mut limit => {
                let text = format!("{} is still not down after {} seconds", record.domain, args.wait.as_secs_f32());
                return Err(CliError::message(text).hint(hint::logs(&record.domain)));
            }
        }
    }
}

async fn request(places: &Places, record: &DomainRecord, live: LiveSessions) -> Result<Answer, CliError> {
    let runtime = places.runtime(&record.domain);
    let mut channel = loop {
        match connect::reach(&runtime, &record.domain).await.map_err(|error| error.into_cli(&record.domain))? {
            Reach::Published(channel) => break channel,
            Reach::Absent => return Ok(Answer::NotRunning),
            // Already on its way down, most likely: the next look shows it absent.
            Reach::Changing(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    // Held from here on, so that it can't be another process's later.
    let coordinator = process_of(&channel);
    let lost = |error| QuestionError::Lost(Some(error));
    channel.send(ClientMessage::Down { live }).await.map_err(lost)?;
    match channel.next().await {
        Some(Ok(CoordinatorMessage::Refused(Refusal::SessionsLive(count)))) => return Ok(Answer::SessionsLive(count)),
        Some(Ok(CoordinatorMessage::GoingDown | CoordinatorMessage::Refused(Refusal::GoingDown))) => {}
        Some(Ok(_)) => return Err(QuestionError::OutOfOrder.into()),
        Some(Err(error)) => return Err(QuestionError::Lost(Some(error)).into()),
        None => return Err(QuestionError::Lost(None).into()),
    }
    // The connection closes when everything is gone; then the coordinator itself ends.
    while let Some(Ok(_)) = channel.next().await {}
    if let Some(pidfd) = coordinator {
        process::ended(pidfd).await?;
    }
    Ok(Answer::Down)
}

/// Gives a pidfd of the process at the other end of a channel.
fn process_of(channel: &ClientChannel) -> Option<OwnedFd> {
    let pid = channel.get_ref().get_ref().0.peer_cred().ok()?.pid()?;
    rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn confirmed(count: usize, record: &DomainRecord) -> Result<bool, CliError> {
    let live = match count {
        1 => "1 session is live".to_owned(),
        _ => format!("{count} sessions are live"),
    };
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let text = format!("{} is not taken down: {live}", record.domain);
        return Err(
            CliError::message(text).hint(format!("end them as well: {}", hint::on("down --yes", &record.domain)))
        );
    }
    match inquire::Confirm::new(&format!("{live} in {}. End them?", record.domain)).with_default(false).prompt() {
        Ok(answer) => Ok(answer),
        Err(InquireError::OperationCanceled) => Ok(false),
        Err(InquireError::OperationInterrupted) => {
            Err(CliError::message("interrupted").with_kind(ErrorKind::Signal(2)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes what a lost coordinator left over. A Domain that came down properly has no runtime
/// directory, so that nothing is started for it.
fn clean_up(places: &Places, record: &DomainRecord) -> Result<(), CliError> {
    if !places.runtime(&record.domain).path().exists() {
        return Ok(());
    }
    match start::recovery_of(places, record)? {
        Some(start) => {
            question::block_on(start::recover(start))??;
            Ok(())
        }
        None => Ok(()),
    }
}
