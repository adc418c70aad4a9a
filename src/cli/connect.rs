//! Reaching a published Domain generation.

use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::de::DeserializeOwned;

use super::error::CliError;
use super::hint;
use crate::domain::ids::{ClientCliId, DomainId};
use crate::domain::layout::RuntimeRoot;
use crate::identity::channel::{self, ChannelError, ClientChannel};
use crate::wire::hello::{HelloRefusal, PROTOCOL_VERSION, Publication};

/// Largest record that is read, in bytes.
const RECORD_LIMIT: u64 = 64 << 10;

/// Whether a Domain can be reached now.
#[derive(Debug)]
pub enum Reach {
    /// It is published, and this is the channel.
    Published(Box<ClientChannel>),
    /// Nobody serves it.
    Absent,
    /// Something is under way: it is leaving, or was lost while it answered. Asking again tells.
    Changing(ChannelError),
}

/// A Domain that can't be reached in a way that asking again does not mend.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The record can't be read.
    #[error("the record {path} can't be read")]
    Record {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The coordinator is of another version.
    #[error("the running Domain speaks protocol version {running}, this lazaret {}", PROTOCOL_VERSION)]
    Version {
        /// The coordinator's.
        running: u32,
    },
    /// The record describes another Domain.
    #[error("the record {path} describes another Domain, {found}")]
    OtherDomain {
        /// Which.
        path: PathBuf,
        /// The Domain that it describes.
        found: DomainId,
    },
    /// The channel can't be made.
    #[error("the Domain's coordinator can't be reached")]
    Channel(#[source] ChannelError),
}

impl ReachError {
    /// Turns it into what the Client CLI reports of a Domain, with what to do; a plain `?` would lose that.
    pub fn into_cli(self, domain: &DomainId) -> CliError {
        let hint = match &self {
            Self::Version { .. } => {
                format!("take it down with the lazaret that started it: {}", hint::on("down", domain))
            }
            Self::Record { .. } | Self::OtherDomain { .. } => {
                "lazaret keeps its runtime directory for itself; move the file away".to_owned()
            }
            Self::Channel(_) => hint::logs(domain),
        };
        CliError::from(self).hint(hint)
    }
}

/// Gives the Client CLI ID of this process: one for its whole life.
pub fn client_id() -> &'static ClientCliId {
    static ID: OnceLock<ClientCliId> = OnceLock::new();
    ID.get_or_init(ClientCliId::mint)
}

/// Tries to reach a Domain.
pub async fn reach(runtime: &RuntimeRoot, domain: &DomainId) -> Result<Reach, ReachError> {
    let Some(publication) = publication(runtime, domain)? else { return Ok(Reach::Absent) };
    match channel::connect(&publication, &runtime.socket(), client_id()).await {
        Ok(channel) => Ok(Reach::Published(Box::new(channel))),
        Err(ChannelError::NotServed(_)) => Ok(Reach::Absent),
        Err(ChannelError::Refused(HelloRefusal::Version { coordinator, .. })) => {
            Err(ReachError::Version { running: coordinator })
        }
        Err(error @ (ChannelError::ForeignUser { .. } | ChannelError::Record | ChannelError::Enrolment(_))) => {
            Err(ReachError::Channel(error))
        }
        Err(error) => Ok(Reach::Changing(error)),
    }
}

/// Reads a Domain's publication record; `None` when there is none.
pub fn publication(runtime: &RuntimeRoot, domain: &DomainId) -> Result<Option<Publication>, ReachError> {
    /// What every version of the record has.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let path = runtime.publication();
    let failed = |source| ReachError::Record { path: path.clone(), source };
    let Some(content) = read(&path).map_err(failed)? else { return Ok(None) };
    let versioned: Versioned = serde_json::from_slice(&content).map_err(|error| failed(error.into()))?;
    if versioned.version != PROTOCOL_VERSION {
        return Err(ReachError::Version { running: versioned.version });
    }
    let publication: Publication = serde_json::from_slice(&content).map_err(|error| failed(error.into()))?;
    if publication.domain != *domain {
        return Err(ReachError::OtherDomain { path, found: publication.domain });
    }
    Ok(Some(publication))
}

/// Reads a JSON record; `None` when it does not exist.
pub fn record<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let content = read(path)?;
    Ok(content.map(|content| serde_json::from_slice(&content)).transpose()?)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let no_follow = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(no_follow).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(RECORD_LIMIT + 1).read_to_end(&mut content)?;
    if content.len() as u64 > RECORD_LIMIT {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the record is too large"));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{CoordinatorId, Generation};
    use crate::identity::{Face, TrustAnchor};
    use tokio::net::UnixListener;

    fn domain() -> DomainId {
        "d-0123456789abcdef0123".parse().unwrap()
    }

    fn published(directory: &Path) -> (RuntimeRoot, Face) {
        let anchor =
            TrustAnchor::mint(&domain(), &"p".parse().unwrap(), Generation(1), &CoordinatorId::mint()).unwrap();
        let runtime = RuntimeRoot::new(directory, &domain());
        std::fs::create_dir(runtime.path()).unwrap();
        std::fs::write(runtime.publication(), serde_json::to_vec(anchor.publication()).unwrap()).unwrap();
        (runtime, Face::new(anchor).unwrap())
    }

    #[tokio::test]
    async fn a_record_without_a_live_socket_is_absent() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = RuntimeRoot::new(directory.path(), &domain());
        assert!(matches!(reach(&runtime, &domain()).await, Ok(Reach::Absent)));
        let (runtime, _face) = published(directory.path());
        assert!(matches!(reach(&runtime, &domain()).await, Ok(Reach::Absent)), "no socket");
        drop(UnixListener::bind(runtime.socket()).unwrap());
        assert!(matches!(reach(&runtime, &domain()).await, Ok(Reach::Absent)), "nobody listens");
    }

    #[tokio::test]
    async fn a_coordinator_that_leaves_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, face) = published(directory.path());
        let listener = UnixListener::bind(runtime.socket()).unwrap();
        face.withdraw();
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = channel::accept(stream, &face).await;
            drop(listener.accept().await.unwrap());
        };
        let domain = domain();
        let client = async { (reach(&runtime, &domain).await, reach(&runtime, &domain).await) };
        let (reached, ()) = tokio::join!(client, serve);
        assert!(matches!(reached, (Ok(Reach::Changing(_)), Ok(Reach::Changing(_)))), "{reached:?}");
    }

    #[test]
    fn records_of_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, face) = published(directory.path());
        let other = "d-ffffffffffffffffffff".parse().unwrap();
        assert!(matches!(publication(&runtime, &other), Err(ReachError::OtherDomain { .. })));
        let newer = Publication { version: PROTOCOL_VERSION + 1, ..face.publication().clone() };
        std::fs::write(runtime.publication(), serde_json::to_vec(&newer).unwrap()).unwrap();
        assert!(matches!(publication(&runtime, &domain()), Err(ReachError::Version { running: 2 })));
        std::fs::write(runtime.publication(), vec![b' '; 100_000]).unwrap();
        assert!(matches!(publication(&runtime, &domain()), Err(ReachError::Record { .. })));
        std::fs::remove_file(runtime.publication()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", runtime.publication()).unwrap();
        assert!(matches!(publication(&runtime, &domain()), Err(ReachError::Record { .. })));
    }
}
