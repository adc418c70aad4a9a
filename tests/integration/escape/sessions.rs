//! A session's process tree, its wrapper, the sandbox's init, and other sessions.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::Signal;

use super::Prison;
use crate::harness::command::DEADLINE;
use crate::harness::{Case, CaseResult, Need, Running, case, eventually, sessions, wait_until};

pub fn cases() -> Vec<Case> {
    vec![
        case("escape_session_tree", &[Need::Sandbox], escape_session_tree),
        case("escape_hopping_tree", &[Need::Sandbox], escape_hopping_tree),
        case("escape_own_wrapper", &[Need::Sandbox], escape_own_wrapper),
        case("escape_init", &[Need::Sandbox], escape_init),
        case("escape_output_flood", &[Need::Sandbox], escape_output_flood),
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Leaves behind what tries to outlive its session: daemons that left the process group, the terminal
/// session, ignore every signal, and write a sign of life.
const DAEMONS: &str = r#"
import os, signal, sys, time
name = sys.argv[1]


def live(name):
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        with open(name, 'w') as file:
            file.write(str(time.time()))
        time.sleep(0.02)


for number in range(3):
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir('/workspace')
        live('%s-%d' % (name, number))
print('ready', flush=True)
sys.stdin.read()
"#;

/// Starts a session with daemons whose signs of life are files with this name.
fn start(prison: &Prison, name: &str) -> Result<Running> {
    let running = prison.environment.lazaret(["run", "--", "python3", "-c", DAEMONS, name]).spawn()?;
    for file in signs(prison, name) {
        wait_until("the daemon lives", DEADLINE, || file.exists())?;
    }
    Ok(running)
}

fn signs(prison: &Prison, name: &str) -> Vec<std::path::PathBuf> {
    (0..3).map(|number| prison.environment.project().join(format!("{name}-{number}"))).collect()
}

/// Tells whether a daemon writes: whether its file changes within a while.
fn lives(file: &Path) -> bool {
    let look = || fs::metadata(file).ok().and_then(|facts| facts.modified().ok());
    let before = look();
    wait_until("it changes", Duration::from_millis(300), || look() != before).is_ok()
}

fn expect_dead(prison: &Prison, name: &str) -> CaseResult {
    for file in signs(prison, name) {
        wait_until(&format!("{} is dead", file.display()), PATIENCE, || !lives(&file))?;
    }
    Ok(())
}

fn expect_alive(prison: &Prison, name: &str) -> CaseResult {
    for file in signs(prison, name) {
        ensure!(lives(&file), "{} died with a foreign session", file.display());
    }
    Ok(())
}

fn escape_session_tree() -> CaseResult {
    let prison = Prison::new("root", "")?;
    let mut stays = start(&prison, "stays")?;
    // One session ends with its killed client, one as it should.
    let killed = start(&prison, "killed")?;
    killed.signal(Signal::SIGKILL)?;
    expect_dead(&prison, "killed")?;
    expect_alive(&prison, "stays")?;
    start(&prison, "ended")?.wait(PATIENCE)?.ok()?;
    expect_dead(&prison, "ended")?;
    expect_alive(&prison, "stays")?;
    let status = sessions::status(&prison.environment, &[])?;
    ensure!(status["sessions"].as_array().is_some_and(|live| live.len() == 1), "{status}");
    ensure!(stays.is_running()?);
    Ok(())
}

/// Processes each of which is gone as soon as it has a child, in a session of its own.
const HOPPERS: &str = r#"
import os, sys, time
for number in range(20):
    if not os.fork():
        while True:
            os.setsid()
            with open('%s-%d' % (sys.argv[1], number), 'w') as file:
                file.write(str(time.time()))
            if os.fork():
                os._exit(0)
sys.stdin.read()
"#;

/// Whoever looks through `/proc` finds processes that have moved on by then.
fn escape_hopping_tree() -> CaseResult {
    let prison = Prison::new("dev", "")?;
    let mut stays = start(&prison, "stays")?;
    let hopping = prison.environment.lazaret(["run", "--", "python3", "-c", HOPPERS, "hops"]).spawn()?;
    for file in signs(&prison, "hops") {
        wait_until("the hopper lives", DEADLINE, || file.exists())?;
    }
    hopping.signal(Signal::SIGKILL)?;
    expect_dead(&prison, "hops")?;
    expect_alive(&prison, "stays")?;
    ensure!(stays.is_running()?);
    ensure!(prison.shell("echo works")? == "works\n");
    Ok(())
}

fn generation(prison: &Prison) -> Result<serde_json::Value> {
    Ok(sessions::status(&prison.environment, &[])?["generation"].clone())
}

/// Root in a session kills or stops the process that keeps its tree together, and leaves daemons behind.
fn escape_own_wrapper() -> CaseResult {
    let prison = Prison::new("root", "")?;
    let mut stays = start(&prison, "stays")?;
    let before = generation(&prison)?;
    fs::write(prison.environment.project().join("daemons.py"), DAEMONS)?;
    let daemons =
        |name: &str| format!("python3 daemons.py {name} < /dev/zero > /dev/null & until [ -e {name}-2 ]; do :; done");
    // The wrapper is the parent of the session's command.
    let killed = prison.environment.in_sandbox(&format!("{}; kill -9 $PPID; sleep 5", daemons("killed")));
    let output = killed.deadline(PATIENCE).run()?;
    ensure!(output.code() != 0, "the session went on: {output}");
    expect_dead(&prison, "killed")?;
    // A stopped wrapper can't see its session end; the client's end is enough.
    let stop = format!("{}; kill -STOP $PPID; echo stopped; exec sleep 1000", daemons("stopped"));
    let stopped = prison.environment.in_sandbox(&stop).spawn()?;
    stopped.wait_stdout("stopped\n", PATIENCE)?;
    drop(stopped);
    let alone = || {
        let status = sessions::status(&prison.environment, &[]).ok();
        status.is_some_and(|status| status["sessions"].as_array().is_some_and(|live| live.len() == 1))
    };
    wait_until("the session with the stopped wrapper is gone", PATIENCE, alone)?;
    expect_dead(&prison, "stopped")?;
    expect_alive(&prison, "stays")?;
    ensure!(stays.is_running()?);
    ensure!(generation(&prison)? == before, "the sandbox was started anew");
    ensure!(prison.shell("echo works")? == "works\n");
    Ok(())
}

/// Root kills all it can, and at last the sandbox's own init, which takes the sandbox with it and nothing else.
fn escape_init() -> CaseResult {
    let prison = Prison::new("root", "")?;
    let stays = start(&prison, "stays")?;
    // On this gVisor the sandbox's init is among what that kills in about every second try.
    let output = prison.environment.in_sandbox("sleep 100 & kill -9 -1; exit 1").deadline(PATIENCE).run()?;
    ensure!(output.code() != 0, "the session went on: {output}");
    expect_dead(&prison, "stays")?;
    ensure!([125, 137].contains(&stays.wait(PATIENCE)?.code()), "the other session did not end");
    ensure!(prison.shell("echo works")? == "works\n");
    let before = generation(&prison)?;
    let output = prison.environment.in_sandbox("kill -9 1; sleep 5").deadline(PATIENCE).run()?;
    output.expect_code(125)?.expect_stderr("the sandbox was lost")?;
    ensure!(prison.shell("echo works again")? == "works again\n");
    ensure!(generation(&prison)? != before, "the sandbox survived its init");
    Ok(())
}

/// Output that nobody reads waits in the sandbox; the coordinator does not keep it.
fn escape_output_flood() -> CaseResult {
    let prison = Prison::new("dev", "")?;
    let mut client =
        prison.environment.lazaret(["run", "--", "sh", "-c", "cat /dev/zero; cat /dev/zero >&2"]).command();
    client.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut client = client.spawn()?;
    let outcome = flooded(&prison);
    client.kill()?;
    client.wait()?;
    outcome?;
    ensure!(prison.shell("echo works")? == "works\n");
    Ok(())
}

fn flooded(prison: &Prison) -> CaseResult {
    let live = || {
        let status = sessions::status(&prison.environment, &[]).ok()?;
        (status["sessions"].as_array()?.len() == 1).then_some(status)
    };
    let status = eventually("the session runs", Duration::from_secs(30), live)?;
    ensure!(prison.shell("sleep 0.5; echo beside it")? == "beside it\n");
    for role in ["coordinator", "supervisor"] {
        let pid = sessions::process(&status, role)?;
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak")?;
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse()?;
        ensure!(peak < 64 << 10, "{role} took {peak} KiB");
    }
    Ok(())
}
