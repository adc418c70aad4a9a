//! What a case or a run leaves behind.

use std::collections::BTreeSet;
use std::path::Path;

use fs_err as fs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process that is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    /// Its command line, or its name in brackets.
    pub command: String,
}

impl Process {
    /// Kills it.
    pub fn kill(&self) {
        // It may be gone by now, or belong to a subordinate id whose namespace's first process
        // is in the list as well.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} (child of {}): {}", self.pid, self.parent, self.command)
    }
}

/// Finds living processes that carry one of the marks in command line, environment, executable
/// or working directory, and all their descendants. This process and its ancestors are not among them.
///
/// Zombies do not count: they hold nothing, and a container's first process may not reap them.
pub fn processes(marks: &[&[u8]]) -> Vec<Process> {
    let all: Vec<_> = pids().into_iter().filter_map(describe).collect();
    let mut found: BTreeSet<i32> = all.iter().map(|process| process.pid).filter(|pid| is_marked(*pid, marks)).collect();
    loop {
        let size = found.len();
        found.extend(
            all.iter().filter(|process| found.contains(&process.parent)).map(|process| process.pid).collect::<Vec<_>>(),
        );
        if found.len() == size {
            break;
        }
    }
    let mut own = i32::try_from(std::process::id()).expect("a process id fits");
    while let Some(process) = all.iter().find(|process| process.pid == own) {
        found.remove(&own);
        own = process.parent;
    }
    all.into_iter().filter(|process| found.contains(&process.pid)).collect()
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Gives a process that lives; none for a zombie or one that is gone.
pub fn describe(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may itself contain any character.
    let (head, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
    if matches!(state, "Z" | "X") {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned();
    let name = head.split_once('(').map_or("?", |(_, name)| name);
    Some(Process { pid, parent, command: if line.is_empty() { format!("[{name}]") } else { line } })
}

fn is_marked(pid: i32, marks: &[&[u8]]) -> bool {
    let contents = ["cmdline", "environ"].map(|file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
    let links = ["exe", "cwd"].map(|link| {
        let target = fs::read_link(format!("/proc/{pid}/{link}")).unwrap_or_default();
        target.into_os_string().into_encoded_bytes()
    });
    contents.iter().chain(&links).any(|text| marks.iter().any(|mark| contains(text, mark)))
}

fn contains(text: &[u8], mark: &[u8]) -> bool {
    text.windows(mark.len()).any(|window| window == mark)
}

/// Gives mount points of this mount namespace that lie below the directory.
pub fn mounts(directory: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| Path::new(point).starts_with(directory)).map(str::to_owned).collect()
}

/// Gives everything below the directory except directories; nothing when it does not exist.
pub fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            _ => found.push(entry.path().display().to_string()),
        }
    }
    found
}
