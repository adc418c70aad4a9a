//! Prepared lowers: an image becomes an immutable tree, once for each identity mapping.
//!
//! ```text
//! resolve ─▶ fetch blobs ─▶ read layers ─▶ look the user up ─▶ mapping ─▶ artifact ID
//!                                                                            │ in the catalog: done
//!   record intent ─▶ make .preparing-ID ─▶ record it ─▶ unpack ─▶ manifest.json
//!                                            ─▶ seal ─▶ rename to ARTIFACT ─▶ complete
//! ```
//!
//! Whatever dies on the way leaves a directory that nobody uses, and a record by which the next
//! preparation removes exactly it. Two preparations of the same image may run at once: the one whose
//! rename comes second finds the artifact there and uses it.

mod error;
mod reclaim;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::PrepareError;

use crate::core::catalog::PreparationRecord;
use crate::domain::artifact::{ArtifactManifest, IdMapping, ImageSource, Platform, UserSpec};
use crate::domain::ids::ArtifactId;
use crate::domain::layout::StorageRoot;
use crate::domain::ownership::ProcessIdentity;
use crate::domain::profile::Profile;
use crate::oci::accounts::Accounts;
use crate::oci::blobs::BlobStore;
use crate::oci::layers::{self, LayerError, Reading};
use crate::oci::manifest::Image;
use crate::oci::source::{ProgressFn, Source};
use crate::oci::{resolved, unpack};
use crate::policy::mapping::{IdKind, identity_mapping};
use crate::store::sighting;
use crate::store::{Catalog, Completion};
use crate::sys::accounts::{Account, SubordinateIds};
use crate::sys::{directories, procfs};
use crate::wire::bootstrap::Progress;
use crate::{fault, protocol_trace};

/// Name of an artifact's record in its directory.
const MANIFEST: &str = "manifest.json";

/// Names of the copies of the image's account files in an artifact's directory, by which another user
/// of the same image is looked up without reading the layers again.
const PASSWD: &str = "passwd";
const GROUP: &str = "group";

/// Largest record or account file that is read back, in bytes.
const RECORD_LIMIT: u64 = 2 << 20;

/// Whether what a reference stands for is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// Only when it is not known yet. Layouts and archives are looked at every time.
    WhenUnknown,
    /// Even when it is known: the registry may have a newer image under the tag.
    Always,
}

/// What to prepare.
#[derive(Debug, Clone)]
pub struct PrepareRequest {
    /// Where.
    pub storage: StorageRoot,
    /// The image.
    pub source: ImageSource,
    /// The user that sessions run as; absent means the image's.
    pub user: Option<UserSpec>,
    /// The platform.
    pub platform: Platform,
    /// Whether to ask the registry again.
    pub refresh: Refresh,
    /// Registries that are spoken to without TLS, besides those on loopback.
    pub insecure_registries: Vec<String>,
}

impl PrepareRequest {
    /// Asks for what a profile names, on this machine's platform.
    pub fn of_profile(profile: &Profile, storage: StorageRoot) -> Self {
        Self {
            storage,
            source: profile.image.clone(),
            user: profile.user.clone(),
            platform: Platform::host(),
            refresh: Refresh::WhenUnknown,
            insecure_registries: Vec::new(),
        }
    }
}

/// Prepares an image, or finds it prepared; its tree is at `rootfs` in the artifact's directory.
///
/// Call it on the main thread's runtime: processes that it starts live no longer than the thread.
pub async fn prepare(request: &PrepareRequest, progress: &ProgressFn<'_>) -> Result<ArtifactManifest, PrepareError> {
    let preparation = Preparation::begin(request, progress).await?;
    if request.refresh == Refresh::WhenUnknown
        && let ImageSource::Registry(_) = request.source
        && let Some(digest) = resolved::recall(&request.storage, &request.source, &request.platform)
        && let Some(found) = preparation.find_prepared(&digest.to_string()).await?
    {
        return Ok(found);
    }
    let Preparation { account, granted, .. } = &preparation;
    reclaim::reclaim_abandoned(&request.storage, account, granted, procfs::is_alive).await?;
    progress(Progress::Phase(format!("looking up image {}", request.source)));
    let source = Source::open(&request.source, &request.insecure_registries).await?;
    let image = preparation.resolve(&source).await?;
    if let Some(found) = preparation.find_prepared(&image.manifest_digest.to_string()).await? {
        return Ok(found);
    }
    preparation.make(&source, &image).await
}

