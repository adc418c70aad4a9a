//! Runs of every kind: ordinary ones, starts that fail or are cancelled, deaths, recoveries, refusals.

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::Signal;

use crate::harness::aftermath::{PATIENCE, PREPARE, sleeping_session};
use crate::harness::replay::{Trace, replay};
use crate::harness::sessions::{START, hold};
use crate::harness::{CaseResult, Data, Environment, Terminal, eventually, leftovers, wait_until};

/// How many runs there must be at least.
const ENOUGH: usize = 20;

/// A run and what it is called. It may leave a Domain behind, which is taken down.
type Run = (&'static str, fn(&Environment) -> CaseResult);

/// Runs in a Storage Root where the image is prepared.
const PREPARED: &[Run] = &[
    ("a session", |environment| session(environment)),
    ("a join and a down", a_join_and_a_down),
    ("two sessions at once", two_sessions_at_once),
    ("two Domains at once", two_domains_at_once),
    ("a linger", a_linger),
    ("a terminal", a_terminal),
    ("a down with a session", a_down_with_a_session),
    ("a client that is killed", a_client_that_is_killed),
    ("a start that is cancelled", a_start_that_is_cancelled),
    ("a start beside a stranger", a_start_beside_a_stranger),
    ("a recovery that is refused", a_recovery_that_is_refused),
    ("a recovery only", a_recovery_only),
    ("a lost coordinator", |environment| loss(environment, "lazaret: coordinator")),
    ("a lost supervisor", |environment| loss(environment, "lazaret: supervisor")),
    ("a lost runsc", |environment| loss(environment, "runsc-sandbox")),
    ("a lost helper", |environment| loss(environment, "slirp4netns")),
];

/// Points at which a process ends in the middle of a run, and of which the next one recovers.
const CRASHES: &[&str] = &[
    "process=coordinator;at=after Begin 1",
    "process=coordinator;at=after AcquireLease 1",
    "process=coordinator;at=after Publish 1",
    "process=coordinator;at=after AdoptSession 1",
    "process=coordinator;at=before RecordTearDown 1",
    "process=coordinator;at=after TearDown 1",
    "process=coordinator;at=after ReleaseLease 1",
    "process=supervisor;at=after StartSandbox 1",
    "process=supervisor;at=after EndSandbox 1",
    "process=supervisor;at=before ReportTornDown 1",
];

/// Faults that make a start or a session fail in order.
const FAILURES: &[&str] =
    &["task=preparation", "task=lease", "task=publication", "actor=Mounts;how=error", "actor=Registry;how=panic"];

/// Points at which the recovery of a lost generation is interrupted.
const INTERRUPTED_RECOVERIES: &[&str] =
    &["process=coordinator;at=after BeginRecovery 1", "process=coordinator;at=after ReleaseLease 1"];

/// Points of a preparation.
const INTERRUPTED_PREPARATIONS: &[&str] =
    &["process=coordinator;at=after OwnPreparation 1", "process=coordinator;at=after RenameToArtifact 1"];

/// Runs all of them and has the model judge.
pub(super) fn are_what_the_model_permits() -> CaseResult {
    let environment = prepared()?;
    let mut traces = Vec::new();
    for (name, run) in PREPARED {
        traces.push(traced(&environment, name, run)?);
    }
    for fault in CRASHES.iter().chain(FAILURES) {
        traces.push(traced(&environment, fault, |environment| faulty(environment, fault))?);
    }
    for fault in INTERRUPTED_RECOVERIES {
        let name = format!("recovery {fault}");
        traces.push(traced(&environment, &name, |environment| {
            lose(environment)?;
            faulty(environment, fault)
        })?);
    }
    for fault in INTERRUPTED_PREPARATIONS {
        let environment = Environment::with(Data::Private)?;
        settle(&environment)?;
        let name = format!("preparation {fault}");
        traces.push(traced(&environment, &name, |environment| faulty(environment, fault))?);
    }
    ensure!(traces.len() >= ENOUGH, "only {} runs", traces.len());
    let directory = environment.directory().join("traces");
    let began = std::time::Instant::now();
    let verdicts = replay(&directory, &traces)?;
    let events: usize = traces.iter().map(|trace| trace.events.len()).sum();
    eprintln!("{} traces with {events} events replayed in {:?}", traces.len(), began.elapsed());
    let rejected: Vec<_> = verdicts.into_iter().filter_map(|verdict| verdict.rejected).collect();
    ensure!(rejected.is_empty(), "{} of {} are rejected:\n{}", rejected.len(), traces.len(), rejected.join("\n"));
    Ok(())
}

/// Makes an environment in which all generations have the same participants, so that they are replayed together.
pub(super) fn prepared() -> Result<Environment> {
    let environment = Environment::with_prepared_image()?;
    settle(&environment)?;
    Ok(environment)
}

/// What all profiles have, so that all generations have the same participants.
const PROFILE: &str = "persistent = [\"/srv/kept\"]\n";

fn settle(environment: &Environment) -> Result<()> {
    environment.profile("test", PROFILE)
}

/// Traces a run from a clean Domain to one.
pub(super) fn traced(
    environment: &Environment,
    name: &str,
    run: impl FnOnce(&Environment) -> CaseResult,
) -> Result<Trace> {
    let in_run = || name.to_owned();
    environment.trace();
    run(environment).with_context(in_run)?;
    down(environment).with_context(in_run)?;
    environment.traced(name).with_context(in_run)
}

/// Runs a command in the sandbox.
pub(super) fn session(environment: &Environment) -> CaseResult {
    environment.in_sandbox("true").deadline(PREPARE).run()?.ok()?;
    Ok(())
}

/// Takes the Domain down, or recovers what is left of it.
fn down(environment: &Environment) -> CaseResult {
    environment.lazaret(["down", "--yes"]).deadline(PATIENCE).run()?.ok()?;
    Ok(())
}

/// Runs a command to which this happens, and one after it.
fn faulty(environment: &Environment, fault: &str) -> CaseResult {
    crash(environment, fault)?;
    session(environment)
}

/// Runs a command to which this happens, once.
pub(super) fn crash(environment: &Environment, fault: &str) -> CaseResult {
    let happened = environment.directory().join("happened");
    let once = if fault.starts_with("process=") { format!(";once={}", happened.display()) } else { String::new() };
    environment.in_sandbox("true").env("LAZARET_FAULT", format!("{fault}{once}")).deadline(PREPARE).run()?;
    wait_until("no process is left", PATIENCE, || environment.processes().is_empty())?;
    if !once.is_empty() {
        fs::remove_file(happened).with_context(|| format!("no process passed {fault}"))?;
    }
    Ok(())
}

fn a_join_and_a_down(environment: &Environment) -> CaseResult {
    environment.profile("test", &format!("linger = \"10m\"\n{PROFILE}"))?;
    session(environment)?;
    session(environment)?;
    down(environment)?;
    settle(environment)
}

fn two_sessions_at_once(environment: &Environment) -> CaseResult {
    let (first, second) = (hold(environment, &[])?, hold(environment, &[])?);
    first.wait(START)?.ok()?;
    second.wait(START)?.ok()?;
    Ok(())
}

fn two_domains_at_once(environment: &Environment) -> CaseResult {
    let project = environment.another_project("another")?;
    let first = hold(environment, &[])?;
    environment.in_sandbox("true").directory(&project).deadline(PREPARE).run()?.ok()?;
    first.wait(START)?.ok()?;
    Ok(())
}

fn a_linger(environment: &Environment) -> CaseResult {
    environment.profile("test", &format!("linger = \"1s\"\n{PROFILE}"))?;
    session(environment)?;
    environment.expect_nothing_left(PATIENCE)?;
    settle(environment)
}

fn a_terminal(environment: &Environment) -> CaseResult {
    let invocation = environment.lazaret(["up", "-q", "--", "sh", "-c", "echo wai''ting; cat"]);
    let mut terminal = Terminal::start(&invocation, 24, 80)?;
    terminal.wait_for("waiting")?;
    terminal.send(crate::harness::terminal::INTERRUPT)?;
    terminal.wait_exit(START)?;
    Ok(())
}

fn a_down_with_a_session(environment: &Environment) -> CaseResult {
    let held = hold(environment, &[])?;
    down(environment)?;
    held.wait(START)?.expect_code(125)?;
    Ok(())
}

fn a_client_that_is_killed(environment: &Environment) -> CaseResult {
    let (mut killed, other) = (sleeping_session(environment, "killed")?, hold(environment, &[])?);
    killed.kill();
    other.wait(START)?.ok()?;
    Ok(())
}

/// Gives a process of the Domain by the beginning of its command line.
fn process(environment: &Environment, begins: &str) -> Result<leftovers::Process> {
    let named = || environment.processes().into_iter().find(|process| process.command.starts_with(begins));
    eventually(&format!("{begins} runs"), PATIENCE, named)
}

/// Leaves a published generation with a session to the next command: coordinator and client are killed at once.
pub(super) fn lose(environment: &Environment) -> CaseResult {
    let mut client = sleeping_session(environment, "lost")?;
    let coordinator = process(environment, "lazaret: coordinator")?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(coordinator.pid), Signal::SIGSTOP)?;
    client.kill();
    coordinator.kill();
    wait_until("no process is left", PATIENCE, || environment.processes().is_empty())
}

