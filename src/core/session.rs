//! The life of one Client Session.
//!
//! ```text
//!            Started            ClientGone, End            ExecEnded              Drained
//!  Opening ───────────▶ Running ───────────────▶ Ending ─────────────▶ Draining ─────────▶ Closed
//!     │ ClientGone, End    │                        ▲                     ▲
//!     ├────────────────────┼────────────────────────┘                     │
//!     └────────────────────┴───────────────── ExecEnded ──────────────────┘
//! ```
//!
//! A session is ended by killing its process tree in the sandbox; the `runsc exec` client then ends by
//! itself. Once that is ordered nothing that its client sends reaches it any more (FR-15).

use crate::domain::session::{ControlEvent, SessionEnd};

/// How many terminal events wait for a process that is not known yet.
const EARLY_EVENTS: usize = 16;

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionPhase {
    /// Its process was ordered; input is held back, and so are these terminal events: the process may run
    /// already, but whom to signal is not known yet.
    Opening(Vec<ControlEvent>),
    /// Its process runs.
    Running,
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
    /// The client passes a terminal event on.
    Control(ControlEvent),
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
    /// Delivers a terminal event to the process.
    Signal(ControlEvent),
    /// Takes nothing more from the client, and orders the process tree killed, with a deadline.
    Kill,
    /// Reads what the process wrote before it ended, sends it, then the end.
    Drain(SessionEnd),
    /// Gives up after a moment on a client that takes no output, since its session was ended for it.
    LimitDrain,
    /// Removes the session's record and resources.
    Close,
}

/// Gives the next phase and the effects of an event; an event without meaning in a phase changes nothing.
pub fn step(phase: SessionPhase, event: SessionEvent) -> (SessionPhase, Vec<SessionEffect>) {
    use SessionPhase::*;
    match (phase, event) {
        (Opening(early), SessionEvent::Started) => {
            let signals = early.into_iter().map(SessionEffect::Signal);
            (Running, std::iter::once(SessionEffect::OpenInput).chain(signals).collect())
        }
        (Opening(mut early), SessionEvent::Control(event)) => {
            if early.len() < EARLY_EVENTS {
                early.push(event);
            }
            (Opening(early), vec![])
        }
        (Running, SessionEvent::Control(event)) => (Running, vec![SessionEffect::Signal(event)]),
        (Opening(_) | Running, SessionEvent::ClientGone) => (Ending(None), vec![SessionEffect::Kill]),
        (Opening(_) | Running, SessionEvent::End(end)) => (Ending(Some(end)), vec![SessionEffect::Kill]),
        (Opening(_) | Running, SessionEvent::ExecEnded(end)) => {
            (Draining(end.clone()), vec![SessionEffect::Drain(end)])
        }
        (Ending(ordered), SessionEvent::ExecEnded(observed)) => {
            let end = ordered.unwrap_or(observed);
            (Draining(end.clone()), vec![SessionEffect::Drain(end), SessionEffect::LimitDrain])
        }
        (Draining(end), SessionEvent::ClientGone | SessionEvent::End(_)) => {
            (Draining(end), vec![SessionEffect::LimitDrain])
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

    fn opening() -> SessionPhase {
        SessionPhase::Opening(vec![])
    }

    #[test]
    fn an_ordinary_session_passes_its_status_on() {
        let (phase, effects) = step(opening(), SessionEvent::Started);
        assert_eq!(effects, vec![SessionEffect::OpenInput]);
        let (phase, effects) = step(phase, SessionEvent::ExecEnded(SessionEnd::Exited(3)));
        assert_eq!(effects, vec![SessionEffect::Drain(SessionEnd::Exited(3))]);
        assert_eq!(step(phase, SessionEvent::Drained), (SessionPhase::Closed, vec![SessionEffect::Close]));
    }

    #[test]
    fn a_session_that_is_ended_early_is_killed_at_once() {
        let (phase, effects) = step(opening(), SessionEvent::ClientGone);
        assert_eq!(effects, vec![SessionEffect::Kill]);
        let (phase, effects) = step(phase, SessionEvent::Started);
        assert_eq!(effects, vec![], "no input reaches it any more");
        let (_, effects) = step(phase, SessionEvent::ExecEnded(SessionEnd::Exited(137)));
        assert_eq!(effects, vec![SessionEffect::Drain(SessionEnd::Exited(137)), SessionEffect::LimitDrain]);
    }

    #[test]
    fn early_terminal_events_wait_for_the_process_and_are_bounded() {
        let mut phase = opening();
        for _ in 0..2 * EARLY_EVENTS {
            phase = step(phase, SessionEvent::Control(ControlEvent::Interrupt)).0;
        }
        let (phase, effects) = step(phase, SessionEvent::Started);
        assert_eq!(effects.len(), 1 + EARLY_EVENTS);
        assert!(effects[1..].iter().all(|effect| *effect == SessionEffect::Signal(ControlEvent::Interrupt)));
        let (phase, _) = step(phase, SessionEvent::ClientGone);
        assert_eq!(step(phase, SessionEvent::Control(ControlEvent::Interrupt)).1, vec![]);
    }

    #[test]
    fn an_ordered_end_is_what_the_client_hears() {
        let (phase, _) = step(SessionPhase::Running, SessionEvent::End(torn_down()));
        let (_, effects) = step(phase, SessionEvent::ExecEnded(SessionEnd::Exited(137)));
        assert_eq!(effects[0], SessionEffect::Drain(torn_down()));
    }

    #[test]
    fn every_session_closes_once_after_its_process_ended() {
        let events = [
            SessionEvent::Started,
            SessionEvent::Control(ControlEvent::Quit),
            SessionEvent::ExecEnded(SessionEnd::Exited(0)),
            SessionEvent::ClientGone,
            SessionEvent::End(torn_down()),
            SessionEvent::Drained,
        ];
        let mut seen = HashSet::new();
        let mut queue = VecDeque::from([opening()]);
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
        // Opening with up to 16 events, running, ending by the client or by order, draining either end, closed.
        assert_eq!(seen.len(), 17 + 1 + 2 + 2 + 1);
    }
}
