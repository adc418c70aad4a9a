//! The ephemeral Trust Anchor of one generation.
//!
//! It lives in the Host Coordinator's memory and dies with it: a certificate that it issued is worth
//! nothing to the next generation, whose anchor has another key. Validity dates therefore say
//! nothing here, and a clock that is set back refuses nobody.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::enrolment::{self, InvalidRequest};
use super::peer::{Component, PeerIdentity};
use crate::domain::ids::{ClientCliId, CoordinatorId, DomainId, Generation, ProfileName};
use crate::wire::hello::{PROTOCOL_VERSION, Publication};

/// A Trust Anchor that can't be made or can't issue.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// A key pair can't be generated.
    #[error("a key pair can't be generated")]
    Generate(#[source] rcgen::Error),
    /// The anchor's own certificate can't be made.
    #[error("the Trust Anchor's certificate can't be made")]
    Mint(#[source] rcgen::Error),
    /// A leaf certificate can't be made.
    #[error("a certificate for {identity} can't be issued")]
    Issue {
        /// Whose.
        identity: Box<PeerIdentity>,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// The client's signing request is refused.
    #[error("the client's certificate signing request is refused")]
    Request(#[from] InvalidRequest),
}

/// The Trust Anchor of one Domain generation, with the Session Coordinator's own certificate.
pub struct TrustAnchor {
    issuer: CertifiedIssuer<'static, KeyPair>,
    coordinator: PeerIdentity,
    coordinator_key: KeyPair,
    coordinator_certificate: CertificateDer<'static>,
    publication: Publication,
}

impl TrustAnchor {
    /// Mints the anchor of a generation.
    pub fn mint(
        domain: &DomainId,
        profile: &ProfileName,
        generation: Generation,
        coordinator: &CoordinatorId,
    ) -> Result<Self, AnchorError> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(AnchorError::Generate)?;
        let issuer = CertifiedIssuer::self_signed(anchor_params(domain, generation), key).map_err(AnchorError::Mint)?;
        let identity = PeerIdentity {
            component: Component::Coordinator(coordinator.clone()),
            profile: profile.clone(),
            domain: domain.clone(),
            generation,
        };
        let coordinator_key = KeyPair::generate_for(&PKCS_ED25519).map_err(AnchorError::Generate)?;
        let coordinator_certificate = issue(&issuer, &identity, &coordinator_key)?;
        let publication = Publication {
            version: PROTOCOL_VERSION,
            domain: domain.clone(),
            profile: profile.clone(),
            generation,
            coordinator: coordinator.clone(),
            trust_anchor: hex::encode(issuer.der()),
        };
        Ok(Self { issuer, coordinator: identity, coordinator_key, coordinator_certificate, publication })
    }

    /// Issues the certificate of a client that proves possession of its key.
    pub fn enrol(&self, client: &ClientCliId, request: &[u8]) -> Result<CertificateDer<'static>, AnchorError> {
        issue(&self.issuer, &self.client_identity(client), &enrolment::proven_key(request)?)
    }

    /// Gives the identity of a client of this generation.
    pub fn client_identity(&self, client: &ClientCliId) -> PeerIdentity {
        PeerIdentity { component: Component::Client(client.clone()), ..self.coordinator.clone() }
    }

    /// Gives the publication record, with the anchor's certificate in it.
    pub fn publication(&self) -> &Publication {
        &self.publication
    }

    /// Gives the anchor's certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// Gives the Session Coordinator's certificate.
    pub(super) fn coordinator_certificate(&self) -> CertificateDer<'static> {
        self.coordinator_certificate.clone()
    }

    /// Gives the Session Coordinator's private key as TLS takes it.
    pub(super) fn coordinator_key(&self) -> PrivateKeyDer<'static> {
        enrolment::private_key(&self.coordinator_key)
    }
}

impl fmt::Debug for TrustAnchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustAnchor").field("coordinator", &self.coordinator).field("keys", &"[secret]").finish()
    }
}

fn anchor_params(domain: &DomainId, generation: Generation) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(format!("lazaret {domain} generation {generation}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Issues a leaf; its extended key usage keeps a client's certificate from serving and the reverse.
fn issue(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    identity: &PeerIdentity,
    key: &impl PublicKeyData,
) -> Result<CertificateDer<'static>, AnchorError> {
    let failed = |source| AnchorError::Issue { identity: Box::new(identity.clone()), source };
    let uri = identity.to_string().try_into().map_err(failed)?;
    let dns = identity.server_name().try_into().map_err(failed)?;
    let usage = match identity.component {
        Component::Coordinator(_) => ExtendedKeyUsagePurpose::ServerAuth,
        Component::Client(_) => ExtendedKeyUsagePurpose::ClientAuth,
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(format!("lazaret {}", identity.component.role()));
    params.subject_alt_names = vec![SanType::URI(uri), SanType::DnsName(dns)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    Ok(params.signed_by(key, issuer).map_err(failed)?.der().clone())
}

fn common_name(text: String) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}
