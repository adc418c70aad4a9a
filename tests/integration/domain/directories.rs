//! What Lazaret keeps is the developer's alone, and it takes nothing that was planted or is another's.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use lazaret::domain::layout::RuntimeRoot;
use redb::{Database, TableDefinition};

use crate::harness::sessions::hold;
use crate::harness::{Case, CaseResult, Environment, Need, case, project};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("everything_kept_is_private", &[Need::Sandbox], everything_kept_is_private),
        case("a_root_of_another_domain_is_refused", &[Need::Sandbox], a_root_of_another_domain_is_refused),
        case("a_store_of_a_newer_version_is_refused", &[Need::Sandbox], a_store_of_a_newer_version_is_refused),
        case("a_store_of_another_domain_is_refused", &[Need::Sandbox], a_store_of_another_domain_is_refused),
        case("a_planted_domain_root_is_refused", &[Need::Sandbox], a_planted_domain_root_is_refused),
        case("a_planted_runtime_directory_is_refused", &[Need::Sandbox], a_planted_runtime_directory_is_refused),
        case("what_lies_in_the_place_of_a_socket_or_record_stays", &[Need::Sandbox], a_planted_socket_or_record),
        case("a_planted_log_or_lock_is_not_followed", &[Need::Sandbox], a_planted_log_or_lock_is_not_followed),
        case("directories_open_to_others_are_closed", &[Need::Sandbox], directories_open_to_others_are_closed),
    ]
}

/// Walks a tree and gives what others may reach; a directory that nobody else can enter keeps what is
/// in it, so that `deeper` says where to look on nevertheless.
fn open_to_others(path: &Path, deeper: &dyn Fn(&Path) -> bool, found: &mut Vec<String>) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        // The Storage Root is shared with other cases, whose things come and go.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    let mode = metadata.mode() & 0o7777;
    let private = if metadata.is_dir() { mode == 0o700 } else { mode & 0o7077 == 0 };
    if !metadata.is_symlink() && !private {
        found.push(format!("{} has mode {mode:o}", path.display()));
    }
    if metadata.uid() != nix::unistd::getuid().as_raw() {
        found.push(format!("{} belongs to {}", path.display(), metadata.uid()));
    }
    if metadata.is_dir() && deeper(path) {
        for entry in fs::read_dir(path).into_iter().flatten() {
            open_to_others(&entry?.path(), deeper, found)?;
        }
    }
    Ok(())
}

fn everything_kept_is_private() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment
        .profile("test", "persistent = [\"/srv/kept\"]\n[workspace]\nisolate_ignored = false\nhide = [\".idea\"]\n")?;
    fs::create_dir(environment.project().join(".idea"))?;
    // However careless the shell is that starts it.
    let careless = environment.invocation("sh").args(["-c", "umask 0; exec \"$@\"", "sh"]);
    let careless = careless.arg(crate::harness::world::world().lazaret());
    let running = careless.args(["run", "--", "sh", "-c", "echo > /srv/kept/x; echo held; exec cat"]).spawn()?;
    running.wait_stdout("held", crate::harness::sessions::START)?;
    let mut found = Vec::new();
    let storage = environment.storage();
    // Image trees, writable layers, runsc's files and the executables that the sandbox runs have the
    // sandbox's modes and owners; what closes them off is the private directory that each lies in.
    let own = environment.domain_root()?;
    let inner = |name: &str| {
        let generation = name.strip_prefix('g').is_some_and(|number| number.parse::<u64>().is_ok());
        generation || name.starts_with("scratch-") || name.starts_with(".preparing-") || name.starts_with("a-")
    };
    let deeper = |path: &Path| {
        let domains = storage.domains();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let foreign = path.starts_with(&domains) && path != domains && !path.starts_with(own.path());
        let anchor = path.parent() == Some(&*own.anchors());
        !foreign
            && !anchor
            && !inner(&name)
            && path.parent() != Some(&*storage.prepared())
            && path != storage.path().join("guest")
    };
    open_to_others(storage.path(), &deeper, &mut found)?;
    open_to_others(&environment.runtime().join("lazaret"), &deeper, &mut found)?;
    ensure!(found.is_empty(), "open to others:\n  {}", found.join("\n  "));
    ensure!(own.store().exists() && own.coordinator_log().exists(), "nothing was looked at");
    drop(running);
    Ok(())
}

fn a_root_of_another_domain_is_refused() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let run = || environment.lazaret(["run", "--", "true"]).run();
    run()?.ok()?;
    environment.expect_nothing_left(std::time::Duration::from_secs(2))?;
    let identity = environment.domain_root()?.identity();
    let own = fs::read_to_string(&identity)?;
    let workspace = environment.project().display().to_string();
    fs::write(&identity, own.replace(&workspace, "/somewhere/else"))?;
    let refused = run()?.expect_code(125)?;
    ensure!(refused.stderr().contains("describes another Domain than"), "{refused}");
    ensure!(
        refused.stderr().contains(&format!("look at {}", environment.domain_root()?.path().display())),
        "{refused}"
    );
    fs::write(&identity, "{ not JSON")?;
    run()?.expect_code(125)?.expect_stderr("identity.json")?;
    fs::write(&identity, own)?;
    run()?.ok()?;
    Ok(())
}

