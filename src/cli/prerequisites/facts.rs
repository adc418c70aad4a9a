//! Gathers what [`super::judge`] judges.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::elf::{self, Linkage};
use super::runsc::{self, Version};
use crate::cli::places::Places;
use crate::domain::artifact::{GuestUser, IdMapping};
use crate::domain::failure::Failure;
use crate::policy::mapping::{granted, identity_mapping};
use crate::sys::accounts::{self, Account, SubordinateIds};
use crate::sys::namespaces::own_ids;
use crate::sys::{directories, errand, executables};

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only what takes system calls.
    Quick,
    /// Everything.
    Thorough,
}

/// The result of really doing something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// It was not tried.
    Untried,
    /// It works.
    Works,
    /// It does not; what was said.
    Fails(String),
}

/// A set-user-ID helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Helper {
    /// It is not installed.
    Absent,
    /// It is installed without the privilege that it needs.
    Powerless(PathBuf),
    /// It is installed.
    Privileged(PathBuf),
}

/// The installed runsc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runsc {
    /// It is not installed.
    Absent,
    /// It is installed and does not tell its version; why.
    Silent(PathBuf, String),
    /// It is installed.
    Present(PathBuf, Version),
}

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// It can be opened.
    Opens,
    /// It does not exist, or its driver is not there.
    Absent,
    /// It cannot be opened; what the kernel said.
    Refuses(String),
}

/// The sandbox-side executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guest {
    /// It is in none of these places.
    Absent(Vec<PathBuf>),
    /// It is there and linked so.
    Present(PathBuf, Linkage),
}

/// The directory that holds Domains' runtime directories, or its nearest parent that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeBase {
    /// The directory.
    pub path: PathBuf,
    /// Whether `XDG_RUNTIME_DIR` gave it.
    pub origin: Origin,
    /// What stands in the way of using it.
    pub obstacle: Option<String>,
}

/// Where the runtime directory's path came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `XDG_RUNTIME_DIR`.
    Environment,
    /// The fallback.
    Fallback,
}

/// The standard streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalFact {
    /// Standard input or output is no terminal.
    Absent,
    /// Both are; the value of `TERM`.
    Present(Option<String>),
}

/// Everything that is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Who asks, as messages call them.
    pub user: String,
    /// Their user id.
    pub uid: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The processor.
    pub architecture: &'static str,
    /// `kernel.unprivileged_userns_clone`, where the kernel has it.
    pub unprivileged_userns_clone: Option<u64>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, where the kernel has it.
    pub apparmor_restriction: Option<u64>,
    /// Creating namespaces.
    pub namespaces: Trial,
    /// How many subordinate user ids are granted.
    pub subordinate_uids: u64,
    /// How many subordinate group ids are granted.
    pub subordinate_gids: u64,
    /// The first subordinate user id that nobody has.
    pub free_uid: u32,
    /// The first subordinate group id that nobody has.
    pub free_gid: u32,
    /// newuidmap.
    pub newuidmap: Helper,
    /// newgidmap.
    pub newgidmap: Helper,
    /// Mapping all ids into namespaces.
    pub mapping: Trial,
    /// runsc.
    pub runsc: Runsc,
    /// slirp4netns.
    pub slirp4netns: Option<PathBuf>,
    /// umoci.
    pub umoci: Option<PathBuf>,
    /// git.
    pub git: Option<PathBuf>,
    /// `/dev/net/tun`.
    pub tun: Device,
    /// `/dev/fuse`.
    pub fuse: Device,
    /// The Storage Root.
    pub storage: PathBuf,
    /// An overlay with its writable layer where the Storage Root is.
    pub overlay: Trial,
    /// Whether the kernel makes IPv6 sockets.
    pub ipv6: Trial,
    /// `kernel.yama.ptrace_scope`, where the kernel has it.
    pub ptrace_scope: Option<u64>,
    /// The sandbox-side executable.
    pub guest: Guest,
    /// The runtime directory.
    pub runtime: RuntimeBase,
    /// The terminal.
    pub terminal: TerminalFact,
}

