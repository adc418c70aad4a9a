//! The Storage Catalog's rules: prepared artifacts, preparations in progress, and leases of generations.
//!
//! ```text
//!   BeginPreparation ──▶ preparation ──SealPreparation──▶ sealed ──CompletePreparation──▶ artifact: Ready
//!          AbandonPreparation │                             │                       BeginRemoval │  ▲ lease
//!                             ▼                             ▼                                    ▼
//!                           (none)                        (none)            (none) ◀─FinishRemoval─ Removing
//! ```
//!
//! A lease binds one generation of one Domain to a ready artifact. Only a ready artifact without a
//! lease can begin to be removed, and one that is being removed can't be leased, so a tree is never
//! taken away under a sandbox (OR-7).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::artifact::{ArtifactManifest, ImageSource};
use crate::domain::ids::{ArtifactId, DomainId, Generation, PreparationId};
use crate::domain::ownership::{BootId, PathIdentity, ProcessIdentity};

/// Whether an artifact can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArtifactStatus {
    /// Complete; can be leased.
    Ready,
    /// Its tree is being deleted; never leased again.
    Removing,
}

/// One prepared artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRecord {
    /// What it is.
    pub manifest: ArtifactManifest,
    /// Whether it can be used.
    pub status: ArtifactStatus,
}

/// One preparation in progress: the durable intent to make a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparationRecord {
    /// Its identity, which its directory's name contains.
    pub id: PreparationId,
    /// The process that prepares. When it is gone the preparation is abandoned.
    pub owner: ProcessIdentity,
    /// What is prepared.
    pub source: ImageSource,
    /// The directory that it is made in.
    #[serde(with = "crate::domain::escaped::path")]
    pub directory: PathBuf,
    /// The directory, exactly, once it is made.
    pub identity: Option<PathIdentity>,
    /// What it becomes; recorded before the directory is renamed to the artifact's.
    pub sealed: Option<ArtifactManifest>,
    /// When it began, seconds since the epoch.
    pub began_at: i64,
}

/// One lease: a generation's hold on an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The Domain that holds it.
    pub domain: DomainId,
    /// The generation that holds it.
    pub generation: Generation,
    /// The artifact that is held.
    pub artifact: ArtifactId,
    /// When it was acquired, seconds since the epoch.
    pub acquired_at: i64,
}

/// Everything in the catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogState {
    /// Prepared artifacts.
    pub artifacts: BTreeMap<ArtifactId, ArtifactRecord>,
    /// Preparations in progress.
    pub preparations: BTreeMap<PreparationId, PreparationRecord>,
    /// Leases.
    pub leases: BTreeMap<(DomainId, Generation), LeaseRecord>,
}

impl CatalogState {
    /// Gives the manifests of the artifacts that can be leased.
    pub fn ready(&self) -> impl Iterator<Item = &ArtifactManifest> {
        let ready = self.artifacts.values().filter(|artifact| artifact.status == ArtifactStatus::Ready);
        ready.map(|artifact| &artifact.manifest)
    }

    /// Gives the leases of an artifact.
    pub fn leases_of<'a>(&'a self, artifact: &'a ArtifactId) -> impl Iterator<Item = &'a LeaseRecord> {
        self.leases.values().filter(move |lease| lease.artifact == *artifact)
    }

    /// Gives the preparations whose owner is gone: only those may be reclaimed (OR-7).
    pub fn abandoned<'a>(
        &'a self,
        is_alive: impl Fn(&ProcessIdentity) -> bool + 'a,
    ) -> impl Iterator<Item = &'a PreparationRecord> {
        self.preparations.values().filter(move |preparation| !is_alive(&preparation.owner))
    }
}

/// One step of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogChange {
    /// `BeginPreparation`: a tree is going to be made.
    BeginPreparation(Box<PreparationRecord>),
    /// `OwnPreparation`: its directory is made, and this is it.
    OwnPreparation(PreparationId, PathIdentity),
    /// `SealPreparation`: the tree is complete and is going to be renamed to its artifact's place.
    SealPreparation(PreparationId, Box<ArtifactManifest>),
    /// `CompletePreparation`: the tree is at its artifact's place. An artifact that is there already stays as it is.
    CompletePreparation(PreparationId, Box<ArtifactManifest>),
    /// `AbandonPreparation`: nothing of the preparation is left.
    AbandonPreparation(PreparationId),
    /// `AcquireLease`: a generation holds an artifact from here on.
    AcquireLease(LeaseRecord),
    /// `ReleaseLease`: a generation no longer holds its artifact.
    ReleaseLease(DomainId, Generation),
    /// `BeginRemoval`: an artifact's tree is going to be deleted.
    BeginRemoval(ArtifactId),
    /// `FinishRemoval`: an artifact's tree is gone.
    FinishRemoval(ArtifactId),
}

