//! The OCI bundle: the plan's specification with what only the supervisor can fill in.

use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::command::Sandbox;
use crate::domain::runtime::{ENFORCEMENT_NAMESPACE, RuntimePlan, WorkspacePlan};
use crate::domain::workspace::{GUEST_WORKSPACE, ProtectionKind};
use crate::sys::procfs;

/// Why the bundle could not be written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file can't be written.
    #[error("can't write {}", path.display())]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The namespace at the path that runsc will open is not this process's own (SR-12).
    #[error("{ENFORCEMENT_NAMESPACE} is not the enforcement namespace")]
    Namespace,
    /// The namespace can't be identified.
    #[error("can't identify the enforcement namespace")]
    Identify(#[source] io::Error),
    /// The specification lacks a part that has to be filled in.
    #[error("the sandbox's specification has no {0}")]
    Incomplete(&'static str),
    /// The specification is JSON, whose strings are Unicode.
    #[error("the path '{}' is not UTF-8, so the sandbox's specification can't name it", .0.display())]
    NotUnicode(PathBuf),
}

/// Writes the bundle of a sandbox.
pub(super) fn write(plan: &RuntimePlan, sandbox: &Sandbox) -> Result<(), BundleError> {
    // The path that runsc will open is checked to lead to the namespace that was attested.
    let identify = |path: &str| procfs::namespace_identity(path.as_ref()).map_err(BundleError::Identify);
    if identify(ENFORCEMENT_NAMESPACE)? != identify("/proc/thread-self/ns/net")? {
        return Err(BundleError::Namespace);
    }
    let specification = specification(&plan.oci_spec, &plan.workspace)?;
    for directory in [sandbox.root(), sandbox.bundle()] {
        let failed = |source| BundleError::Write { path: directory.clone(), source };
        std::fs::create_dir_all(&directory).map_err(failed)?;
    }
    let path = sandbox.bundle().join("config.json");
    std::fs::write(&path, specification.to_string()).map_err(|source| BundleError::Write { path, source })
}

/// Fills in the network namespace and the protections.
///
/// Each protected path of the workspace becomes a mount point in the sandbox too. The mounts of the staging
/// alone would not hold a directory in place: the sentry works on descriptors from a mount namespace of
/// its own, in which they are no mount points, and the kernel then lets it rename them. gVisor refuses to
/// rename or remove its own mount points.
fn specification(planned: &Value, workspace: &WorkspacePlan) -> Result<Value, BundleError> {
    let mut specification = planned.clone();
    let namespaces = specification["linux"]["namespaces"].as_array_mut();
    let namespaces = namespaces.ok_or(BundleError::Incomplete("list of namespaces"))?;
    let network = namespaces.iter_mut().find(|entry| entry["type"] == "network");
    network.ok_or(BundleError::Incomplete("network namespace"))?["path"] = ENFORCEMENT_NAMESPACE.into();

    let mounts = specification["mounts"].as_array_mut().ok_or(BundleError::Incomplete("list of mounts"))?;
    for protection in &workspace.protections {
        let source = workspace.staged.join(&protection.path);
        let relative = protection.path.to_str();
        let (Some(source), Some(relative)) = (source.to_str(), relative) else {
            return Err(BundleError::NotUnicode(source));
        };
        let access = match protection.kind {
            ProtectionKind::ReadOnly => "ro",
            ProtectionKind::Hidden | ProtectionKind::Pinned => "rw",
        };
        mounts.push(json!({
            "destination": format!("{GUEST_WORKSPACE}/{relative}"),
            "type": "bind",
            "source": source,
            "options": ["rbind", access, "nosuid", "nodev"],
        }));
    }
    Ok(specification)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::workspace::Protection;

    fn workspace(protections: &[(&str, ProtectionKind)]) -> WorkspacePlan {
        let protection = |(path, kind): &(&str, ProtectionKind)| Protection { path: path.into(), kind: *kind };
        WorkspacePlan {
            source: "/home/dev/project".into(),
            staged: "/run/g1/mnt/ws".into(),
            protections: protections.iter().map(protection).collect(),
            hidden: "/scratch/hidden".into(),
        }
    }

    #[test]
    fn the_namespace_is_filled_in_and_every_protection_is_a_mount_point() {
        let planned = json!({
            "linux": { "namespaces": [{ "type": "pid" }, { "type": "network" }] },
            "mounts": [{ "destination": "/workspace" }],
        });
        let protections = [(".git", ProtectionKind::Pinned), (".git/config", ProtectionKind::ReadOnly)];
        let made = specification(&planned, &workspace(&protections)).unwrap();
        assert_eq!(made["linux"]["namespaces"][1]["path"], ENFORCEMENT_NAMESPACE);
        assert_eq!(made["linux"]["namespaces"][0].get("path"), None);
        assert_eq!(made["mounts"][1]["destination"], "/workspace/.git");
        assert_eq!(made["mounts"][2]["source"], "/run/g1/mnt/ws/.git/config");
        assert_eq!(made["mounts"][2]["options"][1], "ro");
    }

    #[test]
    fn a_specification_without_a_network_namespace_is_refused() {
        let planned = json!({ "linux": { "namespaces": [{ "type": "pid" }] }, "mounts": [] });
        assert!(matches!(specification(&planned, &workspace(&[])), Err(BundleError::Incomplete(_))));
    }
}
