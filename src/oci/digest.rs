//! SHA-256 digests, the names of all content.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// A SHA-256 digest, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobDigest(String);

/// The text is not a SHA-256 digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a sha256 digest, the only kind that is verified here")]
pub struct InvalidDigest(pub String);

impl BlobDigest {
    /// Digests the bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)))
    }

    /// Ends a running hash.
    pub fn from_hasher(hasher: Sha256) -> Self {
        Self(hex::encode(hasher.finalize()))
    }

    /// Gives the digits alone; safe as a file name.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl FromStr for BlobDigest {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        match text.strip_prefix("sha256:") {
            Some(digits) if digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => {
                Ok(Self(digits.to_owned()))
            }
            _ => Err(InvalidDigest(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_other_kinds_or_shapes_are_no_digests() {
        for text in
            ["", "sha256:", "sha512:00", &format!("sha256:{}", "A".repeat(64)), &format!("sha256:{}/", "a".repeat(63))]
        {
            assert!(text.parse::<BlobDigest>().is_err(), "{text}");
        }
        let digest = BlobDigest::of(b"x");
        assert_eq!(digest.to_string().parse(), Ok(digest));
    }
}
