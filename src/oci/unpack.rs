//! Applies verified layers with umoci(1), in the mapped namespaces.
//!
//! umoci gets an OCI layout that is made here: our own manifest and configuration, which hold nothing
//! of the image but digests, and hard links to the stored blobs. So it never reads the image's own
//! documents, and it verifies each layer's two digests once more. It runs as root of the mapped
//! namespaces, where it may give files to every guest id; names, links and `..` in the layers are
//! confined by it to the tree that it makes.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::blobs::{Blob, BlobDigest, BlobError, BlobStore};
use super::decode::decompress;
use super::manifest::{Compression, Layer, MANIFEST_TYPES};
use super::untrusted::printable;
use crate::domain::artifact::IdMapping;
use crate::sys::errand::{self, ErrandError};
use crate::sys::executables;
use crate::sys::namespaces::{MappedCommand, MappedOutput, NamespaceError, run_mapped};

/// Version of what unpacking makes of an image; part of an artifact's identity, so that a change
/// here never meets trees that were made otherwise.
pub const FORMAT_VERSION: u32 = 1;

/// Name of the unpacked tree below its preparation.
pub const ROOTFS: &str = "rootfs";

const LAYOUT: &str = "layout";

/// Number of the preparation directory's descriptor in the processes started here. They get paths
/// relative to it, so that nothing in the real path, such as a colon, means anything to them.
const DIRECTORY_FD: i32 = 9;

/// Layers that could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// A program is not installed.
    #[error("{0} is not installed")]
    NoProgram(&'static str),
    /// A file of the layout for umoci can't be written.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The mapped namespaces can't be made.
    #[error("{program} can't be started in the mapped namespaces")]
    Start {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: NamespaceError,
    },
    /// The program failed.
    #[error("{program} failed ({status}): {message}")]
    Failed {
        /// The program.
        program: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The end of what it said.
        message: String,
    },
    /// The file system is full (ENOSPC) or the quota is used up (EDQUOT).
    #[error("no space is left to unpack the image in {} (ENOSPC)", .0.display())]
    NoSpace(PathBuf),
    /// A tree can't be removed.
    #[error("an unfinished tree can't be removed")]
    Remove(#[source] ErrandError),
    /// A background task ended early.
    #[error("a background task was cancelled")]
    Task(#[from] tokio::task::JoinError),
}

/// Applies the layers to `directory`/`rootfs`, which must not exist.
pub async fn unpack(
    store: &BlobStore,
    layers: &[Layer],
    directory: &Path,
    mapping: &IdMapping,
) -> Result<(), UnpackError> {
    let (owned_store, owned_layers, layout) = (store.clone(), layers.to_vec(), directory.join(LAYOUT));
    let written = layout.clone();
    tokio::task::spawn_blocking(move || write_layout(&owned_store, &owned_layers, &written)).await??;
    let image = format!("/proc/self/fd/{DIRECTORY_FD}/{LAYOUT}:lazaret");
    let target = format!("/proc/self/fd/{DIRECTORY_FD}/{ROOTFS}");
    run("umoci", &["raw", "unpack", "--image", &image, &target], directory, mapping).await?;
    std::fs::remove_dir_all(&layout).map_err(|error| BlobError::io(&layout, error))?;
    Ok(())
}

/// Sums up the sizes of the tree's files; hard links count once.
pub async fn measure(directory: &Path, mapping: &IdMapping) -> Result<u64, UnpackError> {
    let tree = format!("/proc/self/fd/{DIRECTORY_FD}/{ROOTFS}");
    let output = run("du", &["-s", "-x", "--apparent-size", "--block-size=1", "--", &tree], directory, mapping).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default())
}

/// Removes a preparation's directory with everything in it, whoever owns it within the mapping.
pub async fn remove(directory: &Path, mapping: &IdMapping) -> Result<(), UnpackError> {
    errand::remove_trees(mapping, &[directory.to_owned()]).await.map_err(UnpackError::Remove)
}

async fn run(
    program: &'static str,
    arguments: &[&str],
    directory: &Path,
    mapping: &IdMapping,
) -> Result<MappedOutput, UnpackError> {
    let executable = executables::find(program).ok_or(UnpackError::NoProgram(program))?;
    let directory_fd: OwnedFd = OpenOptions::new()
        .read(true)
        .custom_flags((rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOFOLLOW).bits() as i32)
        .open(directory)
        .map_err(|error| BlobError::io(directory, error))?
        .into();
    let argv = std::iter::once(program).chain(arguments.iter().copied()).map(OsString::from).collect();
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let command = MappedCommand {
        executable,
        argv,
        env: vec![("PATH".into(), path), ("LC_ALL".into(), "C".into())],
        fds: vec![(directory_fd, DIRECTORY_FD)],
        mapping: mapping.clone(),
    };
    let output = run_mapped(command).await.map_err(|source| UnpackError::Start { program, source })?;
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("no space left on device") || text.contains("disk quota exceeded") {
        return Err(UnpackError::NoSpace(directory.to_owned()));
    }
    Err(UnpackError::Failed { program, status: output.status, message: summary(&text) })
}

/// Gives the last line that says something, without what would upset a terminal.
fn summary(text: &str) -> String {
    let line = text.lines().rev().map(|line| line.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()));
    let line = line.map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
    printable(line)
}

