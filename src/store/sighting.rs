//! Looks at what lies at a path, for [`crate::core::recovery`] to judge, and never follows a symlink at its end.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

use crate::core::recovery::{Found, FoundKind, Listener, Owner, Sighting};
use crate::domain::ids::CoordinatorId;
use crate::domain::ownership::PathIdentity;

/// Largest publication record that is read.
const RECORD_LIMIT: u64 = 64 << 10;

/// Gives the exact identity of what lies at a path; nothing when nothing does.
pub fn path_identity(path: &Path) -> io::Result<Option<PathIdentity>> {
    Ok(metadata(path)?.map(|metadata| identity(&metadata)))
}

/// Gives what lies at a path.
pub fn look(path: &Path) -> Sighting {
    match found(path) {
        Ok(Some(found)) => Sighting::Present(found),
        Ok(None) => Sighting::Absent,
        Err(error) => Sighting::Unreadable(error.to_string()),
    }
}

fn metadata(path: &Path) -> io::Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        // A parent that is gone, after a reboot say, means that nothing is there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn identity(metadata: &Metadata) -> PathIdentity {
    let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let born = born.and_then(|since| i64::try_from(since.as_nanos()).ok());
    PathIdentity { device: metadata.dev(), inode: metadata.ino(), born }
}

fn found(path: &Path) -> io::Result<Option<Found>> {
    let Some(metadata) = metadata(path)? else { return Ok(None) };
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => directory(path)?,
        kind if kind.is_socket() => FoundKind::Socket(listener(path)),
        kind if kind.is_file() => FoundKind::File(coordinator(path)?),
        _ => FoundKind::Other,
    };
    let owner = if own { Owner::Developer } else { Owner::Other };
    Ok(Some(Found { identity: identity(&metadata), owner, kind }))
}

fn directory(path: &Path) -> io::Result<FoundKind> {
    match std::fs::read_dir(path)?.next() {
        None => Ok(FoundKind::EmptyDirectory),
        Some(_) => Ok(FoundKind::FilledDirectory),
    }
}

/// Only a refused connection proves that nobody listens (connect(2)).
fn listener(path: &Path) -> Listener {
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Listener::None,
        _ => Listener::Some,
    }
}

/// Reads the Session Coordinator ID that a publication record names.
fn coordinator(path: &Path) -> io::Result<Option<CoordinatorId>> {
    #[derive(Deserialize)]
    struct Named {
        coordinator: CoordinatorId,
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(RECORD_LIMIT).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice::<Named>(&bytes).ok().map(|named| named.coordinator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn kind(path: &Path) -> Option<FoundKind> {
        match look(path) {
            Sighting::Present(found) => {
                assert_eq!(found.owner, Owner::Developer);
                Some(found.kind)
            }
            Sighting::Absent => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert_eq!(kind(&at("nothing")), None);
        assert_eq!(kind(&at("nothing/below")), None);
        std::fs::create_dir(at("d")).unwrap();
        assert_eq!(kind(&at("d")), Some(FoundKind::EmptyDirectory));
        std::fs::write(at("d/f"), "x").unwrap();
        assert_eq!(kind(&at("d")), Some(FoundKind::FilledDirectory));
        assert_eq!(kind(&at("d/f")), Some(FoundKind::File(None)));
        let coordinator = CoordinatorId::mint();
        std::fs::write(at("p"), format!(r#"{{"version":1,"coordinator":"{coordinator}"}}"#)).unwrap();
        assert_eq!(kind(&at("p")), Some(FoundKind::File(Some(coordinator))));
        std::os::unix::fs::symlink(at("p"), at("l")).unwrap();
        assert_eq!(kind(&at("l")), Some(FoundKind::Other));
        let listener = UnixListener::bind(at("s")).unwrap();
        assert_eq!(kind(&at("s")), Some(FoundKind::Socket(Listener::Some)));
        drop(listener);
        assert_eq!(kind(&at("s")), Some(FoundKind::Socket(Listener::None)));
    }

    #[test]
    fn a_replaced_directory_has_another_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        std::fs::create_dir(&path).unwrap();
        let first = path_identity(&path).unwrap().unwrap();
        std::fs::write(path.join("f"), "x").unwrap();
        assert_eq!(path_identity(&path).unwrap(), Some(first), "content does not change it");
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(path_identity(&path).unwrap(), None);
        std::fs::create_dir(&path).unwrap();
        assert_ne!(path_identity(&path).unwrap(), Some(first), "even where the inode number is reused");
    }
}
