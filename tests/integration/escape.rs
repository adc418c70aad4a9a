//! Hostile workloads: each promise of `docs/threat-model.md`, tried from inside and looked at from outside.
//!
//! The scripts in `hostile/` run in a real sandbox, as its root and as its ordinary user, and report
//! what became of each attempt. That says whether an attempt was refused; whether the promise held
//! is read off the host.

mod files;
mod host;
mod network;
mod privileges;
mod resources;
mod sessions;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::{Case, Environment};

pub fn cases() -> Vec<Case> {
    let all =
        [files::cases(), host::cases(), network::cases(), privileges::cases(), resources::cases(), sessions::cases()];
    all.into_iter().flatten().collect()
}

/// What every script begins with.
const PRELUDE: &str = include_str!("hostile/prelude.py");

/// The users that an attack runs as: one with the documented capabilities, and one with none.
const USERS: [&str; 2] = ["root", "dev"];

/// A sandbox with a hostile workload, which stays between the case's commands.
struct Prison {
    environment: Environment,
}

impl Prison {
    /// Makes surroundings whose sessions run as this user, with more lines in the profile.
    fn new(user: &str, more: &str) -> Result<Self> {
        let environment = Environment::with_prepared_image()?;
        environment.profile_of(user, "test", &format!("linger = \"60s\"\n{more}"))?;
        Ok(Self { environment })
    }

    /// Runs a script and gives what it reports.
    fn attack(&self, script: &str, arguments: &[&str]) -> Result<Outcomes> {
        let run = self.environment.lazaret(["run", "--", "python3", "-"]).args(arguments);
        let output = run.input(format!("{PRELUDE}\n{script}")).run()?.ok()?;
        let line = |line: &str| serde_json::from_str(line).with_context(|| format!("not a report: {line}"));
        Ok(Outcomes(output.stdout().lines().map(line).collect::<Result<_>>()?))
    }

    /// Runs a shell script that must succeed and gives what it writes.
    fn shell(&self, script: &str) -> Result<String> {
        Ok(self.environment.in_sandbox(script).run()?.ok()?.stdout())
    }
}

/// What became of each attempt: the name of an error, `did ...`, or a fact of any form.
#[derive(Debug)]
struct Outcomes(Vec<(String, Value)>);

impl Outcomes {
    /// Gives what one attempt or fact is.
    fn fact(&self, name: &str) -> Result<&Value> {
        let found = self.0.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value).with_context(|| format!("nothing was reported of '{name}'"))
    }

    /// Gives the attempts whose names pass; an empty selection is an error, as the script has changed.
    fn select(&self, which: impl Fn(&str) -> bool) -> Result<Vec<(&str, &str)>> {
        let pairs = self.0.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        let selected: Vec<_> = pairs.filter(|(name, _)| which(name)).collect();
        ensure!(!selected.is_empty(), "no attempt of that kind among {:?}", self.0);
        Ok(selected)
    }

    /// Demands that each attempt whose name passes was refused with an error of the system.
    fn expect_refused(&self, which: impl Fn(&str) -> bool) -> Result<()> {
        let selected = self.select(which)?;
        let wrong: Vec<_> = selected.into_iter().filter(|(_, outcome)| !is_refusal(outcome)).collect();
        ensure!(wrong.is_empty(), "not refused: {wrong:?}");
        Ok(())
    }
}

/// Tells whether an outcome is the name of an error.
fn is_refusal(outcome: &str) -> bool {
    outcome.starts_with('E') && outcome.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
}
