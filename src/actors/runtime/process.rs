//! What all actors that own a process need to know about it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::children::{Children, Claim};
use super::runsc::log::bounded;
use crate::sys::procfs;
use crate::wire::lease::InnerProcess;

/// Longest line that is taken over from a process.
const LINE_LIMIT: u64 = 4096;
/// Lines of a process that are kept for a report about its failure.
const LINES_KEPT: usize = 8;
/// Lines of one process that go to the log; more are read and dropped, so that no sandbox fills a disk.
const LINES_LOGGED: usize = 1000;

/// Identifies a child that has not been waited for.
pub fn inner_process(pid: i32) -> io::Result<InnerProcess> {
    let start_time = procfs::start_time(pid)?.ok_or(io::ErrorKind::NotFound)?;
    Ok(InnerProcess { pid, start_time })
}

/// A child that was just spawned: who waits for it is settled, and it can be signalled.
pub struct Held {
    /// Its process id.
    pub pid: i32,
    /// The claim on its status.
    pub claim: Claim,
    /// Its pidfd.
    pub pidfd: OwnedFd,
}

/// Holds a child. Called right after the spawn; see [`Children::claim`].
pub fn hold(child: &Child, children: &Children) -> io::Result<Held> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32)).ok_or(io::ErrorKind::NotFound)?;
    let claim = children.claim(pid.as_raw_pid());
    Ok(Held { pid: pid.as_raw_pid(), claim, pidfd: pidfd_open(pid, PidfdFlags::empty())? })
}

/// Says how a process ended, for people.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "in an unknown way".to_owned(),
    }
}

/// The output of a process that is being drained.
#[derive(Debug)]
pub struct Drained {
    kept: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

/// Reads a process's output to its end, in a task, a line at a time and in bounded memory.
pub fn drain(output: impl AsyncRead + Unpin + Send + 'static, log: impl Fn(&str) + Send + 'static) -> Drained {
    let kept = Arc::new(Mutex::new(vec![]));
    let keep = kept.clone();
    let task = tokio::spawn(async move {
        let mut output = BufReader::with_capacity(LINE_LIMIT as usize, output);
        let mut line = vec![];
        let mut count = 0;
        while matches!((&mut output).take(LINE_LIMIT).read_until(b'\n', &mut line).await, Ok(1..)) {
            let text = bounded(&String::from_utf8_lossy(&line));
            line.clear();
            count += 1;
            if count <= LINES_LOGGED {
                log(&text);
            }
            let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == LINES_KEPT {
                kept.remove(0);
            }
            kept.push(text);
        }
    });
    Drained { kept, task }
}

impl Drained {
    /// Waits for the end of the output and gives its last lines. A grandchild that holds the pipe
    /// open is not waited for long.
    pub async fn end(mut self) -> String {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(200), &mut self.task).await;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_kept_and_long_ones_are_cut() {
        let mut text = vec![b'x'; 3 * LINE_LIMIT as usize];
        text.extend(b"\n1\n2\n3\n4\n5\n6\n7\nlast");
        let drained = drain(std::io::Cursor::new(text), |_| {});
        assert_eq!(drained.end().await, "1; 2; 3; 4; 5; 6; 7; last");
    }

    #[test]
    fn statuses_are_put_into_words() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit status 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "killed by signal 9");
    }
}
