//! Compares Lazaret with what one would use otherwise, on this machine, in one run.
//!
//! `scripts/bench.sh` runs it and keeps the report. Everything runs as an unprivileged user, set up as
//! for the integration tests. The subjects of a row take turns, so that a noisy machine is noisy for
//! all of them; a row gives medians, and what counts is their ratio.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]
#![allow(dead_code, unreachable_pub, reason = "the harness offers more than a benchmark uses")]

#[path = "../../tests/integration/harness/mod.rs"]
mod harness;

mod agent;
mod lazaret_side;
mod measure;
mod peers;
mod report;
mod subject;

use std::process::ExitCode;

use anyhow::Result;

use harness::{Environment, environment, stage};
use lazaret_side::Lazaret;
use peers::{Bubblewrap, Other, Podman, Runsc, Terminals};
use report::{Bound, Report, Row};
use subject::{Subject, take_turns};

/// How many rounds each kind of row has.
struct Rounds {
    starts: usize,
    joins: usize,
    keys: usize,
    outputs: usize,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(agent::ARGUMENT) {
        return agent::serve();
    }
    if let Some(code) = stage::enter() {
        return code;
    }
    environment::enter_case("bench");
    let quick = std::env::args().any(|argument| argument == "--quick");
    let rounds = if quick {
        Rounds { starts: 3, joins: 5, keys: 100, outputs: 1 }
    } else {
        Rounds { starts: 15, joins: 40, keys: 1000, outputs: 5 }
    };
    match run(&rounds) {
        Ok(report) => {
            print!("{report}");
            if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("the benchmark could not run: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(rounds: &Rounds) -> Result<Report> {
    // Lazaret's processes are told by its environment, so its peers have another one.
    let (own, environment) = (Environment::new()?, Environment::new()?);
    let rootfs = peers::root_file_system(&environment)?;
    let mut lazaret = Lazaret::new(&own);
    let mut runsc = Runsc::new(&environment, &rootfs, Terminals::One)?;
    let mut relayed = Runsc::new(&environment, &rootfs, Terminals::Two)?;
    let mut podman = Podman::new(&environment);
    let mut bubblewrap = Bubblewrap::new(&environment, &rootfs);
    let mut others = Other::all(&environment);
    let mut report = Report::new();

    eprintln!("cold starts");
    let mut row = Row::new("cold start of `true`, milliseconds");
    {
        let mut subjects: Vec<&mut dyn Subject> = vec![&mut lazaret, &mut podman, &mut runsc, &mut bubblewrap];
        subjects.extend(others.iter_mut().map(|other| other as &mut dyn Subject));
        take_turns(&mut row, &mut subjects, rounds.starts, |subject| subject.start());
    }
    row.demand("lazaret", Bound::Most(0.75), "podman + runsc + slirp4netns");
    report.add(row);

    eprintln!("joins");
    let mut row = Row::new("`true` in a running sandbox, milliseconds");
    {
        let mut subjects: Vec<&mut dyn Subject> = vec![&mut lazaret, &mut runsc];
        take_turns(&mut row, &mut subjects, rounds.joins, |subject| subject.join());
    }
    row.demand("lazaret", Bound::Most(2.0), "bare runsc");
    report.add(row);

    eprintln!("key echo");
    let mut row = Row::new("key echo on a terminal, milliseconds");
    {
        let mut subjects: Vec<&mut dyn Subject> = vec![&mut lazaret, &mut runsc];
        let keys = rounds.keys / 5;
        take_turns(&mut row, &mut subjects, 5, |subject| subject.echo(keys));
    }
    row.demand("lazaret", Bound::MostAbove(1.0), "bare runsc");
    report.add(row);

    eprintln!("terminal output");
    let mut row = Row::new("terminal output, `cat` of 100 MB, MB a second");
    for project in [own.project(), environment.project()] {
        peers::write_text(&project.join(peers::TEXT), 100_000_000)?;
    }
    {
        let mut subjects: Vec<&mut dyn Subject> = vec![&mut lazaret, &mut runsc, &mut relayed];
        take_turns(&mut row, &mut subjects, rounds.outputs, |subject| subject.output());
    }
    row.demand("lazaret", Bound::Least(0.9), "bare runsc");
    report.add(row);

    lazaret.resources(&mut report);
    eprintln!("teardown and recovery");
    let mut row = Row::new("`lazaret down` to no process left, milliseconds");
    row.take("lazaret", &measure::repeat(rounds.starts, || lazaret.teardown()));
    row.demand_value("lazaret", Bound::Most(150.0));
    report.add(row);
    let mut row = Row::new("SIGKILL of coordinator and supervisor to the next session's first byte, milliseconds");
    row.take("lazaret", &measure::repeat(rounds.starts, || lazaret.recovery()));
    let cold = report.median("cold start of `true`, milliseconds", "lazaret");
    row.demand_value("lazaret", Bound::Most(cold.unwrap_or(f64::NAN) + 100.0));
    report.add(row);
    // Rootless podman leaves a process that keeps its namespaces.
    environment.processes().iter().for_each(harness::leftovers::Process::kill);
    Ok(report)
}
