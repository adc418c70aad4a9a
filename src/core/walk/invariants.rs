//! What holds in every state. Each function is named as in `protocol/Lazaret.tla`, after the requirement that it protects.

use super::system::{System, Thing, participants};
use crate::core::generation::{Decision, Intent, LeaseRelease, Participant};
use crate::core::lifecycle::Phase;

/// One invariant: its name, and whether it holds.
type Invariant = (&'static str, fn(&System) -> bool);

const INVARIANTS: [Invariant; 9] = [
    ("FR_21_NoResourceWithoutIntent", no_resource_without_intent),
    ("SR_5_NoSandboxBeforePolicy", no_sandbox_before_policy),
    ("FR_18_PublishedIsReady", published_is_ready),
    ("FR_22_MountedUnderLease", mounted_under_lease),
    ("FR_10_RegisteredInPublication", registered_in_publication),
    ("FR_15_TrafficOfSession", traffic_of_session),
    ("FR_17_ReleaseOrder", release_order),
    ("FR_7_ForeignStays", foreign_stays),
    ("FR_6_CleanMeansNothing", clean_means_nothing),
];

/// Names the first invariant that does not hold.
pub(super) fn check(system: &System) -> Result<(), String> {
    match INVARIANTS.iter().find(|(_, holds)| !holds(system)) {
        Some((name, _)) => Err(format!("{name} is broken")),
        None => Ok(()),
    }
}

fn ours(system: &System) -> impl Iterator<Item = &Participant> {
    system.world.iter().filter(|(_, thing)| matches!(thing, Thing::Ours(_))).map(|(participant, _)| participant)
}

fn no_resource_without_intent(system: &System) -> bool {
    let left = |participant: &Participant| {
        let intent = system.document.as_ref().and_then(|document| document.intent(participant));
        matches!(intent, Some(Intent::Intended(_) | Intent::Owned { .. }))
    };
    ours(system).all(left) && (system.lease.is_none() || left(&Participant::Lease))
}

fn no_sandbox_before_policy(system: &System) -> bool {
    let needed = [Participant::Helper, Participant::RootMount, Participant::WorkspaceMount];
    !system.is_ours(&Participant::Runsc) || system.policy && needed.iter().all(|needed| system.is_ours(needed))
}

fn published_is_ready(system: &System) -> bool {
    let Some(document) = system.document.as_ref().filter(|document| document.decision == Decision::Published) else {
        return true;
    };
    let later = [Participant::Publication];
    let owned = participants().into_iter().filter(|participant| !later.contains(participant));
    let owned = owned.into_iter().all(|participant| document.ownership(&participant).is_some());
    let generation = Some(document.identity.generation);
    owned && document.readiness.is_some() && document.probe.is_some() && system.lease == generation
}

fn mounted_under_lease(system: &System) -> bool {
    let mounted = ours(system).any(Participant::is_mount);
    !mounted || system.lease == Some(system.generation())
}

fn registered_in_publication(system: &System) -> bool {
    let Some(document) = &system.document else { return true };
    let ending = matches!(document.decision, Decision::Published | Decision::TearingDown | Decision::Recovering);
    document.sessions.is_empty() || ending
}

/// A session that the coordinator carries is recorded, and a guest process belongs to a recorded one.
fn traffic_of_session(system: &System) -> bool {
    let recorded = |session| system.document.as_ref().is_some_and(|document| document.sessions.contains_key(session));
    let carried = system.coordinator.iter().flat_map(|coordinator| coordinator.sessions.keys());
    carried.chain(&system.execs).all(recorded)
}

fn release_order(system: &System) -> bool {
    let Some(document) = &system.document else { return true };
    let mounted = ours(system).any(Participant::is_mount);
    let intended = document.intent(&Participant::Lease).is_some();
    // Mounts go only after the intent is durable, and the catalog's record only after the mounts.
    (document.release < LeaseRelease::Unmounted || !mounted)
        && (!intended || document.decision == Decision::Clean || !mounted || system.lease.is_some())
}

fn foreign_stays(system: &System) -> bool {
    system.strangers.iter().all(|place| system.world.get(place) == Some(&Thing::Stranger))
}

fn clean_means_nothing(system: &System) -> bool {
    let ended = system.coordinator.as_ref().is_none_or(|coordinator| coordinator.life.phase != Phase::Ended);
    let clean = system.decision() == Some(Decision::Clean) && ended;
    let sessions = system.document.iter().any(|document| !document.sessions.is_empty());
    !clean || ours(system).next().is_none() && system.lease.is_none() && !sessions && system.execs.is_empty()
}
