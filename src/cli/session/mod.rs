//! A Client Session as the client carries it: input, output, terminal and signals.
//!
//! ```text
//!  standard input ─ reader thread ─┐                        ┌─ writer thread ─ standard output, error
//!                        [bounded] ├─▶ send ═ channel ═▶ receive [bounded]
//!  signals, size ──────────────────┘
//! ```
//!
//! - [`input`], [`output`]: the threads
//! - [`escape`]: the `~.` sequence
//! - [`signals`]: what signals do

pub mod escape;
pub mod input;
pub mod output;
pub mod signals;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use nix::sys::signal::Signal;
use tokio::sync::{Notify, mpsc};

use self::escape::{EscapeFilter, Passage};
use self::input::{Input, Reader};
use self::output::{WriteError, Writer};
use self::signals::{Presence, Signals};
use super::args::EscapeCharacter;
use super::terminal::SessionTerminal;
use crate::domain::ids::ConfigFingerprint;
use crate::domain::session::{SessionEnd, SessionRequest, Terminal};
use crate::identity::ClientChannel;
use crate::sys::terminal::modes::OutputModes;
use crate::wire::client::{ClientMessage, CoordinatorMessage, Refusal, Stream};
use crate::wire::frame::FrameError;

/// A session that was not opened, or can't be carried.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The coordinator refused it.
    #[error("the session was refused")]
    Refused(#[source] Refusal),
    /// The connection was lost before the session was open.
    #[error("the coordinator was lost before the session was open")]
    LostEarly(#[source] Option<FrameError>),
    /// The terminal can't be put into raw mode.
    #[error("the terminal can't be put into raw mode")]
    Raw(#[source] io::Error),
    /// Signals or threads can't be set up.
    #[error("the session's input and output can't be set up")]
    SetUp(#[source] io::Error),
}

/// How carrying a session ended.
#[derive(Debug)]
pub enum Outcome {
    /// The session ended.
    Ended(SessionEnd),
    /// The coordinator was lost.
    Lost,
    /// Nobody reads the output any more.
    OutputClosed,
    /// The output can't be written.
    OutputFailed(io::Error),
    /// The user typed the escape sequence.
    Disconnected,
    /// A signal asks the client to end.
    Signalled(Signal),
}

/// The client's standard streams, or what stands in for them.
#[derive(Debug)]
pub struct Streams {
    /// Input; the terminal of an interactive session.
    pub input: OwnedFd,
    /// Output.
    pub output: OwnedFd,
    /// Error output.
    pub error: OwnedFd,
}

/// An open session.
pub struct OpenSession {
    channel: ClientChannel,
    window: u32,
    presence: Presence,
}

/// Opens a session on a fresh channel. Nothing is read from standard input before it is open.
pub async fn open(
    mut channel: ClientChannel,
    request: SessionRequest,
    configuration: Option<ConfigFingerprint>,
) -> Result<OpenSession, SessionError> {
    let presence = match request.terminal {
        Terminal::Interactive(_) => Presence::Terminal,
        Terminal::Pipes => Presence::Pipes,
    };
    let message = ClientMessage::Open { request, configuration };
    channel.send(message).await.map_err(|error| SessionError::LostEarly(Some(error)))?;
    match channel.next().await {
        Some(Ok(CoordinatorMessage::Opened { input_window, .. })) => {
            Ok(OpenSession { channel, window: input_window, presence })
        }
        Some(Ok(CoordinatorMessage::Refused(refusal))) => Err(SessionError::Refused(refusal)),
        Some(Err(error)) => Err(SessionError::LostEarly(Some(error))),
        Some(Ok(_)) | None => Err(SessionError::LostEarly(None)),
    }
}

impl OpenSession {
    /// Carries the session until it ends. When this returns, the terminal is restored and all
    /// output is written that could be.
    pub async fn carry(self, streams: Streams, escape: EscapeCharacter) -> Result<Outcome, SessionError> {
        let mut signals = Signals::take_over(self.presence).map_err(SessionError::SetUp)?;
        let device = streams.input.try_clone().map_err(SessionError::SetUp)?;
        let mut terminal = match self.presence {
            Presence::Terminal => Some(SessionTerminal::enter(device).map_err(SessionError::Raw)?),
            Presence::Pipes => None,
        };
        let mut reader = input::start(streams.input).map_err(SessionError::SetUp)?;
        let mut writer = output::start(streams.output, streams.error).map_err(SessionError::SetUp)?;
        let (sink, source) = self.channel.split();
        let credit = Credit::new(self.window);
        let (messages, queued) = mpsc::channel(16);
        let escape = match self.presence {
            Presence::Terminal => escape,
            Presence::Pipes => EscapeCharacter::None,
        };
        let queue = writer.queue();
        let outcome = tokio::select! {
            outcome = receive(source, queue, &credit, self.presence) => outcome,
            outcome = send(sink, &mut reader, queued, &credit, EscapeFilter::new(escape), self.presence) => outcome,
            error = writer.failure() => error.into(),
            signal = serve(&mut signals, terminal.as_mut(), &messages) => Outcome::Signalled(signal),
        };
        drop(reader);
        let outcome = drain(writer, &mut signals, outcome).await;
        drop(terminal);
        Ok(outcome)
    }
}

/// Lets the last output be written, unless writing is what failed or a signal says not to wait.
async fn drain(writer: Writer, signals: &mut Signals, outcome: Outcome) -> Outcome {
    if !matches!(outcome, Outcome::Ended(_) | Outcome::Lost) {
        return outcome;
    }
    tokio::select! {
        written = writer.finish() => written.map_or_else(Outcome::from, |()| outcome),
        signal = signals.ending() => Outcome::Signalled(signal),
    }
}

async fn serve(
    signals: &mut Signals,
    terminal: Option<&mut SessionTerminal>,
    messages: &mpsc::Sender<ClientMessage>,
) -> Signal {
    match terminal {
        Some(terminal) => signals.serve_terminal(terminal, messages).await,
        None => signals.pass_on(messages).await,
    }
}

/// Takes what the coordinator sends until the session ends or the coordinator is lost.
async fn receive(
    mut source: SplitStream<ClientChannel>,
    queue: mpsc::Sender<(Stream, Vec<u8>)>,
    credit: &Credit,
    presence: Presence,
) -> Outcome {
    let mut modes = OutputModes::default();
    while let Some(Ok(message)) = source.next().await {
        match message {
            CoordinatorMessage::Output(stream, bytes) => {
                if presence == Presence::Terminal {
                    modes.observe(&bytes);
                }
                if queue.send((stream, bytes)).await.is_err() {
                    // The writer ended and says why.
                    return std::future::pending().await;
                }
            }
            CoordinatorMessage::InputTaken(count) => credit.give(count),
            CoordinatorMessage::Ended(end) => return Outcome::Ended(end),
            // Nothing else belongs here: a coordinator that breaks the protocol is as good as lost.
            _ => return Outcome::Lost,
        }
    }
    Outcome::Lost
}

/// Sends input as far as the credit goes, and everything else before it. Ends only when the user
/// or the terminal ends the session.
async fn send(
    mut sink: SplitSink<ClientChannel, ClientMessage>,
    reader: &mut Reader,
    mut queued: mpsc::Receiver<ClientMessage>,
    credit: &Credit,
    mut escape: EscapeFilter,
    presence: Presence,
) -> Outcome {
    let mut waiting: Vec<u8> = Vec::new();
    let mut reading = true;
    loop {
        let message = tokio::select! {
            biased;
            Some(message) = queued.recv() => message,
            granted = credit.take(waiting.len()), if !waiting.is_empty() => {
                let rest = waiting.split_off(granted);
                ClientMessage::Input(std::mem::replace(&mut waiting, rest))
            }
            input = reader.inputs.recv(), if waiting.is_empty() && reading => match input {
                Some(Input::Bytes(bytes)) => match escape.pass(bytes) {
                    Passage::Forward(bytes) => {
                        waiting = bytes;
                        continue;
                    }
                    Passage::Disconnect => return Outcome::Disconnected,
                },
                // A terminal in raw mode has no end of input: it is gone.
                _ if presence == Presence::Terminal => return Outcome::Signalled(Signal::SIGHUP),
                _ => {
                    reading = false;
                    ClientMessage::InputEnd
                }
            },
            else => return std::future::pending().await,
        };
        if sink.send(message).await.is_err() {
            // The receiving side may still have the session's last words.
            return std::future::pending().await;
        }
    }
}

/// How many bytes of input may be sent. Both sides of it live in one task.
#[derive(Debug)]
struct Credit {
    left: Cell<u32>,
    more: Notify,
}

impl Credit {
    fn new(window: u32) -> Self {
        Self { left: Cell::new(window), more: Notify::new() }
    }

    fn give(&self, count: u32) {
        self.left.set(self.left.get().saturating_add(count));
        self.more.notify_one();
    }

    /// Waits for credit and takes as much of it as there is, at most `wanted`.
    async fn take(&self, wanted: usize) -> usize {
        while self.left.get() == 0 {
            self.more.notified().await;
        }
        let left = self.left.get();
        let taken = u32::try_from(wanted).map_or(left, |wanted| left.min(wanted));
        self.left.set(left - taken);
        taken as usize
    }
}

impl From<WriteError> for Outcome {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Closed => Self::OutputClosed,
            WriteError::Failed(source) => Self::OutputFailed(source),
        }
    }
}

#[cfg(test)]
mod tests;