/// Removes what a preparation of this process left that was dropped in the middle.
pub async fn give_up_own(storage: &StorageRoot) -> Result<(), PrepareError> {
    let own = own_identity()?;
    let account = Account::current().map_err(PrepareError::Developer)?;
    let granted = SubordinateIds::of(&account).map_err(PrepareError::Developer)?;
    let is_alive = move |owner: &ProcessIdentity| *owner != own && procfs::is_alive(owner);
    reclaim::reclaim_abandoned(storage, &account, &granted, is_alive).await
}

/// What one call of [`prepare`] works with.
struct Preparation<'a> {
    request: &'a PrepareRequest,
    progress: &'a ProgressFn<'a>,
    account: Account,
    granted: SubordinateIds,
    blobs: BlobStore,
}

impl<'a> Preparation<'a> {
    async fn begin(request: &'a PrepareRequest, progress: &'a ProgressFn<'a>) -> Result<Self, PrepareError> {
        let account = Account::current().map_err(PrepareError::Developer)?;
        let granted = SubordinateIds::of(&account).map_err(PrepareError::Developer)?;
        for path in [request.storage.path().to_owned(), request.storage.prepared()] {
            directories::ensure_private(&path)
                .map_err(|error| PrepareError::Directory { path, source: io::Error::other(error) })?;
        }
        Ok(Self { request, progress, account, granted, blobs: BlobStore::open(&request.storage)? })
    }

    /// Finds which image the source stands for, and remembers it.
    async fn resolve(&self, source: &Source) -> Result<Image, PrepareError> {
        let PrepareRequest { storage, source: asked, platform, refresh, .. } = self.request;
        let known = match refresh {
            Refresh::WhenUnknown => resolved::recall(storage, asked, platform),
            Refresh::Always => None,
        };
        let image = source.resolve(&self.blobs, platform, known.as_ref()).await?;
        let _around = fault::around(&"RememberImage");
        resolved::remember(storage, asked, platform, &image.manifest_digest)?;
        Ok(image)
    }

    /// Finds a ready artifact of this manifest whose mapping suits the user that is asked for.
    async fn find_prepared(&self, manifest_digest: &str) -> Result<Option<ArtifactManifest>, PrepareError> {
        let (storage, platform) = (self.request.storage.clone(), self.request.platform.clone());
        let digest = manifest_digest.to_owned();
        let candidates = blocking(move || {
            let catalog = Catalog::open(&storage)?;
            let fitting = catalog.state().ready().filter(|m| m.manifest_digest == digest && m.platform == platform);
            Ok(fitting.cloned().collect::<Vec<_>>())
        })
        .await?;
        for candidate in candidates {
            let Some(accounts) = self.read_accounts(&candidate.id) else { continue };
            let suited = self.suit(&accounts, candidate)?;
            if suited.is_some() {
                return Ok(suited);
            }
        }
        Ok(None)
    }

    /// Gives the manifest for the user that is asked for, if the artifact's mapping is that user's.
    fn suit(&self, accounts: &Accounts, found: ArtifactManifest) -> Result<Option<ArtifactManifest>, PrepareError> {
        let user = accounts.resolve(self.request.user.as_ref(), found.runtime.user.as_deref())?;
        let developer = (self.account.uid, self.account.gid);
        let mapping = identity_mapping(&user, developer, &self.granted.uids, &self.granted.gids)?;
        let suits =
            mapping == found.mapping && found.id == artifact_id(&found.manifest_digest, &found.platform, &mapping);
        Ok(suits.then(|| ArtifactManifest { user, source: self.request.source.clone(), ..found }))
    }

    /// Reads an artifact's account files; nothing when its tree is not there any more.
    fn read_accounts(&self, id: &ArtifactId) -> Option<Accounts> {
        let directory = self.request.storage.artifact(id);
        let tree = std::fs::symlink_metadata(directory.join(unpack::ROOTFS)).ok()?;
        let read = |name| read_bounded(&directory.join(name)).ok();
        tree.is_dir().then_some(Accounts { passwd: read(PASSWD)?, group: read(GROUP)? })
    }

