//! The content-addressed blob store, `blobs/sha256`, that all images share.
//!
//! A blob appears under its digest only after all of it was verified and is on disk. Until then it
//! is `.partial-DIGEST`, which a later attempt continues. Whoever holds the lock (flock(2)) on the
//! partial file writes it; a lock goes away with its process, so a dead writer never blocks.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use super::digest::{BlobDigest, InvalidDigest};
use crate::domain::layout::StorageRoot;
use crate::sys::directories;

/// What a descriptor promises about some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Digest of the bytes.
    pub digest: BlobDigest,
    /// How many bytes.
    pub size: u64,
}

/// A blob that can't be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store can't be made or used.
    #[error("the blob store at {} can't be used", path.display())]
    Store {
        /// The file or directory concerned.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file system is full (ENOSPC) or the quota is used up (EDQUOT).
    #[error("no space is left for {} (ENOSPC)", path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// Fewer bytes came than the descriptor promises.
    #[error("blob {digest} is truncated: {got} of {size} bytes")]
    Truncated {
        /// The blob.
        digest: BlobDigest,
        /// Bytes that came.
        got: u64,
        /// Bytes promised.
        size: u64,
    },
    /// More bytes came than the descriptor promises.
    #[error("blob {digest} is longer than the {size} bytes that its descriptor promises")]
    TooLong {
        /// The blob.
        digest: BlobDigest,
        /// Bytes promised.
        size: u64,
    },
    /// The bytes are not the promised ones.
    #[error("wrong digest: expected {expected}, got {actual}")]
    WrongDigest {
        /// What was promised.
        expected: BlobDigest,
        /// What came.
        actual: BlobDigest,
    },
    /// A document is larger than Lazaret reads.
    #[error("blob {digest} has {size} bytes, more than the {limit} that such a document may have")]
    OverLimit {
        /// The blob.
        digest: BlobDigest,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl BlobError {
    /// Makes the error of a failed file operation; a full disk is named as such.
    pub fn io(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path: path.to_owned() },
            _ => Self::Store { path: path.to_owned(), source },
        }
    }
}

/// How a write to the store begins.
#[derive(Debug)]
pub enum Begin {
    /// The blob is there already.
    Present,
    /// Another preparation is writing it.
    Busy,
    /// The caller writes it, from where an earlier attempt stopped.
    Write(Box<PartialBlob>),
}

/// The blob store of a Storage Root.
#[derive(Debug, Clone)]
pub struct BlobStore {
    directory: PathBuf,
}

impl BlobStore {
    /// Opens the store, making its directory when it is not there.
    pub fn open(storage: &StorageRoot) -> Result<Self, BlobError> {
        let directory = storage.blobs();
        directories::ensure_private(&directory).map_err(|error| BlobError::io(&directory, io::Error::other(error)))?;
        Ok(Self { directory })
    }

    /// Gives where the blob lies once it is present.
    pub fn path(&self, digest: &BlobDigest) -> PathBuf {
        self.directory.join(digest.hex())
    }

    /// Tells whether the blob is present with the promised size.
    pub fn has(&self, blob: &Blob) -> Result<bool, BlobError> {
        let path = self.path(&blob.digest);
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() == blob.size => Ok(true),
            Ok(found) if found.is_file() => {
                // The digest fixes the size, so one of both is wrong. The file was verified when it
                // was stored; verifying again tells which.
                if self.verify(&blob.digest)? {
                    let size = blob.size;
                    return Err(if found.len() < size {
                        BlobError::Truncated { digest: blob.digest.clone(), got: found.len(), size }
                    } else {
                        BlobError::TooLong { digest: blob.digest.clone(), size }
                    });
                }
                self.discard(&blob.digest)?;
                Ok(false)
            }
            Ok(_) => Err(BlobError::Store { path, source: io::Error::other("not a regular file") }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(BlobError::io(&path, error)),
        }
    }

    /// Opens a present blob for reading.
    pub fn read(&self, digest: &BlobDigest) -> Result<File, BlobError> {
        let path = self.path(digest);
        open_options().read(true).open(&path).map_err(|error| BlobError::io(&path, error))
    }

