//! Mounts, made by descriptor in this process's mount namespace.
//!
//! A mount is built detached (fsopen(2), open_tree(2)), given its attributes, and only then attached
//! to its target, so that it never appears half restricted. Sources and targets are descriptors, or
//! paths of which the last component is not followed: a path below a directory that a sandbox can
//! write must be opened with [`super::directories`] first.

mod target;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::libc;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, makedev, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::domain::ownership::MountIdentity;

pub use target::{MountError, Target};

/// Binds a file or directory, without what is mounted below it.
///
/// In a user namespace the kernel refuses this for a directory that has mounts of the outer
/// namespace below it, since they would be uncovered; use [`bind_recursive`] there.
pub fn bind<'a>(source: BorrowedFd<'_>, target: impl Into<Target<'a>>) -> Result<(), MountError> {
    attach(clone_tree(source, OpenTreeFlags::empty())?, target.into())
}

/// Binds a directory with everything mounted below it.
pub fn bind_recursive<'a>(source: BorrowedFd<'_>, target: impl Into<Target<'a>>) -> Result<(), MountError> {
    attach(clone_tree(source, OpenTreeFlags::AT_RECURSIVE)?, target.into())
}

/// Binds a file or directory with everything mounted below it, read-only before it appears.
pub fn bind_read_only<'a>(source: BorrowedFd<'_>, target: impl Into<Target<'a>>) -> Result<(), MountError> {
    let tree = clone_tree(source, OpenTreeFlags::AT_RECURSIVE)?;
    set_read_only(tree.as_fd())?;
    attach(tree, target.into())
}

/// Mounts an overlay of one writable layer over a read-only directory, for use in a user namespace
/// (`userxattr`). `upper` and `work` must lie on one file system that has user extended attributes.
pub fn overlay<'a>(
    lower: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
    target: impl Into<Target<'a>>,
) -> Result<(), MountError> {
    attach(detached_overlay(lower, upper, work, Writes::Durable)?, target.into())
}

/// Mounts an overlay as [`overlay`] does whose writable layer is thrown away with it (`volatile`): nothing is
/// ever forced to disk, neither by a program's fsync(2) nor when it is unmounted. `work` can't be used for
/// another mount afterwards.
pub fn transient_overlay<'a>(
    lower: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
    target: impl Into<Target<'a>>,
) -> Result<(), MountError> {
    attach(detached_overlay(lower, upper, work, Writes::Transient)?, target.into())
}

/// What becomes of the writable layer of an overlay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Durable,
    Transient,
}

/// Tells whether this kernel mounts an overlay with its writable layer in this directory, which
/// must be private to the caller, and in which three directories are made. Call it as root of a
/// user namespace of one's own.
pub fn overlay_supported(upper_directory: &Path) -> Result<(), MountError> {
    let open = |name: &str| {
        let path = upper_directory.join(name);
        let failed = |source| MountError::Target { path: path.clone(), source };
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        open_target(Target::Path(&path))
    };
    let (lower, upper, work) = (open("lower")?, open("upper")?, open("work")?);
    // Without extended attributes some kernels mount it all the same and then lose deletions.
    let attribute = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(upper_directory.join("upper"), "user.lazaret.trial", b"y", attribute).map_err(|error| {
        let said = ": its directory takes no user extended attributes".to_owned();
        MountError::Configure { filesystem: "overlay", said, source: error.into() }
    })?;
    detached_overlay(lower.as_fd(), upper.as_fd(), work.as_fd(), Writes::Durable).map(drop)
}

fn detached_overlay(
    lower: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
    writes: Writes,
) -> Result<OwnedFd, MountError> {
    detached("overlay", MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID, |context| {
        // The layers go by descriptor: the kernel takes colons and commas in paths for separators.
        for (key, layer) in [("lowerdir", lower), ("upperdir", upper), ("workdir", work)] {
            fsconfig_set_string(context, key, descriptor_path(layer).as_os_str().as_bytes())?;
        }
        if writes == Writes::Transient {
            fsconfig_set_flag(context, "volatile")?;
        }
        fsconfig_set_flag(context, "userxattr")
    })
}

/// Removes the mount at a path at once; what still uses it keeps it until it ends.
pub fn unmount(target: &Path) -> Result<(), MountError> {
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    rustix::mount::unmount(target, flags)
        .map_err(|error| MountError::Unmount { path: target.to_owned(), source: error.into() })
}

