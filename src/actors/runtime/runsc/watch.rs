//! The task that sees `runsc run` through its life: pid file, probe report, end.

use std::time::Duration;

use ractor::ActorRef;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout};

use super::command::Sandbox;
use super::pid_file::PidFile;
use super::{END_TIMEOUT, RunscError, RunscMessage, log};
use crate::actors::runtime::children::Claim;
use crate::actors::runtime::process::{self, Drained, inner_process};
use crate::domain::network::ProbeReport;

/// Largest probe report that is read.
const REPORT_LIMIT: u64 = 1 << 20;

/// The task that sees runsc through its life.
pub(super) struct Watch {
    pub(super) child: Child,
    pub(super) claim: Claim,
    pub(super) pid: i32,
    pub(super) pid_file: PidFile,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: Drained,
    pub(super) sandbox: Sandbox,
    pub(super) limit: Duration,
    pub(super) actor: ActorRef<RunscMessage>,
}

/// Why no report came.
enum NoReport {
    /// The output ended.
    Closed,
    /// Something else was printed.
    Invalid(String),
}

impl Watch {
    /// Follows the process to its end.
    pub(super) async fn run(self) {
        let Self { mut child, claim, pid, pid_file, stdout, stderr, sandbox, limit, actor } = self;
        let mut stdout = BufReader::new(stdout);
        let started = tokio::time::timeout(limit, follow_start(pid, &pid_file, &mut stdout, &actor)).await;
        drop(pid_file);
        if let Ok(Ok(report)) = started {
            let _ = actor.cast(RunscMessage::Probed(report));
            tokio::spawn(discard(stdout));
            let how = ended(&mut child).await;
            drop(claim);
            let reason = log::panic(&sandbox.panic_log()).or_else(|| log::first_error(&sandbox.run_log()));
            let reason = reason.map(|said| format!(": {said}")).unwrap_or_default();
            let _ = actor.cast(RunscMessage::Ended(format!("{how}{reason}")));
            return;
        }
        // A sandbox without a report has no further use. One that closed its output is about to end
        // and gets the time to say why.
        let how = tokio::time::timeout(END_TIMEOUT, ended(&mut child)).await;
        let _ = child.start_kill();
        let how = match how {
            Ok(how) => how,
            Err(_) => ended(&mut child).await,
        };
        drop(claim);
        let said = match log::first_error(&sandbox.run_log()) {
            Some(error) => error,
            None => stderr.end().await,
        };
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let error = match started {
            Ok(Err(NoReport::Invalid(said))) => RunscError::Report { said },
            Ok(_) => RunscError::Ended { how: how.clone(), said },
            Err(_) => RunscError::TimedOut { limit, said },
        };
        let _ = actor.cast(RunscMessage::NotReady(error));
        let _ = actor.cast(RunscMessage::Ended(how));
    }
}

/// Waits for the pid file, then for the report.
async fn follow_start(
    pid: i32,
    pid_file: &PidFile,
    stdout: &mut BufReader<ChildStdout>,
    actor: &ActorRef<RunscMessage>,
) -> Result<ProbeReport, NoReport> {
    let announce = || {
        if let Ok(runsc) = inner_process(pid) {
            let _ = actor.cast(RunscMessage::Created(runsc));
        }
    };
    let line = async {
        let mut line = vec![];
        let read = stdout.take(REPORT_LIMIT).read_until(b'\n', &mut line).await;
        read.map(|_| line).unwrap_or_default()
    };
    tokio::pin!(line);
    let line = tokio::select! {
        biased;
        _ = pid_file.written() => {
            announce();
            line.await
        }
        // The report may overtake the event that announces the file.
        line = &mut line => {
            if pid_file.read().is_some() {
                announce();
            }
            line
        }
    };
    if line.is_empty() {
        return Err(NoReport::Closed);
    }
    serde_json::from_slice(&line).map_err(|_| NoReport::Invalid(log::bounded(&String::from_utf8_lossy(&line))))
}

/// Reads and drops what the sandbox's first process may still print.
async fn discard(mut output: BufReader<ChildStdout>) {
    let mut buffer = [0u8; 512];
    while matches!(output.read(&mut buffer).await, Ok(1..)) {}
}

async fn ended(child: &mut Child) -> String {
    child.wait().await.map_or_else(|error| error.to_string(), process::describe)
}
