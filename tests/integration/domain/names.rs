//! A workspace may have any name, lie anywhere and be no repository.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;
use lazaret::domain::escaped::escape;

use crate::harness::sessions::hold;
use crate::harness::world::world;
use crate::harness::{Case, CaseResult, Environment, Need, case};
use crate::images::fixture::{Image, Layer};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a_workspace_may_have_an_odd_name", &[Need::Sandbox], a_workspace_may_have_an_odd_name),
        case("a_workspace_may_have_a_name_that_is_no_text", &[Need::Sandbox], a_name_that_is_no_text),
        case("a_volume_may_have_an_odd_name", &[Need::Sandbox], a_volume_may_have_an_odd_name),
        case("the_storage_root_may_have_an_odd_name", &[Need::Sandbox], the_storage_root_may_have_an_odd_name),
        case("a_subdirectory_is_where_the_command_runs", &[Need::Sandbox], a_subdirectory),
        case("a_workspace_needs_no_repository", &[Need::Sandbox], a_workspace_needs_no_repository),
    ]
}

/// What separates or quotes options of mount(2), of overlayfs, of shells, of tables and of terminals.
const ODD: &str = "-a b\t'c\" d:e,f\\g\\040h$(i)`j`%s&k=l\nm\u{1b}[31mn\u{202e}é";

fn works_as_workspace(environment: &Environment, name: &OsStr) -> CaseResult {
    let workspace = environment.home().join(name);
    fs::create_dir(&workspace)?;
    fs::write(workspace.join("from-outside"), "outside\n")?;
    let run = |script: &str| environment.lazaret(["run", "--", "sh", "-c", script]).directory(&workspace).run();
    let output = run("pwd; cat from-outside; echo inside > from-inside; hostname")?.ok()?;
    ensure!(output.stdout().starts_with("/workspace\noutside\n"), "{output}");
    let hostname = output.stdout().lines().nth(2).unwrap_or_default().to_owned();
    ensure!(!hostname.is_empty() && hostname.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{output}");
    ensure!(!output.stderr().contains(['\u{1b}', '\u{202e}']), "the name reaches the terminal as it is\n{output}");
    ensure!(fs::read_to_string(workspace.join("from-inside"))? == "inside\n");
    let held = environment.lazaret(["run", "--", "sh", "-c", "echo held; cat"]).directory(&workspace).spawn()?;
    held.wait_stdout("held", crate::harness::sessions::START)?;
    let status = environment.lazaret(["status", "--json"]).directory(&workspace).run()?.ok()?;
    let json: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    ensure!(json["state"] == "running" && json["workspace"] == escape(workspace.as_os_str().as_bytes()), "{json}");
    let human = environment.lazaret(["ls"]).run()?.ok()?.stdout();
    ensure!(!human.contains(['\u{1b}', '\u{202e}']) && human.lines().count() == 2, "{human}");
    environment.lazaret(["down", "--yes"]).directory(&workspace).run()?.ok()?;
    Ok(())
}

fn a_workspace_may_have_an_odd_name() -> CaseResult {
    works_as_workspace(&Environment::with_prepared_image()?, OsStr::new(ODD))
}

fn a_name_that_is_no_text() -> CaseResult {
    works_as_workspace(&Environment::with_prepared_image()?, OsStr::from_bytes(b"\xff\xfe no, text\x80:\\x"))
}

fn a_volume_may_have_an_odd_name() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let volume = environment.home().join(ODD);
    fs::create_dir(&volume)?;
    fs::write(volume.join("given"), "given\n")?;
    // JSON's escapes are TOML's for every character here.
    let host = serde_json::to_string(&volume)?;
    environment
        .profile("test", &format!("[[volumes]]\nhost = {host}\nguest = \"/given to\\tall:x,y\"\naccess = \"rw\"\n"))?;
    let output =
        environment.in_sandbox("cat '/given to\tall:x,y/given'; echo back > '/given to\tall:x,y/taken'").run()?.ok()?;
    ensure!(output.stdout() == "given\n", "{output}");
    ensure!(fs::read_to_string(volume.join("taken"))? == "back\n");
    Ok(())
}

