//! Sizes: at once, changed, and each terminal's own.

use anyhow::ensure;

use super::NEEDS;
use super::shell::{DEADLINE, Shell};
use crate::harness::{Case, CaseResult, Environment, Need, Terminal, Tmux, case, leftovers};

pub fn cases() -> Vec<Case> {
    vec![
        case("case_c18_the_size_is_right_at_once", NEEDS, right_at_once),
        case("case_c18_each_client_has_its_own_size", NEEDS, each_client_has_its_own),
        case("case_c18_a_lost_sandbox_leaves_a_sane_terminal", NEEDS, lost_sandbox),
        case("a_resize_reaches_the_program", NEEDS, a_resize_reaches_the_program),
        case("tmux_on_the_host_redraws", &[Need::Sandbox, Need::Program("tmux")], tmux_on_the_host),
    ]
}

fn right_at_once() -> CaseResult {
    let environment = Environment::lingering()?;
    for (rows, columns) in [(24, 80), (7, 33), (61, 213)] {
        let invocation = environment.lazaret(["up", "-q", "--", "stty", "size"]);
        let mut terminal = Terminal::start(&invocation, rows, columns)?;
        ensure!(terminal.wait_exit(DEADLINE)? == 0, "{}", terminal.contents());
        ensure!(terminal.contents().trim() == format!("{rows} {columns}"), "{}", terminal.contents());
        terminal.expect_sane()?;
    }
    Ok(())
}

fn a_resize_reaches_the_program() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    let program = "import signal, os, time\n\
        def show(*_): os.write(1, ('size %d %d' % os.get_terminal_size() + chr(10)).encode())\n\
        signal.signal(signal.SIGWINCH, show)\n\
        print('wai' + 'ting', flush=True)\n\
        while True: time.sleep(1)";
    shell.begin(&format!("python3 -c \"{}\"", program.replace('\n', "\r")))?;
    shell.wait_for("waiting")?;
    for (rows, columns) in [(30, 100), (10, 40), (24, 80)] {
        shell.resize(rows, columns)?;
        shell.wait_for(&format!("size {columns} {rows}"))?;
    }
    // After a storm the last size counts.
    for step in 0..50 {
        shell.resize(25 + step, 80 + step)?;
    }
    shell.wait_for("size 129 74")?;
    shell.send("\x03")?;
    shell.wait_for("KeyboardInterrupt")?;
    shell.finish(0)
}

fn each_client_has_its_own() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut first = Shell::sized(&environment, 20, 70)?;
    let mut second = Shell::sized(&environment, 40, 120)?;
    ensure!(first.run("stty size")?.contains("20 70"), "{}", first.contents());
    ensure!(second.run("stty size")?.contains("40 120"), "{}", second.contents());
    second.run("trap 'echo resi''zed' WINCH")?;
    first.resize(30, 90)?;
    ensure!(first.run("stty size")?.contains("30 90"), "{}", first.contents());
    ensure!(second.run("stty size")?.contains("40 120"), "{}", second.contents());
    ensure!(!second.contents().contains("resized"), "the other's resize reached this one");
    second.resize(41, 121)?;
    second.wait_for("resized")?;
    first.finish(0)?;
    second.finish(0)
}

fn lost_sandbox() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut vim = environment.terminal(["up", "-q", "--", "vim", "README.md"])?;
    let mut shell = Shell::start(&environment)?;
    vim.wait_vim(|screen| screen.contents().contains("# sample"))?;
    let sandbox = environment.processes().into_iter().find(|process| process.command.starts_with("runsc-sandbox"));
    sandbox.ok_or_else(|| anyhow::anyhow!("a sandbox runs"))?.kill();
    for terminal in [&mut vim, &mut *shell] {
        let code = terminal.wait_exit(DEADLINE)?;
        ensure!(code == 125, "status {code}\n{}", terminal.contents());
        terminal.expect_sane()?;
        ensure!(terminal.contents().contains("lazaret: error: the sandbox was lost"), "{}", terminal.contents());
        ensure!(terminal.contents().contains("lazaret logs"), "{}", terminal.contents());
    }
    environment.expect_nothing_left(std::time::Duration::from_secs(5))?;
    ensure!(leftovers::mounts(environment.directory()).is_empty(), "mounts are left");
    Ok(())
}

fn tmux_on_the_host() -> CaseResult {
    let environment = Environment::lingering()?;
    let lazaret = environment.host_script("command -v lazaret").run()?.ok()?.stdout();
    let command = format!("{} up -q -- vim -c 'set nonu' README.md", lazaret.trim());
    let tmux = Tmux::start(&environment, &command, 24, 80)?;
    tmux.wait_for("# sample", DEADLINE)?;
    let status_line = |rows: usize| {
        move |screen: &str| {
            let lines: Vec<_> = screen.lines().collect();
            let empty = lines.iter().filter(|line| line.starts_with('~')).count();
            lines.len() == rows && empty == rows - 2
        }
    };
    for (rows, columns) in [(24, 80), (40, 132), (12, 50)] {
        tmux.resize(rows, columns)?;
        let right = status_line(usize::from(rows));
        crate::harness::wait_until("vim fills the window", DEADLINE, || tmux.screen().is_ok_and(|s| right(&s)))
            .map_err(|error| anyhow::anyhow!("{error}\n{}", tmux.screen().unwrap_or_default()))?;
    }
    tmux.press("Escape")?;
    tmux.send(":q!")?;
    tmux.press("Enter")?;
    tmux.wait_exit(DEADLINE)
}
