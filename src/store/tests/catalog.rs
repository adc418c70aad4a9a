use std::path::Path;
use std::time::Duration;

use super::Home;
use crate::core::catalog::CatalogRefusal;
use crate::core::catalog::fixtures::{manifest, source};
use crate::core::generation::fixtures::{domain, place, process};
use crate::domain::ids::{ArtifactId, Generation};
use crate::domain::layout::StorageRoot;
use crate::store::{Catalog, CatalogError, Completion, LockError};

/// A Storage Root of one test.
pub(super) struct Storage {
    _home: Home,
    pub(super) root: StorageRoot,
}

impl Storage {
    pub(super) fn new() -> Self {
        let home = Home::new();
        let root = StorageRoot::new(home.0.path().to_owned());
        Self { _home: home, root }
    }

    fn open(&self) -> Catalog {
        Catalog::open(&self.root).unwrap()
    }

    pub(super) fn prepare(&self, name: &str, prepared_at: i64) -> ArtifactId {
        let record = self.open().begin_preparation(process(40), source(name)).unwrap();
        let manifest = manifest(name, prepared_at);
        self.open().own_preparation(&record.id, place(40)).unwrap();
        self.open().seal_preparation(&record.id, &manifest).unwrap();
        assert_eq!(self.open().complete(&record.id, &manifest).unwrap(), Completion::Recorded);
        manifest.id
    }
}

#[test]
fn an_artifact_is_prepared_found_leased_and_removed() {
    let storage = Storage::new();
    let id = storage.prepare("debian", 1);
    let catalog = storage.open();
    let expected = manifest("debian", 1);
    assert_eq!(catalog.artifact(&id), Some(&expected));
    assert!(catalog.state().preparations.is_empty());
    catalog.acquire_lease(&domain(), Generation(1), &id).unwrap();
    assert_eq!(storage.open().lease(&domain(), Generation(1)), Some(&id));
    assert_eq!(storage.open().state().leases.len(), 1);
    let error = storage.open().begin_removal(&id).unwrap_err();
    assert!(matches!(error, CatalogError::Refused(CatalogRefusal::Leased { .. })), "{error}");
    storage.open().release_lease(&domain(), Generation(1)).unwrap();
    storage.open().release_lease(&domain(), Generation(1)).unwrap();
    storage.open().begin_removal(&id).unwrap();
    assert_eq!(storage.open().artifact(&id), None);
    storage.open().finish_removal(&id).unwrap();
    assert!(storage.open().state().artifacts.is_empty());
}

#[test]
fn a_preparation_that_comes_second_is_told_so() {
    let storage = Storage::new();
    let late = storage.open().begin_preparation(process(41), source("debian")).unwrap();
    assert_eq!(late.directory, storage.root.preparation(&late.id));
    storage.prepare("debian", 1);
    let outcome = storage.open().complete(&late.id, &manifest("debian", 1)).unwrap();
    assert_eq!(outcome, Completion::AlreadyThere(Box::new(manifest("debian", 1))));
}

#[test]
fn a_dead_owner_s_preparation_can_be_reclaimed() {
    let storage = Storage::new();
    let dead = storage.open().begin_preparation(process(41), source("debian")).unwrap();
    let live = storage.open().begin_preparation(process(42), source("debian")).unwrap();
    let found = storage.open().reclaimable_preparations(|owner| owner.pid == 42);
    assert_eq!(found, vec![dead.clone()]);
    storage.open().abandon(&dead.id).unwrap();
    storage.open().abandon(&dead.id).unwrap();
    assert_eq!(storage.open().state().preparations.values().collect::<Vec<_>>(), [&live]);
}

#[test]
fn an_open_catalog_keeps_others_out_for_a_bounded_time() {
    let storage = Storage::new();
    let held = storage.open();
    let error = Catalog::open_within(&storage.root, Duration::from_millis(20)).unwrap_err();
    let CatalogError::Lock(LockError::Held { pid, .. }) = &error else { panic!("{error}") };
    assert_eq!(*pid, Some(std::process::id() as i32));
    drop(held);
    storage.open();
}

#[test]
fn many_processes_worth_of_threads_lose_no_lease() {
    let storage = Storage::new();
    let id = storage.prepare("debian", 1);
    std::thread::scope(|scope| {
        for generation in 1..=8 {
            let (storage, id) = (&storage, &id);
            scope.spawn(move || storage.open().acquire_lease(&domain(), Generation(generation), id).unwrap());
        }
    });
    assert_eq!(storage.open().state().leases.len(), 8);
}

#[test]
fn a_missing_storage_root_is_named() {
    let error = Catalog::open(&StorageRoot::new(Path::new("/nonexistent/lazaret").to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "can't lock /nonexistent/lazaret/storage-catalog.lock");
}
