//! Persistent paths: what a sandbox writes there is there again, and nothing else is.

use std::time::Duration;

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::harness::sessions::hold;
use crate::harness::{Case, CaseResult, Environment, Need, Output, case, leftovers};

pub fn cases() -> Vec<Case> {
    vec![
        case("persistent_paths_persist", &[Need::Sandbox], persistent_paths_persist),
        case("they_survive_the_loss_of_everything", &[Need::Sandbox], they_survive_the_loss_of_everything),
        case("nothing_else_persists", &[Need::Sandbox], nothing_else_persists),
        case("they_have_the_right_owner", &[Need::Sandbox], they_have_the_right_owner),
        case("each_can_be_reset_alone", &[Need::Sandbox], each_can_be_reset_alone),
        case("each_domain_has_its_own", &[Need::Sandbox], each_domain_has_its_own),
        case("root_s_home_persists", &[Need::Sandbox], root_s_home_persists),
        case("an_installation_persists", &[Need::Sandbox], an_installation_persists),
        case("what_is_removed_stays_removed", &[Need::Sandbox], what_is_removed_stays_removed),
        case("a_path_that_is_no_directory", &[Need::Sandbox], a_path_that_is_no_directory),
    ]
}

/// Runs a script in a Domain that is down before and after.
fn generation(environment: &Environment, profile: &str, script: &str) -> Result<Output> {
    let run = environment.lazaret(["run", "-p", profile, "--", "sh", "-c", script]).deadline(Duration::from_secs(180));
    let output = run.run()?.ok()?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    Ok(output)
}

fn persistent(environment: &Environment, paths: &str) -> Result<()> {
    environment.profile("test", &format!("persistent = {paths}\n"))
}

fn persistent_paths_persist() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    persistent(&environment, r#"["/home/dev", "/srv/not/in the image", "/var/cache"]"#)?;
    let script = "echo 1 > /home/dev/one; mkdir -p '/srv/not/in the image/deep'; echo 2 > '/srv/not/in the image/deep/two'; \
         ls -A /var/cache | head -1";
    let first = generation(&environment, "test", script)?;
    ensure!(!first.stdout().trim().is_empty(), "what the image has is not there: {first}");
    let script = "cat /home/dev/one '/srv/not/in the image/deep/two'; ls -A /home/dev | grep -c bashrc; ls -A /var/cache | head -1";
    let second = generation(&environment, "test", script)?;
    ensure!(second.stdout() == format!("1\n2\n1\n{}", first.stdout()), "{second}");
    Ok(())
}

fn they_survive_the_loss_of_everything() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    persistent(&environment, r#"["/home/dev"]"#)?;
    let held = hold(&environment, &[])?;
    let script = "seq 1 100000 > /home/dev/numbers; sha256sum < /home/dev/numbers; touch /home/dev/.profile; rm /home/dev/.bashrc";
    let written = environment.in_sandbox(script).run()?.ok()?;
    environment.processes().iter().for_each(leftovers::Process::kill);
    drop(held);
    let read =
        generation(&environment, "test", "sha256sum < /home/dev/numbers; ls /home/dev/.bashrc 2>/dev/null | wc -l")?;
    ensure!(read.stdout() == format!("{}0\n", written.stdout()), "{read}\n{written}");
    Ok(())
}

fn nothing_else_persists() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    persistent(&environment, r#"["/home/dev/kept"]"#)?;
    let places = "/home/dev /tmp /var/tmp /dev/shm /home/dev/kept /workspace /run/lock";
    generation(&environment, "test", &format!("for d in {places}; do echo x > $d/mark || echo $d; done"))?;
    let found = generation(&environment, "test", &format!("for d in {places}; do ls $d/mark 2>/dev/null; done; true"))?;
    ensure!(found.stdout() == "/home/dev/kept/mark\n/workspace/mark\n", "{found}");
    let root = environment.domain_root()?;
    let names: Vec<_> = fs::read_dir(root.path())?.flatten().map(|entry| entry.file_name()).collect();
    let allowed = ["identity.json", "lock", "logs", "state", "store.redb"];
    let more: Vec<_> = names.iter().filter(|name| !allowed.iter().any(|allowed| name == allowed)).collect();
    ensure!(more.is_empty(), "left in the Domain Root: {more:?}");
    Ok(())
}

