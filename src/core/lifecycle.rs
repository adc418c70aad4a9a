//! The life of one Domain generation, as the Host Coordinator decides it.
//!
//! ```text
//!            Recovered          Prepared          Begun         Attested         PublicationOpen
//! Recovering ────────▶ Preparing ──────▶ Beginning ───▶ Building ──────▶ Publishing ───────────▶ Published
//!     │                    │                 │              └────────────────┴──────┬────────────────┘
//!     │ recover only,      │ Cancelled,      │ Failed              Failed, SupervisorEnded; Cancelled
//!     │ Cancelled, Failed  │ Failed          │                     before publication, Quiet or
//!     │                    │                 │                     DownRequested after it
//!     ▼                    ▼                 ▼                                      ▼
//!   Ended ◀────────────────┴──────────── Releasing ◀─────────────────────────── TearingDown
//!                    Released, Failed          SupervisorEnded and SessionsEnded
//! ```
//!
//! [`step`] takes a state and an event and gives the next state and the effects to run, in order.
//! An event that has no meaning in a phase (it was overtaken by a teardown, say) changes nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::domain::failure::Failure;
use crate::domain::ids::SessionId;

/// What a Host Coordinator was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Start a generation and serve it.
    Serve,
    /// Only recover what is left over.
    RecoverOnly,
}

/// Where a generation is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Leftovers of an earlier generation are compared with its records and removed.
    Recovering,
    /// The prepared lower is looked up or made.
    Preparing,
    /// Identities are minted and every intent is written.
    Beginning,
    /// The lease is acquired and the Runtime Supervisor builds.
    Building,
    /// Publication is being recorded and the socket opened.
    Publishing,
    /// Client Sessions are admitted.
    Published,
    /// Sessions are ended and the supervisor takes everything down.
    TearingDown,
    /// What is left is removed, then the lease, then the Domain is clean.
    Releasing,
    /// Nothing is left to do; the process ends.
    Ended,
}

/// Why a generation ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// The last session ended and the linger time is over.
    Idle,
    /// The developer asked for it.
    Down,
    /// The client that started it went away before publication.
    Cancelled,
    /// A step failed or a process was lost.
    Failed(Failure),
}

impl EndReason {
    /// Gives the name that the model has for the end for this reason.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Idle => "LingerElapsed",
            Self::Down => "DownRequested",
            Self::Cancelled => "CancelStartup",
            Self::Failed(_) => "Failed",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Recovery found nothing, or removed all that was left over.
    Recovered,
    /// The prepared lower is there.
    Prepared,
    /// Identities and intents are durable.
    Begun,
    /// The prepared-lower lease is durable.
    LeaseAcquired,
    /// The Runtime Supervisor runs.
    SupervisorSpawned,
    /// The probe inside the sandbox found everything as the policy says, and all ownership is recorded.
    Attested,
    /// The publication is durable and the socket accepts.
    PublicationOpen,
    /// A session was admitted.
    SessionOpened(SessionId),
    /// A session ended and nothing of it is left.
    SessionClosed(SessionId),
    /// No session is left after [`Effect::EndSessions`], not even one that was admitted unknown to the coordinator.
    SessionsEnded,
    /// The linger time is over.
    LingerElapsed,
    /// No session lives, and nobody is admitted from here on.
    Quiet,
    /// The developer asked to take the Domain down.
    DownRequested,
    /// The client that started the Domain went away before publication.
    Cancelled,
    /// A step failed or a needed process was lost.
    Failed(Failure),
    /// Something that is not provably ours lies where ours may be. All else is removed.
    Refused(Failure),
    /// The Runtime Supervisor ended; in a teardown that is what was asked for.
    SupervisorEnded {
        /// How it ended, for people.
        how: String,
    },
    /// What was left is removed, the lease released, the Domain recorded as clean.
    Released,
}

