//! Whatever happens to a Domain, its workspace stays byte for byte what it was (C01).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::harness::sessions::{START, hold};
use crate::harness::{Case, CaseResult, Environment, Invocation, Need, case, eventually, project, wait_until};

pub(super) fn cases() -> Vec<Case> {
    vec![case("case_c01_the_workspace_stays_as_it_is", &[Need::Sandbox], case_c01)]
}

/// How a process is known by its command line.
type IsRole = fn(&str) -> bool;

const ROLES: [(&str, IsRole); 7] = [
    ("coordinator", |command| command.starts_with("lazaret: coordinator")),
    ("supervisor", |command| command.starts_with("lazaret: supervisor")),
    ("runsc run", |command| command.contains("runsc --root=") && command.contains(" run --bundle=")),
    ("runsc exec", |command| command.contains("runsc --root=") && command.contains(" exec --internal-pid-file")),
    ("sentry", |command| command.starts_with("runsc-sandbox")),
    ("gofer", |command| command.starts_with("runsc-gofer")),
    ("slirp4netns", |command| command.contains("slirp4netns --mtu")),
];

/// What the host's Git says while a Domain lives and dies: each different answer and how often it came.
fn watch(directory: &Path, ended: &AtomicBool) -> Result<BTreeMap<String, u32>> {
    let git = Invocation::new("git").args(["status", "--porcelain", "--ignored"]).directory(directory);
    let git = git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let mut answers = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        let output = git.run()?;
        *answers.entry(format!("{} {}{}", output.code(), output.stdout(), output.stderr())).or_default() += 1;
        // The machine has other work as well.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(answers)
}

/// A project with every kind of path, old enough that Git has no reason to look at anything again.
fn settled_project(environment: &Environment) -> Result<()> {
    let project = environment.project();
    fs::create_dir_all(project.join("build"))?;
    fs::write(project.join("build/out.log"), "ignored\n")?;
    fs::write(project.join("untracked"), "untracked\n")?;
    fs::create_dir_all(project.join(".idea"))?;
    fs::write(project.join(".idea/workspace.xml"), "<settings/>\n")?;
    std::os::unix::fs::symlink("no/where", project.join("dangling"))?;
    fs::create_dir(project.join("empty"))?;
    let old = SystemTime::now() - Duration::from_secs(1000);
    for file in ["README.md", "src/main.py", ".gitignore"] {
        fs::File::open(project.join(file))?.into_parts().0.set_modified(old)?;
    }
    project::git(&project, &["update-index", "--refresh"])?;
    project::git(&project, &["status", "--ignored"])?;
    Ok(())
}

fn live_and_die(environment: &Environment) -> Result<()> {
    let mut client = hold(environment, &[])?;
    client.kill();
    environment.expect_nothing_left(Duration::from_secs(2)).context("after SIGKILL of the client")?;
    for (name, is_role) in ROLES {
        let mut held = hold(environment, &[])?;
        let victim = || environment.processes().into_iter().find(|process| is_role(&process.command));
        eventually(name, START, victim)?.kill();
        // Its input stays open until then: the command would end by that as well.
        wait_until("the client ends", START, || !held.is_running().unwrap_or(true)).context(name)?;
        let ended = held.wait(START)?;
        ensure!(ended.code() != 0, "SIGKILL of {name} went unnoticed\n{ended}");
        let gone = || environment.processes().is_empty();
        if name != "runsc exec" {
            wait_until("every process is gone", Duration::from_secs(2), gone).context(name)?;
        }
        environment.lazaret(["run", "--", "true"]).run()?.ok().with_context(|| format!("after SIGKILL of {name}"))?;
    }
    environment.expect_nothing_left(Duration::from_secs(2))
}

fn case_c01() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "[workspace]\nisolate_ignored = false\nhide = [\".idea\", \".vscode\"]\n")?;
    settled_project(&environment)?;
    let project = environment.project();
    let before = project::inventory(&project)?;
    let ended = AtomicBool::new(false);
    let (lived, watched) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&project, &ended));
        let lived = live_and_die(&environment);
        ended.store(true, Ordering::Relaxed);
        (lived, watching.join())
    });
    lived?;
    let answers = watched.map_err(|_| anyhow::anyhow!("the watch panicked"))??;
    ensure!(answers.len() == 1, "Git saw changes: {answers:#?}");
    let (answer, times) = answers.first_key_value().context("Git said nothing")?;
    ensure!(*times > 10 && answer.contains("?? untracked") && answer.contains("!! build/"), "{times}: {answer}");
    let after = project::inventory(&project)?;
    ensure!(after == before, "changed: {:#?}", difference(&before, &after));
    Ok(())
}

fn difference<'a>(before: &'a [String], after: &'a [String]) -> Vec<&'a String> {
    let one = before.iter().filter(|line| !after.contains(line));
    one.chain(after.iter().filter(|line| !before.contains(line))).collect()
}
