//! Manifests, indexes and configurations: parsed, bounded, checked, and the one for the platform chosen.

use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType};
use serde::Deserialize;

use super::blobs::{Blob, BlobDigest, InvalidDigest};
use super::untrusted::{list, printable, tame};
use crate::domain::artifact::{ImageRuntime, Platform};

/// Largest manifest or index that is read, in bytes.
pub const MANIFEST_LIMIT: u64 = 4 << 20;

/// Largest configuration that is read, in bytes.
pub const CONFIG_LIMIT: u64 = 8 << 20;

/// Most layers that an image may have.
pub const LAYER_LIMIT: usize = 512;

/// How deep an index may refer to another index.
pub const INDEX_DEPTH: usize = 4;

/// Media types of what may stand for an image, for an `Accept` header.
pub const MANIFEST_TYPES: [&str; 4] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// An image that can't be used as it is described.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The document is not JSON of the expected shape.
    #[error("the image's {document} is not valid")]
    Malformed {
        /// Which document.
        document: &'static str,
        /// What is wrong.
        #[source]
        source: std::io::Error,
    },
    /// The document or a layer is of a kind that Lazaret does not know.
    #[error("unsupported media type '{}' of {what}", printable(media_type))]
    MediaType {
        /// What has this type.
        what: String,
        /// The type.
        media_type: String,
    },
    /// A digest is not a SHA-256 one.
    #[error("the image's {document} has a digest that can't be verified")]
    Digest {
        /// Which document.
        document: &'static str,
        /// The digest.
        #[source]
        source: InvalidDigest,
    },
    /// The image has nothing for the platform.
    #[error("no manifest for platform {wanted}; there is {}", list(available))]
    Platform {
        /// What was asked for.
        wanted: Platform,
        /// What there is.
        available: Vec<String>,
    },
    /// Several images fit and nothing says which is meant.
    #[error("{count} images are there: name one of {}", list(names))]
    Ambiguous {
        /// How many there are.
        count: usize,
        /// Names that may be given.
        names: Vec<String>,
    },
    /// Indexes refer to indexes too deeply.
    #[error("the image's index refers to other indexes more than {INDEX_DEPTH} deep")]
    TooDeep,
    /// More layers than Lazaret applies.
    #[error("the image has {0} layers, more than {LAYER_LIMIT}")]
    TooManyLayers(usize),
    /// The configuration and the manifest disagree.
    #[error("the image's configuration lists {diff_ids} layers, its manifest {layers}")]
    LayerCount {
        /// In the configuration.
        diff_ids: usize,
        /// In the manifest.
        layers: usize,
    },
}

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Plain tar.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstandard,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The stored bytes.
    pub blob: Blob,
    /// How they are compressed.
    pub compression: Compression,
    /// Digest of the uncompressed tar.
    pub diff_id: BlobDigest,
}

/// An image that was chosen and whose documents are checked; its layers are not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Digest of the manifest.
    pub manifest_digest: BlobDigest,
    /// The platform that the configuration names.
    pub platform: Platform,
    /// How the image wants to be run.
    pub runtime: ImageRuntime,
    /// Its layers, lowest first.
    pub layers: Vec<Layer>,
}

/// What a manifest document turned out to be.
#[derive(Debug)]
pub enum Document {
    /// A list of manifests, of which one is to be chosen.
    Index(Box<ImageIndex>),
    /// One image.
    Manifest(Manifest),
}

/// An image manifest, checked.
#[derive(Debug)]
pub struct Manifest {
    /// The configuration.
    pub config: Blob,
    /// Layers, lowest first.
    pub layers: Vec<(Blob, Compression)>,
}

/// Reads a manifest or index; `declared` is the media type that whoever refers to it gave.
pub fn parse(bytes: &[u8], declared: Option<&str>) -> Result<Document, ManifestError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outline {
        schema_version: Option<u32>,
        media_type: Option<String>,
        #[serde(default)]
        manifests: Option<serde::de::IgnoredAny>,
        #[serde(default)]
        layers: Option<serde::de::IgnoredAny>,
    }
    let outline: Outline = read(bytes, "manifest")?;
    let media_type = outline.media_type.as_deref().or(declared);
    let unsupported = |media_type: &str| {
        Err(ManifestError::MediaType { what: "the image's manifest".into(), media_type: media_type.to_owned() })
    };
    match media_type.map(|given| given.split(';').next().unwrap_or(given).trim()) {
        _ if outline.schema_version == Some(1) => unsupported("application/vnd.docker.distribution.manifest.v1+json"),
        Some(given) if given.ends_with("index.v1+json") || given.ends_with("manifest.list.v2+json") => {
            Ok(Document::Index(read(bytes, "index")?))
        }
        Some(given) if MANIFEST_TYPES.contains(&given) => manifest(bytes).map(Document::Manifest),
        // A registry that gives no useful type, or a layout's index.json without one: the shape says what it is.
        None | Some("application/json" | "text/plain" | "application/octet-stream") if outline.manifests.is_some() => {
            Ok(Document::Index(read(bytes, "index")?))
        }
        None | Some("application/json" | "text/plain" | "application/octet-stream") if outline.layers.is_some() => {
            manifest(bytes).map(Document::Manifest)
        }
        other => unsupported(other.unwrap_or("none")),
    }
}

