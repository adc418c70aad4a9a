//! Domain Store and Storage Catalog: the two durable records, both on redb.
//!
//! [`DomainStore`] holds one Domain's generation document and is opened by the Host Coordinator that
//! holds the Domain lock, by nobody else. [`Catalog`] is shared by all Domains: it is opened under
//! its lock for a moment and closed again. What they record, in which order, and how recovery reads
//! it is in `docs/store.md`. Both APIs block; [`writer::StoreWriter`] is the Domain Store as an actor.

mod backend;
mod catalog;
mod catalog_lock;
mod domain_store;
mod file;
mod held;
mod records;
pub mod sighting;
mod trace;
pub mod writer;

pub use self::catalog::{Catalog, CatalogError, Completion, LOCK_WAIT};
pub use self::catalog_lock::LockError;
pub use self::domain_store::{DomainStore, StoreError};
pub use self::file::FileError;

#[cfg(test)]
mod tests;
