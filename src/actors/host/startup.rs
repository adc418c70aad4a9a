//! What a starting coordinator tells the client that started it, and callers that wait.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ractor::ActorRef;
use tokio::sync::mpsc;

use super::messages::HostMessage;
use crate::core::lifecycle::Event;
use crate::sys::private;
use crate::sys::seqpacket::Lease;
use crate::wire::bootstrap::{BootstrapMessage, Progress, StartOutcome, StartupRecord};
use crate::wire::frame;

/// How many messages wait for a client that does not read; progress beyond it is dropped.
const MESSAGES: usize = 64;

/// Reports a start to the client that began it and to the startup record.
#[derive(Debug, Clone)]
pub struct Startup {
    messages: mpsc::Sender<BootstrapMessage>,
    record: Option<PathBuf>,
}

impl Startup {
    /// Starts reporting over the bootstrap pair; the client's going away before the outcome is an [`Event::Cancelled`].
    pub fn new(pair: Arc<Lease>, record: Option<PathBuf>, coordinator: ActorRef<HostMessage>) -> Self {
        let (messages, mut queue) = mpsc::channel::<BootstrapMessage>(MESSAGES);
        let watched = pair.clone();
        let watch = tokio::spawn(async move {
            // The client sends nothing more; whatever ends this wait means that it is gone.
            while let Ok(Some(_)) = watched.receive().await {}
            coordinator.cast(HostMessage::Event(Event::Cancelled)).ok();
        });
        tokio::spawn(async move {
            while let Some(message) = queue.recv().await {
                let last = matches!(message, BootstrapMessage::Outcome(_));
                if last {
                    watch.abort();
                }
                let sent = match frame::encode(&message) {
                    Ok(bytes) => pair.send(&bytes, &[]).await,
                    Err(error) => Err(std::io::Error::other(error)),
                };
                if let Err(error) = sent {
                    tracing::debug!(%error, "the starting client does not listen");
                    return;
                }
                if last {
                    return;
                }
            }
        });
        Self { messages, record }
    }

    /// Says that a phase began.
    pub fn phase(&self, phase: &str) {
        tracing::info!(phase, "starting");
        self.messages.try_send(BootstrapMessage::Progress(Progress::Phase(phase.to_owned()))).ok();
        let Some(path) = &self.record else { return };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs() as i64);
        let record = StartupRecord { pid: std::process::id() as i32, phase: phase.to_owned(), since };
        let written = serde_json::to_vec(&record).map_err(std::io::Error::other);
        if let Err(error) = written.and_then(|content| private::write_file(path, &content)) {
            tracing::warn!(%error, "the startup record can't be written");
        }
    }

    /// Passes progress on.
    pub fn progress(&self, progress: Progress) {
        match progress {
            Progress::Phase(phase) => self.phase(&phase),
            download => {
                self.messages.try_send(BootstrapMessage::Progress(download)).ok();
            }
        }
    }

    /// Says how the start ended, and returns once it is sent or nobody listens.
    pub async fn outcome(&self, outcome: StartOutcome) {
        self.withdraw();
        self.messages.send(BootstrapMessage::Outcome(outcome)).await.ok();
        self.messages.closed().await;
    }

    /// Removes the startup record: there is nothing to wait for.
    pub fn withdraw(&self) {
        if let Some(path) = &self.record
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the startup record can't be removed");
        }
    }
}
