//! Byte strings as text: valid UTF-8 stays readable, anything else and `%` become `%XX`.
//!
//! Arguments, environment values and paths are bytes on Linux, but runsc's process documents and
//! our JSON output are text. This encoding carries every byte string through them unchanged.

/// The text is not an escaped byte string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' has a '%' that is not followed by two hexadecimal digits")]
pub struct InvalidEscape(pub String);

/// Encodes bytes as text; [`unescape`] gives them back exactly.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for part in chunk.valid().split_inclusive('%') {
            match part.strip_suffix('%') {
                Some(before) => {
                    text.push_str(before);
                    text.push_str("%25");
                }
                None => text.push_str(part),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Decodes text made by [`escape`].
pub fn unescape(text: &str) -> Result<Vec<u8>, InvalidEscape> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let decoded = after.get(..2).and_then(|digits| hex::decode(digits).ok());
        match decoded {
            Some(byte) => bytes.extend(byte),
            None => return Err(InvalidEscape(text.to_owned())),
        }
        rest = &after[2..];
    }
    Ok(bytes)
}

/// Carries a path through serde as escaped text, so that one which is not UTF-8 survives:
/// `#[serde(with = "crate::domain::escaped::path")]`.
pub mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes the path's bytes as escaped text.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::escape(path.as_os_str().as_bytes()))
    }

    /// Gives the path back exactly.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = super::unescape(&text).map_err(serde::de::Error::custom)?;
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn readable_text_stays_readable() {
        assert_eq!(escape("naïve file".as_bytes()), "naïve file");
        assert_eq!(escape(b"100%\xff"), "100%25%FF");
        assert!(unescape("50%").is_err());
        assert!(unescape("%zz").is_err());
    }

    proptest! {
        #[test]
        fn every_byte_string_survives(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(unescape(&escape(&bytes)).unwrap(), bytes);
        }
    }
}
