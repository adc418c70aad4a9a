//! The prepared-lower lease: recorded in the Storage Catalog and in the Domain Store before any mount (FR-22).

use super::generation::GenerationContext;
use super::records::Records;
use crate::core::generation::{Change, Ownership, Participant};
use crate::store::writer::WriteError;
use crate::store::{Catalog, CatalogError};

/// The lease can't be acquired.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The catalog refused or failed.
    #[error("the prepared image can't be leased")]
    Catalog(#[from] CatalogError),
    /// The catalog's task was lost.
    #[error("the catalog's task was lost")]
    Task(#[from] tokio::task::JoinError),
    /// The lease can't be recorded in the Domain Store.
    #[error("the lease can't be recorded")]
    Store(#[from] WriteError),
}

/// Acquires the generation's lease and records it.
pub async fn acquire(generation: &GenerationContext, store: &Records) -> Result<(), LeaseError> {
    let storage = generation.places.storage.clone();
    let (domain, number) = (generation.identity.domain.clone(), generation.identity.generation);
    let artifact = generation.artifact.id.clone();
    let leased = artifact.clone();
    tokio::task::spawn_blocking(move || Catalog::open(&storage)?.acquire_lease(&domain, number, &leased)).await??;
    store.apply(vec![Change::Own(Participant::Lease, Ownership::Artifact(artifact))]).await?;
    Ok(())
}
