//! Remembers which manifest a reference last stood for, so that an image that was had once needs no registry.
//!
//! The records are a cache: each is written whole and renamed into place, one that can't be read is
//! as good as none, and what it names is verified by digest like everything else.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::blobs::{BlobDigest, BlobError};
use crate::domain::artifact::{ImageSource, Platform};
use crate::domain::layout::StorageRoot;
use crate::sys::directories;

/// Largest record that is read, in bytes.
const RECORD_LIMIT: u64 = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    source: ImageSource,
    platform: Platform,
    manifest_digest: String,
}

/// Gives the digest of the manifest that the source last stood for on this platform.
pub fn recall(storage: &StorageRoot, source: &ImageSource, platform: &Platform) -> Option<BlobDigest> {
    let mut bytes = Vec::new();
    let file = File::open(place(storage, source, platform)).ok()?;
    file.take(RECORD_LIMIT).read_to_end(&mut bytes).ok()?;
    let record: Record = serde_json::from_slice(&bytes).ok()?;
    let same = record.version == 1 && record.source == *source && record.platform == *platform;
    record.manifest_digest.parse().ok().filter(|_| same)
}

/// Remembers what the source stands for now.
pub fn remember(
    storage: &StorageRoot,
    source: &ImageSource,
    platform: &Platform,
    manifest: &BlobDigest,
) -> Result<(), BlobError> {
    let directory = storage.references();
    directories::ensure_private(&directory).map_err(|error| BlobError::io(&directory, std::io::Error::other(error)))?;
    let record = Record {
        version: 1,
        source: source.clone(),
        platform: platform.clone(),
        manifest_digest: manifest.to_string(),
    };
    let bytes = serde_json::to_vec(&record).map_err(|error| BlobError::io(&directory, error.into()))?;
    let place = place(storage, source, platform);
    let temporary = directory.join(format!(".new-{}", crate::domain::ids::PreparationId::mint()));
    write_new(&temporary, &bytes)
        .and_then(|()| std::fs::rename(&temporary, &place))
        .map_err(|error| BlobError::io(&place, error))
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

fn place(storage: &StorageRoot, source: &ImageSource, platform: &Platform) -> PathBuf {
    let key = BlobDigest::of(format!("{source}\0{platform}").as_bytes());
    storage.references().join(format!("{}.json", key.hex()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_recalled_for_the_same_reference_and_platform_only() {
        let directory = tempfile::tempdir().unwrap();
        let storage = StorageRoot::new(directory.path().join("root"));
        let source = ImageSource::Registry("localhost:5000/a:latest".into());
        let other = ImageSource::Registry("localhost:5000/a:1".into());
        let platform = Platform::host();
        let foreign = Platform { architecture: "riscv64".into(), ..platform.clone() };
        assert_eq!(recall(&storage, &source, &platform), None);
        let digest = BlobDigest::of(b"manifest");
        remember(&storage, &source, &platform, &digest).unwrap();
        assert_eq!(recall(&storage, &source, &platform), Some(digest.clone()));
        assert_eq!(recall(&storage, &other, &platform), None);
        assert_eq!(recall(&storage, &source, &foreign), None);
        remember(&storage, &source, &platform, &BlobDigest::of(b"newer")).unwrap();
        assert_eq!(recall(&storage, &source, &platform), Some(BlobDigest::of(b"newer")));
        std::fs::write(place(&storage, &source, &platform), b"{").unwrap();
        assert_eq!(recall(&storage, &source, &platform), None);
    }
}
