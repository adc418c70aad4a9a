//! Images in a registry (OCI distribution specification).
//!
//! `oci-client` speaks the protocol: challenges, tokens, blob downloads. Only manifests are requested
//! here, with its token, because it reads them into memory without a limit.
//!
//! A blob download writes to the blob store as it goes. When the connection breaks the bytes stay,
//! and the next attempt, in this call or in a later process, asks for the rest with a `Range`.

mod error;

use std::time::Duration;

use futures_util::StreamExt;
use oci_client::client::{BlobResponse, Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::OciDescriptor;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use reqwest::header::{ACCEPT, CONTENT_TYPE};

pub use self::error::RegistryError;
use super::blobs::{Begin, Blob, BlobDigest, BlobError, BlobStore, PartialBlob};
use super::credentials::{self, Credentials};
use super::manifest::{MANIFEST_LIMIT, MANIFEST_TYPES};
use super::untrusted::printable;

/// What registries are told.
const USER_AGENT: &str = concat!("lazaret/", env!("CARGO_PKG_VERSION"));

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a registry may send nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits between attempts that brought no byte; one that did begins anew.
const PAUSES: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3)];

/// One image's registry, with credentials.
pub struct Registry {
    client: Client,
    http: reqwest::Client,
    reference: Reference,
    scheme: &'static str,
    credentials: Credentials,
}

impl Registry {
    /// Sets up access to a reference's registry. Nothing is sent yet.
    ///
    /// HTTP without TLS is used for registries on loopback and for those that `insecure` lists.
    pub async fn open(text: &str, insecure: &[String]) -> Result<Self, RegistryError> {
        crate::identity::crypto::install();
        let reference: Reference =
            text.parse().map_err(|source| RegistryError::Reference { text: text.to_owned(), source })?;
        let registry = reference.resolve_registry().to_owned();
        let plain = is_loopback(&registry) || insecure.iter().any(|listed| *listed == reference.registry());
        let (scheme, protocol) = match plain {
            true => ("http", ClientProtocol::HttpsExcept(vec![registry])),
            false => ("https", ClientProtocol::Https),
        };
        let (client, http) = match clients(&protocol, &[]) {
            // A machine may have no certificates, which plain HTTP does not need: then none is trusted.
            Err(_) if plain => clients(&protocol, &[untrusted_root()?]),
            clients => clients,
        }
        .map_err(|error| RegistryError::Client(Box::new(error)))?;
        let asked = reference.clone();
        // Credential helpers are programs that may take their time.
        let credentials = tokio::task::spawn_blocking(move || credentials::find(&asked)).await?;
        Ok(Self { client, http, reference, scheme, credentials })
    }

    /// Gives the digest that the reference pins, if any.
    pub fn pinned(&self) -> Option<BlobDigest> {
        self.reference.digest().and_then(|digest| digest.parse().ok())
    }

    /// Requests the manifest or index that the reference names, with the media type that the registry gives it.
    pub async fn root(&self) -> Result<(Vec<u8>, Option<String>), RegistryError> {
        self.request_manifest(&self.reference).await
    }

    /// Requests a manifest by digest.
    pub async fn manifest(&self, digest: &BlobDigest) -> Result<Vec<u8>, RegistryError> {
        let reference = self.reference.clone_with_digest(digest.to_string());
        self.request_manifest(&reference).await.map(|(bytes, _)| bytes)
    }

    async fn request_manifest(&self, reference: &Reference) -> Result<(Vec<u8>, Option<String>), RegistryError> {
        let what = format!("image {reference}");
        let registry = reference.resolve_registry();
        let token = self.client.auth(reference, &self.credentials.auth, RegistryOperation::Pull).await;
        let token = token.map_err(|error| self.failure(&what, error))?;
        let name = reference.digest().or(reference.tag()).unwrap_or("latest");
        let url = format!("{}://{registry}/v2/{}/manifests/{name}", self.scheme, reference.repository());
        let mut request = self.http.get(url).header(ACCEPT, MANIFEST_TYPES.join(", "));
        request = match (&token, &self.credentials.auth) {
            (Some(token), _) => request.bearer_auth(token),
            (None, RegistryAuth::Basic(user, password)) => request.basic_auth(user, Some(password)),
            (None, _) => request,
        };
        let transport = |error: reqwest::Error| self.failure(&what, error.into());
        let mut response = request.send().await.map_err(transport)?;
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (media_type, promised) = (header(CONTENT_TYPE.as_str()), header("docker-content-digest"));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(transport)? {
            if (body.len() + chunk.len()) as u64 > MANIFEST_LIMIT {
                return Err(RegistryError::LargeManifest(reference.to_string()));
            }
            body.extend_from_slice(&chunk);
        }
        if status != 200 {
            return Err(self.status(&what, status, &String::from_utf8_lossy(&body)));
        }
        let actual = BlobDigest::of(&body);
        let promises = [reference.digest().map(str::to_owned), promised.filter(|digest| digest.starts_with("sha256:"))];
        match promises.into_iter().flatten().find(|promise| *promise != actual.to_string()) {
            Some(expected) => Err(RegistryError::WrongManifest { registry: registry.to_owned(), expected, actual }),
            None => Ok((body, media_type)),
        }
    }

