//! The unprivileged user that cases run as.

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::unistd::{Gid, Uid};

use super::command::Invocation;

/// Name of the unprivileged user that a root run makes.
pub const NAME: &str = "lazaret-test";

/// A user's ids.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// User id.
    pub uid: Uid,
    /// Primary group id.
    pub gid: Gid,
}

/// Gives the name of the user that runs this.
pub fn current_name() -> String {
    let uid = Uid::effective();
    let own = accounts().into_iter().find(|(_, account)| account.uid == uid);
    own.map_or_else(|| uid.to_string(), |(name, _)| name)
}

/// Reads `/etc/passwd` itself: a statically linked glibc loads NSS modules, and crashes in some.
fn accounts() -> Vec<(String, Account)> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let account = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
        Some((fields[0].to_owned(), Account { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) }))
    };
    text.lines().filter_map(account).collect()
}

fn find(name: &str) -> Option<Account> {
    accounts().into_iter().find_map(|(found, account)| (found == name).then_some(account))
}

/// Sums up the user's ranges in `/etc/subuid` or `/etc/subgid` (subuid(5)).
pub fn subordinate_ids(file: &str, user: &str) -> u64 {
    ranges(file).iter().filter(|(owner, ..)| owner == user).map(|(_, _, count)| count).sum()
}

fn ranges(file: &str) -> Vec<(String, u64, u64)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let range = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?))
    };
    text.lines().filter_map(range).collect()
}

/// Gives the test user, as root, and makes it with its subordinate ids when it is missing.
pub fn ensure() -> Result<Account> {
    if find(NAME).is_none() {
        Invocation::new("useradd")
            .args(["--user-group", "--no-create-home", "--shell", "/bin/bash", NAME])
            .run()?
            .ok()?;
    }
    for (file, flag) in [("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")] {
        if subordinate_ids(file, NAME) < 65536 {
            let first = ranges(file).iter().map(|(_, first, count)| first + count).max().unwrap_or(0).max(100_000);
            ensure!(first + 65536 < u64::from(u32::MAX), "{file} has no room for 65536 more ids");
            let range = format!("{first}-{}", first + 65535);
            Invocation::new("usermod").args([flag, &range, NAME]).run()?.ok()?;
        }
    }
    find(NAME).context("the user that was just made does not exist")
}
