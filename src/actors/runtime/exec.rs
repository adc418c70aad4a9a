//! One session's process: a `runsc exec` that stays attached to it.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none, but the runsc client, which this actor
//! alone waits for, and a task that watches it. The client's end is the session's end; the supervisor
//! then stops the actor. Should the actor die before, the supervisor ends the session's processes by the
//! guest process id that it was told.
//!
//! The guest process is `lazaret-guest session`, which gives the session a pid namespace of its own, so
//! that killing it ends exactly this session's processes. Killing the client would end none of them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use rustix::process::{PidfdFlags, Signal, pidfd_send_signal};
use serde_json::json;
use tokio::process::Child;
use tracing::{debug, info, warn};

use super::children::{Children, Claim};
use super::process::{self, inner_process};
use super::runsc::command::Sandbox;
use super::runsc::control::{self, Target};
use super::runsc::log::first_error;
use super::runsc::pid_file::PidFile;
use super::supervisor::SupervisorMessage;
use crate::domain::ids::SessionId;
use crate::domain::runtime::GuestProcess;
use crate::domain::session::ControlEvent;
use crate::guest::command_line;
use crate::policy::sandbox::{DEFAULT_PATH, wrapper_capability_sets};
use crate::wire::lease::{ExecOutcome, InnerProcess};

/// How long a client may take to end after its guest process was killed, or to start the guest process
/// after the session was told to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// runsc's status for its own failures; a guest may use it too.
const RUNSC_FAILURE: i32 = 128;

/// Why a session's process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
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

/// What an exec actor is started with.
pub struct ExecArguments {
    /// Where the session's news go.
    pub supervisor: ActorRef<SupervisorMessage>,
    /// The session.
    pub session: SessionId,
    /// What to run.
    pub process: GuestProcess,
    /// The terminal, or the three standard streams.
    pub streams: Vec<OwnedFd>,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Where this exec's private files lie.
    pub directory: PathBuf,
    /// Who waits for which child.
    pub children: Children,
}

/// What an exec actor is told.
pub enum ExecMessage {
    /// From the watching task: the guest process runs.
    Started {
        /// Its id in the sandbox's root pid namespace.
        guest_pid: i32,
    },
    /// From the watching task: the client ended.
    Ended(ExecOutcome),
    /// Deliver a terminal event.
    Signal(ControlEvent),
    /// End the session's whole process tree.
    Kill,
    /// The client had its time to end.
    KillExpired,
}

/// What an exec actor remembers.
pub struct ExecState {
    supervisor: ActorRef<SupervisorMessage>,
    session: SessionId,
    sandbox: Sandbox,
    directory: PathBuf,
    children: Children,
    streams: Streams,
    client: Option<Client>,
    guest_pid: Option<i32>,
    killed: bool,
    began: Instant,
}

/// The attached client.
struct Client {
    process: InnerProcess,
    pidfd: OwnedFd,
}

/// News of a session for the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionNews {
    /// Its process runs.
    Started {
        /// The client.
        exec: InnerProcess,
        /// The guest process.
        guest_pid: i32,
    },
    /// It ended.
    Ended(ExecOutcome),
    /// It ended some time ago, and what else happened is known by now.
    Settled(ExecOutcome),
}

/// The exec actor.
pub struct Exec;

