//! What is fixed about the generation that this coordinator leads.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::admission::Grant;
use crate::core::generation::{GenerationDocument, GenerationIdentity, Ownership, Participant};
use crate::domain::artifact::ArtifactManifest;
use crate::domain::escaped::escape;
use crate::domain::ids::{DomainId, Generation, SessionId};
use crate::domain::layout::{DomainRoot, RuntimeRoot, StorageRoot};
use crate::domain::network::NetworkPolicy;
use crate::domain::ownership::ProcessIdentity;
use crate::domain::profile::Profile;
use crate::domain::session::SessionRequest;
use crate::sys::procfs;
use crate::wire::client::DomainStatus;
use crate::wire::lease::InnerProcess;

/// Where a Domain's things lie.
#[derive(Debug, Clone)]
pub struct Places {
    /// The Storage Root.
    pub storage: StorageRoot,
    /// The Domain Root.
    pub domain: DomainRoot,
    /// The Domain's runtime directory.
    pub runtime: RuntimeRoot,
}

impl Places {
    /// Derives a Domain's places.
    pub fn new(storage_root: PathBuf, runtime_base: &std::path::Path, domain: &DomainId) -> Self {
        let storage = StorageRoot::new(storage_root);
        Self { domain: storage.domain(domain), runtime: RuntimeRoot::new(runtime_base, domain), storage }
    }

    /// The generation's directory that holds runsc's root, mounts' mount points and the mailbox.
    pub fn runtime_of(&self, generation: Generation) -> PathBuf {
        self.runtime.generation(generation)
    }

    /// The generation's mount points.
    pub fn mounts_of(&self, generation: Generation) -> MountPlaces {
        MountPlaces(self.runtime_of(generation).join("m"))
    }
}

/// Where the supervisor mounts a generation's file systems, in its own mount namespace.
#[derive(Debug, Clone)]
pub struct MountPlaces(PathBuf);

impl MountPlaces {
    /// The directory of all mount points.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// The merged root.
    pub fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// The staged workspace.
    pub fn workspace(&self) -> PathBuf {
        self.0.join("w")
    }

    /// The State Anchor of the profile's persistent path with this position.
    pub fn anchor(&self, position: usize) -> PathBuf {
        self.0.join(format!("a{position}"))
    }

    /// The profile's volume with this position.
    pub fn volume(&self, position: usize) -> PathBuf {
        self.0.join(format!("v{position}"))
    }

    /// The control mount with this position.
    pub fn control(&self, position: usize) -> PathBuf {
        self.0.join(format!("c{position}"))
    }

    /// Gives the participant that is mounted at a target.
    pub fn participant(&self, target: &str, profile: &Profile) -> Option<Participant> {
        let is = |path: PathBuf| path.as_os_str() == target;
        if is(self.root()) {
            return Some(Participant::RootMount);
        }
        if is(self.workspace()) {
            return Some(Participant::WorkspaceMount);
        }
        let anchor = profile.persistent.iter().enumerate().find(|(position, _)| is(self.anchor(*position)));
        if let Some((_, path)) = anchor {
            return Some(Participant::AnchorMount(path.clone()));
        }
        let volume = profile.volumes.iter().enumerate().find(|(position, _)| is(self.volume(*position)));
        volume.map(|(_, volume)| Participant::VolumeMount(volume.guest.clone()))
    }
}

/// What the starting client is going to ask for.
#[derive(Debug, Clone)]
pub struct Announced {
    /// The session that is prepared for it.
    pub session: SessionId,
    /// What it will ask.
    pub request: SessionRequest,
}

/// Everything fixed about a generation once it has begun.
#[derive(Debug)]
pub struct GenerationContext {
    /// Its identities.
    pub identity: GenerationIdentity,
    /// The validated profile.
    pub profile: Profile,
    /// The prepared lower.
    pub artifact: ArtifactManifest,
    /// The derived network policy.
    pub policy: NetworkPolicy,
    /// Where its things lie.
    pub places: Places,
    /// The session that the starting client announced.
    pub announced: Option<Announced>,
    /// The Runtime Supervisor's process id, once it runs.
    pub supervisor: OnceLock<i32>,
    /// Set before the end is recorded; see [`GenerationContext::end_traffic`].
    pub ending: AtomicBool,
}

impl GenerationContext {
    /// Lets nothing that a client sends reach its session from here on (FR-15).
    pub fn end_traffic(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    /// Tells whether what clients send reaches their sessions.
    pub fn has_traffic(&self) -> bool {
        !self.ending.load(Ordering::SeqCst)
    }

    /// Gives what admission needs to know.
    pub fn grant(&self) -> Grant<'_> {
        Grant {
            domain: &self.identity.domain,
            profile: &self.profile,
            configuration: &self.identity.configuration,
            user: &self.artifact.user,
            image: &self.artifact.runtime,
        }
    }

    /// Gives the identity, in this process's pid namespace, of a process that the supervisor named;
    /// nothing when it has ended.
    pub fn outer_process(&self, inner: &InnerProcess) -> Option<ProcessIdentity> {
        let outer = procfs::outer_pid(*self.supervisor.get()?, inner.pid)?;
        let identity = procfs::identity(outer).ok().flatten()?;
        (identity.start_time == inner.start_time).then_some(identity)
    }

    /// Gives the Domain's status without its sessions.
    pub fn status(&self, document: Option<&GenerationDocument>) -> DomainStatus {
        let mut processes = vec![("coordinator".to_owned(), self.identity.leader.pid)];
        let participants = [
            ("supervisor", Participant::RuntimeSupervisor),
            ("runsc", Participant::Runsc),
            ("slirp4netns", Participant::Helper),
        ];
        for (name, participant) in participants {
            if let Some(Ownership::Process(process)) = document.and_then(|d| d.ownership(&participant)) {
                processes.push((name.to_owned(), process.pid));
            }
        }
        DomainStatus {
            domain: self.identity.domain.clone(),
            profile: self.identity.profile.clone(),
            workspace: {
                use std::os::unix::ffi::OsStrExt;
                escape(self.identity.workspace.path().as_os_str().as_bytes())
            },
            generation: self.identity.generation,
            coordinator: self.identity.coordinator.clone(),
            sandbox: self.identity.sandbox.clone(),
            configuration: self.identity.configuration.clone(),
            image: self.profile.image.to_string(),
            since: self.identity.began_at,
            processes,
            sessions: Vec::new(),
            network: self.policy.rules.iter().map(ToString::to_string).collect(),
            persistent: self.profile.persistent.iter().map(ToString::to_string).collect(),
            document: document.map(|document| Box::new(document.clone())),
        }
    }
}
