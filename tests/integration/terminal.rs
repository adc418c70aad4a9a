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

/// What makes a job of a shell stop or miss a key now and then.
const JOB_CONTROL_RACE: &str = "gVisor makes a process group anew when shell and job both set it in a pid namespace";

pub fn cases() -> Vec<Case> {
    [sizes::cases(), jobs::cases(), programs::cases(), nested::cases(), floods::cases(), ends::cases()]
        .into_iter()
        .flatten()
        .collect()
}
