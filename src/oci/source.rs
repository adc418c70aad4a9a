//! One way to read an image, wherever it is.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt, TryStreamExt};
use oci_spec::image::Descriptor;

use super::blobs::{Blob, BlobDigest, BlobError, BlobStore};
use super::docker_archive::{DockerArchive, DockerArchiveError};
use super::layout::{Found, Layout, LayoutError};
use super::manifest::{
    self, CONFIG_LIMIT, Document, INDEX_DEPTH, Image, Layer, MANIFEST_LIMIT, Manifest, ManifestError,
};
use super::platform;
use super::registry::{Registry, RegistryError};
use crate::domain::artifact::{ImageSource, Platform};
use crate::wire::bootstrap::Progress;

/// How many layers are fetched at a time.
const PARALLEL: usize = 3;

/// How often progress is told.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// What is told how far a preparation is.
pub type ProgressFn<'a> = dyn Fn(Progress) + Send + Sync + 'a;

/// An image that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// From a registry.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// From a layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// From a `docker save` archive.
    #[error(transparent)]
    DockerArchive(#[from] DockerArchiveError),
    /// Its documents can't be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A blob is not what it should be, or can't be stored.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A background task ended early.
    #[error("a background task was cancelled")]
    Task(#[from] tokio::task::JoinError),
}

enum Place {
    Registry(Box<Registry>),
    Layout(Layout, Option<String>),
    DockerArchive(DockerArchive),
}

/// An image source, opened.
pub struct Source {
    place: Place,
    name: String,
}

impl Source {
    /// Opens a source. A registry is not contacted yet.
    pub async fn open(source: &ImageSource, insecure: &[String]) -> Result<Self, SourceError> {
        let name = source.to_string();
        let place = match source.clone() {
            ImageSource::Registry(text) => Place::Registry(Box::new(Registry::open(&text, insecure).await?)),
            ImageSource::OciLayout { path, tag } => Place::Layout(Layout::directory(&path), tag),
            ImageSource::OciArchive { path, tag } => {
                Place::Layout(tokio::task::spawn_blocking(move || Layout::archive(&path)).await??, tag)
            }
            ImageSource::DockerArchive { path, tag } => Place::DockerArchive(
                tokio::task::spawn_blocking(move || DockerArchive::open(&path, tag.as_deref())).await??,
            ),
        };
        Ok(Self { place, name })
    }

    /// Finds the image for the platform and checks its documents, which are small. A registry is not
    /// asked what its reference stands for when that is `known`.
    pub async fn resolve(
        &self,
        store: &BlobStore,
        platform: &Platform,
        known: Option<&BlobDigest>,
    ) -> Result<Image, SourceError> {
        if let Place::DockerArchive(archive) = &self.place {
            let (archive, platform) = (archive.clone(), platform.clone());
            return Ok(tokio::task::spawn_blocking(move || archive.image(&platform)).await??);
        }
        let (digest, manifest) = self.manifest(store, platform, known).await?;
        let config = self.document(store, &manifest.config, CONFIG_LIMIT).await?;
        Ok(manifest::image(digest, manifest, &config, platform)?)
    }

    /// Follows the indexes down to the platform's manifest.
    async fn manifest(
        &self,
        store: &BlobStore,
        platform: &Platform,
        known: Option<&BlobDigest>,
    ) -> Result<(BlobDigest, Manifest), SourceError> {
        let mut next = self.root(store, known).await?;
        for _ in 0..=INDEX_DEPTH {
            let document = match next {
                Next::Document(bytes, declared) => {
                    let digest = store.insert(&bytes)?.digest;
                    match manifest::parse(&bytes, declared.as_deref())? {
                        Document::Manifest(manifest) => return Ok((digest, manifest)),
                        Document::Index(index) => index,
                    }
                }
                Next::Index(index) => index,
            };
            let entry = platform::choose(&document, platform)?;
            next = self.entry(store, entry).await?;
        }
        Err(ManifestError::TooDeep.into())
    }

    async fn root(&self, store: &BlobStore, known: Option<&BlobDigest>) -> Result<Next, SourceError> {
        match &self.place {
            Place::Registry(registry) => {
                // What a digest names does not change, so a stored copy is as good as the registry's.
                if let Some(digest) = known.cloned().or_else(|| registry.pinned())
                    && let Some(bytes) = store.document(&digest, MANIFEST_LIMIT)?
                {
                    return Ok(Next::Document(bytes, None));
                }
                let (bytes, media_type) = registry.root().await?;
                Ok(Next::Document(bytes, media_type))
            }
            Place::Layout(layout, tag) => match layout.find(tag.as_deref())? {
                Found::Entry(entry) => self.entry(store, &entry).await,
                Found::Platforms(index) => Ok(Next::Index(Box::new(index))),
            },
            Place::DockerArchive(_) => Err(ManifestError::TooDeep.into()),
        }
    }

    async fn entry(&self, store: &BlobStore, entry: &Descriptor) -> Result<Next, SourceError> {
        let blob = manifest::blob(entry, "index")?;
        let bytes = self.document(store, &blob, MANIFEST_LIMIT).await?;
        Ok(Next::Document(bytes, Some(entry.media_type().to_string())))
    }

    /// Gets a manifest or configuration: from the store, or else from where the image is.
    async fn document(&self, store: &BlobStore, blob: &Blob, limit: u64) -> Result<Vec<u8>, SourceError> {
        if blob.size > limit {
            return Err(BlobError::OverLimit { digest: blob.digest.clone(), size: blob.size, limit }.into());
        }
        if let Some(bytes) = store.document(&blob.digest, limit)? {
            return Ok(bytes);
        }
        let bytes = match &self.place {
            Place::Registry(registry) if limit == MANIFEST_LIMIT => registry.manifest(&blob.digest).await?,
            Place::Registry(registry) => {
                registry.fetch(store, blob, |_| {}).await?;
                return store.document(&blob.digest, limit)?.ok_or_else(|| {
                    BlobError::Truncated { digest: blob.digest.clone(), got: 0, size: blob.size }.into()
                });
            }
            Place::Layout(layout, _) => layout.document(blob, limit)?,
            Place::DockerArchive(_) => return Err(ManifestError::TooDeep.into()),
        };
        store.insert(&bytes)?;
        Ok(bytes)
    }

    /// Brings all layers into the store, several at a time.
    pub async fn fetch(
        &self,
        store: &BlobStore,
        layers: &[Layer],
        progress: &ProgressFn<'_>,
    ) -> Result<(), SourceError> {
        let mut seen = HashSet::new();
        let distinct: Vec<_> =
            layers.iter().enumerate().filter(|(_, layer)| seen.insert(layer.blob.digest.hex())).collect();
        let meter = DownloadMeter {
            name: &self.name,
            total: distinct.iter().map(|(_, layer)| layer.blob.size).sum(),
            done: distinct.iter().map(|_| AtomicU64::new(0)).collect(),
            told: Mutex::new(None),
            progress,
        };
        let mut fetches = Vec::with_capacity(distinct.len());
        for (slot, (number, layer)) in distinct.iter().enumerate() {
            let meter = &meter;
            let fetch = self.fetch_layer(store, *number, &layer.blob, move |bytes| meter.report(slot, bytes));
            fetches.push(fetch.boxed());
        }
        futures_util::stream::iter(fetches).buffer_unordered(PARALLEL).try_collect::<()>().await?;
        meter.tell();
        Ok(())
    }

    async fn fetch_layer(
        &self,
        store: &BlobStore,
        number: usize,
        blob: &Blob,
        report: impl Fn(u64) + Send + Sync,
    ) -> Result<(), SourceError> {
        let copied = Arc::new(AtomicU64::new(0));
        let (store, blob, count) = (store.clone(), blob.clone(), copied.clone());
        let task = match &self.place {
            Place::Registry(registry) => return Ok(registry.fetch(&store, &blob, report).await?),
            Place::Layout(layout, _) => {
                let layout = layout.clone();
                tokio::task::spawn_blocking(move || {
                    layout
                        .import(&store, &blob, |bytes| count.store(bytes, Ordering::Relaxed))
                        .map_err(SourceError::from)
                })
            }
            Place::DockerArchive(archive) => {
                let archive = archive.clone();
                tokio::task::spawn_blocking(move || {
                    let report = |bytes| count.store(bytes, Ordering::Relaxed);
                    archive.import(&store, number, &blob, report).map_err(SourceError::from)
                })
            }
        };
        tokio::pin!(task);
        loop {
            tokio::select! {
                outcome = &mut task => {
                    report(copied.load(Ordering::Relaxed));
                    return outcome?;
                }
                () = tokio::time::sleep(REPORT_INTERVAL) => report(copied.load(Ordering::Relaxed)),
            }
        }
    }
}

enum Next {
    Document(Vec<u8>, Option<String>),
    Index(Box<oci_spec::image::ImageIndex>),
}

/// Sums up several downloads, and tells no more often than anybody can see.
struct DownloadMeter<'a> {
    name: &'a str,
    total: u64,
    done: Vec<AtomicU64>,
    told: Mutex<Option<Instant>>,
    progress: &'a ProgressFn<'a>,
}

impl DownloadMeter<'_> {
    fn report(&self, slot: usize, bytes: u64) {
        self.done[slot].store(bytes, Ordering::Relaxed);
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
            self.tell();
        }
    }

    fn tell(&self) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let done = self.done.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        (self.progress)(Progress::Download { what: self.name.to_owned(), done, total: self.total });
    }
}
