//! The host's files, the repository's configuration, the prepared lower, symbolic links.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::{Prison, USERS, is_refusal};
use crate::harness::{Case, CaseResult, Invocation, Need, case, executable, project};

pub fn cases() -> Vec<Case> {
    vec![
        case("escape_host_files_are_not_visible", &[Need::Sandbox], escape_host_files_are_not_visible),
        case("escape_configuration_is_not_mounted", &[Need::Sandbox], escape_configuration_is_not_mounted),
        case("escape_git_config_and_hooks", &[Need::Sandbox], escape_git_config_and_hooks),
        case("escape_prepared_lower_is_immutable", &[Need::Sandbox], escape_prepared_lower_is_immutable),
        case("escape_symlinks", &[Need::Sandbox], escape_symlinks),
        case("escape_planted_mount_points", &[Need::Sandbox], escape_planted_mount_points),
    ]
}

/// Text that is only in files of the host.
const MARK: &str = "only-on-the-host-5e0c";

/// Names of a sandbox's root directory: those of the image and the workspace.
const ROOT: [&str; 20] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "workspace",
];

fn escape_host_files_are_not_visible() -> CaseResult {
    for user in USERS {
        let prison = Prison::new(user, "")?;
        let environment = &prison.environment;
        fs::write(environment.home().join("host-only-secret"), MARK)?;
        fs::write(environment.config().join("lazaret/host-only-config"), MARK)?;
        fs::write(environment.runtime().join("host-only-runtime"), MARK)?;
        let base = environment.directory().display().to_string();
        let paths = [environment.home(), environment.config(), environment.runtime(), environment.project()];
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        let mut foreign = vec!["host-only-secret", "host-only-config", "host-only-runtime", "lzt-", &base];
        foreign.extend(paths.iter().map(String::as_str));
        let outcomes = prison.attack(include_str!("../hostile/files.py"), &[&[MARK], foreign.as_slice()].concat())?;

        ensure!(outcomes.fact("seen")?.as_u64() > Some(1000), "the walk saw little: {:?}", outcomes.fact("seen"));
        for name in ["hits", "roots"] {
            ensure!(outcomes.fact(name)? == &serde_json::json!([]), "{user}: {name}: {}", outcomes.fact(name)?);
        }
        outcomes.expect_refused(|name| name.starts_with("path "))?;
        let kernel = outcomes.select(|name| name.starts_with("kernel "))?;
        let shown: Vec<_> = kernel.iter().filter(|(_, seen)| !is_refusal(seen) && *seen != "did []").collect();
        ensure!(shown.is_empty(), "{user}: {shown:?}");
        let mounts = outcomes.fact("mounts")?.as_str().context("text")?;
        ensure!(mounts.contains("/workspace"), "{mounts}");
        for word in [&base, "/var/tmp", "overlay lower", "upperdir", "ext4", "/dev/vd"] {
            ensure!(!mounts.contains(word), "{user}: '{word}' is in the mount table: {mounts}");
        }
        for name in ["listing", "out of a root"] {
            let listing = outcomes.fact(name)?.as_str().context("text")?;
            let Some(listing) = listing.strip_prefix("did ") else { continue };
            let names: Vec<String> = serde_json::from_str(&listing.replace('\'', "\""))?;
            ensure!(names.iter().all(|name| ROOT.contains(&name.as_str())), "{user}: {name}: {names:?}");
        }
        ensure!(outcomes.fact("listing")?.as_str().is_some_and(|listing| listing.starts_with("did")));
        ensure!(outcomes.fact("processes")?.as_array().is_some_and(|seen| seen.len() <= 3), "more than the session");
    }
    Ok(())
}

/// A start that would put the configuration into the sandbox is refused, whatever name leads there.
fn escape_configuration_is_not_mounted() -> CaseResult {
    let prison = Prison::new("root", "")?;
    let environment = &prison.environment;
    let seen = prison.shell("find / -xdev -name config.toml -o -xdev -name test.toml -o -xdev -name profiles")?;
    ensure!(!seen.contains(".toml") && !seen.contains("lazaret"), "{seen}");
    environment.lazaret(["down", "--yes"]).run()?.ok()?;

    let refused = |directory: &Path| -> CaseResult {
        let output = environment.lazaret(["run", "--profile", "test", "--", "true"]).directory(directory).run()?;
        output.expect_code(125)?.expect_stderr("configuration")?;
        Ok(())
    };
    let configuration = environment.config().join("lazaret");
    refused(environment.directory())?;
    refused(&environment.config())?;
    refused(&configuration)?;
    refused(&configuration.join("profiles"))?;
    let alias = environment.home().join("alias");
    symlink(&configuration, &alias)?;
    refused(&alias)?;
    for host in [&environment.config(), &configuration.join("profiles"), &alias, &configuration.join("config.toml")] {
        let volume = format!("[[volumes]]\nhost = \"{}\"\nguest = \"/v\"", host.display());
        environment.profile_of("root", "test", &volume)?;
        refused(&environment.project())?;
    }
    Ok(())
}

