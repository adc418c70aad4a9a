//! What the host's Git and editors obey is out of the sandbox's reach.

use std::time::Duration;

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::harness::{Case, CaseResult, Environment, Need, Output, case, project};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("git_configuration_is_read_only", &[Need::Sandbox], git_configuration_is_read_only),
        case("hooks_are_the_sandbox_s_own", &[Need::Sandbox], hooks_are_the_sandbox_s_own),
        case("editor_directories_are_hidden", &[Need::Sandbox], editor_directories_are_hidden),
        case("what_cannot_be_protected_is_refused", &[Need::Sandbox], what_cannot_be_protected_is_refused),
        case("a_linked_worktree_is_told_about", &[Need::Sandbox], a_linked_worktree_is_told_about),
        case("worktree_configuration_is_protected", &[Need::Sandbox], worktree_configuration_is_protected),
    ]
}

fn git_configuration_is_read_only() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let config = environment.project().join(".git/config");
    let before = fs::read_to_string(&config)?;
    let set = environment.in_sandbox("git config core.fsmonitor /workspace/evil").run()?;
    ensure!(set.code() != 0 && set.stderr().contains(".git/config"), "{set}");
    for attempt in [
        "echo '[core]' >> .git/config",
        "echo x > .git/new && mv .git/new .git/config",
        "rm -f .git/config",
        "mv .git/config .git/config.old",
        "ln -f README.md .git/config",
        "truncate -s 0 .git/config",
        "chmod 666 .git/config",
        "python3 -c 'import os; os.utime(\".git/config\", (0, 0))'",
        "mv .git .git-old",
    ] {
        let output = environment.in_sandbox(attempt).run()?;
        ensure!(output.code() != 0, "went through: {output}");
        let refused = [
            "Read-only file system",
            "Invalid cross-device link",
            "Device or resource busy",
            "Operation not permitted",
            "Permission denied",
        ];
        ensure!(refused.iter().any(|text| output.stderr().contains(text)), "not a clear refusal: {output}");
        ensure!(fs::read_to_string(&config)? == before, "{attempt} changed .git/config");
    }
    // What only the sandbox's Git is to know goes elsewhere.
    let own =
        environment.in_sandbox("git config --global alias.st status && git st --porcelain && git config user.name");
    ensure!(own.run()?.ok()?.stdout() == "Test Developer\n");
    project::git(&environment.project(), &["status"])?;
    Ok(())
}

fn hooks_are_the_sandbox_s_own() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let project = environment.project();
    let hooks = project.join(".git/hooks");
    fs::write(hooks.join("host-only"), "secret of the host\n")?;
    let before = project::inventory(&hooks)?;
    let script = "ls -A .git/hooks; printf '#!/bin/sh\necho ran > /tmp/ran\n' > .git/hooks/post-commit; \
         chmod +x .git/hooks/post-commit; git commit -q --allow-empty -m x; cat /tmp/ran; \
         mv .git/hooks .git/hooks-old 2>&1 || rmdir .git/hooks 2>&1";
    let output = environment.in_sandbox(script).run()?;
    ensure!(output.stdout().starts_with("ran\n"), "{output}");
    ensure!(output.code() != 0, "the hooks directory could be replaced: {output}");
    ensure!(project::inventory(&hooks)? == before, "the sandbox's hook is on the host");
    environment.expect_nothing_left(std::time::Duration::from_secs(5))?;
    let next = environment.in_sandbox("ls -A .git/hooks").run()?.ok()?;
    ensure!(next.stdout().is_empty(), "a hook outlived its sandbox: {next}");
    // The host's own hooks work as ever.
    ensure!(project::git(&project, &["log", "--format=%s"])? == "x\nsample project\n");
    Ok(())
}

