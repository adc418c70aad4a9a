//! Stores as earlier versions wrote them, which every later version must read.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Home;
use super::catalog::Storage;
use crate::core::catalog::fixtures::manifest;
use crate::core::generation::fixtures::{domain, serving};
use crate::domain::ids::Generation;
use crate::store::Catalog;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn unpack(name: &str, to: &Path) {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(golden(name)).unwrap()).read_to_end(&mut content).unwrap();
    std::fs::write(to, content).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn pack(name: &str, from: &Path) {
    let file = std::fs::File::create_new(golden(name)).expect("a golden file is never overwritten");
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    encoder.write_all(&std::fs::read(from).unwrap()).unwrap();
    encoder.finish().unwrap();
}

#[test]
fn a_domain_store_of_version_1_is_read() {
    let home = Home::new();
    unpack("domain-store-v1.redb.gz", &home.store());
    assert_eq!(home.open().document(), Some(&serving()));
}

#[test]
fn a_storage_catalog_of_version_1_is_read() {
    let storage = Storage::new();
    unpack("catalog-v1.redb.gz", &storage.root.catalog());
    let catalog = Catalog::open(&storage.root).unwrap();
    let id = manifest("debian", 1).id;
    assert_eq!(catalog.artifact(&id), Some(&manifest("debian", 1)));
    assert_eq!(catalog.lease(&domain(), Generation(1)), Some(&id));
    assert_eq!(catalog.state().preparations.len(), 1);
}

/// Writes the golden files of the present version, when it is new.
#[test]
#[ignore = "writes golden files; to be run once for each schema version"]
fn write_golden_files() {
    let home = Home::new();
    let mut store = home.open();
    use crate::core::catalog::fixtures::source;
    use crate::core::generation::Change;
    use crate::core::generation::fixtures::{life, process, session, session_process};
    for transaction in life(1) {
        store.apply(&transaction).unwrap();
    }
    let started = Change::StartSession(session('1').id, session_process());
    store.apply(&[Change::RegisterSession(session('1')), started]).unwrap();
    drop(store);
    pack("domain-store-v1.redb.gz", &home.store());
    let storage = Storage::new();
    let id = storage.prepare("debian", 1);
    let open = || Catalog::open(&storage.root).unwrap();
    open().acquire_lease(&domain(), Generation(1), &id).unwrap();
    open().begin_preparation(process(41), source("alpine")).unwrap();
    pack("catalog-v1.redb.gz", &storage.root.catalog());
}
