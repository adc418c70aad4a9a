//! The election of one Host Coordinator for a Domain (OR-1): whoever takes the Domain lock leads.

use std::io;
use std::path::PathBuf;

use super::generation::Places;
use crate::domain::ids::DomainId;
use crate::domain::layout::COORDINATOR_LOG;
use crate::domain::workspace::DomainRecord;
use crate::observe::{self, Subject};
use crate::store::{DomainStore, StoreError};
use crate::sys::directories::{self, DirectoryError};
use crate::sys::lock::{FileLock, try_lock};
use crate::sys::private;
use crate::sys::seqpacket::Lease;
use crate::wire::bootstrap::Start;
use crate::wire::frame::{self, FrameError};

/// What the leader of a Domain holds.
pub struct Elected {
    /// The Domain.
    pub domain: DomainId,
    /// What the client asked for.
    pub start: Start,
    /// Where the Domain's things lie.
    pub places: Places,
    /// The Domain Store.
    pub store: DomainStore,
    /// The Domain lock, held until this is dropped.
    pub lock: FileLock,
}

/// A coordinator can't come to lead its Domain.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// The client sent nothing or nonsense.
    #[error("the starting client did not say what to start")]
    NoStart(#[source] io::Error),
    /// The client's message can't be decoded.
    #[error("the starting client's message can't be read")]
    BadStart(#[source] FrameError),
    /// A directory is not private or can't be made.
    #[error("the Domain's directories can't be used")]
    Directory(#[from] DirectoryError),
    /// The lock can't be tried.
    #[error("the Domain lock {} can't be taken", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The Domain Root belongs to another Domain.
    #[error("{} describes another Domain than {domain}", path.display())]
    ForeignRoot {
        /// The identity record.
        path: PathBuf,
        /// The Domain that was wanted.
        domain: DomainId,
    },
    /// The identity record can't be read or written.
    #[error("the identity record {} can't be used", path.display())]
    Identity {
        /// The identity record.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The log can't be opened.
    #[error("the coordinator's log {} can't be opened", path.display())]
    Log {
        /// The log file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The Domain Store can't be opened.
    #[error("the Domain Store can't be opened")]
    Store(#[from] StoreError),
}

impl ElectionError {
    /// Gives what the developer can do.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::ForeignRoot { path, .. } => {
                let root = path.parent().unwrap_or(path);
                vec![format!("look at {} and move it away; a new one is made", root.display())]
            }
            _ => Vec::new(),
        }
    }
}

/// Reads what to start and takes the Domain lock; nothing when another coordinator holds it.
pub async fn elect(pair: &Lease) -> Result<Option<Elected>, ElectionError> {
    let packet = pair.receive().await.map_err(ElectionError::NoStart)?;
    let (bytes, _) = packet.ok_or_else(|| ElectionError::NoStart(io::ErrorKind::UnexpectedEof.into()))?;
    let start: Start = frame::decode(&bytes).map_err(ElectionError::BadStart)?;
    let domain = DomainId::derive(&start.profile.name, start.workspace.path());
    let places = Places::new(start.storage_root.clone(), &start.runtime_base, &domain);
    for directory in [
        places.storage.path(),
        &places.storage.domains(),
        places.domain.path(),
        &places.domain.logs(),
        &places.domain.anchors(),
        &start.runtime_base,
        places.runtime.path(),
    ] {
        directories::ensure_private(directory)?;
    }
    let path = places.domain.lock();
    let Some(lock) = try_lock(&path).map_err(|source| ElectionError::Lock { path, source })? else {
        return Ok(None);
    };
    // The last leader may have removed it since, which it did under the lock.
    directories::ensure_private(places.runtime.path())?;
    verify_identity(&domain, &start, &places)?;
    begin_log(&domain, &places)
        .map_err(|source| ElectionError::Log { path: places.domain.coordinator_log(), source })?;
    let store = DomainStore::open(&places.domain.store(), &domain)?;
    Ok(Some(Elected { domain, start, places, store, lock }))
}

fn begin_log(domain: &DomainId, places: &Places) -> io::Result<()> {
    let directory = observe::directory(&places.domain.logs())?;
    let subject = Subject { domain: domain.clone(), tree: super::TREE, actors: super::ACTORS };
    observe::to_file(directory, COORDINATOR_LOG, subject).map_err(io::Error::other)
}

/// A Domain Root is used only when it says that it is this Domain's (SR-11).
fn verify_identity(domain: &DomainId, start: &Start, places: &Places) -> Result<(), ElectionError> {
    let path = places.domain.identity();
    let ours = DomainRecord::new(&start.profile.name, &start.workspace);
    let failed = |source| ElectionError::Identity { path: path.clone(), source };
    match std::fs::read(&path) {
        Ok(content) => match serde_json::from_slice::<DomainRecord>(&content) {
            Ok(stored) if stored == ours => Ok(()),
            Ok(_) => Err(ElectionError::ForeignRoot { path, domain: domain.clone() }),
            Err(error) => Err(failed(error.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let content = serde_json::to_vec_pretty(&ours).map_err(|error| failed(error.into()))?;
            private::write_file(&path, &content).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}
