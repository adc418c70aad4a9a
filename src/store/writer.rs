//! The Domain Store as an actor: the only writer, one transaction at a time, off the runtime's thread.
//!
//! Its parent is the Host Coordinator's root; it has no children. Requests are applied in the order
//! in which they arrive and answered when they are durable. Those that arrive while a transaction is
//! being written share the next one, each applied or refused by itself. Its death means that nothing
//! can be recorded any more, so the generation is taken down; the next start recovers it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ractor::concurrency::oneshot;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::domain_store::{DomainStore, StoreError};
use crate::core::generation::{Change, GenerationDocument, Refusal};

/// How long [`apply`] waits for a transaction; one takes a millisecond, a busy disk up to seconds.
pub const APPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request was not applied.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The rules of the generation document don't permit it; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Writing failed; whether the request is on disk is known only after opening the store again.
    #[error("can't record it in the Domain Store")]
    Failed(#[source] Arc<StoreError>),
    /// The writer is gone or does not answer.
    #[error("the Domain Store's writer does not answer")]
    Gone,
}

/// What a request is answered with: the document right after it.
pub type WriteReply = Result<Arc<GenerationDocument>, WriteError>;

/// What the writer is asked.
#[derive(Debug)]
pub enum StoreWriterMessage {
    /// Applies the changes, all or none, and answers when they are durable.
    Apply {
        /// The changes, in order.
        changes: Vec<Change>,
        /// Where the answer goes.
        reply: RpcReplyPort<WriteReply>,
    },
    /// Answers with the document as last committed.
    Document(RpcReplyPort<Option<Arc<GenerationDocument>>>),
    /// Closes the store, so that the next open need not repair it, and ends the actor.
    Close(RpcReplyPort<()>),
    /// A transaction is done; from the writing thread.
    Written(Box<DomainStore>),
}

/// The writer.
#[derive(Debug)]
pub struct StoreWriter;

struct Request {
    changes: Vec<Change>,
    reply: RpcReplyPort<WriteReply>,
}

/// State of the writer.
pub struct StoreWriterState {
    /// The store, while no transaction is being written.
    idle: Option<Box<DomainStore>>,
    /// Requests for the next transaction.
    queue: VecDeque<Request>,
    /// The document as last committed.
    document: Option<Arc<GenerationDocument>>,
    /// Who waits for the close.
    closing: Option<RpcReplyPort<()>>,
}

impl Actor for StoreWriter {
    type Msg = StoreWriterMessage;
    type State = StoreWriterState;
    type Arguments = DomainStore;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        store: DomainStore,
    ) -> Result<Self::State, ActorProcessingErr> {
        let document = store.document().cloned().map(Arc::new);
        Ok(StoreWriterState { idle: Some(Box::new(store)), queue: VecDeque::new(), document, closing: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            StoreWriterMessage::Apply { changes, reply } if state.closing.is_none() => {
                state.queue.push_back(Request { changes, reply });
            }
            StoreWriterMessage::Apply { reply, .. } => answer(reply, Err(WriteError::Gone)),
            StoreWriterMessage::Document(reply) => {
                if !reply.is_closed() {
                    reply.send(state.document.clone()).ok();
                }
            }
            StoreWriterMessage::Close(reply) => state.closing = Some(reply),
            StoreWriterMessage::Written(store) => {
                state.document = store.document().cloned().map(Arc::new);
                state.idle = Some(store);
            }
        }
        advance(&myself, state).await
    }
}

/// Starts the next transaction, or closes, when the store is idle.
async fn advance(
    myself: &ActorRef<StoreWriterMessage>,
    state: &mut StoreWriterState,
) -> Result<(), ActorProcessingErr> {
    let Some(mut store) = state.idle.take() else { return Ok(()) };
    if !state.queue.is_empty() {
        let requests: Vec<Request> = state.queue.drain(..).collect();
        let myself = myself.clone();
        tokio::task::spawn_blocking(move || {
            let answers = write(&mut store, requests);
            // Before the answers, so that who was answered and then asks for the document sees his change in it.
            // When the actor is gone the store is dropped here, which closes it.
            myself.send_message(StoreWriterMessage::Written(store)).ok();
            for (reply, outcome) in answers {
                answer(reply, outcome);
            }
        });
    } else if let Some(reply) = state.closing.take() {
        tokio::task::spawn_blocking(move || drop(store)).await?;
        reply.send(()).ok();
        myself.stop(None);
    } else {
        state.idle = Some(store);
    }
    Ok(())
}

/// Writes the requests in one transaction and gives each one's answer.
fn write(store: &mut DomainStore, requests: Vec<Request>) -> Vec<(RpcReplyPort<WriteReply>, WriteReply)> {
    let changes: Vec<&[Change]> = requests.iter().map(|request| request.changes.as_slice()).collect();
    let outcomes: Vec<WriteReply> = match store.apply_group(&changes) {
        Ok(outcomes) => outcomes.into_iter().map(|outcome| Ok(Arc::new(outcome?))).collect(),
        Err(error) => {
            let error = Arc::new(error);
            requests.iter().map(|_| Err(WriteError::Failed(error.clone()))).collect()
        }
    };
    requests.into_iter().map(|request| request.reply).zip(outcomes).collect()
}

/// Answers, if anybody still waits.
fn answer(reply: RpcReplyPort<WriteReply>, outcome: WriteReply) {
    reply.send(outcome).ok();
}

/// Queues changes at once, so that they are written in the order of calls, and gives what to await: it ends
/// when they are durable.
pub fn apply(writer: &ActorRef<StoreWriterMessage>, changes: Vec<Change>) -> impl Future<Output = WriteReply> + use<> {
    let (sender, receiver) = oneshot();
    let reply: RpcReplyPort<WriteReply> = (sender, APPLY_TIMEOUT).into();
    let queued = writer.cast(StoreWriterMessage::Apply { changes, reply });
    async move {
        queued.map_err(|_| WriteError::Gone)?;
        match tokio::time::timeout(APPLY_TIMEOUT, receiver).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => Err(WriteError::Gone),
        }
    }
}
