//! Sessions with a terminal: sizes, keys, job control, programs, floods, and every way to end.

mod ends;
mod floods;
mod jobs;
mod nested;
mod programs;
mod shell;
mod sizes;

use crate::harness::{Case, Need};

/// What every session needs.
const NEEDS: &[Need] = &[Need::Sandbox];

pub fn cases() -> Vec<Case> {
    [sizes::cases(), jobs::cases(), programs::cases(), nested::cases(), floods::cases(), ends::cases()]
        .into_iter()
        .flatten()
        .collect()
}
