//! Entering a Domain: join the published generation, or start one, or wait for whoever does.
//!
//! ```text
//!        ┌─▶ reach ── published ─────────────────────────────▶ channel
//!        │     │ absent
//!        │     ▼
//!        │   start a coordinator ── published ──▶ reach
//!        │     │ lock held            failed ──▶ error
//!        │     ▼
//!        └── wait until its holder ends, or publishes, at most --wait
//! ```
//!
//! A caller that finds the lock held never takes over: it only waits and tries again.

use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use tokio::time::Instant;

use super::config::{self, ConfigDirs, ConfigError};
use super::connect::{self, Reach};
use super::coordinator::{Coordinator, CoordinatorError};
use super::error::CliError;
use super::places::Places;
use super::prerequisites;
use super::progress::{ProgressDisplay, Verbosity};
use super::{hint, output};
use crate::domain::failure::Failure;
use crate::domain::ids::DomainId;
use crate::domain::layout::RuntimeRoot;
use crate::domain::workspace::DomainRecord;
use crate::identity::ClientChannel;
use crate::sys::process;
use crate::wire::bootstrap::{BootstrapMessage, Start, StartMode, StartOutcome, StartupRecord};

/// Longest pause between two looks for a publication.
const LOOK: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to start, while nobody says who holds the lock.
const RETRY: Duration = Duration::from_millis(250);

/// How many starts may succeed without being found published afterwards.
const VANISHED_LIMIT: u32 = 3;

/// How long a cancelled coordinator may take to end before it is left to itself.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// How long recovering leftovers may take before it is left to itself.
const RECOVERY_LIMIT: Duration = Duration::from_secs(10);

/// One attempt to enter a Domain. It outlives the futures it hands out, so that a coordinator whose
/// start was interrupted can be cancelled properly.
#[derive(Debug)]
pub struct Entry {
    places: Places,
    start: Start,
    domain: DomainId,
    runtime: RuntimeRoot,
    wait: Duration,
    progress: ProgressDisplay,
    checked: bool,
    coordinator: Option<Coordinator>,
    deadline: Option<Instant>,
    trouble: Option<String>,
}

/// How an attempt of one's own ended.
enum Attempt {
    Published,
    LockHeld,
}

impl Entry {
    /// Prepares to enter a Domain.
    pub fn new(places: &Places, start: Start, wait: Duration, verbosity: Verbosity) -> Self {
        let domain = DomainId::derive(&start.profile.name, start.workspace.path());
        let runtime = places.runtime(&domain);
        let progress = ProgressDisplay::begin(verbosity);
        Self {
            places: places.clone(),
            start,
            domain,
            runtime,
            wait,
            progress,
            checked: false,
            coordinator: None,
            deadline: None,
            trouble: None,
        }
    }

    /// Joins or starts the Domain. May be called again after the channel turned out to lead to a
    /// generation that is leaving; the time to wait counts over all calls.
    pub async fn enter(&mut self) -> Result<ClientChannel, CliError> {
        let mut vanished = 0;
        loop {
            if let Some(channel) = self.reach().await? {
                self.progress.clear();
                return Ok(channel);
            }
            self.check_prerequisites().await?;
            match self.attempt().await? {
                Attempt::Published if vanished < VANISHED_LIMIT => vanished += 1,
                Attempt::Published => {
                    let text = "the Domain was started, but ended before it could be joined";
                    return Err(self.logs_hint(CliError::message(text)));
                }
                Attempt::LockHeld => {
                    if let Some(channel) = self.wait_for_other().await? {
                        self.progress.clear();
                        return Ok(channel);
                    }
                }
            }
        }
    }

    /// Ends a start that is under way; for a caller that was interrupted.
    pub async fn cancel(&mut self) {
        self.progress.phase("cancelling the start".into());
        if let Some(coordinator) = self.coordinator.take() {
            // One that hangs ends with its next look at the closed pair.
            let _ = tokio::time::timeout(CANCEL_LIMIT, coordinator.cancel()).await;
        }
        self.progress.clear();
    }

