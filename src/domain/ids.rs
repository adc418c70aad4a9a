//! Identifiers. Each is a type of its own, so that none can stand in for another (SR-16, SR-17).

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The text given for an identifier is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a valid {kind}: expected {expected}")]
pub struct InvalidId {
    /// What kind of identifier was wanted.
    pub kind: &'static str,
    /// The text that was given.
    pub text: String,
    /// The accepted form in words.
    pub expected: &'static str,
}

/// Defines a 128-bit random identifier, written as 32 lower-case hexadecimal digits.
macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Mints a fresh identifier from 128 random bits.
            pub fn mint() -> Self {
                Self(hex::encode(rand::random::<[u8; 16]>()))
            }

            /// Gives the identifier's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_lower_hex(text, 32) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { kind: $kind, text: text.to_owned(), expected: "32 hexadecimal digits" })
                }
            }
        }
        id_text!($name);
    };
}

/// Gives an identifier the conversions that every identifier has.
macro_rules! id_text {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

random_id!(
    /// Names one host Lazaret CLI process as a protocol identity (glossary: Client CLI ID).
    ClientCliId, "Client CLI ID"
);
random_id!(
    /// Names one Client Session (glossary: Session ID).
    SessionId, "Session ID"
);
random_id!(
    /// Names the Session Coordinator as a protocol peer, on the Host Coordinator face (SR-16).
    CoordinatorId, "Session Coordinator ID"
);
random_id!(
    /// Names a generation's Network Sidecar role instance; never a process id (SR-17).
    SidecarId, "Network Sidecar ID"
);
random_id!(
    /// Names one Agent Sandbox instance.
    SandboxId, "Agent Sandbox ID"
);
random_id!(
    /// Names one attempt to prepare an artifact.
    PreparationId, "Preparation ID"
);

impl SandboxId {
    /// Gives the name under which runsc knows the sandbox. It is short because runsc's control
    /// socket path, which holds it, must fit in the 108 bytes of `sockaddr_un` (unix(7)).
    pub fn runsc_name(&self) -> &str {
        &self.0[..12]
    }
}

/// Deterministic identifier of one Domain (FR-1): `d-` and 20 hexadecimal digits of a SHA-256
/// over the Agent Profile's name and the canonical Agent Workspace path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainId(String);

impl DomainId {
    /// Derives the Domain ID; the same pair gives the same ID on every run and machine.
    pub fn derive(profile: &ProfileName, canonical_workspace: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let mut digest = Sha256::new();
        digest.update(b"lazaret domain 1\0");
        digest.update(profile.as_str().as_bytes());
        digest.update(b"\0");
        digest.update(canonical_workspace.as_os_str().as_bytes());
        Self(format!("d-{}", &hex::encode(digest.finalize())[..20]))
    }

    /// Gives the identifier's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DomainId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        match text.strip_prefix("d-") {
            Some(digits) if is_lower_hex(digits, 20) => Ok(Self(text.to_owned())),
            _ => {
                Err(InvalidId { kind: "Domain ID", text: text.to_owned(), expected: "'d-' and 20 hexadecimal digits" })
            }
        }
    }
}
id_text!(DomainId);

/// Name of an Agent Profile: 1 to 64 of `a-z 0-9 - _ .`, beginning with a letter or digit.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileName(String);

impl ProfileName {
    /// Gives the name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProfileName {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        let starts_well = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if starts_well && text.len() <= 64 && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId {
                kind: "profile name",
                text: text.to_owned(),
                expected: "1 to 64 of a-z, 0-9, '-', '_', '.', beginning with a letter or digit",
            })
        }
    }
}
id_text!(ProfileName);

/// Ordinal of a Domain generation: 1 for the first, one more for each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// Gives the generation that follows this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Defines a SHA-256 identity, written as 64 lower-case hexadecimal digits.
macro_rules! digest_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Digests the bytes.
            pub fn of(bytes: &[u8]) -> Self {
                Self(hex::encode(Sha256::digest(bytes)))
            }

            /// Gives the digest's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Gives the first 12 digits, for people.
            pub fn short(&self) -> &str {
                &self.0[..12]
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_lower_hex(text, 64) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { kind: $kind, text: text.to_owned(), expected: "64 hexadecimal digits" })
                }
            }
        }
        id_text!($name);
    };
}

digest_id!(
    /// Digest of the validated host configuration of a Domain (glossary: Configuration Fingerprint).
    ConfigFingerprint, "Configuration Fingerprint"
);
digest_id!(
    /// Identity of one immutable prepared-lower tree (glossary: Prepared-artifact ID).
    ArtifactId, "prepared-artifact ID"
);
digest_id!(
    /// Digest of a derived network policy document.
    PolicyDigest, "network policy digest"
);
digest_id!(
    /// Product encoding of network readiness (glossary: Network readiness fingerprint).
    ReadinessFingerprint, "network readiness fingerprint"
);

fn is_lower_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_id_is_stable_and_depends_on_both_parts() {
        let profile: ProfileName = "claude".parse().unwrap();
        let id = DomainId::derive(&profile, Path::new("/home/dev/project"));
        assert_eq!(id, DomainId::derive(&profile, Path::new("/home/dev/project")));
        assert_ne!(id, DomainId::derive(&profile, Path::new("/home/dev/project2")));
        assert_ne!(id, DomainId::derive(&"codex".parse().unwrap(), Path::new("/home/dev/project")));
        assert_eq!(id.as_str().parse::<DomainId>().unwrap(), id);
    }

    #[test]
    fn texts_of_the_wrong_shape_are_refused() {
        for text in ["", "d-", "d-XYZ", "../etc", "d-0123456789abcdef012", "d-0123456789ABCDEF0123"] {
            assert!(text.parse::<DomainId>().is_err(), "{text}");
        }
        for text in ["", "-x", "UPPER", "a/b", "..", "a b", "ä"] {
            assert!(text.parse::<ProfileName>().is_err(), "{text}");
        }
        assert!("x.y_z-1".parse::<ProfileName>().is_ok());
    }
}
