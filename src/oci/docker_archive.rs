//! Archives as `docker save` writes them: `manifest.json`, configurations, and one tar a layer.
//!
//! Such an archive has no OCI manifest and often no digests of its files. What identifies the image
//! is its configuration, which lists the digests of the uncompressed layers. So a manifest is made
//! here from just that, with uncompressed layers; the same image gives the same manifest whatever tool
//! wrote the archive, and every layer is verified against its configuration.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::archive::{Archive, ArchiveError};
use super::blobs::{Blob, BlobDigest, BlobError, BlobStore};
use super::container::{Container, OpenFile};
use super::decode::{Meter, decompress};
use super::manifest::{self, CONFIG_LIMIT, Compression, Document, Image, LAYER_LIMIT, MANIFEST_LIMIT, ManifestError};
use super::untrusted::{list, printable, tame};
use crate::domain::artifact::Platform;

/// An archive that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DockerArchiveError {
    /// The archive can't be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A file of the archive is missing or can't be read.
    #[error("{} has no readable {}: was it written by 'docker save'?", archive.display(), printable(name))]
    Missing {
        /// The archive.
        archive: PathBuf,
        /// The file.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The archive has no image of this name.
    #[error("{} has no image named '{tag}'; it has {}", archive.display(), list(names))]
    NoTag {
        /// The archive.
        archive: PathBuf,
        /// The name.
        tag: String,
        /// Names that it has.
        names: Vec<String>,
    },
    /// The archive is empty.
    #[error("{} holds no image", .0.display())]
    Empty(PathBuf),
    /// The image can't be used as it is described.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A blob is not what it should be, or can't be stored.
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// One image of `manifest.json`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

/// One image of a `docker save` archive.
#[derive(Debug, Clone)]
pub struct DockerArchive {
    path: PathBuf,
    files: Container,
    image: Saved,
}

impl DockerArchive {
    /// Opens an archive and finds the image that is named, or else the only one.
    pub fn open(path: &Path, tag: Option<&str>) -> Result<Self, DockerArchiveError> {
        let files = Container::Archive(Archive::open(path)?);
        let outline = "manifest.json";
        let bytes = files.read(outline, MANIFEST_LIMIT).map_err(|source| missing(path, outline, source))?;
        let images: Vec<Saved> = serde_json::from_slice(&bytes).map_err(|error| manifest::malformed(outline, error))?;
        let image = choose(images, tag, path)?;
        Ok(Self { path: path.to_owned(), files, image })
    }

    /// Describes the image; layers are opened to see whether they are compressed, but not read unless they are.
    pub fn image(&self, wanted: &Platform) -> Result<Image, DockerArchiveError> {
        let name = &self.image.config;
        let config = self.files.read(name, CONFIG_LIMIT).map_err(|source| self.missing(name, source))?;
        let names = self.image.layers.as_deref().unwrap_or_default();
        if names.len() > LAYER_LIMIT {
            return Err(ManifestError::TooManyLayers(names.len()).into());
        }
        let mut layers = Vec::with_capacity(names.len());
        for name in names {
            let (file, compression) = self.layer(name)?;
            let size = match compression {
                Compression::None => file.size,
                _ => self.uncompressed_size(name, file.content, compression)?,
            };
            layers.push(size);
        }
        // The digests come from the configuration; `manifest::image` checks that the counts agree.
        let diff_ids = diff_ids(&config)?;
        let layer = |(diff_id, size): (&BlobDigest, u64)| json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": diff_id.to_string(), "size": size});
        let described: Vec<_> = diff_ids.iter().zip(layers).map(layer).collect();
        if described.len() != diff_ids.len() || described.len() != names.len() {
            return Err(ManifestError::LayerCount { diff_ids: diff_ids.len(), layers: names.len() }.into());
        }
        let document = json!({
            "schemaVersion": 2,
            "mediaType": manifest::MANIFEST_TYPES[0],
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": BlobDigest::of(&config).to_string(),
                "size": config.len(),
            },
            "layers": described,
        });
        let bytes = document.to_string().into_bytes();
        match manifest::parse(&bytes, None)? {
            Document::Manifest(manifest) => Ok(manifest::image(BlobDigest::of(&bytes), manifest, &config, wanted)?),
            Document::Index(_) => Err(DockerArchiveError::Empty(self.path.clone())),
        }
    }

    /// Copies the layer of this number into the store, uncompressed; `report` is told how many of its bytes are there.
    pub fn import(
        &self,
        store: &BlobStore,
        number: usize,
        blob: &Blob,
        report: impl Fn(u64),
    ) -> Result<(), DockerArchiveError> {
        let name = self.image.layers.as_ref().and_then(|layers| layers.get(number)).cloned().unwrap_or_default();
        let (file, compression) = self.layer(&name)?;
        store.import(blob, decompress(file.content, compression), report, |source| self.missing(&name, source))
    }

    /// Opens a layer, and tells how it is compressed.
    fn layer(&self, name: &str) -> Result<(OpenFile, Compression), DockerArchiveError> {
        let open = || self.files.open(name).map_err(|source| self.missing(name, source));
        let mut magic = Vec::new();
        open()?.content.take(4).read_to_end(&mut magic).map_err(|source| self.missing(name, source))?;
        let compression = match magic.as_slice() {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Compression::Zstandard,
            _ => Compression::None,
        };
        Ok((open()?, compression))
    }

    fn uncompressed_size(
        &self,
        name: &str,
        content: impl Read + 'static,
        compression: Compression,
    ) -> Result<u64, DockerArchiveError> {
        let (mut meter, gauge) = Meter::new(decompress(content, compression));
        io::copy(&mut meter, &mut io::sink()).map_err(|source| self.missing(name, source))?;
        Ok(gauge.count())
    }

    fn missing(&self, name: &str, source: io::Error) -> DockerArchiveError {
        missing(&self.path, name, source)
    }
}

