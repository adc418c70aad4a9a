//! A log file that keeps itself below a size, with one older file beside it.
//!
//! The file is reached through a descriptor of its directory, since the Runtime Supervisor works in other
//! namespaces than the developer. Whatever is made there belongs to the directory's owner, so that
//! the developer can read what a supervisor writes that has another user id on the host.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, fchown, fstat, openat, renameat, renameat_with, statat};

/// Opens a directory for log files.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Gives the name of the file that was rotated away last.
pub fn previous(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// A log file that keeps itself below a size.
#[derive(Debug)]
pub(super) struct RotatingFile {
    directory: OwnedFd,
    name: String,
    file: File,
    limit: u64,
}

impl RotatingFile {
    /// Opens a log file for appending, or makes it with mode 0600. A symbolic link in its place is refused.
    pub(super) fn open(directory: OwnedFd, name: &str, limit: u64) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&directory, name, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(rustix::io::Errno::NOENT) => {
                let file = make(&directory, &making(name))?;
                renameat_with(&directory, making(name), &directory, name, RenameFlags::NOREPLACE)?;
                file
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { directory, name: name.to_owned(), file, limit })
    }

    /// Puts a new file in the place of this one, which becomes the older one.
    fn rotate(&mut self) -> io::Result<()> {
        let file = make(&self.directory, &making(&self.name))?;
        let older = previous(Path::new(&self.name));
        renameat(&self.directory, &self.name, &self.directory, older)?;
        renameat(&self.directory, making(&self.name), &self.directory, &self.name)?;
        self.file = file;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let size = self.file.metadata()?.len();
        if size > 0 && size + line.len() as u64 > self.limit && self.rotate().is_err() {
            // No log is worth a full disk.
            self.file.set_len(0)?;
        }
        self.file.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Gives the name that a log file has while it is made.
fn making(name: &str) -> String {
    format!("{name}.new")
}

/// Makes an empty file that belongs to the directory's owner.
fn make(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    let owner = fstat(directory)?.st_uid;
    if statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid != owner {
        fchown(&file, Some(rustix::fs::Uid::from_raw(owner)), None)?;
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn write(log: &mut RotatingFile, lines: std::ops::Range<u32>) {
        for line in lines {
            log.write_all(format!("line {line:04}\n").as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_full_file_is_rotated_and_one_older_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("coordinator.log");
        let open = || RotatingFile::open(directory(place.path()).unwrap(), "coordinator.log", 100).unwrap();
        write(&mut open(), 0..7);
        write(&mut open(), 7..25);
        let now = std::fs::read_to_string(&path).unwrap();
        let before = std::fs::read_to_string(previous(&path)).unwrap();
        assert_eq!((now.len(), before.len()), (50, 100));
        assert!(before.starts_with("line 0010\n") && now.starts_with("line 0020\n") && now.ends_with("line 0024\n"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
        // What others have added counts.
        std::fs::write(&path, "x".repeat(100)).unwrap();
        write(&mut open(), 25..26);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 0025\n");
    }

    #[test]
    fn what_cannot_be_rotated_is_bounded_all_the_same() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("coordinator.log");
        let mut log = RotatingFile::open(directory(place.path()).unwrap(), "coordinator.log", 100).unwrap();
        std::fs::create_dir(previous(&path)).unwrap();
        write(&mut log, 0..25);
        assert_eq!(std::fs::read_to_string(&path).unwrap().len(), 50);
    }

    #[test]
    fn a_symbolic_link_in_the_place_of_the_log_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let elsewhere = place.path().join("elsewhere");
        for name in ["dangling", "dangling.new"] {
            std::os::unix::fs::symlink(&elsewhere, place.path().join(name)).unwrap();
            let opened = RotatingFile::open(directory(place.path()).unwrap(), "dangling", 100);
            assert!(opened.is_err() && !elsewhere.exists(), "{name}");
        }
    }
}
