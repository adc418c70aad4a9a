//! One session's process: a `runsc exec` that stays attached to it.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none, but the runsc client, which this actor
//! alone waits for, and a task that watches it. The client's end is the session's end; the supervisor
//! then stops the actor. Should the actor die before, the lifeline is hung up with it, and [`abandon`] sees to
//! a wrapper that does not heed that.
//!
//! The guest process is `lazaret-guest session`, the wrapper, which keeps the session's process tree together
//! and kills it when its [`lifeline`](crate::wire::lifeline) is hung up. Killing the client would end none of it.

mod client;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use rustix::process::{Signal, pidfd_send_signal};
use tracing::{debug, info, warn};

use self::client::Client;
use super::children::Children;
use super::messages::{SessionNews, SupervisorMessage};
use super::process::inner_process;
use super::runsc::command::Sandbox;
use super::runsc::control::{self, Target};
use crate::domain::failure::Failure;
use crate::domain::ids::SessionId;
use crate::domain::runtime::GuestProcess;
use crate::domain::session::ControlEvent;
use crate::wire::lease::{self, ExecOutcome, InnerProcess};

/// How long a wrapper may take to begin to end its session's processes; one that was stopped is then continued.
const WRAPPER_STOPPED: Duration = Duration::from_millis(500);
/// How long a wrapper may take to end its session's processes before it is killed and init sweeps them up. It is
/// the last resort: on this gVisor a wrapper that is killed while its children fork and end can take the
/// sandbox's init with it.
const WRAPPER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client may take to end after its guest process was killed, or to start the guest process
/// after the session was told to end.
const KILL_TIMEOUT: Duration = lease::KILL_LIMIT;

/// What an exec actor is started with.
pub struct ExecArguments {
    /// Where the session's news go.
    pub supervisor: ActorRef<SupervisorMessage>,
    /// The session.
    pub session: SessionId,
    /// What to run.
    pub process: GuestProcess,
    /// When to run it.
    pub begin: Begin,
    /// The terminal, or the three standard streams.
    pub streams: Vec<OwnedFd>,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// Where this exec's private files lie.
    pub directory: PathBuf,
    /// Who waits for which child.
    pub children: Children,
}

/// When a session's command begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// As soon as its wrapper is there.
    AtOnce,
    /// With [`ExecMessage::Begin`].
    OnOrder,
}

/// What became of a session's process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// Its wrapper ended it.
    Ended,
    /// Its wrapper did not say so.
    Unknown,
}

