//! State Anchors: one writable layer for each persistent path, so that each can be reset alone.

use std::os::fd::{AsFd, OwnedFd};

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
    for anchor in &plan.anchors {
        let below = root::lower_directory(lower.as_fd(), &anchor.path)?;
        directories::make(&anchor.overlay.merged, owner, owner.private())?;
        match below {
            Some(below) => overlay(anchor, owner, &below)?,
            // Without a lower the upper directory is the whole content, and needs no overlay. That saves
            // its costs, above all the write-back of the whole file system when an overlay is unmounted.
            None if !anchor.overlay.work.exists() => bind(anchor, owner)?,
            // It was over an image's directory before, so it may hold marks of deletions.
            None => {
                let nothing = plan.scratch.join("nothing");
                directories::make(&nothing, owner, owner.public())?;
                overlay(anchor, owner, &directories::open(&nothing)?)?;
            }
        }
        made.record(&anchor.overlay.merged)?;
    }
    Ok(())
}

fn overlay(anchor: &AnchorPlan, owner: Owner, lower: &OwnedFd) -> Result<(), MountsError> {
    let AnchorPlan { path, overlay } = anchor;
    let attributes = directories::attributes(lower.as_fd())
        .map_err(|source| MountsError::Image { path: path.to_string(), source })?;
    directories::make(&overlay.upper, owner, attributes)?;
    directories::make(&overlay.work, owner, owner.private())?;
    let (upper, work) = (directories::open(&overlay.upper)?, directories::open(&overlay.work)?);
    Ok(mounts::overlay(lower.as_fd(), upper.as_fd(), work.as_fd(), &overlay.merged)?)
}

fn bind(anchor: &AnchorPlan, owner: Owner) -> Result<(), MountsError> {
    directories::make(&anchor.overlay.upper, owner, owner.public())?;
    let upper = directories::open(&anchor.overlay.upper)?;
    Ok(mounts::bind(upper.as_fd(), &anchor.overlay.merged)?)
}