    /// Makes the artifact, or finds that another preparation made it meanwhile.
    async fn make(&self, source: &Source, image: &Image) -> Result<ArtifactManifest, PrepareError> {
        let reading = self.fetch_and_read(source, image).await?;
        let user = reading.accounts.resolve(self.request.user.as_ref(), image.runtime.user.as_deref())?;
        let developer = (self.account.uid, self.account.gid);
        let mapping = identity_mapping(&user, developer, &self.granted.uids, &self.granted.gids)?;
        check_reach(&reading, &mapping)?;
        let manifest_digest = image.manifest_digest.to_string();
        let manifest = ArtifactManifest {
            version: 1,
            id: artifact_id(&manifest_digest, &image.platform, &mapping),
            source: self.request.source.clone(),
            manifest_digest,
            platform: image.platform.clone(),
            mapping,
            user,
            runtime: image.runtime.clone(),
            size: 0,
            prepared_at: 0,
        };
        let owner = own_identity()?;
        let (storage, asked) = (self.request.storage.clone(), self.request.source.clone());
        let record = blocking(move || Ok(Catalog::open(&storage)?.begin_preparation(owner, asked)?)).await?;
        let made = self.unpack(&record, image, &reading.accounts, manifest.clone()).await;
        if made.is_err() {
            // The record stays if this fails, and a later preparation tries again.
            if let Err(error) = self.give_up(&record, &manifest.mapping).await {
                tracing::warn!(preparation = %record.id, error = &error as &dyn std::error::Error, "leftover stays");
            }
        }
        let made = made?;
        Ok(ArtifactManifest { user: manifest.user, source: manifest.source, ..made })
    }

    async fn fetch_and_read(&self, source: &Source, image: &Image) -> Result<Reading, PrepareError> {
        let mut repaired = false;
        loop {
            let around = fault::around(&"FetchLayers");
            source.fetch(&self.blobs, &image.layers, self.progress).await?;
            drop(around);
            (self.progress)(Progress::Phase("verifying the layers".into()));
            let (blobs, layers, available) = (self.blobs.clone(), image.layers.clone(), self.free_space()?);
            let read = tokio::task::spawn_blocking(move || layers::read(&blobs, &layers, available)).await?;
            match read {
                Err(LayerError::Damaged(digest)) => {
                    self.blobs.discard(&digest)?;
                    if repaired {
                        return Err(LayerError::Damaged(digest).into());
                    }
                    repaired = true;
                }
                read => return Ok(read?),
            }
        }
    }

    fn free_space(&self) -> Result<u64, PrepareError> {
        let path = self.request.storage.prepared();
        match rustix::fs::statvfs(&path) {
            Ok(status) => Ok(status.f_bavail.saturating_mul(status.f_frsize)),
            Err(error) => Err(PrepareError::Directory { path, source: error.into() }),
        }
    }

    async fn unpack(
        &self,
        record: &PreparationRecord,
        image: &Image,
        accounts: &Accounts,
        manifest: ArtifactManifest,
    ) -> Result<ArtifactManifest, PrepareError> {
        let directory = record.directory.clone();
        let failed = |source| PrepareError::Directory { path: directory.clone(), source };
        let around = fault::around(&"MakePreparationDirectory");
        std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        traced("MakePreparation", record);
        drop(around);
        let identity = sighting::path_identity(&directory).map_err(failed)?;
        let identity = identity.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let (storage, id) = (self.request.storage.clone(), record.id.clone());
        blocking(move || Ok(Catalog::open(&storage)?.own_preparation(&id, identity)?)).await?;
        let around = fault::around(&"UnpackLayers");
        write_record(&directory.join(reclaim::MAPPING), &manifest.mapping)?;
        (self.progress)(Progress::Phase("unpacking the layers".into()));
        unpack::unpack(&self.blobs, &image.layers, &directory, &manifest.mapping).await?;
        drop(around);
        let size = unpack::measure(&directory, &manifest.mapping).await?;
        let manifest = ArtifactManifest { size, prepared_at: now(), ..manifest };
        write_new(&directory.join(PASSWD), &accounts.passwd)?;
        write_new(&directory.join(GROUP), &accounts.group)?;
        traced("FillPreparation", record);
        self.publish(record, manifest).await
    }

