//! Questions to a running coordinator: one connection, one question, one answer.

use futures_util::{SinkExt, StreamExt};
use serde::Serialize;

use super::connect::{self, Reach};
use super::document::DocumentView;
use super::error::CliError;
use super::places::Places;
use super::waiting;
use crate::domain::workspace::DomainRecord;
use crate::identity::ClientChannel;
use crate::wire::client::{ClientMessage, CoordinatorMessage, DomainStatus};
use crate::wire::frame::FrameError;

/// An answer that did not come.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// The connection failed.
    #[error("the coordinator was lost while it was asked")]
    Lost(#[source] Option<FrameError>),
    /// The answer belongs to another question.
    #[error("the coordinator gave no answer to the question")]
    OutOfOrder,
}

/// Runs a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}

/// Asks for what runs.
pub async fn status(mut channel: ClientChannel) -> Result<DomainStatus, QuestionError> {
    channel.send(ClientMessage::Status).await.map_err(|error| QuestionError::Lost(Some(error)))?;
    match channel.next().await {
        Some(Ok(CoordinatorMessage::Status(status))) => Ok(*status),
        Some(Ok(_)) => Err(QuestionError::OutOfOrder),
        Some(Err(error)) => Err(QuestionError::Lost(Some(error))),
        None => Err(QuestionError::Lost(None)),
    }
}

/// How a Domain stands.
#[derive(Debug)]
pub enum Standing {
    /// It runs.
    Running(Box<DomainStatus>),
    /// Something is under way; the text says what.
    Changing(String),
    /// Nothing runs.
    Stopped,
}

/// Finds out how a Domain stands.
pub async fn standing(places: &Places, record: &DomainRecord) -> Result<Standing, CliError> {
    let runtime = places.runtime(&record.domain);
    match connect::reach(&runtime, &record.domain).await.map_err(|error| error.into_cli(&record.domain))? {
        Reach::Published(channel) => match status(*channel).await {
            Ok(status) => Ok(Standing::Running(Box::new(status))),
            // It left between the greeting and the answer.
            Err(error) => Ok(Standing::Changing(error.to_string())),
        },
        Reach::Changing(error) => Ok(Standing::Changing(error.to_string())),
        Reach::Absent => {
            Ok(waiting::under_way(&runtime).map_or(Standing::Stopped, |record| Standing::Changing(record.phase)))
        }
    }
}

/// A Domain as `status --json` and `ls --json` show it; the schema is in docs/cli.md.
#[derive(Debug, Serialize)]
pub struct DomainView {
    /// `running`, `changing` or `stopped`.
    pub state: &'static str,
    /// What is under way, when the state is `changing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The Domain.
    pub domain: String,
    /// Its profile.
    pub profile: String,
    /// Its workspace, escaped.
    pub workspace: String,
    /// What runs, when the state is `running`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningView>,
}

/// What runs in a Domain.
#[derive(Debug, Serialize)]
pub struct RunningView {
    /// The published generation.
    pub generation: u64,
    /// Its base image.
    pub image: String,
    /// Seconds since the epoch.
    pub since: i64,
    /// Identities for people who look at logs.
    pub coordinator: String,
    /// The Agent Sandbox.
    pub sandbox: String,
    /// The Configuration Fingerprint.
    pub configuration: String,
    /// Processes on the host.
    pub processes: Vec<ProcessView>,
    /// Live sessions.
    pub sessions: Vec<SessionView>,
    /// Network policy, one line a rule.
    pub network: Vec<String>,
    /// Sandbox paths that persist.
    pub persistent: Vec<String>,
    /// The durable generation document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentView>,
}

/// One process of a Domain.
#[derive(Debug, Serialize)]
pub struct ProcessView {
    /// What it is.
    pub role: String,
    /// Its process id on the host.
    pub pid: i32,
}

/// One live session.
#[derive(Debug, Serialize)]
pub struct SessionView {
    /// The session.
    pub id: String,
    /// The client's process id.
    pub client_pid: i32,
    /// The command, each argument escaped.
    pub command: Vec<String>,
    /// Whether it has a terminal.
    pub interactive: bool,
    /// The client's terminal; empty without one.
    pub terminal: String,
    /// Seconds since the epoch.
    pub since: i64,
}

impl DomainView {
    /// Describes how a Domain stands.
    pub fn new(record: &DomainRecord, standing: Standing) -> Self {
        let (state, phase, running) = match standing {
            Standing::Running(status) => ("running", None, Some(RunningView::from(*status))),
            Standing::Changing(phase) => ("changing", Some(phase), None),
            Standing::Stopped => ("stopped", None, None),
        };
        let DomainRecord { domain, profile, workspace, .. } = record;
        let (domain, profile) = (domain.to_string(), profile.to_string());
        Self { state, phase, domain, profile, workspace: workspace.clone(), running }
    }
}

impl From<DomainStatus> for RunningView {
    fn from(status: DomainStatus) -> Self {
        let session = |session: crate::domain::session::SessionSummary| SessionView {
            id: session.id.into(),
            client_pid: session.client_pid,
            command: session.command,
            interactive: session.interactive,
            terminal: session.terminal_name,
            since: session.since,
        };
        Self {
            generation: status.generation.0,
            image: status.image,
            since: status.since,
            coordinator: status.coordinator.into(),
            sandbox: status.sandbox.into(),
            configuration: status.configuration.into(),
            processes: status.processes.into_iter().map(|(role, pid)| ProcessView { role, pid }).collect(),
            sessions: status.sessions.into_iter().map(session).collect(),
            network: status.network,
            persistent: status.persistent,
            document: status.document.as_deref().map(DocumentView::from),
        }
    }
}
