//! OCI image layouts (image-layout specification), as a directory or inside a tar file.

use std::io;
use std::path::{Path, PathBuf};

use oci_spec::image::{Descriptor, ImageIndex};

use super::archive::{Archive, ArchiveError};
use super::blobs::{Blob, BlobDigest, BlobError, BlobStore};
use super::container::Container;
use super::manifest::{self, Document, MANIFEST_LIMIT, ManifestError};
use super::untrusted::list;

/// The annotation that names an image in a layout's index.
const NAME: &str = "org.opencontainers.image.ref.name";

/// A layout that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The archive can't be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A file of the layout is missing or can't be read.
    #[error("{} has no readable {name}: is it an OCI image layout?", layout.display())]
    Missing {
        /// The layout.
        layout: PathBuf,
        /// The file.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The index has no image of this name.
    #[error("{} has no image named '{tag}'; it has {}", layout.display(), list(names))]
    NoTag {
        /// The layout.
        layout: PathBuf,
        /// The name.
        tag: String,
        /// Names that it has.
        names: Vec<String>,
    },
    /// The index is empty.
    #[error("{} holds no image", .0.display())]
    Empty(PathBuf),
    /// The index is not valid or not usable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A blob is not what it should be, or can't be stored.
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// An OCI image layout.
#[derive(Debug, Clone)]
pub struct Layout {
    path: PathBuf,
    container: Container,
}

impl Layout {
    /// Takes a layout directory.
    pub fn directory(path: &Path) -> Self {
        Self { path: path.to_owned(), container: Container::Directory(path.to_owned()) }
    }

    /// Opens a tar file of a layout.
    pub fn archive(path: &Path) -> Result<Self, LayoutError> {
        Ok(Self { path: path.to_owned(), container: Container::Archive(Archive::open(path)?) })
    }

    /// Finds the image in the index: the one that is named, or else the only one, or else the index
    /// as a whole when all of its entries are platforms of one image.
    pub fn find(&self, tag: Option<&str>) -> Result<Found, LayoutError> {
        let bytes = self.read("index.json", MANIFEST_LIMIT)?;
        let index = match manifest::parse(&bytes, Some(manifest::MANIFEST_TYPES[1]))? {
            Document::Index(index) => index,
            Document::Manifest(_) => return Err(LayoutError::Empty(self.path.clone())),
        };
        find_in(&index, tag, &self.path)
    }

    /// Reads a document by digest and verifies it.
    pub fn document(&self, blob: &Blob, limit: u64) -> Result<Vec<u8>, LayoutError> {
        if blob.size > limit {
            return Err(BlobError::OverLimit { digest: blob.digest.clone(), size: blob.size, limit }.into());
        }
        let bytes = self.read(&blob_name(&blob.digest), limit)?;
        let actual = BlobDigest::of(&bytes);
        if actual != blob.digest {
            return Err(BlobError::WrongDigest { expected: blob.digest.clone(), actual }.into());
        }
        Ok(bytes)
    }

    /// Copies a blob into the store; `report` is told how many of its bytes are there.
    pub fn import(&self, store: &BlobStore, blob: &Blob, report: impl Fn(u64)) -> Result<(), LayoutError> {
        let name = blob_name(&blob.digest);
        let file = self.container.open(&name).map_err(|source| self.missing(&name, source))?;
        store.import(blob, file.content, report, |source| self.missing(&name, source))
    }

    fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, LayoutError> {
        self.container.read(name, limit).map_err(|source| self.missing(name, source))
    }

    fn missing(&self, name: &str, source: io::Error) -> LayoutError {
        LayoutError::Missing { layout: self.path.clone(), name: name.to_owned(), source }
    }
}

/// What a layout's index gave.
#[derive(Debug)]
pub enum Found {
    /// A manifest or nested index to read.
    Entry(Descriptor),
    /// Several platforms of one image, of which one is to be chosen.
    Platforms(ImageIndex),
}

fn find_in(index: &ImageIndex, tag: Option<&str>, layout: &Path) -> Result<Found, LayoutError> {
    let name_of = |entry: &Descriptor| entry.annotations().as_ref().and_then(|notes| notes.get(NAME).cloned());
    let entries = index.manifests();
    match (tag, entries.as_slice()) {
        (Some(tag), _) => {
            let named: Vec<_> = entries.iter().filter(|entry| name_of(entry).as_deref() == Some(tag)).collect();
            match named.as_slice() {
                [] => {
                    let mut names: Vec<_> = entries.iter().filter_map(name_of).collect();
                    names.sort();
                    names.dedup();
                    Err(LayoutError::NoTag { layout: layout.to_owned(), tag: tag.to_owned(), names })
                }
                [only] => Ok(Found::Entry((*only).clone())),
                several => {
                    let mut platforms = index.clone();
                    platforms.set_manifests(several.iter().map(|entry| (*entry).clone()).collect());
                    Ok(Found::Platforms(platforms))
                }
            }
        }
        (None, []) => Err(LayoutError::Empty(layout.to_owned())),
        (None, [only]) => Ok(Found::Entry(only.clone())),
        (None, several) => {
            let mut names: Vec<_> = several.iter().filter_map(name_of).collect();
            names.sort();
            names.dedup();
            if names.len() <= 1 && several.iter().all(|entry| entry.platform().is_some()) {
                return Ok(Found::Platforms(index.clone()));
            }
            Err(ManifestError::Ambiguous { count: several.len(), names }.into())
        }
    }
}

fn blob_name(digest: &BlobDigest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn index(entries: &[Value]) -> ImageIndex {
        let bytes = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": entries})).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn entry(size: u64, name: Option<&str>, architecture: Option<&str>) -> Value {
        let mut entry =
            json!({"mediaType": manifest::MANIFEST_TYPES[0], "size": size, "digest": BlobDigest::of(b"").to_string()});
        if let Some(name) = name {
            entry["annotations"] = json!({NAME: name});
        }
        if let Some(architecture) = architecture {
            entry["platform"] = json!({"os": "linux", "architecture": architecture});
        }
        entry
    }

    #[test]
    fn an_image_is_found_by_name_or_because_it_is_the_only_one() {
        let layout = Path::new("/layout");
        let two = index(&[entry(1, Some("a"), None), entry(2, Some("b"), None)]);
        let size = |found: Result<Found, LayoutError>| match found.unwrap() {
            Found::Entry(entry) => entry.size(),
            Found::Platforms(_) => panic!("platforms"),
        };
        assert_eq!(size(find_in(&two, Some("b"), layout)), 2);
        assert_eq!(size(find_in(&index(&[entry(7, None, None)]), None, layout)), 7);
        assert!(matches!(find_in(&two, Some("c"), layout), Err(LayoutError::NoTag { .. })));
        let refused = find_in(&two, None, layout).unwrap_err();
        assert_eq!(refused.to_string(), "2 images are there: name one of a, b");
        assert!(matches!(find_in(&index(&[]), None, layout), Err(LayoutError::Empty(_))));
    }

    #[test]
    fn platforms_of_one_image_stay_together() {
        let layout = Path::new("/layout");
        let entries = [entry(1, Some("a"), Some("amd64")), entry(2, Some("a"), Some("arm64"))];
        for tag in [None, Some("a")] {
            match find_in(&index(&entries), tag, layout).unwrap() {
                Found::Platforms(index) => assert_eq!(index.manifests().len(), 2),
                Found::Entry(_) => panic!("one entry"),
            }
        }
    }
}
