//! A redb backend that holds changes back until the file is known to be sound.
//!
//! redb writes as soon as it opens a file: it marks it as being open, and repairs what a crash left. A file that
//! is refused because it is damaged, foreign or newer is to stay as it is, so that it can be looked at or given to the
//! Lazaret that can read it. So nothing is written before everything has been verified; then the same
//! operations follow in the same order. What is held back is in memory meanwhile: a store is smaller than a megabyte.

use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

/// The backend, over the one that holds the file.
#[derive(Debug)]
pub(super) struct HoldsBack<B>(Arc<Inner<B>>);

#[derive(Debug)]
struct Inner<B> {
    file: B,
    changes: Mutex<Changes>,
}

/// What becomes of changes.
#[derive(Debug)]
enum Changes {
    /// They are held back.
    Held(Held),
    /// They pass.
    Pass,
    /// They are refused, since one that was held back could not be carried out: later ones build on it.
    Refused,
}

#[derive(Debug)]
struct Held {
    /// The file as it would be.
    content: Vec<u8>,
    /// What made it so.
    operations: Vec<Operation>,
}

#[derive(Debug)]
enum Operation {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

impl<B> Clone for HoldsBack<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: StorageBackend> HoldsBack<B> {
    /// Takes the backend that holds the file.
    pub(super) fn new(file: B) -> io::Result<Self> {
        let mut content = vec![0; length_in_memory(file.len()?)?];
        file.read(0, &mut content)?;
        let changes = Mutex::new(Changes::Held(Held { content, operations: Vec::new() }));
        Ok(Self(Arc::new(Inner { file, changes })))
    }

    /// Carries out what was held back, and lets every change pass from here on.
    pub(super) fn release(&self) -> io::Result<()> {
        let mut changes = self.changes();
        if let Changes::Held(held) = std::mem::replace(&mut *changes, Changes::Refused) {
            for operation in held.operations {
                match operation {
                    Operation::Write(offset, data) => self.0.file.write(offset, &data)?,
                    Operation::Length(length) => self.0.file.set_len(length)?,
                    Operation::Sync => self.0.file.sync_data()?,
                }
            }
        }
        *changes = Changes::Pass;
        Ok(())
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.0.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused() -> io::Error {
    io::Error::other("an earlier change could not be written")
}

fn length_in_memory(length: u64) -> io::Result<usize> {
    usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl<B: StorageBackend> StorageBackend for HoldsBack<B> {
    fn len(&self) -> io::Result<u64> {
        match &*self.changes() {
            Changes::Held(held) => Ok(held.content.len() as u64),
            _ => self.0.file.len(),
        }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        match &mut *self.changes() {
            Changes::Held(held) => {
                held.content.resize(length_in_memory(length)?, 0);
                held.operations.push(Operation::Length(length));
                Ok(())
            }
            Changes::Pass => self.0.file.set_len(length),
            Changes::Refused => Err(refused()),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match &*self.changes() {
            Changes::Held(held) => {
                let begin = length_in_memory(offset)?;
                let found = begin.checked_add(out.len()).and_then(|end| held.content.get(begin..end));
                out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            _ => self.0.file.read(offset, out),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match &mut *self.changes() {
            Changes::Held(held) => {
                let begin = length_in_memory(offset)?;
                let end = begin.checked_add(data.len()).ok_or(io::ErrorKind::FileTooLarge)?;
                held.content.resize(held.content.len().max(end), 0);
                held.content[begin..end].copy_from_slice(data);
                held.operations.push(Operation::Write(offset, data.to_owned()));
                Ok(())
            }
            Changes::Pass => self.0.file.write(offset, data),
            Changes::Refused => Err(refused()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match &mut *self.changes() {
            Changes::Held(held) => {
                held.operations.push(Operation::Sync);
                Ok(())
            }
            Changes::Pass => self.0.file.sync_data(),
            Changes::Refused => Err(refused()),
        }
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    #[test]
    fn changes_are_seen_at_once_and_carried_out_when_released() {
        let file = InMemoryBackend::new();
        file.set_len(4).unwrap();
        file.write(0, b"file").unwrap();
        let backend = HoldsBack::new(file).unwrap();
        backend.set_len(6).unwrap();
        backend.write(2, b"nds").unwrap();
        backend.sync_data().unwrap();
        let content = |read: &dyn Fn(&mut [u8]) -> io::Result<()>, length| {
            let mut out = vec![1; length];
            read(&mut out).map(|()| out)
        };
        assert_eq!(content(&|out| backend.read(0, out), 6).unwrap(), b"finds\0");
        assert!(backend.read(3, &mut [0; 4]).is_err(), "beyond the end");
        assert_eq!(content(&|out| backend.0.file.read(0, out), 4).unwrap(), b"file");
        backend.release().unwrap();
        assert_eq!(content(&|out| backend.0.file.read(0, out), 6).unwrap(), b"finds\0");
        backend.write(0, b"b").unwrap();
        assert_eq!(content(&|out| backend.0.file.read(0, out), 5).unwrap(), b"binds");
    }
}
