//! `status`, `ls` and `logs`, for people and for programs.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, ensure};
use lazaret::observe::{SIZE_LIMIT, previous};
use serde_json::Value;

use crate::harness::sessions::{START, hold, process, status};
use crate::harness::{Case, CaseResult, Environment, Need, case, eventually, wait_until};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("status_says_what_runs", &[Need::Sandbox], status_says_what_runs),
        case("status_of_what_does_not_run", &[Need::Sandbox], status_of_what_does_not_run),
        case("ls_lists_what_runs", &[Need::Sandbox], ls_lists_what_runs),
        case("logs_are_shown", &[Need::Sandbox], logs_are_shown),
        case("logs_are_followed", &[Need::Sandbox], logs_are_followed),
        case("every_line_says_whose_it_is", &[Need::Sandbox], every_line_says_whose_it_is),
        case("logs_are_followed_across_rotation", &[Need::Sandbox], logs_are_followed_across_rotation),
    ]
}

const STOPPED: [&str; 4] = ["domain", "profile", "state", "workspace"];
const RUNNING: [&str; 11] = [
    "configuration",
    "coordinator",
    "document",
    "generation",
    "image",
    "network",
    "persistent",
    "processes",
    "sandbox",
    "sessions",
    "since",
];
const SESSION: [&str; 6] = ["client_pid", "command", "id", "interactive", "since", "terminal"];

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

/// Gives the status once the session's process is recorded, which follows while the session already runs.
fn settled(environment: &Environment) -> anyhow::Result<Value> {
    eventually("the session's process is recorded", START, || {
        let json = status(environment, &[]).ok()?;
        json["document"]["sessions"][0]["exec"]["pid"].is_number().then_some(json)
    })
}

fn status_says_what_runs() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "persistent = [\"/srv/kept\"]\n[network]\ndeny = [\"198.51.100.0/24\"]\n")?;
    let common = environment.config().join("lazaret/config.toml");
    fs_err::write(&common, "default_profile = \"test\"\n[network]\ndeny = [\"203.0.113.0/24\"]\n")?;
    let held = hold(&environment, &[])?;
    let json = settled(&environment)?;
    let expected: BTreeSet<_> = STOPPED.into_iter().chain(RUNNING).collect();
    ensure!(keys(&json) == expected, "{json}");
    ensure!(
        json["domain"] == environment.domain()?.as_str() && json["profile"] == "test" && json["state"] == "running"
    );
    ensure!(json["workspace"] == environment.project().display().to_string(), "{json}");
    ensure!(json["persistent"] == serde_json::json!(["/srv/kept"]), "{json}");
    let network = json["network"].as_array().context("no network")?;
    for rule in ["deny 10.0.0.0/8", "deny 198.51.100.0/24"] {
        ensure!(network.iter().any(|line| line.as_str().is_some_and(|line| line.starts_with(rule))), "{rule}: {json}");
    }
    for role in ["coordinator", "supervisor", "runsc", "slirp4netns"] {
        let pid = process(&json, role)?;
        ensure!(environment.processes().iter().any(|process| process.pid == pid), "{role} {pid} is no process of this");
    }
    let session = &json["sessions"][0];
    ensure!(keys(session) == BTreeSet::from(SESSION), "{session}");
    ensure!(session["client_pid"] == held.pid() && session["interactive"] == false && session["terminal"] == "");
    ensure!(session["command"] == serde_json::json!(["sh", "-c", "echo held; exec cat"]), "{session}");

    let document = &json["document"];
    ensure!(document["decision"] == "published" && document["lease_release"] == "not_begun", "{document}");
    let participants = document["participants"].as_array().context("no participants")?;
    ensure!(participants.iter().all(|participant| participant["state"] == "owned"), "{document}");
    let owned = |name: &str| {
        let found = participants.iter().find(|participant| participant["name"] == name);
        found.map(|participant| participant["ownership"].clone()).with_context(|| format!("no {name}: {document}"))
    };
    for (name, role) in [("runtime_supervisor", "supervisor"), ("runsc", "runsc"), ("helper", "slirp4netns")] {
        ensure!(
            owned(name)?["kind"] == "process" && owned(name)?["pid"] == process(&json, role)?,
            "{name}: {document}"
        );
    }
    let scratch = environment.domain_root()?.scratch(lazaret::domain::ids::Generation(1));
    ensure!(
        owned("scratch")?["inode"] == std::os::unix::fs::MetadataExt::ino(&fs_err::metadata(&scratch)?),
        "{document}"
    );
    ensure!(owned("anchor_mount")?["kind"] == "mount" && owned("lease")?["kind"] == "lease", "{document}");
    ensure!(
        document["leader"]["pid"] == process(&json, "coordinator")? && document["probe_holds"] == true,
        "{document}"
    );
    let record = &document["sessions"][0];
    ensure!(record["id"] == session["id"] && record["client"].is_string(), "{document}");

    let human = environment.lazaret(["status"]).run()?.ok()?.stdout();
    for line in [
        format!("sandbox    {}  running\n", environment.domain()?),
        "profile    test\n".to_owned(),
        format!("workspace  {}\n", environment.project().display()),
        "persistent /srv/kept\n".to_owned(),
        "deny 10.0.0.0/8 (default)\n".to_owned(),
        format!("deny 198.51.100.0/24 ({}:5)\n", environment.config().join("lazaret/profiles/test.toml").display()),
        format!("deny 203.0.113.0/24 ({}:3)\n", common.display()),
        format!("coordinator {}", process(&json, "coordinator")?),
        "SESSION       AGE ".to_owned(),
        "sh -c 'echo held; exec cat'\n".to_owned(),
    ] {
        ensure!(human.contains(&line), "lacks {line:?}:\n{human}");
    }
    Ok(())
}

