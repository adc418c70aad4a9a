//! Removal of what a generation leaves on disk.
//!
//! Files in the scratch belong to subordinate ids, so that only a process with the Domain's identity
//! mapping can remove them. State Anchors lie elsewhere and are never touched here.

use std::path::Path;

use tracing::warn;

use crate::domain::runtime::RuntimePlan;
use crate::sys::directories::remove_tree;

/// Removes scratch and runsc's private directory. What can't be removed is left to recovery.
pub(super) async fn remove(plan: &RuntimePlan) {
    let (scratch, runsc) = (plan.scratch.clone(), plan.runsc_directory.clone());
    let work = move || {
        remove_one(&runsc);
        remove_one(&scratch);
    };
    if tokio::task::spawn_blocking(work).await.is_err() {
        warn!("the removal was interrupted");
    }
}

fn remove_one(path: &Path) {
    if let Err(error) = remove_tree(path) {
        warn!(path = %path.display(), %error, "left to recovery");
    }
}
