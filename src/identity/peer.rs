//! Peer identities and how a certificate carries one.
//!
//! An identity binds role, Agent Profile, Domain ID, runtime component ID and generation (SR-9). It
//! is written as the only URI among the certificate's subject alternative names:
//!
//! ```text
//! lazaret://DOMAIN/GENERATION/ROLE/COMPONENT?profile=NAME
//! ```

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::domain::ids::{ClientCliId, CoordinatorId, DomainId, Generation, ProfileName};

/// A runtime component in its role. A process id is never one (SR-16).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Component {
    /// The Session Coordinator, on the Host Coordinator's face.
    Coordinator(CoordinatorId),
    /// A Client CLI.
    Client(ClientCliId),
}

impl Component {
    /// Gives the role's name as certificates carry it.
    pub fn role(&self) -> &'static str {
        match self {
            Self::Coordinator(_) => "coordinator",
            Self::Client(_) => "client",
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Coordinator(id) => id.as_str(),
            Self::Client(id) => id.as_str(),
        }
    }
}

/// A peer's whole identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// Role and runtime component ID.
    pub component: Component,
    /// The Agent Profile.
    pub profile: ProfileName,
    /// The Domain.
    pub domain: DomainId,
    /// The generation.
    pub generation: Generation,
}

/// A certificate that carries no identity, or another than expected.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The peer presented no certificate.
    #[error("the peer presented no certificate")]
    NoCertificate,
    /// The certificate can't be parsed.
    #[error("the peer's certificate can't be parsed")]
    Malformed,
    /// The certificate does not carry exactly one URI, or the URI is not an identity.
    #[error("the peer's certificate does not carry exactly one lazaret identity")]
    NotAnIdentity,
    /// The certificate carries another identity.
    #[error("the peer is {found}, expected {expected}")]
    Differs {
        /// Who the peer is.
        found: Box<PeerIdentity>,
        /// Who it should be.
        expected: Box<PeerIdentity>,
    },
}

impl PeerIdentity {
    /// Reads the identity from a certificate, which the caller has verified against a Trust Anchor.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let (rest, parsed) = X509Certificate::from_der(certificate).map_err(|_| IdentityError::Malformed)?;
        if !rest.is_empty() {
            return Err(IdentityError::Malformed);
        }
        let names = parsed.subject_alternative_name().map_err(|_| IdentityError::Malformed)?;
        let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let mut uris = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
        match (uris.next(), uris.next()) {
            (Some(uri), None) => uri.parse(),
            _ => Err(IdentityError::NotAnIdentity),
        }
    }

    /// Checks that the peer, by the certificates it presented, is exactly `self`.
    pub fn verify(&self, presented: Option<&[CertificateDer<'_>]>) -> Result<(), IdentityError> {
        let leaf = presented.and_then(<[_]>::first).ok_or(IdentityError::NoCertificate)?;
        let found = Self::from_certificate(leaf)?;
        if found == *self {
            Ok(())
        } else {
            Err(IdentityError::Differs { found: Box::new(found), expected: Box::new(self.clone()) })
        }
    }

    /// Gives the DNS name that certificate verification asks for besides the identity.
    pub fn server_name(&self) -> String {
        format!("{}.g{}.{}.lazaret.internal", self.component.role(), self.generation, self.domain)
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, profile, domain, generation } = self;
        write!(f, "lazaret://{domain}/{generation}/{}/{}?profile={profile}", component.role(), component.id())
    }
}

impl FromStr for PeerIdentity {
    type Err = IdentityError;

    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let parsed = parse(uri).ok_or(IdentityError::NotAnIdentity)?;
        // Only the canonical spelling is an identity: `007` is not generation 7.
        if parsed.to_string() == uri { Ok(parsed) } else { Err(IdentityError::NotAnIdentity) }
    }
}

fn parse(uri: &str) -> Option<PeerIdentity> {
    let (path, profile) = uri.strip_prefix("lazaret://")?.split_once("?profile=")?;
    let mut parts = path.split('/');
    let domain = parts.next()?.parse().ok()?;
    let generation = Generation(parts.next()?.parse().ok()?);
    let component = match (parts.next()?, parts.next()?) {
        ("coordinator", id) => Component::Coordinator(id.parse().ok()?),
        ("client", id) => Component::Client(id.parse().ok()?),
        _ => return None,
    };
    if parts.next().is_some() {
        return None;
    }
    Some(PeerIdentity { component, profile: profile.parse().ok()?, domain, generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uri_carries_the_whole_identity() {
        let identity = PeerIdentity {
            component: Component::Client(ClientCliId::mint()),
            profile: "claude-2.x".parse().unwrap(),
            domain: "d-0123456789abcdef0123".parse().unwrap(),
            generation: Generation(7),
        };
        assert_eq!(identity.to_string().parse::<PeerIdentity>().unwrap(), identity);
        assert_eq!(identity.server_name(), "client.g7.d-0123456789abcdef0123.lazaret.internal");
    }

    #[test]
    fn only_the_canonical_spelling_is_accepted() {
        let id = "00112233445566778899aabbccddeeff";
        let domain = "d-0123456789abcdef0123";
        let good = format!("lazaret://{domain}/7/client/{id}?profile=p");
        assert!(good.parse::<PeerIdentity>().is_ok());
        for bad in [
            format!("lazaret://{domain}/07/client/{id}?profile=p"),
            format!("lazaret://{domain}/+7/client/{id}?profile=p"),
            format!("lazaret://{domain}/7/supervisor/{id}?profile=p"),
            format!("lazaret://{domain}/7/client/{id}/x?profile=p"),
            format!("lazaret://{domain}/7/client/{id}?profile="),
            format!("lazaret://{domain}/7/client/{id}?profile=p&profile=q"),
            format!("LAZARET://{domain}/7/client/{id}?profile=p"),
            format!("{good} "),
            String::new(),
        ] {
            assert!(bad.parse::<PeerIdentity>().is_err(), "{bad}");
        }
    }
}
