//! A session's standard streams on the coordinator's side, without blocking and with bounded buffers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys::readiness;

/// Most bytes that one output message carries. A PTY gives at most 4 KiB a read, so reads are gathered.
pub const OUTPUT_CHUNK: usize = 64 << 10;

/// One end of a pipe or PTY that this process alone uses.
#[derive(Debug)]
pub struct SessionStream(AsyncFd<OwnedFd>);

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Bytes were appended.
    Bytes,
    /// Nothing is there now.
    Nothing,
    /// Nothing will come any more.
    End,
}

impl SessionStream {
    /// Takes the descriptor and makes it non-blocking.
    pub fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let flags = fcntl_getfl(&fd)?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Self(readiness::watch(fd, interest)?))
    }

    /// Gives the descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }

    /// Waits for output and appends what is there, up to [`OUTPUT_CHUNK`] bytes in all.
    pub async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<Found> {
        loop {
            let mut ready = self.0.readable().await?;
            match self.read_now(buffer)? {
                Found::Nothing => ready.clear_ready(),
                found => return Ok(found),
            }
        }
    }

    /// Appends what is there now, up to [`OUTPUT_CHUNK`] bytes in all, without waiting.
    pub fn read_now(&self, buffer: &mut Vec<u8>) -> io::Result<Found> {
        let before = buffer.len();
        buffer.reserve_exact(OUTPUT_CHUNK.saturating_sub(before));
        while buffer.len() < OUTPUT_CHUNK {
            match rustix::io::read(self.0.get_ref(), rustix::buffer::spare_capacity(buffer)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) if buffer.len() == before => return Ok(Found::Nothing),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                // A PTY master whose slave is closed everywhere reads as EIO (pty(7)).
                Err(rustix::io::Errno::IO) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(if buffer.len() == before { Found::End } else { Found::Bytes })
    }

    /// Writes all bytes, waiting while the other side does not take them.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await?;
            match rustix::io::write(self.0.get_ref(), bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_is_gathered_up_to_a_chunk_and_then_ends() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (reader, writer) = (
            SessionStream::new(read, Interest::READABLE).unwrap(),
            SessionStream::new(write, Interest::WRITABLE).unwrap(),
        );
        let sent: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let copy = sent.clone();
        let sending = tokio::spawn(async move { writer.write_all(&copy).await });
        let (mut received, mut buffer) = (Vec::new(), Vec::new());
        while reader.read(&mut buffer).await.unwrap() == Found::Bytes {
            assert!(buffer.len() <= OUTPUT_CHUNK);
            received.append(&mut buffer);
        }
        sending.await.unwrap().unwrap();
        assert!(received == sent);
    }

    #[tokio::test]
    async fn nothing_to_read_is_not_the_end() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let reader = SessionStream::new(read, Interest::READABLE).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(reader.read_now(&mut buffer).unwrap(), Found::Nothing);
        drop(write);
        assert_eq!(reader.read(&mut buffer).await.unwrap(), Found::End);
    }
}
