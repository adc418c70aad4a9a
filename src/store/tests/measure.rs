//! Measurements, printed; run with `cargo test --release --lib store::tests::measure -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use super::Home;
use super::catalog::Storage;
use crate::core::generation::Change;
use crate::core::generation::fixtures::*;
use crate::domain::ids::Generation;
use crate::store::Catalog;

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

/// Gives this process's anonymous memory in KiB (proc(5)).
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn time<T>(samples: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    samples.push(began.elapsed());
    result
}

#[test]
#[ignore = "prints measurements"]
fn latencies_and_memory() {
    let before = memory();
    let home = Home::new();
    let mut store = home.open();
    for transaction in life(1) {
        store.apply(&transaction).unwrap();
    }
    println!("anonymous memory: {before} KiB before, {} KiB with a Domain Store open", memory());
    drop(store);
    println!("file: {} KiB", home.store().metadata().unwrap().len() / 1024);
    let [mut create, mut open, mut begin, mut own, mut register, mut close] = std::array::from_fn(|_| Vec::new());
    for _ in 0..30 {
        let home = Home::new();
        let store = time(&mut create, || home.open());
        time(&mut close, || drop(store));
        let mut store = time(&mut open, || home.open());
        time(&mut begin, || store.apply(&beginning(1)).map(drop)).unwrap();
        for transaction in &life(1)[1..] {
            time(&mut own, || store.apply(transaction).map(drop)).unwrap();
        }
        time(&mut register, || store.apply(&[Change::RegisterSession(session('1'))]).map(drop)).unwrap();
    }
    println!("Domain Store: create {:?}, close {:?}, open {:?}", median(create), median(close), median(open));
    println!("  begin with 12 intents {:?}, own {:?}, register {:?}", median(begin), median(own), median(register));
    let storage = Storage::new();
    let artifacts: Vec<_> = (0..20).map(|number| storage.prepare("debian", number)).collect();
    let [mut read, mut acquire, mut release] = std::array::from_fn(|_| Vec::new());
    for generation in 1..=30 {
        let open = || Catalog::open(&storage.root).unwrap();
        time(&mut read, || drop(open()));
        time(&mut acquire, || open().acquire_lease(&domain(), Generation(generation), &artifacts[3])).unwrap();
        time(&mut release, || open().release_lease(&domain(), Generation(generation))).unwrap();
    }
    println!("Storage Catalog with 20 artifacts, each with open and close: read {:?}", median(read));
    println!("  acquire lease {:?}, release lease {:?}", median(acquire), median(release));
}
