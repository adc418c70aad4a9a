//! Exact ownership: what recovery compares with the world before it touches anything (FR-7, FR-13).
//!
//! A path or a number alone proves nothing, since both are reused. Each type here pairs the
//! handle with something the kernel does not hand out twice within one boot.

use serde::{Deserialize, Serialize};

/// A process, exactly: a process id is reused, the pair with its start time within one boot is not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id in the Host Coordinator's pid namespace.
    pub pid: i32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat` (proc(5)).
    pub start_time: u64,
    /// The boot during which it was recorded.
    pub boot_id: BootId,
}

/// One boot of this machine, as `/proc/sys/kernel/random/boot_id` names it (random(4)).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(String);

impl BootId {
    /// Takes what the kernel says.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A namespace, exactly, by device and inode of its `/proc/PID/ns/*` file (namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamespaceIdentity {
    /// Device of the nsfs.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// A mount in the Runtime Supervisor's mount namespace, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MountIdentity {
    /// Mount point, absolute.
    pub target: String,
    /// Mount id, first field of `/proc/self/mountinfo` (proc(5)); valid while the namespace lives.
    pub mount_id: u64,
    /// Device number of the mounted file system.
    pub device: u64,
}

/// A directory, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// What lies at a path, exactly: an inode number is reused after a deletion, the pair with its birth time is not.
///
/// Within one boot all three must agree. Across boots the device number may change (a file system
/// on another minor number), inode and birth time may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Birth time in nanoseconds since the epoch (statx(2)); absent where the file system has none.
    pub born: Option<i64>,
}

impl PathIdentity {
    /// Tells whether `other`, seen in the same boot, is the same thing.
    pub fn is(&self, other: &Self) -> bool {
        self == other
    }

    /// Tells whether `other`, seen in a later boot, is provably the same thing.
    pub fn is_across_boots(&self, other: &Self) -> bool {
        self.inode == other.inode && self.born.is_some() && self.born == other.born
    }
}
