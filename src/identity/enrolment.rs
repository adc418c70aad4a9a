//! A client's own key and its certificate signing request.

use std::fmt;

use rcgen::{CertificateParams, CertificateSigningRequestParams, DistinguishedName, KeyPair, PKCS_ED25519, PublicKey};
use rustls::pki_types::{CertificateSigningRequestDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A key or request that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// The key pair can't be generated.
    #[error("a key pair can't be generated")]
    Generate(#[source] rcgen::Error),
    /// The signing request can't be made.
    #[error("a certificate signing request can't be made")]
    Request(#[source] rcgen::Error),
}

/// A signing request that is refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRequest {
    /// It is malformed, or its signature does not prove possession of the key.
    #[error("the certificate signing request is malformed or not signed with its own key")]
    Unproven(#[source] rcgen::Error),
    /// Its key is of another kind than [`ClientKey`]s are.
    #[error("the certificate signing request's key is not an Ed25519 key")]
    KeyKind,
}

/// A client's private key, made for one connection and kept nowhere.
pub struct ClientKey(KeyPair);

impl ClientKey {
    /// Generates a fresh key.
    pub fn generate() -> Result<Self, EnrolmentError> {
        KeyPair::generate_for(&PKCS_ED25519).map(Self).map_err(EnrolmentError::Generate)
    }

    /// Gives a signing request in DER that proves possession of the key and claims nothing else:
    /// what the certificate says is the coordinator's to decide.
    pub fn request(&self) -> Result<Vec<u8>, EnrolmentError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&self.0).map_err(EnrolmentError::Request)?;
        Ok(request.der().to_vec())
    }

    /// Gives the key as TLS takes it.
    pub(super) fn to_private(&self) -> PrivateKeyDer<'static> {
        private_key(&self.0)
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientKey([secret])")
    }
}

/// Gives a key pair's private key as TLS takes it.
pub(super) fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

/// Gives the public key of a signing request whose signature proves possession.
///
/// Names and extensions of the request are looked at by nobody.
pub(super) fn proven_key(request: &[u8]) -> Result<PublicKey, InvalidRequest> {
    let request = CertificateSigningRequestDer::from(request);
    let parsed = CertificateSigningRequestParams::from_der(&request).map_err(InvalidRequest::Unproven)?;
    if *parsed.public_key.algorithm() == PKCS_ED25519 { Ok(parsed.public_key) } else { Err(InvalidRequest::KeyKind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_proves_possession() {
        let key = ClientKey::generate().unwrap();
        assert!(proven_key(&key.request().unwrap()).is_ok());
        assert_eq!(format!("{key:?}"), "ClientKey([secret])");
    }

    #[test]
    fn altered_foreign_and_malformed_requests_are_refused() {
        let request = ClientKey::generate().unwrap().request().unwrap();
        let key = proven_key(&request).unwrap();
        for position in 0..request.len() {
            let mut altered = request.clone();
            altered[position] ^= 0x10;
            // The signature does not cover the outer framing; what it covers is the key.
            if let Ok(found) = proven_key(&altered) {
                assert_eq!(found, key, "byte {position} changes the key unnoticed");
            }
        }
        let ecdsa = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let foreign = CertificateParams::default().serialize_request(&ecdsa).unwrap();
        assert!(matches!(proven_key(foreign.der()), Err(InvalidRequest::KeyKind)));
        assert!(proven_key(b"").is_err());
        assert!(proven_key(&request[..request.len() - 1]).is_err());
    }
}
