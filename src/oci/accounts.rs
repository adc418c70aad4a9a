//! The image's accounts: `/etc/passwd` and `/etc/group` (passwd(5), group(5)), and looking a user up in them.

use super::untrusted::list;
use crate::domain::artifact::{GuestUser, InvalidUser, UserSpec};

/// The content of an image's account files; empty where the image has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// `/etc/passwd`.
    pub passwd: Vec<u8>,
    /// `/etc/group`.
    pub group: Vec<u8>,
}

/// A user that can't be looked up in the image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// The image's own `USER` is not a user.
    #[error("the image's USER can't be used")]
    ImageUser(#[source] InvalidUser),
    /// No such user name.
    #[error("the image has no user '{name}'; it has {}", list(known))]
    NoUser {
        /// The name.
        name: String,
        /// Names that it has.
        known: Vec<String>,
    },
    /// No such group name.
    #[error("the image has no group '{name}'; it has {}", list(known))]
    NoGroup {
        /// The name.
        name: String,
        /// Names that it has.
        known: Vec<String>,
    },
    /// The number is not an id: 0 to 4294967294.
    #[error("{0} is not a user or group id")]
    OutOfRange(String),
}

/// Most supplementary groups that are taken; Linux allows 65536, a session needs a few.
const GROUP_LIMIT: usize = 256;

struct User<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
    shell: &'a str,
}

struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl Accounts {
    /// Looks up the user that a profile asks for, or else the one that the image names, or root.
    ///
    /// The rules are those of `USER` in container images: a number need not be in `/etc/passwd`; its
    /// group is then 0. Supplementary groups come from `/etc/group` unless a group is named.
    pub fn resolve(&self, asked: Option<&UserSpec>, image_user: Option<&str>) -> Result<GuestUser, AccountError> {
        let spec = match (asked, image_user.filter(|text| !text.is_empty())) {
            (Some(spec), _) => spec.clone(),
            // `USER name:` leaves the group to the account, as if the colon were not there.
            (None, Some(text)) => {
                let text = text.strip_suffix(':').unwrap_or(text);
                UserSpec::try_from(text.to_owned()).map_err(AccountError::ImageUser)?
            }
            (None, None) => UserSpec { user: "0".into(), group: None },
        };
        let user = self.find_user(&spec.user)?;
        let group = spec.group.as_deref().map(|group| self.find_group(group)).transpose()?;
        let gid = group.unwrap_or(user.gid);
        let groups = match (group, user.name) {
            (None, name) if !name.is_empty() => self.supplementary(name, gid),
            _ => Vec::new(),
        };
        Ok(GuestUser {
            uid: user.uid,
            gid,
            groups,
            name: (!user.name.is_empty()).then(|| user.name.to_owned()),
            home: if user.home.starts_with('/') { user.home.to_owned() } else { "/".into() },
            shell: if user.shell.starts_with('/') { user.shell.to_owned() } else { "/bin/sh".into() },
        })
    }

    fn find_user<'a>(&'a self, wanted: &'a str) -> Result<User<'a>, AccountError> {
        let number = parse_id(wanted)?;
        // A name wins over a number, and the first entry over later ones, as in getpwnam(3).
        let named = self.users().find(|user| user.name == wanted);
        let numbered = || self.users().find(|user| Some(user.uid) == number);
        let unlisted = || number.map(|uid| User { name: "", uid, gid: 0, home: "/", shell: "" });
        named.or_else(numbered).or_else(unlisted).ok_or_else(|| AccountError::NoUser {
            name: wanted.to_owned(),
            known: self.users().take(40).map(|user| user.name.to_owned()).collect(),
        })
    }

    fn find_group(&self, wanted: &str) -> Result<u32, AccountError> {
        let number = parse_id(wanted)?;
        let named = self.groups().find(|group| group.name == wanted).map(|group| group.gid);
        named.or(number).ok_or_else(|| AccountError::NoGroup {
            name: wanted.to_owned(),
            known: self.groups().take(40).map(|group| group.name.to_owned()).collect(),
        })
    }

    fn supplementary(&self, user: &str, primary: u32) -> Vec<u32> {
        let belongs = |group: &Group| group.gid != primary && group.members.split(',').any(|name| name.trim() == user);
        let mut groups: Vec<u32> = self.groups().filter(belongs).map(|group| group.gid).take(GROUP_LIMIT).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Entries of `/etc/passwd`; lines that are not entries are skipped, as the C library does.
    fn users(&self) -> impl Iterator<Item = User<'_>> {
        lines(&self.passwd).filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let (uid, gid) = (strict_id(fields.next()?)?, strict_id(fields.next()?)?);
            let (_comment, home) = (fields.next()?, fields.next()?);
            let shell = fields.next().unwrap_or("");
            (!name.is_empty()).then_some(User { name, uid, gid, home, shell })
        })
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        lines(&self.group).filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let gid = strict_id(fields.next()?)?;
            (!name.is_empty()).then_some(Group { name, gid, members: fields.next().unwrap_or("") })
        })
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &str> {
    // A line that is not UTF-8, or holds a NUL, names nobody that a profile could ask for.
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok())
        .filter(|line| !line.contains('\0'))
}

