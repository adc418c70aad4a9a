//! What is done about the leftovers of a generation whose Host Coordinator is gone, or which failed to end by itself.
//!
//! [`Inquiry`] says what to look at, [`Observed`] is what was seen, [`plan`] compares that with the
//! document and gives effects in order. Nothing is touched that is not provably this generation's:
//!
//! * a **process** must have the recorded pid, start time and boot id. Another process under the
//!   same pid is not ours and means that ours is gone;
//! * **mounts and namespaces** of the Runtime Supervisor end with it, since it is process 1 of its
//!   pid namespace; in a later boot they are gone by definition;
//! * an **owned path** must hold the recorded inode with the recorded birth time;
//! * an **intended path** whose ownership was never recorded is ours only as far as the order of
//!   writes proves it: a directory stays empty until its ownership is durable, so only an empty one
//!   of ours is removed, by rmdir(2), which cannot destroy anything; a socket must have no listener;
//!   a publication record must name this generation's Session Coordinator ID, 128 random bits that
//!   only this generation ever had;
//! * an **intended process** was never recorded, but carries PR_SET_PDEATHSIG and died with the
//!   coordinator that made it.
//!
//! A path is where to look, never the proof. Anything else that lies there is left alone, named in a
//! [`RecoveryRefusal`], and keeps the document from being clean until the developer has moved it.

mod paths;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use self::paths::{Found, FoundKind, Listener, Mismatch, Owner, RecoveryRefusal, Sighting};
use super::generation::{Change, Contents, Decision, GenerationDocument, Intent, LeaseRelease, Ownership, Participant};
use crate::domain::ids::{ArtifactId, DomainId, Generation};
use crate::domain::ownership::{PathIdentity, ProcessIdentity};

/// What has to be looked at before [`plan`] can decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// Process ids whose present holders matter.
    pub pids: Vec<i32>,
    /// Paths at which participants may lie.
    pub paths: BTreeMap<Participant, PathBuf>,
    /// Whose lease in the Storage Catalog matters; nothing when none can be there.
    pub lease: Option<(DomainId, Generation)>,
}

impl Inquiry {
    /// Gives the questions that a document raises.
    pub fn of(document: &GenerationDocument) -> Self {
        let mut pids: Vec<i32> = owned_processes(document).into_iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let paths = document.participants.keys();
        let paths = paths.filter_map(|p| document.path(p).map(|path| (p.clone(), path.to_owned()))).collect();
        let identity = &document.identity;
        let leased = matches!(document.intent(&Participant::Lease), Some(Intent::Intended(_) | Intent::Owned { .. }));
        Self { pids, paths, lease: leased.then(|| (identity.domain.clone(), identity.generation)) }
    }
}

/// The world as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The Host Coordinator that asks; it holds the Domain lock. Its boot id is the running boot's.
    pub leader: ProcessIdentity,
    /// The processes that now have the pids asked for; absent when none has.
    pub processes: BTreeMap<i32, ProcessIdentity>,
    /// What lies at each path asked for.
    pub paths: BTreeMap<Participant, Sighting>,
    /// The artifact that this generation holds in the Storage Catalog.
    pub lease: Option<ArtifactId>,
}

/// One thing to do. Effects run in order, each only after the one before it has succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryEffect {
    /// Writes the changes in one durable transaction.
    Record(Vec<Change>),
    /// Kills the Runtime Supervisor and waits until it is gone: opens a pidfd, compares the identity again, then
    /// signals through the pidfd, so that a reused pid is never hit.
    KillSupervisor(ProcessIdentity),
    /// Kills another recorded process in the same way, which is needed only if it outlived the Runtime Supervisor.
    KillProcess(ProcessIdentity),
    /// Removes a socket or record, after comparing its identity again.
    RemoveFile {
        /// Whose it is.
        participant: Participant,
        /// Where it lies.
        path: PathBuf,
        /// What it must still be.
        identity: PathIdentity,
    },
    /// Removes a directory with all that is in it, following no symlink, after comparing its identity again.
    RemoveTree {
        /// Whose it is.
        participant: Participant,
        /// Where it lies.
        path: PathBuf,
        /// What it must still be.
        identity: PathIdentity,
        /// Who owns what is in it.
        contents: Contents,
    },
    /// Removes a directory with rmdir(2), which fails unless it is empty.
    RemoveEmptyDirectory {
        /// Whose it is.
        participant: Participant,
        /// Where it lies.
        path: PathBuf,
        /// What it must still be.
        identity: PathIdentity,
    },
    /// Deletes this generation's lease record from the Storage Catalog.
    DeleteLease {
        /// The Domain.
        domain: DomainId,
        /// The generation.
        generation: Generation,
        /// The artifact that is held.
        artifact: ArtifactId,
    },
}

impl RecoveryEffect {
    /// Gives the name that the model has for carrying it out, and whose place it is about.
    ///
    /// Nothing for what is told of where it is done, and for a process that the Runtime Supervisor takes along.
    pub fn action(&self) -> Option<(&'static str, &Participant)> {
        match self {
            Self::KillSupervisor(_) => Some(("KillSupervisor", &Participant::RuntimeSupervisor)),
            Self::RemoveTree { participant, .. } | Self::RemoveEmptyDirectory { participant, .. } => {
                Some(("RemoveDirectory", participant))
            }
            Self::Record(_) | Self::KillProcess(_) | Self::RemoveFile { .. } | Self::DeleteLease { .. } => None,
        }
    }
}

