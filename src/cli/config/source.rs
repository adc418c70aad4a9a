//! A configuration file's text, read with care: bounded, a regular file, UTF-8.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{ConfigError, Problem};
use super::excerpt::NamedText;
use crate::policy::explain::Origin;

/// The largest configuration file that is read.
pub const SIZE_LIMIT: u64 = 1 << 20;

/// A configuration file that was read.
#[derive(Debug, Clone)]
pub struct SourceFile {
    path: PathBuf,
    text: Arc<str>,
}

impl SourceFile {
    /// Reads a file; `None` when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let fail = |source| ConfigError::Read { path: path.to_owned(), source };
        // Without O_NONBLOCK a named pipe in the file's place would make us wait for its writer.
        let opened = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_dangling(path) => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        if !file.metadata().map_err(fail)?.is_file() {
            return Err(ConfigError::NotAFile { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > SIZE_LIMIT {
            return Err(ConfigError::TooLarge { path: path.to_owned(), limit: SIZE_LIMIT });
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            ConfigError::NotUtf8 { path: path.to_owned(), line: 1 + valid.iter().filter(|b| **b == b'\n').count() }
        })?;
        // Some editors begin a file with a byte order mark; it says nothing in UTF-8.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        Ok(Some(Self::from_text(path, text)))
    }

    /// Takes text as if it had been read from a path.
    pub fn from_text(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.into() }
    }

    /// Gives the path as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Gives the line, from 1, that a byte offset is in.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.before(offset).matches('\n').count()
    }

    /// Gives the column, from 1 and in characters, that a byte offset is at.
    pub fn column(&self, offset: usize) -> usize {
        1 + self.before(offset).rsplit('\n').next().unwrap_or("").chars().count()
    }

    /// Gives where something that stands at a span comes from.
    pub fn origin(&self, span: &Range<usize>) -> Origin {
        Origin::File { path: self.path.clone(), line: self.line(span.start) }
    }

    /// Makes a problem at a span.
    pub fn problem(&self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem {
            message: message.into(),
            help: help.into(),
            path: self.path.clone(),
            line: self.line(span.start),
            column: self.column(span.start),
            span: (span.start, span.len()).into(),
            source_code: NamedText::new(&self.path, &self.text),
        }
    }

    fn before(&self, offset: usize) -> &str {
        self.text.get(..offset).unwrap_or(&self.text)
    }
}

/// Tells whether there is something at the path that cannot be followed, such as a symbolic link
/// to nowhere: that is a mistake to report and not an absent file.
fn is_dangling(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<Option<SourceFile>, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        std::fs::write(&path, content).unwrap();
        SourceFile::read(&path)
    }

    #[test]
    fn only_bounded_regular_text_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        assert!(SourceFile::read(&directory.path().join("absent")).unwrap().is_none());
        assert!(matches!(SourceFile::read(directory.path()), Err(ConfigError::NotAFile { .. })));
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(SourceFile::read(&pipe), Err(ConfigError::NotAFile { .. })));
        let dangling = directory.path().join("dangling");
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        assert!(matches!(SourceFile::read(&dangling), Err(ConfigError::Read { .. })));
        assert!(matches!(read(&vec![b' '; 10 << 20]), Err(ConfigError::TooLarge { .. })));
        assert!(matches!(read(b"a = 1\nb = \"\xff\"\n"), Err(ConfigError::NotUtf8 { line: 2, .. })));
        assert!(matches!(
            read("\u{feff}a = 1".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>().as_slice()),
            Err(ConfigError::NotUtf8 { line: 1, .. })
        ));
        assert_eq!(read("\u{feff}a = 1".as_bytes()).unwrap().unwrap().text(), "a = 1");
    }

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        let file = SourceFile::from_text(Path::new("x"), "ä = 1\nb = \"ü\" # x\n");
        assert_eq!((file.line(0), file.column(0)), (1, 1));
        let hash = file.text().find('#').unwrap();
        assert_eq!((file.line(hash), file.column(hash)), (2, 9));
        assert_eq!(file.line(10_000), 3);
    }
}
