//! Exit statuses and what is said with them.

use anyhow::{Context, ensure};
use fs_err as fs;

use super::NEEDS;
use crate::harness::command::DEADLINE;
use crate::harness::{Case, CaseResult, Environment, Running, case, executable};

/// How many sessions run at the same time where a case runs many.
const AT_ONCE: usize = 4;

pub fn cases() -> Vec<Case> {
    vec![
        case("exit_statuses_pass", NEEDS, exit_statuses_pass),
        case("death_by_signal_is_128_plus_its_number", NEEDS, death_by_signal),
        case("what_cannot_be_executed_is_said", NEEDS, what_cannot_be_executed),
        case("own_failures_are_125_and_usage_is_2", NEEDS, own_failures),
    ]
}

/// Runs a script for each number and demands the status that goes with it.
fn expect_statuses(environment: &Environment, wanted: &[(String, i32)]) -> CaseResult {
    for some in wanted.chunks(AT_ONCE) {
        let started: Result<Vec<Running>, _> =
            some.iter().map(|(script, _)| environment.in_sandbox(script).spawn()).collect();
        for (running, (script, status)) in started?.into_iter().zip(some) {
            let output = running.wait(DEADLINE)?.expect_code(*status).with_context(|| script.clone())?;
            ensure!(output.status.code() == Some(*status), "the client itself died of a signal\n{output}");
            ensure!(output.stdout.is_empty() && output.stderr.is_empty(), "words from nowhere\n{output}");
        }
    }
    Ok(())
}

fn exit_statuses_pass() -> CaseResult {
    let environment = Environment::lingering()?;
    let statuses = [0, 1, 2, 42, 124, 125, 126, 127, 128, 129, 130, 137, 143, 192, 254, 255];
    let wanted: Vec<_> = statuses.iter().map(|status| (format!("exit {status}"), *status)).collect();
    expect_statuses(&environment, &wanted)
}

fn death_by_signal() -> CaseResult {
    let environment = Environment::lingering()?;
    let signals = [1, 2, 3, 6, 9, 11, 13, 14, 15, 34, 64];
    let wanted: Vec<_> = signals.iter().map(|signal| (format!("kill -{signal} $$"), 128 + signal)).collect();
    expect_statuses(&environment, &wanted)
}

/// What is said besides of a command that is in no directory of `PATH`.
const NOT_FOUND: &str = "lazaret: hint: install it in the image or below a persistent path, or name another command \
     ('command' in the profile)\n";

fn what_cannot_be_executed() -> CaseResult {
    let environment = Environment::lingering_with("command = [\"no-such-agent\"]")?;
    executable::write(&environment.project().join("script"), "#!/no/such/interpreter\n", 0o755)?;
    fs::write(environment.project().join("plain"), "text")?;
    let cases: [(&str, i32, &str); 7] = [
        ("nope", 127, "nope: command not found"),
        ("./nope", 127, "./nope: no such file or directory"),
        ("/tmp", 126, "/tmp: is a directory"),
        ("./plain", 126, "./plain: permission denied"),
        ("./plain/below", 127, "./plain/below: no such file or directory"),
        ("./script", 127, "./script: its interpreter '/no/such/interpreter' does not exist"),
        ("\u{1b}[2Jnope", 127, "?[2Jnope: command not found"),
    ];
    for (command, status, message) in cases {
        let output = environment.lazaret(["run", "--", command]).run()?.expect_code(status)?;
        let hint = if message.ends_with("command not found") { NOT_FOUND } else { "" };
        ensure!(output.stderr() == format!("lazaret: {message}\n{hint}"), "{output}");
        ensure!(output.stdout.is_empty(), "{output}");
    }
    let profiles = environment.lazaret(["up"]).run()?.expect_code(127)?;
    ensure!(
        profiles.stderr().ends_with(&format!("lazaret: no-such-agent: command not found\n{NOT_FOUND}")),
        "{profiles}"
    );
    // Exactly what a program that says 127 itself shows: nothing is added.
    let own = environment.in_sandbox("echo own words >&2; exit 127").run()?.expect_code(127)?;
    ensure!(own.stderr() == "own words\n", "{own}");
    Ok(())
}

fn own_failures() -> CaseResult {
    let environment = Environment::lingering()?;
    let missing = environment.lazaret(["run", "-p", "nope", "--", "true"]).run()?.expect_code(125)?;
    missing.expect_stderr("lazaret: error: ")?.expect_stderr("nope")?;
    let usage = environment.lazaret(["run", "--no-such-option"]).run()?.expect_code(2)?;
    usage.expect_stderr("--no-such-option")?;
    // A running sandbox with another configuration is not joined in silence.
    environment.profile("test", "linger = \"10m\"\n[env.set]\nADDED = \"1\"\n")?;
    let differs = environment.in_sandbox("true").run()?.expect_code(125)?;
    differs.expect_stderr("runs with a different configuration")?.expect_stderr("lazaret down")?;
    Ok(())
}