impl Event {
    /// Gives the name that the model has for what happens to a life at this event.
    ///
    /// Nothing for what the model does not have, and for what is an action elsewhere: when an [`Effect`] is carried out,
    /// when the [`EndReason`] is recorded, when a recovery ends in a refusal.
    pub fn action(&self, life: &Lifecycle) -> Option<&'static str> {
        use Phase::*;
        Some(match (life.phase, self) {
            (Recovering, Self::Recovered) if life.purpose == Purpose::RecoverOnly => "ReportRecovered",
            (Recovering, Self::Recovered) => "Recovered",
            (Preparing, Self::Prepared) => "FindArtifact",
            (Beginning, Self::Begun) => "Begun",
            (Beginning, Self::Failed(_)) => "BeginFails",
            (Building, Self::Attested) => "Attested",
            (Publishing, Self::PublicationOpen) => "PublicationOpen",
            (Recovering | Preparing, Self::Cancelled) => "CancelStartup",
            (Recovering | Preparing, Self::Failed(_)) => "StartupFails",
            (Releasing, Self::Failed(_)) => "ReleaseFails",
            _ => return None,
        })
    }
}

impl From<Failure> for Event {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What to do. Effects of one step run in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Compares records and world, and removes exactly owned leftovers.
    Recover,
    /// Looks the prepared lower up, or makes it.
    Prepare,
    /// Stops the preparation and removes what it left.
    AbandonPreparation,
    /// Mints identities and writes every participant's intent in one transaction.
    Begin,
    /// Acquires the prepared-lower lease; the intent is durable.
    AcquireLease,
    /// Spawns the Runtime Supervisor; the intent is durable.
    SpawnSupervisor,
    /// Sends the runtime plan; lease and supervisor are there.
    Build,
    /// Records the publication, then opens the socket, then writes the publication record.
    Publish,
    /// Tells the client that started the Domain how it went.
    ReportPublished,
    /// Tells the client that started the Domain that recovery is done.
    ReportRecovered,
    /// Tells the client that started the Domain why it failed.
    ReportFailed,
    /// Starts the clock within which the client that started the Domain must register its session.
    AwaitFirstSession,
    /// Starts the linger clock.
    StartLinger,
    /// Stops either clock.
    StopLinger,
    /// Admits nobody any more, unless a session was admitted that is not known here yet; answered by
    /// [`Event::Quiet`] or not at all.
    CloseIfIdle,
    /// Records that the generation is ending, and why.
    RecordTearDown(EndReason),
    /// Removes the publication record and closes the socket.
    Unpublish,
    /// Ends every live session with this reason, and admits nobody from here on; answered by [`Event::SessionsEnded`].
    EndSessions(EndReason),
    /// Orders the supervisor to take everything down, with a deadline after which it is killed.
    TearDown,
    /// Removes what is left of the generation, releases the lease, records the Domain as clean.
    Release,
    /// Ends the process.
    Exit,
}

impl Effect {
    /// Gives the name that the model has for carrying it out, when that is an action of its own and not what follows
    /// from an event.
    pub fn action(&self) -> Option<&'static str> {
        match self {
            Self::Build => Some("OrderBuild"),
            Self::TearDown => Some("OrderTearDown"),
            Self::Exit => Some("Exit"),
            _ => None,
        }
    }
}

/// State of one generation's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    /// What the coordinator was started for.
    pub purpose: Purpose,
    /// Where it is.
    pub phase: Phase,
    /// Whether the lease is durable.
    pub lease: bool,
    /// Whether the supervisor runs.
    pub supervisor: bool,
    /// Live sessions.
    pub sessions: BTreeSet<SessionId>,
    /// Whether sessions are being ended.
    pub ending_sessions: bool,
    /// Why it ends, once it does.
    pub end: Option<EndReason>,
}

impl Lifecycle {
    /// Gives the first state and its effects.
    pub fn start(purpose: Purpose) -> (Self, Vec<Effect>) {
        let state = Self {
            purpose,
            phase: Phase::Recovering,
            lease: false,
            supervisor: false,
            sessions: BTreeSet::new(),
            ending_sessions: false,
            end: None,
        };
        (state, vec![Effect::Recover])
    }
}

