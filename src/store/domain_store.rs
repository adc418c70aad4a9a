//! The Domain Store: one Domain's generation document, kept in typed tables and changed in whole transactions.

use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::file::{self, FileError};
use super::records::{
    EVIDENCE_KEY, Evidence, GENERATION, HEAD_KEY, Head, PARTICIPANTS, RecordError, SESSIONS, Table, decode, encode,
};
use super::trace;
use crate::core::generation::{self, Change, GenerationDocument, Intent, Participant, Refusal, SessionRecord};
use crate::domain::ids::DomainId;
use crate::fault;

/// Why a Domain Store can't be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file belongs to another Domain (SR-11).
    #[error("{} belongs to Domain {stored}, not to {expected}", path.display())]
    ForeignDomain {
        /// The file.
        path: PathBuf,
        /// The Domain in it.
        stored: DomainId,
        /// The Domain that it was opened for.
        expected: DomainId,
    },
    /// The rules of the generation document don't permit the change.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// An open Domain Store. The caller holds the Domain lock.
#[derive(Debug)]
pub struct DomainStore {
    path: PathBuf,
    database: Database,
    document: Option<GenerationDocument>,
}

impl DomainStore {
    /// Opens the store at `path`, making it when there is none, and checks that it belongs to `domain`.
    pub fn open(path: &Path, domain: &DomainId) -> Result<Self, StoreError> {
        Self::from_database(path, file::open(path)?, domain)
    }

    pub(super) fn from_database(path: &Path, database: Database, domain: &DomainId) -> Result<Self, StoreError> {
        let document = file::guard(path, || load(path, &database))?;
        if let Some(stored) = document.as_ref().map(|document| &document.identity.domain)
            && stored != domain
        {
            let (stored, expected) = (stored.clone(), domain.clone());
            return Err(StoreError::ForeignDomain { path: path.to_owned(), stored, expected });
        }
        Ok(Self { path: path.to_owned(), database, document })
    }

    /// Gives the document as last committed; nothing before the first generation.
    pub fn document(&self) -> Option<&GenerationDocument> {
        self.document.as_ref()
    }

    /// Applies the changes in order as one durable transaction; all of them or, when one is refused, none.
    pub fn apply(&mut self, changes: &[Change]) -> Result<&GenerationDocument, StoreError> {
        let mut answers = self.apply_group(&[changes])?;
        match answers.pop() {
            Some(Err(refusal)) => Err(refusal.into()),
            _ => self.document.as_ref().ok_or(StoreError::Refused(Refusal::NoGeneration { action: "Apply" })),
        }
    }

    /// Applies several requests in one durable transaction. Each is applied whole or refused by itself.
    ///
    /// After an error nothing of the group is in [`Self::document`], but whether it is on disk is only
    /// known by opening the store again: the coordinator must end the generation.
    pub fn apply_group(
        &mut self,
        requests: &[&[Change]],
    ) -> Result<Vec<Result<GenerationDocument, Refusal>>, StoreError> {
        let mut next = self.document.clone();
        let mut answers = Vec::with_capacity(requests.len());
        for changes in requests {
            let outcome =
                changes.iter().try_fold(next.clone(), |document, change| generation::apply(document, change).map(Some));
            answers.push(match outcome {
                Ok(Some(document)) => {
                    next = Some(document.clone());
                    Ok(document)
                }
                Ok(None) => Err(Refusal::NoGeneration { action: "Apply" }),
                Err(refusal) => Err(refusal),
            });
        }
        if let Some(document) = next.filter(|document| self.document.as_ref() != Some(document)) {
            let _around = fault::around(&requests);
            file::guard(&self.path, || self.commit(&document))?;
            trace::document(self.document.as_ref(), requests);
            self.document = Some(document);
        }
        Ok(answers)
    }

    fn commit(&self, document: &GenerationDocument) -> Result<(), FileError> {
        let transaction = self.database.begin_write().map_err(|error| file::write_error(&self.path, error))?;
        let mut write = Difference { path: &self.path, transaction: &transaction };
        write.document(self.document.as_ref(), document)?;
        transaction.commit().map_err(|error| file::write_error(&self.path, error))
    }
}

/// Writes what differs between two documents.
struct Difference<'a> {
    path: &'a Path,
    transaction: &'a WriteTransaction,
}

