//! What the machine must offer before anything can start, and how to get what it lacks.
//!
//! Facts are gathered ([`facts`]) and judged ([`judge`]) apart, so that every judgement is tested
//! without the machine that would cause it. `lazaret doctor` gathers all facts, also those that
//! take creating namespaces and running programs; `lazaret up` gathers only those that take system
//! calls, in about a millisecond, and names the first that is missing.

pub mod elf;
pub mod facts;
pub mod judge;
pub mod runsc;

use serde::Serialize;

use super::error::CliError;
use super::places::Places;
use facts::{Depth, Facts};

/// How a prerequisite stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It holds.
    Ok,
    /// It does not hold, and nothing can start without it.
    Missing,
    /// It does not hold, and something works less well.
    Warn,
}

/// One prerequisite, as found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, stable for programs.
    pub name: &'static str,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// The command that mends it, where one does.
    pub remedy: Option<String>,
}

/// A prerequisite without which nothing can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub name: &'static str,
    /// What was found.
    pub detail: String,
    /// The command that mends it, where one does.
    pub remedy: Option<String>,
}

impl Missing {
    /// Gives the failure that names it, with what mends it as a hint.
    pub fn into_error(self) -> CliError {
        let error = CliError::message(format!("this machine is not ready: {}", self.detail));
        let error = match self.remedy {
            Some(remedy) => error.hint(format!("mend it with: {remedy}")),
            None => error,
        };
        error.hint("'lazaret doctor' lists everything that is needed")
    }
}

/// Checks everything.
pub async fn check_all(places: &Places) -> Vec<Check> {
    judge::checks(&Facts::gather(places, Depth::Thorough).await)
}

/// Gives the first prerequisite that is missing, without creating namespaces, and without running a
/// program except `runsc --version` once for each installed runsc.
pub async fn first_missing(places: &Places) -> Option<Missing> {
    let checks = judge::checks(&Facts::gather(places, Depth::Quick).await);
    let missing = checks.into_iter().find(|check| check.status == Status::Missing)?;
    Some(Missing { name: missing.name, detail: missing.detail, remedy: missing.remedy })
}
