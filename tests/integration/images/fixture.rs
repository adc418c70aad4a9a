//! Small images made here, so that a case sees exactly what it is about.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;
use lazaret::oci::blobs::BlobDigest;
use serde_json::{Value, json};
use tar::{EntryType, Header};

pub const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";

/// How a layer is stored.
#[derive(Debug, Clone, Copy)]
pub enum Packing {
    Plain,
    Gzip,
    Zstandard,
}

/// One layer, as entries of a tar file.
pub struct Layer {
    builder: tar::Builder<Vec<u8>>,
    packing: Packing,
}

impl Layer {
    pub fn new() -> Self {
        Self { builder: tar::Builder::new(Vec::new()), packing: Packing::Gzip }
    }

    pub fn packed(mut self, packing: Packing) -> Self {
        self.packing = packing;
        self
    }

    /// A base layer: `/etc` with the users root and dev (1000), and a few directories.
    pub fn base() -> Self {
        let passwd = "root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000:Dev:/home/dev:/bin/sh\n";
        let group = "root:x:0:\ndev:x:1000:\naudio:x:29:dev\n";
        Self::new()
            .directory("etc", 0o755, 0)
            .file("etc/passwd", passwd.as_bytes(), 0o644, 0)
            .file("etc/group", group.as_bytes(), 0o644, 0)
            .directory("home", 0o755, 0)
            .directory("home/dev", 0o750, 1000)
            .file("home/dev/mine", b"dev's", 0o600, 1000)
            .directory("root", 0o700, 0)
            .file("root/secret", b"root's", 0o600, 0)
    }

    pub fn directory(self, path: &str, mode: u32, owner: u64) -> Self {
        self.entry(path.as_bytes(), EntryType::Directory, b"", b"", mode, owner)
    }

    pub fn file(self, path: &str, content: &[u8], mode: u32, owner: u64) -> Self {
        self.entry(path.as_bytes(), EntryType::Regular, b"", content, mode, owner)
    }

    pub fn named(self, path: &[u8], content: &[u8]) -> Self {
        self.entry(path, EntryType::Regular, b"", content, 0o644, 0)
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(path.as_bytes(), EntryType::Symlink, target.as_bytes(), b"", 0o777, 0)
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path.as_bytes(), EntryType::Link, target.as_bytes(), b"", 0o644, 0)
    }

    pub fn device(self, path: &str) -> Self {
        self.entry(path.as_bytes(), EntryType::Char, b"", b"", 0o666, 0)
    }

    /// Incompressible bytes, the same for the same seed.
    pub fn noise(self, path: &str, size: usize, seed: u64) -> Self {
        let mut state = seed | 1;
        let mut next = || {
            // Xorshift: no need for more than that gzip finds nothing.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut content = Vec::with_capacity(size + 8);
        while content.len() < size {
            content.extend(next().to_le_bytes());
        }
        content.truncate(size);
        self.file(path, &content, 0o644, 0)
    }

    /// Adds an entry with its names as they are: tar's own interface refuses `..` and absolute paths.
    fn entry(mut self, path: &[u8], kind: EntryType, link: &[u8], content: &[u8], mode: u32, owner: u64) -> Self {
        if path.len() > 100 {
            self.long_name(path);
        }
        let mut header = Header::new_gnu();
        {
            let raw = header.as_gnu_mut().unwrap();
            let shown = path.len().min(100);
            raw.name[..shown].copy_from_slice(&path[..shown]);
            raw.linkname[..link.len()].copy_from_slice(link);
        }
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(1_700_000_000);
        header.set_size(content.len() as u64);
        if kind == EntryType::Char {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_cksum();
        self.builder.append(&header, content).unwrap();
        self
    }

    fn long_name(&mut self, path: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_path("././@LongLink").unwrap();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(path.len() as u64 + 1);
        header.set_cksum();
        self.builder.append(&header, [path, b"\0"].concat().as_slice()).unwrap();
    }

    fn finish(self) -> Packed {
        let plain = self.builder.into_inner().unwrap();
        let diff_id = BlobDigest::of(&plain).to_string();
        let (bytes, suffix) = match self.packing {
            Packing::Plain => (plain, ""),
            Packing::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&plain).unwrap();
                (encoder.finish().unwrap(), "+gzip")
            }
            Packing::Zstandard => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                (ruzstd::encoding::compress_to_vec(plain.as_slice(), level), "+zstd")
            }
        };
        Packed { bytes, diff_id, media_type: format!("{LAYER_TYPE}{suffix}") }
    }
}

struct Packed {
    bytes: Vec<u8>,
    diff_id: String,
    media_type: String,
}

/// One image.
pub struct Image {
    layers: Vec<Packed>,
    config: Value,
    config_type: &'static str,
}

