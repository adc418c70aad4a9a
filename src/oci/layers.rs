//! Reads layer tars without unpacking them: verifies them, measures them, and finds the account files.
//!
//! The identity mapping depends on the image's `/etc/passwd`, so that file is needed before anything
//! is unpacked. What counts is what the layers together leave at its path: the last layer's entry,
//! unless a whiteout or something in place of a parent directory hides it (OCI image
//! specification, layer changesets). A link at the path or on the way to it is followed by
//! reading the layers once more for what it points at, within the image and a bounded number of times.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::accounts::Accounts;
use super::blobs::{BlobDigest, BlobError, BlobStore};
use super::decode::{Gauge, Meter, decompress};
use super::manifest::Layer;
use super::tree::{Changes, ImagePath, Search, SearchError, merge};
use super::untrusted::tame;

/// Most bytes of headers, long names and extended attributes before one tar entry.
const HEADER_LIMIT: u64 = 4 << 20;

/// A layer that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The blob can't be opened.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The stored blob does not have its digest any more.
    #[error("stored layer {0} is damaged")]
    Damaged(BlobDigest),
    /// The blob is not a tar file, or not compressed as its media type says.
    #[error("layer {layer} can't be read as a layer")]
    Malformed {
        /// The layer.
        layer: BlobDigest,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The uncompressed bytes are not those of the configuration.
    #[error("layer {layer} unpacks to {actual}, but the image's configuration says {expected}")]
    WrongContent {
        /// The layer.
        layer: BlobDigest,
        /// The configuration's digest.
        expected: BlobDigest,
        /// The digest found.
        actual: BlobDigest,
    },
    /// A header is beyond all measure.
    #[error("layer {0} has an entry whose header exceeds {HEADER_LIMIT} bytes")]
    Header(BlobDigest),
    /// The layers unpack to more than there is room for.
    #[error("the image unpacks to more than the {available} bytes that are free (ENOSPC)")]
    NoSpace {
        /// Free bytes.
        available: u64,
    },
    /// An account file can't be used.
    #[error(transparent)]
    Search(#[from] SearchError),
}

/// What reading the layers gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The account files.
    pub accounts: Accounts,
    /// Sum of the uncompressed layers' sizes, in bytes.
    pub unpacked: u64,
    /// The highest user id that owns something.
    pub highest_uid: u64,
    /// The highest group id that owns something.
    pub highest_gid: u64,
}

/// Verifies the layers and reads the account files; at most `available` bytes are uncompressed.
pub fn read(store: &BlobStore, layers: &[Layer], available: u64) -> Result<Reading, LayerError> {
    let mut wanted = [Search::new("etc/passwd"), Search::new("etc/group")];
    loop {
        let interests: BTreeSet<ImagePath> = wanted.iter().flat_map(Search::interests).collect();
        let (changes, unpacked) = scan_all(store, layers, &interests, available)?;
        let view = merge(&changes, &interests);
        for search in &mut wanted {
            search.advance(&view)?;
        }
        if let [Some(passwd), Some(group)] = wanted.each_ref().map(Search::found) {
            let (passwd, group) = (passwd.to_vec(), group.to_vec());
            return Ok(Reading {
                accounts: Accounts { passwd, group },
                unpacked,
                highest_uid: changes.iter().map(|layer| layer.highest_uid).max().unwrap_or_default(),
                highest_gid: changes.iter().map(|layer| layer.highest_gid).max().unwrap_or_default(),
            });
        }
    }
}

/// Reads all layers, several at a time.
fn scan_all(
    store: &BlobStore,
    layers: &[Layer],
    interests: &BTreeSet<ImagePath>,
    available: u64,
) -> Result<(Vec<Changes>, u64), LayerError> {
    let next = AtomicUsize::new(0);
    let budget = Budget { used: AtomicU64::new(0), available };
    let results: Vec<Mutex<Option<Result<Changes, LayerError>>>> = layers.iter().map(|_| Mutex::new(None)).collect();
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(4)).min(layers.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(layer) = layers.get(index) else { break };
                    let result = scan(store, layer, interests, &budget);
                    if result.is_err() {
                        next.store(layers.len(), Ordering::Relaxed);
                    }
                    if let Ok(mut slot) = results[index].lock() {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    // A layer is left out only after another one failed, whose error this gives.
    let read = results.into_iter().filter_map(|slot| slot.into_inner().ok().flatten());
    Ok((read.collect::<Result<Vec<_>, _>>()?, budget.used.into_inner()))
}

/// How much may be uncompressed in all.
struct Budget {
    used: AtomicU64,
    available: u64,
}

impl Budget {
    fn spend(&self, bytes: u64) -> Result<(), LayerError> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.available {
            return Err(LayerError::NoSpace { available: self.available });
        }
        Ok(())
    }
}