fn status_of_what_does_not_run() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let never = environment.lazaret(["status"]).run()?.expect_code(125)?;
    let start = format!("hint: start one: lazaret up --workspace {}\n", environment.project().display());
    ensure!(never.stderr().contains("has no sandbox") && never.stderr().contains(&start), "{never}");
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    let stopped = status(&environment, &[])?;
    ensure!(keys(&stopped) == BTreeSet::from(STOPPED) && stopped["state"] == "stopped", "{stopped}");
    let human = environment.lazaret(["status"]).run()?.ok()?.stdout();
    ensure!(human.starts_with(&format!("sandbox    {}  stopped\n", environment.domain()?)), "{human}");
    let attach = environment.lazaret(["attach", "--", "true"]).run()?.expect_code(125)?;
    let start = format!("hint: start it: lazaret up -p test --workspace {}\n", environment.project().display());
    ensure!(attach.stderr().contains("is not running") && attach.stderr().contains(&start), "{attach}");
    Ok(())
}

fn ls_lists_what_runs() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let domain = environment.domain()?;
    let ls = |arguments: &[&str]| environment.lazaret(["ls"]).args(arguments).run();
    // The Storage Root is shared with other cases, whose runtime directories are elsewhere.
    let own = |text: &str| -> anyhow::Result<Vec<Value>> {
        let all: Vec<Value> = serde_json::from_str(text)?;
        Ok(all.into_iter().filter(|view| view["domain"] == domain.as_str()).collect())
    };
    ensure!(own(&ls(&["--json", "--all"])?.ok()?.stdout())?.is_empty(), "listed before it was ever started");
    let held = hold(&environment, &[])?;
    let shown = settled(&environment)?;
    let running = own(&ls(&["--json"])?.ok()?.stdout())?;
    ensure!(running == [shown], "{running:?}");
    let human = ls(&[])?.ok()?.stdout();
    let line = human.lines().find(|line| line.starts_with(domain.as_str())).context("not listed")?;
    let columns: Vec<_> = line.split_whitespace().collect();
    ensure!(columns[1..4] == ["test", "running", "1"] && human.starts_with("SANDBOX "), "{human}");
    held.wait(START)?.ok()?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    ensure!(own(&ls(&["--json"])?.ok()?.stdout())?.is_empty(), "listed though it ended");
    let stopped = own(&ls(&["--json", "--all"])?.ok()?.stdout())?;
    ensure!(stopped.len() == 1 && stopped[0]["state"] == "stopped", "{stopped:?}");
    Ok(())
}

fn logs_are_shown() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    let logs = |arguments: &[&str]| environment.lazaret(["logs"]).args(arguments).run()?.ok();
    let human = logs(&[])?.stdout();
    ensure!(human.contains(" INFO  session opened ") && human.contains(" INFO  session closed "), "{human}");
    ensure!(!human.contains('{') || human.lines().all(|line| !line.starts_with('{')), "JSON for people:\n{human}");
    let json = logs(&["--json"])?.stdout();
    ensure!(json.lines().count() == human.lines().count() && json.lines().count() > 3, "{json}");
    for line in json.lines() {
        let record: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        ensure!(record["timestamp"].is_string() && record["level"].is_string(), "{line}");
    }
    let last = logs(&["--json", "-n", "2"])?.stdout();
    ensure!(last.lines().count() == 2 && json.ends_with(&last), "{last}");
    let supervisor = logs(&["--supervisor"])?.stdout();
    ensure!(!supervisor.is_empty() && supervisor != human, "{supervisor}");
    Ok(())
}

