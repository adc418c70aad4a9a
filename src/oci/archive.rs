//! Tar files as containers of named content: an index of where each entry lies, and bounded readers.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::untrusted::tame;

/// Most entries that an archive may have; real ones have a few hundred.
const ENTRY_LIMIT: usize = 100_000;

/// An archive that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file can't be opened.
    #[error("{} can't be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is compressed.
    #[error("{} is compressed: unpack it first, since images are read from it without unpacking", .0.display())]
    Compressed(PathBuf),
    /// The file is not a tar file.
    #[error("{} can't be read as a tar file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file has more entries than any image archive.
    #[error("{} has more than {ENTRY_LIMIT} entries", .0.display())]
    TooManyEntries(PathBuf),
}

/// Opens a regular file for reading; anything else, such as a FIFO that would block, is refused.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// An indexed tar file.
#[derive(Debug, Clone)]
pub struct Archive {
    file: Arc<File>,
    entries: Arc<HashMap<String, Entry>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File { offset: u64, size: u64 },
    Link(String),
}

impl Archive {
    /// Indexes a tar file; contents are skipped, so this takes little time for large files.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let file = open_regular(path).map_err(|source| ArchiveError::Open { path: path.to_owned(), source })?;
        let malformed = |source| ArchiveError::Malformed { path: path.to_owned(), source: tame(source) };
        let mut magic = [0; 4];
        let count = file.read_at(&mut magic, 0).map_err(malformed)?;
        if magic[..count].starts_with(&[0x1f, 0x8b]) || magic == [0x28, 0xb5, 0x2f, 0xfd] || magic == *b"\xfd7zX" {
            return Err(ArchiveError::Compressed(path.to_owned()));
        }
        let mut entries = HashMap::new();
        let mut archive = tar::Archive::new(&file);
        for (number, entry) in archive.entries_with_seek().map_err(malformed)?.enumerate() {
            let entry = entry.map_err(malformed)?;
            if number >= ENTRY_LIMIT {
                return Err(ArchiveError::TooManyEntries(path.to_owned()));
            }
            // A name that is not UTF-8 is none that an image's documents could refer to.
            let Some(name) = std::str::from_utf8(&entry.path_bytes()).ok().map(clean) else { continue };
            let kind = entry.header().entry_type();
            if kind.is_file() {
                entries.insert(name, Entry::File { offset: entry.raw_file_position(), size: entry.size() });
            } else if (kind.is_symlink() || kind.is_hard_link())
                && let Some(target) = entry.link_name_bytes()
                && let Ok(target) = std::str::from_utf8(&target)
            {
                let base = if kind.is_symlink() { name.rsplit_once('/').map_or("", |(parent, _)| parent) } else { "" };
                let target = clean(&format!("{base}/{target}"));
                entries.insert(name, Entry::Link(target));
            }
        }
        Ok(Self { file: Arc::new(file), entries: Arc::new(entries) })
    }

    /// Opens the content of an entry; one link to another entry of the archive is followed.
    pub fn content(&self, name: &str) -> Option<Content> {
        let name = clean(name);
        let entry = match self.entries.get(&name)? {
            Entry::Link(target) => self.entries.get(target)?,
            entry => entry,
        };
        match entry {
            Entry::File { offset, size } => {
                Some(Content { file: self.file.clone(), offset: *offset, size: *size, left: *size })
            }
            Entry::Link(_) => None,
        }
    }
}

/// The content of one entry, as a reader.
#[derive(Debug)]
pub struct Content {
    file: Arc<File>,
    offset: u64,
    size: u64,
    left: u64,
}

impl Content {
    /// Gives the content's size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..allowed], self.offset)?;
        if count == 0 && allowed > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Cleans an entry's name: no leading `./` and `/`, `..` clamped at the top.
fn clean(name: &str) -> String {
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn contents_are_found_by_name_and_through_one_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tar");
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        builder.append_data(&mut header, "./dir/file", &b"hello"[..]).unwrap();
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        builder.append_link(&mut link, "other/link", "../dir/file").unwrap();
        builder.append_link(&mut link, "outside", "../../etc/passwd").unwrap();
        builder.into_inner().unwrap().flush().unwrap();
        let archive = Archive::open(&path).unwrap();
        let read = |name: &str| {
            let mut text = String::new();
            archive.content(name).map(|mut content| content.read_to_string(&mut text).map(|_| text).unwrap())
        };
        assert_eq!(read("dir/file").as_deref(), Some("hello"));
        assert_eq!(read("other/link").as_deref(), Some("hello"));
        assert_eq!(read("outside"), None);
        assert_eq!(read("dir"), None);
    }

    #[test]
    fn what_is_no_tar_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tar");
        std::fs::write(&path, [0x1f, 0x8b, 8, 0, 0]).unwrap();
        assert!(matches!(Archive::open(&path), Err(ArchiveError::Compressed(_))));
        std::fs::write(&path, "text ".repeat(300)).unwrap();
        assert!(matches!(Archive::open(&path), Err(ArchiveError::Malformed { .. })));
        assert!(matches!(Archive::open(directory.path()), Err(ArchiveError::Open { .. })));
        assert!(matches!(Archive::open(&directory.path().join("none")), Err(ArchiveError::Open { .. })));
    }
}