fn scan(
    store: &BlobStore,
    layer: &Layer,
    interests: &BTreeSet<ImagePath>,
    budget: &Budget,
) -> Result<Changes, LayerError> {
    let name = &layer.blob.digest;
    let (stored, stored_gauge) = Meter::new(store.read(name)?);
    // Shared, so that bytes which the decoder leaves unread can be read for the digest.
    let stored = RefCell::new(stored);
    let (plain, plain_gauge) = Meter::new(decompress(Shared(&stored), layer.compression));
    let scanned = read_entries(plain, &plain_gauge, name, interests, budget);
    let drained = io::copy(&mut Shared(&stored), &mut io::sink());
    let intact = drained.is_ok() && stored_gauge.digest() == *name;
    match scanned {
        // A damaged blob is worth fetching again; a malformed intact one is the image's own fault.
        Err(LayerError::Malformed { .. }) if !intact => Err(LayerError::Damaged(name.clone())),
        Err(error) => Err(error),
        Ok(_) if !intact => Err(LayerError::Damaged(name.clone())),
        Ok(changes) => {
            let actual = plain_gauge.digest();
            if actual == layer.diff_id {
                return Ok(changes);
            }
            Err(LayerError::WrongContent { layer: name.clone(), expected: layer.diff_id.clone(), actual })
        }
    }
}

/// A reader that several hands read from in turn.
struct Shared<'a, R>(&'a RefCell<R>);

impl<R: Read> Read for Shared<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }
}

/// Lets at most so many bytes through between two refills, so that no header is read without bound.
struct Bounded<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the header is too long"));
        }
        let allowed = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.inner.read(&mut buffer[..allowed])?;
        self.left.set(left - count as u64);
        Ok(count)
    }
}

