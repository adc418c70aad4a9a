//! What tells two states apart, in little room.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use super::system::{Action, Coordinator, System, Thing};
use crate::core::generation::Change;
use crate::core::lifecycle::Event;

impl System {
    /// Gives the state's key: two hashes of all that matters in it.
    pub(super) fn key(&self) -> [u64; 2] {
        [0u8, 1].map(|salt| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            self.hash_into(&mut hasher);
            hasher.finish()
        })
    }

    fn hash_into(&self, hasher: &mut DefaultHasher) {
        (self.left, self.lease, self.policy, &self.execs, &self.strangers, &self.supervisor).hash(hasher);
        self.world.len().hash(hasher);
        for (participant, thing) in &self.world {
            (participant, matches!(thing, Thing::Stranger)).hash(hasher);
        }
        self.reports.hash(hasher);
        if let Some(document) = &self.document {
            (document.decision as u8, document.release as u8, document.identity.generation).hash(hasher);
            (document.readiness.is_some(), document.probe.is_some(), document.identity.leader.pid).hash(hasher);
            document.recoverer.as_ref().map(|process| process.pid).hash(hasher);
            for intent in document.participants.values() {
                discriminant(intent).hash(hasher);
            }
            for (id, session) in &document.sessions {
                (id, session.process.is_some()).hash(hasher);
            }
        }
        let Some(coordinator) = &self.coordinator else { return };
        let Coordinator { identity, life, effects, events, tasks, writes, clock, admits, sessions } = coordinator;
        (identity.pid, life.phase as u8, life.purpose as u8, life.lease, life.supervisor, life.ending_sessions)
            .hash(hasher);
        (&life.sessions, life.end.as_ref().map(discriminant), clock, admits).hash(hasher);
        (effects.len(), events.len(), tasks.len(), writes.len(), sessions.len()).hash(hasher);
        effects.iter().map(discriminant).for_each(|effect| effect.hash(hasher));
        for event in events {
            discriminant(event).hash(hasher);
            if let Event::SessionOpened(session) | Event::SessionClosed(session) = event {
                session.hash(hasher);
            }
        }
        for (job, task) in tasks {
            (job, task.waits, task.actions.len()).hash(hasher);
            for action in &task.actions {
                match action {
                    Action::Tell(event) => discriminant(event).hash(hasher),
                    Action::Recover(effect) => format!("{effect:?}").hash(hasher),
                    other => discriminant(other).hash(hasher),
                }
            }
        }
        for write in writes {
            (discriminant(&write.then), write.changes.len()).hash(hasher);
            write.changes.iter().for_each(|change| change.action().hash(hasher));
            if let Some(Change::StartSession(session, _) | Change::EndSession(session)) = write.changes.first() {
                session.hash(hasher);
            }
        }
        for (session, phase) in sessions {
            (session, discriminant(phase)).hash(hasher);
        }
    }
}
