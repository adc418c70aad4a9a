//! A process tree as `/proc` shows it, and its end.
//!
//! Nobody in the tree can leave it: the process that ends it is its subreaper, or the sandbox's init.
//! A tree that keeps forking is stopped before it is killed, since a killed process makes room for a
//! new one where a stopped one takes it. One that hops, each process a child of the last, which is
//! gone by then, has to be met between two hops: so a process is stopped the moment it is read, not
//! after all are.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::events::{Events, reap, send};

/// How long the tree is looked through for processes that are not stopped yet. One pass is enough for a tree
/// that does not fork; what is still growing after this time is killed as it comes.
const STOPPING: Duration = Duration::from_secs(2);

/// How long killed processes may take to be gone before the tree is looked through again.
const SETTLE: Duration = Duration::from_millis(10);

/// One process, as far as trees are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    pid: i32,
    parent: i32,
    state: Life,
}

/// Whether a process can still do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Alive,
    /// It waits for its parent to take its status (state `Z` or `X` in proc_pid_stat(5)).
    Ended,
}

/// Asks every descendant of this process to end, also one that is stopped.
pub(super) fn terminate() {
    let alive = descendants(|_| {});
    for signal in [Signal::SIGTERM, Signal::SIGCONT] {
        alive.iter().for_each(|pid| send(*pid, signal));
    }
}

/// Kills every descendant of this process and reaps it. Returns when none is left.
pub(in crate::guest) fn end(events: &mut Events) {
    let mut stopped = HashSet::new();
    let deadline = Instant::now() + STOPPING;
    while !reap_all() {
        let mut fresh = false;
        let alive = descendants(|pid| {
            if stopped.insert(pid) {
                send(pid, Signal::SIGSTOP);
                fresh = true;
            }
        });
        if fresh && Instant::now() < deadline {
            continue;
        }
        alive.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
        let settled = Instant::now() + SETTLE;
        while !reap_all() && events.next(Some(settled)).is_some() {}
        stopped.clear();
    }
}

/// Reaps what has ended; tells whether no child is left, which means no descendant either.
fn reap_all() -> bool {
    loop {
        match reap() {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Lists the living descendants of this process, parents before children, and tells of each as soon as it is
/// known to be one: a parent mostly has a smaller id than its child, and the child of one that has ended is this
/// process's own.
fn descendants(meet: impl FnMut(i32)) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let nodes = pids.filter_map(|pid| parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?));
    below(nix::unistd::getpid().as_raw(), nodes, meet)
}

/// Reads the state and the parent out of a `stat` line. The name in it may hold anything, so they are
/// looked for after its last parenthesis.
fn parse(pid: i32, stat: &str) -> Option<Node> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = match fields.next()? {
        "Z" | "X" => Life::Ended,
        _ => Life::Alive,
    };
    Some(Node { pid, parent: fields.next()?.parse().ok()?, state })
}

/// Picks the living among the descendants of `root`, parents before children, and tells of each as it is picked.
fn below(root: i32, nodes: impl Iterator<Item = Node>, mut meet: impl FnMut(i32)) -> Vec<i32> {
    let (mut family, mut alive) = (HashSet::from([root]), Vec::new());
    let mut belongs = |node: &Node| {
        // One that has ended may have living children still.
        let joins = family.contains(&node.parent) && family.insert(node.pid);
        if joins && node.state == Life::Alive {
            meet(node.pid);
            alive.push(node.pid);
        }
        joins
    };
    // Those whose parent comes after them are looked at again, until none of them joins any more.
    let mut left: Vec<Node> = nodes.filter(|node| !belongs(node)).collect();
    let mut before = usize::MAX;
    while left.len() < before {
        before = left.len();
        left.retain(|node| !belongs(node));
    }
    alive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(pid: i32, parent: i32, state: Life) -> Node {
        Node { pid, parent, state }
    }

    #[test]
    fn a_name_can_not_pretend_to_be_another_parent() {
        let line = "7 (a) S 1 (b) R 42 7 7 0 -1 0";
        assert_eq!(parse(7, line), Some(node(7, 42, Life::Alive)));
        assert_eq!(parse(8, "8 (x) Z 7 7 7"), Some(node(8, 7, Life::Ended)));
        assert_eq!(parse(9, "9 (x"), None);
        assert_eq!(parse(9, "9 (x) S"), None);
    }

    #[test]
    fn only_descendants_are_picked_and_those_behind_an_ended_one_as_well() {
        let nodes = [
            node(1, 0, Life::Alive),
            node(5, 0, Life::Alive),
            node(9, 7, Life::Alive),
            node(6, 5, Life::Alive),
            node(7, 5, Life::Ended),
            node(8, 1, Life::Alive),
            node(20, 9, Life::Alive),
        ];
        assert_eq!(below(5, nodes.into_iter(), |_| {}), [6, 9, 20]);
        assert_eq!(below(1, nodes.into_iter(), |_| {}), [8]);
        assert_eq!(below(8, nodes.into_iter(), |_| {}), [0; 0]);
    }
}
