//! Sessions with pipes: statuses, streams, signals, what ends with them and what they see.

mod ends;
mod process;
mod signals;
mod statuses;
mod streams;

pub use ends::expect_stopped;

use crate::harness::{Case, Need};

/// What every session needs.
const NEEDS: &[Need] = &[Need::Sandbox];

pub fn cases() -> Vec<Case> {
    [statuses::cases(), streams::cases(), signals::cases(), ends::cases(), process::cases()]
        .into_iter()
        .flatten()
        .collect()
}