/// Gives the next state and the effects of an event.
pub fn step(mut state: Lifecycle, event: Event) -> (Lifecycle, Vec<Effect>) {
    use Phase::*;
    let effects = match (state.phase, event) {
        (Recovering, Event::Recovered) => match state.purpose {
            Purpose::Serve => enter(&mut state, Preparing, vec![Effect::Prepare]),
            Purpose::RecoverOnly => enter(&mut state, Ended, vec![Effect::ReportRecovered, Effect::Exit]),
        },
        (Preparing, Event::Prepared) => enter(&mut state, Beginning, vec![Effect::Begin]),
        (Beginning, Event::Begun) => {
            let effects = enter(&mut state, Building, vec![Effect::SpawnSupervisor, Effect::AcquireLease]);
            match state.end.take() {
                Some(reason) => tear_down(&mut state, reason),
                None => effects,
            }
        }
        // What is being written must be written before it can be taken back.
        (Beginning, Event::Cancelled) => {
            state.end = Some(EndReason::Cancelled);
            vec![]
        }
        (Beginning, Event::Failed(failure)) => {
            state.end = Some(EndReason::Failed(failure));
            enter(&mut state, Releasing, vec![Effect::Release])
        }
        (Building, Event::LeaseAcquired) => {
            state.lease = true;
            if state.supervisor { vec![Effect::Build] } else { vec![] }
        }
        (Building, Event::SupervisorSpawned) => {
            state.supervisor = true;
            if state.lease { vec![Effect::Build] } else { vec![] }
        }
        (Building, Event::Attested) if state.lease && state.supervisor => {
            enter(&mut state, Publishing, vec![Effect::Publish])
        }
        (Publishing, Event::PublicationOpen) => {
            enter(&mut state, Published, vec![Effect::ReportPublished, Effect::AwaitFirstSession])
        }
        (Published, Event::SessionOpened(session)) => {
            state.sessions.insert(session);
            if state.sessions.len() == 1 { vec![Effect::StopLinger] } else { vec![] }
        }
        (Published, Event::SessionClosed(session)) => {
            let last = state.sessions.remove(&session) && state.sessions.is_empty();
            if last { vec![Effect::StartLinger] } else { vec![] }
        }
        // Whoever asks to be admitted at this very moment is either admitted or sent away, never admitted and ended.
        (Published, Event::LingerElapsed) if state.sessions.is_empty() => vec![Effect::CloseIfIdle],
        (Published, Event::Quiet) => tear_down(&mut state, EndReason::Idle),
        (Published, Event::DownRequested) => tear_down(&mut state, EndReason::Down),
        (Recovering | Preparing, Event::Cancelled) => {
            state.end = Some(EndReason::Cancelled);
            enter(&mut state, Ended, vec![Effect::AbandonPreparation, Effect::Exit])
        }
        (Recovering | Preparing, Event::Failed(failure)) | (Recovering, Event::Refused(failure)) => {
            state.end = Some(EndReason::Failed(failure));
            enter(&mut state, Ended, vec![Effect::ReportFailed, Effect::Exit])
        }
        (Building | Publishing, Event::Cancelled) => tear_down(&mut state, EndReason::Cancelled),
        (Building | Publishing | Published, Event::Failed(failure)) => {
            tear_down(&mut state, EndReason::Failed(failure))
        }
        (Building | Publishing | Published, Event::SupervisorEnded { how }) => {
            state.supervisor = false;
            let failure = Failure::message(format!("the Runtime Supervisor ended: {how}"));
            tear_down(&mut state, EndReason::Failed(failure))
        }
        (TearingDown, Event::SessionsEnded) => {
            state.sessions.clear();
            state.ending_sessions = false;
            release_when_quiet(&mut state)
        }
        (TearingDown, Event::SupervisorEnded { .. }) => {
            state.supervisor = false;
            release_when_quiet(&mut state)
        }
        (TearingDown | Releasing, Event::LeaseAcquired) => {
            state.lease = true;
            vec![]
        }
        (Releasing, Event::Released) => {
            let report = match &state.end {
                Some(EndReason::Failed(_)) => vec![Effect::ReportFailed, Effect::Exit],
                _ => vec![Effect::Exit],
            };
            enter(&mut state, Ended, report)
        }
        (Releasing, Event::Failed(failure) | Event::Refused(failure)) => {
            // What could not be removed stays recorded; the next start recovers it.
            match &mut state.end {
                Some(EndReason::Failed(first)) => first.append(failure),
                end => *end = Some(EndReason::Failed(failure)),
            }
            enter(&mut state, Ended, vec![Effect::ReportFailed, Effect::Exit])
        }
        _ => vec![],
    };
    (state, effects)
}