/// Writes the layout that umoci reads.
fn write_layout(store: &BlobStore, layers: &[Layer], layout: &Path) -> Result<(), UnpackError> {
    let blobs = layout.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).map_err(|error| BlobError::io(&blobs, error))?;
    let mut described = Vec::with_capacity(layers.len());
    for layer in layers {
        let (blob, media_type) = match layer.compression {
            Compression::None => (link(store, &layer.blob, &blobs)?, "application/vnd.oci.image.layer.v1.tar"),
            Compression::Gzip => (link(store, &layer.blob, &blobs)?, "application/vnd.oci.image.layer.v1.tar+gzip"),
            // umoci does not know Zstandard.
            Compression::Zstandard => (expand(store, layer, &blobs)?, "application/vnd.oci.image.layer.v1.tar"),
        };
        described.push(descriptor(media_type, &blob));
    }
    let diff_ids: Vec<_> = layers.iter().map(|layer| layer.diff_id.to_string()).collect();
    let config = json!({"os": "linux", "architecture": "any", "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let config = write_document(&blobs, &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPES[0],
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": described,
    });
    let mut entry = descriptor(MANIFEST_TYPES[0], &write_document(&blobs, &manifest)?);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": "lazaret"});
    write(&layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [entry]}).to_string().as_bytes())?;
    write(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(())
}

fn descriptor(media_type: &str, blob: &Blob) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": blob.digest.to_string(), "size": blob.size})
}

/// Gives umoci a stored blob under its digest.
fn link(store: &BlobStore, blob: &Blob, blobs: &Path) -> Result<Blob, BlobError> {
    let target = blobs.join(blob.digest.hex());
    match std::fs::hard_link(store.path(&blob.digest), &target) {
        Ok(()) => Ok(blob.clone()),
        // An image may apply one layer twice.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(blob.clone()),
        Err(error) => Err(BlobError::io(&target, error)),
    }
}

/// Gives umoci the uncompressed bytes of a stored blob.
fn expand(store: &BlobStore, layer: &Layer, blobs: &Path) -> Result<Blob, BlobError> {
    let target = blobs.join(layer.diff_id.hex());
    let failed = |error| BlobError::io(&target, error);
    let mut plain = decompress(store.read(&layer.blob.digest)?, layer.compression);
    let mut file = File::create(&target).map_err(failed)?;
    let size = io::copy(&mut plain, &mut file).map_err(failed)?;
    Ok(Blob { digest: layer.diff_id.clone(), size })
}

fn write_document(blobs: &Path, document: &serde_json::Value) -> Result<Blob, BlobError> {
    let bytes = document.to_string().into_bytes();
    let blob = Blob { digest: BlobDigest::of(&bytes), size: bytes.len() as u64 };
    write(&blobs.join(blob.digest.hex()), &bytes)?;
    Ok(blob)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), BlobError> {
    std::fs::write(path, bytes).map_err(|error| BlobError::io(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_the_message() {
        let text = "   \u{2022} unpacking rootfs ...\n   \u{2a2f} unpack: layer sha256:1: bad\u{1b}[0m header\n\n";
        assert_eq!(summary(text), "unpack: layer sha256:1: bad\u{fffd}[0m header");
        assert_eq!(summary(""), "it said nothing");
    }
}
