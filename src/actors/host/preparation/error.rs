//! Why an image could not be prepared, and what the developer can do about it.

use std::io;
use std::path::PathBuf;

use crate::oci::accounts::AccountError;
use crate::oci::blobs::BlobError;
use crate::oci::docker_archive::DockerArchiveError;
use crate::oci::layers::LayerError;
use crate::oci::layout::LayoutError;
use crate::oci::manifest::ManifestError;
use crate::oci::registry::RegistryError;
use crate::oci::source::SourceError;
use crate::oci::unpack::UnpackError;
use crate::policy::mapping::{IdKind, MappingError};
use crate::store::CatalogError;

/// An image that could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The developer's account can't be looked up.
    #[error("this user's account and subordinate ids can't be read")]
    Developer(#[source] io::Error),
    /// A directory of the Storage Root can't be used.
    #[error("{} can't be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The image can't be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A layer can't be read.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The user is not in the image.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// No identity mapping is possible.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The image has files of an id that the mapping does not reach.
    #[error("the image has files of {} id {id}, which is beyond the {mapped} ids that are mapped", match kind { IdKind::User => "user", IdKind::Group => "group" })]
    Unmapped {
        /// Which ids.
        kind: IdKind,
        /// The id.
        id: u64,
        /// How many ids are mapped.
        mapped: u64,
    },
    /// A stored blob or record can't be used.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The layers can't be applied.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The Storage Catalog can't be used.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Something that Lazaret did not make lies where the artifact belongs.
    #[error("{} is in the way: it is not the prepared artifact that belongs there", .0.display())]
    Foreign(PathBuf),
    /// A background task ended early.
    #[error("a background task was cancelled")]
    Task(#[from] tokio::task::JoinError),
}

impl PrepareError {
    /// Gives what the developer can do, one line each.
    pub fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::Source(error) => return source_hints(error),
            Self::Layer(LayerError::Blob(error)) | Self::Blob(error) => return blob_hints(error),
            Self::Unpack(UnpackError::Blob(error)) => return blob_hints(error),
            Self::Layer(LayerError::NoSpace { .. }) | Self::Unpack(UnpackError::NoSpace(_)) => NO_SPACE,
            Self::Layer(LayerError::Damaged(_)) => {
                "run the command again: the damaged layer was removed and will be fetched anew"
            }
            Self::Layer(_) => "the image itself is broken or hostile: have it built or pushed again",
            Self::Account(AccountError::ImageUser(_)) => {
                "name a user in the profile: user = \"NAME\" or user = \"UID:GID\""
            }
            Self::Account(_) => "name a user or group that the image has, or a number, in the profile's 'user'",
            Self::Mapping(MappingError::TooFew { .. } | MappingError::TooManyPieces { .. }) => {
                "grant more: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 \"$USER\""
            }
            Self::Mapping(MappingError::OutOfReach { .. }) | Self::Unmapped { .. } => {
                "grant more subordinate ids with 'sudo usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST \"$USER\"'"
            }
            Self::Unpack(UnpackError::NoProgram(program)) => {
                return vec![format!("sudo apt-get install {}", package_of(program))];
            }
            Self::Unpack(UnpackError::Start { .. } | UnpackError::Remove(_)) => {
                "'lazaret doctor' tells what user namespaces lack on this machine"
            }
            Self::Unpack(_) => "the image itself may be broken or hostile: have it built or pushed again",
            Self::Foreign(path) => return vec![format!("look at {} and move it away", path.display())],
            Self::Directory { .. } => "the Storage Root must be a directory that only you can use",
            Self::Developer(_) | Self::Catalog(_) | Self::Task(_) => return Vec::new(),
        };
        vec![hint.to_owned()]
    }
}

const NO_SPACE: &str = "free some disk space, then run the command again: what was downloaded is kept";

fn package_of(program: &str) -> &str {
    match program {
        "du" => "coreutils",
        other => other,
    }
}