fn manifest(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let manifest: ImageManifest = read(bytes, "manifest")?;
    match manifest.config().media_type() {
        MediaType::ImageConfig => {}
        MediaType::Other(kind) if kind == "application/vnd.docker.container.image.v1+json" => {}
        other => {
            let what = "the image's configuration (is it an image, not some other artifact?)".into();
            return Err(ManifestError::MediaType { what, media_type: other.to_string() });
        }
    }
    if manifest.layers().len() > LAYER_LIMIT {
        return Err(ManifestError::TooManyLayers(manifest.layers().len()));
    }
    let layer = |descriptor: &Descriptor| Ok((blob(descriptor, "manifest")?, compression(descriptor)?));
    let layers = manifest.layers().iter().map(layer).collect::<Result<_, _>>()?;
    Ok(Manifest { config: blob(manifest.config(), "manifest")?, layers })
}

fn compression(layer: &Descriptor) -> Result<Compression, ManifestError> {
    match layer.media_type() {
        MediaType::ImageLayer => Ok(Compression::None),
        MediaType::ImageLayerGzip => Ok(Compression::Gzip),
        MediaType::ImageLayerZstd => Ok(Compression::Zstandard),
        MediaType::Other(kind) => match kind.as_str() {
            "application/vnd.docker.image.rootfs.diff.tar" => Ok(Compression::None),
            "application/vnd.docker.image.rootfs.diff.tar.gzip" => Ok(Compression::Gzip),
            "application/vnd.docker.image.rootfs.diff.tar.zstd" => Ok(Compression::Zstandard),
            _ => Err(unsupported_layer(layer)),
        },
        _ => Err(unsupported_layer(layer)),
    }
}

fn unsupported_layer(layer: &Descriptor) -> ManifestError {
    let what = format!("layer {}", layer.digest());
    ManifestError::MediaType { what, media_type: layer.media_type().to_string() }
}

/// Takes what a descriptor promises.
pub fn blob(descriptor: &Descriptor, document: &'static str) -> Result<Blob, ManifestError> {
    let digest =
        descriptor.digest().to_string().parse().map_err(|source| ManifestError::Digest { document, source })?;
    Ok(Blob { digest, size: descriptor.size() })
}

/// Joins a manifest with its configuration, and checks both against each other and the platform.
pub fn image(digest: BlobDigest, manifest: Manifest, config: &[u8], wanted: &Platform) -> Result<Image, ManifestError> {
    let config: ImageConfiguration = read(config, "configuration")?;
    let platform = Platform {
        os: config.os().to_string(),
        architecture: config.architecture().to_string(),
        variant: config.variant().clone(),
    };
    // The variant is not compared: configurations often leave it out or differ from their index.
    if platform.os != wanted.os || platform.architecture != wanted.architecture {
        return Err(ManifestError::Platform { wanted: wanted.clone(), available: vec![platform.to_string()] });
    }
    let diff_ids = config.rootfs().diff_ids();
    if diff_ids.len() != manifest.layers.len() {
        return Err(ManifestError::LayerCount { diff_ids: diff_ids.len(), layers: manifest.layers.len() });
    }
    let layers = manifest.layers.into_iter().zip(diff_ids).map(|((blob, compression), diff_id)| {
        let diff_id = diff_id.parse().map_err(|source| ManifestError::Digest { document: "configuration", source })?;
        Ok(Layer { blob, compression, diff_id })
    });
    Ok(Image {
        manifest_digest: digest,
        platform: Platform { variant: wanted.variant.clone(), ..platform },
        runtime: runtime(&config),
        layers: layers.collect::<Result<_, _>>()?,
    })
}

