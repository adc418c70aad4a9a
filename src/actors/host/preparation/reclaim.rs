//! Removes what dead preparations left, and completes one that died just before it was recorded.
//!
//! Only what the Storage Catalog recorded as intended, by a process that is gone, and what is exactly
//! the recorded directory is touched; everything else stays (OR-7).

use std::path::Path;

use super::error::PrepareError;
use super::{blocking, read_record, traced};
use crate::core::catalog::{Boot, Emptiness, PreparationRecord, Reclaim, Seen, reclaim};
use crate::domain::artifact::{GuestUser, IdMapping};
use crate::domain::layout::StorageRoot;
use crate::domain::ownership::ProcessIdentity;
use crate::fault;
use crate::oci::unpack;
use crate::policy::mapping::identity_mapping;
use crate::store::Catalog;
use crate::store::sighting;
use crate::sys::accounts::{Account, SubordinateIds};
use crate::sys::procfs;

/// Name of the file in a preparation's directory that says under which mapping it is unpacked.
pub(super) const MAPPING: &str = "mapping.json";

/// Reclaims all preparations whose process is not alive. One that can't be reclaimed is left for the next time and
/// never stands in the way of a new preparation.
pub(super) async fn reclaim_abandoned(
    storage: &StorageRoot,
    account: &Account,
    granted: &SubordinateIds,
    is_alive: impl Fn(&ProcessIdentity) -> bool + Send + 'static,
) -> Result<(), PrepareError> {
    let root = storage.clone();
    let records = blocking(move || Ok(Catalog::open(&root)?.reclaimable_preparations(is_alive))).await?;
    for record in records {
        if let Err(error) = reclaim_one(storage, &record, account, granted).await {
            tracing::warn!(preparation = %record.id, error = &error as &dyn std::error::Error, "leftover stays");
        }
    }
    Ok(())
}

async fn reclaim_one(
    storage: &StorageRoot,
    record: &PreparationRecord,
    account: &Account,
    granted: &SubordinateIds,
) -> Result<(), PrepareError> {
    let directory = storage.preparation(&record.id);
    if directory != record.directory {
        tracing::warn!(preparation = %record.id, directory = %record.directory.display(), "not in this Storage Root");
        return Ok(());
    }
    let at_artifact = match &record.sealed {
        Some(manifest) => see(&storage.artifact(&manifest.id))?,
        None => Seen::Nothing,
    };
    let running = procfs::boot_id().map_err(PrepareError::Developer)?;
    let boot = Boot::compare(&record.owner, &running);
    let (root, id) = (storage.clone(), record.id.clone());
    match reclaim(record, see(&directory)?, at_artifact, boot) {
        Reclaim::Remove(directory) => {
            let mapping = mapping_of(record, account, granted)?;
            let around = fault::around(&"RemovePreparation");
            unpack::remove(&directory, &mapping).await?;
            traced("ReclaimPreparation", record);
            drop(around);
            tracing::info!(preparation = %record.id, "removed what an interrupted preparation left");
            blocking(move || Ok(Catalog::open(&root)?.abandon(&id)?)).await
        }
        Reclaim::Abandon => blocking(move || Ok(Catalog::open(&root)?.abandon(&id)?)).await,
        Reclaim::Complete(manifest) => {
            blocking(move || Ok(Catalog::open(&root)?.complete(&id, &manifest).map(drop)?)).await
        }
        Reclaim::LeaveAlone(path) => {
            tracing::warn!(path = %path.display(), "left alone: it is not what the preparation made");
            Ok(())
        }
    }
}

fn see(path: &Path) -> Result<Seen, PrepareError> {
    let failed = |source| PrepareError::Directory { path: path.to_owned(), source };
    let Some(identity) = sighting::path_identity(path).map_err(failed)? else { return Ok(Seen::Nothing) };
    if !std::fs::symlink_metadata(path).map_err(failed)?.is_dir() {
        return Ok(Seen::Other);
    }
    let emptiness = match std::fs::read_dir(path).map_err(failed)?.next() {
        None => Emptiness::Empty,
        Some(_) => Emptiness::Filled,
    };
    Ok(Seen::Directory(identity, emptiness))
}

/// Gives a mapping that covers the owners of what was unpacked: the recorded one, or else root's,
/// which does when nothing was unpacked yet.
fn mapping_of(
    record: &PreparationRecord,
    account: &Account,
    granted: &SubordinateIds,
) -> Result<IdMapping, PrepareError> {
    let sealed = record.sealed.as_ref().map(|manifest| manifest.mapping.clone());
    if let Some(mapping) = sealed.or_else(|| read_record(&record.directory.join(MAPPING))) {
        return Ok(mapping);
    }
    let root = GuestUser { uid: 0, gid: 0, groups: vec![], name: None, home: "/".into(), shell: "/bin/sh".into() };
    Ok(identity_mapping(&root, (account.uid, account.gid), &granted.uids, &granted.gids)?)
}
