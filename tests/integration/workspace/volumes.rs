//! Volumes: host directories and files at a place in the sandbox, read-only unless the profile says otherwise.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::harness::sessions::hold;
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("volumes_are_read_only_or_writable", &[Need::Sandbox], volumes_are_read_only_or_writable),
        case("a_file_can_be_a_volume", &[Need::Sandbox], a_file_can_be_a_volume),
        case("volumes_nest", &[Need::Sandbox], volumes_nest),
        case("a_volume_is_where_its_link_pointed", &[Need::Sandbox], a_volume_is_where_its_link_pointed),
    ]
}

fn volume(host: &Path, guest: &str, access: &str) -> String {
    format!("[[volumes]]\nhost = \"{}\"\nguest = \"{guest}\"\naccess = \"{access}\"\n", host.display())
}

/// Makes a directory with a file in it, below the home directory.
fn directory(environment: &Environment, name: &str) -> Result<std::path::PathBuf> {
    let directory = environment.home().join(name);
    fs::create_dir_all(directory.join("sub"))?;
    fs::write(directory.join("file"), format!("{name}\n"))?;
    Ok(directory)
}

fn volumes_are_read_only_or_writable() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let (read, write) = (directory(&environment, "read")?, directory(&environment, "write")?);
    let plain = format!("[[volumes]]\nhost = \"{}\"\nguest = \"/made/on/the/way\"\n", read.display());
    let text = plain + &volume(&read, "/opt/read", "ro") + &volume(&write, "/opt/write", "rw");
    environment.profile("test", &text)?;
    for place in ["/opt/read", "/made/on/the/way"] {
        for attempt in ["echo x > file", "echo x > new", "rm file", "mv file sub/", "chmod 777 sub", "touch file"] {
            let output = environment.lazaret(["run", "--", "sh", "-c", &format!("cd {place} && {attempt}")]).run()?;
            ensure!(output.code() != 0 && output.stderr().contains("Read-only file system"), "{place}: {output}");
        }
        environment.in_sandbox(&format!("cat {place}/file")).run()?.ok()?.expect_stdout("read\n")?;
    }
    let script =
        "cd /opt/write && cat file && echo new > new && mkdir made && mv new made/ && rm file && stat -c %U made";
    environment.in_sandbox(script).run()?.ok()?.expect_stdout("write\ndev\n")?;
    ensure!(fs::read_to_string(write.join("made/new"))? == "new\n" && !write.join("file").exists());
    ensure!(fs::metadata(write.join("made"))?.uid() == nix::unistd::getuid().as_raw());
    ensure!(fs::read_dir(&read)?.count() == 2, "the read-only volume was changed");
    Ok(())
}

fn a_file_can_be_a_volume() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let (read, write) = (environment.home().join("read.txt"), environment.home().join("write.txt"));
    fs::write(&read, "read\n")?;
    fs::write(&write, "write\n")?;
    let text = volume(&read, "/etc/given.txt", "ro") + &volume(&write, "/opt/new/write.txt", "rw");
    environment.profile("test", &text)?;
    let output =
        environment.in_sandbox("cat /etc/given.txt /opt/new/write.txt; echo x >> /opt/new/write.txt").run()?.ok()?;
    ensure!(output.stdout() == "read\nwrite\n" && fs::read_to_string(&write)? == "write\nx\n", "{output}");
    for attempt in ["echo x > /etc/given.txt", "rm -f /etc/given.txt", "mv /etc/given.txt /etc/other"] {
        let output = environment.in_sandbox(attempt).run()?;
        ensure!(output.code() != 0, "went through: {output}");
    }
    ensure!(fs::read_to_string(&read)? == "read\n");
    Ok(())
}

fn volumes_nest() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let (outer, inner) = (directory(&environment, "outer")?, directory(&environment, "inner")?);
    let text = "persistent = [\"/home/dev\"]\n".to_owned()
        + &volume(&outer, "/data", "ro")
        + &volume(&inner, "/data/sub", "rw")
        + &volume(&inner, "/home/dev/given", "ro");
    environment.profile("test", &text)?;
    let script = "cat /data/file /data/sub/file /home/dev/given/file; echo x > /data/sub/new; cat /home/dev/given/new; \
         echo kept > /home/dev/kept; ! echo x > /data/new";
    let output = environment.in_sandbox(script).run()?.ok()?;
    ensure!(output.stdout() == "outer\ninner\ninner\nx\n", "{output}");
    ensure!(fs::read_dir(outer.join("sub"))?.count() == 0, "written below the inner volume");
    ensure!(inner.join("new").exists());
    environment.in_sandbox("cat /home/dev/kept").run()?.ok()?.expect_stdout("kept\n")?;
    Ok(())
}

fn a_volume_is_where_its_link_pointed() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let (one, two) = (directory(&environment, "one")?, directory(&environment, "two")?);
    let link = environment.home().join("link");
    symlink(&one, &link)?;
    environment.profile("test", &volume(&link, "/data", "rw"))?;
    let held = hold(&environment, &[])?;
    fs::remove_file(&link)?;
    symlink(&two, &link)?;
    // What runs keeps what it was started with, and says that the configuration is another one now.
    let joined = environment.in_sandbox("cat /data/file").run()?.expect_code(125)?;
    ensure!(joined.stderr().contains("different configuration"), "{joined}");
    environment.lazaret(["attach", "--", "cat", "/data/file"]).run()?.ok()?.expect_stdout("one\n")?;
    drop(held);
    environment.lazaret(["down", "--yes"]).run()?.ok()?;
    environment.in_sandbox("cat /data/file").run()?.ok()?.expect_stdout("two\n")?;
    // A link in the sandbox leads to the sandbox's files.
    symlink(environment.home(), two.join("out"))?;
    let followed = environment.in_sandbox("ls /data/out/").run()?;
    ensure!(followed.code() != 0, "{followed}");
    Ok(())
}
