//! What the Runtime Supervisor does next: the order in which a generation's resources are built and
//! taken down, as a state machine without any resource in it.
//!
//! ```text
//!            BuildOrdered      everything attested     probe passed
//!  Waiting ───────────────► Building ─────► Starting ─────────────► Serving
//!     │                        │   Failed      │ Failed                │ Lost
//!     │ TearDown               ▼               ▼                       ▼
//!     └─────────────────────► TearingDown ◄────┴──────── TearDown ─── Degraded
//!                               Sandbox → Mounts, Helper → Storage → Ended
//! ```
//!
//! Two rules matter most. The sandbox is started only when mounts, helper and policy are all ready
//! (FR-19). Taking down goes against the direction of use: nothing is removed while something that
//! was built on it may still run.

use crate::domain::failure::Failure;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The coordinator ordered the build.
    BuildOrdered,
    /// Root, State Anchors, workspace and volumes are staged.
    MountsReady,
    /// The enforcement namespace has its settings and waits for the helper's device.
    NamespacePrepared,
    /// The connectivity helper serves the namespace; its device exists.
    HelperReady,
    /// The policy is installed and was read back.
    PolicyAttested,
    /// runsc has created the sandbox.
    SandboxCreated,
    /// The probe inside the sandbox found everything as the policy says.
    ProbePassed,
    /// A build step failed.
    Failed(Failure),
    /// A process that the sandbox needs ended unasked.
    Lost(String),
    /// The coordinator ordered the end.
    TearDownOrdered,
    /// The sandbox, its sessions and all their processes are gone.
    SandboxGone,
    /// Nothing is mounted any more.
    Unmounted,
    /// The connectivity helper is gone.
    HelperGone,
    /// The generation's scratch and runsc's directory are removed.
    StorageRemoved,
    /// Building or taking down took longer than it may.
    DeadlineExpired,
}

/// What to do, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send the report that belongs to the event.
    Announce,
    /// Let the build deadline run.
    StartBuildDeadline,
    /// Stop the deadline.
    StopDeadline,
    /// Tell the helper to start.
    StartHelper,
    /// Stage all mounts.
    StageMounts,
    /// Apply the namespace's settings.
    PrepareNamespace,
    /// Install and attest the policy.
    InstallPolicy,
    /// Start runsc.
    StartSandbox,
    /// Start the process of a session that was prepared; its command waits.
    StartPreparedSession,
    /// Report that the build failed.
    ReportBuildFailed(Failure),
    /// Report that the sandbox is lost.
    ReportLost(String),
    /// Let the teardown deadline run.
    StartTearDownDeadline,
    /// End all sessions and the sandbox.
    EndSandbox,
    /// Unmount everything.
    Unmount,
    /// End the connectivity helper.
    EndHelper,
    /// Remove scratch and runsc's directory.
    RemoveStorage,
    /// Report that everything is taken down.
    ReportTornDown,
    /// End the process, and with it whatever is left in its namespaces.
    Exit,
}

/// What has been built so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Built {
    mounts: bool,
    namespace: bool,
    helper: bool,
    policy: bool,
}

/// What a teardown waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The sandbox's processes.
    Sandbox,
    /// What the sandbox was built on.
    Remains(Remains),
}

/// What is left after the sandbox. Helper and files have nothing to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remains {
    helper: bool,
    mounts: bool,
    storage: bool,
}

/// Where the supervisor is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No order has arrived.
    #[default]
    Waiting,
    /// The sandbox's surroundings are under construction.
    Building(Built),
    /// The sandbox is starting or being probed.
    Starting,
    /// Sessions are served.
    Serving,
    /// A needed process is lost; only the end can follow.
    Degraded,
    /// Being taken down.
    TearingDown(Stage),
    /// Nothing is left to do.
    Ended,
}

impl Phase {
    /// Tells whether sessions can be started.
    pub fn serves_sessions(self) -> bool {
        self == Self::Serving
    }

    /// Tells whether a session can be prepared, to start with the sandbox.
    pub fn takes_preparations(self) -> bool {
        matches!(self, Self::Waiting | Self::Building(_))
    }

