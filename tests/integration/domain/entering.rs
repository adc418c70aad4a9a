//! A Domain is joined when it is published, and started by exactly one caller when it is not.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::harness::sessions::{START, hold, process, status};
use crate::harness::{Case, CaseResult, Environment, Need, Running, case, leftovers};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a_second_caller_joins", &[Need::Sandbox], a_second_caller_joins),
        case("profiles_and_workspaces_are_apart", &[Need::Sandbox], profiles_and_workspaces_are_apart),
        case("eight_cold_starts_have_one_leader", &[Need::Sandbox], eight_cold_starts_have_one_leader),
        case("another_configuration_is_told_apart", &[Need::Sandbox], another_configuration_is_told_apart),
        case("the_same_configuration_joins_however_it_is_written", &[Need::Sandbox], however_it_is_written),
    ]
}

/// What stays the same as long as a generation lives.
fn identity(status: &Value) -> [&Value; 4] {
    ["domain", "generation", "sandbox", "coordinator"].map(|key| &status[key])
}

fn a_second_caller_joins() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let first = hold(&environment, &[])?;
    let before = status(&environment, &[])?;
    ensure!(before["state"] == "running" && before["sessions"].as_array().is_some_and(|all| all.len() == 1));
    environment.in_sandbox("echo seen > /tmp/by-the-second").run()?.ok()?;
    let second = hold(&environment, &[])?;
    let after = status(&environment, &[])?;
    ensure!(identity(&before) == identity(&after), "another generation: {before} {after}");
    ensure!(before["processes"] == after["processes"], "other processes: {before} {after}");
    let clients: BTreeSet<_> = sessions(&after)?.iter().filter_map(|session| session["client_pid"].as_i64()).collect();
    ensure!(clients == BTreeSet::from([first.pid().into(), second.pid().into()]), "{after}");
    environment.in_sandbox("cat /tmp/by-the-second").run()?.ok()?.expect_stdout("seen")?;
    for held in [first, second] {
        held.wait(START)?.ok()?;
    }
    Ok(())
}

fn sessions(status: &Value) -> Result<&Vec<Value>> {
    status["sessions"].as_array().context("no sessions")
}

fn profiles_and_workspaces_are_apart() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("other", "")?;
    let elsewhere = environment.another_project("elsewhere")?;
    let elsewhere = elsewhere.display().to_string();
    let places: [&[&str]; 3] = [&["-p", "test"], &["-p", "other"], &["-p", "test", "-C", &elsewhere]];
    let held: Vec<Running> = places.iter().map(|place| hold(&environment, place)).collect::<Result<_>>()?;
    let all = places.iter().map(|place| status(&environment, place)).collect::<Result<Vec<_>>>()?;
    for key in ["domain", "sandbox", "coordinator"] {
        let different: BTreeSet<_> = all.iter().map(|status| status[key].to_string()).collect();
        ensure!(different.len() == 3, "{key} is shared: {different:?}");
    }
    let run =
        |place: &[&str], script: &str| environment.lazaret(["run"]).args(place).args(["--", "sh", "-c", script]).run();
    run(places[0], "echo mine > /tmp/mark; echo mine > /var/mark; sleep 1000 >/dev/null 2>&1 &")?.ok()?;
    for place in &places[1..] {
        let seen = run(place, "ls /tmp/mark /var/mark; pgrep -c sleep")?;
        ensure!(!seen.stdout().contains("mark") && seen.stdout().trim() == "0", "one sees another: {seen}");
    }
    environment.lazaret(["down", "--yes", "-p", "test"]).run()?.ok()?;
    for place in &places[1..] {
        ensure!(status(&environment, place)?["state"] == "running", "{place:?} went down with another");
    }
    drop(held);
    Ok(())
}

fn eight_cold_starts_have_one_leader() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"20s\"")?;
    let script = "echo \"$1\" >> /tmp/came; echo served \"$1\"";
    let callers: Vec<Running> = (0..8)
        .map(|number| environment.lazaret(["run", "--", "sh", "-c", script, "sh", &number.to_string()]).spawn())
        .collect::<Result<_>>()?;
    for (number, caller) in callers.into_iter().enumerate() {
        caller.wait(START * 2)?.ok()?.expect_stdout(&format!("served {number}\n"))?;
    }
    let came = environment.in_sandbox("sort -u /tmp/came | wc -l").run()?.ok()?;
    ensure!(came.stdout().trim() == "8", "not all in one sandbox: {came}");
    ensure!(status(&environment, &[])?["generation"] == 1, "more than one led: {}", status(&environment, &[])?);
    // A loser that is about to say so may still be there for a moment.
    let leaders = || leaders(&environment).len() == 1;
    crate::harness::wait_until("one coordinator is left", START, leaders)
}

fn leaders(environment: &Environment) -> Vec<leftovers::Process> {
    let mut all = environment.processes();
    all.retain(|process| process.command.starts_with("lazaret: coordinator "));
    all
}

fn another_configuration_is_told_apart() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "[env.set]\nCOLOUR = \"red\"\n")?;
    let held = hold(&environment, &[])?;
    let before = status(&environment, &[])?;
    environment.profile(
        "test",
        "persistent = [\"/var/cache\"]\n[env.set]\nCOLOUR = \"blue\"\n[network]\ndeny = [\"198.51.100.0/24\"]\n",
    )?;
    let refused = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
    let domain = environment.domain()?;
    for text in [
        "runs with a different configuration",
        "COLOUR has another value",
        "/var/cache",
        "198.51.100.0/24",
        &format!("hint: to use the configuration as it is now: lazaret down {domain}, then this again\n"),
        &format!("hint: to join the sandbox as it runs: lazaret attach {domain}\n"),
    ] {
        ensure!(refused.stderr().contains(text), "not a word of '{text}'\n{refused}");
    }
    // Values may be secrets.
    ensure!(!refused.stderr().contains("red") && !refused.stderr().contains("blue"), "{refused}");
    let attached = environment.lazaret(["attach", "--", "sh", "-c", "echo $COLOUR"]).run()?.ok()?;
    ensure!(attached.stdout() == "red\n", "{attached}");
    ensure!(process(&status(&environment, &[])?, "coordinator")? == process(&before, "coordinator")?);
    drop(held);
    Ok(())
}

fn however_it_is_written() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"60s\"\npersistent = [\"/var/cache\", \"/srv\"]\n")?;
    let held = hold(&environment, &[])?;
    let file = environment.config().join("lazaret/profiles/test.toml");
    let text = fs::read_to_string(&file)?.replace("\"60s\"", "'1m' # the same");
    fs::write(&file, text.replace("\"/var/cache\", \"/srv\"", "\n\t'/srv',\n\t'/var/cache',\n"))?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    drop(held);
    Ok(())
}
