//! One Client Session: its streams, its client's channel, its order of ending.
//!
//! Role: owns exactly one session's PTY master (or pipes) and its client's connection. Parent: the
//! registry, which stops it when nothing of the session is left. Children: none; the carriers in [`carry`]
//! are tasks that end with the session's streams or with this actor. If this actor fails, its client is
//! told, and the registry orders the session's processes killed and drops its record.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures_util::SinkExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::io::Interest;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::actors::host::generation::GenerationContext;
use crate::actors::host::messages::{LinkMessage, RegistryMessage, SessionMessage};
use crate::core::session::{SessionEffect, SessionEvent, SessionPhase, step};
use crate::domain::ids::SessionId;
use crate::domain::session::{ControlEvent, SessionEnd, Terminal};
use crate::identity::channel::ServerChannel;
use crate::protocol_trace;
use crate::sys::pty;
use crate::wire::client::{CoordinatorMessage, INPUT_WINDOW, Stream};
use crate::wire::lease::{self, CoordinatorOrder};

pub mod carry;
pub mod streams;

use streams::SessionStream;

/// How long a killed session's process may take to be gone.
const KILL_DEADLINE: Duration = lease::KILL_LIMIT.saturating_add(lease::GRACE);

/// How long a client may take to accept that its session is open; its connection is empty until then.
const GREETING: Duration = Duration::from_secs(2);

/// How long a client may take to accept the last output when its session is ended for it.
const FAREWELL: Duration = Duration::from_secs(2);

/// The coordinator's ends of a session's standard streams.
#[derive(Debug)]
pub enum SessionStreams {
    /// The PTY master.
    Terminal(SessionStream),
    /// Three pipes.
    Pipes {
        /// Writing end of standard input.
        input: SessionStream,
        /// Reading end of standard output.
        output: SessionStream,
        /// Reading end of standard error.
        error: SessionStream,
    },
}

impl SessionStreams {
    /// Gives a terminal its size; pipes have none.
    pub fn resize(&self, terminal: Terminal) -> io::Result<()> {
        match (self, terminal) {
            (Self::Terminal(master), Terminal::Interactive(size)) => pty::set_size(master.fd(), size),
            _ => Ok(()),
        }
    }
}

/// Opens a session's streams and gives the supervisor's ends: the PTY slave, or standard input, output
/// and error in this order.
pub fn open(terminal: Terminal) -> io::Result<(SessionStreams, Vec<OwnedFd>)> {
    match terminal {
        Terminal::Interactive(size) => {
            let pty = pty::open(size)?;
            let both = Interest::READABLE | Interest::WRITABLE;
            Ok((SessionStreams::Terminal(SessionStream::new(pty.master, both)?), vec![pty.slave]))
        }
        Terminal::Pipes => {
            let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
            let ((stdin, input), (output, stdout), (error, stderr)) = (pipe()?, pipe()?, pipe()?);
            let streams = SessionStreams::Pipes {
                input: SessionStream::new(input, Interest::WRITABLE)?,
                output: SessionStream::new(output, Interest::READABLE)?,
                error: SessionStream::new(error, Interest::READABLE)?,
            };
            Ok((streams, vec![stdin, stdout, stderr]))
        }
    }
}

/// What a session is made of.
pub struct SessionArguments {
    /// The session.
    pub session: SessionId,
    /// The generation that it is part of.
    pub generation: Arc<GenerationContext>,
    /// The client's connection.
    pub channel: ServerChannel,
    /// The streams.
    pub streams: SessionStreams,
    /// What makes its command run, once the client knows that it will.
    pub order: CoordinatorOrder,
    /// The supervisor's ends of the streams, as far as it does not have them.
    pub handed: Vec<OwnedFd>,
    /// The link to the Runtime Supervisor.
    pub link: ActorRef<LinkMessage>,
    /// The parent.
    pub registry: ActorRef<RegistryMessage>,
}

/// State of a session.
pub struct SessionState {
    session: SessionId,
    generation: Arc<GenerationContext>,
    phase: SessionPhase,
    terminal: Option<Arc<SessionStream>>,
    link: ActorRef<LinkMessage>,
    registry: ActorRef<RegistryMessage>,
    gate: Option<oneshot::Sender<()>>,
    finish: watch::Sender<bool>,
    outbox: Option<mpsc::Sender<CoordinatorMessage>>,
    outputs: Vec<AbortOnDropHandle<()>>,
    /// What takes messages from the client, until nothing is taken any more.
    inputs: Option<[AbortOnDropHandle<()>; 2]>,
}

/// The session actor.
pub struct Session;

