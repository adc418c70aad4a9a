use std::error::Error;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::Home;
use crate::core::generation::fixtures::*;
use crate::core::generation::{Change, Decision, Refusal};
use crate::domain::ids::DomainId;
use crate::store::records::{META, PARTICIPANTS, SCHEMA_KEY};
use crate::store::{DomainStore, FileError, StoreError};

fn refused(home: &Home) -> FileError {
    match DomainStore::open(&home.store(), &domain()) {
        Err(StoreError::File(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_document_is_read_back_exactly_after_every_transaction() {
    let home = Home::new();
    assert_eq!(home.open().document(), None);
    let mut last = None;
    let sessions = [
        vec![Change::RegisterSession(session('1'))],
        vec![Change::StartSession(session('1').id, session_process())],
        vec![Change::EndSession(session('1').id)],
    ];
    for transaction in life(1).into_iter().chain(sessions).chain(ending()).chain([beginning(2)]) {
        let expected = accept(last, &transaction);
        assert_eq!(home.open().apply(&transaction).unwrap(), &expected);
        assert_eq!(home.open().document(), Some(&expected));
        last = Some(expected);
    }
}

#[test]
fn a_refused_change_leaves_the_whole_transaction_out() {
    let home = Home::new();
    let mut store = home.open();
    store.apply(&beginning(1)).unwrap();
    let before = store.document().cloned();
    let error = store.apply(&[Change::BeginRecovery(process(11)), Change::Publish]).unwrap_err();
    assert!(matches!(error, StoreError::Refused(Refusal::Decision { action: "Publish", .. })), "{error}");
    assert_eq!(store.document().cloned(), before);
    drop(store);
    assert_eq!(home.open().document().cloned(), before);
}

#[test]
fn requests_of_a_group_are_applied_or_refused_each_by_itself() {
    let home = Home::new();
    let mut store = home.open();
    let (begin, bad, recover) = (beginning(1), [Change::Finish], [Change::BeginRecovery(process(11))]);
    let answers = store.apply_group(&[&begin, &bad, &recover]).unwrap();
    assert_eq!(answers[0].as_ref().unwrap().decision, Decision::Starting);
    assert!(matches!(answers[1], Err(Refusal::Decision { .. })));
    assert_eq!(answers[2].as_ref().unwrap().decision, Decision::Recovering);
    drop(store);
    assert_eq!(home.open().document().unwrap().decision, Decision::Recovering);
}

#[test]
fn the_file_is_ours_alone() {
    let home = Home::new();
    drop(home.open());
    assert_eq!(home.store().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(home.0.path()).unwrap().count(), 1, "nothing unfinished is left beside it");

    std::fs::set_permissions(home.store(), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(refused(&home), FileError::NotPrivate { .. }));
    std::fs::set_permissions(home.store(), std::fs::Permissions::from_mode(0o600)).unwrap();

    std::fs::hard_link(home.store(), home.0.path().join("second")).unwrap();
    assert!(matches!(refused(&home), FileError::NotPrivate { .. }));
    std::fs::remove_file(home.0.path().join("second")).unwrap();

    let moved = home.0.path().join("moved");
    std::fs::rename(home.store(), &moved).unwrap();
    symlink(&moved, home.store()).unwrap();
    assert_eq!(refused(&home).to_string(), format!("{} is not private: it is a symbolic link", home.store().display()));
    std::fs::remove_file(home.store()).unwrap();
    std::fs::create_dir(home.store()).unwrap();
    assert!(matches!(refused(&home), FileError::Open { .. } | FileError::NotPrivate { .. }));
    std::fs::remove_dir(home.store()).unwrap();
    std::fs::rename(&moved, home.store()).unwrap();

    std::fs::set_permissions(home.0.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(matches!(refused(&home), FileError::NotPrivate { .. }));
}

#[test]
fn a_second_opener_is_refused_and_told_why() {
    let home = Home::new();
    let _first = home.open();
    assert!(matches!(refused(&home), FileError::Locked { .. }));
}

#[test]
fn a_missing_directory_is_named() {
    let home = Home::new();
    let path = home.0.path().join("none/store.redb");
    let error = DomainStore::open(&path, &domain()).unwrap_err();
    assert!(matches!(error, StoreError::File(FileError::Directory { .. })), "{error}");
    assert!(error.source().is_some());
}

#[test]
fn a_store_of_another_domain_is_refused() {
    let home = Home::new();
    home.open().apply(&beginning(1)).unwrap();
    let other = DomainId::derive(&profile(), Path::new("/home/dev/other"));
    let error = DomainStore::open(&home.store(), &other).unwrap_err();
    assert!(matches!(error, StoreError::ForeignDomain { .. }), "{error}");
}

#[test]
fn a_newer_schema_fails_closed() {
    let home = Home::new();
    home.open().apply(&beginning(1)).unwrap();
    let database = redb::Database::open(home.store()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert(SCHEMA_KEY, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = refused(&home);
    assert!(error.to_string().ends_with("has schema version 2; this Lazaret knows versions up to 1"), "{error}");
}

#[test]
fn a_record_of_an_unknown_version_fails_closed() {
    let home = Home::new();
    home.open().apply(&beginning(1)).unwrap();
    let database = redb::Database::open(home.store()).unwrap();
    let transaction = database.begin_write().unwrap();
    let bytes = rmp_serde::to_vec_named(&std::collections::BTreeMap::from([("V2", 1)])).unwrap();
    transaction.open_table(PARTICIPANTS).unwrap().insert("socket", bytes.as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert!(matches!(refused(&home), FileError::Record { .. }));
}

#[test]
fn what_is_no_store_is_called_damaged_and_stays() {
    for content in [&b"not a database at all"[..], &[0; 8192], b"redb\x1a\x0a\xa9\x0d\x0a", b""] {
        let home = Home::new();
        std::fs::write(home.store(), content).unwrap();
        std::fs::set_permissions(home.store(), std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = refused(&home);
        assert!(matches!(error, FileError::Corrupt { .. }), "{error}");
        assert_eq!(std::fs::read(home.store()).unwrap(), content);
    }
}

/// A byte that changed behind our back is never read as another document, and never a panic.
#[test]
fn an_altered_file_is_damaged_or_harmless() {
    let home = Home::new();
    let mut store = home.open();
    for transaction in life(1) {
        store.apply(&transaction).unwrap();
    }
    let document = store.document().cloned();
    drop(store);
    let content = std::fs::read(home.store()).unwrap();
    let mut damaged = 0;
    for offset in (0..content.len()).step_by(211) {
        let mut altered = content.clone();
        altered[offset] ^= 0x20;
        std::fs::write(home.store(), &altered).unwrap();
        match DomainStore::open(&home.store(), &domain()) {
            Ok(store) => assert_eq!(store.document().cloned(), document, "offset {offset}"),
            Err(StoreError::File(FileError::Corrupt { .. } | FileError::Record { .. } | FileError::Read { .. })) => {
                damaged += 1;
            }
            Err(other) => panic!("offset {offset}: {other}"),
        }
    }
    for length in (0..content.len()).step_by(4099) {
        std::fs::write(home.store(), &content[..length]).unwrap();
        let opened = DomainStore::open(&home.store(), &domain());
        assert!(opened.is_err(), "a file cut to {length} bytes");
    }
    assert!(damaged > 0);
}
