//! The life of one Client Session.
//!
//! ```text
//!            Started            ClientGone, End            ExecEnded
//!  Opening ───────────▶ Running ───────────────▶ Ending ─────────────┐
//!     │ ClientGone, End                             ▲                ▼
//!     ├───────────────▶ Condemned ─── Started ──────┘            Draining ── Drained ──▶ Closed
//!     └───────────────────── ExecEnded, from any of them ────────────▲
//! ```
//!
//! A session is ended by killing its process tree in the sandbox; the `runsc exec` client then ends by
//! itself. Killing the client instead would leave the guest processes alive, so a session that is to end
//! before its guest process is known waits, condemned, for that process.

use crate::domain::session::SessionEnd;

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionPhase {
    /// Its process was ordered; input is held back.
    Opening,
    /// Its process runs.
    Running,
    /// It is to end as soon as its process is known.
    Condemned(Option<SessionEnd>),
    /// Its process tree was ordered killed.
    Ending(Option<SessionEnd>),
    /// Its process ended; output that was already written is delivered.
    Draining(SessionEnd),
    /// Nothing of it is left.
    Closed,
}

/// What happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// Its process runs in the sandbox.
    Started,
    /// Its process ended, or never started, or was lost with the sandbox.
    ExecEnded(SessionEnd),
    /// The client vanished.
    ClientGone,
    /// The coordinator ends it.
    End(SessionEnd),
    /// All output is delivered, or nobody is there to take it.
    Drained,
}

/// What to do for a session, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEffect {
    /// Lets input through to the process.
    OpenInput,
    /// Orders the process tree killed, with a deadline.
    Kill,
    /// Reads what the process wrote before it ended, sends it, then the end.
    Drain(SessionEnd),
    /// Removes the session's record and resources.
    Close,
}

/// Gives the next phase and the effects of an event; an event without meaning in a phase changes nothing.
pub fn step(phase: SessionPhase, event: SessionEvent) -> (SessionPhase, Vec<SessionEffect>) {
    use SessionPhase::*;
    match (phase, event) {
        (Opening, SessionEvent::Started) => (Running, vec![SessionEffect::OpenInput]),
        (Opening, SessionEvent::ClientGone) => (Condemned(None), vec![]),
        (Opening, SessionEvent::End(end)) => (Condemned(Some(end)), vec![]),
        (Running, SessionEvent::ClientGone) => (Ending(None), vec![SessionEffect::Kill]),
        (Running, SessionEvent::End(end)) => (Ending(Some(end)), vec![SessionEffect::Kill]),
        (Condemned(end), SessionEvent::Started) => (Ending(end), vec![SessionEffect::Kill]),
        (Opening | Running, SessionEvent::ExecEnded(end)) => (Draining(end.clone()), vec![SessionEffect::Drain(end)]),
        (Condemned(ordered) | Ending(ordered), SessionEvent::ExecEnded(observed)) => {
            let end = ordered.unwrap_or(observed);
            (Draining(end.clone()), vec![SessionEffect::Drain(end)])
        }
        (Draining(_), SessionEvent::Drained) => (Closed, vec![SessionEffect::Close]),
        (phase, _) => (phase, vec![]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    fn torn_down() -> SessionEnd {
        SessionEnd::TornDown("down".into())
    }

    #[test]
    fn an_ordinary_session_passes_its_status_on() {
        let (phase, effects) = step(SessionPhase::Opening, SessionEvent::Started);
        assert_eq!(effects, vec![SessionEffect::OpenInput]);
        let (phase, effects) = step(phase, SessionEvent::ExecEnded(SessionEnd::Exited(3)));
        assert_eq!(effects, vec![SessionEffect::Drain(SessionEnd::Exited(3))]);
        assert_eq!(step(phase, SessionEvent::Drained), (SessionPhase::Closed, vec![SessionEffect::Close]));
    }

    #[test]
    fn a_session_that_is_ended_early_waits_for_its_process_and_then_kills_it() {
        let (phase, effects) = step(SessionPhase::Opening, SessionEvent::ClientGone);
        assert_eq!(effects, vec![]);
        let (phase, effects) = step(phase, SessionEvent::Started);
        assert_eq!(effects, vec![SessionEffect::Kill]);
        let (_, effects) = step(phase, SessionEvent::ExecEnded(SessionEnd::Exited(137)));
        assert_eq!(effects, vec![SessionEffect::Drain(SessionEnd::Exited(137))]);
    }

    #[test]
    fn an_ordered_end_is_what_the_client_hears() {
        let (phase, _) = step(SessionPhase::Running, SessionEvent::End(torn_down()));
        let (_, effects) = step(phase, SessionEvent::ExecEnded(SessionEnd::Exited(137)));
        assert_eq!(effects, vec![SessionEffect::Drain(torn_down())]);
    }

    #[test]
    fn every_session_closes_once_after_its_process_ended() {
        let events = [
            SessionEvent::Started,
            SessionEvent::ExecEnded(SessionEnd::Exited(0)),
            SessionEvent::ClientGone,
            SessionEvent::End(torn_down()),
            SessionEvent::Drained,
        ];
        let mut seen = HashSet::new();
        let mut queue = VecDeque::from([SessionPhase::Opening]);
        while let Some(phase) = queue.pop_front() {
            if !seen.insert(format!("{phase:?}")) {
                continue;
            }
            for event in &events {
                let (next, effects) = step(phase.clone(), event.clone());
                let closes = effects.contains(&SessionEffect::Close);
                assert_eq!(closes, next == SessionPhase::Closed && phase != SessionPhase::Closed);
                if closes {
                    assert!(matches!(phase, SessionPhase::Draining(_)), "closes only after the process ended");
                }
                if effects.contains(&SessionEffect::Kill) {
                    assert!(matches!(next, SessionPhase::Ending(_)));
                }
                queue.push_back(next);
            }
        }
        assert_eq!(seen.len(), 9);
    }
}
