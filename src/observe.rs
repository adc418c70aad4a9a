//! The process's log: the only place that builds a tracing subscriber.
//!
//! Each process of a Domain writes one file in the Domain's `logs` directory, one JSON object a
//! line, with the spans' fields (`domain`, `generation`, `session`, `actor`) in every line. A file
//! that reaches [`SIZE_LIMIT`] is renamed to `NAME.1`, replacing the one before. `LAZARET_LOG`
//! takes filter directives such as `lazaret=debug`; without it, `info` and above are written.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Size at which a log file is rotated, in bytes.
pub const SIZE_LIMIT: u64 = 4 << 20;

/// The environment variable with filter directives.
pub const FILTER_VARIABLE: &str = "LAZARET_LOG";

/// A log that can't be opened or installed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The file can't be opened.
    #[error("the log file {path} can't be opened")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A subscriber is installed already.
    #[error("the log is set up already")]
    Installed,
}

/// Writes this process's log to a file from now on. The directory must exist.
pub fn to_file(path: &Path) -> Result<(), ObserveError> {
    let log =
        RotatingFile::open(path, SIZE_LIMIT).map_err(|source| ObserveError::Open { path: path.to_owned(), source })?;
    install(Shared(Mutex::new(log)))
}

/// Writes this process's log to an open file from now on, without rotation: for a process that was
/// handed a descriptor because it can't reach the path.
pub fn to_open_file(file: File) -> Result<(), ObserveError> {
    install(Mutex::new(file))
}

fn install<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(writer: W) -> Result<(), ObserveError> {
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(true)
        .with_env_filter(filter())
        .with_writer(writer)
        .finish();
    tracing::subscriber::set_global_default(subscriber).map_err(|_| ObserveError::Installed)?;
    log_panics();
    Ok(())
}

/// Writes panics to the log as well: the standard error of a Domain's processes leads nowhere.
fn log_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(%panic, "a thread panicked");
        before(panic);
    }));
}

fn filter() -> EnvFilter {
    let directives = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).parse_lossy(directives)
}

/// A log file that keeps itself below a size.
#[derive(Debug)]
struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
}

impl RotatingFile {
    fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let file = open_log(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, limit })
    }

    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, previous(&self.path))?;
        self.file = open_log(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A failed rotation keeps the old file: a long log is better than none.
        if self.size > 0 && self.size + line.len() as u64 > self.limit && self.rotate().is_err() {
            self.size = 0;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a log file for appending, making it with mode 0600; a symbolic link at its end is refused.
pub fn open_log(path: &Path) -> io::Result<File> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(no_follow).open(path)
}

/// Gives the name of the rotated file.
pub fn previous(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// The log file behind its lock. A line is one write, so lines never mix.
struct Shared(Mutex<RotatingFile>);

/// One borrowed use of [`Shared`].
struct Line<'a>(std::sync::MutexGuard<'a, RotatingFile>);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<'a> MakeWriter<'a> for Shared {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        // A thread that panicked while it wrote leaves at worst half a line.
        Line(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_rotated_once_and_stays_private() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("coordinator.log");
        let mut log = RotatingFile::open(&path, 100).unwrap();
        for line in 0..25 {
            log.write_all(format!("line {line:04}\n").as_bytes()).unwrap();
        }
        let now = std::fs::read_to_string(&path).unwrap();
        let before = std::fs::read_to_string(previous(&path)).unwrap();
        assert!(now.ends_with("line 0024\n") && now.len() <= 100);
        assert!(before.len() <= 100 && before.starts_with("line "));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_symbolic_link_in_the_place_of_the_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("coordinator.log");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(RotatingFile::open(&path, 100).is_err());
    }
}
