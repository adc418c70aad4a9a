//! Bytes and tables: every stored value is MessagePack inside a versioned enum.
//!
//! The `meta` table's `schema` entry is the version of the whole file: which tables there are and
//! which record versions they may hold. A file with a newer one is not read at all (FR-21). A new
//! record version is a new variant of [`Stored`] with types of its own; the old variant and its types
//! stay, and the golden files in `tests/golden` prove that they are still read.

use redb::{TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::core::generation::{Decision, GenerationIdentity, LeaseRelease};
use crate::core::lifecycle::EndReason;
use crate::domain::network::{NetworkAttestation, ProbeReport};
use crate::domain::ownership::ProcessIdentity;

/// Schema version of both stores.
pub(super) const SCHEMA: u64 = 1;

/// Brings a file to the next schema version, in the transaction that records that version as well. It is given
/// either store's file, and finds the tables of one of them.
pub(super) type Migration = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// The steps from version 1 to 2, from 2 to 3, and so on.
pub(super) const MIGRATIONS: [Migration; SCHEMA as usize - 1] = [];

/// `schema` → version.
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
/// Key of the schema version in [`META`].
pub(super) const SCHEMA_KEY: &str = "schema";

/// A table of encoded records under text keys.
pub(super) type Table = TableDefinition<'static, &'static str, &'static [u8]>;

/// `head` → [`Head`], `evidence` → [`Evidence`].
pub(super) const GENERATION: Table = TableDefinition::new("generation");
/// Key of the head in [`GENERATION`].
pub(super) const HEAD_KEY: &str = "head";
/// Key of the evidence in [`GENERATION`].
pub(super) const EVIDENCE_KEY: &str = "evidence";
/// Participant key → participant and intent.
pub(super) const PARTICIPANTS: Table = TableDefinition::new("participants");
/// Session ID → session record.
pub(super) const SESSIONS: Table = TableDefinition::new("sessions");

/// Artifact ID → artifact record.
pub(super) const ARTIFACTS: Table = TableDefinition::new("artifacts");
/// Preparation ID → preparation record.
pub(super) const PREPARATIONS: Table = TableDefinition::new("preparations");
/// `DOMAIN/GENERATION` → lease record.
pub(super) const LEASES: Table = TableDefinition::new("leases");

/// The small part of a generation document that changes with every decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) identity: GenerationIdentity,
    pub(super) decision: Decision,
    pub(super) release: LeaseRelease,
    pub(super) end: Option<EndReason>,
    pub(super) recoverer: Option<ProcessIdentity>,
}

/// Network readiness of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Evidence {
    pub(super) readiness: Option<NetworkAttestation>,
    pub(super) probe: Option<ProbeReport>,
}

/// A stored value with its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Stored<T> {
    /// The first version.
    V1(T),
}

/// A record that can't be read back.
#[derive(Debug, thiserror::Error)]
#[error("record '{key}' in table '{table}' can't be decoded")]
pub struct RecordError {
    /// The table.
    pub table: String,
    /// The record's key.
    pub key: String,
    /// Why.
    #[source]
    pub source: rmp_serde::decode::Error,
}

/// Encodes a value as its newest version. Fields are written by name, so that one can be added.
pub(super) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    rmp_serde::to_vec_named(&Stored::V1(value))
}

/// Decodes a value of any version.
pub(super) fn decode<T: DeserializeOwned>(table: &str, key: &str, bytes: &[u8]) -> Result<T, RecordError> {
    match rmp_serde::from_slice(bytes) {
        Ok(Stored::V1(value)) => Ok(value),
        Err(source) => Err(RecordError { table: table.to_owned(), key: key.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_an_error_that_names_the_record() {
        #[derive(Serialize)]
        enum Later {
            V9(u32),
        }
        let bytes = rmp_serde::to_vec_named(&Later::V9(1)).unwrap();
        let error = decode::<u32>("sessions", "x", &bytes).unwrap_err();
        assert_eq!(error.to_string(), "record 'x' in table 'sessions' can't be decoded");
        assert_eq!(decode::<u32>("t", "k", &encode(&7_u32).unwrap()).unwrap(), 7);
    }
}
