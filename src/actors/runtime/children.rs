//! The children of process 1: who waits for which, and the reaping of orphans.
//!
//! As the first process of its pid namespace the supervisor inherits every orphan in it. It must wait
//! for those, and must not wait for the children that an actor waits for itself. An actor therefore
//! claims its child; all others are reaped here on SIGCHLD.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::sys::procfs;

/// The children that actors wait for, shared by all actors.
#[derive(Debug, Clone, Default)]
pub struct Children {
    claimed: Arc<Mutex<HashSet<i32>>>,
    changed: Arc<Notify>,
}

/// A child that its owner waits for. Dropped when that is done.
#[derive(Debug)]
pub struct Claim {
    pid: i32,
    children: Children,
}

impl Children {
    /// Claims a child. Called right after the spawn, before anything is awaited, so that the reaper,
    /// which runs on the same thread, can't come in between.
    pub fn claim(&self, pid: i32) -> Claim {
        self.claimed().insert(pid);
        Claim { pid, children: self.clone() }
    }

    /// Reaps orphans from now on, in a task that ends with the runtime.
    pub fn reap_orphans(&self) -> io::Result<()> {
        let mut ended = signal(SignalKind::child())?;
        let children = self.clone();
        tokio::spawn(async move {
            while ended.recv().await.is_some() {
                children.reap();
                children.changed.notify_waiters();
            }
        });
        Ok(())
    }

    /// Waits until no process is left in the pid namespace besides this one and claimed children, or
    /// until the time is over. Gives the processes that are left.
    pub async fn until_alone(&self, limit: Duration) -> Vec<i32> {
        let expired = tokio::time::sleep(limit);
        tokio::pin!(expired);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change between the two is missed.
            changed.as_mut().enable();
            self.reap();
            let left = self.others();
            if left.is_empty() {
                return left;
            }
            tokio::select! {
                () = changed => {}
                // Not every process is a child of ours before its own parent has been reaped.
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
                () = &mut expired => return left,
            }
        }
    }

    fn reap(&self) {
        for pid in self.others() {
            let pid = Pid::from_raw(pid);
            if let Some(pid) = pid {
                // ECHILD for a process whose parent still lives, and nothing for one that runs.
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            }
        }
    }

    /// Lists the processes of the pid namespace that are neither this one nor claimed.
    fn others(&self) -> Vec<i32> {
        let own = std::process::id() as i32;
        let claimed = self.claimed();
        procfs::processes().filter(|pid| *pid != own && !claimed.contains(pid)).collect()
    }

    fn claimed(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.claimed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.children.claimed().remove(&self.pid);
    }
}