/// Takes what can be used; what no process could be given (execve(2)) is left out.
fn runtime(config: &ImageConfiguration) -> ImageRuntime {
    let Some(config) = config.config() else { return ImageRuntime::default() };
    let usable = |text: &String| !text.contains('\0');
    let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
    let command: Vec<_> = [words(config.entrypoint()), words(config.cmd())].concat();
    let mut env = words(config.env());
    env.retain(|variable| usable(variable) && variable.find('=').is_some_and(|at| at > 0));
    ImageRuntime {
        user: config.user().clone().filter(|user| !user.is_empty()),
        env,
        command: if command.iter().all(usable) { command } else { Vec::new() },
        working_dir: config.working_dir().clone().filter(|path| path.starts_with('/') && usable(path)),
    }
}

/// Makes the error of a document that is not what it should be.
pub fn malformed(document: &'static str, error: serde_json::Error) -> ManifestError {
    ManifestError::Malformed { document, source: tame(error.into()) }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8], document: &'static str) -> Result<T, ManifestError> {
    serde_json::from_slice(bytes).map_err(|error| malformed(document, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let (os, architecture) = (parts.next().unwrap(), parts.next().unwrap());
        Platform { os, architecture, variant: parts.next() }
    }

    fn document(config_type: &str, layer_types: &[&str]) -> Vec<u8> {
        let digest = BlobDigest::of(b"").to_string();
        let layer = |kind: &&str| json!({"mediaType": kind, "digest": digest, "size": 0});
        let layers: Vec<_> = layer_types.iter().map(layer).collect();
        let config = json!({"mediaType": config_type, "digest": digest, "size": 0});
        serde_json::to_vec(&json!({"schemaVersion": 2, "config": config, "layers": layers})).unwrap()
    }

    #[test]
    fn what_is_no_image_or_has_foreign_layers_is_refused_by_its_media_type() {
        let config = "application/vnd.oci.image.config.v1+json";
        let layer = "application/vnd.oci.image.layer.v1.tar";
        let accepted = document(config, &[layer, &format!("{layer}+gzip"), &format!("{layer}+zstd")]);
        match parse(&accepted, Some(MANIFEST_TYPES[0])).unwrap() {
            Document::Manifest(manifest) => {
                let kinds: Vec<_> = manifest.layers.iter().map(|(_, kind)| *kind).collect();
                assert_eq!(kinds, [Compression::None, Compression::Gzip, Compression::Zstandard]);
            }
            Document::Index(_) => panic!("not a manifest"),
        }
        let refused = |bytes: &[u8], declared: Option<&str>| match parse(bytes, declared) {
            Err(ManifestError::MediaType { media_type, .. }) => media_type,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            refused(&document("application/vnd.cncf.helm.config.v1+json", &[]), None),
            "application/vnd.cncf.helm.config.v1+json"
        );
        let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
        assert_eq!(refused(&document(config, &[foreign]), None), foreign);
        assert_eq!(refused(&accepted, Some("text/html; charset=utf-8")), "text/html");
        assert!(refused(br#"{"schemaVersion": 1}"#, None).contains("manifest.v1"));
        assert!(matches!(parse(b"<html>", None), Err(ManifestError::Malformed { .. })));
        assert!(matches!(parse(&document(config, &[layer; 513]), None), Err(ManifestError::TooManyLayers(513))));
    }

    #[test]
    fn a_configuration_must_fit_its_manifest_and_the_platform() {
        let layers = vec![(Blob { digest: BlobDigest::of(b"l"), size: 1 }, Compression::None)];
        let manifest = || Manifest { config: Blob { digest: BlobDigest::of(b"c"), size: 1 }, layers: layers.clone() };
        let config = |architecture: &str, diff_ids: usize| {
            serde_json::to_vec(&json!({
                "os": "linux", "architecture": architecture,
                "config": {"User": "dev", "Entrypoint": ["/init"], "Cmd": ["a", "b"], "Env": ["A=b=c", "=x", "none", "N=\0"], "WorkingDir": "relative", "Volumes": {"/v": {}}},
                "rootfs": {"type": "layers", "diff_ids": vec![BlobDigest::of(b"l").to_string(); diff_ids]},
            }))
            .unwrap()
        };
        let join = |bytes: &[u8]| image(BlobDigest::of(b"m"), manifest(), bytes, &platform("linux/amd64"));
        let joined = join(&config("amd64", 1)).unwrap();
        assert_eq!(joined.runtime.command, ["/init", "a", "b"]);
        assert_eq!((joined.runtime.user.as_deref(), joined.runtime.working_dir), (Some("dev"), None));
        assert_eq!(joined.runtime.env, ["A=b=c"]);
        assert!(matches!(join(&config("amd64", 2)), Err(ManifestError::LayerCount { diff_ids: 2, layers: 1 })));
        assert!(matches!(join(&config("arm64", 1)), Err(ManifestError::Platform { .. })));
    }
}