    /// Takes an event and gives the next phase with the effects that lead there.
    ///
    /// An event that has no meaning in a phase, such as a step that completes after the teardown
    /// began, changes nothing.
    pub fn step(self, event: Event) -> (Self, Vec<Effect>) {
        match (self, event) {
            (Self::Waiting, Event::BuildOrdered) => (
                Self::Building(Built::default()),
                vec![Effect::StartBuildDeadline, Effect::StartHelper, Effect::PrepareNamespace, Effect::StageMounts],
            ),
            (Self::Waiting, Event::Failed(failure)) => Self::tear_down(vec![Effect::ReportBuildFailed(failure)]),
            (Self::Building(built), event) => Self::build(built, event),
            (Self::Starting, Event::SandboxCreated) => (self, vec![Effect::Announce, Effect::StartPreparedSession]),
            (Self::Starting, Event::ProbePassed) => (Self::Serving, vec![Effect::StopDeadline, Effect::Announce]),
            (Self::Starting, event) => Self::abandon(self, event),
            (Self::Serving, Event::Lost(cause)) => (Self::Degraded, vec![Effect::ReportLost(cause)]),
            (Self::Serving, Event::Failed(failure)) => (Self::Degraded, vec![Effect::ReportLost(failure.line())]),
            (Self::Waiting | Self::Serving | Self::Degraded, Event::TearDownOrdered) => Self::tear_down(vec![]),
            (Self::TearingDown(stage), event) => Self::take_down(stage, event),
            (phase, _) => (phase, vec![]),
        }
    }

    fn build(built: Built, event: Event) -> (Self, Vec<Effect>) {
        let (built, mut effects) = match event {
            Event::MountsReady => (Built { mounts: true, ..built }, vec![Effect::Announce]),
            Event::NamespacePrepared => (Built { namespace: true, ..built }, vec![]),
            Event::HelperReady => (Built { helper: true, ..built }, vec![Effect::Announce]),
            Event::PolicyAttested => (Built { policy: true, ..built }, vec![Effect::Announce]),
            other => return Self::abandon(Self::Building(built), other),
        };
        let may_install = built.namespace && built.helper && !built.policy;
        if may_install && matches!(event, Event::NamespacePrepared | Event::HelperReady) {
            effects.push(Effect::InstallPolicy);
        }
        if built.mounts && built.policy {
            effects.push(Effect::StartSandbox);
            return (Self::Starting, effects);
        }
        (Self::Building(built), effects)
    }

    /// Handles what ends a build.
    fn abandon(phase: Self, event: Event) -> (Self, Vec<Effect>) {
        match event {
            Event::Failed(failure) => Self::tear_down(vec![Effect::ReportBuildFailed(failure)]),
            Event::Lost(cause) => {
                let failure = Failure::message(cause);
                Self::tear_down(vec![Effect::ReportBuildFailed(failure)])
            }
            Event::DeadlineExpired => {
                let failure = Failure::message("the sandbox was not ready in time");
                Self::tear_down(vec![Effect::ReportBuildFailed(failure)])
            }
            Event::TearDownOrdered => Self::tear_down(vec![]),
            _ => (phase, vec![]),
        }
    }

    fn tear_down(mut effects: Vec<Effect>) -> (Self, Vec<Effect>) {
        effects.extend([Effect::StartTearDownDeadline, Effect::EndSandbox]);
        (Self::TearingDown(Stage::Sandbox), effects)
    }

