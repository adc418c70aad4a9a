//! The developer's account, and the subordinate ids that are granted to it (subuid(5), subgid(5)).

use std::io;
use std::path::{Path, PathBuf};

use crate::domain::artifact::SubordinateRange;

/// The account that this process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
    /// Account name, when the user database has one.
    pub name: Option<String>,
    /// Home directory, when the user database has one.
    pub home: Option<PathBuf>,
}

impl Account {
    /// Looks up the account of the effective user id in `/etc/passwd`, and elsewhere than there, for
    /// accounts of a directory service, in `USER` and `HOME`.
    ///
    /// getpwuid(3) is not asked: in a static program it loads modules of the name service switch that
    /// were built for a dynamic one, and libnss_systemd crashes.
    pub fn current() -> io::Result<Self> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (name, home) = match in_passwd(&std::fs::read_to_string("/etc/passwd")?, uid) {
            Some((name, home)) => (Some(name), Some(home)),
            None => {
                let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
                (variable("USER").or_else(|| variable("LOGNAME")), variable("HOME").map(PathBuf::from))
            }
        };
        Ok(Self { uid, gid, name, home })
    }

    /// Gives how messages call the account: its name, or its number.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.uid.to_string())
    }
}

/// Finds a user id's name and home directory in the text of passwd(5).
fn in_passwd(text: &str, uid: u32) -> Option<(String, PathBuf)> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, _, _, home, _] = fields[..] else { return None };
        (id.parse() == Ok(uid)).then(|| (name.to_owned(), PathBuf::from(home)))
    })
}

/// The subordinate ids of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubordinateIds {
    /// User id ranges of `/etc/subuid`, in its order.
    pub uids: Vec<SubordinateRange>,
    /// Group id ranges of `/etc/subgid`, in its order.
    pub gids: Vec<SubordinateRange>,
}

impl SubordinateIds {
    /// Reads what `/etc/subuid` and `/etc/subgid` grant to the account. A missing file grants nothing.
    pub fn of(account: &Account) -> io::Result<Self> {
        Ok(Self {
            uids: read_ranges(Path::new("/etc/subuid"), account)?,
            gids: read_ranges(Path::new("/etc/subgid"), account)?,
        })
    }
}

/// Gives the first id, from 100000 on and on a round number, above all ranges that a file grants to
/// anybody. A file that cannot be read grants nothing.
pub fn first_free(path: &Path) -> u32 {
    first_above(&std::fs::read_to_string(path).unwrap_or_default())
}

fn first_above(text: &str) -> u32 {
    let end = |line: &str| {
        let mut fields = line.split(':').skip(1);
        let (start, count): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        start.checked_add(count)
    };
    // As useradd(8) gives them out: from 100000 in steps of 65536.
    let used = text.lines().filter_map(end).max().unwrap_or(0).saturating_sub(100_000);
    used.div_ceil(65_536).saturating_mul(65_536).saturating_add(100_000)
}

fn read_ranges(path: &Path, account: &Account) -> io::Result<Vec<SubordinateRange>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(parse_ranges(&text, account)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Lines that are not `OWNER:START:COUNT` grant nothing, as for newuidmap(1).
fn parse_ranges(text: &str, account: &Account) -> Vec<SubordinateRange> {
    let uid = account.uid.to_string();
    let range = |line: &str| {
        let mut fields = line.split(':');
        let (owner, start, count, rest) = (fields.next()?, fields.next()?, fields.next()?, fields.next());
        let ours = account.name.as_deref() == Some(owner) || owner == uid;
        let (start, count) = (start.parse().ok()?, count.parse().ok()?);
        (ours && rest.is_none() && count > 0).then_some(SubordinateRange { start, count })
    };
    text.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_number() {
        let text = "root:x:0:0:root:/root:/bin/bash\n#broken\ndev:x:1000:1000:D,,:/home/dev:/bin/sh\nodd:x:1000\n";
        assert_eq!(in_passwd(text, 1000), Some(("dev".to_owned(), PathBuf::from("/home/dev"))));
        assert_eq!(in_passwd(text, 10), None);
    }

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let account = Account { uid: 1001, gid: 1001, name: Some("dev0".into()), home: None };
        let text =
            "dev:1:2\ndev0:100000:65536\n1001:200000:65536\n# dev0:5:5\ndev0:x:1\ndev0:1:0\ndev0:1:2:3\ndev0:7\n";
        let expected =
            [SubordinateRange { start: 100_000, count: 65_536 }, SubordinateRange { start: 200_000, count: 65_536 }];
        assert_eq!(parse_ranges(text, &account), expected);
        let nameless = Account { name: None, ..account };
        assert_eq!(parse_ranges(text, &nameless), expected[1..]);
    }

    #[test]
    fn free_ids_begin_above_everybodys() {
        assert_eq!(first_above(""), 100_000);
        assert_eq!(first_above("a:100000:65536\n"), 165_536);
        assert_eq!(first_above("b:165536:65536\na:100000:65536\nx:y:z\n"), 231_072);
        assert_eq!(first_above("a:200000:1\n"), 231_072);
        assert_eq!(first_above("a:1000:10\n"), 100_000);
        assert_eq!(first_above("a:4294967295:10\n"), 100_000);
    }

    #[test]
    fn the_current_account_has_our_ids() {
        let account = Account::current().unwrap();
        assert_eq!(account.uid, nix::unistd::geteuid().as_raw());
        assert!(!account.label().is_empty());
    }
}
