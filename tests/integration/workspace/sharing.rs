//! Files are the same on both sides, at once, and belong to the developer.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::harness::sessions::{START, hold};
use crate::harness::{Case, CaseResult, Environment, Need, case, project, wait_until};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("edits_are_seen_on_both_sides", &[Need::Sandbox], edits_are_seen_on_both_sides),
        case("files_belong_to_the_developer", &[Need::Sandbox], files_belong_to_the_developer),
        case("files_of_root_belong_to_the_developer", &[Need::Sandbox], files_of_root_belong_to_the_developer),
        case("modes_and_links_are_kept", &[Need::Sandbox], modes_and_links_are_kept),
        case("case_c13_hard_links", &[Need::Sandbox], case_c13_hard_links),
        case("a_commit_is_seen_outside", &[Need::Sandbox], a_commit_is_seen_outside),
        case("ignored_paths_are_shared_on_agreement", &[Need::Sandbox], ignored_paths_are_shared_on_agreement),
    ]
}

/// Each step waits for the other side, so that none can pass by what was there before.
fn edits_are_seen_on_both_sides() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let project = environment.project();
    let script = "await() { until test \"$(cat \"$1\" 2>/dev/null)\" = \"$2\"; do :; done; }
        echo inside > made-inside
        await made-outside outside
        echo again >> made-inside; mv README.md moved; rm src/main.py
        await made-outside changed
        await renamed/by-host renamed
        ! test -e made-outside-too || exit 3
        echo done > finished";
    let inside = environment.in_sandbox(script).spawn()?;
    let step = |what: &str, holds: &dyn Fn() -> bool| wait_until(what, START, holds);
    let content = |name: &str| fs::read_to_string(project.join(name)).unwrap_or_default();
    step("the host sees a new file", &|| content("made-inside") == "inside\n")?;
    fs::write(project.join("made-outside-too"), "")?;
    fs::write(project.join("made-outside"), "outside\n")?;
    step("the host sees the file grow", &|| content("made-inside") == "inside\nagain\n")?;
    step("the host sees a rename and a removal", &|| {
        content("moved") == "# sample\n" && !project.join("README.md").exists() && !project.join("src/main.py").exists()
    })?;
    fs::remove_file(project.join("made-outside-too"))?;
    fs::create_dir(project.join("new"))?;
    fs::write(project.join("new/by-host"), "renamed\n")?;
    fs::rename(project.join("new"), project.join("renamed"))?;
    // In place, and in the way of editors: a new file in the old one's place.
    fs::write(project.join("made-outside.new"), "changed\n")?;
    fs::rename(project.join("made-outside.new"), project.join("made-outside"))?;
    inside.wait(START)?.ok()?;
    ensure!(content("finished") == "done\n");
    Ok(())
}

fn developer() -> (u32, u32) {
    (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw())
}

fn files_belong_to_the_developer() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let script = "id -un; mkdir d; echo x > d/f; ln -s f d/l; stat -c '%U:%G %n' . README.md d d/f";
    let output = environment.in_sandbox(script).run()?.ok()?;
    let expected = "dev\ndev:dev .\ndev:dev README.md\ndev:dev d\ndev:dev d/f\n";
    ensure!(output.stdout() == expected, "{output}");
    for path in ["d", "d/f", "d/l"] {
        let metadata = fs::symlink_metadata(environment.project().join(path))?;
        ensure!((metadata.uid(), metadata.gid()) == developer(), "{path} belongs to {}", metadata.uid());
    }
    Ok(())
}