impl Actor for Exec {
    type Msg = ExecMessage;
    type State = ExecState;
    type Arguments = ExecArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: ExecArguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let ExecArguments { supervisor, session, process, streams, sandbox, directory, children } = arguments;
        let kind = if process.interactive { Streams::Terminal } else { Streams::Pipes };
        let began = Instant::now();
        let started = start(&process, streams, &sandbox, &directory, &children, &myself);
        let client = match started {
            Ok(client) => Some(client),
            Err(error) => {
                let text = crate::core::supervision::Failure::of(&error).causes.join(": ");
                myself.cast(ExecMessage::Ended(ExecOutcome::NotStarted(text)))?;
                None
            }
        };
        Ok(ExecState {
            supervisor,
            session,
            sandbox,
            directory,
            children,
            streams: kind,
            client,
            guest_pid: None,
            killed: false,
            began,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: ExecMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ExecMessage::Started { guest_pid } => {
                state.guest_pid = Some(guest_pid);
                if let Some(client) = &state.client {
                    debug!(elapsed_us = state.began.elapsed().as_micros(), session = %state.session, "session started");
                    state.news(SessionNews::Started { exec: client.process, guest_pid })?;
                }
                if state.killed {
                    state.kill_guest(guest_pid);
                }
            }
            ExecMessage::Ended(outcome) => {
                if let (ExecOutcome::ClientKilled(_), Some(guest_pid)) = (&outcome, state.guest_pid) {
                    // Nobody has waited for the guest process, so that its id is still its own.
                    state.kill_guest(guest_pid);
                }
                // From here on the guest process id may belong to another process.
                state.guest_pid = None;
                state.client = None;
                info!(session = %state.session, ?outcome, "session ended");
                let _ = std::fs::remove_dir_all(&state.directory);
                state.news(SessionNews::Ended(outcome))?;
            }
            ExecMessage::Signal(event) => state.deliver(event),
            ExecMessage::Kill if !state.killed => {
                state.killed = true;
                if let Some(guest_pid) = state.guest_pid {
                    state.kill_guest(guest_pid);
                }
                myself.send_after(KILL_TIMEOUT, || ExecMessage::KillExpired);
            }
            ExecMessage::Kill => {}
            ExecMessage::KillExpired => {
                if let Some(client) = &state.client {
                    warn!(session = %state.session, "the session's client does not end and is killed");
                    crate::sys::process::kill(&client.pidfd)?;
                }
            }
        }
        Ok(())
    }
}

impl ExecState {
    fn news(&self, news: SessionNews) -> Result<(), ActorProcessingErr> {
        Ok(self.supervisor.cast(SupervisorMessage::Session(self.session.clone(), news))?)
    }

    /// Ends the session's process tree. The client then ends by itself.
    fn kill_guest(&self, guest_pid: i32) {
        self.signal_guest(guest_pid, Signal::KILL);
    }

    fn signal_guest(&self, guest_pid: i32, signal: Signal) {
        let (sandbox, children, session) = (self.sandbox.clone(), self.children.clone(), self.session.clone());
        tokio::spawn(async move {
            if let Err(error) = control::signal(&sandbox, &children, Target::Process(guest_pid), signal).await {
                warn!(%session, %error, "a signal could not be delivered");
            }
        });
    }

    /// Delivers a terminal event. Only the client of a terminal forwards signals to the guest's foreground
    /// process group; any other just dies of one, so there the session wrapper is told instead.
    fn deliver(&self, event: ControlEvent) {
        let Some(guest_pid) = self.guest_pid else { return };
        match (&self.client, forwarded(event, self.streams)) {
            (Some(client), Forward::ByClient(signal)) => {
                if let Err(error) = pidfd_send_signal(&client.pidfd, signal) {
                    debug!(%error, "the client ended before the signal");
                }
            }
            (_, Forward::ByWrapper(signal)) => self.signal_guest(guest_pid, signal),
            (None, _) | (_, Forward::Not) => {}
        }
    }
}

/// What a session's standard streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    Terminal,
    Pipes,
}

/// Who passes a terminal event on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forward {
    ByClient(Signal),
    ByWrapper(Signal),
    Not,
}

fn forwarded(event: ControlEvent, streams: Streams) -> Forward {
    let signal = match event {
        ControlEvent::Interrupt => Signal::INT,
        ControlEvent::Quit => Signal::QUIT,
        ControlEvent::Suspend => Signal::TSTP,
        ControlEvent::Terminate => Signal::TERM,
        ControlEvent::Hangup => Signal::HUP,
    };
    match event {
        _ if streams == Streams::Terminal => Forward::ByClient(signal),
        // Nobody could continue a stopped session that has no terminal.
        ControlEvent::Suspend => Forward::Not,
        _ => Forward::ByWrapper(signal),
    }
}

