//! What ends with a session, and what does not.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fs_err as fs;
use nix::sys::signal::Signal;

use super::NEEDS;
use crate::harness::command::DEADLINE;
use crate::harness::{Case, CaseResult, Environment, case, wait_until};

/// How long a session whose command has ended may take to end, on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(5);

/// How often a process that lives at least writes its heartbeat, with room for a busy machine.
const BEAT: Duration = Duration::from_millis(500);

/// Every way to outlive a parent, each with a heartbeat file of its own.
const DAEMONS: &str = r#"
beat() { while :; do date +%s%N > "$1.new"; mv "$1.new" "$1"; sleep 0.02; done; }
export -f beat
beat plain &
setsid bash -c 'beat session' &
setsid bash -c 'setsid bash -c "beat forked" & exit' &
nohup bash -c 'beat nohup' < /dev/null > /dev/null 2>&1 &
(trap '' HUP TERM INT QUIT; beat deaf) < /dev/null > /dev/null 2>&1 &
disown -a
for name in plain session forked nohup deaf; do until [ -e $name ]; do sleep 0.01; done; done
"#;

/// Their heartbeat files.
const BEATS: [&str; 5] = ["plain", "session", "forked", "nohup", "deaf"];

pub fn cases() -> Vec<Case> {
    vec![
        case("case_c19_a_substituted_output_is_complete", NEEDS, a_substituted_output_is_complete),
        case("case_c19_background_processes_end_with_the_session", NEEDS, background_processes_end),
        case("case_c19_nothing_is_left_after_daemons", NEEDS, nothing_is_left_after_daemons),
        case("a_killed_client_ends_its_session_and_no_other", NEEDS, a_killed_client),
        case("down_ends_all_sessions", NEEDS, down_ends_all_sessions),
    ]
}

/// Demands that a heartbeat goes on.
pub fn expect_beating(environment: &Environment, name: &str) -> Result<()> {
    let path = environment.project().join(name);
    let before = fs::read(&path).unwrap_or_default();
    wait_until(&format!("'{name}' beats"), DEADLINE, || fs::read(&path).is_ok_and(|now| now != before))
}

/// Demands that a heartbeat stops.
pub fn expect_stopped(environment: &Environment, name: &str) -> Result<()> {
    let path = environment.project().join(name);
    let (mut last, mut since) = (fs::read(&path)?, Instant::now());
    wait_until(&format!("'{name}' stops"), Duration::from_secs(4), || {
        let now = fs::read(&path).unwrap_or_default();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > BEAT
    })
}

fn a_substituted_output_is_complete() -> CaseResult {
    let environment = Environment::lingering()?;
    let script = "exec > >(tee log) 2>&1; seq 1 20000; true";
    let output = environment.lazaret(["run", "--", "bash", "-c", script]).run()?.ok()?;
    ensure!(output.elapsed < PROMPTLY * 3, "{output}");
    let expected: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    ensure!(output.stdout() == expected, "{} bytes of output", output.stdout.len());
    ensure!(fs::read_to_string(environment.project().join("log"))? == expected, "the log differs");
    Ok(())
}

fn background_processes_end() -> CaseResult {
    let environment = Environment::lingering()?;
    let sleeping = environment.lazaret(["run", "--", "bash", "-c", "sleep 1000 & exit 3"]).run()?.expect_code(3)?;
    ensure!(sleeping.elapsed < PROMPTLY, "{sleeping}");
    let script = format!("{DAEMONS} touch made; exit 4");
    let running = environment.lazaret(["run", "--", "bash", "-c", &script]).spawn()?;
    let made = environment.project().join("made");
    wait_until("the daemons run", DEADLINE, || made.exists())?;
    let since = Instant::now();
    let output = running.wait(DEADLINE)?.expect_code(4)?;
    ensure!(since.elapsed() < PROMPTLY, "{output}");
    BEATS.iter().try_for_each(|name| expect_stopped(&environment, name))
}

fn nothing_is_left_after_daemons() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let script = format!("{DAEMONS} exit 6");
    environment.lazaret(["run", "--", "bash", "-c", &script]).run()?.expect_code(6)?;
    // The last session's end takes the sandbox down.
    environment.expect_nothing_left(Duration::from_secs(5))
}

fn a_killed_client() -> CaseResult {
    let environment = Environment::lingering()?;
    let survivor = "beat() { while :; do date +%N > $1; sleep 0.02; done; }; beat other & beat another";
    let mut other = environment.lazaret(["run", "--", "bash", "-c", survivor]).spawn()?;
    let script = format!("{DAEMONS} touch made; sleep 1000");
    let victim = environment.lazaret(["run", "--", "bash", "-c", &script]).spawn()?;
    let made = environment.project().join("made");
    wait_until("the daemons run", DEADLINE, || made.exists())?;
    for name in BEATS {
        expect_beating(&environment, name)?;
    }
    victim.signal(Signal::SIGKILL)?;
    victim.wait(DEADLINE)?.expect_code(137)?;
    for name in BEATS {
        expect_stopped(&environment, name)?;
    }
    ensure!(other.is_running()?, "the other session's client ended");
    expect_beating(&environment, "other")?;
    expect_beating(&environment, "another")
}

fn down_ends_all_sessions() -> CaseResult {
    let environment = Environment::lingering()?;
    let script = "while :; do date +%N > $0; sleep 0.02; done";
    let sessions: Result<Vec<_>> = ["one", "two"]
        .iter()
        .map(|name| environment.lazaret(["run", "--", "sh", "-c", script, name]).spawn())
        .collect();
    for name in ["one", "two"] {
        expect_beating(&environment, name)?;
    }
    environment.lazaret(["down", "--yes"]).run()?.ok()?;
    for session in sessions? {
        session.wait(DEADLINE)?.expect_code(125)?.expect_stderr("the sandbox was taken down")?;
    }
    environment.expect_nothing_left(Duration::from_secs(5))
}
