//! Signals to a client whose session has pipes.

use std::os::unix::process::ExitStatusExt;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::Signal;

use super::NEEDS;
use super::ends::{expect_beating, expect_stopped};
use crate::harness::command::DEADLINE;
use crate::harness::{Case, CaseResult, Environment, Running, case, wait_until};

const SIGNALS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

pub fn cases() -> Vec<Case> {
    vec![
        case("signals_reach_the_command", NEEDS, signals_reach_the_command),
        case("a_second_signal_ends_the_client", NEEDS, a_second_signal_ends_the_client),
        case("ignored_signals_stay_ignored", NEEDS, ignored_signals_stay_ignored),
        case("a_stopped_client_goes_on", NEEDS, a_stopped_client_goes_on),
    ]
}

/// Starts a script and waits until it has made the file `ready`.
fn ready(environment: &Environment, invocation: &crate::harness::Invocation) -> Result<Running> {
    let marker = environment.project().join("ready");
    let running = invocation.spawn()?;
    wait_until("the script is ready", DEADLINE, || marker.exists())?;
    fs::remove_file(marker)?;
    Ok(running)
}

fn signals_reach_the_command() -> CaseResult {
    let environment = Environment::lingering()?;
    for signal in SIGNALS {
        let name = &signal.as_str()[3..];
        // One that handles it says how it ends.
        let script = format!("trap 'echo got {name}; exit 7' {name}; touch ready; while :; do sleep 0.02; done");
        let running = ready(&environment, &environment.in_sandbox(&script))?;
        running.signal(signal)?;
        let output = running.wait(DEADLINE)?.expect_code(7)?;
        // Its own children get the signal as well, of which the shell may say something.
        ensure!(output.stdout() == format!("got {name}\n"), "{output}");
        // One that does not dies of it, and so says the client's status.
        let running = ready(&environment, &environment.in_sandbox("touch ready; exec sleep 1000"))?;
        running.signal(signal)?;
        let output = running.wait(DEADLINE)?;
        ensure!(output.status.code() == Some(128 + signal as i32), "{name}: {output}");
    }
    Ok(())
}

fn a_second_signal_ends_the_client() -> CaseResult {
    let environment = Environment::lingering()?;
    let script = "trap ': > got' INT TERM; touch ready; while :; do date +%N > beat; sleep 0.02; done";
    let got = environment.project().join("got");
    for (first, second) in [(Signal::SIGINT, Signal::SIGINT), (Signal::SIGINT, Signal::SIGTERM)] {
        let mut running = ready(&environment, &environment.in_sandbox(script))?;
        running.signal(first)?;
        wait_until("the command has the signal", DEADLINE, || got.exists())?;
        fs::remove_file(&got)?;
        ensure!(running.is_running()?, "one signal does not end the client");
        expect_beating(&environment, "beat")?;
        running.signal(second)?;
        let output = running.wait(DEADLINE)?;
        ensure!(output.status.signal() == Some(second as i32), "{output}");
        expect_stopped(&environment, "beat")?;
    }
    Ok(())
}

fn ignored_signals_stay_ignored() -> CaseResult {
    let environment = Environment::lingering()?;
    let script =
        "trap '' INT HUP; exec lazaret run -- sh -c 'touch ready; while [ ! -e go ]; do sleep 0.02; done; echo done'";
    let mut running = ready(&environment, &environment.host_script(script))?;
    // What is ignored is dropped as it comes, and leaves nothing to wait for.
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGINT, Signal::SIGHUP] {
        ensure!(is_ignored(running.pid(), signal)?, "the client handles {signal}, which it was told to ignore");
        running.signal(signal)?;
    }
    ensure!(running.is_running()?, "the client ended by a signal that it was told to ignore");
    fs::write(environment.project().join("go"), "")?;
    running.wait(DEADLINE)?.ok()?.expect_stdout("done")?;
    Ok(())
}

/// Tells whether a process ignores a signal (proc_pid_status(5), SigIgn).
fn is_ignored(pid: i32, signal: Signal) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).context("no SigIgn")?;
    Ok(u64::from_str_radix(mask.trim(), 16)? & (1 << (signal as i32 - 1)) != 0)
}

fn a_stopped_client_goes_on() -> CaseResult {
    let environment = Environment::lingering()?;
    let running = ready(&environment, &environment.in_sandbox("touch ready; seq 1 1000000"))?;
    running.signal(Signal::SIGTSTP)?;
    let stat = format!("/proc/{}/stat", running.pid());
    wait_until("the client is stopped", DEADLINE, || fs::read_to_string(&stat).is_ok_and(|s| s.contains(") T ")))?;
    // Others go on meanwhile.
    environment.in_sandbox("true").run()?.ok()?;
    running.signal(Signal::SIGCONT)?;
    let output = running.wait(DEADLINE)?.ok()?;
    ensure!(output.stdout.ends_with(b"\n999999\n1000000\n"), "{output}");
    Ok(())
}
