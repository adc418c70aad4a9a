//! Sessions that stay until they are told to end, and what Lazaret says of them.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::command::Running;
use super::environment::Environment;

/// How long a start may take on a machine that does much else.
pub const START: Duration = Duration::from_secs(30);

/// Starts `lazaret run` with these arguments and a command that ends with its standard input, and waits
/// until that command runs.
pub fn hold(environment: &Environment, arguments: &[&str]) -> Result<Running> {
    let invocation = environment.lazaret(["run"]).args(arguments).args(["--", "sh", "-c", "echo held; exec cat"]);
    let running = invocation.spawn()?;
    running.wait_stdout("held\n", START)?;
    Ok(running)
}

/// Gives what `lazaret status --json` says with these further arguments.
pub fn status(environment: &Environment, arguments: &[&str]) -> Result<Value> {
    let output = environment.lazaret(["status", "--json"]).args(arguments).run()?.ok()?;
    serde_json::from_slice(&output.stdout).context("the status is not JSON")
}

/// Gives the process id of a role as the status names it.
pub fn process(status: &Value, role: &str) -> Result<i32> {
    let processes = status["processes"].as_array().context("the status has no processes")?;
    let found = processes.iter().find(|process| process["role"] == role);
    let pid = found.and_then(|process| process["pid"].as_i64()).with_context(|| format!("no process is the {role}"))?;
    Ok(i32::try_from(pid)?)
}