    /// Gives a present document's bytes, verified, or nothing when it is not present.
    pub fn document(&self, digest: &BlobDigest, limit: u64) -> Result<Option<Vec<u8>>, BlobError> {
        let path = self.path(digest);
        let file = match open_options().read(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BlobError::io(&path, error)),
        };
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| BlobError::io(&path, error))?;
        if bytes.len() as u64 <= limit && BlobDigest::of(&bytes) == *digest {
            return Ok(Some(bytes));
        }
        self.discard(digest)?;
        Ok(None)
    }

    /// Stores a document that the caller has verified or made.
    pub fn insert(&self, bytes: &[u8]) -> Result<Blob, BlobError> {
        let blob = Blob { digest: BlobDigest::of(bytes), size: bytes.len() as u64 };
        if self.has(&blob)? {
            return Ok(blob);
        }
        match self.begin(&blob)? {
            Begin::Present => Ok(blob),
            // Whoever writes it writes the same bytes; the caller has them in memory and goes on.
            Begin::Busy => Ok(blob),
            Begin::Write(mut partial) => {
                partial.restart()?;
                partial.write(bytes)?;
                partial.finish()?;
                Ok(blob)
            }
        }
    }

    /// Begins to write a blob, or tells why there is no need to.
    pub fn begin(&self, blob: &Blob) -> Result<Begin, BlobError> {
        let path = self.directory.join(format!(".partial-{}", blob.digest.hex()));
        let mut options = open_options();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.map_err(|error| BlobError::io(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Begin::Busy),
            Err(TryLockError::Error(error)) => return Err(BlobError::io(&path, error)),
        }
        // Looked for only now, with the lock held: a writer renames its file before it unlocks.
        if self.has(blob)? {
            let _ = std::fs::remove_file(&path);
            return Ok(Begin::Present);
        }
        if !same_file(&file, &path) {
            return Ok(Begin::Busy);
        }
        let (hasher, written) = hash_all(&mut file).map_err(|error| BlobError::io(&path, error))?;
        let mut partial = Box::new(PartialBlob {
            file,
            path,
            target: self.path(&blob.digest),
            directory: self.directory.clone(),
            blob: blob.clone(),
            hasher,
            written,
        });
        if partial.written > blob.size {
            partial.restart()?;
        }
        Ok(Begin::Write(partial))
    }

    /// Copies content into the store, as the promised blob. `unreadable` makes the error of a failed read.
    pub fn import<E: From<BlobError>>(
        &self,
        blob: &Blob,
        mut content: impl Read,
        report: impl Fn(u64),
        unreadable: impl Fn(io::Error) -> E,
    ) -> Result<(), E> {
        let mut partial = loop {
            match self.begin(blob)? {
                Begin::Present => {
                    report(blob.size);
                    return Ok(());
                }
                Begin::Write(partial) => break partial,
                // Its writer holds a lock that ends with it, so this wait does too.
                Begin::Busy => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        };
        partial.restart()?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => return partial.finish().map_err(Into::into),
                Ok(count) => partial.write(&buffer[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error)),
            }
            report(partial.written());
        }
    }

    /// Removes a blob that turned out to be damaged, so that the next attempt fetches it again.
    pub fn discard(&self, digest: &BlobDigest) -> Result<(), BlobError> {
        let path = self.path(digest);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BlobError::io(&path, error)),
            _ => Ok(()),
        }
    }

    /// Tells whether a present blob's bytes still have its digest.
    pub fn verify(&self, digest: &BlobDigest) -> Result<bool, BlobError> {
        let path = self.path(digest);
        let mut file = self.read(digest)?;
        let (hasher, _) = hash_all(&mut file).map_err(|error| BlobError::io(&path, error))?;
        Ok(BlobDigest::from_hasher(hasher) == *digest)
    }
}

/// A blob being written. Dropped unfinished, it stays for the next attempt to continue.
#[derive(Debug)]
pub struct PartialBlob {
    file: File,
    path: PathBuf,
    target: PathBuf,
    directory: PathBuf,
    blob: Blob,
    hasher: Sha256,
    written: u64,
}