/// What an exec actor is told.
pub enum ExecMessage {
    /// From the watching task: the guest process exists.
    Created {
        /// Its id in the sandbox's root pid namespace.
        guest_pid: i32,
    },
    /// From the watching task: the guest process can take signals.
    Ready,
    /// From the watching task: the client ended.
    Ended(ExecOutcome, Tree),
    /// Let the command begin.
    Begin,
    /// Deliver a terminal event.
    Signal(ControlEvent),
    /// End the session's whole process tree.
    Kill,
    /// The wrapper would have ended it by now, unless it was stopped.
    WrapperStopped,
    /// The wrapper had its time to end it.
    WrapperExpired,
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
    ready: bool,
    killed: bool,
    began: Instant,
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
        let ExecArguments { supervisor, session, process, begin, streams, sandbox, directory, children } = arguments;
        let kind = if process.interactive { Streams::Terminal } else { Streams::Pipes };
        let began = Instant::now();
        let started = client::start(&process, streams, &sandbox, &directory, &children, &myself);
        let client = match started {
            Ok(client) => {
                if begin == Begin::AtOnce {
                    myself.cast(ExecMessage::Begin)?;
                }
                Some(client)
            }
            Err(error) => {
                let outcome = ExecOutcome::NotStarted(Failure::of(&error).line());
                myself.cast(ExecMessage::Ended(outcome, Tree::Ended))?;
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
            ready: false,
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
            ExecMessage::Created { guest_pid } => {
                state.guest_pid = Some(guest_pid);
                state.started()?;
            }
            ExecMessage::Ready => {
                state.ready = true;
                state.started()?;
            }
            ExecMessage::Begin => {
                if let Some(Err(error)) = state.client.as_mut().map(Client::begin) {
                    debug!(%error, "the wrapper ended before it was to begin");
                }
            }
            ExecMessage::Ended(outcome, tree) => {
                if tree == Tree::Unknown
                    && let Some(guest_pid) = state.guest_pid
                {
                    let (sandbox, children) = (state.sandbox.clone(), state.children.clone());
                    match outcome {
                        // Nobody has waited for the guest process, so that its id stays its own.
                        ExecOutcome::ClientKilled(_) if state.killed => {
                            control::sweep(sandbox, children, Some(guest_pid));
                        }
                        ExecOutcome::ClientKilled(_) => {
                            sweep_after_wrapper(sandbox, children, move || Some(guest_pid));
                        }
                        _ => control::sweep(sandbox, children, None),
                    }
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
                if let Some(client) = &state.client {
                    client.hang_up();
                }
                myself.send_after(WRAPPER_STOPPED, || ExecMessage::WrapperStopped);
                myself.send_after(WRAPPER_TIMEOUT, || ExecMessage::WrapperExpired);
                myself.send_after(KILL_TIMEOUT, || ExecMessage::KillExpired);
            }
            ExecMessage::Kill => {}
            ExecMessage::WrapperStopped => {
                if let Some(guest_pid) = state.guest_pid {
                    state.signal_guest(guest_pid, Signal::CONT);
                }
            }
            ExecMessage::WrapperExpired => {
                if let Some(guest_pid) = state.guest_pid {
                    warn!(session = %state.session, "the session's wrapper does not end it and is killed");
                    control::sweep(state.sandbox.clone(), state.children.clone(), Some(guest_pid));
                }
            }
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

    /// Reports that the session runs, once both its process id is known and its signals are in good hands.
    fn started(&self) -> Result<(), ActorProcessingErr> {
        let (Some(client), Some(guest_pid), true) = (&self.client, self.guest_pid, self.ready) else { return Ok(()) };
        debug!(elapsed_us = self.began.elapsed().as_micros(), session = %self.session, "session started");
        self.news(SessionNews::Started { exec: client.process, guest_pid })
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

/// Ends the processes of a session whose actor has died. Its client and its wrapper may still live.
pub(super) fn abandon(sandbox: Sandbox, children: Children, client: InnerProcess, guest_pid: i32) {
    // While the client lives nobody else has the guest process's id.
    let wrapper = move || inner_process(client.pid).is_ok_and(|now| now == client).then_some(guest_pid);
    sweep_after_wrapper(sandbox, children, wrapper);
}

/// Leaves it to a wrapper, whose lifeline is hung up, to end its session's processes; continues it, in case that it
/// was stopped, and kills it only when it had its time. `wrapper` gives its id while that is its own.
fn sweep_after_wrapper(sandbox: Sandbox, children: Children, wrapper: impl Fn() -> Option<i32> + Send + 'static) {
    tokio::spawn(async move {
        tokio::time::sleep(WRAPPER_STOPPED).await;
        if let Some(guest_pid) = wrapper()
            && let Err(error) = control::signal(&sandbox, &children, Target::Process(guest_pid), Signal::CONT).await
        {
            debug!(%error, "a wrapper that nobody waits for is gone");
        }
        tokio::time::sleep(WRAPPER_TIMEOUT.saturating_sub(WRAPPER_STOPPED)).await;
        control::sweep(sandbox, children, wrapper());
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_events_go_where_they_are_forwarded() {
        assert_eq!(forwarded(ControlEvent::Interrupt, Streams::Terminal), Forward::ByClient(Signal::INT));
        assert_eq!(forwarded(ControlEvent::Suspend, Streams::Terminal), Forward::ByClient(Signal::TSTP));
        assert_eq!(forwarded(ControlEvent::Suspend, Streams::Pipes), Forward::Not);
        assert_eq!(forwarded(ControlEvent::Terminate, Streams::Pipes), Forward::ByWrapper(Signal::TERM));
    }
}
