//! Tests of both stores on real files, on a backend that loses what was not synced, and under SIGKILL.

mod catalog;
mod crash;
mod damage;
mod disk;
mod domain_store;
mod golden;
mod measure;
mod writer;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::DomainStore;
use crate::core::generation::fixtures::domain;

/// A private directory of one test.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        Self(directory)
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store.redb")
    }

    fn open(&self) -> DomainStore {
        DomainStore::open(&self.store(), &domain()).unwrap()
    }
}