fn escape_git_config_and_hooks() -> CaseResult {
    for user in USERS {
        let prison = Prison::new(user, "")?;
        let workspace = prison.environment.project();
        let git = workspace.join(".git");
        executable::write(&git.join("hooks/pre-commit"), "#!/bin/sh\ntouch ran-the-developers-hook\n", 0o755)?;
        let state = || -> Result<_> {
            let facts = |path: &Path| -> Result<_> {
                let facts = fs::symlink_metadata(path)?;
                Ok((facts.ino(), facts.mode(), facts.uid(), facts.nlink()))
            };
            let inodes = [facts(&git)?, facts(&git.join("config"))?, facts(&git.join("hooks"))?];
            Ok((fs::read_to_string(git.join("config"))?, project::inventory(&git.join("hooks"))?, inodes))
        };
        let before = state()?;
        let outcomes = prison.attack(include_str!("../hostile/git.py"), &[])?;
        ensure!(state()? == before, "{user}: configuration or hooks of the host changed: {:?}", state()?);
        ensure!(outcomes.fact("config seen")? == "did False", "{user}: {:?}", outcomes.fact("config seen")?);
        ensure!(outcomes.fact("hooks seen")?.as_str().is_some_and(|seen| !seen.contains("sample")));
        for name in
            ["open a", "open w", "unlink", "rename over", "rename away", "rename git", "remove hooks", "by config"]
        {
            outcomes.expect_refused(|found| found == name)?;
        }
        // The host's own Git runs the developer's hook and nothing of the sandbox's.
        project::git(&workspace, &["status"])?;
        fs::write(workspace.join("README.md"), "# changed\n")?;
        project::git(&workspace, &["commit", "--quiet", "--message", "after the attack", "README.md"])?;
        ensure!(workspace.join("ran-the-developers-hook").exists(), "{user}: the developer's hook did not run");
        ensure!(!workspace.join("pwned").exists(), "{user}: the host's Git ran what the sandbox planted");
    }
    Ok(())
}

