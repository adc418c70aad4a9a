//! Images and the prepared lowers made from them.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ids::ArtifactId;

/// Where a base image comes from.
///
/// Written as `REGISTRY/NAME[:TAG][@DIGEST]`, `oci:DIR[:TAG]`, `oci-archive:FILE[:TAG]` or
/// `docker-archive:FILE[:TAG]`, the transports' names in containers-transports(5).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageSource {
    /// An image in a registry, by its full reference.
    Registry(String),
    /// An OCI image layout directory.
    OciLayout {
        /// The layout directory, absolute.
        path: PathBuf,
        /// The image's name in the layout's index; needed when it holds several.
        tag: Option<String>,
    },
    /// A tar file of an OCI image layout.
    OciArchive {
        /// The archive file, absolute.
        path: PathBuf,
        /// The image's name in the archive's index; needed when it holds several.
        tag: Option<String>,
    },
    /// A tar file as `docker save` writes it.
    DockerArchive {
        /// The archive file, absolute.
        path: PathBuf,
        /// The image's `NAME:TAG`; needed when the archive holds several.
        tag: Option<String>,
    },
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transport, path, tag) = match self {
            Self::Registry(reference) => return f.write_str(reference),
            Self::OciLayout { path, tag } => ("oci", path, tag),
            Self::OciArchive { path, tag } => ("oci-archive", path, tag),
            Self::DockerArchive { path, tag } => ("docker-archive", path, tag),
        };
        write!(f, "{transport}:{}", path.display())?;
        tag.as_ref().map_or(Ok(()), |tag| write!(f, ":{tag}"))
    }
}

/// Operating system and processor that an image is for, in the OCI image specification's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// The operating system; always `linux` here.
    pub os: String,
    /// The architecture as Go names it: `amd64`, `arm64`.
    pub architecture: String,
    /// The architecture's variant, such as `v8`.
    pub variant: Option<String>,
}

impl Platform {
    /// Gives the platform of the machine that this program was compiled for.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

/// The user that a profile or an image names, before it is looked up in the image's `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserSpec {
    /// The user: a name or a numeric id.
    pub user: String,
    /// The group after a colon: a name or a numeric id.
    pub group: Option<String>,
}

/// A user specification that is empty or has an empty part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a user: expected NAME, UID, NAME:GROUP or UID:GID")]
pub struct InvalidUser(pub String);

impl TryFrom<String> for UserSpec {
    type Error = InvalidUser;
    fn try_from(text: String) -> Result<Self, InvalidUser> {
        let valid = |part: &str| !part.is_empty() && !part.contains([':', '/', '\n', '\0']);
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user.to_owned(), Some(group.to_owned())),
            None => (text.clone(), None),
        };
        if valid(&user) && group.as_deref().is_none_or(valid) {
            Ok(Self { user, group })
        } else {
            Err(InvalidUser(text))
        }
    }
}

impl From<UserSpec> for String {
    fn from(spec: UserSpec) -> String {
        spec.to_string()
    }
}

impl fmt::Display for UserSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user)?;
        self.group.as_ref().map_or(Ok(()), |group| write!(f, ":{group}"))
    }
}

/// A user of the image, looked up: the account that sessions run as and that is mapped to the developer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestUser {
    /// Numeric user id in the sandbox.
    pub uid: u32,
    /// Numeric primary group id in the sandbox.
    pub gid: u32,
    /// Supplementary groups from the image's `/etc/group`.
    pub groups: Vec<u32>,
    /// Account name, when `/etc/passwd` has one.
    pub name: Option<String>,
    /// Home directory; `/` when `/etc/passwd` has none.
    pub home: String,
    /// Login shell; `/bin/sh` when `/etc/passwd` has none.
    pub shell: String,
}

/// What an image says about how to run it, from its OCI configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRuntime {
    /// `User`.
    pub user: Option<String>,
    /// `Env`, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// `Entrypoint` followed by `Cmd`.
    pub command: Vec<String>,
    /// `WorkingDir`.
    pub working_dir: Option<String>,
}

/// The record beside a prepared lower that says what it is; written last, so that its presence
/// means a completed preparation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactManifest {
    /// Layout version of this record; 1.
    pub version: u32,
    /// Identity of the tree: a digest over manifest digest, platform and identity mapping.
    pub id: ArtifactId,
    /// What was asked for.
    pub source: ImageSource,
    /// Digest of the image manifest that was applied, `sha256:…`.
    pub manifest_digest: String,
    /// The platform that was chosen.
    pub platform: Platform,
    /// The identity mapping that the tree was unpacked under.
    pub mapping: IdMapping,
    /// The image's user, looked up in the tree.
    pub user: GuestUser,
    /// How the image wants to be run.
    pub runtime: ImageRuntime,
    /// Sum of the file sizes, in bytes.
    pub size: u64,
    /// When the preparation was completed, seconds since the epoch.
    pub prepared_at: i64,
}

/// One range of a user-namespace mapping (user_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IdRange {
    /// First id inside the namespace.
    pub inside: u32,
    /// First id outside it.
    pub outside: u32,
    /// How many ids.
    pub count: u32,
}

/// A range of subordinate ids that a user may map into their namespaces (subuid(5), subgid(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SubordinateRange {
    /// First id.
    pub start: u32,
    /// How many ids.
    pub count: u32,
}

/// The identity mapping of a Domain: the profile's user is the developer, every other guest id a
/// subordinate id (design: identity mapping).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IdMapping {
    /// User id ranges, at most three.
    pub uids: Vec<IdRange>,
    /// Group id ranges, at most three.
    pub gids: Vec<IdRange>,
}

impl IdMapping {
    /// Gives the host id for a guest user id, when it is mapped.
    pub fn host_uid(&self, inside: u32) -> Option<u32> {
        let range = self.uids.iter().find(|r| inside >= r.inside && inside - r.inside < r.count)?;
        Some(range.outside + (inside - range.inside))
    }
}
