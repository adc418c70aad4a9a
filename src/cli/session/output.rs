//! Writes the session's output on a thread of its own, in the order in which it came.
//!
//! Writing blocks, so that a slow terminal holds back the session and memory stays bounded: at most
//! [`QUEUE`] messages wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

use crate::wire::client::Stream;

/// How many messages wait between the connection and the thread.
const QUEUE: usize = 8;

/// Output that can't be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The reader of the output is gone (EPIPE): as every tool, the client ends by SIGPIPE.
    #[error("nobody reads the output any more")]
    Closed,
    /// It failed in another way.
    #[error("the output can't be written")]
    Failed(#[source] io::Error),
}

/// A running writer.
#[derive(Debug)]
pub struct Writer {
    queue: mpsc::Sender<(Stream, Vec<u8>)>,
    result: oneshot::Receiver<Result<(), WriteError>>,
}

/// Starts a writer to the two streams.
pub fn start(output: OwnedFd, error: OwnedFd) -> io::Result<Writer> {
    let (queue, mut messages) = mpsc::channel::<(Stream, Vec<u8>)>(QUEUE);
    let (report, result) = oneshot::channel();
    let write = move || {
        let mut outcome = Ok(());
        while let Some((stream, bytes)) = messages.blocking_recv() {
            let target = match stream {
                Stream::Output => &output,
                Stream::Error => &error,
            };
            outcome = write_all(target, &bytes);
            if outcome.is_err() {
                break;
            }
        }
        // With nobody waiting for the result there is nothing to tell.
        let _ = report.send(outcome);
    };
    std::thread::Builder::new().name("session output".into()).spawn(write)?;
    Ok(Writer { queue, result })
}

impl Writer {
    /// Gives the end that takes bytes, waiting while too many wait to be written.
    pub fn queue(&self) -> mpsc::Sender<(Stream, Vec<u8>)> {
        self.queue.clone()
    }

    /// Waits until writing fails; forever while it does not.
    pub async fn failure(&mut self) -> WriteError {
        match (&mut self.result).await {
            Ok(Err(error)) => error,
            // The thread ends without an error only after the queue was closed.
            Ok(Ok(())) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until everything is written. Every clone of the queue must be dropped.
    pub async fn finish(self) -> Result<(), WriteError> {
        drop(self.queue);
        // A thread that panicked has written what it could.
        self.result.await.unwrap_or(Ok(()))
    }
}

fn write_all(target: impl AsFd, mut bytes: &[u8]) -> Result<(), WriteError> {
    while !bytes.is_empty() {
        match rustix::io::write(&target, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Somebody who shares the descriptor has set O_NONBLOCK on it.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&target, PollFlags::OUT)], None);
            }
            Err(Errno::PIPE) => return Err(WriteError::Closed),
            Err(errno) => return Err(WriteError::Failed(errno.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::fs::File;
    use std::io::Read;

    fn null() -> OwnedFd {
        File::options().write(true).open("/dev/null").unwrap().into()
    }

    #[tokio::test]
    async fn streams_stay_apart_and_everything_is_written() {
        let (out_read, out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (err_read, err) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // A descriptor that somebody made non-blocking must not lose bytes.
        rustix::io::ioctl_fionbio(&out, true).unwrap();
        let writer = start(out, err).unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            File::from(out_read).read_to_end(&mut all).unwrap();
            all
        });
        let queue = writer.queue();
        for _ in 0..40 {
            queue.send((Stream::Output, vec![b'o'; 50_000])).await.unwrap();
        }
        queue.send((Stream::Error, b"e".to_vec())).await.unwrap();
        drop(queue);
        writer.finish().await.unwrap();
        assert_eq!(reading.join().unwrap().len(), 2_000_000);
        let mut error = Vec::new();
        File::from(err_read).read_to_end(&mut error).unwrap();
        assert_eq!(error, b"e");
    }

    #[tokio::test]
    async fn a_reader_that_left_is_told_apart() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        drop(read);
        let mut writer = start(write, null()).unwrap();
        writer.queue().send((Stream::Output, b"x".to_vec())).await.unwrap();
        assert!(matches!(writer.failure().await, WriteError::Closed));

        let full: OwnedFd = File::options().write(true).open("/dev/full").unwrap().into();
        let writer = start(full, null()).unwrap();
        writer.queue().send((Stream::Output, b"x".to_vec())).await.unwrap();
        assert!(matches!(writer.finish().await, Err(WriteError::Failed(_))));
    }
}