fn files_of_root_belong_to_the_developer() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let text = format!(
        "image = \"{}\"\nuser = \"root\"\n[workspace]\nisolate_ignored = false\n",
        environment.image_reference()
    );
    environment.write_profile("root", &text)?;
    let script = "id -un; stat -c '%U:%G' README.md; echo x > by-root; echo x > given; chown dev:dev given; stat -c '%U:%G' given";
    let run = environment.lazaret(["run", "-p", "root", "--", "sh", "-c", script]).deadline(Duration::from_secs(180));
    let output = run.run()?.ok()?;
    ensure!(output.stdout() == "root\nroot:root\ndev:dev\n", "{output}");
    let owner = |name: &str| -> Result<(u32, u32)> {
        let metadata = fs::metadata(environment.project().join(name))?;
        Ok((metadata.uid(), metadata.gid()))
    };
    ensure!(owner("by-root")? == developer(), "by-root belongs to {:?}", owner("by-root")?);
    // As docs/limits.md says: another guest user is a subordinate id on the host.
    let (uid, gid) = owner("given")?;
    ensure!(uid >= 100_000 && gid >= 100_000, "given belongs to {uid}:{gid}");
    environment.lazaret(["run", "-p", "root", "--", "rm", "given"]).run()?.ok()?;
    Ok(())
}

fn modes_and_links_are_kept() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let project = environment.project();
    let script = "umask 022; echo '#!/bin/sh' > tool; chmod +x tool; mkdir d; echo x > plain
        umask 077; echo x > secret
        umask 0; echo x > open; mkdir wide; chmod 2775 wide; chmod 1777 d
        ln -s ../elsewhere link; ln -s /etc/passwd absolute; truncate -s 5G sparse; touch -d '2001-02-03 04:05:06Z' old";
    environment.in_sandbox(script).run()?.ok()?;
    let expected =
        [("tool", 0o755), ("plain", 0o644), ("secret", 0o600), ("open", 0o666), ("wide", 0o2775), ("d", 0o1777)];
    for (name, mode) in expected {
        let found = fs::metadata(project.join(name))?.permissions().mode() & 0o7777;
        ensure!(found == mode, "{name} has mode {found:o} instead of {mode:o}");
    }
    ensure!(fs::read_link(project.join("link"))?.as_os_str() == "../elsewhere");
    // A link is text: what it names inside is not what it names outside, and nothing follows it for us.
    ensure!(fs::read_link(project.join("absolute"))?.as_os_str() == "/etc/passwd");
    let sparse = fs::metadata(project.join("sparse"))?;
    ensure!(sparse.len() == 5 << 30 && sparse.blocks() < 1000, "{} bytes in {} blocks", sparse.len(), sparse.blocks());
    let old = fs::metadata(project.join("old"))?.mtime();
    ensure!(old == 981_173_106, "modified at {old}");
    fs::set_permissions(project.join("plain"), std::fs::Permissions::from_mode(0o640))?;
    fs::write(project.join("spaced name\n\u{e9}"), "x")?;
    let output = environment.in_sandbox("stat -c %a plain tool; cat spaced*").run()?.ok()?;
    ensure!(output.stdout() == "640\n755\nx", "{output}");
    Ok(())
}

fn case_c13_hard_links() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let volume = environment.home().join("volume");
    fs::create_dir(&volume)?;
    let volumes = format!("[[volumes]]\nhost = \"{}\"\nguest = \"/data\"\naccess = \"rw\"\n", volume.display());
    environment.profile("test", &format!("persistent = [\"/home/dev\", \"/srv/kept\"]\n{volumes}"))?;
    fs::create_dir(environment.project().join("build"))?;
    let script = r#"
import errno, os
places = {"image": "/var/tmp", "tracked": "/workspace/src", "ignored": "/workspace/build",
          "home": "/home/dev", "kept": "/srv/kept", "volume": "/data"}
same = {"tracked": "workspace", "ignored": "workspace"}
for name, place in places.items():
    with open(place + "/original", "w") as file:
        file.write(name)
for one, source in places.items():
    for two, target in places.items():
        try:
            os.link(source + "/original", target + "/linked-from-" + one)
            said = "linked %d" % os.stat(source + "/original").st_nlink
            with open(target + "/linked-from-" + one, "a") as file:
                file.write("+" + two)
        except OSError as error:
            said = errno.errorcode[error.errno]
        expected = same.get(one, one) == same.get(two, two)
        if expected != said.startswith("linked") or not expected and said != "EXDEV":
            print(one, "to", two, said)
    # A file of the image itself, which lies in the layer below.