impl CatalogChange {
    /// Gives the action's name in the model.
    pub fn action(&self) -> &'static str {
        match self {
            Self::BeginPreparation(_) => "BeginPreparation",
            Self::OwnPreparation(..) => "OwnPreparation",
            Self::SealPreparation(..) => "SealPreparation",
            Self::CompletePreparation(..) => "CompletePreparation",
            Self::AbandonPreparation(_) => "AbandonPreparation",
            Self::AcquireLease(_) => "AcquireLease",
            Self::ReleaseLease(..) => "ReleaseLease",
            Self::BeginRemoval(_) => "BeginRemoval",
            Self::FinishRemoval(_) => "FinishRemoval",
        }
    }
}

/// Why a catalog change was refused. The catalog is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogRefusal {
    /// There is no such preparation.
    #[error("preparation {0} is not in the catalog")]
    NoPreparation(PreparationId),
    /// A preparation with this identity is already recorded otherwise.
    #[error("preparation {0} is already recorded differently")]
    PreparationDiffers(PreparationId),
    /// The preparation was sealed as another artifact.
    #[error("preparation {preparation} was sealed as another artifact than {artifact}")]
    SealedDifferently {
        /// The preparation.
        preparation: PreparationId,
        /// The artifact that was given.
        artifact: ArtifactId,
    },
    /// There is no such artifact.
    #[error("prepared artifact {0} is not in the catalog")]
    NoArtifact(ArtifactId),
    /// The artifact is being removed.
    #[error("prepared artifact {0} is being removed")]
    Removing(ArtifactId),
    /// The artifact is not being removed.
    #[error("prepared artifact {0} is not being removed")]
    NotRemoving(ArtifactId),
    /// The artifact is leased.
    #[error("prepared artifact {artifact} is in use by generation {generation} of Domain {domain}")]
    Leased {
        /// The artifact.
        artifact: ArtifactId,
        /// A Domain that holds it.
        domain: DomainId,
        /// The generation that holds it.
        generation: Generation,
    },
    /// The generation holds another artifact.
    #[error("generation {generation} of Domain {domain} already holds prepared artifact {artifact}")]
    LeaseDiffers {
        /// The Domain.
        domain: DomainId,
        /// The generation.
        generation: Generation,
        /// The artifact that it holds.
        artifact: ArtifactId,
    },
}

/// Carries a change out, or says why it can't be. A change that is already so changes nothing.
pub fn apply(state: &mut CatalogState, change: &CatalogChange) -> Result<(), CatalogRefusal> {
    match change {
        CatalogChange::BeginPreparation(record) => match state.preparations.get(&record.id) {
            Some(known) if *known != **record => Err(CatalogRefusal::PreparationDiffers(record.id.clone())),
            _ => {
                state.preparations.insert(record.id.clone(), (**record).clone());
                Ok(())
            }
        },
        CatalogChange::OwnPreparation(id, identity) => {
            let record = preparation(state, id)?;
            if record.identity.is_some_and(|known| known != *identity) {
                return Err(CatalogRefusal::PreparationDiffers(id.clone()));
            }
            record.identity = Some(*identity);
            Ok(())
        }
        CatalogChange::SealPreparation(id, manifest) => {
            let record = preparation(state, id)?;
            check_seal(record, manifest)?;
            record.sealed = Some((**manifest).clone());
            Ok(())
        }
        CatalogChange::CompletePreparation(id, manifest) => complete(state, id, manifest),
        CatalogChange::AbandonPreparation(id) => {
            state.preparations.remove(id);
            Ok(())
        }
        CatalogChange::AcquireLease(lease) => acquire(state, lease),
        CatalogChange::ReleaseLease(domain, generation) => {
            state.leases.remove(&(domain.clone(), *generation));
            Ok(())
        }
        CatalogChange::BeginRemoval(id) => {
            if let Some(lease) = state.leases_of(id).next() {
                let (domain, generation) = (lease.domain.clone(), lease.generation);
                return Err(CatalogRefusal::Leased { artifact: id.clone(), domain, generation });
            }
            let artifact = state.artifacts.get_mut(id).ok_or_else(|| CatalogRefusal::NoArtifact(id.clone()))?;
            artifact.status = ArtifactStatus::Removing;
            Ok(())
        }
        CatalogChange::FinishRemoval(id) => match state.artifacts.get(id).map(|artifact| artifact.status) {
            Some(ArtifactStatus::Ready) => Err(CatalogRefusal::NotRemoving(id.clone())),
            Some(ArtifactStatus::Removing) | None => {
                state.artifacts.remove(id);
                Ok(())
            }
        },
    }
}

