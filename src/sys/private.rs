//! Files and directories that only this user may look into.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Makes a directory with mode 0700; one that is already there is an error.
pub fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Writes a file with mode 0600 by renaming a complete one over it, so that a reader sees the old
/// content or the new one. It is not synced: it must survive this process, not the machine. One process
/// writes a path at a time; what a killed one left half-made is replaced.
pub fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    put_file(path, content, RenameFlags::empty())
}

/// Makes a file like [`write_file`] where nothing is; whatever lies there stays, and the call fails.
pub fn make_file(path: &Path, content: &[u8]) -> io::Result<()> {
    put_file(path, content, RenameFlags::NOREPLACE)
}

fn put_file(path: &Path, content: &[u8], flags: RenameFlags) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let making = path.with_file_name(name);
    let write = || {
        match std::fs::remove_file(&making) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&making)?;
        file.write_all(content)?;
        Ok(renameat_with(CWD, &making, CWD, path, flags)?)
    };
    write().inspect_err(|_| {
        std::fs::remove_file(&making).ok();
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_half_made_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.json");
        write_file(&path, b"one").unwrap();
        write_file(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let blocked = directory.path().join("blocked");
        std::fs::create_dir(&blocked).unwrap();
        std::fs::write(blocked.join("x"), "").unwrap();
        assert!(write_file(&blocked, b"x").is_err());
        assert!(make_file(&path, b"three").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
