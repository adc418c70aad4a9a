//! The points at which a process can be made to end: they are numbered, and each can be chosen.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::{GONE, aftermath};
use crate::harness::aftermath::{PREPARE, expect_gone};
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub fn cases() -> Vec<Case> {
    vec![case("points_can_be_counted_and_chosen", &[Need::Sandbox, Need::Faults], points)]
}

/// One line of a record.
struct Point {
    process: String,
    number: u64,
    moment: String,
    name: String,
}

/// Runs a command with this fault and gives its status and the points that were passed.
fn run(environment: &Environment, fault: &str) -> Result<(i32, Vec<Point>)> {
    let path = environment.directory().join("points");
    let fault = format!("{fault}record={}", path.display());
    let ended = environment.in_sandbox("true").env("LAZARET_FAULT", &fault).deadline(PREPARE).run()?;
    expect_gone(environment, GONE, &fault)?;
    let record = fs::read_to_string(&path)?;
    fs::remove_file(path)?;
    let point = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().map(str::to_owned).context("a word is missing");
        Ok(Point { process: next()?, number: next()?.parse()?, moment: next()?, name: next()? })
    };
    Ok((ended.code(), record.lines().map(point).collect::<Result<_>>()?))
}

fn points() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let (code, points) = run(&environment, "")?;
    ensure!(code == 0, "counting changes nothing");
    let has = |process: &str, name: &str| {
        ["before", "after"].iter().all(|moment| {
            points.iter().any(|point| point.process == process && point.moment == *moment && point.name == name)
        })
    };
    // A write of each store, an effect of each root, and who carries an effect out.
    for (process, name) in [
        ("coordinator", "Begin"),
        ("coordinator", "AcquireLease"),
        ("coordinator", "ReleaseLease"),
        ("coordinator", "Publish"),
        ("coordinator", "DeleteLease"),
        ("supervisor", "StartSandbox"),
        ("supervisor", "Runsc"),
    ] {
        ensure!(has(process, name), "{process} passes {name}");
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for point in &points {
        let count = counts.entry(&point.process).or_default();
        *count += 1;
        ensure!(point.number == *count, "{} counts without a gap: {}", point.process, point.number);
    }
    eprintln!("points of a run: {counts:?}");
    for process in ["coordinator", "supervisor"] {
        let count = counts[process];
        for point in [1, count / 4, count / 2, 3 * count / 4] {
            let context = format!("{process} ends at point {point} of {count}");
            let (_, passed) = run(&environment, &format!("process={process};point={point};"))?;
            let last = passed.iter().rfind(|passed| passed.process == process).context("it passed points")?;
            ensure!(last.number == point, "{context}: it ended at {}", last.number);
            aftermath(&environment, &context)?;
        }
    }
    Ok(())
}
