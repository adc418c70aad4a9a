//! The Storage Catalog: opened under its lock, one short transaction, closed again (FR-17).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redb::{Database, WriteTransaction};
use serde::Serialize;

use super::catalog_lock::{CatalogLock, LockError};
use super::domain_store::decode_table;
use super::file::{self, FileError};
use super::records::{ARTIFACTS, LEASES, PREPARATIONS, Table, encode};
use super::trace;
use crate::core::catalog::{
    self, ArtifactRecord, ArtifactStatus, CatalogChange, CatalogRefusal, CatalogState, LeaseRecord, PreparationRecord,
};
use crate::domain::artifact::{ArtifactManifest, ImageSource};
use crate::domain::ids::{ArtifactId, DomainId, Generation, PreparationId};
use crate::domain::layout::StorageRoot;
use crate::domain::ownership::{PathIdentity, ProcessIdentity};
use crate::fault;

/// How long [`Catalog::open`] waits for the lock. Every holder keeps it for one short transaction.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Why the Storage Catalog can't be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The lock can't be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The file can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The rules of the catalog don't permit the change.
    #[error(transparent)]
    Refused(#[from] CatalogRefusal),
}

/// What completing a preparation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// The artifact is in the catalog now.
    Recorded,
    /// Another preparation had completed the same artifact; its manifest is the one that counts.
    AlreadyThere(Box<ArtifactManifest>),
}

/// The Storage Catalog, open and locked. Each change takes it by value: it is one transaction, then closed.
#[derive(Debug)]
pub struct Catalog {
    // Fields are dropped in this order: the file is closed before the lock is let go.
    database: Database,
    state: CatalogState,
    root: StorageRoot,
    path: PathBuf,
    _lock: CatalogLock,
}

impl Catalog {
    /// Takes the catalog lock, waiting for a bounded time, and opens the catalog, making it when there is none.
    /// The Storage Root must be there and private.
    pub fn open(root: &StorageRoot) -> Result<Self, CatalogError> {
        Self::open_within(root, LOCK_WAIT)
    }

    /// Opens the catalog as [`Self::open`] does, with a wait of one's own.
    pub fn open_within(root: &StorageRoot, wait: Duration) -> Result<Self, CatalogError> {
        let lock = CatalogLock::take(&root.catalog_lock(), wait)?;
        let database = file::open(&root.catalog())?;
        Self::from_database(root, database, lock)
    }

    pub(super) fn from_database(
        root: &StorageRoot,
        database: Database,
        lock: CatalogLock,
    ) -> Result<Self, CatalogError> {
        let path = root.catalog();
        let state = file::guard(&path, || load(&path, &database))?;
        Ok(Self { database, state, root: root.clone(), path, _lock: lock })
    }

    /// Gives everything that the catalog holds.
    pub fn state(&self) -> &CatalogState {
        &self.state
    }

    /// Gives a ready artifact's manifest.
    pub fn artifact(&self, id: &ArtifactId) -> Option<&ArtifactManifest> {
        let record = self.state.artifacts.get(id)?;
        (record.status == ArtifactStatus::Ready).then_some(&record.manifest)
    }

    /// Gives the preparations whose owner is gone; what `core::catalog::reclaim` says of each may be done.
    pub fn reclaimable_preparations(&self, is_alive: impl Fn(&ProcessIdentity) -> bool) -> Vec<PreparationRecord> {
        self.state.abandoned(is_alive).cloned().collect()
    }

    /// Records the intent to prepare `source`; the directory is to be made only after this.
    pub fn begin_preparation(
        self,
        owner: ProcessIdentity,
        source: ImageSource,
    ) -> Result<PreparationRecord, CatalogError> {
        let id = PreparationId::mint();
        let directory = self.root.preparation(&id);
        let record = PreparationRecord { id, owner, source, directory, identity: None, sealed: None, began_at: now() };
        self.change(&[CatalogChange::BeginPreparation(Box::new(record.clone()))])?;
        Ok(record)
    }

    /// Records which directory was made for a preparation; it is to be filled only after this.
    pub fn own_preparation(self, id: &PreparationId, identity: PathIdentity) -> Result<(), CatalogError> {
        self.change(&[CatalogChange::OwnPreparation(id.clone(), identity)])
    }

    /// Records what a preparation's complete tree is; it is to be renamed to the artifact's place only after this.
    pub fn seal_preparation(self, id: &PreparationId, manifest: &ArtifactManifest) -> Result<(), CatalogError> {
        self.change(&[CatalogChange::SealPreparation(id.clone(), Box::new(manifest.clone()))])
    }

    /// Records that a preparation's tree is at its artifact's place.
    pub fn complete(self, id: &PreparationId, manifest: &ArtifactManifest) -> Result<Completion, CatalogError> {
        let known = self.artifact(&manifest.id).cloned();
        self.change(&[CatalogChange::CompletePreparation(id.clone(), Box::new(manifest.clone()))])?;
        Ok(known.map_or(Completion::Recorded, |manifest| Completion::AlreadyThere(Box::new(manifest))))
    }