/// Starts the client. This process's copies of the streams are closed when it returns.
fn start(
    process: &GuestProcess,
    streams: Vec<OwnedFd>,
    sandbox: &Sandbox,
    directory: &std::path::Path,
    children: &Children,
    actor: &ActorRef<ExecMessage>,
) -> Result<Client, ExecError> {
    let files = |path: PathBuf| move |source| ExecError::Files { path, source };
    std::fs::create_dir(directory).map_err(files(directory.to_owned()))?;
    let document = directory.join("process.json");
    std::fs::write(&document, process_document(process).to_string()).map_err(files(document.clone()))?;
    let (pid_path, log) = (directory.join("pid"), directory.join("log"));
    let pid_file = PidFile::watch(pid_path.clone()).map_err(files(pid_path.clone()))?;

    let mut command = sandbox.command(&log);
    command.arg("exec").arg("--internal-pid-file").arg(&pid_path).arg("--process").arg(&document).arg(sandbox.name());
    attach(&mut command, process, streams)?;
    crate::sys::process::die_with_parent(&mut command);
    let child = command.spawn().map_err(ExecError::Start)?;
    let pid = child.id().ok_or(io::ErrorKind::NotFound).map_err(|kind| ExecError::Start(kind.into()))? as i32;
    let claim = children.claim(pid);
    let pidfd = rustix::process::Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH);
    let pidfd = pidfd.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
    let pidfd = pidfd.map_err(|error| ExecError::Start(error.into()))?;
    let process = inner_process(pid).map_err(ExecError::Start)?;
    tokio::spawn(watch(child, claim, pid_file, log, actor.clone()));
    Ok(Client { process, pidfd })
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

/// What runsc is told to execute: the session wrapper, as root of the sandbox with what it needs to make the
/// session's namespaces. It becomes the session's user before it runs the session's command.
fn process_document(process: &GuestProcess) -> serde_json::Value {
    json!({
        "terminal": process.interactive,
        "user": { "uid": 0, "gid": 0 },
        "args": command_line::session(process),
        "env": [format!("PATH={DEFAULT_PATH}")],
        "cwd": "/",
        "capabilities": wrapper_capability_sets(),
    })
}

/// Sees the client through its life.
async fn watch(mut child: Child, claim: Claim, pid_file: PidFile, log: PathBuf, actor: ActorRef<ExecMessage>) {
    let mut started = None;
    let status = tokio::select! {
        biased;
        written = pid_file.written() => {
            started = written.ok();
            announce(started, &actor);
            child.wait().await
        }
        status = child.wait() => status,
    };
    drop(claim);
    if started.is_none() {
        // A short process may have ended before the event for its file was seen.
        started = pid_file.read();
        announce(started, &actor);
    }
    let outcome = match status {
        Ok(status) => classify(started, status, || first_error(&log)),
        Err(error) => ExecOutcome::NotStarted(error.to_string()),
    };
    let _ = actor.cast(ExecMessage::Ended(outcome));
}

fn announce(guest_pid: Option<i32>, actor: &ActorRef<ExecMessage>) {
    if let Some(guest_pid) = guest_pid {
        let _ = actor.cast(ExecMessage::Started { guest_pid });
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

    #[test]
    fn terminal_events_go_where_they_are_forwarded() {
        assert_eq!(forwarded(ControlEvent::Interrupt, Streams::Terminal), Forward::ByClient(Signal::INT));
        assert_eq!(forwarded(ControlEvent::Suspend, Streams::Terminal), Forward::ByClient(Signal::TSTP));
        assert_eq!(forwarded(ControlEvent::Suspend, Streams::Pipes), Forward::Not);
        assert_eq!(forwarded(ControlEvent::Terminate, Streams::Pipes), Forward::ByWrapper(Signal::TERM));
    }
}
