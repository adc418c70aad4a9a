//! The coordinator's handle on the Domain Store's writer.

use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorId, ActorRef};

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

    /// Applies changes, all or none: at once queued, so that they are written in the order of calls, and durable
    /// when what is given ends.
    pub fn apply(&self, changes: Vec<Change>) -> impl Future<Output = WriteReply> + use<> {
        apply(&self.0, changes)
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
