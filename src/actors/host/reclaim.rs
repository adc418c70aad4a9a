//! Carries out what [`crate::core::recovery`] plans: for a generation whose coordinator is gone, and for
//! what a supervisor left at the end of our own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::generation::Places;
use super::records::Records;
use crate::core::generation::{Contents, GenerationDocument, Participant};
use crate::core::recovery::{Inquiry, Observed, RecoveryEffect, RecoveryRefusal, plan};
use crate::domain::artifact::IdMapping;
use crate::domain::layout::StorageRoot;
use crate::domain::ownership::{PathIdentity, ProcessIdentity};
use crate::store::writer::WriteError;
use crate::store::{Catalog, CatalogError, sighting};
use crate::sys::errand::{self, ErrandError};
use crate::sys::{process, procfs, removal};
use crate::{fault, protocol_trace};

/// How long a killed process may take to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(5);

/// What is left over can't be removed.
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    /// This process can't be identified.
    #[error("this process can't be identified")]
    Identity(#[source] io::Error),
    /// The Domain Store refused or failed.
    #[error("the recovery can't be recorded")]
    Store(#[from] WriteError),
    /// The Storage Catalog refused or failed.
    #[error("the prepared image's lease can't be released")]
    Catalog(#[from] CatalogError),
    /// A blocking task was lost.
    #[error("a task of the recovery was lost")]
    Task(#[from] tokio::task::JoinError),
    /// A process can't be killed.
    #[error("process {} of an earlier generation can't be ended", process.pid)]
    Kill {
        /// The process.
        process: ProcessIdentity,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A path can't be removed.
    #[error("{} of an earlier generation can't be removed", path.display())]
    Remove {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A tree with files of subordinate ids can't be removed.
    #[error("{} of an earlier generation can't be removed under its identity mapping", path.display())]
    Errand {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: ErrandError,
    },
    /// Something lies where ours may be, and is not provably ours.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Foreign(Vec<RecoveryRefusal>),
}

impl ReclaimError {
    /// Gives what the developer can do.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Foreign(refusals) => refusals.iter().map(RecoveryRefusal::hint).collect(),
            Self::Remove { path, .. } | Self::Errand { path, .. } => {
                let path = path.display();
                vec![format!(
                    "if something is mounted below {path}, unmount it (findmnt shows it), and run the command again"
                )]
            }
            _ => Vec::new(),
        }
    }
}

/// Gives the exact identity of this process.
pub fn own_identity() -> io::Result<ProcessIdentity> {
    procfs::identity(std::process::id() as i32)?.ok_or_else(|| io::Error::other("/proc does not show this process"))
}

/// Gives the exact identity of what lies at a path, which must be there.
pub fn owned_identity(path: &Path) -> io::Result<PathIdentity> {
    sighting::path_identity(path)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Compares the document with the world and removes what is exactly owned.
pub async fn run(store: &Records, places: &Places) -> Result<(), ReclaimError> {
    let Some(document) = store.document().await? else { return Ok(()) };
    let observed = observe(&document, &places.storage).await?;
    let plan = plan(&document, &observed);
    for effect in plan.effects {
        tracing::debug!(?effect, "reclaim");
        carry_out(effect, store, &places.storage).await?;
    }
    if plan.refusals.is_empty() {
        return Ok(());
    }
    let left_alone = plan.refusals.iter().map(|refusal| refusal.participant.name());
    protocol_trace::event("Refuse").with_all("participants", left_alone).write();
    Err(ReclaimError::Foreign(plan.refusals))
}

async fn observe(document: &GenerationDocument, storage: &StorageRoot) -> Result<Observed, ReclaimError> {
    let inquiry = Inquiry::of(document);
    let leader = own_identity().map_err(ReclaimError::Identity)?;
    let held = |pid: &i32| procfs::identity(*pid).ok().flatten().map(|identity| (*pid, identity));
    let lease = match inquiry.lease {
        Some((domain, generation)) => {
            let storage = storage.clone();
            tokio::task::spawn_blocking(move || {
                Catalog::open(&storage).map(|catalog| catalog.lease(&domain, generation).cloned())
            })
            .await??
        }
        None => None,
    };
    Ok(Observed {
        leader,
        processes: inquiry.pids.iter().filter_map(held).collect(),
        paths: inquiry.paths.into_iter().map(|(participant, path)| (participant, sighting::look(&path))).collect(),
        lease,
    })
}

async fn carry_out(effect: RecoveryEffect, store: &Records, storage: &StorageRoot) -> Result<(), ReclaimError> {
    let _around = fault::around(&effect);
    let action = effect.action();
    let traced = action.map(|(action, whose)| protocol_trace::event(action).with("participant", &whose.name()));
    match effect {
        RecoveryEffect::Record(changes) => {
            store.apply(changes).await?;
        }
        RecoveryEffect::KillSupervisor(process) | RecoveryEffect::KillProcess(process) => {
            kill(&process).await.map_err(|source| ReclaimError::Kill { process, source })?;
        }
        RecoveryEffect::RemoveFile { participant, path, identity } => {
            remove_file(participant, &path, &identity)?;
        }
        RecoveryEffect::RemoveEmptyDirectory { participant, path, identity } => {
            remove(participant, &path, &identity, |path| std::fs::remove_dir(path))?;
        }
        RecoveryEffect::RemoveTree { participant, path, identity, contents } => match contents {
            Contents::Developer => {
                remove(participant, &path, &identity, |path| removal::remove_tree(path).map_err(io::Error::other))?
            }
            Contents::Mapped(mapping) => remove_mapped(path, &identity, mapping).await?,
        },
        RecoveryEffect::DeleteLease { domain, generation, .. } => {
            let storage = storage.clone();
            tokio::task::spawn_blocking(move || Catalog::open(&storage)?.release_lease(&domain, generation)).await??;
        }
    }
    if let Some(event) = traced {
        event.write();
    }
    Ok(())
}

/// Kills exactly this process: the pidfd is opened first and the identity compared after, so a reused pid is never hit.
async fn kill(process: &ProcessIdentity) -> io::Result<()> {
    let Some(pidfd) = process::open_exact(process)? else { return Ok(()) };
    process::kill(&pidfd)?;
    tokio::time::timeout(KILL_DEADLINE, process::ended(&pidfd)).await?
}

/// Removes a file or socket that is still what it was recorded as; one that is gone is already removed.
pub fn remove_file(participant: Participant, path: &Path, identity: &PathIdentity) -> Result<(), ReclaimError> {
    let event = protocol_trace::event("RemoveFile").with("participant", &participant.name());
    remove(participant, path, identity, |path| std::fs::remove_file(path).inspect(|()| event.write()))
}

/// Removes a path that is still what it was recorded as; one that is gone is already removed.
fn remove(
    participant: Participant,
    path: &Path,
    identity: &PathIdentity,
    remove: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), ReclaimError> {
    let removed = match owned_identity(path) {
        Ok(found) if found == *identity => remove(path),
        Ok(_) => Err(io::Error::other(format!("the {participant} was replaced a moment ago"))),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| ReclaimError::Remove { path: path.to_owned(), source }),
    }
}

async fn remove_mapped(path: PathBuf, identity: &PathIdentity, mapping: IdMapping) -> Result<(), ReclaimError> {
    match owned_identity(&path) {
        Ok(found) if found == *identity => {}
        Ok(_) => {
            let source = io::Error::other("it was replaced a moment ago");
            return Err(ReclaimError::Remove { path, source });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ReclaimError::Remove { path, source }),
    }
    let empty = std::fs::read_dir(&path).map(|mut entries| entries.next().is_none()).unwrap_or(false);
    if empty {
        return std::fs::remove_dir(&path).map_err(|source| ReclaimError::Remove { path, source });
    }
    let trees = [path.clone()];
    errand::remove_trees(&mapping, &trees).await.map_err(|source| ReclaimError::Errand { path, source })
}

#[cfg(test)]
mod tests;
