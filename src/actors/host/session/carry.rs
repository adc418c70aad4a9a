//! The tasks that carry a session's bytes. Each holds at most a few frames, so a slow end slows the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use ractor::{ActorRef, ActorStatus};
use tokio::sync::{mpsc, oneshot, watch};

use super::streams::{Found, OUTPUT_CHUNK, SessionStream};
use crate::actors::host::generation::GenerationContext;
use crate::actors::host::messages::{LinkMessage, SessionMessage};
use crate::core::session::SessionEvent;
use crate::domain::session::SessionEnd;
use crate::identity::channel::ServerChannel;
use crate::wire::client::{ClientMessage, CoordinatorMessage, Stream};

/// How long a pipe that a dying process still holds is read after the session's end.
const PIPE_GRACE: Duration = Duration::from_millis(250);

/// Receives a client's messages until it goes. It never waits for the session, so that a control event
/// is not held up by input; the credit that the client was granted bounds what can pile up.
pub async fn receive(
    mut source: SplitStream<ServerChannel>,
    typed: mpsc::UnboundedSender<Vec<u8>>,
    credit: Arc<Credit>,
    session: ActorRef<SessionMessage>,
) {
    let mut typed = Some(typed);
    loop {
        let told = match source.next().await {
            Some(Ok(ClientMessage::Input(bytes))) if credit.spend(bytes.len()) => {
                if let Some(typed) = &typed {
                    typed.send(bytes).ok();
                }
                continue;
            }
            Some(Ok(ClientMessage::InputEnd)) => {
                typed = None;
                continue;
            }
            Some(Ok(ClientMessage::Resize(size))) => SessionMessage::Resize(size),
            Some(Ok(ClientMessage::Control(event))) => SessionMessage::Event(SessionEvent::Control(event)),
            Some(Ok(message)) => {
                tracing::warn!(message = message.name(), "a client sent what has no place in a session now");
                SessionMessage::Event(SessionEvent::ClientGone)
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "a client's connection failed");
                SessionMessage::Event(SessionEvent::ClientGone)
            }
            None => SessionMessage::Event(SessionEvent::ClientGone),
        };
        let over = matches!(told, SessionMessage::Event(SessionEvent::ClientGone));
        if session.cast(told).is_err() || over {
            return;
        }
    }
}

/// The input bytes that a client may still send.
#[derive(Debug)]
pub struct Credit(AtomicUsize);

impl Credit {
    /// Grants the window.
    pub fn new(window: u32) -> Self {
        Self(AtomicUsize::new(window as usize))
    }

    /// Takes bytes off the credit; false when the client sent more than it was granted.
    fn spend(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Writes input to the process once the gate opens and while the generation is not ending, gives the credit back as
/// it is taken, and closes the input when the client's ends. What a process that closed its input can't take is dropped.
pub async fn write_input(
    mut keys: mpsc::UnboundedReceiver<Vec<u8>>,
    input: Arc<SessionStream>,
    opened: oneshot::Receiver<()>,
    credit: Arc<Credit>,
    outbox: mpsc::Sender<CoordinatorMessage>,
    generation: Arc<GenerationContext>,
) {
    if opened.await.is_err() {
        return;
    }
    let mut input = Some(input);
    while let Some(bytes) = keys.recv().await {
        if !generation.has_traffic() {
            return;
        }
        if let Some(open) = &input
            && let Err(error) = open.write_all(&bytes).await
        {
            tracing::debug!(%error, "the session takes no more input");
            input = None;
        }
        credit.give_back(bytes.len());
        let taken = u32::try_from(bytes.len()).expect("a frame is far below 4 GiB");
        if outbox.send(CoordinatorMessage::InputTaken(taken)).await.is_err() {
            return;
        }
    }
}

/// Reads one output stream until it ends, or until nothing is left after the session's end.
pub async fn read_output(
    stream: Stream,
    fd: Arc<SessionStream>,
    mut finished: watch::Receiver<bool>,
    outbox: mpsc::Sender<CoordinatorMessage>,
) {
    let mut buffer = Vec::new();
    loop {
        let found = tokio::select! {
            biased;
            _ = finished.wait_for(|finished| *finished) => break,
            found = fd.read(&mut buffer) => found,
        };
        if !deliver(stream, found, &mut buffer, &outbox).await {
            return;
        }
    }
    // The process is gone. A terminal holds all that it wrote; a pipe says when it is empty.
    loop {
        let found = match fd.read_now(&mut buffer) {
            Ok(Found::Nothing) => match tokio::time::timeout(PIPE_GRACE, fd.read(&mut buffer)).await {
                Ok(found) => found,
                Err(_) => return,
            },
            found => found,
        };
        if !deliver(stream, found, &mut buffer, &outbox).await {
            return;
        }
    }
}

/// Sends what was read; tells whether more may come.
async fn deliver(
    stream: Stream,
    found: std::io::Result<Found>,
    buffer: &mut Vec<u8>,
    outbox: &mpsc::Sender<CoordinatorMessage>,
) -> bool {
    match found {
        Ok(Found::Bytes) => {
            let bytes = std::mem::replace(buffer, Vec::with_capacity(OUTPUT_CHUNK));
            outbox.send(CoordinatorMessage::Output(stream, bytes)).await.is_ok()
        }
        Ok(Found::Nothing) => true,
        Ok(Found::End) => false,
        Err(error) => {
            tracing::warn!(%error, "a session's output can't be read");
            false
        }
    }
}

/// Sends messages to the client; flushes when none is waiting. Ends after the session's end is sent. When
/// the actor is gone, that is what the client is told; not by a coordinator that itself is about to end, since a
/// client that is cut off removes what it leaves.
pub async fn send(
    mut sink: SplitSink<ServerChannel, CoordinatorMessage>,
    mut messages: mpsc::Receiver<CoordinatorMessage>,
    session: ActorRef<SessionMessage>,
    link: ActorRef<LinkMessage>,
) {
    while let Some(message) = messages.recv().await {
        let last = matches!(message, CoordinatorMessage::Ended(_));
        let sent = match sink.feed(message).await {
            Ok(()) if last || messages.is_empty() => sink.flush().await,
            fed => fed,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a client no longer takes output");
            session.cast(SessionMessage::Event(SessionEvent::ClientGone)).ok();
            session.cast(SessionMessage::Event(SessionEvent::Drained)).ok();
            return;
        }
        if last {
            sink.close().await.ok();
            session.cast(SessionMessage::Event(SessionEvent::Drained)).ok();
            return;
        }
    }
    if link.get_status() != ActorStatus::Running {
        return;
    }
    let lost =
        SessionEnd::SandboxLost("the Host Coordinator lost this session, which is a defect of Lazaret".to_owned());
    sink.send(CoordinatorMessage::Ended(lost)).await.ok();
    sink.close().await.ok();
}
