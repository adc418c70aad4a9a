//! What carries one session: an actor in each tree. Its death ends that session and no other.

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;

use super::{EVERY_WAY, Fault, GONE, aftermath, says, sleeping, sleeps};
use crate::harness::aftermath::{PATIENCE, expect_gone};
use crate::harness::sessions::status;
use crate::harness::{Case, CaseResult, Environment, Need, Running, case, eventually, wait_until};

pub fn cases() -> Vec<Case> {
    let needs = &[Need::Sandbox, Need::Faults];
    vec![
        case("session", needs, session),
        case("exec", needs, exec),
        case("session_of_a_process_not_yet_known", needs, not_yet_known),
    ]
}

/// The Host Coordinator's actor of a session.
fn session() -> CaseResult {
    one_of_two_dies("Session", "the Host Coordinator lost this session")
}

/// The Runtime Supervisor's actor of a session.
fn exec() -> CaseResult {
    one_of_two_dies("Exec", "the session's actor ended: ")
}

fn one_of_two_dies(actor: &str, cause: &str) -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for how in EVERY_WAY {
        let context = format!("{actor}, {how}");
        let fault = Fault::of_actor(&environment, actor, how);
        let sessions = ["first", "second"].map(|name| fault.sleeping_session(&environment, name));
        let [first, second] = sessions;
        let (mut first, mut second) = (first?, second?);
        ensure!(sleeps(&environment, "first")? && sleeps(&environment, "second")?, "{context}: two sessions run");
        // The actors of the looks are gone as well, and can't be hit in the place of one of the two.
        wait_until("two sessions are left", PATIENCE, || count(&environment).is_ok_and(|count| count == 2))?;
        fault.begin()?;
        if how == "panic" || how == "error" {
            // Both actors pass a terminal event on.
            first.signal(Signal::SIGINT)?;
        }
        let ended = eventually("one client ends", PATIENCE, || match (first.is_running(), second.is_running()) {
            (Ok(false), Ok(true)) => Some("first"),
            (Ok(true), Ok(false)) => Some("second"),
            _ => None,
        })
        .with_context(|| context.clone())?;
        let (lost, mut other, survivor) =
            if ended == "first" { (first, second, "second") } else { (second, first, "first") };
        says(&lost.wait(PATIENCE)?, cause).with_context(|| context.clone())?;
        fault.end();
        is_gone(&environment, ended).with_context(|| context.clone())?;
        ensure!(sleeps(&environment, survivor)? && other.is_running()?, "{context}: the other session ended too");
        end_in_order(&environment, other).with_context(|| context.clone())?;
        aftermath(&environment, &context)?;
    }
    Ok(())
}

/// An actor that dies before the session's process is known leaves no process either.
fn not_yet_known() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"10m\"\n")?;
    for actor in ["Session", "Exec"] {
        for how in EVERY_WAY {
            let context = format!("{actor} at its start, {how}");
            let fault = Fault::of_actor(&environment, actor, how);
            fault.run(&environment, "true").run()?.ok()?;
            wait_until("no session is left", PATIENCE, || count(&environment).is_ok_and(|count| count == 0))?;
            fault.begin()?;
            let ended = environment.in_sandbox(&sleeping("early")).run()?;
            ensure!(ended.code() == 125, "{context}: {ended:?}");
            fault.end();
            is_gone(&environment, "early").with_context(|| context.clone())?;
            environment.lazaret(["down", "--yes"]).deadline(PATIENCE).run()?.ok()?;
            aftermath(&environment, &context)?;
        }
    }
    Ok(())
}

/// Counts the sessions that the coordinator knows.
fn count(environment: &Environment) -> Result<usize> {
    Ok(status(environment, &[])?["sessions"].as_array().context("the status has no sessions")?.len())
}

/// Waits until a session's command is gone.
fn is_gone(environment: &Environment, name: &str) -> Result<()> {
    wait_until("the lost session's command is gone", GONE, || sleeps(environment, name).is_ok_and(|sleeps| !sleeps))
}

/// Ends the last session, and with it the generation, as its user does.
fn end_in_order(environment: &Environment, session: Running) -> Result<()> {
    session.signal(Signal::SIGINT)?;
    let ended = session.wait(PATIENCE)?;
    if ended.code() != 130 {
        bail!("the other session was not interrupted: {ended:?}");
    }
    expect_gone(environment, GONE, "the other session ended")
}