fn a_store_of_a_newer_version_is_refused() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let run = || environment.lazaret(["run", "--", "true"]).run();
    run()?.ok()?;
    environment.expect_nothing_left(std::time::Duration::from_secs(2))?;
    let store = environment.domain_root()?.store();
    let set = |version: u64| -> Result<u64> {
        let database = Database::open(&store)?;
        let write = database.begin_write()?;
        let before = {
            let mut meta = write.open_table(TableDefinition::<&str, u64>::new("meta"))?;
            let before = meta.insert("schema", version)?;
            before.context("the store has no version")?.value()
        };
        write.commit()?;
        Ok(before)
    };
    let version = set(99)?;
    let refused = run()?.expect_code(125)?;
    ensure!(
        refused.stderr().contains("has schema version 99; this Lazaret knows versions up to 1")
            && refused.stderr().contains("store.redb"),
        "{refused}"
    );
    ensure!(set(version)? == 99, "the newer store was changed");
    run()?.ok()?;
    Ok(())
}

fn a_store_of_another_domain_is_refused() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("other", "")?;
    let run = |profile: &str| environment.lazaret(["run", "-p", profile, "--", "true"]).run();
    run("test")?.ok()?;
    run("other")?.ok()?;
    environment.expect_nothing_left(std::time::Duration::from_secs(2))?;
    let other = environment.storage().domain(&environment.domain_of("other", &environment.project())?);
    fs::copy(other.store(), environment.domain_root()?.store())?;
    let refused = run("test")?.expect_code(125)?;
    ensure!(refused.stderr().contains("belongs to Domain"), "{refused}");
    run("other")?.ok()?;
    Ok(())
}

/// A directory of the developer's own, which nothing may be written to.
fn bait(environment: &Environment) -> Result<(PathBuf, Vec<String>)> {
    let bait = environment.home().join("bait");
    fs::create_dir_all(bait.join("logs"))?;
    fs::write(bait.join("store.redb"), "precious")?;
    let before = project::inventory(&bait)?;
    Ok((bait, before))
}

fn refused_and_untouched(environment: &Environment, link: &Path) -> CaseResult {
    let (bait, before) = bait(environment)?;
    fs::create_dir_all(link.parent().context("a link lies somewhere")?)?;
    symlink(&bait, link)?;
    let refused = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
    ensure!(refused.stderr().contains(&link.display().to_string()), "the link is not named\n{refused}");
    ensure!(project::inventory(&bait)? == before, "{} was written to", bait.display());
    fs::remove_file(link)?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    Ok(())
}

fn a_planted_domain_root_is_refused() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    refused_and_untouched(&environment, environment.domain_root()?.path())?;
    Ok(())
}

fn a_planted_runtime_directory_is_refused() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let runtime: RuntimeRoot = environment.runtime_root()?;
    refused_and_untouched(&environment, runtime.path())?;
    let base = environment.runtime().join("lazaret");
    environment.expect_nothing_left(std::time::Duration::from_secs(2))?;
    fs::remove_dir_all(&base)?;
    fs::remove_dir_all(environment.home().join("bait"))?;
    refused_and_untouched(&environment, &base)
}

fn a_planted_socket_or_record() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let runtime: RuntimeRoot = environment.runtime_root()?;
    for place in [runtime.socket(), runtime.publication()] {
        fs::create_dir_all(runtime.path())?;
        fs::set_permissions(runtime.path(), std::fs::Permissions::from_mode(0o700))?;
        fs::write(&place, "precious")?;
        let refused = environment.lazaret(["run", "--", "true"]).run()?;
        let named = refused.stderr().contains(&place.display().to_string());
        ensure!(refused.code() == 125 && named, "{}: {refused:?}", place.display());
        ensure!(fs::read_to_string(&place)? == "precious", "{} was touched", place.display());
        fs::remove_file(&place)?;
        environment.lazaret(["run", "--", "true"]).run()?.ok()?;
        environment.expect_nothing_left(std::time::Duration::from_secs(5))?;
    }
    Ok(())
}

fn a_planted_log_or_lock_is_not_followed() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let root = environment.domain_root()?;
    for (place, name) in
        [(root.lock(), "lock"), (root.coordinator_log(), "coordinator.log"), (root.store(), "store.redb")]
    {
        let precious = environment.home().join(format!("precious-{name}"));
        fs::write(&precious, "precious")?;
        fs::create_dir_all(place.parent().context("it lies somewhere")?)?;
        let kept = place.with_extension("kept");
        if place.exists() {
            fs::rename(&place, &kept)?;
        }
        symlink(&precious, &place)?;
        let refused = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
        ensure!(refused.stderr().contains(name), "the link is not named\n{refused}");
        ensure!(fs::read_to_string(&precious)? == "precious", "{name} was followed");
        fs::remove_file(&place)?;
        if kept.exists() {
            fs::rename(&kept, &place)?;
        }
        environment.lazaret(["run", "--", "true"]).run()?.ok()?;
        environment.expect_nothing_left(std::time::Duration::from_secs(2))?;
    }
    Ok(())
}

fn directories_open_to_others_are_closed() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let opened = [environment.domain_root()?.path().to_owned(), environment.runtime().join("lazaret")];
    for directory in &opened {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777))?;
    }
    let held = hold(&environment, &[])?;
    for directory in &opened {
        let mode = fs::metadata(directory)?.mode() & 0o777;
        ensure!(mode == 0o700, "{} has mode {mode:o}", directory.display());
    }
    drop(held);
    Ok(())
}
