//! Where things lie on the host. Every path below a root is built here and nowhere else (SR-11).

use std::path::{Path, PathBuf};

use super::ids::{ArtifactId, DomainId, Generation, PreparationId};

/// The Storage Root, `$XDG_DATA_HOME/lazaret`: persistent, host-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageRoot(PathBuf);

impl StorageRoot {
    /// Takes the root directory, absolute.
    pub fn new(root: PathBuf) -> Self {
        Self(root)
    }
    /// The root directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// The Storage Catalog.
    pub fn catalog(&self) -> PathBuf {
        self.0.join("catalog.redb")
    }
    /// The lock that serialises short catalog transactions (FR-17).
    pub fn catalog_lock(&self) -> PathBuf {
        self.0.join("storage-catalog.lock")
    }
    /// Content-addressed OCI blobs, shared between images.
    pub fn blobs(&self) -> PathBuf {
        self.0.join("blobs/sha256")
    }
    /// Which manifest an image reference last stood for; a cache that may be lost at any time.
    pub fn references(&self) -> PathBuf {
        self.0.join("references")
    }
    /// All prepared lowers.
    pub fn prepared(&self) -> PathBuf {
        self.0.join("prepared")
    }
    /// One prepared artifact: `rootfs/` and `manifest.json`.
    pub fn artifact(&self, id: &ArtifactId) -> PathBuf {
        self.prepared().join(id.as_str())
    }
    /// A preparation in progress; renamed to its artifact when complete.
    pub fn preparation(&self, id: &PreparationId) -> PathBuf {
        self.prepared().join(format!(".preparing-{id}"))
    }
    /// All Domain Roots.
    pub fn domains(&self) -> PathBuf {
        self.0.join("domains")
    }
    /// One Domain Root.
    pub fn domain(&self, id: &DomainId) -> DomainRoot {
        DomainRoot(self.domains().join(id.as_str()))
    }
}

/// A Domain Root: persistent state and metadata of one Domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainRoot(PathBuf);

impl DomainRoot {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// The exclusive lifecycle lock (OR-1).
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
    /// The Domain Store, opened only by the lock holder (FR-17).
    pub fn store(&self) -> PathBuf {
        self.0.join("store.redb")
    }
    /// Which Domain this is, for people and for the check before reuse (SR-11): `identity.json`.
    pub fn identity(&self) -> PathBuf {
        self.0.join("identity.json")
    }
    /// State Anchors: `PATH-ID/{upper,work}`.
    pub fn anchors(&self) -> PathBuf {
        self.0.join("state")
    }
    /// Log files.
    pub fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }
    /// The Host Coordinator's log.
    pub fn coordinator_log(&self) -> PathBuf {
        self.logs().join(COORDINATOR_LOG)
    }
    /// The Runtime Supervisor's log.
    pub fn supervisor_log(&self) -> PathBuf {
        self.logs().join(SUPERVISOR_LOG)
    }
    /// Scratch of one generation, removed at teardown: root upper and work, hidden directories.
    pub fn scratch(&self, generation: Generation) -> PathBuf {
        self.0.join(format!("scratch-{generation}"))
    }
}

/// Name of the Host Coordinator's log in the directory of log files.
pub const COORDINATOR_LOG: &str = "coordinator.log";

/// Name of the Runtime Supervisor's log in the directory of log files.
pub const SUPERVISOR_LOG: &str = "supervisor.log";

/// The runtime directory of one Domain, `$XDG_RUNTIME_DIR/lazaret/DOMAIN`, mode 0700.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeRoot(PathBuf);

impl RuntimeRoot {
    /// Takes the directory that holds all Domains' runtime directories, and the Domain.
    pub fn new(runtime_base: &Path, domain: &DomainId) -> Self {
        Self(runtime_base.join(domain.as_str()))
    }
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// The Host Coordinator's socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("hc.sock")
    }
    /// The publication record; its presence with a live socket means published.
    pub fn publication(&self) -> PathBuf {
        self.0.join("publication.json")
    }
    /// What a start in progress is doing, for callers that wait.
    pub fn startup(&self) -> PathBuf {
        self.0.join("startup.json")
    }
    /// Everything of one generation below the runtime directory; short, for socket paths.
    pub fn generation(&self, generation: Generation) -> PathBuf {
        self.0.join(format!("g{generation}"))
    }
}
