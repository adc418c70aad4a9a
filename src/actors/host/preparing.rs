//! A start's preparation while it is under way.

use ractor::ActorRef;
use tokio::task::JoinHandle;

use super::messages::HostMessage;
use super::preparation::{self, PrepareRequest};
use super::startup::Startup;
use super::task;
use crate::domain::failure::Failure;
use crate::domain::layout::StorageRoot;

/// A preparation that tells the coordinator how it ended.
#[derive(Debug)]
pub struct Preparing {
    task: JoinHandle<()>,
    storage: StorageRoot,
}

impl Preparing {
    /// Begins it.
    pub fn begin(request: PrepareRequest, startup: Startup, coordinator: &ActorRef<HostMessage>) -> Self {
        let storage = request.storage.clone();
        let task = task::begin(coordinator, "preparation", async move {
            match preparation::prepare(&request, &|progress| startup.progress(progress)).await {
                Ok(manifest) => HostMessage::Prepared(Box::new(manifest)),
                Err(error) => HostMessage::Event(Failure::of(&error).with_hints(error.hints()).into()),
            }
        });
        Self { task, storage }
    }

    /// Stops it and removes what it left.
    pub async fn abandon(self) {
        self.task.abort();
        // Its processes are killed once it is gone.
        self.task.await.ok();
        if let Err(error) = preparation::give_up_own(&self.storage).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "left for the next preparation to remove");
        }
    }
}
