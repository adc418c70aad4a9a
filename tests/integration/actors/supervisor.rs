//! The Runtime Supervisor's tree.

use anyhow::{Context, ensure};

use super::{EVERY_WAY, FROM_OUTSIDE, Fault, IN_A_HANDLER, aftermath, says, start_fails};
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

/// Lets an actor die in these ways while two sessions run, and checks that both clients say why.
fn dies_with_two_sessions(environment: &Environment, actor: &str, ways: &[&str], cause: &str) -> CaseResult {
    for how in ways {
        let context = format!("{actor} with two sessions, {how}");
        let fault = Fault::of_actor(environment, actor, how);
        let sessions = ["first", "second"].map(|name| fault.sleeping_session(environment, name));
        fault.begin()?;
        // A session more makes the supervisor and its lease handle a message.
        let third = environment.in_sandbox("true").spawn()?;
        for session in sessions {
            says(&session?.wait(PATIENCE)?, cause).with_context(|| context.clone())?;
        }
        let third = third.wait(PATIENCE)?;
        ensure!(matches!(third.code(), 0 | 125), "{context}: {third:?}");
        fault.end();
        aftermath(environment, &context)?;
    }
    Ok(())
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

/// The root ends with its process and everything in its namespaces.
fn supervisor() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let cause = "the Runtime Supervisor ended: exit status: 1";
    dies_with_two_sessions(&environment, "Supervisor", &EVERY_WAY, cause)?;
    for how in EVERY_WAY {
        start_fails(&environment, &format!("actor=Supervisor;how={how}"), cause)?;
    }
    Ok(())
}

/// Without a lease the process ends at once.
fn lease() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let cause = "the Runtime Supervisor ended: exit status: 1";
    dies_with_two_sessions(&environment, "LeaseLink", &EVERY_WAY, cause)?;
    for how in EVERY_WAY {
        start_fails(&environment, &format!("actor=LeaseLink;how={how}"), cause)?;
    }
    Ok(())
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
