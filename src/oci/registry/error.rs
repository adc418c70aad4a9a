//! Why an image could not be had from a registry.

use oci_client::errors::OciDistributionError;

use crate::oci::blobs::{BlobDigest, BlobError};
use crate::oci::credentials::Credentials;
use crate::oci::manifest::MANIFEST_LIMIT;

/// An image that can't be had from its registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The text is not a registry reference.
    #[error("'{text}' is not an image reference")]
    Reference {
        /// The text.
        text: String,
        /// What is wrong with it.
        #[source]
        source: oci_client::ParseError,
    },
    /// The HTTP client can't be made.
    #[error("the HTTP client can't be set up")]
    Client(#[source] Box<OciDistributionError>),
    /// A certificate can't be made.
    #[error("a certificate for no one can't be made")]
    Certificate(#[source] rcgen::Error),
    /// The registry does not have it (404).
    #[error("registry {registry} has no {what} (404)")]
    NotFound {
        /// The registry.
        registry: String,
        /// What was asked for.
        what: String,
    },
    /// The registry wants other credentials (401, 403).
    #[error("registry {registry} refuses access to {what} ({code}): {}", describe(credentials))]
    Unauthorized {
        /// The registry.
        registry: String,
        /// What was asked for.
        what: String,
        /// The status.
        code: u16,
        /// What was sent and where it was looked for.
        credentials: Box<Credentials>,
    },
    /// The registry answered with another error.
    #[error("registry {registry} answered {what} with status {code}: {message}")]
    Status {
        /// The registry.
        registry: String,
        /// What was asked for.
        what: String,
        /// The status.
        code: u16,
        /// Its explanation, shortened.
        message: String,
    },
    /// The registry can't be reached.
    #[error("registry {registry} can't be reached")]
    Unreachable {
        /// The registry.
        registry: String,
        /// Why.
        #[source]
        source: Box<OciDistributionError>,
    },
    /// The connection broke again and again; what came is kept.
    #[error("the download of {digest} broke off after {got} of {size} bytes")]
    Interrupted {
        /// The blob.
        digest: BlobDigest,
        /// Bytes that are there.
        got: u64,
        /// Bytes in all.
        size: u64,
        /// Why.
        #[source]
        source: Box<OciDistributionError>,
    },
    /// The manifest is larger than Lazaret reads.
    #[error("the manifest of {0} is larger than {MANIFEST_LIMIT} bytes")]
    LargeManifest(String),
    /// The manifest is not the one that the digest names.
    #[error("registry {registry} sent a manifest with the wrong digest: expected {expected}, got {actual}")]
    WrongManifest {
        /// The registry.
        registry: String,
        /// What was promised.
        expected: String,
        /// What came.
        actual: BlobDigest,
    },
    /// A blob is not what it should be, or can't be stored.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A background task ended early.
    #[error("a background task was cancelled")]
    Task(#[from] tokio::task::JoinError),
}

fn describe(credentials: &Credentials) -> String {
    let files: Vec<_> = credentials.looked_at.iter().map(|path| path.display().to_string()).collect();
    let mut text = match &credentials.file {
        Some(file) => format!("the credentials in {} were refused", file.display()),
        None => format!("no credentials for it in {}", files.join(", ")),
    };
    for trouble in &credentials.trouble {
        text.push_str("; ");
        text.push_str(trouble);
    }
    text
}
