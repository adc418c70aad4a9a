//! Host Escalation rules as configuration has them. They are validated here and used by the escalation path.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a rule does with a request that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleEffect {
    /// Approve without asking.
    Allow,
    /// Refuse without asking; wins over `Allow`.
    Deny,
}

/// Which trailing arguments a rule grants (SR-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrailingArguments {
    /// None: the vector must match exactly.
    None,
    /// Any.
    Any,
}

/// One escalation rule of a profile: an exact argument vector, never a shell line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationRule {
    /// What it does.
    pub effect: RuleEffect,
    /// The executable, absolute, and the arguments that must match exactly.
    pub command: Vec<String>,
    /// Which arguments may follow.
    pub args: TrailingArguments,
    /// Working directory that the request must name, absolute on the host.
    pub directory: Option<PathBuf>,
    /// Time limit in seconds.
    pub timeout: Option<u64>,
}
