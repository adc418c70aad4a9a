//! The workspace with its protections, the volumes and the control mounts.
//!
//! Nothing is ever made in the workspace: a protection is mounted over what is there, which is
//! opened beneath the staged workspace without following any symbolic link.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::directories::{self, EntryKind, Owner};
use super::{Made, MountsError};
use crate::domain::profile::Access;
use crate::domain::runtime::{RuntimePlan, VolumePlan, WorkspacePlan};
use crate::domain::workspace::{Protection, ProtectionKind};
use crate::sys::directories::open_beneath;
use crate::sys::mounts;

/// Stages the workspace and mounts its protections, parents before children.
pub(super) fn stage(plan: &RuntimePlan, owner: Owner, made: &mut Made) -> Result<(), MountsError> {
    let WorkspacePlan { source, staged, protections, hidden } = &plan.workspace;
    directories::make(staged, owner, owner.private())?;
    let workspace = directories::open(source)?;
    mounts::bind_recursive(workspace.as_fd(), staged)?;
    made.record(staged)?;
    if protections.iter().any(|protection| protection.kind == ProtectionKind::Hidden) {
        directories::make(hidden, owner, owner.private())?;
    }
    // Opened after the mount, so that lookups begin in it and not beneath it.
    let root = directories::open(staged)?;
    for (n, protection) in protections.iter().enumerate() {
        let target = beneath(&root, &protection.path)?;
        match protection.kind {
            ProtectionKind::Pinned => mounts::bind_recursive(target.as_fd(), &target)?,
            ProtectionKind::ReadOnly => mounts::bind_read_only(target.as_fd(), &target)?,
            ProtectionKind::Hidden => hide(protection, &target, &directories::numbered(hidden, n), owner)?,
        }
        made.record(&staged.join(&protection.path))?;
    }
    Ok(())
}

/// Stages all volumes and the control mounts.
pub(super) fn stage_volumes(plan: &RuntimePlan, owner: Owner, made: &mut Made) -> Result<(), MountsError> {
    for VolumePlan { source, access, staged, .. } in plan.volumes.iter().chain(&plan.control) {
        let (volume, kind) = directories::open_any(source)?;
        match kind {
            EntryKind::Directory => directories::make(staged, owner, owner.private())?,
            EntryKind::Other => directories::make_file(staged, owner)?,
        }
        match access {
            Access::ReadWrite => mounts::bind_recursive(volume.as_fd(), staged)?,
            Access::ReadOnly => mounts::bind_read_only(volume.as_fd(), staged)?,
        }
        made.record(staged)?;
    }
    Ok(())
}

/// Mounts a fresh place of this generation over the host's.
fn hide(protection: &Protection, target: &OwnedFd, fresh: &Path, owner: Owner) -> Result<(), MountsError> {
    let failed = |source| MountsError::Protect { path: protection.path.clone(), source };
    match directories::kind(target.as_fd()).map_err(failed)? {
        EntryKind::Directory => {
            let attributes = directories::attributes(target.as_fd()).map_err(failed)?;
            directories::make(fresh, owner, attributes)?;
        }
        EntryKind::Other => directories::make_file(fresh, owner)?,
    }
    let (fresh, _) = directories::open_any(fresh)?;
    Ok(mounts::bind_recursive(fresh.as_fd(), target)?)
}

fn beneath(root: &OwnedFd, path: &Path) -> Result<OwnedFd, MountsError> {
    open_beneath(root.as_fd(), path).map_err(|source| MountsError::Protect { path: path.to_owned(), source })
}
