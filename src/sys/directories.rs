//! Directories and files reached without trusting what lies on the way.
//!
//! Two kinds of resolution (openat2(2)): *in a root* takes symbolic links as a process chrooted
//! there would, for trees that have a root of their own, such as an image's; *beneath* takes none.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2, unlinkat};
use rustix::io::Errno;

use crate::domain::ownership::DirectoryIdentity;

pub use super::removal::{RemovalError, remove_tree};

/// A private directory that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The path does not begin at the root.
    #[error("{path} is not an absolute path")]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// A component could not be made.
    #[error("cannot create the directory {path}")]
    Create {
        /// The component.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The directory could not be opened; a symbolic link or a file is not one.
    #[error("cannot open {path} as a directory of our own")]
    Open {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Somebody else owns it.
    #[error("{path} belongs to user {owner}, not to user {expected}")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who should.
        expected: u32,
    },
    /// Others' access could not be taken away.
    #[error("cannot make {path} private")]
    Restrict {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Makes sure that a directory exists, is no symbolic link, belongs to this user and is accessible
/// to this user only, and opens it. Missing parents are made with mode 0700; present ones are taken
/// as they are.
pub fn ensure_private(path: &Path) -> Result<OwnedFd, DirectoryError> {
    if !path.is_absolute() {
        return Err(DirectoryError::Relative { path: path.to_owned() });
    }
    let missing: Vec<&Path> = path.ancestors().take_while(|ancestor| ancestor.symlink_metadata().is_err()).collect();
    for component in missing.into_iter().rev() {
        match rustix::fs::mkdir(component, Mode::RWXU) {
            // Another process of ours may make the same directories.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(DirectoryError::Create { path: component.to_owned(), source: error.into() }),
        }
    }
    let open = |source: io::Error| DirectoryError::Open { path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| open(error.into()))?;
    let status = fstat(&directory).map_err(|error| open(error.into()))?;
    let expected = rustix::process::geteuid().as_raw();
    if status.st_uid != expected {
        return Err(DirectoryError::Foreign { path: path.to_owned(), owner: status.st_uid, expected });
    }
    if Mode::from_raw_mode(status.st_mode) != Mode::RWXU {
        fchmod(&directory, Mode::RWXU)
            .map_err(|error| DirectoryError::Restrict { path: path.to_owned(), source: error.into() })?;
    }
    Ok(directory)
}

/// Gives the exact identity of an opened directory or file.
pub fn identity(directory: impl AsFd) -> io::Result<DirectoryIdentity> {
    let status = fstat(directory)?;
    Ok(DirectoryIdentity { device: status.st_dev, inode: status.st_ino })
}

/// Opens a directory by path for use as a root, whatever links lead to it.
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a path as a location (O_PATH), with `root` as the root of every symbolic link and `..`.
pub fn open_in_root(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    resolve(root, path, OFlags::PATH, IN_ROOT)
}

/// Opens a path as a location (O_PATH) without following any symbolic link or leaving `directory`.
pub fn open_beneath(directory: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    resolve(directory, path, OFlags::PATH, beneath)
}

const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

fn resolve(root: BorrowedFd<'_>, path: &Path, flags: OFlags, how: ResolveFlags) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // EAGAIN: a rename somewhere on the system raced with a `..` (openat2(2)).
    loop {
        match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Opens a directory of a tree with a root of its own, and makes what is missing of it with mode 0755.
pub fn create_directories_in_root(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let mut reached = PathBuf::new();
    let mut directory = resolve(root, &reached, OFlags::PATH | OFlags::DIRECTORY, IN_ROOT)?;
    for component in path.components() {
        let name = match component {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL.into()),
        };
        reached.push(name);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        directory = match resolve(root, &reached, flags, IN_ROOT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                mkdirat(&directory, name, Mode::from_raw_mode(0o755))?;
                openat(&directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?
            }
            result => result?,
        };
    }
    Ok(directory)
}

/// Puts a regular file into a tree with a root of its own, in place of a file or symbolic link of
/// that name. Missing directories are made.
pub fn replace_in_root(root: BorrowedFd<'_>, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name: &OsStr = path.file_name().ok_or(Errno::INVAL)?;
    let directory = create_directories_in_root(root, path.parent().unwrap_or(Path::new("")))?;
    match unlinkat(&directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    let mut file = std::fs::File::from(openat(&directory, name, flags, mode)?);
    file.write_all(content)?;
    // Once more, past the umask.
    Ok(fchmod(&file, mode)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let fd = open_root(directory.path()).unwrap();
        (directory, fd)
    }

    #[test]
    fn a_private_directory_is_made_and_tightened() {
        let (base, _) = tree();
        let path = base.path().join("a/b");
        let made = ensure_private(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let again = ensure_private(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(identity(&made).unwrap(), identity(&again).unwrap());
    }

    #[test]
    fn links_files_and_relative_paths_are_no_private_directories() {
        let (base, _) = tree();
        std::fs::create_dir(base.path().join("real")).unwrap();
        symlink(base.path().join("real"), base.path().join("link")).unwrap();
        symlink(base.path().join("nowhere"), base.path().join("dangling")).unwrap();
        std::fs::write(base.path().join("file"), "").unwrap();
        for name in ["link", "dangling", "file"] {
            assert!(matches!(ensure_private(&base.path().join(name)), Err(DirectoryError::Open { .. })), "{name}");
        }
        assert!(ensure_private(&base.path().join("link/below")).is_ok(), "parents are taken as they are");
        assert!(matches!(ensure_private(Path::new("x")), Err(DirectoryError::Relative { .. })));
    }

    #[test]
    fn a_root_confines_links() {
        let (base, root) = tree();
        std::fs::create_dir(base.path().join("etc")).unwrap();
        std::fs::write(base.path().join("etc/passwd"), "inside").unwrap();
        let inside = identity(std::fs::File::open(base.path().join("etc/passwd")).unwrap()).unwrap();
        symlink("/etc/passwd", base.path().join("absolute")).unwrap();
        symlink("../../../../etc/passwd", base.path().join("upwards")).unwrap();
        for name in ["absolute", "upwards", "/etc/passwd", "../etc/passwd"] {
            let found = identity(open_in_root(root.as_fd(), Path::new(name)).unwrap()).unwrap();
            assert_eq!(found, inside, "{name}");
        }
        for name in ["absolute", "upwards", "/etc/passwd", "../etc/passwd"] {
            assert!(open_beneath(root.as_fd(), Path::new(name)).is_err(), "{name}");
        }
        assert!(open_beneath(root.as_fd(), Path::new("etc/passwd")).is_ok());
        assert!(open_beneath(root.as_fd(), Path::new("")).is_ok());
    }

    #[test]
    fn a_file_is_put_where_a_chrooted_process_would_see_it() {
        let (base, root) = tree();
        std::fs::create_dir(base.path().join("usr")).unwrap();
        symlink("/usr", base.path().join("etc")).unwrap();
        let put = |path: &str| replace_in_root(root.as_fd(), Path::new(path), b"x", 0o644);
        put("/etc/deep/hosts").unwrap();
        assert_eq!(std::fs::read(base.path().join("usr/deep/hosts")).unwrap(), b"x");

        let victim = base.path().join("victim");
        std::fs::write(&victim, "kept").unwrap();
        symlink(&victim, base.path().join("usr/resolv.conf")).unwrap();
        put("/etc/resolv.conf").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept", "the link is replaced, not followed");
        assert!(base.path().join("usr/resolv.conf").symlink_metadata().unwrap().is_file());

        symlink("/nowhere", base.path().join("dangling")).unwrap();
        assert!(put("dangling/file").is_err());
        assert!(put("..").is_err());
    }
}