impl Facts {
    /// Gathers all facts; what a quick look leaves out stays [`Trial::Untried`].
    pub async fn gather(places: &Places, depth: Depth) -> Self {
        let account = account();
        let subordinate = SubordinateIds::of(&account).unwrap_or_default();
        let apparmor_restriction = number("kernel/apparmor_restrict_unprivileged_userns");
        // Only a trial tells whether a profile lifts AppArmor's restriction.
        let restricted = apparmor_restriction.is_some_and(|value| value != 0);
        let thorough = depth == Depth::Thorough;
        let namespaces = if thorough || restricted { try_namespaces(&own_ids()).await } else { Trial::Untried };
        let mapping = if thorough { try_mapping(&account, &subordinate).await } else { Trial::Untried };
        let overlay = if thorough { try_overlay(places.storage.path()).await } else { Trial::Untried };
        Self {
            user: account.label(),
            uid: account.uid,
            kernel: kernel(),
            architecture: std::env::consts::ARCH,
            unprivileged_userns_clone: number("kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("user/max_user_namespaces"),
            apparmor_restriction,
            namespaces,
            subordinate_uids: granted(account.uid, &subordinate.uids),
            subordinate_gids: granted(account.gid, &subordinate.gids),
            free_uid: accounts::first_free(Path::new("/etc/subuid")),
            free_gid: accounts::first_free(Path::new("/etc/subgid")),
            newuidmap: helper("newuidmap"),
            newgidmap: helper("newgidmap"),
            mapping,
            runsc: runsc(places),
            slirp4netns: executables::find("slirp4netns"),
            umoci: executables::find("umoci"),
            git: executables::find("git"),
            tun: device(Path::new("/dev/net/tun")),
            fuse: device(Path::new("/dev/fuse")),
            storage: places.storage.path().to_owned(),
            overlay,
            ipv6: try_ipv6(),
            ptrace_scope: number("kernel/yama/ptrace_scope"),
            guest: guest(),
            runtime: runtime(places, account.uid),
            terminal: terminal(),
        }
    }
}

/// A user database that cannot be read leaves the numbers, which is what the kernel goes by.
fn account() -> Account {
    Account::current().unwrap_or_else(|_| Account {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        name: None,
        home: None,
    })
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Reads a number below `/proc/sys`; `None` when the kernel does not have it.
fn number(name: &str) -> Option<u64> {
    std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?.trim().parse().ok()
}

async fn try_namespaces(mapping: &IdMapping) -> Trial {
    match errand::try_namespaces(mapping).await {
        Ok(()) => Trial::Works,
        Err(error) => Trial::Fails(Failure::of(&error).line()),
    }
}

async fn try_mapping(account: &Account, subordinate: &SubordinateIds) -> Trial {
    // As for an image whose user is not root, which has the most ranges.
    let user =
        GuestUser { uid: 1000, gid: 1000, groups: Vec::new(), name: None, home: String::new(), shell: String::new() };
    match identity_mapping(&user, (account.uid, account.gid), &subordinate.uids, &subordinate.gids) {
        Ok(mapping) => try_namespaces(&mapping).await,
        Err(_) => Trial::Untried,
    }
}

async fn try_overlay(storage: &Path) -> Trial {
    // On the file system of the Storage Root, which need not exist yet.
    let Some(existing) = storage.ancestors().find(|ancestor| ancestor.is_dir()) else { return Trial::Untried };
    let trial = existing.join(format!(".lazaret-doctor-{}", std::process::id()));
    if let Err(error) = directories::ensure_private(&trial) {
        return Trial::Fails(Failure::of(&error).line());
    }
    let result = errand::try_overlay(&trial).await;
    // What is left over is private, empty but for directories, and named after its purpose.
    let _ = directories::remove_tree(&trial);
    match result {
        Ok(()) => Trial::Works,
        // That namespaces fail has a check of its own.
        Err(errand::ErrandError::Namespace { .. }) => Trial::Untried,
        Err(error) => Trial::Fails(Failure::of(&error).line()),
    }
}

fn try_ipv6() -> Trial {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    match socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None) {
        Ok(_) => Trial::Works,
        Err(error) => Trial::Fails(error.to_string()),
    }
}

fn helper(name: &str) -> Helper {
    let Some(path) = executables::find(name) else { return Helper::Absent };
    let set_user_id = path.metadata().is_ok_and(|metadata| metadata.uid() == 0 && metadata.mode() & 0o4000 != 0);
    // Reading with no room tells whether the attribute is there (getxattr(2)).
    let capable = rustix::fs::getxattr(&path, "security.capability", &mut [0u8; 0][..]).is_ok();
    if set_user_id || capable { Helper::Privileged(path) } else { Helper::Powerless(path) }
}

fn runsc(places: &Places) -> Runsc {
    let Some(path) = executables::find("runsc") else { return Runsc::Absent };
    match runsc::version(&path, &places.storage) {
        Ok(version) => Runsc::Present(path, version),
        Err(error) => Runsc::Silent(path, error.to_string()),
    }
}

fn device(path: &Path) -> Device {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(_) => Device::Opens,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV | rustix::io::Errno::NXIO) => Device::Absent,
        Err(error) => Device::Refuses(io::Error::from(error).to_string()),
    }
}