fn enter(state: &mut Lifecycle, phase: Phase, effects: Vec<Effect>) -> Vec<Effect> {
    state.phase = phase;
    effects
}

fn tear_down(state: &mut Lifecycle, reason: EndReason) -> Vec<Effect> {
    let published = state.phase >= Phase::Publishing;
    state.phase = Phase::TearingDown;
    let mut effects = vec![];
    if published {
        // First, so that no session has traffic in a generation that is ending (FR-15).
        effects.extend([Effect::StopLinger, Effect::EndSessions(reason.clone())]);
        state.ending_sessions = true;
    }
    effects.push(Effect::RecordTearDown(reason.clone()));
    if published {
        effects.push(Effect::Unpublish);
    }
    state.end = Some(reason);
    if state.supervisor {
        effects.push(Effect::TearDown);
    }
    effects.extend(release_when_quiet(state));
    effects
}

fn release_when_quiet(state: &mut Lifecycle) -> Vec<Effect> {
    if state.supervisor || state.ending_sessions {
        return vec![];
    }
    enter(state, Phase::Releasing, vec![Effect::Release])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    fn failed() -> Event {
        Failure::message("x").into()
    }

    fn run(purpose: Purpose, events: &[Event]) -> (Lifecycle, Vec<Effect>) {
        let (mut state, mut effects) = Lifecycle::start(purpose);
        for event in events {
            let (next, more) = step(state, event.clone());
            state = next;
            effects.extend(more);
        }
        (state, effects)
    }

    fn to_published() -> Vec<Event> {
        vec![
            Event::Recovered,
            Event::Prepared,
            Event::Begun,
            Event::SupervisorSpawned,
            Event::LeaseAcquired,
            Event::Attested,
            Event::PublicationOpen,
        ]
    }

    #[test]
    fn a_generation_lives_from_start_to_clean() {
        let session = SessionId::mint();
        let mut events = to_published();
        events.extend([
            Event::SessionOpened(session.clone()),
            Event::SessionClosed(session),
            Event::LingerElapsed,
            Event::Quiet,
            Event::SupervisorEnded { how: "status 0".into() },
            Event::SessionsEnded,
            Event::Released,
        ]);
        let (state, effects) = run(Purpose::Serve, &events);
        assert_eq!(state.phase, Phase::Ended);
        use Effect::*;
        let expected = vec![
            Recover,
            Prepare,
            Begin,
            SpawnSupervisor,
            AcquireLease,
            Build,
            Publish,
            ReportPublished,
            AwaitFirstSession,
            StopLinger,
            StartLinger,
            CloseIfIdle,
            StopLinger,
            EndSessions(EndReason::Idle),
            RecordTearDown(EndReason::Idle),
            Unpublish,
            TearDown,
            Release,
            Exit,
        ];
        assert_eq!(effects, expected);
    }

    #[test]
    fn recovery_only_publishes_nothing() {
        let (state, effects) = run(Purpose::RecoverOnly, &[Event::Recovered]);
        assert_eq!(state.phase, Phase::Ended);
        assert_eq!(effects, vec![Effect::Recover, Effect::ReportRecovered, Effect::Exit]);
    }

    #[test]
    fn a_start_that_is_cancelled_takes_its_supervisor_down_before_the_release() {
        // One that comes up only now is killed by the release, which finds it recorded.
        let late = [Event::Recovered, Event::Prepared, Event::Begun, Event::Cancelled, Event::SupervisorSpawned];
        let (state, effects) = run(Purpose::Serve, &late);
        assert_eq!((state.phase, effects.last()), (Phase::Releasing, Some(&Effect::Release)));
        let events = [Event::Recovered, Event::Prepared, Event::Begun, Event::SupervisorSpawned, Event::Cancelled];
        let (state, effects) = run(Purpose::Serve, &events);
        assert_eq!(state.phase, Phase::TearingDown);
        assert!(effects.ends_with(&[Effect::TearDown]));
        let (state, effects) = step(state, Event::SupervisorEnded { how: String::new() });
        assert_eq!((state.phase, effects), (Phase::Releasing, vec![Effect::Release]));
    }

    #[test]
    fn the_supervisor_s_loss_ends_the_generation_with_a_reason() {
        let mut events = to_published();
        events.extend([Event::SupervisorEnded { how: "killed by signal 9".into() }, Event::SessionsEnded]);
        let (state, effects) = run(Purpose::Serve, &events);
        assert_eq!(state.phase, Phase::Releasing);
        assert!(matches!(state.end, Some(EndReason::Failed(_))));
        assert_eq!(effects.last(), Some(&Effect::Release));
    }

    /// Walks every state reachable with two sessions and checks what must never be.
    #[test]
    fn every_reachable_state_keeps_the_invariants() {
        let sessions = [SessionId::mint(), SessionId::mint()];
        let mut events = to_published();
        events.extend([
            Event::LingerElapsed,
            Event::Quiet,
            Event::DownRequested,
            Event::Cancelled,
            failed(),
            Event::Refused(Failure::message("x")),
            Event::SupervisorEnded { how: "x".into() },
            Event::SessionsEnded,
            Event::Released,
        ]);
        for session in &sessions {
            events.extend([Event::SessionOpened(session.clone()), Event::SessionClosed(session.clone())]);
        }
        let mut seen = HashSet::new();
        let mut queue: VecDeque<Lifecycle> =
            [Purpose::Serve, Purpose::RecoverOnly].map(|p| Lifecycle::start(p).0).into();
        while let Some(state) = queue.pop_front() {
            if !seen.insert(format!("{state:?}")) {
                continue;
            }
            for event in &events {
                let (next, effects) = step(state.clone(), event.clone());
                let context = format!("{state:?} --{event:?}--> {next:?} {effects:?}");
                if effects.contains(&Effect::Publish) || effects.contains(&Effect::Build) {
                    assert!(next.lease && next.supervisor, "no build or publication without lease: {context}");
                }
                if !next.sessions.is_empty() {
                    assert!(matches!(next.phase, Phase::Published | Phase::TearingDown), "{context}");
                }
                if effects.contains(&Effect::Release) {
                    assert!(
                        !next.supervisor && !next.ending_sessions && next.sessions.is_empty(),
                        "release only when quiet: {context}"
                    );
                }
                if next.phase == Phase::Ended && state.phase != Phase::Ended {
                    assert_eq!(effects.last(), Some(&Effect::Exit), "{context}");
                }
                if state.phase >= Phase::Publishing && next.phase == Phase::TearingDown && state.phase != next.phase {
                    assert_eq!(effects.iter().filter(|e| **e == Effect::Unpublish).count(), 1, "{context}");
                }
                assert!(next.phase >= state.phase, "a life never goes back: {context}");
                queue.push_back(next);
            }
        }
        assert!(seen.len() > 60, "{}", seen.len());
    }
}
