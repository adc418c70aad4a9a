//! A store that is killed, or loses what was not synced, holds the last committed document or the one being committed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redb::StorageBackend;

use super::Home;
use crate::core::generation::fixtures::*;
use crate::core::generation::{Change, GenerationDocument};
use crate::store::{DomainStore, file};

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

/// Storage that forgets, as a power cut does, what was written after the last sync.
#[derive(Debug, Clone, Default)]
struct Lossy(Arc<Mutex<Disk>>);

#[derive(Debug, Clone, Default)]
struct Disk {
    /// What the program sees.
    seen: Vec<u8>,
    /// What has been synced.
    durable: Vec<u8>,
    /// What was done since.
    pending: Vec<Pending>,
    /// How many operations still succeed; then all fail, as on a machine that is going down.
    left: Option<u32>,
}

#[derive(Debug, Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                bytes.resize(bytes.len().max(offset + data.len()), 0);
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

impl Disk {
    fn step(&mut self) -> std::io::Result<()> {
        match &mut self.left {
            Some(0) => Err(std::io::Error::other("the machine is going down")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn perform(&mut self, operation: Pending) -> std::io::Result<()> {
        self.step()?;
        operation.apply(&mut self.seen);
        self.pending.push(operation);
        Ok(())
    }

    /// What a power cut leaves: each unsynced sector was written or was not, in any combination.
    fn after_power_cut(&self, chance: &mut impl FnMut() -> bool) -> Self {
        let mut bytes = self.durable.clone();
        for operation in &self.pending {
            match operation {
                Pending::Length(_) if chance() => operation.apply(&mut bytes),
                Pending::Length(_) => {}
                Pending::Write(offset, data) => {
                    for (index, sector) in data.chunks(512).enumerate() {
                        if chance() {
                            Pending::Write(offset + index * 512, sector.to_vec()).apply(&mut bytes);
                        }
                    }
                }
            }
        }
        Self { seen: bytes.clone(), durable: bytes, pending: Vec::new(), left: None }
    }
}

impl StorageBackend for Lossy {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.lock().unwrap().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let disk = self.0.lock().unwrap();
        let range = offset as usize..offset as usize + out.len();
        let bytes = disk.seen.get(range).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.0.lock().unwrap().perform(Pending::Length(length as usize))
    }

    fn sync_data(&self) -> std::io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.step()?;
        disk.durable = disk.seen.clone();
        disk.pending.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.lock().unwrap().perform(Pending::Write(offset as usize, data.to_vec()))
    }
}

fn open(disk: &Lossy) -> Result<DomainStore, crate::store::StoreError> {
    let path = Path::new("lossy");
    DomainStore::from_database(path, file::open_backend(path, disk.clone())?, &domain())
}

/// A small generator (xorshift), so that a failing seed can be run again.
fn chances(seed: u64) -> impl FnMut() -> bool {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & 1 == 0
    }
}

#[test]
fn a_power_cut_leaves_a_committed_document() {
    let whole = Lossy::default();
    drop(open(&whole).unwrap());
    let documents = documents(12);
    let mut interrupted = 0;
    for cut_after in 0..400_u32 {
        let disk = Lossy(Arc::new(Mutex::new(whole.0.lock().unwrap().clone())));
        let mut committed = 0;
        {
            disk.0.lock().unwrap().left = Some(cut_after);
            if let Ok(mut store) = open(&disk) {
                for transaction in history().take(11) {
                    if store.apply(&transaction).is_err() {
                        break;
                    }
                    committed += 1;
                }
            }
        }
        for seed in 0..4 {
            let left = disk.0.lock().unwrap().after_power_cut(&mut chances(u64::from(cut_after) * 4 + seed));
            let store = open(&Lossy(Arc::new(Mutex::new(left))))
                .unwrap_or_else(|error| panic!("cut after {cut_after} operations, seed {seed}: {error}"));
            let found = store.document().cloned();
            let possible = &documents[committed..=committed + 1];
            assert!(possible.contains(&found), "cut after {cut_after}, seed {seed}: {committed} committed, {found:#?}");
        }
        interrupted += usize::from(committed < 11);
    }
    assert!(interrupted > 50, "{interrupted}");
}

#[test]
fn a_full_disk_refuses_the_change_and_keeps_the_document() {
    let disk = Lossy::default();
    let mut store = open(&disk).unwrap();
    store.apply(&beginning(1)).unwrap();
    disk.0.lock().unwrap().left = Some(0);
    let error = store.apply(&[Change::BeginRecovery(process(11))]).unwrap_err();
    assert_eq!(error.to_string(), "can't write lossy");
    assert_eq!(store.document(), documents(1)[1].as_ref());
    drop(store);
    disk.0.lock().unwrap().left = None;
    assert_eq!(open(&disk).unwrap().document(), documents(1)[1].as_ref());
}