fn preparation<'a>(
    state: &'a mut CatalogState,
    id: &PreparationId,
) -> Result<&'a mut PreparationRecord, CatalogRefusal> {
    state.preparations.get_mut(id).ok_or_else(|| CatalogRefusal::NoPreparation(id.clone()))
}

fn check_seal(record: &PreparationRecord, manifest: &ArtifactManifest) -> Result<(), CatalogRefusal> {
    match &record.sealed {
        Some(sealed) if sealed != manifest => {
            Err(CatalogRefusal::SealedDifferently { preparation: record.id.clone(), artifact: manifest.id.clone() })
        }
        _ => Ok(()),
    }
}

fn complete(state: &mut CatalogState, id: &PreparationId, manifest: &ArtifactManifest) -> Result<(), CatalogRefusal> {
    check_seal(preparation(state, id)?, manifest)?;
    match state.artifacts.get(&manifest.id).map(|artifact| artifact.status) {
        Some(ArtifactStatus::Removing) => return Err(CatalogRefusal::Removing(manifest.id.clone())),
        Some(ArtifactStatus::Ready) => {}
        None => {
            let record = ArtifactRecord { manifest: manifest.clone(), status: ArtifactStatus::Ready };
            state.artifacts.insert(manifest.id.clone(), record);
        }
    }
    state.preparations.remove(id);
    Ok(())
}

fn acquire(state: &mut CatalogState, lease: &LeaseRecord) -> Result<(), CatalogRefusal> {
    match state.artifacts.get(&lease.artifact).map(|artifact| artifact.status) {
        None => return Err(CatalogRefusal::NoArtifact(lease.artifact.clone())),
        Some(ArtifactStatus::Removing) => return Err(CatalogRefusal::Removing(lease.artifact.clone())),
        Some(ArtifactStatus::Ready) => {}
    }
    let key = (lease.domain.clone(), lease.generation);
    match state.leases.get(&key) {
        Some(held) if held.artifact != lease.artifact => Err(CatalogRefusal::LeaseDiffers {
            domain: held.domain.clone(),
            generation: held.generation,
            artifact: held.artifact.clone(),
        }),
        Some(_) => Ok(()),
        None => {
            state.leases.insert(key, lease.clone());
            Ok(())
        }
    }
}

/// What to do with an abandoned preparation, once its places have been looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reclaim {
    /// Nothing is left of it; abandon the record.
    Abandon,
    /// Remove the directory, then abandon the record.
    Remove(PathBuf),
    /// It was sealed and renamed before its owner died; complete it.
    Complete(Box<ArtifactManifest>),
    /// What lies there is not provably ours; leave it alone, keep the record, tell the developer.
    LeaveAlone(PathBuf),
}

/// What was seen at a preparation's directory or at its artifact's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// A directory, empty or not.
    Directory(PathIdentity, Emptiness),
    /// Something else.
    Other,
}

/// Whether a directory has entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emptiness {
    /// It has none.
    Empty,
    /// It has some.
    Filled,
}

/// Decides what becomes of an abandoned preparation.
///
/// `at_artifact` is what lies at the sealed artifact's place. A rename keeps inode and birth time, so
/// the same identity there proves that the rename happened. A directory without recorded identity
/// was made after the intent and, by the order of writes, is still empty.
pub fn reclaim(record: &PreparationRecord, at_directory: Seen, at_artifact: Seen, boot: Boot) -> Reclaim {
    let ours = |seen: &PathIdentity| {
        record.identity.is_some_and(|recorded| match boot {
            Boot::Same => recorded.is(seen),
            Boot::Later => recorded.is_across_boots(seen),
        })
    };
    match (at_directory, at_artifact, &record.sealed) {
        (Seen::Directory(seen, _), _, _) if ours(&seen) => Reclaim::Remove(record.directory.clone()),
        (Seen::Directory(_, Emptiness::Empty), _, None) if record.identity.is_none() => {
            Reclaim::Remove(record.directory.clone())
        }
        (Seen::Nothing, Seen::Directory(seen, _), Some(manifest)) if ours(&seen) => {
            Reclaim::Complete(Box::new(manifest.clone()))
        }
        (Seen::Nothing, _, _) => Reclaim::Abandon,
        (Seen::Directory(..) | Seen::Other, _, _) => Reclaim::LeaveAlone(record.directory.clone()),
    }
}

/// Whether a record was made in the running boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// It was.
    Same,
    /// It was made in an earlier one.
    Later,
}

impl Boot {
    /// Compares the boot of a record with the running one.
    pub fn compare(recorded: &ProcessIdentity, running: &BootId) -> Self {
        if recorded.boot_id == *running { Self::Same } else { Self::Later }
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