fn editor_directories_are_hidden() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let project = environment.project();
    environment.profile("test", "[workspace]\nisolate_ignored = false\nhide = [\".vscode\"]\n")?;
    let common = environment.config().join("lazaret/config.toml");
    fs::write(&common, "default_profile = \"test\"\n[workspace]\nhide = [\".idea\"]\n")?;
    fs::create_dir(project.join(".vscode"))?;
    fs::write(project.join(".vscode/tasks.json"), "{}")?;
    let script = "ls -A .vscode; echo evil > .vscode/tasks.json; mkdir .vscode/deep; cat .vscode/tasks.json; \
         ! rm -rf .vscode 2>/dev/null; ! mv .vscode elsewhere 2>/dev/null; ls -d .vscode";
    let output = environment.in_sandbox(script).run()?.ok()?;
    ensure!(output.stdout() == "evil\n.vscode\n", "{output}");
    ensure!(project::inventory(&project.join(".vscode"))?.len() == 2, "something is in the host's .vscode");
    ensure!(fs::read_to_string(project.join(".vscode/tasks.json"))? == "{}");
    // Nothing is to be done about the one that does not exist.
    ensure!(!output.stderr().contains(".idea") && !output.stderr().contains(".vscode"), "{output}");
    ensure!(!project.join(".idea").exists(), "a stub was made");
    Ok(())
}

fn refused(environment: &Environment, text: &str, remedy: &str) -> Result<Output> {
    let output = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
    ensure!(output.stderr().contains("the workspace can't be protected"), "{output}");
    ensure!(output.stderr().contains(text) && output.stderr().contains(remedy), "'{text}', '{remedy}'\n{output}");
    environment.expect_nothing_left(Duration::from_secs(2))?;
    Ok(output)
}

fn what_cannot_be_protected_is_refused() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let project = environment.project();
    let git = project.join(".git");
    fs::rename(git.join("hooks"), project.join("kept"))?;
    refused(&environment, "'.git/hooks' does not exist", "hint: run 'mkdir .git/hooks' in the workspace on the host")?;
    ensure!(!git.join("hooks").exists(), "a stub was made");
    std::os::unix::fs::symlink("../kept", git.join("hooks"))?;
    refused(&environment, "'.git/hooks' is a symbolic link", "hint: replace '.git/hooks' by what it points to")?;
    fs::remove_file(git.join("hooks"))?;
    // What the hint says helps.
    fs::create_dir(git.join("hooks"))?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    fs::rename(&git, project.join("real-git"))?;
    std::os::unix::fs::symlink("real-git", &git)?;
    refused(&environment, "'.git' is a symbolic link", "hint: ")?;
    Ok(())
}

fn a_linked_worktree_is_told_about() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let linked = environment.home().join("linked");
    project::git(&environment.project(), &["worktree", "add", "-q", linked.to_str().unwrap_or_default()])?;
    let before = fs::read_to_string(linked.join(".git"))?;
    let script = "cat README.md; echo evil > .git; mv .git elsewhere; git status";
    let output = environment.lazaret(["run", "--", "sh", "-c", script]).directory(&linked).run()?;
    ensure!(output.code() != 0 && output.stdout() == "# sample\n", "{output}");
    let repository = environment.project().join(".git/worktrees/linked");
    let told = format!(
        "lazaret: Git does not work in this sandbox: the workspace is a linked worktree or a submodule, whose \
         repository {} is not shared with it; use Git on the host, or work in a clone made with: git clone . DIR\n",
        repository.display()
    );
    ensure!(output.stderr().contains(&told), "{output}");
    ensure!(fs::read_to_string(linked.join(".git"))? == before, "the link to the repository was changed");
    project::git(&linked, &["status"])?;
    // What the notice says helps.
    project::git(&linked, &["clone", "-q", ".", "../clone"])?;
    let clone = environment.home().join("clone");
    let script = "git -c user.name=x -c user.email=x@y commit -q --allow-empty -m inside && git log -1 --format=%s";
    let output = environment.lazaret(["run", "--", "sh", "-c", script]).directory(&clone).run()?.ok()?;
    ensure!(output.stdout() == "inside\n" && !output.stderr().contains("Git does not work"), "{output}");
    Ok(())
}

fn worktree_configuration_is_protected() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let project = environment.project();
    project::git(&project, &["config", "extensions.worktreeConfig", "true"])?;
    refused(&environment, "'.git/config.worktree' does not exist", "hint: run 'touch .git/config.worktree'")?;
    fs::write(project.join(".git/config.worktree"), "")?;
    let output = environment.in_sandbox("git status --porcelain && echo '[core]' > .git/config.worktree").run()?;
    ensure!(output.code() != 0 && output.stderr().contains("Read-only file system"), "{output}");
    ensure!(fs::read(project.join(".git/config.worktree"))?.is_empty());
    Ok(())
}
