//! Work of the coordinator that is done beside its mailbox.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use ractor::ActorRef;
use tokio::task::JoinHandle;

use super::messages::HostMessage;
use crate::core::restart;
use crate::fault;

/// Has work done in a task, and tells the coordinator what came of it. A panic means what the loss of
/// an actor means: the coordinator would wait for ever for the work's outcome.
pub fn begin(
    coordinator: &ActorRef<HostMessage>,
    name: &'static str,
    work: impl Future<Output = HostMessage> + Send + 'static,
) -> JoinHandle<()> {
    let coordinator = coordinator.clone();
    let work = async move {
        let _around = fault::around(&name);
        fault::task(name);
        work.await
    };
    tokio::spawn(async move {
        let message = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(message) => message,
            Err(panic) => lost(name, &*panic),
        };
        coordinator.cast(message).ok();
    })
}

fn lost(name: &'static str, panic: &(dyn std::any::Any + Send)) -> HostMessage {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    HostMessage::Event(restart::loss(&format!("the {name} task"), text.unwrap_or("it panicked")).into())
}