fn diff_ids(config: &[u8]) -> Result<Vec<BlobDigest>, ManifestError> {
    #[derive(Deserialize)]
    struct Outline {
        rootfs: RootFs,
    }
    #[derive(Deserialize)]
    struct RootFs {
        #[serde(default)]
        diff_ids: Vec<String>,
    }
    let outline: Outline =
        serde_json::from_slice(config).map_err(|error| manifest::malformed("configuration", error))?;
    let parse =
        |text: &String| text.parse().map_err(|source| ManifestError::Digest { document: "configuration", source });
    outline.rootfs.diff_ids.iter().map(parse).collect()
}

fn missing(archive: &Path, name: &str, source: io::Error) -> DockerArchiveError {
    DockerArchiveError::Missing { archive: archive.to_owned(), name: name.to_owned(), source: tame(source) }
}

fn choose(images: Vec<Saved>, tag: Option<&str>, path: &Path) -> Result<Saved, DockerArchiveError> {
    let names: Vec<String> = images.iter().flat_map(|image| image.repo_tags.iter().flatten().cloned()).collect();
    match tag {
        // `name` means `name:latest`, as it does for docker load.
        Some(tag) => {
            let full = if tag.rsplit('/').next().unwrap_or(tag).contains(':') {
                tag.to_owned()
            } else {
                format!("{tag}:latest")
            };
            let named = |image: &Saved| image.repo_tags.iter().flatten().any(|name| *name == full);
            images.into_iter().find(named).ok_or_else(|| DockerArchiveError::NoTag {
                archive: path.to_owned(),
                tag: tag.to_owned(),
                names,
            })
        }
        None if images.len() > 1 => Err(ManifestError::Ambiguous { count: images.len(), names }.into()),
        None => images.into_iter().next().ok_or_else(|| DockerArchiveError::Empty(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_chosen_by_name_or_because_it_is_the_only_one() {
        let saved = |config: &str, tag: Option<&str>| Saved {
            config: config.into(),
            repo_tags: tag.map(|tag| vec![tag.into()]),
            layers: None,
        };
        let two = vec![saved("a", Some("x/y:1")), saved("b", Some("z:latest"))];
        let path = Path::new("/a.tar");
        assert_eq!(choose(two.clone(), Some("z"), path).unwrap().config, "b");
        assert_eq!(choose(two.clone(), Some("x/y:1"), path).unwrap().config, "a");
        assert!(matches!(choose(two.clone(), Some("x/y"), path), Err(DockerArchiveError::NoTag { .. })));
        assert_eq!(choose(two, None, path).unwrap_err().to_string(), "2 images are there: name one of x/y:1, z:latest");
        assert_eq!(choose(vec![saved("c", None)], None, path).unwrap().config, "c");
        assert!(matches!(choose(vec![], None, path), Err(DockerArchiveError::Empty(_))));
    }
}
