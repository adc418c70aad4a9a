//! The coordinator's handle on the Domain Store's writer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ractor::concurrency::oneshot;
use ractor::{ActorId, ActorRef, RpcReplyPort};

use crate::core::generation::{Change, GenerationDocument};
use crate::store::writer::{APPLY_TIMEOUT, StoreWriterMessage, WriteError, WriteReply, apply};

/// How long the store may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes and reads the generation document.
#[derive(Debug, Clone)]
pub struct Records(ActorRef<StoreWriterMessage>);

impl Records {
    /// Takes the writer.
    pub fn new(writer: ActorRef<StoreWriterMessage>) -> Self {
        Self(writer)
    }

    /// Gives the writer's id.
    pub fn writer(&self) -> ActorId {
        self.0.get_id()
    }

    /// Applies changes, all or none, and returns when they are durable.
    pub async fn apply(&self, changes: Vec<Change>) -> WriteReply {
        apply(&self.0, changes).await
    }

    /// Queues changes at once, so that they are written in the order of calls, and gives what to await.
    pub fn submit(&self, changes: Vec<Change>) -> impl Future<Output = WriteReply> + use<> {
        let (sender, receiver) = oneshot();
        let reply: RpcReplyPort<WriteReply> = (sender, APPLY_TIMEOUT).into();
        let queued = self.0.cast(StoreWriterMessage::Apply { changes, reply });
        async move {
            queued.map_err(|_| WriteError::Gone)?;
            match tokio::time::timeout(APPLY_TIMEOUT, receiver).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) | Err(_) => Err(WriteError::Gone),
            }
        }
    }

    /// Gives the document as last committed; nothing when the Domain never had a generation.
    pub async fn document(&self) -> Result<Option<Arc<GenerationDocument>>, WriteError> {
        let timeout = APPLY_TIMEOUT.as_millis() as u64;
        ractor::call_t!(self.0, StoreWriterMessage::Document, timeout).map_err(|_| WriteError::Gone)
    }

    /// Closes the store, so that the next open need not repair it.
    pub async fn close(&self) {
        let timeout = CLOSE_TIMEOUT.as_millis() as u64;
        if ractor::call_t!(self.0, StoreWriterMessage::Close, timeout).is_err() {
            tracing::warn!("the Domain Store was not closed in order");
        }
    }
}
