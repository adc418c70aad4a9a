//! Actors: the only code that touches the world, in two supervision trees.

use ractor::{Actor, ActorId, ActorRef, SpawnErr, SupervisionEvent};

use crate::fault;

pub mod host;
pub mod runtime;

/// Starts an actor as the child of another.
pub(crate) async fn spawn<A: Actor, M>(
    parent: &ActorRef<M>,
    actor: A,
    arguments: A::Arguments,
) -> Result<ActorRef<A::Msg>, SpawnErr> {
    let (child, _) = Actor::spawn_linked(None, fault::actor(actor), arguments, parent.get_cell()).await?;
    Ok(child)
}

/// Tells which child ended and how, for people; nothing when none did. What the child held is let go of.
pub(crate) fn ended(event: SupervisionEvent) -> Option<(ActorId, String)> {
    match event {
        SupervisionEvent::ActorFailed(child, error) => Some((child.get_id(), error.to_string())),
        SupervisionEvent::ActorTerminated(child, _, reason) => {
            Some((child.get_id(), reason.unwrap_or_else(|| "it was stopped".to_owned())))
        }
        SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => None,
    }
}