fn read_entries(
    plain: impl Read,
    gauge: &Gauge,
    layer: &BlobDigest,
    interests: &BTreeSet<ImagePath>,
    budget: &Budget,
) -> Result<Changes, LayerError> {
    let malformed = |source| LayerError::Malformed { layer: layer.clone(), source: tame(source) };
    let left = Rc::new(Cell::new(HEADER_LIMIT));
    let mut archive = tar::Archive::new(Bounded { inner: plain, left: left.clone() });
    let mut changes = Changes::default();
    let mut entries = archive.entries().map_err(malformed)?;
    loop {
        let before = gauge.count();
        left.set(HEADER_LIMIT);
        let next = entries.next();
        if left.get() == 0 {
            return Err(LayerError::Header(layer.clone()));
        }
        let Some(entry) = next else { break };
        let mut entry = entry.map_err(malformed)?;
        // Spent before it is read: a sparse entry can claim any size without having the bytes.
        budget.spend((gauge.count() - before).saturating_add(entry.size()))?;
        left.set(u64::MAX);
        changes.note(&mut entry, interests).map_err(malformed)?;
        io::copy(&mut entry, &mut io::sink()).map_err(malformed)?;
    }
    // What follows the end of the archive belongs to the digest as well.
    let mut rest = archive.into_inner();
    let mut buffer = vec![0; 128 << 10];
    loop {
        rest.left.set(u64::MAX);
        match rest.read(&mut buffer).map_err(malformed)? {
            0 => return Ok(changes),
            count => budget.spend(count as u64)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use tar::EntryType;

    use super::*;
    use crate::domain::layout::StorageRoot;
    use crate::oci::manifest::Compression;

    /// A layer's entries: path, type, and content or link target.
    type Entries<'a> = &'a [(&'a str, EntryType, &'a str)];

    const FILE: EntryType = EntryType::Regular;
    const DIRECTORY: EntryType = EntryType::Directory;
    const SYMLINK: EntryType = EntryType::Symlink;

    fn tar(entries: Entries<'_>) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, content) in entries {
            let mut header = tar::Header::new_ustar();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            let data = match kind {
                EntryType::Regular => content.as_bytes(),
                _ => {
                    header.set_link_name_literal(content).unwrap();
                    b""
                }
            };
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    struct Fixture {
        _directory: tempfile::TempDir,
        store: BlobStore,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let store = BlobStore::open(&StorageRoot::new(directory.path().join("root"))).unwrap();
            Self { _directory: directory, store }
        }

        fn layer(&self, bytes: &[u8]) -> Layer {
            let blob = self.store.insert(bytes).unwrap();
            Layer { diff_id: blob.digest.clone(), blob, compression: Compression::None }
        }

        fn read(&self, layers: &[Entries<'_>]) -> Result<Reading, LayerError> {
            let layers: Vec<_> = layers.iter().map(|entries| self.layer(&tar(entries))).collect();
            read(&self.store, &layers, 1 << 30)
        }

        fn passwd(&self, layers: &[Entries<'_>]) -> String {
            String::from_utf8(self.read(layers).unwrap().accounts.passwd).unwrap()
        }
    }

    #[test]
    fn the_last_layer_wins_and_whiteouts_remove() {
        let fixture = Fixture::new();
        let lower: Entries<'_> =
            &[("etc/", DIRECTORY, ""), ("etc/passwd", FILE, "lower"), ("etc/group", FILE, "group")];
        let reading = fixture.read(&[lower, &[("./etc/passwd", FILE, "upper")]]).unwrap();
        assert_eq!(reading.accounts, Accounts { passwd: b"upper".into(), group: b"group".into() });
        for whiteout in ["etc/.wh.passwd", ".wh.etc", "etc/.wh..wh..opq", ".wh..wh..opq"] {
            assert_eq!(fixture.passwd(&[lower, &[(whiteout, FILE, "")]]), "", "{whiteout}");
            let both: Entries<'_> = &[("etc/passwd", FILE, "new"), (whiteout, FILE, "")];
            assert_eq!(fixture.passwd(&[lower, both]), "new", "{whiteout} hides lower layers only");
        }
        assert_eq!(fixture.passwd(&[lower, &[("etc", FILE, "a file now")]]), "");
        assert_eq!(fixture.passwd(&[]), "");
    }

    #[test]
    fn links_are_followed_within_the_image() {
        let fixture = Fixture::new();
        let target: Entries<'_> = &[("usr/share/accounts", FILE, "there")];
        for link in ["/usr/share/accounts", "../usr/share/accounts", "../../../usr/./share/accounts"] {
            assert_eq!(fixture.passwd(&[target, &[("etc/passwd", SYMLINK, link)]]), "there", "{link}");
        }
        let directory: Entries<'_> = &[("etc", SYMLINK, "usr/etc"), ("usr/etc/passwd", FILE, "in usr")];
        assert_eq!(fixture.passwd(&[directory]), "in usr");
        let hard: Entries<'_> = &[("etc/passwd-", FILE, "old"), ("etc/passwd", EntryType::Link, "etc/passwd-")];
        assert_eq!(fixture.passwd(&[hard]), "old");
        let dangling: Entries<'_> = &[("etc/passwd", SYMLINK, "nowhere")];
        assert_eq!(fixture.passwd(&[dangling]), "");
        let looped: Entries<'_> = &[("etc/passwd", SYMLINK, "passwd")];
        assert!(matches!(fixture.read(&[looped]), Err(LayerError::Search(SearchError::LinkLoop(_)))));
        assert!(matches!(
            fixture.read(&[&[("etc/passwd", DIRECTORY, "")]]),
            Err(LayerError::Search(SearchError::NotAFile(_)))
        ));
    }

    #[test]
    fn what_is_not_the_promised_tar_is_refused() {
        let fixture = Fixture::new();
        let layer =
            fixture.layer(b"this is no tar file, but it is longer than one block of a tar file".repeat(20).as_slice());
        assert!(matches!(read(&fixture.store, &[layer], 1 << 30), Err(LayerError::Malformed { .. })));
        let mut layer = fixture.layer(&tar(&[]));
        layer.diff_id = BlobDigest::of(b"another");
        assert!(matches!(read(&fixture.store, &[layer], 1 << 30), Err(LayerError::WrongContent { .. })));
        let layer = fixture.layer(&tar(&[("a", FILE, "b")]));
        let mut damaged = std::fs::read(fixture.store.path(&layer.blob.digest)).unwrap();
        damaged[512] = b'x';
        std::fs::write(fixture.store.path(&layer.blob.digest), damaged).unwrap();
        assert!(matches!(read(&fixture.store, &[layer], 1 << 30), Err(LayerError::Damaged(_))));
    }

    #[test]
    fn sizes_are_bounded_before_the_bytes_are_read() {
        let fixture = Fixture::new();
        let big = "x".repeat(2 << 20);
        assert!(matches!(
            fixture.read(&[&[("etc/passwd", FILE, &big)]]),
            Err(LayerError::Search(SearchError::LargeFile(_)))
        ));
        let layer = fixture.layer(&tar(&[("data", FILE, &big)]));
        assert!(
            matches!(read(&fixture.store, &[layer], 1 << 20), Err(LayerError::NoSpace { available }) if available == 1 << 20)
        );
        // A GNU long name that would take all memory.
        let mut header = tar::Header::new_gnu();
        header.set_path("././@LongLink").unwrap();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(8 << 20, b'n');
        let layer = fixture.layer(&bytes);
        assert!(matches!(read(&fixture.store, &[layer], 1 << 30), Err(LayerError::Header(_))));
    }
}
