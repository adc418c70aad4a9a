//! Signals into the sandbox: over runsc's control socket, or by `runsc kill` where that fails.
//!
//! The socket takes one JSON object and answers with one; nothing frames them. A connection is used for
//! one call and closed, because an open one delays the sandbox's exit by 15 seconds. The format is
//! runsc's own, without a promise: any surprise leads to the command line, which takes a hundred times
//! longer.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tracing::{debug, warn};

use super::command::Sandbox;
use crate::actors::runtime::children::Children;
use crate::wire::lifeline::SWEEP;

/// The control socket answers within a millisecond unless the sandbox is stuck.
const SOCKET_TIMEOUT: Duration = Duration::from_millis(500);
/// The command line has to start a process.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// The sandbox's process 1.
const INIT: i32 = 1;
/// Longest answer that is read.
const ANSWER_LIMIT: usize = 64 << 10;

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One process, by its id in the sandbox's root pid namespace.
    Process(i32),
    /// Every process of the sandbox.
    All,
}

/// A signal could not be delivered.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket can't be used.
    #[error("runsc's control socket failed")]
    Socket(#[source] io::Error),
    /// The socket's answer is no answer.
    #[error("runsc's control socket gave no valid answer")]
    Answer,
    /// runsc refused.
    #[error("runsc refused the signal: {0}")]
    Refused(String),
    /// `runsc kill` can't be run.
    #[error("runsc kill can't be run")]
    Command(#[source] io::Error),
    /// No answer came in time.
    #[error("runsc did not answer in time")]
    TimedOut,
}

#[derive(Serialize)]
struct Request<'a> {
    method: &'static str,
    arg: SignalArguments<'a>,
}

#[derive(Serialize)]
struct SignalArguments<'a> {
    #[serde(rename = "CID")]
    container: &'a str,
    #[serde(rename = "Signo")]
    signal: i32,
    #[serde(rename = "PID")]
    pid: i32,
    #[serde(rename = "Mode")]
    mode: i32,
}

#[derive(Deserialize)]
struct Answer {
    success: bool,
    #[serde(default)]
    err: String,
}

/// Delivers a signal.
pub async fn signal(
    sandbox: &Sandbox,
    children: &Children,
    target: Target,
    signal: Signal,
) -> Result<(), ControlError> {
    match signal_over_socket(sandbox, target, signal).await {
        Ok(()) => return Ok(()),
        Err(ControlError::Refused(reason)) => return Err(ControlError::Refused(reason)),
        Err(error) => debug!(%error, "falling back to runsc kill"),
    }
    let by_command = tokio::time::timeout(COMMAND_TIMEOUT, by_command_line(sandbox, children, target, signal));
    by_command.await.unwrap_or(Err(ControlError::TimedOut))
}

/// Has the sandbox's init kill what a session without its wrapper left behind, after killing the wrapper
/// if it is still there.
pub fn sweep(sandbox: Sandbox, children: Children, wrapper: Option<i32>) {
    tokio::spawn(async move {
        let wrapper = wrapper.map(|pid| (Target::Process(pid), Signal::KILL));
        let sweep = Signal::from_named_raw(SWEEP).map(|signal| (Target::Process(INIT), signal));
        for (target, signal) in wrapper.into_iter().chain(sweep) {
            if let Err(error) = self::signal(&sandbox, &children, target, signal).await {
                debug!(%error, ?target, "a session without its wrapper could not be ended; the sandbox may be gone");
            }
        }
    });
}

/// Delivers a signal over the socket, or not at all.
pub async fn signal_over_socket(sandbox: &Sandbox, target: Target, signal: Signal) -> Result<(), ControlError> {
    let exchange = tokio::time::timeout(SOCKET_TIMEOUT, over_socket(sandbox, target, signal));
    exchange.await.unwrap_or(Err(ControlError::TimedOut))
}

async fn over_socket(sandbox: &Sandbox, target: Target, signal: Signal) -> Result<(), ControlError> {
    let (pid, mode) = match target {
        Target::Process(pid) => (pid, 0),
        Target::All => (0, 1),
    };
    let arg = SignalArguments { container: sandbox.name(), signal: signal.as_raw(), pid, mode };
    let request = serde_json::to_vec(&Request { method: "containerManager.Signal", arg });
    let request = request.map_err(|_| ControlError::Answer)?;
    let mut socket = UnixStream::connect(sandbox.control_socket()).await.map_err(ControlError::Socket)?;
    socket.write_all(&request).await.map_err(ControlError::Socket)?;
    let mut answer = Vec::with_capacity(256);
    loop {
        let read = socket.read_buf(&mut answer).await.map_err(ControlError::Socket)?;
        match serde_json::from_slice::<Answer>(&answer) {
            Ok(Answer { success: true, .. }) => return Ok(()),
            Ok(Answer { err, .. }) => return Err(ControlError::Refused(super::log::bounded(&err))),
            Err(error) if error.is_eof() && read > 0 && answer.len() < ANSWER_LIMIT => {}
            Err(_) => return Err(ControlError::Answer),
        }
    }
}

async fn by_command_line(
    sandbox: &Sandbox,
    children: &Children,
    target: Target,
    signal: Signal,
) -> Result<(), ControlError> {
    let mut command = sandbox.command(&sandbox.bundle().join("kill.log"));
    command.arg("kill");
    match target {
        Target::Process(pid) => command.arg("--pid").arg(pid.to_string()),
        Target::All => command.arg("--all"),
    };
    command.arg(sandbox.name()).arg(signal.as_raw().to_string());
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::piped()).kill_on_drop(true);
    crate::sys::process::die_with_parent(&mut command);
    let child = command.spawn().map_err(ControlError::Command)?;
    let claim = child.id().map(|pid| children.claim(pid as i32));
    let output = child.wait_with_output().await.map_err(ControlError::Command)?;
    drop(claim);
    if output.status.success() {
        return Ok(());
    }
    let reason = super::log::bounded(&String::from_utf8_lossy(&output.stderr));
    warn!(reason, "runsc kill failed");
    Err(ControlError::Refused(reason))
}
