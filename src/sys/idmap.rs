//! Installs an identity mapping in a new user namespace (user_namespaces(7)).
//!
//! A developer may only map their own id. The set-user-ID programs newuidmap(1) and newgidmap(1)
//! map the subordinate ids that `/etc/subuid` and `/etc/subgid` grant.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use super::executables;
use super::launch::Groups;
use crate::domain::artifact::{IdMapping, IdRange};

/// A mapping that could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum IdMapError {
    /// The helper is not installed.
    #[error("{helper} is not installed")]
    HelperMissing {
        /// `newuidmap` or `newgidmap`.
        helper: &'static str,
    },
    /// The helper could not be run.
    #[error("cannot run {}", helper.display())]
    HelperNotRun {
        /// The helper.
        helper: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The helper refused the mapping.
    #[error("{} refused the identity mapping {ranges} ({status}): {said}", helper.display())]
    HelperRefused {
        /// The helper.
        helper: PathBuf,
        /// The ranges, as its arguments.
        ranges: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        said: String,
    },
    /// A mapping file could not be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Tells whether the new process can drop its supplementary groups under this mapping.
pub(super) fn groups(mapping: &IdMapping) -> Groups {
    if is_self_only(mapping) { Groups::Keep } else { Groups::Drop }
}

/// Installs the mapping for the process's user namespace.
pub(super) fn install(pid: i32, mapping: &IdMapping) -> Result<(), IdMapError> {
    if is_self_only(mapping) {
        // Without a helper the kernel wants setgroups(2) given up first.
        write(pid, "setgroups", "deny")?;
        write(pid, "uid_map", &table(&mapping.uids))?;
        return write(pid, "gid_map", &table(&mapping.gids));
    }
    run_helper("newuidmap", pid, &mapping.uids)?;
    run_helper("newgidmap", pid, &mapping.gids)
}

/// A mapping of exactly one's own ids needs no helper.
fn is_self_only(mapping: &IdMapping) -> bool {
    let is = |ranges: &[IdRange], own: u32| matches!(ranges, [one] if one.count == 1 && one.outside == own);
    is(&mapping.uids, rustix::process::geteuid().as_raw()) && is(&mapping.gids, rustix::process::getegid().as_raw())
}

fn table(ranges: &[IdRange]) -> String {
    ranges.iter().map(|range| format!("{} {} {}\n", range.inside, range.outside, range.count)).collect()
}

fn write(pid: i32, file: &str, content: &str) -> Result<(), IdMapError> {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    std::fs::write(&path, content).map_err(|source| IdMapError::Write { path, source })
}

fn run_helper(name: &'static str, pid: i32, ranges: &[IdRange]) -> Result<(), IdMapError> {
    let helper = executables::find(name).ok_or(IdMapError::HelperMissing { helper: name })?;
    let numbers = ranges.iter().flat_map(|range| [range.inside, range.outside, range.count]);
    let arguments: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let output = Command::new(&helper).arg(pid.to_string()).args(&arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|source| IdMapError::HelperNotRun { helper: helper.clone(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let ranges = arguments.chunks(3).map(|range| range.join(":")).collect::<Vec<_>>().join(" ");
    Err(IdMapError::HelperRefused { helper, ranges, status: output.status, said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_own_id_needs_no_helper() {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let one = |outside| vec![IdRange { inside: 0, outside, count: 1 }];
        assert!(is_self_only(&IdMapping { uids: one(uid), gids: one(gid) }));
        assert!(!is_self_only(&IdMapping { uids: one(uid + 1), gids: one(gid) }));
        let two = vec![IdRange { inside: 0, outside: uid, count: 2 }];
        assert!(!is_self_only(&IdMapping { uids: two, gids: one(gid) }));
    }

    #[test]
    fn the_table_has_a_line_for_each_range() {
        let ranges =
            [IdRange { inside: 0, outside: 100_000, count: 1000 }, IdRange { inside: 1000, outside: 1001, count: 1 }];
        assert_eq!(table(&ranges), "0 100000 1000\n1000 1001 1\n");
    }
}