    /// Puts the complete tree in its place, for good.
    async fn publish(
        &self,
        record: &PreparationRecord,
        manifest: ArtifactManifest,
    ) -> Result<ArtifactManifest, PrepareError> {
        (self.progress)(Progress::Phase("storing the prepared image".into()));
        let directory = record.directory.clone();
        let (storage, id, sealed) = (self.request.storage.clone(), record.id.clone(), manifest.clone());
        let target = storage.artifact(&manifest.id);
        let preparing = record.clone();
        let renamed = blocking(move || {
            let failed = |source: io::Error| PrepareError::Directory { path: directory.clone(), source };
            write_record(&directory.join(MANIFEST), &sealed)?;
            // The tree was written by another process; after this it survives a power cut as well.
            let opened = File::open(&directory).map_err(failed)?;
            rustix::fs::syncfs(&opened).map_err(|error| failed(error.into()))?;
            Catalog::open(&storage)?.seal_preparation(&id, &sealed)?;
            // The seal says it from here on.
            std::fs::remove_file(directory.join(reclaim::MAPPING)).map_err(failed)?;
            let _around = fault::around(&"RenameToArtifact");
            match renameat_with(CWD, &directory, CWD, &target, RenameFlags::NOREPLACE) {
                Ok(()) => traced("RenamePreparation", &preparing),
                Err(rustix::io::Errno::EXIST) => return Ok(false),
                Err(error) => return Err(failed(error.into())),
            }
            File::open(storage.prepared()).and_then(|parent| parent.sync_all()).map_err(failed)?;
            Ok(true)
        })
        .await?;
        let manifest = if renamed {
            manifest
        } else {
            let path = self.request.storage.artifact(&manifest.id);
            let there = read_record::<ArtifactManifest>(&path.join(MANIFEST)).filter(|there| there.id == manifest.id);
            let Some(there) = there else { return Err(PrepareError::Foreign(path)) };
            unpack::remove(&record.directory, &manifest.mapping).await?;
            traced("DiscardPreparation", record);
            let (storage, id) = (self.request.storage.clone(), record.id.clone());
            // Sealed as this very artifact; the other preparation may not have recorded it yet.
            blocking(move || Ok(Catalog::open(&storage)?.complete(&id, &manifest)?)).await?;
            return Ok(there);
        };
        let (storage, id, sealed) = (self.request.storage.clone(), record.id.clone(), manifest.clone());
        match blocking(move || Ok(Catalog::open(&storage)?.complete(&id, &sealed)?)).await? {
            Completion::Recorded => Ok(manifest),
            Completion::AlreadyThere(known) => Ok(*known),
        }
    }

    async fn give_up(&self, record: &PreparationRecord, mapping: &IdMapping) -> Result<(), PrepareError> {
        unpack::remove(&record.directory, mapping).await?;
        traced("ReclaimPreparation", record);
        let (storage, id) = (self.request.storage.clone(), record.id.clone());
        blocking(move || Ok(Catalog::open(&storage)?.abandon(&id)?)).await
    }
}

/// Gives the identity of the tree that this manifest makes for this platform under this mapping.
pub fn artifact_id(manifest_digest: &str, platform: &Platform, mapping: &IdMapping) -> ArtifactId {
    let ranges = |ranges: &[crate::domain::artifact::IdRange]| {
        ranges.iter().map(|r| format!("{}:{}:{}", r.inside, r.outside, r.count)).collect::<Vec<_>>().join(",")
    };
    let text = format!(
        "lazaret artifact {}\n{manifest_digest}\n{platform}\n{}\n{}\n",
        unpack::FORMAT_VERSION,
        ranges(&mapping.uids),
        ranges(&mapping.gids)
    );
    ArtifactId::of(text.as_bytes())
}

/// Refuses an image with files of ids that the mapping lacks, which chown(2) would refuse later.
fn check_reach(reading: &Reading, mapping: &IdMapping) -> Result<(), PrepareError> {
    let ends = |ranges: &[crate::domain::artifact::IdRange]| {
        ranges.iter().map(|range| u64::from(range.inside) + u64::from(range.count)).max().unwrap_or(0)
    };
    for (kind, id, mapped) in [
        (IdKind::User, reading.highest_uid, ends(&mapping.uids)),
        (IdKind::Group, reading.highest_gid, ends(&mapping.gids)),
    ] {
        if id >= mapped {
            return Err(PrepareError::Unmapped { kind, id, mapped });
        }
    }
    Ok(())
}

/// Writes that a step of a preparation was taken.
fn traced(action: &str, record: &PreparationRecord) {
    protocol_trace::event(action).with("preparation", &record.id).write();
}

fn own_identity() -> Result<ProcessIdentity, PrepareError> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let identity = procfs::identity(pid).map_err(PrepareError::Developer)?;
    identity.ok_or_else(|| PrepareError::Developer(io::ErrorKind::NotFound.into()))
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Runs what blocks on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PrepareError> + Send + 'static,
) -> Result<T, PrepareError> {
    tokio::task::spawn_blocking(work).await?
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)?;
    let mut bytes = Vec::new();
    file.take(RECORD_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_record<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read_bounded(path).ok()?).ok()
}

fn write_record(path: &Path, record: &impl Serialize) -> Result<(), PrepareError> {
    let failed = |source: io::Error| PrepareError::Directory { path: path.to_owned(), source };
    let bytes = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
    write_new(path, &bytes)
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), PrepareError> {
    let failed = |source: io::Error| PrepareError::Directory { path: path.to_owned(), source };
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)
}