fn they_have_the_right_owner() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    persistent(&environment, r#"["/srv/new", "/usr/local", "/home/dev", "/tmp"]"#)?;
    let stat = "stat -c '%U:%G %a %n' /srv /srv/new /usr/local /home/dev /tmp";
    let expected = "root:root 755 /srv\ndev:dev 755 /srv/new\nroot:root 755 /usr/local\ndev:dev XXX /home/dev\nroot:root 1777 /tmp\n";
    let first = generation(&environment, "test", &format!("{stat}; chmod 700 /srv/new; echo x > /tmp/kept"))?;
    let home = first.stdout().lines().nth(3).and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    ensure!(first.stdout() == expected.replace("XXX", &home), "{first}");
    let second = generation(&environment, "test", &format!("{stat}; cat /tmp/kept"))?;
    let changed = first.stdout().replace("755 /srv/new", "700 /srv/new");
    ensure!(second.stdout() == format!("{changed}x\n"), "{second}");
    Ok(())
}

fn each_can_be_reset_alone() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    persistent(&environment, r#"["/srv/one", "/srv/two"]"#)?;
    generation(
        &environment,
        "test",
        "echo 1 > /srv/one/mark; echo 2 > /srv/two/mark; mv /srv/one/mark /srv/two/moved; cp /srv/two/moved /srv/one/mark",
    )?;
    let anchors: Vec<_> =
        fs::read_dir(environment.domain_root()?.anchors())?.flatten().map(|entry| entry.path()).collect();
    let path_of = |anchor: &std::path::PathBuf| fs::read_to_string(anchor.join("path")).unwrap_or_default();
    ensure!(anchors.len() == 2, "{anchors:?}");
    let one = anchors.iter().find(|anchor| path_of(anchor) == "/srv/one");
    fs::rename(one.expect("each says which path it is"), environment.home().join("saved"))?;
    let found = generation(&environment, "test", "ls /srv/one; cat /srv/two/mark /srv/two/moved")?;
    ensure!(found.stdout() == "2\n1\n", "{found}");
    // Taken out of the profile it rests, and is there again when it comes back.
    persistent(&environment, r#"["/srv/one"]"#)?;
    generation(&environment, "test", "test ! -e /srv/two")?;
    persistent(&environment, r#"["/srv/two"]"#)?;
    generation(&environment, "test", "cat /srv/two/mark")?.expect_stdout("2\n")?;
    Ok(())
}

fn each_domain_has_its_own() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    persistent(&environment, r#"["/srv/kept"]"#)?;
    environment.profile("other", "persistent = [\"/srv/kept\"]\n")?;
    let elsewhere = environment.another_project("elsewhere")?;
    generation(&environment, "test", "echo mine > /srv/kept/mark")?;
    generation(&environment, "other", "test ! -e /srv/kept/mark")?;
    let run = environment.lazaret(["run", "--", "test", "-e", "/srv/kept/mark"]).directory(&elsewhere);
    run.run()?.expect_code(1)?;
    generation(&environment, "test", "cat /srv/kept/mark")?.expect_stdout("mine\n")?;
    Ok(())
}

/// A profile with the image's root as its user.
fn as_root(environment: &Environment, more: &str) -> Result<()> {
    let image = environment.image_reference();
    let text = format!("image = \"{image}\"\nuser = \"root\"\n{more}\n[workspace]\nisolate_ignored = false\n");
    environment.write_profile("root", &text)
}

fn root_s_home_persists() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    as_root(&environment, "persistent = [\"/root\", \"/home/dev\"]")?;
    let script = "cd; pwd; stat -c '%U %a' . /home/dev; git config --global user.name Somebody; \
         install -o dev -g dev -m 600 /dev/null /home/dev/of-dev; echo secret > .secret; chmod 600 .secret";
    let first = generation(&environment, "root", script)?;
    ensure!(first.stdout().starts_with("/root\nroot 700\ndev "), "{first}");
    let script = "cd; git config user.name; stat -c '%U:%G %a' .secret /home/dev/of-dev; cat .secret";
    let second = generation(&environment, "root", script)?;
    ensure!(second.stdout() == "Somebody\nroot:root 600\ndev:dev 600\nsecret\n", "{second}");
    Ok(())
}

/// The ways in which package managers write: whole trees, links, owners, modes, renames over what is there.
fn an_installation_persists() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    as_root(&environment, "persistent = [\"/usr/local\", \"/var/lib/dpkg\", \"/opt\"]")?;
    let install = r#"
set -e
mkdir -p /tmp/p/usr/local/bin /tmp/p/usr/local/lib/tool /tmp/p/opt/tool/bin
printf '#!/bin/sh\necho installed\n' > /tmp/p/usr/local/bin/tool; chmod 755 /tmp/p/usr/local/bin/tool
ln /tmp/p/usr/local/bin/tool /tmp/p/usr/local/bin/tool-1.0
ln -s ../../opt/tool/bin /tmp/p/usr/local/lib/tool/bin
head -c 3000000 /dev/urandom > /tmp/p/opt/tool/bin/data; chown -R dev:dev /tmp/p/opt/tool; chmod 4755 /tmp/p/usr/local/lib/tool
tar -C /tmp/p -cf - . | tar -C / -xpf - --keep-directory-symlink
cp /var/lib/dpkg/status /var/lib/dpkg/status-new; echo >> /var/lib/dpkg/status-new
mv -f /var/lib/dpkg/status-new /var/lib/dpkg/status
mkdir -p /var/lib/dpkg/updates/tmp; rmdir /var/lib/dpkg/updates/tmp; sync
"#;
    let look = "tool; tool-1.0; stat -c '%h %U:%G %a' /usr/local/bin/tool /opt/tool/bin/data /usr/local/lib/tool; \
        readlink /usr/local/lib/tool/bin; sha256sum /opt/tool/bin/data /var/lib/dpkg/status; dpkg -s coreutils | head -1; \
        find /usr/local /opt /var/lib/dpkg | sort | sha256sum";
    let first = generation(&environment, "root", &format!("{install}\n{look}"))?;
    ensure!(first.stdout().starts_with("installed\ninstalled\n2 root:root 755\n1 dev:dev "), "{first}");
    let second = generation(&environment, "root", look)?;
    ensure!(second.stdout() == first.stdout(), "{second}\nwas\n{first}");
    Ok(())
}

fn what_is_removed_stays_removed() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    as_root(&environment, "persistent = [\"/usr/share\"]")?;
    let script = "cd /usr/share; rm -rf doc; rm base-files/motd; mkdir doc; echo new > doc/only; mv perl5 moved 2>/dev/null; ls | sort | sha256sum";
    let first = generation(&environment, "root", script)?;
    let script = "cd /usr/share; ls doc; test ! -e base-files/motd; ls | sort | sha256sum";
    let second = generation(&environment, "root", script)?;
    ensure!(second.stdout() == format!("only\n{}", first.stdout()), "{second}\n{first}");
    Ok(())
}

fn a_path_that_is_no_directory() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    persistent(&environment, r#"["/usr/bin/env"]"#)?;
    let refused = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
    ensure!(refused.stderr().contains("/usr/bin/env"), "{refused}");
    environment.expect_nothing_left(Duration::from_secs(2))?;
    // A link in the image leads to its place in the image: /var/lock is one to /run/lock.
    persistent(&environment, r#"["/var/lock/deep"]"#)?;
    generation(&environment, "test", "echo x > /run/lock/deep/mark")?;
    generation(&environment, "test", "cat /var/lock/deep/mark")?.expect_stdout("x\n")?;
    Ok(())
}