/// What to do, and what is left alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryPlan {
    /// Effects in order. They end in `Finish` exactly when nothing was refused.
    pub effects: Vec<RecoveryEffect>,
    /// What was found and is not provably ours.
    pub refusals: Vec<RecoveryRefusal>,
}

/// Compares a document with the world and says what to do.
///
/// For the generation's own coordinator, which is already tearing down, the same plan without
/// `BeginRecovery` removes what the Runtime Supervisor did not.
pub fn plan(document: &GenerationDocument, observed: &Observed) -> RecoveryPlan {
    if document.decision == Decision::Clean {
        return RecoveryPlan::default();
    }
    let mut plan = RecoveryPlan::default();
    let mut recorded: Vec<Change> = Vec::new();

    // First durable: who recovers, and that the lease is going to be released (FR-17).
    let own = document.decision == Decision::TearingDown && document.identity.leader == observed.leader;
    if !own {
        recorded.push(Change::BeginRecovery(observed.leader.clone()));
    }
    let leased = is_left(document, &Participant::Lease);
    if leased && document.release == LeaseRelease::NotBegun {
        recorded.push(Change::IntendLeaseRelease);
    }
    flush(&mut plan, &mut recorded);

    // No client finds the generation any more.
    let mut released = Vec::new();
    for participant in [Participant::Publication, Participant::Socket] {
        released.extend(path_effects(document, observed, &participant, &mut plan));
    }

    // The supervisor first: with process 1 of the pid namespace everything in it dies at once.
    let alive = owned_processes(document);
    let alive = alive.into_iter().filter(|process| observed.processes.get(&process.pid) == Some(process));
    let supervisor = document.ownership(&Participant::RuntimeSupervisor);
    plan.effects.extend(alive.cloned().map(|process| {
        if supervisor == Some(&Ownership::Process(process.clone())) {
            RecoveryEffect::KillSupervisor(process)
        } else {
            RecoveryEffect::KillProcess(process)
        }
    }));
    recorded.extend(document.sessions.keys().cloned().map(Change::EndSession));
    let inner = document.participants.keys().filter(|p| p.ends_with_supervisor() && is_left(document, p));
    recorded.extend(inner.cloned().map(Change::Release));
    if is_left(document, &Participant::RuntimeSupervisor) {
        recorded.push(Change::Release(Participant::RuntimeSupervisor));
    }
    if leased && document.release < LeaseRelease::Unmounted {
        recorded.push(Change::ConfirmUnmounted);
    }
    recorded.extend(released);
    flush(&mut plan, &mut recorded);

    for participant in [Participant::Scratch, Participant::RuntimeDirectory] {
        recorded.extend(path_effects(document, observed, &participant, &mut plan));
    }
    if leased {
        recorded.extend(lease_effects(document, observed, &mut plan));
    }
    if plan.refusals.is_empty() {
        recorded.push(Change::Finish);
    }
    flush(&mut plan, &mut recorded);
    plan
}

fn flush(plan: &mut RecoveryPlan, changes: &mut Vec<Change>) {
    if !changes.is_empty() {
        plan.effects.push(RecoveryEffect::Record(std::mem::take(changes)));
    }
}

fn is_left(document: &GenerationDocument, participant: &Participant) -> bool {
    matches!(document.intent(participant), Some(Intent::Intended(_) | Intent::Owned { .. }))
}

/// Gives the recorded processes, the Runtime Supervisor first.
fn owned_processes(document: &GenerationDocument) -> Vec<&ProcessIdentity> {
    let first = [Participant::RuntimeSupervisor, Participant::Runsc, Participant::Helper];
    let participants = first.iter().filter_map(|p| match document.ownership(p) {
        Some(Ownership::Process(identity)) => Some(identity),
        _ => None,
    });
    let sessions = document.sessions.values().filter_map(|session| session.process.as_ref().map(|p| &p.exec));
    participants.chain(sessions).collect()
}

/// Removes what a path participant has left and gives the release to record, or refuses.
fn path_effects(
    document: &GenerationDocument,
    observed: &Observed,
    participant: &Participant,
    plan: &mut RecoveryPlan,
) -> Option<Change> {
    let intent = document.intent(participant).filter(|intent| !matches!(intent, Intent::Released))?;
    let sighting = observed.paths.get(participant).unwrap_or(&Sighting::NotLooked);
    match paths::judge(&document.identity, intent, sighting, &observed.leader.boot_id, participant) {
        Ok(effect) => {
            plan.effects.extend(effect);
            Some(Change::Release(participant.clone()))
        }
        Err(refusal) => {
            plan.refusals.push(refusal);
            None
        }
    }
}

/// Deletes the lease that is recorded, or refuses when the catalog has another.
fn lease_effects(document: &GenerationDocument, observed: &Observed, plan: &mut RecoveryPlan) -> Option<Change> {
    let recorded = match document.intent(&Participant::Lease)? {
        Intent::Intended(super::generation::Target::Lease { artifact }) => artifact,
        Intent::Owned { ownership: Ownership::Artifact(artifact), .. } => artifact,
        _ => return None,
    };
    match &observed.lease {
        None => {}
        Some(held) if held == recorded => plan.effects.push(RecoveryEffect::DeleteLease {
            domain: document.identity.domain.clone(),
            generation: document.identity.generation,
            artifact: recorded.clone(),
        }),
        Some(held) => {
            plan.refusals.push(RecoveryRefusal {
                participant: Participant::Lease,
                generation: document.identity.generation,
                path: None,
                mismatch: Mismatch::OtherArtifact { recorded: recorded.clone(), held: held.clone() },
            });
            return None;
        }
    }
    Some(Change::ConfirmCatalogDelete)
}
