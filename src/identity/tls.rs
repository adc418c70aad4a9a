//! TLS configurations: TLS 1.3 only, certificates on both sides, no resumption.
//!
//! A resumed session would skip the certificates, and with them the comparison of identities.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version::TLS13};

use super::anchor::TrustAnchor;
use super::crypto;
use super::enrolment::ClientKey;

/// A TLS configuration that can't be built.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The Trust Anchor's certificate is not usable as one.
    #[error("the Trust Anchor's certificate is not valid")]
    Anchor(#[source] rustls::Error),
    /// The verifier of client certificates can't be built.
    #[error("the verifier of client certificates can't be built")]
    Verifier(#[source] VerifierBuilderError),
    /// The own certificate and key don't fit.
    #[error("the certificate does not fit its key")]
    Certificate(#[source] rustls::Error),
    /// The provider lacks TLS 1.3.
    #[error("the cryptographic provider lacks TLS 1.3")]
    Provider(#[source] rustls::Error),
}

/// Gives the Host Coordinator's configuration.
pub fn server(anchor: &TrustAnchor) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(roots(anchor.certificate())?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, crypto::provider())
        .clear_root_hint_subjects()
        .build()
        .map_err(TlsError::Verifier)?;
    let mut config = ServerConfig::builder_with_provider(crypto::provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Provider)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![anchor.coordinator_certificate()], anchor.coordinator_key())
        .map_err(TlsError::Certificate)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Gives a client's configuration: it trusts the anchor and presents the certificate.
pub fn client(
    anchor: &CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: &ClientKey,
) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(crypto::provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::Provider)?
        .with_root_certificates(roots(anchor)?)
        .with_client_auth_cert(vec![certificate], key.to_private())
        .map_err(TlsError::Certificate)?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(anchor: &CertificateDer<'static>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(anchor.clone()).map_err(TlsError::Anchor)?;
    Ok(roots)
}