    fn take_down(stage: Stage, event: Event) -> (Self, Vec<Effect>) {
        let (left, mut effects) = match (stage, event) {
            // Exiting ends every process and mount of the namespaces; only files may be left, which
            // the coordinator's recovery removes since no TornDown was reported.
            (_, Event::DeadlineExpired) => return (Self::Ended, vec![Effect::Exit]),
            (Stage::Sandbox, Event::SandboxGone) => {
                (Remains { helper: true, mounts: true, storage: true }, vec![Effect::Unmount, Effect::EndHelper])
            }
            (Stage::Remains(left), Event::HelperGone) => (Remains { helper: false, ..left }, vec![]),
            (Stage::Remains(left), Event::Unmounted) if left.mounts => {
                (Remains { mounts: false, ..left }, vec![Effect::RemoveStorage])
            }
            (Stage::Remains(left), Event::StorageRemoved) => (Remains { storage: false, ..left }, vec![]),
            (stage, _) => return (Self::TearingDown(stage), vec![]),
        };
        if left.helper || left.mounts || left.storage {
            return (Self::TearingDown(Stage::Remains(left)), effects);
        }
        effects.extend([Effect::ReportTornDown, Effect::Exit]);
        (Self::Ended, effects)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn run(events: impl IntoIterator<Item = Event>) -> (Phase, Vec<Effect>) {
        events.into_iter().fold((Phase::Waiting, vec![]), |(phase, mut all), event| {
            let (phase, effects) = phase.step(event);
            all.extend(effects);
            (phase, all)
        })
    }

    fn failure() -> Failure {
        Failure::message("x")
    }

    fn every_event() -> Vec<Event> {
        vec![
            Event::BuildOrdered,
            Event::MountsReady,
            Event::NamespacePrepared,
            Event::HelperReady,
            Event::PolicyAttested,
            Event::SandboxCreated,
            Event::ProbePassed,
            Event::Failed(failure()),
            Event::Lost("y".into()),
            Event::TearDownOrdered,
            Event::SandboxGone,
            Event::Unmounted,
            Event::HelperGone,
            Event::StorageRemoved,
            Event::DeadlineExpired,
        ]
    }

    #[test]
    fn a_build_goes_through_in_one_order() {
        let (phase, effects) = run([
            Event::BuildOrdered,
            Event::NamespacePrepared,
            Event::HelperReady,
            Event::MountsReady,
            Event::PolicyAttested,
            Event::SandboxCreated,
            Event::ProbePassed,
        ]);
        assert_eq!(phase, Phase::Serving);
        assert_eq!(
            effects,
            [
                Effect::StartBuildDeadline,
                Effect::StartHelper,
                Effect::PrepareNamespace,
                Effect::StageMounts,
                Effect::Announce,
                Effect::InstallPolicy,
                Effect::Announce,
                Effect::Announce,
                Effect::StartSandbox,
                Effect::Announce,
                Effect::StartPreparedSession,
                Effect::StopDeadline,
                Effect::Announce,
            ]
        );
    }

    #[test]
    fn the_policy_is_installed_once_whichever_comes_first() {
        for order in [[Event::HelperReady, Event::NamespacePrepared], [Event::NamespacePrepared, Event::HelperReady]] {
            let (_, effects) = run([Event::BuildOrdered].into_iter().chain(order).chain([Event::MountsReady]));
            assert_eq!(effects.iter().filter(|e| **e == Effect::InstallPolicy).count(), 1);
            assert!(!effects.contains(&Effect::StartSandbox), "no sandbox before the policy is attested");
        }
    }

    #[test]
    fn a_failed_step_is_reported_once_and_then_all_is_taken_down() {
        let (phase, effects) = run([
            Event::BuildOrdered,
            Event::Failed(failure()),
            Event::Failed(failure()),
            Event::Lost("later".into()),
            Event::SandboxGone,
            Event::HelperGone,
            Event::Unmounted,
            Event::StorageRemoved,
        ]);
        assert_eq!(phase, Phase::Ended);
        assert_eq!(
            effects[4..],
            [
                Effect::ReportBuildFailed(failure()),
                Effect::StartTearDownDeadline,
                Effect::EndSandbox,
                Effect::Unmount,
                Effect::EndHelper,
                Effect::RemoveStorage,
                Effect::ReportTornDown,
                Effect::Exit,
            ]
        );
    }

    #[test]
    fn what_fails_before_the_order_fails_the_build() {
        let (phase, effects) = Phase::Waiting.step(Event::Failed(failure()));
        assert!(matches!(phase, Phase::TearingDown(_)));
        assert_eq!(effects[0], Effect::ReportBuildFailed(failure()));
    }

    #[test]
    fn a_loss_while_serving_waits_for_the_order_to_end() {
        let (phase, effects) = Phase::Serving.step(Event::Lost("runsc was killed".into()));
        assert_eq!(phase, Phase::Degraded);
        assert_eq!(effects, [Effect::ReportLost("runsc was killed".into())]);
        assert!(!phase.serves_sessions());
        assert_eq!(phase.step(Event::Lost("again".into())), (Phase::Degraded, vec![]));
        assert_eq!(phase.step(Event::TearDownOrdered).0, Phase::TearingDown(Stage::Sandbox));
    }

    /// Walks every phase that any sequence of events can reach.
    #[test]
    fn in_every_reachable_phase_the_rules_hold() {
        let mut seen = HashSet::from([Phase::Waiting]);
        let mut open = vec![Phase::Waiting];
        while let Some(phase) = open.pop() {
            for event in every_event() {
                let (next, effects) = phase.step(event.clone());
                if effects.contains(&Effect::StartSandbox) {
                    assert!(matches!(phase, Phase::Building(_)) && next == Phase::Starting, "{phase:?} {event:?}");
                }
                if effects.contains(&Effect::StartPreparedSession) {
                    assert!(phase == Phase::Starting && next == Phase::Starting, "{phase:?} {event:?}");
                }
                if effects.contains(&Effect::RemoveStorage) {
                    assert!(matches!(phase, Phase::TearingDown(Stage::Remains(left)) if left.mounts));
                }
                if matches!(phase, Phase::TearingDown(_) | Phase::Ended) {
                    assert!(matches!(next, Phase::TearingDown(_) | Phase::Ended), "no way back from {phase:?}");
                }
                let ends = next == Phase::Ended && phase != Phase::Ended;
                assert_eq!(effects.contains(&Effect::Exit), ends, "{phase:?} {event:?}");
                if seen.insert(next) {
                    open.push(next);
                }
            }
            if phase != Phase::Ended {
                let ends = matches!(phase.step(Event::TearDownOrdered).0, Phase::TearingDown(_));
                assert!(ends, "{phase:?} can be ended");
            }
        }
        assert!(seen.contains(&Phase::Ended));
    }
}