impl Difference<'_> {
    fn document(&mut self, old: Option<&GenerationDocument>, new: &GenerationDocument) -> Result<(), FileError> {
        let head = head(new);
        if old.map(self::head).as_ref() != Some(&head) {
            self.put(GENERATION, HEAD_KEY, &head)?;
        }
        let evidence = evidence(new);
        if old.map(self::evidence).as_ref() != Some(&evidence) {
            self.put(GENERATION, EVIDENCE_KEY, &evidence)?;
        }
        let gone = old.iter().flat_map(|old| old.participants.keys());
        for participant in gone.filter(|participant| !new.participants.contains_key(participant)) {
            self.remove(PARTICIPANTS, &participant_key(participant))?;
        }
        for (participant, intent) in &new.participants {
            if old.and_then(|old| old.participants.get(participant)) != Some(intent) {
                self.put(PARTICIPANTS, &participant_key(participant), &(participant, intent))?;
            }
        }
        let gone = old.iter().flat_map(|old| old.sessions.keys());
        for session in gone.filter(|session| !new.sessions.contains_key(session)) {
            self.remove(SESSIONS, session.as_str())?;
        }
        for (session, record) in &new.sessions {
            if old.and_then(|old| old.sessions.get(session)) != Some(record) {
                self.put(SESSIONS, session.as_str(), record)?;
            }
        }
        Ok(())
    }

    fn put<T: Serialize>(&mut self, table: Table, key: &str, value: &T) -> Result<(), FileError> {
        let bytes = encode(value).map_err(|source| FileError::Encode { path: self.path.to_owned(), source })?;
        let mut table = self.transaction.open_table(table).map_err(|error| file::write_error(self.path, error))?;
        table.insert(key, bytes.as_slice()).map_err(|error| file::write_error(self.path, error))?;
        Ok(())
    }

    fn remove(&mut self, table: Table, key: &str) -> Result<(), FileError> {
        let mut table = self.transaction.open_table(table).map_err(|error| file::write_error(self.path, error))?;
        table.remove(key).map_err(|error| file::write_error(self.path, error))?;
        Ok(())
    }
}

fn head(document: &GenerationDocument) -> Head {
    Head {
        identity: document.identity.clone(),
        decision: document.decision,
        release: document.release,
        end: document.end.clone(),
        recoverer: document.recoverer.clone(),
    }
}

fn evidence(document: &GenerationDocument) -> Evidence {
    Evidence { readiness: document.readiness.clone(), probe: document.probe.clone() }
}

/// Gives a participant's key: its name, and its path when there may be several.
fn participant_key(participant: &Participant) -> String {
    match participant {
        Participant::AnchorMount(path) => format!("anchor mount {path}"),
        Participant::VolumeMount(path) => format!("volume mount {path}"),
        other => other.to_string(),
    }
}

fn load(path: &Path, database: &Database) -> Result<Option<GenerationDocument>, FileError> {
    let record = |source: RecordError| FileError::Record { path: path.to_owned(), source };
    let head: Vec<(String, Vec<u8>)> = read_table(path, database, GENERATION)?;
    let entry = |key: &str| head.iter().find(|(found, _)| found == key).map(|(_, bytes)| bytes.as_slice());
    let Some(bytes) = entry(HEAD_KEY) else { return Ok(None) };
    let head: Head = decode("generation", HEAD_KEY, bytes).map_err(record)?;
    let evidence = match entry(EVIDENCE_KEY) {
        Some(bytes) => decode("generation", EVIDENCE_KEY, bytes).map_err(record)?,
        None => Evidence { readiness: None, probe: None },
    };
    let participants = decode_table::<(Participant, Intent)>(path, database, PARTICIPANTS, "participants")?;
    let sessions = decode_table::<SessionRecord>(path, database, SESSIONS, "sessions")?;
    Ok(Some(GenerationDocument {
        identity: head.identity,
        decision: head.decision,
        participants: participants.into_iter().collect(),
        sessions: sessions.into_iter().map(|session| (session.id.clone(), session)).collect(),
        readiness: evidence.readiness,
        probe: evidence.probe,
        release: head.release,
        end: head.end,
        recoverer: head.recoverer,
    }))
}

/// Reads and decodes every record of a table; none when the table was never written.
pub(super) fn decode_table<T: DeserializeOwned>(
    path: &Path,
    database: &impl ReadableDatabase,
    table: Table,
    name: &str,
) -> Result<Vec<T>, FileError> {
    let records = read_table(path, database, table)?;
    let decoded = records.iter().map(|(key, bytes)| decode(name, key, bytes));
    decoded.collect::<Result<_, _>>().map_err(|source| FileError::Record { path: path.to_owned(), source })
}

fn read_table(
    path: &Path,
    database: &impl ReadableDatabase,
    table: Table,
) -> Result<Vec<(String, Vec<u8>)>, FileError> {
    let transaction = database.begin_read().map_err(|error| file::read_error(path, error))?;
    let table = match transaction.open_table(table) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(file::read_error(path, error)),
    };
    let mut records = Vec::new();
    for entry in table.iter().map_err(|error| file::read_error(path, error))? {
        let (key, value) = entry.map_err(|error| file::read_error(path, error))?;
        records.push((key.value().to_owned(), value.value().to_owned()));
    }
    Ok(records)
}
