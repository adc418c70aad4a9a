//! A crash at every step: a process ends right before and right after each durable write and each effect.
//!
//! One run of a command records the points that its processes pass (`src/fault/injected.rs`). Then the same run ends
//! at each of them in turn, and after each the next command must find its way: nothing of the generation is left, both
//! stores say so, and what lasts is as it was. Points are called by what is done there and how often it was done
//! before, since their numbers differ between runs. All points are walked, and every one that fails is named.

mod disk;
mod generations;
mod preparations;
mod recoveries;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::harness::{Case, Environment, Invocation, Output, environment, wait_until};

pub fn cases() -> Vec<Case> {
    [generations::cases(), recoveries::cases(), preparations::cases(), disk::cases()].into_iter().flatten().collect()
}

/// How long after a crash anything may be left on a machine that runs other cases as well.
const GONE: Duration = Duration::from_secs(10);

/// How many environments go through the points at the same time.
const WORKERS: usize = 3;

/// How often a point is tried that a run does not pass: a group commit may take in another request.
const ATTEMPTS: u32 = 4;

/// A moment in the life of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Point {
    process: String,
    /// Whether before or after what, and for which time.
    at: String,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.process, self.at)
    }
}

/// Runs a command and gives the points that its processes passed.
fn record(environment: &Environment, command: &Invocation) -> Result<(Output, Vec<Point>)> {
    let record = environment.directory().join("points");
    let ended = command.clone().env("LAZARET_FAULT", format!("record={}", record.display())).run()?;
    wait_until("no process is left", GONE, || environment.processes().is_empty())?;
    let text = fs::read_to_string(&record)?;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut points = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(3, ' ');
        let mut next = || words.next().with_context(|| format!("a word is missing: {line}"));
        let (process, number, at) = (next()?, next()?, next()?);
        let count = counts.entry(process).or_default();
        *count += 1;
        ensure!(number == count.to_string(), "the points of {process} have gaps: {line}");
        points.push(Point { process: process.to_owned(), at: at.to_owned() });
    }
    Ok((ended, points))
}

/// Runs a command, of which the first process that passes this point ends there.
fn crash_at(environment: &Environment, command: &Invocation, point: &Point) -> Result<Output> {
    let once = environment.directory().join("crashed");
    let fault = format!("process={};at={};once={}", point.process, point.at, once.display());
    for _ in 0..ATTEMPTS {
        let ended = command.clone().env("LAZARET_FAULT", &fault).run()?;
        wait_until("no process is left", GONE, || environment.processes().is_empty())?;
        if once.exists() {
            fs::remove_file(once)?;
            return Ok(ended);
        }
    }
    anyhow::bail!("{ATTEMPTS} runs did not pass it")
}

/// Checks each point, several at once, each worker with what `make` gives it, and fails with every point that failed.
fn walk<T>(
    what: &str,
    points: &[Point],
    make: impl Fn() -> Result<T> + Sync,
    check: impl Fn(&T, usize, &Point) -> Result<()> + Sync,
) -> Result<()> {
    let (next, failures, case) = (AtomicUsize::new(0), Mutex::new(Vec::new()), environment::current_case());
    let began = Instant::now();
    let work = || -> Result<()> {
        environment::enter_case(&case);
        let made = make()?;
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(point) = points.get(number)
        {
            if let Err(error) = check(&made, number, point) {
                failures.lock().expect("no worker panicked").push(format!("{point}: {error:#}"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))
    })?;
    let failures = failures.into_inner().expect("no worker panicked");
    let of = |process| points.iter().filter(|point| point.process == process).count();
    let each = ["client", "coordinator", "supervisor"].map(|process| format!("{} of the {process}", of(process)));
    eprintln!("{what}: {} injection points ({}), {:?}", points.len(), each.join(", "), began.elapsed());
    ensure!(failures.is_empty(), "{} of {} points failed:\n{}", failures.len(), points.len(), failures.join("\n"));
    Ok(())
}