print(open("/workspace/src/original").read(), os.stat("/workspace/src/original").st_nlink)
"#;
    let run = environment.lazaret(["run", "--", "python3", "-c", script]);
    let output = run.run()?.ok()?;
    ensure!(output.stdout() == "tracked+tracked+ignored 3\n", "{output}");
    let inodes: Vec<_> = ["src/original", "src/linked-from-tracked", "build/linked-from-tracked"]
        .into_iter()
        .map(|name| Ok(fs::metadata(environment.project().join(name))?.ino()))
        .collect::<Result<_>>()?;
    ensure!(inodes.iter().all(|inode| *inode == inodes[0]), "links are copies on the host: {inodes:?}");
    // Tools that meet EXDEV copy instead.
    environment.in_sandbox("mv /home/dev/original /workspace/moved && cat /workspace/moved").run()?.ok()?;
    ensure!(fs::read_to_string(environment.project().join("moved"))? == "home+home");
    // Image files: one link more of a file that the image has, in its own directory.
    let script = "cp /bin/true /var/tmp/a && ln /var/tmp/a /var/tmp/b && ln /etc/hostname /var/tmp/x; echo $?";
    drop(environment.in_sandbox(script).run()?.ok()?);
    Ok(())
}

fn a_commit_is_seen_outside() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let project = environment.project();
    let script = "git status --porcelain && echo more >> README.md && git checkout -q -b topic && \
         git commit -qam 'from inside' && git log --format=%s -1 && git stash list && git gc -q";
    let output = environment.in_sandbox(script).run()?.ok()?;
    ensure!(output.stdout() == "from inside\n", "{output}");
    let log = project::git(&project, &["log", "--format=%s|%an", "topic"])?;
    ensure!(log == "from inside|Test Developer\nsample project|Test Developer\n", "{log}");
    ensure!(project::git(&project, &["fsck", "--strict"])?.is_empty());
    ensure!(project::git(&project, &["status", "--porcelain"])?.is_empty(), "the host's Git sees changes");
    // And back.
    let held = hold(&environment, &[])?;
    fs::write(project.join("README.md"), "rewritten\n")?;
    project::git(&project, &["commit", "-qam", "from outside"])?;
    let seen = environment.in_sandbox("git log -1 --format=%s; git status --porcelain").run()?.ok()?;
    ensure!(seen.stdout() == "from outside\n", "{seen}");
    drop(held);
    Ok(())
}

fn ignored_paths_are_shared_on_agreement() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    fs::create_dir(environment.project().join("build"))?;
    fs::write(environment.project().join("build/host"), "host\n")?;
    let up = environment.lazaret(["up", "--", "sh", "-c", "cat build/host; echo guest > build/guest"]).run()?.ok()?;
    ensure!(up.stdout() == "host\n" && fs::read_to_string(environment.project().join("build/guest"))? == "guest\n");
    let said = up.stderr();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("Git-ignored paths are shared")).collect();
    ensure!(lines.len() == 1, "not said in one line\n{up}");
    for workspace in ["[workspace]\n", "[workspace]\nisolate_ignored = true\n"] {
        environment.profile("test", workspace)?;
        for command in ["up", "run"] {
            let refused = environment.lazaret([command, "--", "true"]).run()?.expect_code(125)?;
            ensure!(refused.stderr().contains("Git-ignored paths can't be kept apart"), "{refused}");
            let hint = "write 'isolate_ignored = false' below [workspace] in the profile";
            ensure!(refused.stderr().contains(hint), "{refused}");
        }
        environment.lazaret(["config", "check"]).run()?.ok().context("it is a valid profile all the same")?;
    }
    environment.expect_nothing_left(Duration::from_secs(2))
}