fn source_hints(error: &SourceError) -> Vec<String> {
    let hint = match error {
        SourceError::Registry(error) => return registry_hints(error),
        SourceError::Blob(error)
        | SourceError::Layout(LayoutError::Blob(error))
        | SourceError::DockerArchive(DockerArchiveError::Blob(error)) => return blob_hints(error),
        SourceError::Manifest(error)
        | SourceError::Layout(LayoutError::Manifest(error))
        | SourceError::DockerArchive(DockerArchiveError::Manifest(error)) => return manifest_hints(error),
        SourceError::Layout(LayoutError::NoTag { .. })
        | SourceError::DockerArchive(DockerArchiveError::NoTag { .. }) => {
            "write the name after the path, as in oci-archive:FILE:NAME"
        }
        SourceError::Layout(_) | SourceError::DockerArchive(_) => {
            "check the path; 'skopeo copy docker://IMAGE oci-archive:FILE' writes a usable archive"
        }
        SourceError::Task(_) => return Vec::new(),
    };
    vec![hint.to_owned()]
}

fn registry_hints(error: &RegistryError) -> Vec<String> {
    let login = |registry: &str| format!("log in with 'podman login {registry}' or 'docker login {registry}'");
    match error {
        RegistryError::NotFound { .. } => vec!["check the image's name and tag".to_owned()],
        RegistryError::Unauthorized { registry, credentials, .. } if credentials.file.is_none() => {
            vec![
                login(registry),
                "or check the image's name: many registries answer so when there is no such image".to_owned(),
            ]
        }
        RegistryError::Unauthorized { registry, .. } => {
            vec![format!("the account may lack the right to pull it; else {} again", login(registry))]
        }
        RegistryError::Unreachable { registry, .. } => {
            vec![format!(
                "check that {registry} is the right registry and that this machine reaches it (HTTPS_PROXY is respected)"
            )]
        }
        RegistryError::Interrupted { .. } => {
            vec![
                "run the command again: the download continues where it broke off".to_owned(),
                "when it always stops at the same byte, the registry's copy is incomplete: have it pushed again"
                    .to_owned(),
            ]
        }
        RegistryError::Status { code: 429, .. } => vec!["wait, or log in to have a higher limit".to_owned()],
        RegistryError::Status { .. } => vec!["try again later: the fault is the registry's".to_owned()],
        RegistryError::Blob(error) => blob_hints(error),
        RegistryError::WrongManifest { .. } => {
            vec!["do not use this image: the registry or something on the way changed it".to_owned()]
        }
        RegistryError::Client(_) => {
            vec!["if certificates are what is missing: sudo apt-get install ca-certificates".to_owned()]
        }
        RegistryError::LargeManifest(_) => {
            vec!["do not use this image: no real manifest is that large".to_owned()]
        }
        RegistryError::Reference { .. } | RegistryError::Certificate(_) | RegistryError::Task(_) => Vec::new(),
    }
}

fn manifest_hints(error: &ManifestError) -> Vec<String> {
    let hint = match error {
        ManifestError::Platform { available, .. } if !available.is_empty() => {
            "use an image for this platform, or name another one with --platform OS/ARCH"
        }
        ManifestError::Ambiguous { .. } => "write the name after the path, as in oci-archive:FILE:NAME",
        ManifestError::MediaType { .. } => {
            "use a Linux container image with tar layers, plain or compressed with gzip or zstd"
        }
        _ => "the image itself is broken or hostile: have it built or pushed again",
    };
    vec![hint.to_owned()]
}

fn blob_hints(error: &BlobError) -> Vec<String> {
    let hint = match error {
        BlobError::NoSpace { .. } => NO_SPACE,
        BlobError::Truncated { .. } | BlobError::TooLong { .. } => {
            "the image is stored incompletely where it comes from: have it pushed or written again"
        }
        BlobError::WrongDigest { .. } => {
            "do not use this image: its content was changed or damaged where it comes from"
        }
        BlobError::OverLimit { .. } => "the image itself is broken or hostile: have it built or pushed again",
        BlobError::Store { .. } => "the Storage Root must be a directory that only you can use",
    };
    vec![hint.to_owned()]
}
