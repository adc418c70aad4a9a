//! Whether what lies at a path is provably this generation's.

use std::fmt;
use std::path::{Path, PathBuf};

use super::RecoveryEffect;
use crate::core::generation::{GenerationIdentity, Intent, Ownership, Participant, Target};
use crate::domain::ids::{ArtifactId, CoordinatorId, Generation};
use crate::domain::ownership::{BootId, PathIdentity};

/// What was seen at a path, without following a symlink at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// Nobody looked.
    NotLooked,
    /// Nothing is there.
    Absent,
    /// Something is there.
    Present(Found),
    /// It could not be looked at; the text says why.
    Unreadable(String),
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its identity.
    pub identity: PathIdentity,
    /// Who owns it.
    pub owner: Owner,
    /// What it is.
    pub kind: FoundKind,
}

/// Who owns a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The developer.
    Developer,
    /// Somebody else.
    Other,
}

/// What kind of thing was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundKind {
    /// A directory without entries.
    EmptyDirectory,
    /// A directory with entries.
    FilledDirectory,
    /// A socket.
    Socket(Listener),
    /// A regular file, and the Session Coordinator ID in it when it is a publication record.
    File(Option<CoordinatorId>),
    /// Anything else: a symlink, a device, a FIFO.
    Other,
}

/// Whether a process listens on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// A connect(2) was refused.
    None,
    /// A connect(2) was taken, or failed in another way.
    Some,
}

/// Why something that was found is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// It is another thing than the one that was recorded.
    Replaced,
    /// It has content, and its making was never recorded.
    UnrecordedContent,
    /// It is of another kind than what was intended.
    OtherKind,
    /// It belongs to another user.
    OtherUser,
    /// A process listens on it.
    Listening,
    /// It does not name this generation's Session Coordinator.
    OtherCoordinator,
    /// It could not be looked at.
    Unreadable(String),
    /// The catalog has a lease of another artifact.
    OtherArtifact {
        /// What the Domain Store says.
        recorded: ArtifactId,
        /// What the Storage Catalog says.
        held: ArtifactId,
    },
}

/// Something that was found where a participant may lie, is not provably ours, and was left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryRefusal {
    /// Whose place it is.
    pub participant: Participant,
    /// The generation that is recovered.
    pub generation: Generation,
    /// Where it lies.
    pub path: Option<PathBuf>,
    /// Why it is left alone.
    pub mismatch: Mismatch,
}

impl RecoveryRefusal {
    /// Gives what the developer can do.
    pub fn hint(&self) -> String {
        match &self.path {
            Some(path) => format!("look at {}, move it away, and run the command again", path.display()),
            None => "take it down with `lazaret down`, restore catalog.redb, and run the command again".to_owned(),
        }
    }
}

impl fmt::Display for RecoveryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of generation {}", self.participant, self.generation)?;
        if let Some(path) = &self.path {
            write!(f, ", {},", path.display())?;
        }
        match &self.mismatch {
            Mismatch::Replaced => f.write_str(" was replaced by something that Lazaret did not make"),
            Mismatch::UnrecordedContent => f.write_str(" has content that Lazaret did not record"),
            Mismatch::OtherKind => f.write_str(" is not what Lazaret would have made there"),
            Mismatch::OtherUser => f.write_str(" belongs to another user"),
            Mismatch::Listening => f.write_str(" has a process listening on it"),
            Mismatch::OtherCoordinator => f.write_str(" was written for another coordinator"),
            Mismatch::Unreadable(why) => write!(f, " can't be looked at: {why}"),
            Mismatch::OtherArtifact { recorded, held } => {
                write!(f, " is recorded for {}, but the catalog has {}", recorded.short(), held.short())
            }
        }?;
        f.write_str("; it was left alone")
    }
}

impl std::error::Error for RecoveryRefusal {}

/// Gives how to remove what lies at a participant's place, nothing when it is gone already, or the refusal.
pub(super) fn judge(
    identity: &GenerationIdentity,
    intent: &Intent,
    sighting: &Sighting,
    running_boot: &BootId,
    participant: &Participant,
) -> Result<Option<RecoveryEffect>, RecoveryRefusal> {
    let (target, ownership) = match intent {
        Intent::Intended(target) => (target, None),
        Intent::Owned { target, ownership } => (target, Some(ownership)),
        Intent::Released => return Ok(None),
    };
    let Some(path) = target.path() else { return Ok(None) };
    let refuse = |mismatch| RecoveryRefusal {
        participant: participant.clone(),
        generation: identity.generation,
        path: Some(path.to_owned()),
        mismatch,
    };
    let found = match sighting {
        Sighting::Absent => return Ok(None),
        Sighting::Present(found) => found,
        Sighting::NotLooked => return Err(refuse(Mismatch::Unreadable("it was not looked at".to_owned()))),
        Sighting::Unreadable(why) => return Err(refuse(Mismatch::Unreadable(why.clone()))),
    };
    if found.owner == Owner::Other {
        return Err(refuse(Mismatch::OtherUser));
    }
    match ownership {
        Some(Ownership::Path(recorded)) => {
            let ours = if identity.leader.boot_id == *running_boot {
                recorded.is(&found.identity)
            } else {
                recorded.is_across_boots(&found.identity)
            };
            if !ours {
                return Err(refuse(Mismatch::Replaced));
            }
            owned(target, found, path, participant).map(Some).map_err(refuse)
        }
        _ => intended(identity, target, found, path, participant).map(Some).map_err(refuse),
    }
}

fn remove_file(path: &Path, found: &Found, participant: &Participant) -> RecoveryEffect {
    RecoveryEffect::RemoveFile { participant: participant.clone(), path: path.to_owned(), identity: found.identity }
}

fn owned(target: &Target, found: &Found, path: &Path, participant: &Participant) -> Result<RecoveryEffect, Mismatch> {
    match (target, &found.kind) {
        (Target::Directory { contents, .. }, FoundKind::EmptyDirectory | FoundKind::FilledDirectory) => {
            Ok(RecoveryEffect::RemoveTree {
                participant: participant.clone(),
                path: path.to_owned(),
                identity: found.identity,
                contents: contents.clone(),
            })
        }
        (Target::Socket { .. }, FoundKind::Socket(_)) | (Target::Record { .. }, FoundKind::File(_)) => {
            Ok(remove_file(path, found, participant))
        }
        _ => Err(Mismatch::OtherKind),
    }
}

fn intended(
    identity: &GenerationIdentity,
    target: &Target,
    found: &Found,
    path: &Path,
    participant: &Participant,
) -> Result<RecoveryEffect, Mismatch> {
    match (target, &found.kind) {
        (Target::Directory { .. }, FoundKind::EmptyDirectory) => Ok(RecoveryEffect::RemoveEmptyDirectory {
            participant: participant.clone(),
            path: path.to_owned(),
            identity: found.identity,
        }),
        (Target::Directory { .. }, FoundKind::FilledDirectory) => Err(Mismatch::UnrecordedContent),
        (Target::Socket { .. }, FoundKind::Socket(Listener::None)) => Ok(remove_file(path, found, participant)),
        (Target::Socket { .. }, FoundKind::Socket(Listener::Some)) => Err(Mismatch::Listening),
        (Target::Record { .. }, FoundKind::File(Some(named))) if *named == identity.coordinator => {
            Ok(remove_file(path, found, participant))
        }
        (Target::Record { .. }, FoundKind::File(_)) => Err(Mismatch::OtherCoordinator),
        _ => Err(Mismatch::OtherKind),
    }
}