fn logs_are_followed() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"20s\"")?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    let follow = environment.lazaret(["logs", "--follow", "--lines", "0"]).spawn()?;
    // It has begun once something new is shown; what is written before that does not count for it.
    let marked = || -> anyhow::Result<bool> {
        environment.lazaret(["run", "--", "echo", "a-mark"]).run()?.ok()?;
        Ok(follow.wait_stdout("a-mark", Duration::from_secs(1)).is_ok())
    };
    ensure!(marked()? || marked()?, "nothing new was shown");
    environment.lazaret(["down"]).run()?.ok()?;
    follow.wait_stdout("DownRequested", Duration::from_secs(5))?;
    // Also what a next generation writes.
    environment.lazaret(["run", "--", "echo", "another-mark"]).run()?.ok()?;
    follow.wait_stdout("another-mark", Duration::from_secs(5))?;
    environment.lazaret(["down"]).run()?.ok()?;
    Ok(())
}

fn every_line_says_whose_it_is() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for generation in 1..=2 {
        environment.lazaret(["run", "--", "true"]).env("LAZARET_LOG", "lazaret=debug").run()?.ok()?;
        environment.expect_nothing_left(Duration::from_secs(2))?;
        for (process, actors) in [(None, ["registry", "session"]), (Some("--supervisor"), ["network", "exec"])] {
            let text = environment.lazaret(["logs", "--json"]).args(process).run()?.ok()?.stdout();
            let lines: serde_json::Result<Vec<Value>> = text.lines().map(serde_json::from_str).collect();
            let lines = lines.context(text)?;
            let domain = environment.domain()?;
            ensure!(lines.iter().all(|line| line["domain"] == domain.as_str()), "{lines:#?}");
            let begun = lines.iter().skip_while(|line| line["generation"] != generation);
            // What a coordinator does before, such as the recovery of the last, is of no generation.
            ensure!(begun.clone().all(|line| line["generation"] == generation), "{lines:#?}");
            for actor in actors {
                ensure!(begun.clone().any(|line| line["actor"] == actor), "{actor} of {generation}: {lines:#?}");
            }
        }
    }
    Ok(())
}

fn logs_are_followed_across_rotation() -> CaseResult {
    let environment = Environment::lingering()?;
    let root = environment.domain_root()?;
    for (log, arguments, mark) in
        [(root.coordinator_log(), &[][..], "exit 42"), (root.supervisor_log(), &["--supervisor"], "Exited(42)")]
    {
        let follow = environment.lazaret(["logs", "--json", "--follow"]).args(arguments).spawn()?;
        let mut filled = fs_err::OpenOptions::new().append(true).open(&log)?;
        let filler = format!("{{\"filler\":\"{}\"}}\n", "x".repeat(1000));
        while filled.metadata()?.len() < SIZE_LIMIT {
            filled.write_all(filler.as_bytes())?;
        }
        filled.write_all(b"{\"filler\":\"the last\"}\n")?;
        let written = filled.metadata()?.ino();
        // What the session writes finds the file full.
        let session = environment.in_sandbox("exit 42").run()?.expect_code(42)?;
        ensure!(session.stderr.is_empty(), "{session}");
        wait_until("the log is rotated", Duration::from_secs(5), || {
            fs_err::metadata(previous(&log)).is_ok_and(|older| older.ino() == written)
        })?;
        follow.wait_stdout("the last", Duration::from_secs(5))?;
        follow.wait_stdout(mark, Duration::from_secs(5))?;
        let facts = fs_err::metadata(&log)?;
        let owner = nix::unistd::Uid::current().as_raw();
        ensure!(facts.len() < SIZE_LIMIT && facts.uid() == owner && facts.mode() & 0o777 == 0o600, "{facts:?}");
        let all = environment.lazaret(["logs", "--json"]).args(arguments).run()?.ok()?.stdout();
        ensure!(all.matches("the last").count() == 1 && all.contains(mark), "the two files are shown once each");
    }
    Ok(())
}