/// Gives the exact identity of the mount at a mount point.
pub fn mount_identity(target: &Path) -> Result<MountIdentity, MountError> {
    let failed = |source| MountError::Identify { path: target.to_owned(), source };
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let status = statx(CWD, target, flags, StatxFlags::MNT_ID).map_err(|error| failed(error.into()))?;
    if StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::MNT_ID) {
        let device = makedev(status.stx_dev_major, status.stx_dev_minor);
        Ok(MountIdentity { target: target.to_string_lossy().into_owned(), mount_id: status.stx_mnt_id, device })
    } else {
        Err(failed(io::Error::from(io::ErrorKind::Unsupported)))
    }
}

/// Gives the path by which another file's name can stand for a descriptor.
fn descriptor_path(fd: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string())
}

fn detached(
    filesystem: &'static str,
    attributes: MountAttrFlags,
    configure: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<OwnedFd, MountError> {
    let failed = |said, error: Errno| MountError::Configure { filesystem, said, source: error.into() };
    let context = fsopen(filesystem, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| failed(String::new(), error))?;
    configure(context.as_fd())
        .and_then(|()| fsconfig_create(context.as_fd()))
        .and_then(|()| fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes))
        .map_err(|error| failed(said(context.as_fd()), error))
}

/// Reads what the kernel has to say about a file system context: one line a read, with a letter for
/// its severity before it.
fn said(context: BorrowedFd<'_>) -> String {
    let mut lines = String::new();
    let mut line = [0u8; 512];
    while let Ok(length @ 1..) = rustix::io::read(context, &mut line) {
        let text = String::from_utf8_lossy(&line[..length]);
        let text = text.trim_end();
        lines.push_str(": ");
        lines.push_str(text.split_once(' ').map_or(text, |(_, message)| message));
    }
    lines
}

fn clone_tree(source: BorrowedFd<'_>, flags: OpenTreeFlags) -> Result<OwnedFd, MountError> {
    let flags =
        flags | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(source, c"", flags).map_err(|error| MountError::Clone(error.into()))
}

fn open_target(target: Target<'_>) -> Result<OwnedFd, MountError> {
    match target {
        Target::Path(path) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
                .map_err(|error| MountError::Target { path: path.to_owned(), source: error.into() })
        }
        Target::Descriptor(fd) => {
            fd.try_clone_to_owned().map_err(|source| MountError::Target { path: descriptor_path(fd), source })
        }
    }
}

fn attach(mount: OwnedFd, target: Target<'_>) -> Result<(), MountError> {
    let point = open_target(target)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, c"", &point, c"", flags)
        .map_err(|error| MountError::Attach { target: target.to_string(), source: error.into() })
}

