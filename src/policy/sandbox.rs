//! The OCI runtime specification of the Agent Sandbox: runsc's `config.json`.
//!
//! # Namespaces (SR-12)
//!
//! PID, IPC, UTS, mount, cgroup and user namespaces are private. The network namespace is the one that
//! the Runtime Supervisor prepared; its path is left out here and filled in by the supervisor
//! after it has verified the namespace.
//!
//! The user namespace is a child of the Domain's, with each id mapped to itself. Seen with runsc
//! 20240729: the sentry and the gofer then run in user namespaces of their own, so even a sentry
//! that is taken over holds no capability over the enforcement network namespace, which belongs
//! to the Domain's. For the same reason the supervisor sets `net.ipv4.ip_unprivileged_port_start` to 0
//! in that namespace, or nothing in the sandbox could serve on a port below 1024. An extent of a child's mapping must lie within one extent of its parent's
//! (user_namespaces(7)), or runsc fails to start with EPERM; so the Domain's own extents are used.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::domain::artifact::{IdMapping, IdRange};
use crate::domain::capabilities;
use crate::domain::profile::{Access, GuestPath, Limits};
use crate::domain::runtime::{AnchorPlan, DEFAULT_PATH, VolumePlan};
use crate::domain::workspace::GUEST_WORKSPACE;

/// What a specification is made from. Paths are those that the Runtime Supervisor sees.
#[derive(Debug, Clone, Copy)]
pub struct SandboxInput<'a> {
    /// The merged root overlay.
    pub root: &'a Path,
    /// The sandbox's host name; see [`hostname`].
    pub hostname: &'a str,
    /// The staged workspace.
    pub workspace: &'a Path,
    /// State Anchors.
    pub anchors: &'a [AnchorPlan],
    /// Volumes.
    pub volumes: &'a [VolumePlan],
    /// Fixed control mounts.
    pub control: &'a [VolumePlan],
    /// Resource limits.
    pub limits: &'a Limits,
    /// The Domain's identity mapping.
    pub mapping: &'a IdMapping,
    /// The whole argument vector of process 1.
    pub init: &'a [String],
}

/// A specification cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SpecificationError {
    /// The OCI runtime specification is JSON, whose strings are Unicode.
    #[error("the path '{}' is not UTF-8, so the sandbox's specification cannot name it", .0.display())]
    NotUnicode(PathBuf),
}

/// Makes the OCI runtime specification, complete but for the network namespace's path.
pub fn specification(input: &SandboxInput<'_>) -> Result<Value, SpecificationError> {
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": input.init,
            "env": [format!("PATH={DEFAULT_PATH}")],
            "cwd": "/",
            "capabilities": capability_sets(capabilities::agent()),
            "rlimits": rlimits(input.limits),
            "noNewPrivileges": true,
        },
        "root": { "path": text(input.root)?, "readonly": false },
        "hostname": input.hostname,
        "mounts": mounts(input)?,
        "linux": {
            "namespaces": (["pid", "ipc", "uts", "mount", "cgroup", "user", "network"]
                .map(|kind| json!({ "type": kind }))),
            "uidMappings": same_ids(&input.mapping.uids),
            "gidMappings": same_ids(&input.mapping.gids),
        },
    }))
}

/// Gives the `capabilities` object of a process document. Nothing is inheritable or ambient, so a
/// process that becomes another user keeps none.
fn capability_sets(capabilities: impl Iterator<Item = &'static str>) -> Value {
    let capabilities: Vec<_> = capabilities.collect();
    json!({
        "bounding": capabilities,
        "effective": capabilities,
        "permitted": capabilities,
        "inheritable": [],
        "ambient": [],
    })
}

/// Gives the capabilities of the `runsc exec` that starts a session wrapper.
pub fn wrapper_capability_sets() -> Value {
    capability_sets(capabilities::session_start())
}

/// Gives a host name for the sandbox from the workspace's directory name: letters, digits and
/// hyphens, at most 63 (hostname(7)).
pub fn hostname(workspace: &Path) -> String {
    let name = workspace.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let plain: String = name.chars().map(allowed).take(63).collect();
    match plain.trim_matches('-') {
        "" => "sandbox".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

fn rlimits(limits: &Limits) -> Vec<Value> {
    let all = [
        ("RLIMIT_NOFILE", limits.open_files),
        ("RLIMIT_NPROC", limits.processes),
        ("RLIMIT_AS", limits.memory),
        ("RLIMIT_FSIZE", limits.file_size),
    ];
    let set = all.into_iter().filter_map(|(kind, limit)| Some((kind, limit?)));
    set.map(|(kind, limit)| json!({ "type": kind, "soft": limit, "hard": limit })).collect()
}

fn same_ids(ranges: &[IdRange]) -> Vec<Value> {
    ranges.iter().map(|r| json!({ "containerID": r.inside, "hostID": r.inside, "size": r.count })).collect()
}

/// Gives all mounts, parents before children.
fn mounts(input: &SandboxInput<'_>) -> Result<Vec<Value>, SpecificationError> {
    let size = format!("size={}", input.limits.tmp);
    let memory = |path: &str| mount(path, "tmpfs", "tmpfs", &["nosuid", "nodev", "mode=1777", &size]);
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        memory("/dev/shm"),
    ];
    let mut granted: Vec<(&GuestPath, &Path, Access)> = Vec::new();
    granted.extend(input.anchors.iter().map(|a| (&a.path, a.overlay.merged.as_path(), Access::ReadWrite)));
    granted.extend(input.volumes.iter().map(|v| (&v.guest, v.staged.as_path(), v.access)));
    granted.sort_by_key(|(guest, ..)| *guest);
    if !granted.iter().any(|(guest, ..)| guest.as_str() == "/tmp") {
        mounts.push(memory("/tmp"));
    }
    for (guest, source, access) in granted {
        mounts.push(bind(guest.as_str(), source, access)?);
    }
    mounts.push(bind(GUEST_WORKSPACE, input.workspace, Access::ReadWrite)?);
    for control in input.control {
        mounts.push(bind(control.guest.as_str(), &control.staged, control.access)?);
    }
    Ok(mounts)
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({ "destination": destination, "type": kind, "source": source, "options": options })
}

/// A recursive bind, as mounts below the source would otherwise be missing inside.
fn bind(destination: &str, source: &Path, access: Access) -> Result<Value, SpecificationError> {
    let access = match access {
        Access::ReadOnly => "ro",
        Access::ReadWrite => "rw",
    };
    Ok(mount(destination, "bind", text(source)?, &["rbind", access, "nosuid", "nodev"]))
}

fn text(path: &Path) -> Result<&str, SpecificationError> {
    path.to_str().ok_or_else(|| SpecificationError::NotUnicode(path.to_owned()))
}

#[cfg(test)]
mod tests;
