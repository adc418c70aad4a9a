//! A redb backend that never gives space back, so that a commit needs no file system journal.
//!
//! redb cuts its file to size at every close and grows it again at the next write. Each change of a
//! file's size or blocks makes fdatasync(2) wait for the file system's journal: 4.4 ms on ext4 here,
//! against 0.12 ms for data in place. Our stores stay below a megabyte, so they keep what they once
//! had, and new space is filled with zeros at once instead of being allocated commit by commit.
//! redb takes a file that is longer than it left it for what it is, space at the end.

use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{BackendError, StorageBackend};

/// How much is filled with zeros at a time.
const FILL: usize = 64 << 10;

/// The backend, over the one that holds the file.
#[derive(Debug)]
pub(super) struct KeepsSpace<B> {
    inner: B,
    /// The length as redb knows it, at most the file's.
    length: AtomicU64,
}

impl<B: StorageBackend> KeepsSpace<B> {
    /// Takes the backend that holds the file.
    pub(super) fn new(inner: B) -> io::Result<Self> {
        let length = AtomicU64::new(inner.len()?);
        Ok(Self { inner, length })
    }
}

impl<B: StorageBackend> StorageBackend for KeepsSpace<B> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::Acquire))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if self.inner.len()? < length {
            self.inner.set_len(length)?;
        }
        let zeros = [0; FILL];
        let mut filled = self.length.load(Ordering::Acquire);
        while filled < length {
            let part = usize::try_from(length - filled).map_or(FILL, |left| left.min(FILL));
            self.inner.write(filled, &zeros[..part])?;
            filled += part as u64;
        }
        self.length.store(length, Ordering::Release);
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.saturating_add(out.len() as u64) > self.length.load(Ordering::Acquire) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.inner.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.length.fetch_max(offset.saturating_add(data.len() as u64), Ordering::AcqRel);
        self.inner.write(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    #[test]
    fn space_is_kept_and_reads_as_zeros_when_it_comes_back() {
        let backend = KeepsSpace::new(InMemoryBackend::new()).unwrap();
        backend.set_len(100_000).unwrap();
        backend.write(90_000, &[7; 100]).unwrap();
        backend.set_len(50_000).unwrap();
        assert_eq!((backend.len().unwrap(), backend.inner.len().unwrap()), (50_000, 100_000));
        let mut out = [1; 200];
        assert!(backend.read(49_900, &mut out).is_err(), "beyond the end");
        backend.set_len(100_000).unwrap();
        backend.read(89_950, &mut out).unwrap();
        assert_eq!(out, [0; 200]);
        assert_eq!(backend.inner.len().unwrap(), 100_000);
    }
}