fn strict_id(text: &str) -> Option<u32> {
    // 4294967295 is -1, which chown(2) and setresuid(2) take as "leave as it is".
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| digits && *id != u32::MAX)
}

/// Gives the number when the text is one, nothing when it is a name.
fn parse_id(text: &str) -> Result<Option<u32>, AccountError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    strict_id(text).map(Some).ok_or_else(|| AccountError::OutOfRange(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: b"root:x:0:0:root:/root:/bin/bash\n# comment\n\ndev:x:1000:1000:Dev,,,:/home/dev:/bin/zsh\n\
                bad\xff:x:7:7::/:/bin/sh\nhalf:x:8\nminus:x:4294967295:0::/:/bin/sh\ndev:x:5:5::/other:/x\nbare:x:9:9::rel:\n"
                .to_vec(),
            group: b"root:x:0:\nsudo:x:27:other,dev\ndev:x:1000:dev\ndocker:x:99:dev\nnobody\n".to_vec(),
        }
    }

    fn resolve(text: &str) -> Result<GuestUser, AccountError> {
        accounts().resolve(Some(&UserSpec::try_from(text.to_owned()).unwrap()), Some("root"))
    }

    #[test]
    fn a_name_gets_its_entry_and_its_groups() {
        let user = resolve("dev").unwrap();
        assert_eq!((user.uid, user.gid), (1000, 1000));
        assert_eq!(user.groups, [27, 99]);
        assert_eq!(
            (user.home.as_str(), user.shell.as_str(), user.name.as_deref()),
            ("/home/dev", "/bin/zsh", Some("dev"))
        );
        assert_eq!(resolve("1000").unwrap(), user, "a number finds the same entry");
    }

    #[test]
    fn a_named_group_replaces_all_groups() {
        let user = resolve("dev:sudo").unwrap();
        assert_eq!((user.uid, user.gid, user.groups.len()), (1000, 27, 0));
        assert_eq!(resolve("dev:4711").unwrap().gid, 4711);
    }

    #[test]
    fn a_number_without_entry_is_taken_and_a_name_without_one_refused() {
        let user = resolve("4711").unwrap();
        assert_eq!((user.uid, user.gid, user.name, user.home.as_str()), (4711, 0, None, "/"));
        assert_eq!(user.shell, "/bin/sh");
        let refused = resolve("nobody").unwrap_err().to_string();
        assert_eq!(refused, "the image has no user 'nobody'; it has root, dev, dev, bare");
        assert!(matches!(resolve("dev:nobody"), Err(AccountError::NoGroup { .. })));
        assert_eq!(resolve("4294967295"), Err(AccountError::OutOfRange("4294967295".into())));
        assert!(matches!(resolve("minus"), Err(AccountError::NoUser { .. })));
    }

    #[test]
    fn the_image_decides_when_the_profile_does_not_and_root_when_neither_does() {
        let user = |image: Option<&str>| accounts().resolve(None, image).map(|user| user.uid);
        assert_eq!(user(Some("dev")), Ok(1000));
        assert_eq!(user(Some("dev:")), Ok(1000));
        assert_eq!(user(None), Ok(0));
        assert_eq!(user(Some("")), Ok(0));
        assert!(matches!(user(Some(":x")), Err(AccountError::ImageUser(_))));
        assert_eq!(Accounts::default().resolve(None, None).unwrap().shell, "/bin/sh");
    }

    #[test]
    fn fields_that_are_no_absolute_paths_fall_back() {
        let user = resolve("bare").unwrap();
        assert_eq!((user.home.as_str(), user.shell.as_str()), ("/", "/bin/sh"));
    }
}