    async fn reach(&mut self) -> Result<Option<ClientChannel>, CliError> {
        match connect::reach(&self.runtime, &self.domain).await {
            Ok(Reach::Published(channel)) => Ok(Some(*channel)),
            Ok(Reach::Absent) => Ok(None),
            Ok(Reach::Changing(error)) => {
                self.trouble = Some(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into_cli(&self.domain)),
        }
    }

    /// Sees to it, before the first attempt, that everything is there that a start needs.
    async fn check_prerequisites(&mut self) -> Result<(), CliError> {
        if self.checked {
            return Ok(());
        }
        self.checked = true;
        match prerequisites::first_missing(&self.places).await {
            Some(missing) => Err(missing.into_error()),
            None => Ok(()),
        }
    }

    /// Starts a coordinator and follows it to the outcome.
    async fn attempt(&mut self) -> Result<Attempt, CliError> {
        let coordinator = match Coordinator::start(&self.start, &self.domain).await {
            Ok(coordinator) => &*self.coordinator.insert(coordinator),
            Err(error) => return Err(error.into()),
        };
        let outcome = loop {
            tokio::select! {
                () = self.progress.due() => {}
                message = coordinator.message() => match message {
                    Ok(BootstrapMessage::Progress(progress)) => self.progress.report(progress),
                    Ok(BootstrapMessage::Outcome(outcome)) => break Ok(outcome),
                    Err(error) => break Err(error),
                },
            }
        };
        let coordinator = self.coordinator.take();
        match outcome {
            Ok(StartOutcome::Published) => {
                if let Some(coordinator) = coordinator {
                    coordinator.release();
                }
                return Ok(Attempt::Published);
            }
            _ => {
                if let Some(coordinator) = coordinator {
                    let _ = tokio::time::timeout(CANCEL_LIMIT, coordinator.cancel()).await;
                }
            }
        }
        self.progress.clear();
        match outcome {
            Ok(StartOutcome::LockHeld) => Ok(Attempt::LockHeld),
            Ok(StartOutcome::Failed { causes, hints }) => Err(self.failed(Failure { causes, hints })),
            Ok(StartOutcome::Published | StartOutcome::Recovered) => {
                Err(CliError::message("the Host Coordinator recovered the Domain instead of starting it"))
            }
            Err(error) => Err(self.logs_hint(error.into())),
        }
    }

    /// Waits for whoever holds the lock; gives the channel when it publishes, nothing when it is
    /// worth another attempt to start.
    async fn wait_for_other(&mut self) -> Result<Option<ClientChannel>, CliError> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.wait);
        let retry = Instant::now() + RETRY;
        loop {
            if let Some(channel) = self.reach().await? {
                return Ok(Some(channel));
            }
            // A record that is being replaced or is damaged only means less to show.
            let holder: Option<StartupRecord> = connect::record(&self.runtime.startup()).ok().flatten();
            if Instant::now() >= deadline {
                return Err(self.waited_too_long(holder.as_ref()));
            }
            if holder.is_none() && Instant::now() >= retry {
                return Ok(None);
            }
            self.progress.phase(describe(holder.as_ref()));
            tokio::select! {
                () = self.progress.due() => {}
                () = ended(holder.as_ref()) => return Ok(None),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn waited_too_long(&self, holder: Option<&StartupRecord>) -> CliError {
        let mut causes = vec![format!("this sandbox could not be entered within {} seconds", self.wait.as_secs_f32())];
        causes.push(describe(holder));
        causes.extend(self.trouble.clone());
        self.logs_hint(CliError::causes(causes).hint("wait longer with --wait SECONDS"))
    }

    /// Tells why a start failed; where nothing else is to be done, the log is to be read.
    fn failed(&self, failure: Failure) -> CliError {
        match failure.hints.is_empty() {
            true => self.logs_hint(failure.into()),
            false => failure.into(),
        }
    }

    fn logs_hint(&self, error: CliError) -> CliError {
        error.hint(hint::logs(&self.domain))
    }
}

/// Says what is waited for. The same record gives the same text, so that a log gets it once.
fn describe(holder: Option<&StartupRecord>) -> String {
    let Some(StartupRecord { pid, phase, since }) = holder else {
        return "waiting for another lazaret that is starting or stopping this sandbox".into();
    };
    format!("waiting for process {pid}: {}, since {}", output::printable(phase), output::clock(*since))
}

/// Waits until the process that a record names has ended; forever when there is none.
async fn ended(record: Option<&StartupRecord>) {
    let Some(pid) = record.and_then(|record| Pid::from_raw(record.pid)) else {
        return std::future::pending().await;
    };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            let _ = process::ended(pidfd).await;
        }
        // It has ended already.
        Err(_) => tokio::time::sleep(LOOK).await,
    }
}

/// Gives what to start to recover a known Domain; `None` when its profile can't be read any more.
pub fn recovery_of(places: &Places, record: &DomainRecord) -> Result<Option<Start>, CliError> {
    let dirs = ConfigDirs::from_environment().map_err(ConfigError::into_cli)?;
    let loaded = config::load_profile(&dirs, Some(&record.profile));
    Ok(loaded
        .ok()
        .zip(record.workspace())
        .map(|(loaded, workspace)| places.start(loaded.profile, workspace, StartMode::Recover)))
}

/// What recovering a Domain's leftovers came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Nothing is left.
    Done,
    /// Somebody else has the Domain, and will see to it.
    Elsewhere,
}

/// Has a coordinator remove what a lost generation left over.
pub async fn recover(start: Start) -> Result<Recovery, CliError> {
    let start = Start { mode: StartMode::Recover, ..start };
    let domain = DomainId::derive(&start.profile.name, start.workspace.path());
    let follow = async {
        let coordinator = Coordinator::start(&start, &domain).await?;
        let outcome = loop {
            match coordinator.message().await? {
                BootstrapMessage::Progress(_) => {}
                BootstrapMessage::Outcome(outcome) => break outcome,
            }
        };
        coordinator.cancel().await;
        Ok::<_, CoordinatorError>(outcome)
    };
    match tokio::time::timeout(RECOVERY_LIMIT, follow).await {
        Ok(Ok(StartOutcome::Recovered | StartOutcome::Published)) => Ok(Recovery::Done),
        Ok(Ok(StartOutcome::LockHeld)) => Ok(Recovery::Elsewhere),
        Ok(Ok(StartOutcome::Failed { causes, hints })) => Err(Failure { causes, hints }.into()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(CliError::message("removing what the lost sandbox left over takes too long")),
    }
}

#[cfg(test)]
mod tests;