impl PartialBlob {
    /// Gives how many bytes are there.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Appends bytes; more than the descriptor promises are refused.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        if self.written + bytes.len() as u64 > self.blob.size {
            self.restart()?;
            return Err(BlobError::TooLong { digest: self.blob.digest.clone(), size: self.blob.size });
        }
        self.file.write_all(bytes).map_err(|error| BlobError::io(&self.path, error))?;
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Forgets what is there.
    pub fn restart(&mut self) -> Result<(), BlobError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|error| BlobError::io(&self.path, error))?;
        self.hasher = Sha256::new();
        self.written = 0;
        Ok(())
    }

    /// Verifies the whole and puts it in its place. Wrong bytes are forgotten, too few are kept.
    pub fn finish(mut self) -> Result<(), BlobError> {
        let Blob { digest, size } = self.blob.clone();
        if self.written < size {
            return Err(BlobError::Truncated { digest, got: self.written, size });
        }
        let actual = BlobDigest::from_hasher(std::mem::take(&mut self.hasher));
        if actual != digest {
            self.restart()?;
            return Err(BlobError::WrongDigest { expected: digest, actual });
        }
        let placed = self.file.sync_all().and_then(|()| std::fs::rename(&self.path, &self.target));
        placed.map_err(|error| BlobError::io(&self.path, error))?;
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| BlobError::io(&self.directory, error))
    }
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32);
    options
}

/// Tells whether the open file still lies at the path, so that a lock on it means something.
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn hash_all(file: &mut File) -> io::Result<(Sha256, u64)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    let mut total = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hasher, total)),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                total += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, BlobStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = BlobStore::open(&StorageRoot::new(directory.path().join("root"))).unwrap();
        (directory, store)
    }

    fn blob(bytes: &[u8]) -> Blob {
        Blob { digest: BlobDigest::of(bytes), size: bytes.len() as u64 }
    }

    fn writer(store: &BlobStore, blob: &Blob) -> Box<PartialBlob> {
        match store.begin(blob).unwrap() {
            Begin::Write(partial) => partial,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_interrupted_write_is_continued_and_appears_only_when_whole() {
        let (_directory, store) = store();
        let blob = blob(b"hello world");
        let mut first = writer(&store, &blob);
        first.write(b"hello ").unwrap();
        assert!(matches!(store.begin(&blob).unwrap(), Begin::Busy), "one writer at a time");
        assert!(matches!(first.finish(), Err(BlobError::Truncated { got: 6, .. })));
        assert!(!store.has(&blob).unwrap());
        let mut second = writer(&store, &blob);
        assert_eq!(second.written(), 6);
        second.write(b"world").unwrap();
        second.finish().unwrap();
        assert!(store.has(&blob).unwrap());
        assert!(matches!(store.begin(&blob).unwrap(), Begin::Present));
        assert_eq!(std::fs::read_dir(&store.directory).unwrap().count(), 1, "no partial file is left");
    }

    #[test]
    fn wrong_bytes_are_refused_and_forgotten() {
        let (_directory, store) = store();
        let blob = blob(b"right");
        let mut partial = writer(&store, &blob);
        partial.write(b"wrong").unwrap();
        assert!(matches!(partial.finish(), Err(BlobError::WrongDigest { .. })));
        let mut partial = writer(&store, &blob);
        assert_eq!(partial.written(), 0);
        assert!(matches!(partial.write(b"right and more"), Err(BlobError::TooLong { .. })));
        partial.write(b"right").unwrap();
        partial.finish().unwrap();
    }

    #[test]
    fn a_descriptor_that_lies_about_the_size_of_a_present_blob_is_refused() {
        let (_directory, store) = store();
        let mut blob = store.insert(b"content").unwrap();
        assert_eq!(store.document(&blob.digest, 100).unwrap().unwrap(), b"content");
        blob.size = 3;
        assert!(matches!(store.has(&blob), Err(BlobError::TooLong { .. })));
        blob.size = 30;
        assert!(matches!(store.has(&blob), Err(BlobError::Truncated { .. })));
    }

    #[test]
    fn a_damaged_blob_is_dropped_so_that_it_is_fetched_again() {
        let (_directory, store) = store();
        let blob = store.insert(b"content").unwrap();
        std::fs::write(store.path(&blob.digest), b"damage").unwrap();
        assert!(!store.has(&blob).unwrap());
        assert!(!store.path(&blob.digest).exists());
        let blob = store.insert(b"content").unwrap();
        std::fs::write(store.path(&blob.digest), b"c0ntent").unwrap();
        assert_eq!(store.document(&blob.digest, 100).unwrap(), None);
    }
}