impl Image {
    pub fn new(layers: impl IntoIterator<Item = Layer>) -> Self {
        let layers: Vec<_> = layers.into_iter().map(Layer::finish).collect();
        let diff_ids: Vec<_> = layers.iter().map(|layer| layer.diff_id.clone()).collect();
        let architecture = lazaret::domain::artifact::Platform::host().architecture;
        let config = json!({
            "os": "linux", "architecture": architecture,
            "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        Self { layers, config, config_type: CONFIG_TYPE }
    }

    /// A base image with one file.
    pub fn simple() -> Self {
        Self::new([Layer::base().file("hello", b"hello\n", 0o644, 0)])
    }

    pub fn user(mut self, user: &str) -> Self {
        self.config["config"]["User"] = user.into();
        self
    }

    pub fn architecture(mut self, architecture: &str) -> Self {
        self.config["architecture"] = architecture.into();
        self
    }

    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.config["config"]["Labels"] = json!({ name: value });
        self
    }

    pub fn config_type(mut self, media_type: &'static str) -> Self {
        self.config_type = media_type;
        self
    }

    /// Gives it another image's layers, but leaves its configuration.
    pub fn with_layers_of(mut self, other: Self) -> Self {
        self.layers = other.layers;
        self
    }

    /// Gives the digest of the layer with this number.
    pub fn layer_digest(&self, number: usize) -> BlobDigest {
        BlobDigest::of(&self.layers[number].bytes)
    }

    /// Gives the size of the layer with this number.
    pub fn layer_size(&self, number: usize) -> u64 {
        self.layers[number].bytes.len() as u64
    }

    /// Writes the image's blobs into a layout and gives its descriptor.
    fn write_blobs(&self, layout: &Path) -> Result<Value> {
        let layers = self.layers.iter().map(|layer| described(&layer.media_type, layout, &layer.bytes));
        let layers: Vec<Value> = layers.collect::<Result<_>>()?;
        let config = described(self.config_type, layout, self.config.to_string().as_bytes())?;
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers});
        described(MANIFEST_TYPE, layout, manifest.to_string().as_bytes())
    }

    /// Writes a layout directory with this image, named `image`; gives the reference and the manifest's digest.
    pub fn write_layout(&self, layout: &Path) -> Result<(String, String)> {
        let mut entry = self.write_blobs(layout)?;
        let digest = entry["digest"].as_str().unwrap_or_default().to_owned();
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": "image"});
        write_index(layout, &[entry])?;
        Ok((format!("oci:{}:image", layout.display()), digest))
    }

    /// Writes a tar file as `docker save` does.
    pub fn write_docker_archive(&self, file: &Path, packing: Packing) -> Result<String> {
        let mut builder = tar::Builder::new(fs::File::create(file)?);
        let mut add = |name: &str, bytes: &[u8]| {
            let mut header = Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, bytes)
        };
        let mut names = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let name = format!("{number}/layer.tar");
            let mut plain = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(layer.bytes.as_slice()), &mut plain)?;
            match packing {
                Packing::Plain => add(&name, &plain)?,
                _ => add(&name, &layer.bytes)?,
            }
            names.push(name);
        }
        add("config.json", self.config.to_string().as_bytes())?;
        let saved = json!([{"Config": "config.json", "RepoTags": ["example/image:1"], "Layers": names}]);
        add("manifest.json", saved.to_string().as_bytes())?;
        builder.into_inner()?.flush()?;
        Ok(format!("docker-archive:{}:example/image:1", file.display()))
    }
}

/// Writes a layout whose index holds one image for each platform.
pub fn write_platforms(layout: &Path, images: &[(&str, Image)]) -> Result<String> {
    let mut entries = Vec::new();
    for (architecture, image) in images {
        let mut entry = image.write_blobs(layout)?;
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entries.push(entry);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries});
    let mut entry = described(INDEX_TYPE, layout, index.to_string().as_bytes())?;
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": "image"});
    write_index(layout, &[entry])?;
    Ok(format!("oci:{}:image", layout.display()))
}

/// Writes any document as the layout's only manifest.
pub fn write_manifest(layout: &Path, bytes: &[u8]) -> Result<String> {
    let entry = described(MANIFEST_TYPE, layout, bytes)?;
    write_index(layout, &[entry])?;
    Ok(format!("oci:{}", layout.display()))
}

pub fn write_index(layout: &Path, entries: &[Value]) -> Result<()> {
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": entries}).to_string())?;
    Ok(())
}

fn described(media_type: &str, layout: &Path, bytes: &[u8]) -> Result<Value> {
    let digest = BlobDigest::of(bytes);
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    fs::write(blobs.join(digest.hex()), bytes)?;
    Ok(json!({"mediaType": media_type, "digest": digest.to_string(), "size": bytes.len()}))
}

/// Packs a layout directory into a tar file.
pub fn write_oci_archive(layout: &Path, file: &Path) -> Result<String> {
    let mut builder = tar::Builder::new(fs::File::create(file)?);
    builder.append_dir_all(".", layout)?;
    builder.into_inner()?.flush()?;
    Ok(format!("oci-archive:{}", file.display()))
}

/// Gives a path whose last part is these bytes.
pub fn odd_path(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(name))
}
