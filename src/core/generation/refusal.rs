//! Why an action of the generation document is not enabled.

use super::{Decision, Participant};
use crate::domain::ids::{DomainId, Generation, SessionId};

/// Why a change was refused. The document is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No generation was ever begun.
    #[error("{action} needs a generation, and this Domain has had none")]
    NoGeneration {
        /// The refused action.
        action: &'static str,
    },
    /// The decision does not permit the action.
    #[error("{action} is not possible while generation {generation} is {decision:?}")]
    Decision {
        /// The refused action.
        action: &'static str,
        /// The generation.
        generation: Generation,
        /// Its decision.
        decision: Decision,
    },
    /// The new generation's number does not follow the last one's.
    #[error("generation {begun} can't begin, the next one is {expected}")]
    OutOfOrder {
        /// The number that was given.
        begun: Generation,
        /// The number that follows.
        expected: Generation,
    },
    /// The store belongs to another Domain.
    #[error("the store belongs to Domain {stored}, not {given}")]
    ForeignDomain {
        /// The Domain in the store.
        stored: DomainId,
        /// The Domain that was given.
        given: DomainId,
    },
    /// The participant was never intended.
    #[error("the {participant} was never intended")]
    NotIntended {
        /// Which participant.
        participant: Participant,
    },
    /// The participant is already further than the action begins at.
    #[error("the {participant} is already recorded differently")]
    RecordedDifferently {
        /// Which participant.
        participant: Participant,
    },
    /// Target or ownership is of a kind that the participant can't have.
    #[error("the {participant} can't be recorded like this")]
    KindMismatch {
        /// Which participant.
        participant: Participant,
    },
    /// Another participant must be owned first.
    #[error("the {participant} needs the {missing}, which is not owned")]
    Needs {
        /// Which participant.
        participant: Participant,
        /// What it needs.
        missing: Participant,
    },
    /// The network is not attested, or the attestation is about another namespace.
    #[error("{action} needs the network attestation of this generation's own namespace")]
    NotAttested {
        /// The refused action.
        action: &'static str,
    },
    /// The probe found the policy not to hold.
    #[error("the network probe failed at '{subject}': {seen}")]
    ProbeFailed {
        /// What was tried.
        subject: String,
        /// What was seen.
        seen: String,
    },
    /// Publication without a successful probe.
    #[error("the sandbox's network was not probed")]
    NotProbed,
    /// Publication while a participant is not ready for it.
    #[error("can't publish: the {participant} is not {needed}")]
    NotReady {
        /// Which participant.
        participant: Participant,
        /// What it must be.
        needed: &'static str,
    },
    /// The session or its client is already there.
    #[error("session {session} or its client is already registered")]
    SessionExists {
        /// The session.
        session: SessionId,
    },
    /// No such session is live.
    #[error("session {session} is not registered")]
    NoSession {
        /// The session.
        session: SessionId,
    },
    /// The session's processes are already recorded otherwise.
    #[error("session {session} is already recorded with other processes")]
    SessionStartedDifferently {
        /// The session.
        session: SessionId,
    },
    /// A step of a release comes before the one it depends on.
    #[error("{action} is out of order: {needed}")]
    ReleaseOrder {
        /// The refused action.
        action: &'static str,
        /// What must be durable first.
        needed: &'static str,
    },
    /// Something is left.
    #[error("the generation is not clean: the {participant} is not released")]
    Unreleased {
        /// The first participant that is left.
        participant: Participant,
    },
    /// Sessions are left.
    #[error("the generation is not clean: {count} sessions are recorded")]
    SessionsLeft {
        /// How many.
        count: usize,
    },
}
