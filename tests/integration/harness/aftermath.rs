//! What must hold after something of a Domain died.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::command::Running;
use super::environment::Environment;
use super::leftovers;
use super::wait::wait_until;

/// How long a start, an end or a message may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a command that prepares an image may take on a busy machine.
pub const PREPARE: Duration = Duration::from_secs(180);

/// Files that Lazaret did not make, one in each directory that outlives a generation.
pub struct Foreign(Vec<PathBuf>);

impl Foreign {
    /// Plants them.
    pub fn plant(environment: &Environment) -> Result<Self> {
        let runtime = environment.runtime_root()?;
        let root = environment.domain_root()?;
        let storage = environment.storage();
        let directories = [
            environment.runtime().join("lazaret"),
            runtime.path().to_owned(),
            root.path().to_owned(),
            root.logs(),
            root.anchors(),
            storage.path().to_owned(),
            storage.prepared(),
            storage.domains(),
        ];
        // Other cases may share the storage.
        let case = environment.directory().file_name().context("a case has a directory")?;
        let name = format!("foreign-file-of-{}", case.display());
        let mut planted = Vec::new();
        for directory in directories {
            // A generation that never got this far has not made all of them.
            fs::create_dir_all(&directory)?;
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
            let path = directory.join(&name);
            fs::write(&path, "not Lazaret's")?;
            // Another case looks for what is open to others.
            fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            planted.push(path);
        }
        Ok(Self(planted))
    }

    /// Checks that all are as they were, and takes them away.
    pub fn collect(self) -> Result<()> {
        for path in &self.0 {
            let content = fs::read_to_string(path).context("a foreign file was touched")?;
            ensure!(content == "not Lazaret's", "{} was changed", path.display());
        }
        Ok(())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        for path in &self.0 {
            drop(fs::remove_file(path));
        }
    }
}

/// Checks that no process, mount or listening socket is left, in time.
pub fn expect_gone(environment: &Environment, deadline: Duration, context: &str) -> Result<()> {
    wait_until("no process is left", deadline, || environment.processes().is_empty()).with_context(|| {
        let left: Vec<_> = environment.processes().iter().map(ToString::to_string).collect();
        format!("{context}:\n  {}", left.join("\n  "))
    })?;
    let mounts = leftovers::mounts(environment.directory());
    ensure!(mounts.is_empty(), "{context}: mounts are left: {mounts:?}");
    let socket = environment.runtime_root()?.socket();
    // A killed process counts as gone a moment before the last of its threads lets go of its descriptors.
    let closed = || std::os::unix::net::UnixStream::connect(&socket).is_err();
    wait_until("nobody listens", deadline, closed).with_context(|| format!("{context}: {}", socket.display()))
}

/// Checks that the next command works and that it leaves nothing.
pub fn expect_recovery(environment: &Environment, foreign: Foreign, context: &str) -> Result<()> {
    let next = environment.lazaret(["run", "--", "echo", "works"]).deadline(PREPARE).run()?;
    ensure!(next.code() == 0 && next.stdout() == "works\n", "{context}: the next run failed: {next:?}");
    environment.lazaret(["down", "--yes"]).deadline(PATIENCE).run()?;
    foreign.collect().with_context(|| context.to_owned())?;
    environment.expect_nothing_left(Duration::from_secs(5)).with_context(|| context.to_owned())
}

/// Starts a session that tells when it runs and then sleeps.
pub fn sleeping_session(environment: &Environment, name: &str) -> Result<Running> {
    let marker = environment.project().join(name);
    let script = format!("touch {name}; exec sleep 1000");
    let running = environment.in_sandbox(&script).spawn()?;
    wait_until("the session runs", PATIENCE, || marker.exists())?;
    fs::remove_file(marker)?;
    Ok(running)
}
