//! The `runsc exec` client of one session: how it is started, followed, and what its end means.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use ractor::ActorRef;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Child;

use super::{ExecMessage, Tree};
use crate::actors::runtime::children::{Children, Claim};
use crate::actors::runtime::process::{self, Held, inner_process};
use crate::actors::runtime::runsc::command::Sandbox;
use crate::actors::runtime::runsc::log::first_error;
use crate::actors::runtime::runsc::pid_file::PidFile;
use crate::domain::runtime::GuestProcess;
use crate::guest::command_line;
use crate::policy::sandbox::wrapper_capability_sets;
use crate::wire::lease::{ExecOutcome, InnerProcess};
use crate::wire::lifeline;

/// runsc's status for its own failures; a guest may use it too.
const RUNSC_FAILURE: i32 = 128;

/// Why a session's process could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    /// The wrong number of descriptors came with the order.
    #[error("{given} descriptors came with the session, {needed} are needed")]
    Descriptors {
        /// How many came.
        given: usize,
        /// How many are needed.
        needed: usize,
    },
    /// The private files can't be written.
    #[error("can't write {}", path.display())]
    Files {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// runsc can't be started.
    #[error("can't start runsc exec")]
    Start(#[source] io::Error),
}

/// The attached client.
pub(super) struct Client {
    pub(super) process: InnerProcess,
    pub(super) pidfd: OwnedFd,
    lifeline: UnixStream,
}

impl Client {
    /// Lets the session's command begin.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        // The one byte that is ever written always finds room.
        self.lifeline.write_all(&[lifeline::BEGIN])
    }

    /// Has the session's wrapper end everything that it started.
    pub(super) fn hang_up(&self) {
        // Fails when the other end is closed, which is then what was wanted.
        let _ = self.lifeline.shutdown(Shutdown::Write);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Also when its actor has died, before it knew the guest process or after.
        self.hang_up();
    }
}

/// Starts the client. This process's copies of the streams are closed when it returns.
pub(super) fn start(
    process: &GuestProcess,
    streams: Vec<OwnedFd>,
    sandbox: &Sandbox,
    directory: &Path,
    children: &Children,
    actor: &ActorRef<ExecMessage>,
) -> Result<Client, ExecError> {
    let files = |path: PathBuf| move |source| ExecError::Files { path, source };
    std::fs::create_dir(directory).map_err(files(directory.to_owned()))?;
    let document = directory.join("process.json");
    std::fs::write(&document, process_document(process).to_string()).map_err(files(document.clone()))?;
    let (pid_path, log) = (directory.join("pid"), directory.join("log"));
    let pid_file = PidFile::watch(pid_path.clone()).map_err(files(pid_path.clone()))?;

    let (ours, theirs) = UnixStream::pair().map_err(ExecError::Start)?;
    ours.set_nonblocking(true).map_err(ExecError::Start)?;
    let told = ours.try_clone().and_then(tokio::net::UnixStream::from_std).map_err(ExecError::Start)?;
    let mut command = sandbox.command(&log);
    let descriptor = lifeline::DESCRIPTOR;
    command.arg("exec").arg("--internal-pid-file").arg(&pid_path);
    command.arg("--pass-fd").arg(format!("{descriptor}:{descriptor}"));
    command.arg("--process").arg(&document).arg(sandbox.name());
    attach(&mut command, process, streams)?;
    crate::sys::process::pass_descriptor(&mut command, theirs.into(), descriptor);
    crate::sys::process::die_with_parent(&mut command);
    let child = command.spawn().map_err(ExecError::Start)?;
    // Its copy of the lifeline's other end would keep the end of the wrapper's from being seen.
    drop(command);
    let Held { pid, claim, pidfd } = process::hold(&child, children).map_err(ExecError::Start)?;
    let process = inner_process(pid).map_err(ExecError::Start)?;
    tokio::spawn(Watch { child, claim, pid_file, told, log, actor: actor.clone() }.run());
    Ok(Client { process, pidfd, lifeline: ours })
}

fn attach(
    command: &mut tokio::process::Command,
    process: &GuestProcess,
    streams: Vec<OwnedFd>,
) -> Result<(), ExecError> {
    let given = streams.len();
    if process.interactive {
        let [slave] = <[OwnedFd; 1]>::try_from(streams).map_err(|_| ExecError::Descriptors { given, needed: 1 })?;
        crate::sys::process::own_terminal(command, slave).map_err(ExecError::Start)
    } else {
        let streams = <[OwnedFd; 3]>::try_from(streams).map_err(|_| ExecError::Descriptors { given, needed: 3 })?;
        let [stdin, stdout, stderr] = streams.map(Stdio::from);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        Ok(())
    }
}

