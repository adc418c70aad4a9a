//! Prepares images by the real command and looks into what came of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use lazaret::domain::artifact::ArtifactManifest;
use lazaret::sys::namespaces::{MappedCommand, run_mapped};
use serde_json::Value;

use crate::harness::{Environment, Output};

/// What one preparation gave.
#[derive(Debug)]
pub struct Prepared {
    /// The printed record.
    pub printed: Value,
    /// The artifact's own record.
    pub manifest: ArtifactManifest,
    directory: PathBuf,
}

/// Runs `lazaret image prepare --json` with more arguments.
pub fn attempt(environment: &Environment, reference: &str, more: &[&str]) -> Result<Output> {
    let arguments = ["image", "prepare", "--json", reference];
    environment.lazaret(arguments).args(more).deadline(Duration::from_secs(120)).run()
}

/// Prepares an image and reads what came of it.
pub fn prepare(environment: &Environment, reference: &str, more: &[&str]) -> Result<Prepared> {
    Prepared::read(environment, &attempt(environment, reference, more)?.ok()?)
}

/// Demands that an attempt is refused with this text, as a failure of Lazaret's own, and leaves nothing.
pub fn refused(environment: &Environment, reference: &str, more: &[&str], text: &str) -> Result<Output> {
    let output = attempt(environment, reference, more)?.expect_code(125)?.expect_stderr(text)?;
    ensure!(output.stderr().contains("hint:"), "nothing says what to do\n{output}");
    ensure!(leftovers(environment).is_empty(), "left over: {:?}\n{output}", leftovers(environment));
    Ok(output)
}

/// Gives unfinished preparations on disk.
pub fn leftovers(environment: &Environment) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(environment.storage().prepared()).into_iter().flatten().flatten();
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    entries.map(|entry| entry.path()).filter(hidden).collect()
}

/// Gives finished artifacts on disk.
pub fn artifacts(environment: &Environment) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(environment.storage().prepared()).into_iter().flatten().flatten();
    let shown = |path: &PathBuf| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."));
    entries.map(|entry| entry.path()).filter(shown).collect()
}

/// Gives partial downloads on disk with their sizes.
pub fn partials(environment: &Environment) -> Vec<(PathBuf, u64)> {
    let entries = std::fs::read_dir(environment.storage().blobs()).into_iter().flatten().flatten();
    let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    let paths = entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(".partial-"));
    paths.map(|path| (path.clone(), size(&path))).collect()
}

impl Prepared {
    pub fn read(environment: &Environment, output: &Output) -> Result<Self> {
        let printed: Value = serde_json::from_slice(&output.stdout)?;
        let id = printed["id"].as_str().context("an id is printed")?.parse()?;
        let directory = environment.storage().artifact(&id);
        let manifest: ArtifactManifest = serde_json::from_slice(&fs::read(directory.join("manifest.json"))?)?;
        ensure!(manifest.id == id && manifest.version == 1, "the record is another artifact's: {manifest:?}");
        ensure!(leftovers(environment).is_empty(), "left over: {:?}", leftovers(environment));
        Ok(Self { printed, manifest, directory })
    }

    /// Gives the tree.
    pub fn rootfs(&self) -> PathBuf {
        self.directory.join("rootfs")
    }

    /// Runs a shell script as root of the artifact's mapping in its tree, and gives what it printed.
    pub fn look(&self, script: &str) -> Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let script = format!("set -e; cd '{}'; {script}", self.rootfs().display());
        let command = MappedCommand {
            executable: "/bin/sh".into(),
            argv: ["sh", "-c", &script].map(Into::into).into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("LC_ALL".into(), "C".into())],
            fds: Vec::new(),
            mapping: self.manifest.mapping.clone(),
        };
        let output = runtime.block_on(run_mapped(command))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{script}: {}: {said}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Demands that the script prints the text.
    pub fn expect(&self, script: &str, text: &str) -> Result<()> {
        let printed = self.look(script)?;
        ensure!(printed == text, "`{script}` printed\n{printed}\ninstead of\n{text}");
        Ok(())
    }
}
