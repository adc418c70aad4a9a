//! A disk that fails, and forgets what was not synced.

use std::sync::{Arc, Mutex};

use redb::StorageBackend;
use rustix::io::Errno;

/// Storage that forgets, as a power cut does, what was written after the last sync.
#[derive(Debug, Clone, Default)]
pub(super) struct Lossy(Arc<Mutex<Disk>>);

#[derive(Debug, Clone, Default)]
struct Disk {
    /// What the program sees.
    seen: Vec<u8>,
    /// What has been synced.
    durable: Vec<u8>,
    /// What was done since.
    pending: Vec<Pending>,
    /// How many operations still succeed until one fails.
    left: Option<u32>,
    /// What is wrong then; the machine is going down, unless told otherwise.
    failure: Failure,
}

/// How operations fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    /// The kernel's answer (errno(3)).
    pub(super) errno: Errno,
    /// Whether all further operations fail, or only one.
    pub(super) lasting: bool,
}

impl Default for Failure {
    fn default() -> Self {
        Self { errno: Errno::IO, lasting: true }
    }
}

#[derive(Debug, Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                bytes.resize(bytes.len().max(offset + data.len()), 0);
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

impl Disk {
    fn step(&mut self) -> std::io::Result<()> {
        match &mut self.left {
            Some(0) => {
                if !self.failure.lasting {
                    self.left = None;
                }
                Err(self.failure.errno.into())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn perform(&mut self, operation: Pending) -> std::io::Result<()> {
        self.step()?;
        operation.apply(&mut self.seen);
        self.pending.push(operation);
        Ok(())
    }

    /// What a power cut leaves: each unsynced sector was written or was not, in any combination.
    fn after_power_cut(&self, chance: &mut impl FnMut() -> bool) -> Self {
        let mut bytes = self.durable.clone();
        for operation in &self.pending {
            match operation {
                Pending::Length(_) if chance() => operation.apply(&mut bytes),
                Pending::Length(_) => {}
                Pending::Write(offset, data) => {
                    for (index, sector) in data.chunks(512).enumerate() {
                        if chance() {
                            Pending::Write(offset + index * 512, sector.to_vec()).apply(&mut bytes);
                        }
                    }
                }
            }
        }
        Self { seen: bytes.clone(), durable: bytes, pending: Vec::new(), ..Self::default() }
    }
}

impl Lossy {
    /// Gives another disk with the same content.
    pub(super) fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    /// Lets this many operations succeed, then fails.
    pub(super) fn fail_after(&self, operations: u32, failure: Failure) {
        let mut disk = self.0.lock().unwrap();
        (disk.left, disk.failure) = (Some(operations), failure);
    }

    /// Gives what a power cut leaves.
    pub(super) fn cut(&self, chance: &mut impl FnMut() -> bool) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().after_power_cut(chance))))
    }

    /// Lets everything succeed again.
    pub(super) fn heal(&self) {
        self.0.lock().unwrap().left = None;
    }
}

impl StorageBackend for Lossy {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.lock().unwrap().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let disk = self.0.lock().unwrap();
        let range = offset as usize..offset as usize + out.len();
        let bytes = disk.seen.get(range).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.0.lock().unwrap().perform(Pending::Length(length as usize))
    }

    fn sync_data(&self) -> std::io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.step()?;
        disk.durable = disk.seen.clone();
        disk.pending.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.lock().unwrap().perform(Pending::Write(offset as usize, data.to_vec()))
    }
}

/// A small generator (xorshift), so that a failing seed can be run again.
pub(super) fn chances(seed: u64) -> impl FnMut() -> bool {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & 1 == 0
    }
}
