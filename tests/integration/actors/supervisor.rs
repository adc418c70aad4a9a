//! The Runtime Supervisor's tree.

use anyhow::Context;

use super::{EVERY_WAY, FROM_OUTSIDE, Fault, IN_A_HANDLER, aftermath, dies_with_two_sessions, says, start_fails};
use crate::harness::aftermath::PATIENCE;
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub fn cases() -> Vec<Case> {
    let needs = &[Need::Sandbox, Need::Faults];
    vec![
        case("supervisor", needs, supervisor),
        case("lease", needs, lease),
        case("helper", needs, helper),
        case("network", needs, network),
        case("mounts", needs, mounts),
        case("runsc", needs, runsc),
    ]
}

/// Lets the owner of a resource die in every way: building, serving, taking down.
fn owner(actor: &str, name: &str, messages_of_a_build: u64) -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let cause = format!("the {name} actor ended: ");
    for how in IN_A_HANDLER {
        for message in 1..=messages_of_a_build {
            start_fails(&environment, &format!("actor={actor};how={how};message={message}"), &cause)?;
        }
    }
    for how in FROM_OUTSIDE {
        start_fails(&environment, &format!("actor={actor};how={how}"), &cause)?;
    }
    // Idle while it serves, it can only be ended by another.
    dies_with_two_sessions(&environment, actor, &FROM_OUTSIDE, &cause)?;
    for how in IN_A_HANDLER {
        let context = format!("{actor} in a teardown, {how}");
        let fault = Fault::of_actor(&environment, actor, how);
        let session = fault.sleeping_session(&environment, "session")?;
        fault.begin()?;
        environment.lazaret(["down", "--yes"]).deadline(PATIENCE).run()?.ok()?;
        says(&session.wait(PATIENCE)?, "the sandbox was taken down").with_context(|| context.clone())?;
        fault.end();
        aftermath(&environment, &context)?;
    }
    Ok(())
}

/// Lets an actor die whose end is that of the process.
fn ends_the_process(actor: &str) -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let cause = "the Runtime Supervisor ended: exit status: 1";
    dies_with_two_sessions(&environment, actor, &EVERY_WAY, cause)?;
    for how in EVERY_WAY {
        start_fails(&environment, &format!("actor={actor};how={how}"), cause)?;
    }
    Ok(())
}

/// The root ends with its process and everything in its namespaces.
fn supervisor() -> CaseResult {
    ends_the_process("Supervisor")
}

/// Without a lease the process ends at once.
fn lease() -> CaseResult {
    ends_the_process("LeaseLink")
}

fn helper() -> CaseResult {
    owner("Helper", "helper", 2)
}

fn network() -> CaseResult {
    owner("Network", "network", 2)
}

fn mounts() -> CaseResult {
    owner("Mounts", "mounts", 1)
}

fn runsc() -> CaseResult {
    owner("Runsc", "runsc", 3)
}
