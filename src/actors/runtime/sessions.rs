//! The live sessions, as the supervisor keeps them: which actor carries each, and what it was told.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use ractor::{ActorId, ActorRef, SpawnErr};
use tracing::debug;

use super::children::Children;
use super::exec::{self, Begin, Exec, ExecArguments, ExecMessage};
use super::messages::{SupervisorMessage, spawn};
use super::runsc::command::Sandbox;
use crate::domain::ids::SessionId;
use crate::domain::runtime::GuestProcess;
use crate::domain::session::ControlEvent;
use crate::wire::lease::{ExecOutcome, InnerProcess};

/// Sessions at a time. Each costs a runsc client of 20 MB.
const LIMIT: usize = 256;
/// Status of a process that was ended by SIGKILL.
const KILLED: u8 = 128 + 9;

/// All live sessions.
pub(super) struct Sessions {
    sandbox: Sandbox,
    children: Children,
    live: HashMap<SessionId, Session>,
    begun: u64,
}

/// One session.
struct Session {
    actor: ActorRef<ExecMessage>,
    /// Its client and its guest process, once they are known.
    processes: Option<(InnerProcess, i32)>,
    kill: Kill,
}

/// Whether a session was told to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kill {
    NotOrdered,
    Ordered,
}

/// What became of an order to start a session.
pub(super) enum Start {
    /// Its actor runs.
    Begun,
    /// It is there already.
    Already,
    /// It is refused, for this reason.
    Refused(&'static str),
}

impl Sessions {
    /// Begins with no session in the sandbox.
    pub(super) fn new(sandbox: Sandbox, children: Children) -> Self {
        Self { sandbox, children, live: HashMap::new(), begun: 0 }
    }

    /// Tells whether no session is left.
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Starts the actor of a session.
    pub(super) async fn start(
        &mut self,
        supervisor: &ActorRef<SupervisorMessage>,
        session: SessionId,
        process: GuestProcess,
        begin: Begin,
        streams: Vec<OwnedFd>,
    ) -> Result<Start, SpawnErr> {
        if self.live.contains_key(&session) {
            return Ok(Start::Already);
        }
        if self.live.len() >= LIMIT {
            return Ok(Start::Refused("the sandbox has too many sessions"));
        }
        self.begun += 1;
        let arguments = ExecArguments {
            supervisor: supervisor.clone(),
            session: session.clone(),
            process,
            begin,
            streams,
            sandbox: self.sandbox.clone(),
            directory: self.sandbox.exec_directory(self.begun),
            children: self.children.clone(),
        };
        let actor = spawn(supervisor, Exec, arguments).await?;
        self.live.insert(session, Session { actor, processes: None, kill: Kill::NotOrdered });
        Ok(Start::Begun)
    }

    /// Delivers a terminal event to a session.
    pub(super) fn signal(&self, session: &SessionId, event: ControlEvent) {
        self.tell(session, ExecMessage::Signal(event));
    }

    /// Lets a prepared session's command begin.
    pub(super) fn begin(&self, session: &SessionId) {
        self.tell(session, ExecMessage::Begin);
    }

    /// Ends a session's process tree.
    pub(super) fn kill(&mut self, session: &SessionId) {
        if let Some(entry) = self.live.get_mut(session) {
            entry.kill = Kill::Ordered;
        }
        self.tell(session, ExecMessage::Kill);
    }

    /// Tells a session's actor. A session that has ended meanwhile is not an error: the coordinator
    /// learns of it from the report that is on its way.
    fn tell(&self, session: &SessionId, message: ExecMessage) {
        match self.live.get(session) {
            Some(entry) => drop(entry.actor.cast(message)),
            None => debug!(%session, "an order for a session that is not there"),
        }
    }

    /// Notes that a session's process runs; tells whether the session is there at all.
    pub(super) fn started(&mut self, session: &SessionId, client: InnerProcess, guest_pid: i32) -> bool {
        let entry = self.live.get_mut(session);
        entry.map(|entry| entry.processes = Some((client, guest_pid))).is_some()
    }

    /// Takes a session out and stops its actor; tells whether it was there.
    ///
    /// The actor does not stop by itself, as the event of its end would overtake its last message.
    pub(super) fn end(&mut self, session: &SessionId) -> bool {
        let ended = self.live.remove(session);
        ended.map(|entry| entry.actor.stop(None)).is_some()
    }

    /// Tells whether a session's end may be the first sign of a lost sandbox: when one ends in order, runsc
    /// reports all its processes as killed, a moment before its attached client ends.
    pub(super) fn may_be_loss(&self, session: &SessionId, outcome: &ExecOutcome) -> bool {
        let asked_for = self.live.get(session).is_none_or(|entry| entry.kill == Kill::Ordered);
        *outcome == ExecOutcome::Exited(KILLED) && !asked_for
    }

    /// Gives the session that an actor carries.
    pub(super) fn carried_by(&self, actor: ActorId) -> Option<SessionId> {
        let found = self.live.iter().find(|(_, entry)| entry.actor.get_id() == actor);
        found.map(|(session, _)| session.clone())
    }

    /// Ends the processes of a session whose actor is gone.
    pub(super) fn abandon(&self, session: &SessionId) {
        // The hang-up ends one whose processes are not known as well, without a last resort.
        let Some((client, guest_pid)) = self.live.get(session).and_then(|entry| entry.processes) else { return };
        exec::abandon(self.sandbox.clone(), self.children.clone(), client, guest_pid);
    }
}