fn guest() -> Guest {
    let Some(path) = executables::guest() else { return Guest::Absent(executables::guest_candidates()) };
    let mut head = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(elf::HEAD as u64).read_to_end(&mut head));
    let linkage = read.map_or(Linkage::Foreign, |_| elf::linkage(&head));
    Guest::Present(path, linkage)
}

fn runtime(places: &Places, uid: u32) -> RuntimeBase {
    let path = places.runtime_base.clone();
    let given = std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|given| path.starts_with(given));
    // The nearest directory that exists must let us in; the others are made.
    let obstacle = path.ancestors().find_map(|ancestor| {
        let metadata = match ancestor.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(Some(format!("{}: {error}", ancestor.display()))),
        };
        let writable = rustix::fs::access(ancestor, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
        let ours = ancestor != path || (metadata.is_dir() && metadata.uid() == uid);
        Some(match writable {
            _ if !ours => Some(format!("{} is not a directory of this user", ancestor.display())),
            Err(error) => Some(format!("{}: {}", ancestor.display(), io::Error::from(error))),
            Ok(()) => None,
        })
    });
    let origin = if given { Origin::Environment } else { Origin::Fallback };
    RuntimeBase { path, origin, obstacle: obstacle.flatten() }
}

fn terminal() -> TerminalFact {
    use std::io::IsTerminal;
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        TerminalFact::Present(std::env::var("TERM").ok().filter(|term| !term.is_empty()))
    } else {
        TerminalFact::Absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_apart() {
        assert_eq!(device(Path::new("/dev/null")), Device::Opens);
        assert_eq!(device(Path::new("/dev/no-such-device")), Device::Absent);
        assert!(matches!(device(Path::new("/dev")), Device::Refuses(_)));
    }

    #[test]
    fn a_helper_needs_a_privilege() {
        assert!(matches!(helper("sh"), Helper::Powerless(_)));
        assert_eq!(helper("no-such-helper"), Helper::Absent);
        assert!(matches!(helper("su"), Helper::Privileged(_)));
    }

    #[test]
    fn what_stands_in_the_way_of_a_runtime_directory_is_named() {
        use crate::domain::layout::StorageRoot;
        let base = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let places = |path: &str| Places {
            configuration: base.path().join("c"),
            storage: StorageRoot::new(base.path().join("s")),
            runtime_base: base.path().join(path),
        };
        assert_eq!(runtime(&places("new/lazaret"), uid).obstacle, None);
        std::fs::write(base.path().join("file"), "").unwrap();
        let obstacle = runtime(&places("file"), uid).obstacle.unwrap();
        assert!(obstacle.ends_with("is not a directory of this user"), "{obstacle}");
        std::fs::create_dir(base.path().join("foreign")).unwrap();
        assert!(runtime(&places("foreign"), uid + 1).obstacle.is_some());
    }
}
