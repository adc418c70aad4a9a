//! Reads the session's input on a thread of its own.
//!
//! Standard input is shared with the shell and whoever else has it open, so nothing is set on it:
//! O_NONBLOCK would be set for all of them. The thread polls, then reads what is there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::mpsc;

/// Largest piece of input that travels in one message.
const CHUNK: usize = 32 << 10;

/// How many pieces wait between the thread and the connection.
const QUEUE: usize = 4;

/// How long the terminal is left alone before it is looked at again, while this process is in its
/// background.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(200);

/// What came from the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Its end, or an error, which for a reader is the same.
    End,
}

/// A running reader. It stops when this is dropped.
#[derive(Debug)]
pub struct Reader {
    /// What was read, in order.
    pub inputs: mpsc::Receiver<Input>,
    _stop: OwnedFd,
}

/// Starts reading `source`.
pub fn start(source: OwnedFd) -> io::Result<Reader> {
    let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
    let (queue, inputs) = mpsc::channel(QUEUE);
    std::thread::Builder::new().name("session input".into()).spawn(move || read_all(&source, &stopped, &queue))?;
    Ok(Reader { inputs, _stop: stop })
}

fn read_all(source: &OwnedFd, stopped: &OwnedFd, queue: &mpsc::Sender<Input>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        if wait(&[source, stopped], None) {
            return;
        }
        // Reading from a terminal in its background would stop the whole process (SIGTTIN).
        if in_background(source) {
            if wait(&[stopped], Some(BACKGROUND_PAUSE)) {
                return;
            }
            continue;
        }
        let input = match rustix::io::read(source, &mut buffer[..]) {
            Ok(0) => Input::End,
            Ok(count) => Input::Bytes(buffer[..count].to_vec()),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(Errno::IO) if in_background(source) => continue,
            Err(_) => Input::End,
        };
        let last = input == Input::End;
        if queue.blocking_send(input).is_err() || last {
            return;
        }
    }
}

/// Waits until one of the descriptors has something; tells whether the last one has, which means stop.
fn wait(fds: &[&OwnedFd], timeout: Option<Duration>) -> bool {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
    let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs().cast_signed(), tv_nsec: t.subsec_nanos().into() });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => polled.last().is_some_and(|stopped| !stopped.revents().is_empty()),
        Err(Errno::INTR) => false,
        // Descriptors that can't be polled end the reader rather than spin.
        Err(_) => true,
    }
}

fn in_background(terminal: impl AsFd) -> bool {
    match rustix::termios::tcgetpgrp(terminal) {
        Ok(foreground) => foreground != rustix::process::getpgrp(),
        // Not a terminal, or not ours: nothing stops us.
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    async fn collect(source: OwnedFd) -> Vec<u8> {
        let mut reader = start(source).unwrap();
        let mut all = Vec::new();
        while let Some(Input::Bytes(bytes)) = reader.inputs.recv().await {
            all.extend(bytes);
        }
        all
    }

    #[tokio::test]
    async fn files_devices_pipes_and_directories_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
        assert_eq!(collect(File::open(&path).unwrap().into()).await.len(), 100_000);
        assert!(collect(File::open("/dev/null").unwrap().into()).await.is_empty());
        assert!(collect(File::open(directory.path()).unwrap().into()).await.is_empty());
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        File::from(write).write_all(b"\0\xff").unwrap();
        assert_eq!(collect(read).await, b"\0\xff");
    }

    #[tokio::test]
    async fn a_silent_input_does_not_keep_the_reader() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let reader = start(read).unwrap();
        drop(reader);
        // The reader's end is closed once its thread has ended: only then does writing fail.
        let mut file = File::from(write);
        for _ in 0..500 {
            if file.write_all(b"x").is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the reader goes on");
    }
}
