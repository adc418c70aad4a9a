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

use super::config::{self, ConfigDirs, ConfigError};
use super::connect::Reach;
use super::coordinator::{Coordinator, CoordinatorError};
use super::error::CliError;
use super::places::Places;
use super::prerequisites;
use super::progress::Verbosity;
use super::waiting::Waiting;
use crate::domain::failure::Failure;
use crate::domain::ids::DomainId;
use crate::domain::workspace::DomainRecord;
use crate::identity::ClientChannel;
use crate::wire::bootstrap::{BootstrapMessage, Start, StartMode, StartOutcome};

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
    waiting: Waiting,
    checked: bool,
    coordinator: Option<Coordinator>,
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
        let waiting = Waiting::new(domain, runtime, wait, verbosity);
        Self { places: places.clone(), start, waiting, checked: false, coordinator: None }
    }

    /// Joins or starts the Domain. May be called again after the channel turned out to lead to a
    /// generation that is leaving; the time to wait counts over all calls.
    pub async fn enter(&mut self) -> Result<ClientChannel, CliError> {
        let mut vanished = 0;
        loop {
            if let Reach::Published(channel) = self.waiting.reach().await? {
                self.waiting.progress.clear();
                return Ok(*channel);
            }
            self.check_prerequisites().await?;
            match self.attempt().await? {
                Attempt::Published if vanished < VANISHED_LIMIT => vanished += 1,
                Attempt::Published => {
                    let text = "the Domain was started, but ended before it could be joined";
                    return Err(self.waiting.logs_hint(CliError::message(text)));
                }
                Attempt::LockHeld => {
                    if let Some(channel) = self.waiting.for_other().await? {
                        self.waiting.progress.clear();
                        return Ok(channel);
                    }
                }
            }
        }
    }

    /// Ends a start that is under way; for a caller that was interrupted.
    pub async fn cancel(&mut self) {
        self.waiting.progress.phase("cancelling the start".into());
        if let Some(coordinator) = self.coordinator.take() {
            // One that hangs ends with its next look at the closed pair.
            let _ = tokio::time::timeout(CANCEL_LIMIT, coordinator.cancel()).await;
        }
        self.waiting.progress.clear();
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
        let coordinator = match Coordinator::start(&self.start, &self.waiting.domain).await {
            Ok(coordinator) => &*self.coordinator.insert(coordinator),
            Err(error) => return Err(error.into()),
        };
        let outcome = loop {
            tokio::select! {
                () = self.waiting.progress.due() => {}
                message = coordinator.message() => match message {
                    Ok(BootstrapMessage::Progress(progress)) => self.waiting.progress.report(progress),
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
        self.waiting.progress.clear();
        match outcome {
            Ok(StartOutcome::LockHeld) => Ok(Attempt::LockHeld),
            Ok(StartOutcome::Failed(failure)) => Err(self.failed(failure)),
            Ok(StartOutcome::Published | StartOutcome::Recovered) => {
                Err(CliError::message("the Host Coordinator recovered the Domain instead of starting it"))
            }
            Err(error) => Err(self.waiting.logs_hint(error.into())),
        }
    }

    /// Tells why a start failed; where nothing else is to be done, the log is to be read.
    fn failed(&self, failure: Failure) -> CliError {
        match failure.hints.is_empty() {
            true => self.waiting.logs_hint(failure.into()),
            false => failure.into(),
        }
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
        Ok(Ok(StartOutcome::Failed(failure))) => Err(failure.into()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(CliError::message("removing what the lost sandbox left over takes too long")),
    }
}

#[cfg(test)]
mod tests;