/// As in mount_setattr(2).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn set_read_only(mount: BorrowedFd<'_>) -> Result<(), MountError> {
    let attributes = MountAttributes {
        set: MountAttrFlags::MOUNT_ATTR_RDONLY.bits().into(),
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is an empty NUL-terminated string, and the structure has the layout of
    // `struct mount_attr` with its size passed beside it; both live across the call, which only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(MountError::Restrict(io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::directories::open_root;
    use crate::sys::namespaces::tests::in_namespaces;
    use std::fs;

    fn below(base: &Path, name: &str) -> (PathBuf, OwnedFd) {
        let path = base.join(name);
        fs::create_dir_all(&path).unwrap();
        let fd = open_root(&path).unwrap();
        (path, fd)
    }

    /// Mounts another file system.
    fn tmpfs(target: &Path) {
        attach(detached("tmpfs", MountAttrFlags::empty(), |_| Ok(())).unwrap(), target.into()).unwrap();
    }

    #[test]
    fn an_overlay_writes_to_its_upper_only() {
        let Some(base) = in_namespaces("sys::mounts::tests::an_overlay_writes_to_its_upper_only") else { return };
        // Separators of overlay options in the paths on purpose.
        let (base, _) = below(&base, "a,b:c\\d ");
        let (lower_path, lower) = below(&base, "lower");
        let (upper_path, upper) = below(&base, "upper");
        let (_, work) = below(&base, "work");
        let (merged, _) = below(&base, "merged");
        fs::write(lower_path.join("file"), "lower").unwrap();
        overlay(lower.as_fd(), upper.as_fd(), work.as_fd(), &merged).unwrap();
        fs::write(merged.join("file"), "upper").unwrap();
        assert_eq!(fs::read_to_string(lower_path.join("file")).unwrap(), "lower");
        assert_eq!(fs::read_to_string(upper_path.join("file")).unwrap(), "upper");
        let identity = mount_identity(&merged).unwrap();
        assert_ne!(identity.mount_id, mount_identity(&base).unwrap().mount_id);
        let listed = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(
            listed
                .lines()
                .any(|line| line.starts_with(&format!("{} ", identity.mount_id)) && line.contains("userxattr"))
        );
        unmount(&merged).unwrap();
        assert_eq!(fs::read_dir(&merged).unwrap().count(), 0);
        assert!(matches!(unmount(&merged), Err(MountError::Unmount { .. })));
    }

    #[test]
    fn what_the_kernel_says_about_an_option_is_passed_on() {
        let Some(_) = in_namespaces("sys::mounts::tests::what_the_kernel_says_about_an_option_is_passed_on") else {
            return;
        };
        let set = |context: BorrowedFd<'_>| fsconfig_set_string(context, "size", "much");
        let error = detached("tmpfs", MountAttrFlags::empty(), set).unwrap_err();
        assert_eq!(error.to_string(), "cannot set up a mount of type tmpfs: tmpfs: Bad value for 'size'");
    }

    #[test]
    fn layers_on_two_file_systems_are_no_overlay() {
        let Some(base) = in_namespaces("sys::mounts::tests::layers_on_two_file_systems_are_no_overlay") else { return };
        let (_, lower) = below(&base, "lower");
        let (shared, _) = below(&base, "tmpfs");
        tmpfs(&shared);
        let (_, upper) = below(&shared, "upper");
        let (_, elsewhere) = below(&base, "work");
        let (merged, _) = below(&base, "merged");
        let error = overlay(lower.as_fd(), upper.as_fd(), elsewhere.as_fd(), &merged).unwrap_err();
        let MountError::Configure { filesystem: "overlay", source, .. } = error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn binds_are_seen_and_read_only_ones_refuse() {
        let Some(base) = in_namespaces("sys::mounts::tests::binds_are_seen_and_read_only_ones_refuse") else { return };
        let (source_path, source) = below(&base, "source");
        let (inner, _) = below(&source_path, "inner");
        tmpfs(&inner);
        fs::write(inner.join("file"), "").unwrap();
        let (plain, _) = below(&base, "plain");
        bind(source.as_fd(), &plain).unwrap();
        assert!(!plain.join("inner/file").exists());
        let (recursive, _) = below(&base, "recursive");
        bind_recursive(source.as_fd(), &recursive).unwrap();
        fs::write(recursive.join("inner/file"), "written").unwrap();
        let (restricted, restricted_fd) = below(&base, "restricted");
        bind_read_only(source.as_fd(), restricted_fd.as_fd()).unwrap();
        for file in ["new", "inner/file"] {
            let error = fs::write(restricted.join(file), "").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem, "{file}");
        }
        fs::write(plain.join("new"), "").unwrap();

        // Files too, and onto a descriptor.
        fs::write(base.join("config"), "mine").unwrap();
        fs::write(plain.join("config"), "").unwrap();
        let file = fs::File::open(base.join("config")).unwrap();
        let target = fs::File::open(plain.join("config")).unwrap();
        bind_read_only(file.as_fd(), target.as_fd()).unwrap();
        assert_eq!(fs::read_to_string(plain.join("config")).unwrap(), "mine");
        assert!(fs::write(plain.join("config"), "").is_err());
    }

    #[test]
    fn the_probe_for_overlays_leaves_nothing_mounted() {
        let Some(base) = in_namespaces("sys::mounts::tests::the_probe_for_overlays_leaves_nothing_mounted") else {
            return;
        };
        overlay_supported(&base).unwrap();
        overlay_supported(&base).unwrap();
        let listed = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!listed.contains("overlay"));
    }

    #[test]
    fn a_tree_with_a_mount_in_it_is_not_removed() {
        let Some(base) = in_namespaces("sys::mounts::tests::a_tree_with_a_mount_in_it_is_not_removed") else { return };
        let (precious, fd) = below(&base, "precious");
        fs::write(precious.join("file"), "").unwrap();
        let (target, _) = below(&base, "tree/a/b");
        bind(fd.as_fd(), &target).unwrap();
        let error = crate::sys::directories::remove_tree(&base.join("tree")).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::EXDEV));
        assert_eq!(error.path, target);
        assert!(precious.join("file").exists());
    }
}
