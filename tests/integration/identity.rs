//! What is hostile.

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    vec![]
}