/// With an image of one static executable, since it is prepared anew.
fn the_storage_root_may_have_an_odd_name() -> CaseResult {
    let environment = Environment::new()?;
    let executable = fs::read(world().guest())?;
    let image = environment.directory().join("image");
    let layer = Layer::base().directory("bin", 0o755, 0).file("bin/tool", &executable, 0o755, 0);
    let (reference, _) = Image::new([layer]).write_layout(&image)?;
    environment.write_profile(
        "test",
        &format!(
            "image = \"{reference}\"\nuser = \"dev\"\npersistent = [\"/home\", \"/odd, path:x\\\\y\"]\n\
             [workspace]\nisolate_ignored = false\n",
        ),
    )?;
    let data = environment.directory().join(ODD);
    // It says what it is used for; that it speaks at all is what counts.
    let run = || environment.lazaret(["run", "--", "/bin/tool"]).env("XDG_DATA_HOME", &data).run();
    let spoken = "a sandbox's own processes have no use for this program";
    run()?.expect_stderr(spoken)?;
    run()?.expect_stderr(spoken)?;
    ensure!(fs::read_dir(data.join("lazaret/domains"))?.count() == 1, "the state is elsewhere");
    // The layer has no entry for the root itself, as many have not.
    for prepared in fs::read_dir(data.join("lazaret/prepared"))? {
        let mode = fs::metadata(prepared?.path().join("rootfs"))?.permissions().mode() & 0o7777;
        ensure!(mode == 0o755, "an implied root directory has mode {mode:o}");
    }
    let latin = environment.directory().join(OsStr::from_bytes(b"lat\xefn"));
    let refused = environment.lazaret(["status"]).env("XDG_DATA_HOME", &latin).run()?.expect_code(125)?;
    ensure!(
        refused.stderr().contains("is not named in UTF-8") && refused.stderr().contains("XDG_DATA_HOME"),
        "{refused}"
    );
    Ok(())
}

fn directory_inside(environment: &Environment, arguments: &[&str], directory: &Path) -> Result<String> {
    let run = environment.lazaret(["run"]).args(arguments).args(["--", "pwd"]).directory(directory);
    Ok(run.run()?.ok()?.stdout())
}

fn a_subdirectory() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let held = hold(&environment, &[])?;
    let project = environment.project();
    let odd = project.join("src").join(ODD);
    fs::create_dir(&odd)?;
    let above = project.display().to_string();
    ensure!(directory_inside(&environment, &[], &project)? == "/workspace\n");
    ensure!(directory_inside(&environment, &[], &project.join("src"))? == "/workspace/src\n");
    ensure!(directory_inside(&environment, &[], &odd)? == format!("/workspace/src/{ODD}\n"));
    ensure!(directory_inside(&environment, &["-C", "src"], &project)? == "/workspace/src\n");
    ensure!(directory_inside(&environment, &["--workspace", &above], &project.join("src"))? == "/workspace/src\n");
    ensure!(directory_inside(&environment, &["--workspace", &above], &environment.home())? == "/workspace\n");
    let attached = environment.lazaret(["attach", "--", "pwd"]).directory(project.join("src")).run()?.ok()?;
    ensure!(attached.stdout() == "/workspace/src\n", "{attached}");
    let missing = environment.lazaret(["run", "-C", "no/such", "--", "pwd"]).run()?.expect_code(125)?;
    ensure!(missing.stderr().contains("no/such"), "{missing}");
    drop(held);
    Ok(())
}

fn a_workspace_needs_no_repository() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let plain = environment.home().join("plain");
    fs::create_dir_all(plain.join("sub"))?;
    let output = environment.lazaret(["run", "--", "sh", "-c", "pwd; echo x > made"]).directory(&plain).run()?.ok()?;
    ensure!(output.stdout() == "/workspace\n" && plain.join("made").exists(), "{output}");
    ensure!(output.stderr().contains("the workspace has no '.git'"), "{output}");
    // Without one, a subdirectory is a workspace of its own.
    let output = environment.lazaret(["run", "--", "ls"]).directory(plain.join("sub")).run()?.ok()?;
    ensure!(output.stdout().is_empty(), "{output}");
    Ok(())
}