    /// Forgets a preparation of which nothing is left.
    pub fn abandon(self, id: &PreparationId) -> Result<(), CatalogError> {
        self.change(&[CatalogChange::AbandonPreparation(id.clone())])
    }

    /// Binds a generation to a ready artifact.
    pub fn acquire_lease(
        self,
        domain: &DomainId,
        generation: Generation,
        artifact: &ArtifactId,
    ) -> Result<LeaseRecord, CatalogError> {
        let lease = LeaseRecord { domain: domain.clone(), generation, artifact: artifact.clone(), acquired_at: now() };
        self.change(&[CatalogChange::AcquireLease(lease.clone())])?;
        Ok(lease)
    }

    /// Gives the artifact that a generation holds.
    pub fn lease(&self, domain: &DomainId, generation: Generation) -> Option<&ArtifactId> {
        self.state.leases.get(&(domain.clone(), generation)).map(|lease| &lease.artifact)
    }

    /// Ends a generation's hold on its artifact; nothing to do when there is none.
    pub fn release_lease(self, domain: &DomainId, generation: Generation) -> Result<(), CatalogError> {
        self.change(&[CatalogChange::ReleaseLease(domain.clone(), generation)])
    }

    /// Takes an artifact without leases out of use; its tree is to be deleted only after this.
    pub fn begin_removal(self, artifact: &ArtifactId) -> Result<(), CatalogError> {
        self.change(&[CatalogChange::BeginRemoval(artifact.clone())])
    }

    /// Forgets an artifact whose tree is deleted.
    pub fn finish_removal(self, artifact: &ArtifactId) -> Result<(), CatalogError> {
        self.change(&[CatalogChange::FinishRemoval(artifact.clone())])
    }

    /// Applies changes as one durable transaction, all of them or none, and closes the catalog.
    pub fn change(self, changes: &[CatalogChange]) -> Result<(), CatalogError> {
        let mut next = self.state.clone();
        for change in changes {
            catalog::apply(&mut next, change)?;
        }
        if next != self.state {
            let _around = fault::around(&changes);
            file::guard(&self.path, || self.commit(&next))?;
            trace::catalog(&self.state, changes);
        }
        Ok(())
    }

    fn commit(&self, next: &CatalogState) -> Result<(), FileError> {
        let transaction = self.database.begin_write().map_err(|error| file::write_error(&self.path, error))?;
        let write = Difference { path: &self.path, transaction: &transaction };
        let (old, text) = (&self.state, |id: &ArtifactId| id.as_str().to_owned());
        write.map(ARTIFACTS, &old.artifacts, &next.artifacts, text)?;
        let text = |id: &PreparationId| id.as_str().to_owned();
        write.map(PREPARATIONS, &old.preparations, &next.preparations, text)?;
        let text = |(domain, generation): &(DomainId, Generation)| format!("{domain}/{generation}");
        write.map(LEASES, &old.leases, &next.leases, text)?;
        transaction.commit().map_err(|error| file::write_error(&self.path, error))
    }
}

/// Writes what differs between two states.
struct Difference<'a> {
    path: &'a Path,
    transaction: &'a WriteTransaction,
}

impl Difference<'_> {
    fn map<K: Ord, V: Serialize + PartialEq>(
        &self,
        table: Table,
        old: &std::collections::BTreeMap<K, V>,
        new: &std::collections::BTreeMap<K, V>,
        text: impl Fn(&K) -> String,
    ) -> Result<(), FileError> {
        if old == new {
            return Ok(());
        }
        let error = |error: redb::Error| file::write_error(self.path, error);
        let mut table = self.transaction.open_table(table).map_err(|e| error(e.into()))?;
        for key in old.keys().filter(|key| !new.contains_key(key)) {
            table.remove(text(key).as_str()).map_err(|e| error(e.into()))?;
        }
        for (key, value) in new.iter().filter(|(key, value)| old.get(key) != Some(value)) {
            let bytes = encode(value).map_err(|source| FileError::Encode { path: self.path.to_owned(), source })?;
            table.insert(text(key).as_str(), bytes.as_slice()).map_err(|e| error(e.into()))?;
        }
        Ok(())
    }
}

fn load(path: &Path, database: &Database) -> Result<CatalogState, FileError> {
    let artifacts = decode_table::<ArtifactRecord>(path, database, ARTIFACTS, "artifacts")?;
    let preparations = decode_table::<PreparationRecord>(path, database, PREPARATIONS, "preparations")?;
    let leases = decode_table::<LeaseRecord>(path, database, LEASES, "leases")?;
    Ok(CatalogState {
        artifacts: artifacts.into_iter().map(|record| (record.manifest.id.clone(), record)).collect(),
        preparations: preparations.into_iter().map(|record| (record.id.clone(), record)).collect(),
        leases: leases.into_iter().map(|lease| ((lease.domain.clone(), lease.generation), lease)).collect(),
    })
}

fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
}