/// What runsc is told to execute: the session wrapper, as root of the sandbox. The command's process becomes
/// the session's user; what else it must not have, the wrapper's capabilities let it give up.
fn process_document(process: &GuestProcess) -> serde_json::Value {
    json!({
        "terminal": process.interactive,
        "user": { "uid": 0, "gid": 0 },
        "args": command_line::session(process),
        "env": command_line::environment(process),
        "cwd": "/",
        "capabilities": wrapper_capability_sets(),
    })
}

/// Sees the client through its life.
struct Watch {
    child: Child,
    claim: Claim,
    pid_file: PidFile,
    /// What the wrapper says.
    told: tokio::net::UnixStream,
    log: PathBuf,
    actor: ActorRef<ExecMessage>,
}

impl Watch {
    async fn run(self) {
        let Self { mut child, claim, pid_file, mut told, log, actor } = self;
        let (mut guest_pid, mut tree, mut listening) = (None, Tree::Unknown, true);
        let mut hear = |byte: u8| match byte {
            lifeline::READY => drop(actor.cast(ExecMessage::Ready)),
            lifeline::ENDED => tree = Tree::Ended,
            _ => {}
        };
        let mut created = |pid: Option<i32>| {
            guest_pid = guest_pid.or(pid);
            if let Some(guest_pid) = pid {
                let _ = actor.cast(ExecMessage::Created { guest_pid });
            }
        };
        let mut looking = true;
        let status = loop {
            tokio::select! {
                biased;
                byte = told.read_u8(), if listening => match byte {
                    Ok(byte) => hear(byte),
                    Err(_) => listening = false,
                },
                written = pid_file.written(), if looking => {
                    looking = false;
                    created(written.ok());
                }
                status = child.wait() => break status,
            }
        };
        drop(claim);
        if looking {
            // A short process may have ended before the event for its file was seen.
            created(pid_file.read());
        }
        // The same goes for what its wrapper said last.
        let mut last = [0; 8];
        let said = rustix::io::read(&told, &mut last).unwrap_or(0);
        last[..said].iter().copied().for_each(hear);
        let outcome = match status {
            Ok(status) => classify(guest_pid, status, || first_error(&log)),
            Err(error) => ExecOutcome::NotStarted(error.to_string()),
        };
        let _ = actor.cast(ExecMessage::Ended(outcome, tree));
    }
}

/// Tells the guest's own status from runsc's failures, which share the status 128.
fn classify(guest_pid: Option<i32>, status: ExitStatus, error: impl FnOnce() -> Option<String>) -> ExecOutcome {
    if let Some(signal) = status.signal() {
        return ExecOutcome::ClientKilled(signal);
    }
    if guest_pid.is_none() {
        return ExecOutcome::NotStarted(
            error().unwrap_or_else(|| format!("runsc exec: {}", process::describe(status))),
        );
    }
    match (status.code(), error) {
        (Some(RUNSC_FAILURE), error) => match error() {
            Some(error) if error.contains("waiting on pid") => ExecOutcome::SandboxLost(error),
            _ => ExecOutcome::Exited(RUNSC_FAILURE as u8),
        },
        (code, _) => ExecOutcome::Exited(code.unwrap_or_default() as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn the_three_meanings_of_128_are_told_apart() {
        let lost = || Some("waiting on pid 7: EOF".to_owned());
        let refused = || Some("executing processes for container: no such file".to_owned());
        assert_eq!(classify(Some(7), exited(128), || None), ExecOutcome::Exited(128));
        assert!(matches!(classify(Some(7), exited(128), lost), ExecOutcome::SandboxLost(_)));
        assert!(
            matches!(classify(None, exited(128), refused), ExecOutcome::NotStarted(e) if e.contains("no such file"))
        );
        assert_eq!(classify(Some(7), exited(137), || None), ExecOutcome::Exited(137));
        assert_eq!(classify(Some(7), exited(0), lost), ExecOutcome::Exited(0));
        assert_eq!(classify(Some(7), ExitStatus::from_raw(9), || None), ExecOutcome::ClientKilled(9));
    }
}
