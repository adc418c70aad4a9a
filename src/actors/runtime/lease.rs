//! The supervisor's end of the lifetime lease.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none, but a task that reads packets. The other
//! end closed, or a packet that can't be understood, means that nobody leads this generation any more:
//! the process exits at once, and the kernel ends everything in its pid namespace. The actor's own
//! death means the same.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::Semaphore;
use tracing::{error, info};

use super::messages::{ReceivedOrder, SupervisorMessage};
use crate::sys::seqpacket::Lease;
use crate::wire::frame::{self, LEASE_PACKET_LIMIT};
use crate::wire::lease::SupervisorReport;

/// Orders that may wait in the supervisor's mailbox; further packets stay in the socket.
const ORDERS_IN_HAND: usize = 64;
/// Longest time that a coordinator may leave reports unread before it counts as lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// What a lease actor is started with.
pub struct LeaseArguments {
    /// The open lease.
    pub lease: Lease,
    /// Where orders go.
    pub supervisor: ActorRef<SupervisorMessage>,
}

/// What a lease actor is told.
pub enum LeaseMessage {
    /// Send a report.
    Send(Box<SupervisorReport>),
    /// Answer when every report before this message is sent.
    Flush(RpcReplyPort<()>),
}

/// The lease actor.
pub struct LeaseLink;

impl Actor for LeaseLink {
    type Msg = LeaseMessage;
    type State = Arc<Lease>;
    type Arguments = LeaseArguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        arguments: LeaseArguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let lease = Arc::new(arguments.lease);
        tokio::spawn(read_orders(lease.clone(), arguments.supervisor));
        Ok(lease)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: LeaseMessage,
        lease: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            LeaseMessage::Send(report) => send(lease, &report).await,
            LeaseMessage::Flush(reply) => {
                let _ = reply.send(());
            }
        }
        Ok(())
    }
}

async fn read_orders(lease: Arc<Lease>, supervisor: ActorRef<SupervisorMessage>) {
    let permits = Arc::new(Semaphore::new(ORDERS_IN_HAND));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match lease.receive().await {
            Ok(Some((bytes, fds))) => match frame::decode(&bytes) {
                Ok(order) => {
                    let received = ReceivedOrder { order, fds, permit };
                    if supervisor.cast(SupervisorMessage::Order(Box::new(received))).is_err() {
                        return;
                    }
                }
                Err(error) => abandon(&format!("an order could not be decoded: {error}")),
            },
            Ok(None) => abandon("the Host Coordinator is gone"),
            Err(error) => abandon(&format!("the lease failed: {error}")),
        }
    }
}

async fn send(lease: &Lease, report: &SupervisorReport) {
    let bytes = match frame::encode(report) {
        Ok(bytes) if bytes.len() <= LEASE_PACKET_LIMIT => bytes,
        Ok(bytes) => {
            error!(size = bytes.len(), "a report exceeds the packet limit and is dropped");
            return;
        }
        Err(cause) => {
            error!(%cause, "a report could not be encoded");
            return;
        }
    };
    match tokio::time::timeout(SEND_TIMEOUT, lease.send(&bytes, &[])).await {
        Ok(Ok(())) => {}
        Ok(Err(cause)) => abandon(&format!("the lease failed: {cause}")),
        Err(_) => abandon("the Host Coordinator does not read its reports"),
    }
}

/// Ends this process and with it the pid namespace.
fn abandon(reason: &str) -> ! {
    info!(reason, "ending");
    std::process::exit(1)
}
