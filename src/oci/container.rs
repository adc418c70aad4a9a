//! What the files of an image lie in: a directory, or a tar file.

use std::io::{self, Read};
use std::path::PathBuf;

use super::archive::{Archive, open_regular};

/// A container of named files.
#[derive(Debug, Clone)]
pub enum Container {
    /// A directory.
    Directory(PathBuf),
    /// A tar file.
    Archive(Archive),
}

/// An open file of a container.
pub struct OpenFile {
    /// Its content.
    pub content: Box<dyn Read>,
    /// Its size in bytes.
    pub size: u64,
}

impl Container {
    /// Opens a file. Nothing but a regular file is opened.
    pub fn open(&self, name: &str) -> io::Result<OpenFile> {
        match self {
            Self::Directory(path) => {
                let file = open_regular(&path.join(name))?;
                let size = file.metadata()?.len();
                Ok(OpenFile { content: Box::new(file), size })
            }
            Self::Archive(archive) => {
                let content = archive.content(name).ok_or(io::ErrorKind::NotFound)?;
                let size = content.size();
                Ok(OpenFile { content: Box::new(content), size })
            }
        }
    }

    /// Reads a file that may have so many bytes.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let OpenFile { content, size } = self.open(name)?;
        if size > limit {
            return Err(io::Error::other(format!("it is larger than {limit} bytes")));
        }
        let mut bytes = Vec::new();
        content.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