    /// Brings a blob into the store; `report` is told how many of its bytes are there.
    pub async fn fetch(
        &self,
        store: &BlobStore,
        blob: &Blob,
        report: impl Fn(u64) + Send + Sync,
    ) -> Result<(), RegistryError> {
        let mut partial = loop {
            let (store, wanted) = (store.clone(), blob.clone());
            match tokio::task::spawn_blocking(move || store.begin(&wanted)).await?? {
                Begin::Present => {
                    report(blob.size);
                    return Ok(());
                }
                Begin::Write(partial) => break partial,
                // Its writer holds a lock that ends with it, so this wait does too.
                Begin::Busy => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let mut pauses = PAUSES.iter();
        loop {
            let begun_at = partial.written();
            report(begun_at);
            let failure = match begun_at < blob.size {
                true => {
                    let (returned, outcome) = self.stream(blob, partial, &report).await?;
                    partial = returned;
                    outcome?
                }
                false => None,
            };
            let written = partial.written();
            match failure {
                // A stream that fails at its very end has brought everything.
                Some(source) if written < blob.size => {
                    if written > begun_at {
                        pauses = PAUSES.iter();
                    }
                    let Some(pause) = pauses.next() else {
                        return Err(RegistryError::Interrupted {
                            digest: blob.digest.clone(),
                            got: written,
                            size: blob.size,
                            source: Box::new(source),
                        });
                    };
                    tracing::debug!(digest = %blob.digest, written, %source, "download broke off, continuing");
                    tokio::time::sleep(*pause).await;
                }
                _ => {
                    let finished = tokio::task::spawn_blocking(move || partial.finish()).await?;
                    match finished {
                        // What an earlier attempt left may have been bad; it is forgotten now.
                        Err(BlobError::WrongDigest { .. }) if begun_at > 0 => {
                            return Box::pin(self.fetch(store, blob, report)).await;
                        }
                        finished => return finished.map_err(Into::into),
                    }
                }
            }
        }
    }

    /// Appends what the registry sends to the partial blob. Gives the partial blob back with the
    /// reason to try again, if there is one.
    async fn stream(
        &self,
        blob: &Blob,
        mut partial: Box<PartialBlob>,
        report: &(impl Fn(u64) + Send + Sync),
    ) -> Result<(Box<PartialBlob>, Result<Option<OciDistributionError>, RegistryError>), RegistryError> {
        let descriptor = OciDescriptor { digest: blob.digest.to_string(), ..OciDescriptor::default() };
        let offset = partial.written();
        let response = match offset {
            0 => self.client.pull_blob_stream(&self.reference, &descriptor).await.map(BlobResponse::Full),
            _ => self.client.pull_blob_stream_partial(&self.reference, &descriptor, offset, None).await,
        };
        let (mut stream, mut done) = match response {
            Ok(BlobResponse::Partial(stream)) => (stream, offset),
            Ok(BlobResponse::Full(stream)) => {
                partial.restart()?;
                (stream, 0)
            }
            Err(error) => match self.blob_failure(blob, offset, error) {
                Ok(retry) => return Ok((partial, Ok(Some(retry)))),
                Err(error) => return Ok((partial, Err(error))),
            },
        };
        // Writing and digesting block, so they have a thread; the channel bounds what waits for it.
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<tokio_util::bytes::Bytes>(16);
        let writer = tokio::task::spawn_blocking(move || {
            let mut outcome = Ok(());
            while outcome.is_ok()
                && let Some(bytes) = receiver.blocking_recv()
            {
                outcome = partial.write(&bytes);
            }
            (partial, outcome)
        });
        let mut failure = None;
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(bytes) => {
                    done += bytes.len() as u64;
                    if sender.send(bytes).await.is_err() {
                        break;
                    }
                    report(done.min(blob.size));
                }
                Err(error) => {
                    failure = Some(OciDistributionError::IoError(error));
                    break;
                }
            }
        }
        drop(sender);
        let (partial, outcome) = writer.await?;
        Ok((partial, outcome.map(|()| failure).map_err(Into::into)))
    }

