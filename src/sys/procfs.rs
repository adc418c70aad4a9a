//! What the kernel says about processes in `/proc` (proc(5)).
//!
//! Process names are chosen by the processes: they may hold spaces, parentheses and line feeds, so
//! that `stat` is only read after its last parenthesis, and `status` line by line from known labels
//! that follow the name's line, in which the kernel escapes line feeds.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::domain::ownership::{BootId, NamespaceIdentity, ProcessIdentity};

/// Gives a process's exact identity; `None` when there is no such process.
pub fn identity(pid: i32) -> io::Result<Option<ProcessIdentity>> {
    match stat(pid)? {
        Some(stat) => Ok(Some(ProcessIdentity { pid, start_time: stat.start_time, boot_id: boot_id()? })),
        None => Ok(None),
    }
}

/// Gives a process's start time in clock ticks since boot; `None` when there is no such process.
pub fn start_time(pid: i32) -> io::Result<Option<u64>> {
    Ok(stat(pid)?.map(|stat| stat.start_time))
}

/// Tells whether exactly this process still runs. One that ended and was not waited for does not.
pub fn is_alive(process: &ProcessIdentity) -> bool {
    let same_boot = boot_id().is_ok_and(|boot_id| boot_id == process.boot_id);
    let current = stat(process.pid).ok().flatten();
    same_boot && current.is_some_and(|stat| stat.start_time == process.start_time && !stat.is_dead())
}

/// Gives the identity of this boot.
pub fn boot_id() -> io::Result<BootId> {
    Ok(BootId::new(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end()))
}

/// Gives the id, in this process's pid namespace, of a process that is `inner` in the pid namespace
/// whose first process is `first` here; `None` when there is no such process.
pub fn outer_pid(first: i32, inner: i32) -> Option<i32> {
    let level = status(first)?.namespace_pids.len().checked_sub(1)?;
    let matches = |pid: i32| status(pid).is_some_and(|status| status.namespace_pids.get(level) == Some(&inner));
    // Every member of the namespace descends from its first process. The kernel's lists of children
    // are quick to walk, but may leave one out when another ends meanwhile (proc(5)).
    descendants(first).find(|pid| matches(*pid)).or_else(|| {
        let descends = |pid: &i32| ancestors(*pid).any(|ancestor| ancestor == first);
        processes().filter(|pid| matches(*pid)).find(descends)
    })
}

/// Gives a process and everything that descends from it, nearest first.
pub fn descendants(pid: i32) -> impl Iterator<Item = i32> {
    let mut waiting = VecDeque::from([pid]);
    std::iter::from_fn(move || {
        let next = waiting.pop_front()?;
        waiting.extend(children(next));
        Some(next)
    })
}

/// Gives the children of all threads of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(process_directory(pid).join("task"));
    let lists = tasks.into_iter().flatten().flatten();
    let lists = lists.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Gives the process itself, then its parent, and so on.
fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    // Bounded, since processes may end and their ids return while this walks.
    std::iter::successors(Some(pid), |pid| status(*pid).map(|status| status.parent).filter(|parent| *parent > 0))
        .take(256)
}

/// Gives the ids of all processes that `/proc` shows.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Gives a namespace's identity by its file, such as `/proc/PID/ns/net`.
pub fn namespace_identity(path: &Path) -> io::Result<NamespaceIdentity> {
    let metadata = std::fs::metadata(path)?;
    Ok(NamespaceIdentity { device: metadata.dev(), inode: metadata.ino() })
}

fn process_directory(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/PID/{file} is not as proc(5) says"))
}

/// What is wanted of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    start_time: u64,
}

impl Stat {
    fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The name ends at the last parenthesis; what follows is numbers, but for the state.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        // The state is field 3, so that field 22 is the 19th after it.
        Some(Self { state, start_time: fields.nth(18)?.parse().ok()? })
    }
}

fn stat(pid: i32) -> io::Result<Option<Stat>> {
    match std::fs::read(process_directory(pid).join("stat")) {
        Ok(text) => Stat::parse(&text).map(Some).ok_or_else(|| malformed("stat")),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A process may end between open and read, which is then ESRCH.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

/// What is wanted of `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    parent: i32,
    /// The process's ids from this process's namespace inwards.
    namespace_pids: Vec<i32>,
}

impl Status {
    fn parse(text: &[u8]) -> Option<Self> {
        let value = |label: &[u8]| {
            let line = text.split(|byte| *byte == b'\n').find(|line| line.starts_with(label))?;
            std::str::from_utf8(&line[label.len()..]).ok()
        };
        let parent = value(b"PPid:")?.trim().parse().ok()?;
        let ids = value(b"NSpid:")?.split_ascii_whitespace();
        Some(Self { parent, namespace_pids: ids.map(str::parse).collect::<Result<_, _>>().ok()? })
    }
}

fn status(pid: i32) -> Option<Status> {
    Status::parse(&std::fs::read(process_directory(pid).join("status")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NUMBERS: &str = "1 2 3 0 -1 4194560 5 6 7 8 9 10 11 12 20 0 1 0 4242 1 2 3";

    #[test]
    fn this_process_is_alive_and_another_start_is_not() {
        let pid = std::process::id() as i32;
        let own = identity(pid).unwrap().unwrap();
        assert!(is_alive(&own));
        assert!(!is_alive(&ProcessIdentity { start_time: own.start_time + 1, ..own.clone() }));
        assert!(!is_alive(&ProcessIdentity { boot_id: BootId::new("another"), ..own.clone() }));
        assert_eq!(start_time(pid).unwrap(), Some(own.start_time));
    }

    #[test]
    fn a_process_that_was_not_waited_for_is_not_alive() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let identity = identity(child.id() as i32).unwrap().unwrap();
        while is_alive(&identity) {
            std::thread::yield_now();
        }
        assert!(start_time(identity.pid).unwrap().is_some(), "a zombie still has its entry");
        child.wait().unwrap();
        assert_eq!(start_time(identity.pid).unwrap(), None);
    }

    #[test]
    fn descendants_are_found() {
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let found = descendants(std::process::id() as i32).any(|pid| pid == child.id() as i32);
        assert_eq!(ancestors(child.id() as i32).nth(1), Some(std::process::id() as i32));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
    }

    #[test]
    fn a_name_cannot_forge_status_lines() {
        let text = b"Name:\tx\\nPPid:\t1\nPPid:\t77\nNSpid:\t900\t5\n";
        assert_eq!(Status::parse(text), Some(Status { parent: 77, namespace_pids: vec![900, 5] }));
        assert_eq!(Status::parse(b"Name:\tx\n"), None);
    }

    proptest! {
        #[test]
        fn no_name_hides_the_start_time(name in proptest::collection::vec(any::<u8>(), 0..16), state in "[RSDTZ]") {
            let mut text = b"42 (".to_vec();
            text.extend(&name);
            text.extend(format!(") {state} {NUMBERS}\n").bytes());
            prop_assert_eq!(Stat::parse(&text), Some(Stat { state: state.as_bytes()[0], start_time: 4242 }));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stat::parse(&text);
            let _ = Status::parse(&text);
        }
    }
}
