//! One Domain for a profile and a workspace: entering it, waiting for it, leaving it, looking at it.

mod directories;
mod ending;
mod entering;
mod meant;
mod names;
mod views;
mod waiting;

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    [
        entering::cases(),
        meant::cases(),
        waiting::cases(),
        ending::cases(),
        views::cases(),
        directories::cases(),
        names::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
