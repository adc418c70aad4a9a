//! What the unasked end of a child actor means: one table, asked by every parent of both trees.
//!
//! What the end of a *process* means is decided by [`super::lifecycle`] and [`super::supervision`], which
//! also know what a failure means in which phase: in an ending generation it changes nothing.

use crate::domain::failure::Failure;
use crate::domain::ids::SessionId;

/// How many times a parent starts a child again before it gives up.
pub const RESTART_LIMIT: u32 = 3;

/// A child that ended without being asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Child {
    /// The Runtime Supervisor's end of the lease.
    Lease,
    /// What carries one session, and nothing else.
    Session(SessionId),
    /// What holds something that nobody else has, by name.
    Owner(&'static str),
    /// What holds nothing of its own, by name, and how many times it was started again so far.
    Stateless(&'static str, u32),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Start the child again.
    Restart,
    /// End this session and no other; the text says why.
    EndSession(SessionId, String),
    /// Take the generation down in order.
    TearDown(Failure),
    /// End the process at once.
    Exit,
}

/// Decides what the end of a child means; `how` says how it ended, for people.
pub fn decide(child: Child, how: &str) -> Verdict {
    match child {
        Child::Lease => Verdict::Exit,
        Child::Session(session) => Verdict::EndSession(session, format!("the session's actor ended: {how}")),
        Child::Stateless(_, restarts) if restarts < RESTART_LIMIT => Verdict::Restart,
        Child::Owner(name) => Verdict::TearDown(loss(&format!("the {name} actor"), how)),
        Child::Stateless(name, restarts) => {
            Verdict::TearDown(loss(&format!("the {name} actor, started again {restarts} times,"), how))
        }
    }
}

/// Gives what the loss of something that is not replaced amounts to.
pub fn loss(what: &str, how: &str) -> Failure {
    Failure::message(format!("{what} ended: {how}; this is a defect of Lazaret"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_an_owner_ends_the_generation_and_says_whose_it_was() {
        let Verdict::TearDown(failure) = decide(Child::Owner("registry"), "it panicked") else {
            panic!("an owner can't be replaced");
        };
        assert_eq!(failure.causes, ["the registry actor ended: it panicked; this is a defect of Lazaret"]);
    }

    #[test]
    fn a_session_s_loss_ends_that_session_alone() {
        let session = SessionId::mint();
        let verdict = decide(Child::Session(session.clone()), "killed");
        assert_eq!(verdict, Verdict::EndSession(session, "the session's actor ended: killed".into()));
    }

    #[test]
    fn without_a_lease_there_is_nothing_to_put_in_order() {
        assert_eq!(decide(Child::Lease, "killed"), Verdict::Exit);
    }

    #[test]
    fn a_stateless_actor_is_restarted_a_bounded_number_of_times() {
        for restarts in 0..RESTART_LIMIT {
            assert_eq!(decide(Child::Stateless("publisher", restarts), "x"), Verdict::Restart);
        }
        let Verdict::TearDown(failure) = decide(Child::Stateless("publisher", RESTART_LIMIT), "x") else {
            panic!("it is not restarted for ever");
        };
        assert_eq!(
            failure.causes,
            ["the publisher actor, started again 3 times, ended: x; this is a defect of Lazaret"]
        );
    }
}
