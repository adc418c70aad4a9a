//! Terminals within the session's terminal, and what asks for the terminal's name.

use anyhow::ensure;

use super::NEEDS;
use super::shell::{DEADLINE, Shell};
use crate::harness::terminal::{END_OF_FILE, INTERRUPT, QUIT, SUSPEND};
use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("case_c10_what_the_terminal_is_called", NEEDS, what_it_is_called),
        case("case_c10_tmux_inside", NEEDS, tmux_inside),
        case("case_c11_keys_in_a_terminal_made_inside", NEEDS, made_inside),
    ]
}

/// What docs/limits.md says about the terminal's name.
fn what_it_is_called() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    let tty = shell.run("tty; echo status $?")?;
    ensure!(tty.contains("\n/dev/console\n") && tty.contains("status 0"), "{tty}");
    let terminal = shell.run("test -t 0 && test -t 1 && test -t 2 && echo it is''; echo from''here > /dev/tty")?;
    ensure!(terminal.contains("\nit is\n") && terminal.contains("\nfromhere\n"), "{terminal}");
    shell.begin("sh -c \"echo re''ady; read -r line < /dev/tty; echo \\\"<\\$line>\\\"\"")?;
    shell.wait_for("ready")?;
    shell.send_line("typed text")?;
    shell.prompt()?;
    ensure!(shell.shown()?.contains("<typed text>"), "{}", shell.contents());
    // A session sees its own processes only, each without a terminal's name.
    let ps = shell.run("clear; ps -eo tty=,comm= | sort -u")?;
    ensure!(ps.contains("?        bash") && ps.contains("?        ps"), "{ps}");
    ensure!(!ps.contains("pts/"), "{ps}");
    let script = shell.run("clear; script -qc 'echo in''side' /dev/null; echo status $?")?;
    ensure!(script.contains("status 0") && script.contains("inside"), "{script}");
    shell.finish(0)
}

fn tmux_inside() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("tmux -f /dev/null new-session -s inner 'PS1=\"inner\\$ \" bash --norc'")?;
    shell.wait_screen("tmux with its status line", DEADLINE, |s| {
        s.contents().contains("inner$ ") && s.contents().contains("[inner]")
    })?;
    shell.send_line("echo here $((6*7)); tty; stty size")?;
    shell.wait_for("here 42")?;
    // tmux makes terminals of the sandbox's own, which have names.
    shell.wait_for("/dev/pts/")?;
    shell.wait_for("23 80")?;
    shell.resize(30, 100)?;
    shell.send_line("clear; stty size")?;
    shell.wait_for("29 100")?;
    shell.send("\x02%")?;
    shell.wait_screen("two panes", DEADLINE, |s| s.contents().contains('│') || s.contents().contains(" x"))?;
    shell.send("\x02d")?;
    shell.prompt()?;
    ensure!(shell.shown()?.contains("[detached (from session inner)]"), "{}", shell.contents());
    shell.begin("tmux attach")?;
    shell.wait_screen("tmux is back", DEADLINE, |s| s.alternate_screen() && s.contents().contains("[inner]"))?;
    shell.send("\x02d")?;
    shell.prompt()?;
    shell.run("tmux kill-server")?;
    shell.finish(0)
}

fn made_inside() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("PS1='n$ ' python3 -c 'import pty; pty.spawn([\"bash\", \"--norc\"])'")?;
    shell.wait_for("\nn$ ")?;
    let nested = |shell: &Shell, command: &str| shell.send_line(command);
    nested(&shell, "tty; sh -c \"echo be''gun; exec sleep 1000\"")?;
    shell.wait_for("/dev/pts/")?;
    shell.wait_for("begun")?;
    shell.send(INTERRUPT)?;
    nested(&shell, "echo interrupted $?")?;
    shell.wait_for("interrupted 130")?;
    nested(&shell, "sh -c \"echo sec''ond; exec sleep 1000\"")?;
    shell.wait_for("second")?;
    shell.send(SUSPEND)?;
    shell.wait_for("Stopped")?;
    nested(&shell, "echo back''ground; fg")?;
    shell.wait_for("background")?;
    shell.wait_screen("the job in front", DEADLINE, |s| s.contents().matches("exec sleep 1000").count() >= 4)?;
    shell.send(QUIT)?;
    shell.wait_for("Quit")?;
    nested(&shell, "echo quit $?")?;
    shell.wait_for("quit 131")?;
    nested(&shell, "sh -c \"echo re''ady; exec cat\"; echo ca''t ended")?;
    shell.wait_for("ready")?;
    shell.send_line("text")?;
    shell.wait_screen("cat's echo", DEADLINE, |s| s.contents().matches("text").count() == 2)?;
    shell.send(END_OF_FILE)?;
    shell.wait_for("cat ended")?;
    // It ends the nested shell, which was not reached by any of this otherwise.
    nested(&shell, "echo la''st")?;
    shell.wait_for("last")?;
    shell.send(END_OF_FILE)?;
    shell.prompt()?;
    shell.finish(0)
}
