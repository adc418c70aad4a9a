//! Stores as earlier versions wrote them, which every later version must read.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTableMetadata, WriteTransaction};

use super::Home;
use super::catalog::Storage;
use crate::core::catalog::fixtures::manifest;
use crate::core::generation::fixtures::{domain, serving};
use crate::domain::ids::Generation;
use crate::store::records::{META, Migration, SCHEMA_KEY, SESSIONS, Table};
use crate::store::{Catalog, FileError, file};

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

/// A later version's step, as an example: sessions move to another table.
fn move_sessions(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    transaction.rename_table(SESSIONS, MOVED)?;
    Ok(())
}

const MOVED: Table = Table::new("moved sessions");

/// Gives the schema version, and how many sessions are in the old and in the new table.
fn versions(database: &Database) -> (u64, Option<u64>, Option<u64>) {
    let transaction = database.begin_read().unwrap();
    let version = transaction.open_table(META).unwrap().get(SCHEMA_KEY).unwrap().unwrap().value();
    let count = |table| transaction.open_table(table).ok().map(|table| table.len().unwrap());
    (version, count(SESSIONS), count(MOVED))
}

#[test]
fn an_older_version_is_migrated_whole_or_not_at_all() {
    let home = Home::new();
    unpack("domain-store-v1.redb.gz", &home.store());
    let database = Database::open(home.store()).unwrap();
    let settle = |steps: &[Migration]| file::settle_schema(&home.store(), &database, steps);
    let failing: Migration = |_| Err(redb::Error::Corrupted("a step that fails".into()));
    settle(&[move_sessions, failing]).unwrap_err();
    assert_eq!(versions(&database), (1, Some(1), None), "the first step is undone with the second");
    settle(&[move_sessions]).unwrap();
    assert_eq!(versions(&database), (2, None, Some(1)));
    settle(&[move_sessions]).unwrap();
    // The next version knows the first step as done.
    settle(&[move_sessions, |_| Ok(())]).unwrap();
    assert_eq!(versions(&database), (3, None, Some(1)));
    for steps in [&[][..], &[move_sessions as Migration][..]] {
        assert!(matches!(settle(steps), Err(FileError::Newer { found: 3, .. })));
    }
    assert_eq!(versions(&database), (3, None, Some(1)));
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