/// Gives everything that a write to a tree would change, of every entry, also those of subordinate ids.
/// What others remove meanwhile is left out.
fn tree(directory: &Path) -> Result<String> {
    let find = Invocation::new("unshare").args(["--map-root-user", "--map-auto", "--", "find"]).arg(directory);
    let find = find.args(["-printf", "%P %i %n %m %U %G %s %T@ %C@ %l\n"]).run()?.stdout();
    let mut lines: Vec<_> = find.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

fn escape_prepared_lower_is_immutable() -> CaseResult {
    let prison = Prison::new("root", "persistent = [\"/var/lib\", \"/srv\"]")?;
    prison.shell("true")?;
    let prepared = prison.environment.storage().prepared();
    let before = tree(&prepared)?;
    ensure!(before.contains("rootfs/etc/passwd") && before.lines().count() > 3000);
    let outcomes = prison.attack(include_str!("../hostile/writes.py"), &[])?;
    ensure!(outcomes.fact("done")?.as_u64() > Some(500), "hardly anything was written: {:?}", outcomes.fact("done"));
    for name in ["chmod", "chown", "setuid", "unlink", "write link"] {
        ensure!(outcomes.fact(name)?.as_str().is_some_and(|seen| seen.starts_with("did")), "{name} had no effect");
    }
    prison.environment.lazaret(["down", "--yes"]).run()?.ok()?;
    // Other cases may prepare more meanwhile; what was complete must be as it was.
    let after = tree(&prepared)?;
    let after: std::collections::BTreeSet<_> = after.lines().collect();
    let complete = |line: &&str| line.contains("/rootfs") && !line.starts_with(".preparing");
    let changed: Vec<_> = before.lines().filter(complete).filter(|line| !after.contains(line)).collect();
    ensure!(changed.is_empty(), "{} entries changed, such as {:?}", changed.len(), &changed[..changed.len().min(5)]);
    // The next sandbox finds the image as it was.
    prison.shell("grep -q root /etc/passwd && ! test -e /etc/evil && id dev")?;
    Ok(())
}

/// A link in the workspace leads to the sandbox's own files, or nowhere.
fn escape_symlinks() -> CaseResult {
    let prison = Prison::new("root", "")?;
    let environment = &prison.environment;
    let (workspace, home) = (environment.project(), environment.home());
    fs::write(home.join("secret"), MARK)?;
    fs::create_dir(home.join("target"))?;
    let up = "../".repeat(30);
    let links = [
        ("passwd", "/etc/passwd".to_owned()),
        ("absolute", home.join("secret").display().to_string()),
        ("above", "../secret".to_owned()),
        ("far", format!("{up}{}", home.join("secret").display())),
        ("directory", home.join("target").display().to_string()),
        ("above-directory", "../target".to_owned()),
        ("process", "/proc/1/root/etc/passwd".to_owned()),
    ];
    for (name, target) in &links {
        symlink(target, workspace.join(name))?;
    }
    fs::create_dir(workspace.join("sub"))?;
    let read = prison.shell("for f in absolute above far; do cat $f; done 2>&1; cat passwd; true")?;
    ensure!(!read.contains(MARK) && read.matches("No such file").count() == 3, "{read}");
    ensure!(read.contains("dev:x:1000") && !read.contains("lazaret-test"), "the host's users are seen: {read}");
    prison.shell(
        "echo pwned > passwd; echo pwned > process; for f in absolute above far; do echo pwned > $f; done; \
                  for d in directory above-directory; do touch $d/pwned; mkdir -p $d/made; done; true",
    )?;
    ensure!(fs::read_to_string(home.join("secret"))? == MARK, "a file of the host was written");
    ensure!(fs::read_dir(home.join("target"))?.next().is_none(), "a directory of the host was written");
    // A directory that is swapped for a link while the sandbox uses it leads nowhere either.
    let swap = "import os, time\nend = time.monotonic() + 0.5\n\
        while time.monotonic() < end:\n  \
          for step in [lambda: os.rename('sub', 'sub2'), lambda: os.symlink('../target', 'sub'), lambda: open('sub/pwned', 'w'),\
                       lambda: os.unlink('sub'), lambda: os.rename('sub2', 'sub'), lambda: open('sub/fine', 'w')]:\n    \
            try: step()\n    \
            except OSError: pass\n";
    environment.lazaret(["run", "--", "python3", "-c", swap]).run()?.ok()?;
    ensure!(fs::read_dir(home.join("target"))?.next().is_none(), "a directory of the host was written in a race");
    Ok(())
}

/// A link that one session left where the next generation mounts something leads nowhere on the host.
fn escape_planted_mount_points() -> CaseResult {
    let prison = Prison::new("root", "persistent = [\"/home/dev\"]")?;
    let environment = &prison.environment;
    let (target, volume) = (environment.home().join("target"), environment.home().join("volume"));
    for directory in [&target, &volume] {
        fs::create_dir(directory)?;
    }
    fs::write(volume.join("content"), "of the volume")?;
    let planted = format!(
        "ln -s {} /home/dev/absolute; ln -s ../../../../../../../..{} /home/dev/far",
        target.display(),
        target.display()
    );
    prison.shell(&planted)?;
    environment.lazaret(["down", "--yes"]).run()?.ok()?;
    for guest in ["/home/dev/absolute", "/home/dev/absolute/deep/er", "/home/dev/far/deep"] {
        let profile = format!(
            "persistent = [\"/home/dev\"]\n[[volumes]]\nhost = \"~/volume\"\nguest = \"{guest}\"\naccess = \"rw\""
        );
        environment.profile_of("root", "test", &profile)?;
        let output = environment.in_sandbox(&format!("cat {guest}/content")).run()?;
        // Refused or mounted where the sandbox sees it; never on the host's side.
        ensure!(output.code() == 125 || output.stdout() == "of the volume", "{output}");
        ensure!(fs::read_dir(&target)?.next().is_none(), "{guest}: something was made on the host");
    }
    Ok(())
}
