//! The death of each actor of both supervision trees, in each way that an actor can die.
//!
//! The trees and what each death means are drawn in `actors/host/mod.rs` and `actors/runtime/mod.rs`. An actor
//! dies in the real process, under its real parent, because of `LAZARET_FAULT` (`src/fault/injected.rs`): by a
//! panic in a handler, by an error from one, or by being stopped or killed. Afterwards nothing of the
//! generation is left, nothing foreign was touched, and the next command works.

mod coordinator;
mod sessions;
mod supervisor;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::harness::aftermath::{Foreign, PATIENCE, expect_gone, expect_recovery};
use crate::harness::{Case, CaseResult, Environment, Output, Running, wait_until};

pub fn cases() -> Vec<Case> {
    [coordinator::cases(), supervisor::cases(), sessions::cases()].into_iter().flatten().collect()
}

/// How an actor dies while it handles a message.
const IN_A_HANDLER: [&str; 2] = ["panic", "error"];
/// How an actor dies because another says so.
const FROM_OUTSIDE: [&str; 2] = ["stop", "kill"];
/// Every way to die.
const EVERY_WAY: [&str; 4] = ["panic", "error", "stop", "kill"];

/// How long after a death anything may be left on a machine that runs other cases as well.
const GONE: Duration = Duration::from_secs(10);

/// The fault that is injected, and how the generation gets to it.
struct Fault {
    variable: String,
    /// It happens only once this exists.
    after: PathBuf,
}

impl Fault {
    /// An actor dies when it is told to by [`Fault::begin`].
    fn of_actor(environment: &Environment, actor: &str, how: &str) -> Self {
        let after = environment.directory().join("fault");
        Self { variable: format!("actor={actor};how={how};after={}", after.display()), after }
    }

    /// Makes an invocation of `lazaret run` whose coordinator, if it starts one, is to fail.
    fn run(&self, environment: &Environment, script: &str) -> crate::harness::Invocation {
        environment.in_sandbox(script).env("LAZARET_FAULT", &self.variable)
    }

    /// Starts a session that tells when it runs and then sleeps; see [`sleeps`].
    fn sleeping_session(&self, environment: &Environment, name: &str) -> Result<Running> {
        let marker = environment.project().join(name);
        let running = self.run(environment, &sleeping(name)).spawn()?;
        wait_until("the session runs", PATIENCE, || marker.exists())?;
        fs::remove_file(marker)?;
        Ok(running)
    }

    /// Lets the fault happen from now on.
    fn begin(&self) -> Result<()> {
        Ok(fs::write(&self.after, "")?)
    }

    /// Takes the fault's trace away.
    fn end(&self) {
        drop(fs::remove_file(&self.after));
    }
}

/// Gives a command that tells when it runs and then sleeps.
fn sleeping(name: &str) -> String {
    format!("exec flock /tmp/{name} sh -c 'touch {name}; exec sleep 1000'")
}

/// Tells whether a sleeping session's command still runs in the sandbox, whatever its client knows.
fn sleeps(environment: &Environment, name: &str) -> Result<bool> {
    let lock = environment.in_sandbox(&format!("flock -n -E 9 /tmp/{name} true")).run()?;
    ensure!(matches!(lock.code(), 0 | 9), "{lock:?}");
    Ok(lock.code() == 9)
}

/// Checks that a start under this fault fails with a cause that says so, and the aftermath.
fn start_fails(environment: &Environment, variable: &str, cause: &str) -> Result<()> {
    let ended = environment.in_sandbox("true").env("LAZARET_FAULT", variable).deadline(PATIENCE).run()?;
    says(&ended, cause).with_context(|| variable.to_owned())?;
    aftermath(environment, variable)
}

/// Lets an actor die in these ways while two sessions run, and checks that both clients say why and that the generation ends.
fn dies_with_two_sessions(environment: &Environment, actor: &str, ways: &[&str], cause: &str) -> CaseResult {
    for how in ways {
        let context = format!("{actor} with two sessions, {how}");
        let fault = Fault::of_actor(environment, actor, how);
        let sessions = ["first", "second"].map(|name| fault.sleeping_session(environment, name));
        fault.begin()?;
        // A session more makes every actor handle a message. It ends with the others or in the next generation.
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

/// Checks that a client gave up and said why.
fn says(ended: &Output, cause: &str) -> Result<()> {
    let said = ended.stderr();
    ensure!(ended.code() == 125 && said.contains(cause), "'{cause}' is not said, with status {}: {said}", ended.code());
    Ok(())
}

/// Checks that nothing is left of the generation, and that the next one works.
fn aftermath(environment: &Environment, context: &str) -> Result<()> {
    expect_gone(environment, GONE, context)?;
    let foreign = Foreign::plant(environment)?;
    expect_recovery(environment, foreign, context)
}

/// Gives the log of the Domain's coordinator.
fn coordinator_log(environment: &Environment) -> Result<String> {
    Ok(fs::read_to_string(environment.domain_root()?.coordinator_log())?)
}
