//! The workspace as both sides see it: untouched by Lazaret, shared in full, protected where the host's
//! Git and editors obey it; and volumes beside it.

mod protections;
mod sharing;
mod untouched;
mod volumes;

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    [untouched::cases(), sharing::cases(), protections::cases(), volumes::cases()].into_iter().flatten().collect()
}
