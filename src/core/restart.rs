//! What the end of a child means for a generation: one table, asked by every supervisor.

use super::lifecycle::{EndReason, Phase};
use crate::domain::ids::SessionId;

/// How many times one supervisor restarts an actor before it gives up.
pub const RESTART_LIMIT: u32 = 3;

/// A child that ended without being asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Child {
    /// The Runtime Supervisor.
    RuntimeSupervisor,
    /// The connectivity helper.
    Helper,
    /// The attached runsc client.
    Runsc,
    /// The gVisor sentry.
    Sentry,
    /// A session's `runsc exec` client, or the actor that owns it.
    Session(SessionId),
    /// An actor that only it holds what is durable or mounted: store writer, lease, runtime link, registry.
    OwningActor(&'static str),
    /// An actor without state of its own, such as an accept loop; the count is of its restarts so far.
    StatelessActor(&'static str, u32),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Start the child again.
    Restart,
    /// End this session and no other.
    EndSession(SessionId),
    /// Take the generation down.
    TearDown(EndReason),
    /// It was going to end anyway.
    Ignore,
}

/// Decides what the end of a child means in a phase; `how` says how it ended, for people.
pub fn decide(child: Child, phase: Phase, how: &str) -> Verdict {
    if matches!(phase, Phase::TearingDown | Phase::Releasing | Phase::Ended) {
        // A session's end is still awaited there, everything else is ending by intent.
        return match child {
            Child::Session(session) if phase != Phase::Ended => Verdict::EndSession(session),
            _ => Verdict::Ignore,
        };
    }
    let (what, hint) = match child {
        Child::Session(session) => return Verdict::EndSession(session),
        Child::StatelessActor(_, restarts) if restarts < RESTART_LIMIT => return Verdict::Restart,
        Child::RuntimeSupervisor => ("the Runtime Supervisor".to_owned(), LOOK_AT_LOGS),
        Child::Helper => ("the connectivity helper slirp4netns".to_owned(), LOOK_AT_LOGS),
        Child::Runsc => ("the attached runsc client".to_owned(), LOOK_AT_LOGS),
        Child::Sentry => ("the gVisor sentry".to_owned(), LOOK_AT_LOGS),
        Child::OwningActor(name) => (format!("the {name} of the Host Coordinator"), REPORT),
        Child::StatelessActor(name, restarts) => {
            (format!("the {name} of the Host Coordinator, after {restarts} restarts,"), REPORT)
        }
    };
    Verdict::TearDown(EndReason::Failed { causes: vec![format!("{what} ended: {how}")], hints: vec![hint.to_owned()] })
}

const LOOK_AT_LOGS: &str = "look at `lazaret logs` and run the command again";
const REPORT: &str = "this is a defect of Lazaret; `lazaret logs` has the details for a report";

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: [Phase; 6] =
        [Phase::Recovering, Phase::Preparing, Phase::Beginning, Phase::Building, Phase::Publishing, Phase::Published];
    const ENDING: [Phase; 3] = [Phase::TearingDown, Phase::Releasing, Phase::Ended];

    #[test]
    fn what_the_sandbox_stands_on_ends_the_generation_once() {
        let needed =
            [Child::RuntimeSupervisor, Child::Helper, Child::Runsc, Child::Sentry, Child::OwningActor("store writer")];
        for child in needed {
            for phase in LIVE {
                let Verdict::TearDown(EndReason::Failed { causes, hints }) =
                    decide(child.clone(), phase, "killed by signal 9")
                else {
                    panic!("{child:?} in {phase:?} must end the generation");
                };
                assert!(causes[0].ends_with("ended: killed by signal 9"), "{causes:?}");
                assert_eq!(hints.len(), 1);
            }
            for phase in ENDING {
                assert_eq!(decide(child.clone(), phase, "x"), Verdict::Ignore, "{child:?} in {phase:?}");
            }
        }
    }

    #[test]
    fn a_session_s_loss_ends_that_session_alone() {
        let session = SessionId::mint();
        for phase in LIVE.into_iter().chain([Phase::TearingDown, Phase::Releasing]) {
            assert_eq!(decide(Child::Session(session.clone()), phase, "x"), Verdict::EndSession(session.clone()));
        }
        assert_eq!(decide(Child::Session(session), Phase::Ended, "x"), Verdict::Ignore);
    }

    #[test]
    fn a_stateless_actor_is_restarted_a_bounded_number_of_times() {
        for restarts in 0..RESTART_LIMIT {
            let verdict = decide(Child::StatelessActor("listener", restarts), Phase::Published, "panicked");
            assert_eq!(verdict, Verdict::Restart);
        }
        let verdict = decide(Child::StatelessActor("listener", RESTART_LIMIT), Phase::Published, "panicked");
        assert!(matches!(verdict, Verdict::TearDown(_)));
    }
}
