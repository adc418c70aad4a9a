//! Replay of what the processes did against the protocol's model: `scripts/trace.sh`, in a copy below the run's
//! directory, since the build tree may be closed to the unprivileged user.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::command::Invocation;
use super::executable;
use super::world::world;

/// How long the model checker may take for all traces of a case on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// Makes the copy, with the model checker, which the machine's network may be needed for once.
pub fn ensure_below(base: &Path) -> Result<PathBuf> {
    let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")), base.join("model"));
    let fetched = Invocation::new(from.join("scripts/tlc.sh")).arg("fetch").deadline(DEADLINE).run()?.ok()?;
    let jar = PathBuf::from(fetched.stdout().trim());
    for directory in ["protocol", "scripts", "target/tlc"] {
        fs::create_dir_all(to.join(directory))?;
    }
    for file in ["Lazaret.tla", "TraceLazaret.tla", "TraceLazaret.cfg"] {
        fs::copy(from.join("protocol").join(file), to.join("protocol").join(file))?;
    }
    for script in ["tlc.sh", "trace.sh", "trace.py"] {
        executable::copy(&from.join("scripts").join(script), &to.join("scripts").join(script))?;
    }
    let cache = to.join("target/tlc");
    fs::copy(&jar, cache.join(jar.file_name().context("the model checker is a file")?))?;
    fs::set_permissions(cache, std::fs::Permissions::from_mode(0o1777))?;
    Ok(to)
}

/// What processes did, and of which run that is.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The run; a file's name.
    pub name: String,
    /// One event a line.
    pub events: Vec<String>,
}

impl Trace {
    /// Reads what was written to a file.
    pub fn read(name: &str, file: &Path) -> Result<Self> {
        let events = fs::read_to_string(file)?.lines().map(str::to_owned).collect();
        Ok(Self { name: name.replace(|character: char| !character.is_alphanumeric(), "-"), events })
    }

    /// Gives the place of the first event of an action.
    pub fn first(&self, action: &str) -> Result<usize> {
        let wanted = format!("\"action\":\"{action}\"");
        let found = self.events.iter().position(|event| event.contains(&wanted));
        found.with_context(|| format!("{}: no {action}", self.name))
    }
}

/// What the model says of a trace.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The trace's name.
    pub name: String,
    /// Why it was rejected, when it was.
    pub rejected: Option<String>,
}

/// Replays traces and gives the verdicts in their order. The files stay in `directory`.
pub fn replay(directory: &Path, traces: &[Trace]) -> Result<Vec<Verdict>> {
    let model = world().model.as_ref().map_err(|reason| anyhow::anyhow!("{reason}"))?;
    fs::create_dir_all(directory)?;
    let mut invocation = Invocation::new(model.join("scripts/trace.sh"));
    for trace in traces {
        let file = directory.join(format!("{}.jsonl", trace.name));
        ensure!(!file.exists(), "two traces are called {}", trace.name);
        fs::write(&file, trace.events.iter().map(|event| format!("{event}\n")).collect::<String>())?;
        invocation = invocation.arg(file);
    }
    let said = invocation.env("CARGO_TARGET_DIR", model.join("target")).deadline(DEADLINE).run()?;
    let of = |trace: &Trace| {
        let file = directory.join(format!("{}.jsonl", trace.name)).display().to_string();
        let line = said.stdout().lines().find(|line| line.split(' ').nth(1) == Some(&file)).map(str::to_owned);
        let line = line.with_context(|| format!("no verdict on {}: {said}", trace.name))?;
        Ok(Verdict { name: trace.name.clone(), rejected: line.starts_with("rejected ").then_some(line) })
    };
    traces.iter().map(of).collect()
}