    /// Tells an error that is worth another attempt from one that is final.
    fn blob_failure(
        &self,
        blob: &Blob,
        offset: u64,
        error: OciDistributionError,
    ) -> Result<OciDistributionError, RegistryError> {
        match &error {
            OciDistributionError::RequestError(_) => Ok(error),
            OciDistributionError::ServerError { code: 500..=599 | 429, .. } => Ok(error),
            // The range begins behind the end: the registry has fewer bytes than the manifest promises.
            OciDistributionError::ServerError { code: 416, .. } => {
                let digest = blob.digest.clone();
                Err(BlobError::Truncated { digest, got: offset, size: blob.size }.into())
            }
            _ => Err(self.failure(&format!("blob {} of {}", blob.digest, self.reference), error)),
        }
    }

    fn failure(&self, what: &str, error: OciDistributionError) -> RegistryError {
        let registry = self.reference.registry().to_owned();
        match error {
            OciDistributionError::UnauthorizedError { .. } => self.status(what, 401, ""),
            OciDistributionError::AuthenticationFailure(message) => self.status(what, 401, &message),
            OciDistributionError::ServerError { code, message, .. } => self.status(what, code, &message),
            OciDistributionError::RegistryError { envelope, .. } => {
                let known = |codes: &[OciErrorCode]| envelope.errors.iter().any(|error| codes.contains(&error.code));
                let code = match () {
                    () if known(&[OciErrorCode::Unauthorized]) => 401,
                    () if known(&[OciErrorCode::Denied]) => 403,
                    () if known(&[OciErrorCode::Toomanyrequests]) => 429,
                    () if known(&[
                        OciErrorCode::BlobUnknown,
                        OciErrorCode::ManifestUnknown,
                        OciErrorCode::NameUnknown,
                        OciErrorCode::NotFound,
                    ]) =>
                    {
                        404
                    }
                    () => 400,
                };
                self.status(what, code, &envelope.to_string())
            }
            error => RegistryError::Unreachable { registry, source: Box::new(error) },
        }
    }

    fn status(&self, what: &str, code: u16, message: &str) -> RegistryError {
        let (registry, what) = (self.reference.registry().to_owned(), what.to_owned());
        match code {
            404 => RegistryError::NotFound { registry, what },
            401 | 403 => {
                RegistryError::Unauthorized { registry, what, code, credentials: Box::new(self.credentials.clone()) }
            }
            _ => RegistryError::Status { registry, what, code, message: printable(message) },
        }
    }
}

/// Makes both HTTP clients; they trust `only` these roots when there are any, else the system's.
fn clients(protocol: &ClientProtocol, only: &[Certificate]) -> Result<(Client, reqwest::Client), OciDistributionError> {
    let config = ClientConfig {
        protocol: protocol.clone(),
        connect_timeout: Some(CONNECT_TIMEOUT),
        read_timeout: Some(READ_TIMEOUT),
        user_agent: USER_AGENT,
        tls_certs_only: only.to_vec(),
        ..ClientConfig::default()
    };
    let mut http = reqwest::Client::builder();
    if !only.is_empty() {
        let roots = only.iter().map(|root| reqwest::Certificate::from_der(&root.data));
        http = http.tls_certs_only(roots.collect::<Result<Vec<_>, _>>()?);
    }
    let http = http.connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT).user_agent(USER_AGENT).build()?;
    Ok((Client::try_from(config)?, http))
}

/// Makes a root certificate whose key nobody has.
fn untrusted_root() -> Result<Certificate, RegistryError> {
    let made = rcgen::generate_simple_self_signed(Vec::new()).map_err(RegistryError::Certificate)?;
    Ok(Certificate { encoding: CertificateEncoding::Der, data: made.cert.der().to_vec() })
}

/// Tells whether a registry is on this machine's loopback, where TLS would add nothing.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_goes_without_tls() {
        for registry in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"] {
            assert!(is_loopback(registry), "{registry}");
        }
        for registry in ["localhost.example", "docker.io", "10.0.0.1:5000", "128.0.0.1", "ghcr.io:443", "[::2]:1"] {
            assert!(!is_loopback(registry), "{registry}");
        }
    }
}
