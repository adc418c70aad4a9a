//! Keys that act on jobs.

use anyhow::ensure;

use super::NEEDS;
use super::shell::{DEADLINE, Shell};
use crate::harness::terminal::{END_OF_FILE, INTERRUPT, QUIT, SUSPEND};
use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("interrupt_quit_and_end_of_file", NEEDS, interrupt_quit_and_end_of_file),
        case("job_control", NEEDS, job_control),
        case("a_command_without_a_shell_is_continued", NEEDS, without_a_shell),
        case("keys_typed_early_wait_for_the_program", NEEDS, keys_typed_early),
    ]
}

// A job says itself that it runs: a key that arrives while bash is about to start one may be lost, in bash.

fn interrupt_quit_and_end_of_file() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("sh -c \"echo be''gun; exec sleep 1000\"")?;
    shell.wait_for("begun")?;
    shell.send(INTERRUPT)?;
    shell.prompt()?;
    ensure!(shell.run("echo status $?")?.contains("status 130"), "{}", shell.contents());
    shell.begin("ulimit -c 0; sh -c \"echo an''other; exec sleep 1000\"")?;
    shell.wait_for("another")?;
    shell.send(QUIT)?;
    shell.prompt()?;
    ensure!(shell.shown()?.contains("Quit"), "{}", shell.contents());
    ensure!(shell.run("echo status $?")?.contains("status 131"), "{}", shell.contents());
    // A line is interrupted, not run.
    shell.run("clear")?;
    shell.send("echo not run")?;
    shell.wait_for("echo not run")?;
    shell.send(INTERRUPT)?;
    shell.wait_for("echo not run^C\n[6]> ")?;
    ensure!(shell.run("echo $((6*7))")?.contains("\n42"), "{}", shell.contents());
    // The end of input ends a reader, with the line before it.
    shell.begin("sh -c \"echo re''ady; exec cat\" > /dev/tty")?;
    shell.wait_for("ready")?;
    shell.send_line("a line")?;
    shell.wait_for("a line")?;
    shell.send(END_OF_FILE)?;
    shell.prompt()?;
    ensure!(shell.shown()?.matches("a line").count() == 2, "{}", shell.contents());
    // And the shell itself; its status is that of the last command.
    shell.run("sh -c 'exit 9'")?;
    shell.send(END_OF_FILE)?;
    let code = shell.wait_exit(DEADLINE)?;
    ensure!(code == 9, "status {code}\n{}", shell.contents());
    shell.expect_sane()
}

fn job_control() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("sh -c \"echo be''gun; exec sleep 998\"")?;
    shell.wait_for("begun")?;
    shell.send(SUSPEND)?;
    shell.prompt()?;
    ensure!(shell.shown()?.contains("Stopped"), "{}", shell.contents());
    shell.run("sleep 999 &")?;
    let jobs = shell.run("jobs")?;
    ensure!(jobs.contains("[1]+  Stopped") && jobs.contains("[2]-  Running"), "{jobs}");
    shell.run("bg %1")?;
    let jobs = shell.run("jobs")?;
    ensure!(jobs.matches("Running").count() == 2, "{jobs}");
    shell.begin("fg %2")?;
    shell.wait_for("\nsleep 999")?;
    shell.send(INTERRUPT)?;
    shell.prompt()?;
    let jobs = shell.run("jobs -l")?;
    ensure!(jobs.contains("exec sleep 998") && !jobs.contains("sleep 999"), "{jobs}");
    // A job in the background that reads the terminal is stopped and reads once it is in front.
    shell.run("kill %1; wait 2>/dev/null; clear")?;
    shell.begin("(read -r line; echo got $line) & sleep 0.2; jobs")?;
    shell.prompt()?;
    ensure!(shell.shown()?.contains("Stopped"), "{}", shell.contents());
    shell.begin("fg")?;
    shell.wait_screen("the job in front", DEADLINE, |s| {
        s.contents().trim_end().ends_with("fg\n( read -r line; echo got $line )")
    })?;
    shell.send_line("text")?;
    shell.wait_for("got text")?;
    shell.prompt()?;
    shell.finish(0)
}

fn without_a_shell() -> CaseResult {
    let environment = Environment::lingering()?;
    // As over ssh: there is nothing to return to, so the program goes on.
    let mut vim = environment.terminal(["up", "-q", "--", "vim", "README.md"])?;
    vim.wait_vim(|screen| screen.contents().contains("# sample"))?;
    vim.send_line(":suspend")?;
    vim.wait_for_output("there is no shell to return to", DEADLINE)?;
    vim.send("ggOwritten after it\x1b:wq\r")?;
    let code = vim.wait_exit(DEADLINE)?;
    ensure!(code == 0, "status {code}\n{}", vim.contents());
    vim.expect_sane()?;
    let text = fs_err::read_to_string(environment.project().join("README.md"))?;
    ensure!(text == "written after it\n# sample\n", "{text}");
    let mut sleep = environment.terminal(["up", "-q", "--", "sh", "-c", "echo begun; exec sleep 1000"])?;
    sleep.wait_for("begun")?;
    sleep.send(SUSPEND)?;
    sleep.wait_for_output("there is no shell to return to", DEADLINE)?;
    sleep.send(INTERRUPT)?;
    let code = sleep.wait_exit(DEADLINE)?;
    ensure!(code == 130, "status {code}\n{}", sleep.contents());
    sleep.expect_sane()
}

fn keys_typed_early() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut cat = environment.terminal(["up", "-q", "--", "sh", "-c", "read -r a; read -r b; echo \"<$b$a>\""])?;
    cat.send("first\rsecond\r")?;
    ensure!(cat.wait_exit(DEADLINE)? == 0, "{}", cat.contents());
    ensure!(cat.contents().contains("<secondfirst>"), "{}", cat.contents());
    // Keys for nobody stay with whoever has the terminal next; an interrupt ends a command that starts.
    let mut early = environment.terminal(["up", "-q", "--", "sleep", "1000"])?;
    crate::harness::wait_until("the terminal is raw", DEADLINE, || {
        early.modes().is_ok_and(|modes| !modes.local_modes.contains(rustix::termios::LocalModes::ICANON))
    })?;
    early.send(INTERRUPT)?;
    let code = early.wait_exit(DEADLINE)?;
    ensure!(code == 130, "status {code}\n{}", early.contents());
    early.expect_sane()
}
