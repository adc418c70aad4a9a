//! Every way in which a session with a terminal ends.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::Signal;
use rustix::termios::LocalModes;

use super::NEEDS;
use super::shell::{DEADLINE, Shell};
use crate::harness::terminal::{ENTER, INTERRUPT};
use crate::harness::{Case, CaseResult, Environment, Terminal, case, wait_until};

pub fn cases() -> Vec<Case> {
    vec![
        case("a_stopped_client_gives_the_terminal_back", NEEDS, a_stopped_client),
        case("a_signal_or_a_closed_window_ends_the_session", NEEDS, a_signal_or_a_closed_window),
        case("a_lost_coordinator_leaves_a_sane_terminal", NEEDS, a_lost_coordinator),
        case("down_leaves_a_sane_terminal", NEEDS, down),
        case("the_escape_sequence_ends_the_session", NEEDS, the_escape_sequence),
    ]
}

fn is_raw(terminal: &Terminal) -> bool {
    terminal.modes().is_ok_and(|modes| !modes.local_modes.contains(LocalModes::ICANON))
}

/// Opens vim in a session whose other processes write a heartbeat; gives the terminal when both are seen.
fn vim_with_heartbeat(environment: &Environment) -> Result<Terminal> {
    let beat = environment.project().join("beat");
    drop(fs::remove_file(&beat));
    let script = "(trap '' HUP TERM; while :; do date +%N > beat; sleep 0.02; done) & vim -n README.md";
    let terminal = environment.terminal(["up", "-q", "--", "sh", "-c", script])?;
    terminal.wait_vim(|screen| screen.contents().contains("# sample"))?;
    wait_until("the heartbeat", DEADLINE, || beat.exists())?;
    ensure!(is_raw(&terminal), "the terminal is raw during a session");
    Ok(terminal)
}

fn a_stopped_client() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.signal(Signal::SIGTSTP)?;
    wait_until("the modes are restored", DEADLINE, || !is_raw(&shell))?;
    let stat = format!("/proc/{}/stat", shell.pid());
    wait_until("the client is stopped", DEADLINE, || fs::read_to_string(&stat).is_ok_and(|s| s.contains(") T ")))?;
    // It learns of a size that changed meanwhile.
    shell.resize(33, 99)?;
    shell.signal(Signal::SIGCONT)?;
    wait_until("the terminal is raw again", DEADLINE, || is_raw(&shell))?;
    ensure!(shell.run("stty size")?.contains("33 99"), "{}", shell.contents());
    shell.finish(5)
}

fn a_signal_or_a_closed_window() -> CaseResult {
    let environment = Environment::lingering()?;
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        let mut terminal = vim_with_heartbeat(&environment)?;
        terminal.signal(signal)?;
        let code = terminal.wait_exit(DEADLINE)?;
        ensure!(code == 128 + signal as i32, "{signal}: status {code}\n{}", terminal.contents());
        terminal.expect_sane().context(signal.as_str())?;
        crate::sessions::expect_stopped(&environment, "beat").context(signal.as_str())?;
    }
    let mut terminal = vim_with_heartbeat(&environment)?;
    terminal.hang_up();
    let code = terminal.wait_exit(DEADLINE)?;
    ensure!(code == 129, "a closed window: status {code}");
    crate::sessions::expect_stopped(&environment, "beat")?;
    // Even SIGKILL, after which nobody restores the terminal, ends the session.
    let mut terminal = vim_with_heartbeat(&environment)?;
    terminal.signal(Signal::SIGKILL)?;
    ensure!(terminal.wait_exit(DEADLINE)? == 137, "SIGKILL");
    crate::sessions::expect_stopped(&environment, "beat")
}

fn a_lost_coordinator() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut terminal = vim_with_heartbeat(&environment)?;
    let coordinator =
        environment.processes().into_iter().find(|process| process.command.starts_with("lazaret: coordinator"));
    coordinator.context("a coordinator runs")?.kill();
    let code = terminal.wait_exit(DEADLINE)?;
    ensure!(code == 125, "status {code}\n{}", terminal.contents());
    terminal.expect_sane()?;
    let message = "the connection to the sandbox's Host Coordinator was lost";
    ensure!(terminal.contents().contains(message), "{}", terminal.contents());
    environment.expect_nothing_left(Duration::from_secs(5))
}

fn down() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut terminal = vim_with_heartbeat(&environment)?;
    environment.lazaret(["down", "--yes"]).run()?.ok()?;
    let code = terminal.wait_exit(DEADLINE)?;
    ensure!(code == 125, "status {code}\n{}", terminal.contents());
    terminal.expect_sane()?;
    ensure!(terminal.contents().contains("the sandbox was taken down"), "{}", terminal.contents());
    environment.expect_nothing_left(Duration::from_secs(5))
}

/// Types a key and waits until the client has read it: keys that are read at once count as pasted.
fn type_key(shell: &Shell, key: &str) -> Result<()> {
    let account = format!("/proc/{}/io", shell.pid());
    // What it receives from a socket is not counted (proc_pid_io(5), rchar).
    let read = || -> Result<u64> {
        let text = fs::read_to_string(&account)?;
        Ok(text.lines().find_map(|line| line.strip_prefix("rchar: ")).context("no rchar")?.parse()?)
    };
    let before = read()?;
    shell.send(key)?;
    wait_until("the client reads the key", DEADLINE, || read().is_ok_and(|now| now > before))
}

fn the_escape_sequence() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    // In the middle of a line it is text, and twice it is one.
    shell.begin("echo a~.b")?;
    shell.prompt()?;
    ensure!(shell.shown()?.contains("\na~.b"), "{}", shell.contents());
    for key in ["~", "~", INTERRUPT] {
        type_key(&shell, key)?;
    }
    shell.wait_for("]> ~^C")?;
    // A paste is text, whatever is in it.
    shell.begin("cat > typed <<END\r~.\r~.\rEND")?;
    shell.prompt()?;
    ensure!(fs::read_to_string(environment.project().join("typed"))? == "~.\n~.\n", "what was pasted");
    for key in [ENTER, "~"] {
        type_key(&shell, key)?;
    }
    shell.send(".")?;
    let code = shell.wait_exit(DEADLINE)?;
    ensure!(code == 125, "status {code}\n{}", shell.contents());
    ensure!(shell.contents().contains("ended by the escape sequence"), "{}", shell.contents());
    shell.expect_sane()?;
    let arguments = ["up", "-q", "--escape-char", "none", "--", "sh", "-c", "read -r line; echo \"<$line>\""];
    let mut off = environment.terminal(arguments)?;
    for key in ["~", ".", ENTER] {
        off.send(key)?;
    }
    ensure!(off.wait_exit(DEADLINE)? == 0 && off.contents().contains("<~.>"), "{}", off.contents());
    Ok(())
}
