//! What the Runtime Supervisor is told by those below it, in one place, so that parent and children
//! need not name each other's files for it.

use std::os::fd::OwnedFd;

use ractor::{Actor, ActorRef, SpawnErr};
use tokio::sync::OwnedSemaphorePermit;

use crate::core::supervision::Event;
use crate::domain::ids::SessionId;
use crate::fault;
use crate::wire::lease::{CoordinatorOrder, ExecOutcome, InnerProcess, SupervisorReport};

/// What the supervisor is told.
pub enum SupervisorMessage {
    /// By the lease: an order of the coordinator.
    Order(Box<ReceivedOrder>),
    /// By the owner of a resource: what happened, and the report that goes with it.
    Resource(Event, Option<SupervisorReport>),
    /// By a session's actor: its news.
    Session(SessionId, SessionNews),
    /// By the clock: the current deadline is over.
    DeadlineExpired,
}

/// News of a session for the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionNews {
    /// Its process runs.
    Started {
        /// The client.
        exec: InnerProcess,
        /// The guest process.
        guest_pid: i32,
    },
    /// It ended.
    Ended(ExecOutcome),
    /// It ended some time ago, and what else happened is known by now.
    Settled(ExecOutcome),
}

/// An order with what came along.
pub struct ReceivedOrder {
    /// The order.
    pub order: CoordinatorOrder,
    /// Descriptors that rode along.
    pub fds: Vec<OwnedFd>,
    /// Given back when the order is done with, which lets the reader take the next one.
    pub permit: OwnedSemaphorePermit,
}

/// Spawns a child of the supervisor, which carries out the supervisor's effects.
pub(super) async fn spawn<A: Actor>(
    parent: &ActorRef<SupervisorMessage>,
    actor: A,
    arguments: A::Arguments,
) -> Result<ActorRef<A::Msg>, SpawnErr> {
    let (child, _) = Actor::spawn_linked(None, fault::effector(actor), arguments, parent.get_cell()).await?;
    Ok(child)
}
