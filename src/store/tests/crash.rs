//! A store that is killed, or loses what was not synced, holds the last committed document or the one being committed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;

use super::Home;
use super::catalog::Storage;
use super::disk::{Failure, Lossy, chances};
use crate::core::catalog::fixtures::{manifest, preparation_record};
use crate::core::catalog::{self, CatalogChange, CatalogState, LeaseRecord};
use crate::core::generation::fixtures::*;
use crate::core::generation::{Change, GenerationDocument};
use crate::domain::ids::Generation;
use crate::store::catalog_lock::CatalogLock;
use crate::store::{Catalog, CatalogError, DomainStore, FileError, LOCK_WAIT, StoreError, file};

/// How a disk fails: it is full, or it is broken; for once, or from then on.
const FAILURES: [Failure; 4] = [
    Failure { errno: Errno::NOSPC, lasting: true },
    Failure { errno: Errno::NOSPC, lasting: false },
    Failure { errno: Errno::IO, lasting: true },
    Failure { errno: Errno::IO, lasting: false },
];

/// The transactions of several generations, one after the other.
fn history() -> impl Iterator<Item = Vec<Change>> {
    (1..).flat_map(|generation| life(generation).into_iter().chain(ending()))
}

/// The document after each number of transactions.
fn documents(count: usize) -> Vec<Option<GenerationDocument>> {
    let mut documents = vec![None];
    for transaction in history().take(count) {
        let next = accept(documents.last().cloned().flatten(), &transaction);
        documents.push(Some(next));
    }
    documents
}

const CHILD_STORE: &str = "LAZARET_TEST_CRASH_STORE";

