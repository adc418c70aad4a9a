//! The runtime plan of a generation: every path and grant, decided here and carried out by the supervisor.

use std::io;
use std::path::{Path, PathBuf};

use super::generation::GenerationContext;
use super::guest_executable::{self, GuestExecutableError};
use super::workspace;
use crate::domain::layout::DomainRoot;
use crate::domain::profile::{Access, GuestPath};
use crate::domain::runtime::{
    AnchorPlan, GUEST_CONTROL, OverlayPlan, RootFile, RuntimePlan, VolumePlan, WorkspacePlan,
};
use crate::guest::command_line;
use crate::policy::derive;
use crate::policy::protections::{self, ProtectionRefusal};
use crate::policy::sandbox::{self, SandboxInput, SpecificationError};
use crate::sys::{directories, executables, private};

/// The plan can't be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The workspace can't be looked at.
    #[error("the workspace {} can't be read", path.display())]
    Workspace {
        /// The workspace.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The workspace can't be protected.
    #[error("the workspace can't be protected")]
    Protection(#[source] ProtectionRefusal),
    /// A directory can't be made.
    #[error("the directory {} can't be made", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An executable is missing.
    #[error("{0} is not installed")]
    Executable(&'static str),
    /// The guest executable is missing.
    #[error("the sandbox's own executable is missing")]
    Guest(#[from] GuestExecutableError),
    /// The OCI specification can't be made.
    #[error("the sandbox's specification can't be made")]
    Specification(#[from] SpecificationError),
}

impl PlanError {
    /// Gives what the developer can do.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Protection(refusal) => vec![refusal.hint()],
            Self::Executable(_) | Self::Guest(_) => vec!["run `lazaret doctor`".to_owned()],
            _ => Vec::new(),
        }
    }
}

/// The plan, and what the developer should know about it.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: RuntimePlan,
    /// One line each.
    pub notices: Vec<String>,
}

/// Makes the plan and the private directories that it names. The generation's runtime and scratch
/// directories exist and are recorded.
pub fn make(context: &GenerationContext) -> Result<Planned, PlanError> {
    let identity = &context.identity;
    let profile = &context.profile;
    let runtime = context.places.runtime_of(identity.generation);
    let scratch = context.places.domain.scratch(identity.generation);
    let mounts = context.places.mounts_of(identity.generation);
    let (requests, results) = (runtime.join("mailbox/requests"), runtime.join("mailbox/results"));
    let runsc_directory = runtime.join("r");
    for directory in [mounts.path(), &requests, &results, &runsc_directory] {
        ensure(directory)?;
    }
    let executables = guest_executable::stage(&context.places.storage)?;
    let control = [
        (executables, "bin", Access::ReadOnly),
        (requests, "mailbox/requests", Access::ReadWrite),
        (results, "mailbox/results", Access::ReadOnly),
    ];
    let control: Vec<_> = control
        .into_iter()
        .enumerate()
        .map(|(number, (source, name, access))| VolumePlan {
            source,
            guest: constant(&format!("{GUEST_CONTROL}/{name}")),
            access,
            staged: mounts.control(number),
        })
        .collect();
    let facts = workspace::gather(identity.workspace.path(), &profile.workspace.hide)
        .map_err(|source| PlanError::Workspace { path: identity.workspace.path().to_owned(), source })?;
    let protected = protections::plan(&facts, &profile.workspace).map_err(PlanError::Protection)?;
    let root = OverlayPlan { upper: scratch.join("root"), work: scratch.join("work"), merged: mounts.root() };
    let anchors: Vec<_> = profile
        .persistent
        .iter()
        .enumerate()
        .map(|(number, path)| anchor(&context.places.domain, path, mounts.anchor(number)))
        .collect::<Result<_, _>>()?;
    let volumes: Vec<_> = profile
        .volumes
        .iter()
        .enumerate()
        .map(|(number, volume)| VolumePlan {
            source: volume.host.clone(),
            guest: volume.guest.clone(),
            access: volume.access,
            staged: mounts.volume(number),
        })
        .collect();
    let workspace = WorkspacePlan {
        source: identity.workspace.path().to_owned(),
        staged: mounts.workspace(),
        protections: protected.protections,
        hidden: scratch.join("hidden"),
    };
    let probe = derive::probe_plan(&context.policy, &profile.network.probe);
    let hostname = sandbox::hostname(identity.workspace.path());
    let oci_spec = sandbox::specification(&SandboxInput {
        root: &root.merged,
        hostname: &hostname,
        workspace: &workspace.staged,
        anchors: &anchors,
        volumes: &volumes,
        control: &control,
        limits: &profile.limits,
        mapping: &context.artifact.mapping,
        init: &command_line::init(&probe),
    })?;
    let plan = RuntimePlan {
        domain: identity.domain.clone(),
        generation: identity.generation,
        configuration: identity.configuration.clone(),
        sidecar: identity.sidecar.clone(),
        sandbox: identity.sandbox.clone(),
        uid: context.artifact.user.uid,
        gid: context.artifact.user.gid,
        lower: context.places.storage.artifact(&context.artifact.id).join("rootfs"),
        root,
        anchors,
        workspace,
        volumes,
        control,
        root_files: root_files(context, &hostname),
        runsc_directory,
        scratch,
        runsc: executable("runsc")?,
        slirp4netns: executable("slirp4netns")?,
        policy: context.policy.clone(),
        probe,
        oci_spec,
    };
    Ok(Planned { plan, notices: protected.notices })
}

fn executable(name: &'static str) -> Result<PathBuf, PlanError> {
    executables::find(name).ok_or(PlanError::Executable(name))
}

fn ensure(path: &Path) -> Result<(), PlanError> {
    directories::ensure_private(path)
        .map(drop)
        .map_err(|error| PlanError::Directory { path: path.to_owned(), source: io::Error::other(error) })
}

/// A State Anchor lies in a directory named by a digest of its path, since a path is no file name; a
/// file beside its layers says which path it is.
fn anchor(domain: &DomainRoot, path: &GuestPath, merged: PathBuf) -> Result<AnchorPlan, PlanError> {
    use sha2::{Digest, Sha256};
    let id = &hex::encode(Sha256::digest(path.as_str()))[..16];
    let directory = domain.anchors().join(id);
    ensure(&directory)?;
    let label = directory.join("path");
    if !label.exists() {
        private::write_file(&label, path.as_str().as_bytes())
            .map_err(|source| PlanError::Directory { path: label, source })?;
    }
    let overlay = OverlayPlan { upper: directory.join("upper"), work: directory.join("work"), merged };
    Ok(AnchorPlan { path: path.clone(), overlay })
}

fn constant(path: &str) -> GuestPath {
    GuestPath::try_from(path.to_owned()).expect("a constant path is a sandbox path")
}

fn root_files(context: &GenerationContext, hostname: &str) -> Vec<RootFile> {
    let file = |path: &str, content: String| RootFile { path: constant(path), content };
    let local_v6 = if context.policy.ipv6.is_on() { "::1 localhost\n" } else { "" };
    let resolvers: String = context.policy.resolvers.iter().map(|address| format!("nameserver {address}\n")).collect();
    vec![
        file("/etc/resolv.conf", resolvers),
        file("/etc/hosts", format!("127.0.0.1 localhost\n{local_v6}127.0.1.1 {hostname}\n")),
        file("/etc/hostname", format!("{hostname}\n")),
    ]
}
