//! `lazaret doctor`.

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    vec![]
}