/// The child of the next test: commits as fast as it can and says how many are durable.
#[test]
#[ignore = "is run by a_killed_writer_leaves_a_committed_document"]
fn child_commits_until_killed() {
    let path = std::env::var_os(CHILD_STORE).expect("run by its parent test");
    let mut store = DomainStore::open(Path::new(&path), &domain()).unwrap();
    // The test runner holds a lock on standard output in between, so this goes to standard error.
    let mut out = std::io::stderr().lock();
    for (count, transaction) in history().enumerate() {
        store.apply(&transaction).unwrap();
        writeln!(out, "committed {}", count + 1).unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_a_committed_document() {
    let rounds = 12;
    for round in 0..rounds {
        let home = Home::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::crash::child_commits_until_killed", "--ignored", "--nocapture"])
            .env(CHILD_STORE, home.store())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut acknowledged = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("committed ").and_then(|count| count.parse::<usize>().ok()));
        if round > 0 {
            acknowledged.next().expect("the child commits");
            std::thread::sleep(Duration::from_micros(1700 * round));
        }
        child.kill().unwrap();
        let acknowledged = acknowledged.last().unwrap_or(usize::from(round > 0));
        child.wait().unwrap();
        let store = home.open();
        let possible = &documents(acknowledged + 1)[acknowledged..];
        let found = store.document().cloned();
        assert!(possible.contains(&found), "round {round}: {acknowledged} acknowledged, found {found:#?}");
    }
}

fn open(disk: &Lossy) -> Result<DomainStore, crate::store::StoreError> {
    let path = Path::new("lossy");
    DomainStore::from_database(path, file::open_backend(path, disk.clone())?, &domain())
}

/// Applies transactions until one fails; gives how many were committed.
fn commit(disk: &Lossy, count: usize) -> (usize, Option<StoreError>) {
    let mut store = match open(disk) {
        Ok(store) => store,
        Err(error) => return (0, Some(error)),
    };
    for (committed, transaction) in history().take(count).enumerate() {
        let before = store.document().cloned();
        if let Err(error) = store.apply(&transaction) {
            assert_eq!(store.document().cloned(), before, "what was not committed is not shown");
            return (committed, Some(error));
        }
    }
    (count, None)
}

fn initialized() -> Lossy {
    let disk = Lossy::default();
    drop(open(&disk).unwrap());
    disk
}

#[test]
fn a_power_cut_leaves_a_committed_document() {
    let (whole, documents) = (initialized(), documents(12));
    let mut interrupted = 0;
    for cut_after in 0..400_u32 {
        let disk = whole.copy();
        disk.fail_after(cut_after, Failure::default());
        let (committed, failed) = commit(&disk, 11);
        for seed in 0..4 {
            let left = disk.cut(&mut chances(u64::from(cut_after) * 4 + seed));
            let store =
                open(&left).unwrap_or_else(|error| panic!("cut after {cut_after} operations, seed {seed}: {error}"));
            let found = store.document().cloned();
            let possible = &documents[committed..=committed + 1];
            assert!(possible.contains(&found), "cut after {cut_after}, seed {seed}: {committed} committed, {found:#?}");
        }
        interrupted += usize::from(failed.is_some());
    }
    assert!(interrupted > 50, "{interrupted}");
}

/// A full disk or a failing one, at each operation, for once or from then on: the change is refused, and what was
/// committed is there when the disk is well again, whether or not the power was cut in between.
#[test]
fn a_failing_disk_refuses_the_change_and_keeps_the_document() {
    let (whole, documents) = (initialized(), documents(12));
    for failure in FAILURES {
        let mut failed_at = 0;
        for after in 0..250 {
            let disk = whole.copy();
            disk.fail_after(after, failure);
            let (committed, Some(error)) = commit(&disk, 11) else { continue };
            failed_at += 1;
            let named = matches!(
                &error,
                StoreError::File(FileError::Open { .. } | FileError::Read { .. } | FileError::Write { .. })
            );
            assert!(named, "{failure:?} after {after} operations: {error:?}");
            disk.heal();
            for left in [disk.cut(&mut chances(u64::from(after))), disk] {
                let found = open(&left).unwrap().document().cloned();
                assert!(documents[committed..=committed + 1].contains(&found), "{failure:?} after {after}: {found:#?}");
            }
        }
        assert!(failed_at > 50, "{failed_at}");
    }
}

/// A coordinator whose store failed once never writes over it: only opening again tells what is on the disk.
#[test]
fn a_store_that_failed_stays_closed_to_changes() {
    let disk = initialized();
    let mut store = open(&disk).unwrap();
    store.apply(&beginning(1)).unwrap();
    disk.fail_after(0, FAILURES[1]);
    let error = store.apply(&[Change::BeginRecovery(process(11))]).unwrap_err();
    assert_eq!(error.to_string(), "can't write lossy");
    let again = store.apply(&[Change::BeginRecovery(process(11))]).unwrap_err();
    assert!(matches!(again, StoreError::File(FileError::Write { .. })), "{again:?}");
    assert_eq!(store.document(), documents(1)[1].as_ref());
    drop(store);
    assert_eq!(open(&disk).unwrap().document(), documents(1)[1].as_ref());
}

/// The Storage Catalog on a disk; each change opens it and closes it again, as processes do.
fn open_catalog(storage: &Storage, disk: &Lossy) -> Result<Catalog, CatalogError> {
    let database = file::open_backend(Path::new("lossy"), disk.clone())?;
    Catalog::from_database(&storage.root, database, CatalogLock::take(&storage.root.catalog_lock(), LOCK_WAIT)?)
}

/// What processes do to the catalog.
fn catalog_history() -> Vec<CatalogChange> {
    let record = preparation_record("debian", 40);
    let manifest = Box::new(manifest("debian", 1));
    let lease = |generation| LeaseRecord {
        domain: domain(),
        generation: Generation(generation),
        artifact: manifest.id.clone(),
        acquired_at: 1_700_000_000,
    };
    use CatalogChange::*;
    vec![
        BeginPreparation(Box::new(record.clone())),
        OwnPreparation(record.id.clone(), place(40)),
        SealPreparation(record.id.clone(), manifest.clone()),
        CompletePreparation(record.id, manifest.clone()),
        AcquireLease(lease(1)),
        AcquireLease(lease(2)),
        ReleaseLease(domain(), Generation(1)),
        ReleaseLease(domain(), Generation(2)),
        BeginRemoval(manifest.id.clone()),
        FinishRemoval(manifest.id.clone()),
    ]
}

/// A lease is never lost and never invented, whatever happens to the disk.
#[test]
fn a_failing_disk_or_a_power_cut_leaves_a_committed_catalog() {
    let (storage, whole, history) = (Storage::new(), Lossy::default(), catalog_history());
    drop(open_catalog(&storage, &whole).unwrap());
    let mut states = vec![CatalogState::default()];
    for change in &history {
        let mut next = states.last().unwrap().clone();
        catalog::apply(&mut next, change).unwrap();
        states.push(next);
    }
    states.push(states.last().unwrap().clone());
    for failure in FAILURES {
        let mut failed_at = 0;
        for after in (0..400).step_by(2) {
            let disk = whole.copy();
            disk.fail_after(after, failure);
            let change = |change| open_catalog(&storage, &disk)?.change(std::slice::from_ref(change));
            let Some(committed) = history.iter().position(|one| change(one).is_err()) else { continue };
            failed_at += 1;
            disk.heal();
            for left in [disk.cut(&mut chances(u64::from(after))), disk] {
                let catalog = open_catalog(&storage, &left).unwrap();
                let possible = &states[committed..=committed + 1];
                assert!(possible.contains(catalog.state()), "{failure:?} after {after}: {:#?}", catalog.state());
            }
        }
        assert!(failed_at > 50, "{failed_at}");
    }
}
