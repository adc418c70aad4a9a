//! Reaching a Domain that may be under way: a caller waits for whoever starts or stops it, says for what, and never takes over.

use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use tokio::time::Instant;

use super::connect::{self, Reach};
use super::error::CliError;
use super::progress::{ProgressDisplay, Verbosity};
use super::{hint, output};
use crate::domain::ids::DomainId;
use crate::domain::layout::RuntimeRoot;
use crate::identity::ClientChannel;
use crate::sys::{process, procfs};
use crate::wire::bootstrap::StartupRecord;

/// Longest pause between two looks for a publication.
const LOOK: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to go on, while nobody says who holds the lock. The first is short, since a
/// coordinator that was killed holds it for some milliseconds still.
const RETRY: Duration = Duration::from_millis(250);

/// One Domain that is to be reached; the time to wait counts over all calls.
#[derive(Debug)]
pub struct Waiting {
    /// The Domain.
    pub domain: DomainId,
    /// Its runtime directory.
    pub runtime: RuntimeRoot,
    /// What is shown meanwhile.
    pub progress: ProgressDisplay,
    wait: Duration,
    deadline: Option<Instant>,
    /// The pause before the next attempt.
    pause: Duration,
    trouble: Option<String>,
}

impl Waiting {
    /// Prepares to reach a Domain.
    pub fn new(domain: DomainId, runtime: RuntimeRoot, wait: Duration, verbosity: Verbosity) -> Self {
        let progress = ProgressDisplay::begin(verbosity);
        Self { domain, runtime, progress, wait, deadline: None, pause: LOOK, trouble: None }
    }

    /// Tries once.
    pub async fn reach(&mut self) -> Result<Reach, CliError> {
        let reach = connect::reach(&self.runtime, &self.domain).await.map_err(|error| error.into_cli(&self.domain))?;
        if let Reach::Changing(error) = &reach {
            self.trouble = Some(error.to_string());
        }
        Ok(reach)
    }

    /// Waits for whoever holds the Domain's lock; gives the channel when it publishes, nothing when it is
    /// worth another attempt of one's own.
    pub async fn for_other(&mut self) -> Result<Option<ClientChannel>, CliError> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.wait);
        let retry = Instant::now() + self.pause;
        self.pause = RETRY.min(self.pause * 2);
        loop {
            if let Reach::Published(channel) = self.reach().await? {
                return Ok(Some(*channel));
            }
            let holder = holder(&self.runtime);
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

    /// Adds where to read what happened.
    pub fn logs_hint(&self, error: CliError) -> CliError {
        error.hint(hint::logs(&self.domain))
    }

    fn waited_too_long(&self, holder: Option<&StartupRecord>) -> CliError {
        let mut causes = vec![format!("this sandbox could not be entered within {} seconds", self.wait.as_secs_f32())];
        causes.push(describe(holder));
        causes.extend(self.trouble.clone());
        self.logs_hint(CliError::causes(causes).hint("wait longer with --wait SECONDS"))
    }
}

/// Gives what the process that starts or stops a Domain says of itself.
fn holder(runtime: &RuntimeRoot) -> Option<StartupRecord> {
    // A record that is being replaced or is damaged only means less to show.
    connect::record(&runtime.startup()).ok().flatten()
}

/// Gives what is under way, when a process that runs says so. One that ended and was not waited for does not run.
pub fn under_way(runtime: &RuntimeRoot) -> Option<StartupRecord> {
    let runs = |pid| procfs::identity(pid).ok().flatten().is_some_and(|process| procfs::is_alive(&process));
    holder(runtime).filter(|record| runs(record.pid))
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