fn a_start_that_is_cancelled(environment: &Environment) -> CaseResult {
    let starter = environment.in_sandbox("true").spawn()?;
    process(environment, "lazaret: supervisor")?;
    starter.signal(Signal::SIGINT)?;
    starter.wait(START)?;
    environment.expect_nothing_left(PATIENCE)
}

/// Runs two commands that fail because of something that is left alone.
fn refused_twice(environment: &Environment) -> CaseResult {
    for _ in 0..2 {
        environment.in_sandbox("true").deadline(PATIENCE).run()?.expect_code(125)?;
    }
    Ok(())
}

/// What lies at the next generation's scratch directory keeps that one from beginning.
fn a_start_beside_a_stranger(environment: &Environment) -> CaseResult {
    session(environment)?;
    environment.expect_nothing_left(PATIENCE)?;
    let store = lazaret::store::DomainStore::open(&environment.domain_root()?.store(), &environment.domain()?)?;
    let next = lazaret::core::generation::next_generation(store.document());
    drop(store);
    let scratch = environment.domain_root()?.scratch(next);
    fs::create_dir(&scratch)?;
    fs::write(scratch.join("mine"), "")?;
    refused_twice(environment)?;
    fs::remove_dir_all(scratch)?;
    session(environment)
}

/// What lies at the socket's place of a lost generation is left alone until it is moved away.
fn a_recovery_that_is_refused(environment: &Environment) -> CaseResult {
    lose(environment)?;
    let socket = environment.runtime_root()?.socket();
    fs::remove_file(&socket)?;
    fs::write(&socket, "a stranger's")?;
    refused_twice(environment)?;
    fs::remove_file(socket)?;
    session(environment)
}

fn a_recovery_only(environment: &Environment) -> CaseResult {
    lose(environment)?;
    down(environment)
}

/// A process is killed while a session runs.
fn loss(environment: &Environment, begins: &str) -> CaseResult {
    let session = sleeping_session(environment, "session")?;
    process(environment, begins)?.kill();
    session.wait(PATIENCE)?.expect_code(125)?;
    wait_until("no process is left", PATIENCE, || environment.processes().is_empty())?;
    self::session(environment)
}
