//! State Anchors: one overlay for each persistent path, so that each can be reset alone.

use std::os::fd::AsFd;

use super::directories::{self, Owner};
use super::{Made, MountsError, root};
use crate::domain::runtime::{AnchorPlan, RuntimePlan};
use crate::sys::mounts;

/// Mounts all State Anchors.
///
/// An anchor's upper directory begins with the owner and mode that the path has in the image, or with
/// the developer as owner when the image has no such directory. One from an earlier generation is
/// taken as it is.
pub(super) fn stage(plan: &RuntimePlan, owner: Owner, made: &mut Made) -> Result<(), MountsError> {
    let lower = directories::open(&plan.lower)?;
    // The lower of an anchor that the image knows nothing of.
    let nothing = plan.scratch.join("nothing");
    for anchor in &plan.anchors {
        let AnchorPlan { path, overlay } = anchor;
        let below = match root::lower_directory(lower.as_fd(), path)? {
            Some(directory) => directory,
            None => {
                directories::make(&nothing, owner, owner.public())?;
                directories::open(&nothing)?
            }
        };
        let attributes = directories::attributes(below.as_fd())
            .map_err(|source| MountsError::Image { path: path.to_string(), source })?;
        directories::make(&overlay.upper, owner, attributes)?;
        directories::make(&overlay.work, owner, owner.private())?;
        directories::make(&overlay.merged, owner, owner.private())?;
        let (upper, work) = (directories::open(&overlay.upper)?, directories::open(&overlay.work)?);
        mounts::overlay(below.as_fd(), upper.as_fd(), work.as_fd(), &overlay.merged)?;
        made.record(&overlay.merged)?;
    }
    Ok(())
}
