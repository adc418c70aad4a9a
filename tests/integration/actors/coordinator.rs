//! The Host Coordinator's tree.

use anyhow::{Result, ensure};

use super::{
    EVERY_WAY, FROM_OUTSIDE, Fault, GONE, IN_A_HANDLER, aftermath, coordinator_log, dies_with_two_sessions, start_fails,
};
use crate::harness::aftermath::PATIENCE;
use crate::harness::{Case, CaseResult, Environment, Need, case, wait_until};

pub fn cases() -> Vec<Case> {
    let needs = &[Need::Sandbox, Need::Faults];
    vec![
        case("coordinator", needs, coordinator),
        case("store_writer", needs, store_writer),
        case("runtime_link", needs, runtime_link),
        case("registry", needs, registry),
        case("publisher_is_started_again", needs, publisher_is_started_again),
        case("publisher_is_given_up", needs, publisher_is_given_up),
        case("coordinator_s_tasks", needs, tasks),
        case("coordinator_s_children_while_starting", needs, while_starting),
    ]
}

/// Lets an actor die in every way while two sessions run.
fn dies(actor: &str, cause: &str) -> CaseResult {
    dies_with_two_sessions(&Environment::with_prepared_image()?, actor, &EVERY_WAY, cause)
}

/// The root ends with its process, and the rest is recovered by whoever comes next.
fn coordinator() -> CaseResult {
    dies("Coordinator", "the connection to the sandbox's Host Coordinator was lost")
}

/// What can't be recorded can't go on.
fn store_writer() -> CaseResult {
    dies("StoreWriter", "the store writer actor ended: ")
}

/// The supervisor ends with the lease.
fn runtime_link() -> CaseResult {
    dies("RuntimeLink", "the runtime link actor ended: ")
}

/// The sessions end with their parent.
fn registry() -> CaseResult {
    dies("Registry", "the Host Coordinator lost this session")
}

fn publisher_is_started_again() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for how in FROM_OUTSIDE {
        let fault = Fault::of_actor(&environment, "Publisher", how);
        let mut session = fault.sleeping_session(&environment, "session")?;
        fault.begin()?;
        wait_until("the publisher is lost", PATIENCE, || lost_publishers(&environment).is_ok_and(|lost| lost > 0))?;
        let joined = environment.in_sandbox("echo joined").run()?.ok()?;
        ensure!(joined.stdout() == "joined\n", "{how}: {joined:?}");
        ensure!(session.is_running()?, "{how}: the session went on");
        session.kill();
        fault.end();
        crate::harness::aftermath::expect_gone(&environment, GONE, how)?;
        aftermath(&environment, how)?;
        std::fs::remove_file(environment.domain_root()?.coordinator_log())?;
    }
    // The task that accepts panics; the actor that it tells dies in its handler.
    for how in IN_A_HANDLER {
        let fault = format!("task=accept;actor=Publisher;how={how}");
        let started = environment.in_sandbox("echo started").env("LAZARET_FAULT", fault).run()?.ok()?;
        ensure!(started.stdout() == "started\n", "{how}: {started:?}");
        let lost = lost_publishers(&environment)?;
        ensure!(lost == 1, "{how}: {lost} publishers were lost");
        aftermath(&environment, how)?;
        std::fs::remove_file(environment.domain_root()?.coordinator_log())?;
    }
    Ok(())
}

fn lost_publishers(environment: &Environment) -> Result<usize> {
    Ok(coordinator_log(environment)?.matches("Stateless(\\\"publisher\\\"").count())
}

fn publisher_is_given_up() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let failing = environment.in_sandbox("true").env("LAZARET_FAULT", "task=accept;times=4");
    let ended = failing.run()?;
    // A client that had not joined yet learns it from the next generation, which fails the same way.
    ensure!(ended.code() == 125, "{ended:?}");
    let log = coordinator_log(&environment)?;
    ensure!(log.contains("the publisher actor, started again 3 times, ended: "), "{log}");
    aftermath(&environment, "publisher")
}

/// A step that is lost fails the start.
fn tasks() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for task in ["recovery", "preparation", "beginning", "lease", "publication"] {
        let cause = format!("the {task} task ended: a fault was injected");
        start_fails(&environment, &format!("task={task}"), &cause)?;
    }
    Ok(())
}

fn while_starting() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for (actor, name) in [("StoreWriter", "store writer"), ("RuntimeLink", "runtime link")] {
        for how in EVERY_WAY {
            let cause = format!("the {name} actor ended: ");
            start_fails(&environment, &format!("actor={actor};how={how}"), &cause)?;
        }
    }
    Ok(())
}
