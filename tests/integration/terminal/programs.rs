//! Programs that people work with.

use anyhow::ensure;
use fs_err as fs;

use super::NEEDS;
use super::shell::{DEADLINE, Shell};
use crate::harness::terminal::{END_OF_FILE, INTERRUPT, SUSPEND};
use crate::harness::{Case, CaseResult, Environment, case, project};

pub fn cases() -> Vec<Case> {
    vec![
        case("less", NEEDS, less),
        case("case_c10_vim_with_suspend", NEEDS, vim),
        case("top", NEEDS, top),
        case("python_repl", NEEDS, python_repl),
        case("git_commit_with_an_editor", NEEDS, git_commit_with_an_editor),
    ]
}

fn less() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("seq 1 1000 | less")?;
    shell.wait_screen("the first page", DEADLINE, |s| s.contents().starts_with("1\n2\n"))?;
    shell.send(" ")?;
    shell.wait_screen("the second page", DEADLINE, |s| s.contents().starts_with("24\n25\n"))?;
    shell.send("/777\r")?;
    shell.wait_screen("what was searched", DEADLINE, |s| s.contents().starts_with("777\n"))?;
    shell.send(SUSPEND)?;
    shell.prompt()?;
    shell.begin("fg")?;
    shell.wait_screen("the page again", DEADLINE, |s| s.alternate_screen() && s.contents().starts_with("777\n"))?;
    shell.send("q")?;
    shell.prompt()?;
    ensure!(!shell.contents().contains("777"), "the screen before less is back\n{}", shell.contents());
    shell.finish(0)
}

fn vim() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("vim notes")?;
    shell.wait_vim(|screen| screen.contents().contains("[New]"))?;
    shell.send("ifirst line")?;
    shell.wait_for("first line")?;
    shell.send("\x1b:suspend\r")?;
    shell.prompt()?;
    ensure!(shell.run("jobs")?.contains("Stopped"), "{}", shell.contents());
    shell.begin("fg")?;
    shell.wait_screen("vim is back", DEADLINE, |s| s.alternate_screen() && s.contents().starts_with("first line\n"))?;
    shell.send("osecond\x1b:wq\r")?;
    shell.prompt()?;
    ensure!(fs::read_to_string(environment.project().join("notes"))? == "first line\nsecond\n", "what was written");
    shell.finish(0)
}

fn top() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("top")?;
    shell.wait_for("load average")?;
    shell.wait_screen("itself in the list", DEADLINE, |s| {
        s.contents().contains(" top") && s.contents().contains(" bash")
    })?;
    shell.send("q")?;
    shell.prompt()?;
    shell.run("clear")?;
    shell.begin("top -d 0.2")?;
    shell.wait_for("load average")?;
    shell.send(INTERRUPT)?;
    shell.prompt()?;
    shell.finish(0)
}

fn python_repl() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.begin("python3 -q")?;
    shell.wait_for(">>> ")?;
    shell.send_line("print('six', 6 * 7)")?;
    shell.wait_for("six 42")?;
    // Line editing: the line before comes back.
    shell.send("\x1b[A")?;
    shell.wait_screen("the line again", DEADLINE, |s| s.contents().matches("print('six'").count() == 2)?;
    shell.send_line("; print('sev' 'en')")?;
    shell.wait_for("seven")?;
    shell.send_line("import time; time.sleep(1000)")?;
    shell.wait_for("time.sleep(1000)")?;
    shell.wait_screen("it runs", DEADLINE, |s| s.cursor_position().1 == 0)?;
    shell.send(INTERRUPT)?;
    shell.wait_for("KeyboardInterrupt")?;
    shell.wait_screen("the prompt", DEADLINE, |s| {
        s.contents().trim_end_matches('\n').ends_with(">>> ") || s.contents().ends_with(">>>")
    })?;
    shell.send(END_OF_FILE)?;
    shell.prompt()?;
    shell.finish(0)
}

fn git_commit_with_an_editor() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    shell.run("export GIT_EDITOR=vim; echo more >> README.md; git add README.md")?;
    shell.begin("git commit")?;
    shell.wait_screen("the editor", DEADLINE, |s| {
        s.alternate_screen() && s.contents().contains("Please enter the commit")
    })?;
    shell.send("ia message from inside\x1b:wq\r")?;
    shell.prompt()?;
    ensure!(shell.shown()?.contains("1 file changed, 1 insertion(+)"), "{}", shell.contents());
    shell.finish(0)?;
    let log = project::git(&environment.project(), &["log", "-1", "--format=%s by %an"])?;
    ensure!(log == "a message from inside by Test Developer\n", "{log}");
    ensure!(project::git(&environment.project(), &["status", "--porcelain"])?.is_empty(), "something is left");
    Ok(())
}
