//! The session that the starting client announced: its `runsc exec` client starts with the sandbox, beside
//! the sandbox's own start and probe, and its command waits until the client has registered.

use ractor::ActorRef;

use super::generation::{Announced, GenerationContext};
use super::messages::LinkMessage;
use super::session::{SessionStreams, open};
use crate::core::admission::admit;
use crate::domain::ids::SessionId;
use crate::domain::session::{SessionRequest, Terminal};
use crate::wire::lease::CoordinatorOrder;

/// A session that is prepared and that nobody has registered for.
#[derive(Debug)]
pub struct PreparedSession {
    /// The session.
    pub session: SessionId,
    /// The coordinator's ends of its streams.
    pub streams: SessionStreams,
    /// Whether its process runs.
    pub started: bool,
    /// Whether it is being ended, since nobody asked for it.
    pub overdue: bool,
    request: SessionRequest,
}

impl PreparedSession {
    /// Opens the streams of what was announced and orders its process. Nothing comes of an announcement that
    /// is not admissible: its client hears so when it registers.
    pub fn order(generation: &GenerationContext, link: &ActorRef<LinkMessage>) -> Option<Self> {
        let Announced { session, request } = generation.announced.clone()?;
        let process = admit(&generation.grant(), &session, &request, None).ok()?;
        let opened = open(request.terminal);
        if let Err(error) = &opened {
            tracing::warn!(%session, %error, "a session can't be prepared");
        }
        let (streams, handed) = opened.ok()?;
        let order = CoordinatorOrder::PrepareSession { session: session.clone(), process };
        link.cast(LinkMessage::Order(order, handed)).ok()?;
        Some(Self { session, streams, started: false, overdue: false, request })
    }

    /// Tells whether this is what a client asks for, and can still have. Its terminal may have another size by now.
    pub fn serves(&self, request: &SessionRequest) -> bool {
        let sizeless = |request: &SessionRequest| SessionRequest {
            terminal: match request.terminal {
                Terminal::Interactive(_) => Terminal::Interactive(Default::default()),
                Terminal::Pipes => Terminal::Pipes,
            },
            ..request.clone()
        };
        !self.overdue && sizeless(&self.request) == sizeless(request)
    }
}