impl Actor for Session {
    type Msg = SessionMessage;
    type State = SessionState;
    type Arguments = SessionArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: SessionArguments,
    ) -> Result<SessionState, ActorProcessingErr> {
        let SessionArguments { session, generation, mut channel, streams, order, handed, link, registry } = arguments;
        // Before anything runs: a client that lost its connection without this may ask again.
        let opened = CoordinatorMessage::Opened { session: session.clone(), input_window: INPUT_WINDOW };
        tokio::time::timeout(GREETING, channel.send(opened)).await??;
        link.cast(LinkMessage::Order(order, handed))?;
        let (sink, source) = futures_util::StreamExt::split(channel);
        let (outbox, messages) = mpsc::channel(2);
        let (finish, finished) = watch::channel(false);
        let (gate, opened) = oneshot::channel();
        let (terminal, input, outputs) = match streams {
            SessionStreams::Terminal(master) => {
                let master = Arc::new(master);
                (Some(master.clone()), master.clone(), vec![(Stream::Output, master)])
            }
            SessionStreams::Pipes { input, output, error } => {
                let outputs = vec![(Stream::Output, Arc::new(output)), (Stream::Error, Arc::new(error))];
                (None, Arc::new(input), outputs)
            }
        };
        let (typed, keys) = mpsc::unbounded_channel();
        let credit = Arc::new(carry::Credit::new(INPUT_WINDOW));
        let task = AbortOnDropHandle::new;
        let inputs = [
            task(tokio::spawn(carry::receive(source, typed, credit.clone(), myself.clone()))),
            task(tokio::spawn(carry::write_input(keys, input, opened, credit, outbox.clone(), generation.clone()))),
        ];
        let outputs = outputs
            .into_iter()
            .map(|(stream, fd)| task(tokio::spawn(carry::read_output(stream, fd, finished.clone(), outbox.clone()))))
            .collect();
        tokio::spawn(carry::send(sink, messages, myself, link.clone()));
        Ok(SessionState {
            session,
            generation,
            phase: SessionPhase::Opening(Vec::new()),
            terminal,
            link,
            registry,
            gate: Some(gate),
            finish,
            outbox: Some(outbox),
            outputs,
            inputs: Some(inputs),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: SessionMessage,
        state: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SessionMessage::Event(SessionEvent::Control(_)) | SessionMessage::Resize(_) if !state.has_traffic() => {}
            SessionMessage::Event(event) => state.advance(&myself, event),
            SessionMessage::Resize(size) => {
                if let Some(terminal) = &state.terminal
                    && let Err(error) = pty::set_size(terminal.fd(), size)
                {
                    tracing::warn!(session = %state.session, %error, "a terminal can't be resized");
                }
            }
            SessionMessage::KillOverdue => {
                if matches!(state.phase, SessionPhase::Ending(_)) {
                    tracing::error!(session = %state.session, "the session's processes could not be killed");
                    state.registry.cast(RegistryMessage::SessionStuck(state.session.clone()))?;
                }
            }
        }
        Ok(())
    }
}

impl SessionState {
    /// Tells whether what the client sends still reaches the process.
    fn has_traffic(&self) -> bool {
        self.inputs.is_some() && self.generation.has_traffic()
    }

    fn advance(&mut self, myself: &ActorRef<SessionMessage>, event: SessionEvent) {
        tracing::debug!(session = %self.session, phase = ?self.phase, ?event, "session");
        let (phase, effects) = step(std::mem::replace(&mut self.phase, SessionPhase::Closed), event);
        self.phase = phase;
        for effect in effects {
            match effect {
                SessionEffect::OpenInput => {
                    if let Some(gate) = self.gate.take() {
                        gate.send(()).ok();
                    }
                }
                SessionEffect::Signal(event) => self.signal(event),
                SessionEffect::Kill => {
                    self.trace("CloseSession");
                    self.inputs = None;
                    let order = CoordinatorOrder::KillSession { session: self.session.clone() };
                    self.link.cast(LinkMessage::Order(order, Vec::new())).ok();
                    myself.send_after(KILL_DEADLINE, || SessionMessage::KillOverdue);
                }
                SessionEffect::Drain(end) => self.drain(myself.clone(), end),
                SessionEffect::LimitDrain => {
                    myself.send_after(FAREWELL, || SessionMessage::Event(SessionEvent::Drained));
                }
                SessionEffect::Close => {
                    self.registry.cast(RegistryMessage::SessionClosed(self.session.clone())).ok();
                }
            }
        }
    }

    fn trace(&self, action: &str) {
        protocol_trace::event(action).with("session", &self.session).write();
    }

    fn signal(&self, event: ControlEvent) {
        self.trace("ControlSession");
        let order = CoordinatorOrder::SignalSession { session: self.session.clone(), event };
        // A link that is gone has ended the session as well.
        self.link.cast(LinkMessage::Order(order, Vec::new())).ok();
    }

    /// Delivers what was written before the end, then the end itself.
    fn drain(&mut self, myself: ActorRef<SessionMessage>, end: SessionEnd) {
        self.finish.send_replace(true);
        let outputs = std::mem::take(&mut self.outputs);
        let Some(outbox) = self.outbox.take() else { return };
        tokio::spawn(async move {
            for output in outputs {
                output.await.ok();
            }
            // The sender task reports `Drained` when the end is sent or the client is gone.
            if outbox.send(CoordinatorMessage::Ended(end)).await.is_err() {
                myself.cast(SessionMessage::Event(SessionEvent::Drained)).ok();
            }
        });
    }
}
