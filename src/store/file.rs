//! Opens a redb file that only we can have written, and makes a new one whole or not at all.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, ReadableDatabase, StorageBackend, StorageError};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::backend::KeepsSpace;
use super::held::HoldsBack;
use super::records::{META, MIGRATIONS, Migration, RecordError, SCHEMA, SCHEMA_KEY};
use crate::fault;

/// How much of a store is kept in memory; a whole store is smaller.
const CACHE_BYTES: usize = 1 << 20;

/// Why a store's file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The directory can't be opened.
    #[error("can't open the directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file can't be opened or made.
    #[error("can't open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// We may not open it.
    #[error("no permission to open {}", path.display())]
    Permission {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody else could have written it, or could write it now.
    #[error("{} is not private: {why}", path.display())]
    NotPrivate {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another process has it open.
    #[error("{} is open in another process", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A newer Lazaret wrote it.
    #[error("{} has schema version {found}; this Lazaret knows versions up to {SCHEMA}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u64,
    },
    /// Its content makes no sense.
    #[error("{} is damaged: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// One of its records makes no sense.
    #[error("{} is damaged", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Which.
        #[source]
        source: RecordError,
    },
    /// Reading it failed.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// Writing it failed. What was last committed is still there.
    #[error("can't write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// A value can't be encoded.
    #[error("can't encode a record for {}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rmp_serde::encode::Error,
    },
}

/// Opens the store at `path`, making it when there is none. Its directory must be private to us.
pub(super) fn open(path: &Path) -> Result<Database, FileError> {
    let directory = open_directory(path)?;
    let name = path.file_name().unwrap_or_default();
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match openat(&directory, name, flags, Mode::empty()) {
        Ok(file) => {
            check_file(&file, path)?;
            open_database(path, File::from(file))
        }
        Err(Errno::NOENT) => create(path, &directory, name),
        Err(error) => Err(open_error(path, error)),
    }
}

/// Gives an error of redb while reading its right name.
pub(super) fn read_error(path: &Path, error: impl Into<redb::Error>) -> FileError {
    match error.into() {
        redb::Error::Corrupted(detail) => FileError::Corrupt { path: path.to_owned(), detail },
        error => FileError::Read { path: path.to_owned(), source: Box::new(error) },
    }
}

/// Gives an error of redb while writing its right name.
pub(super) fn write_error(path: &Path, error: impl Into<redb::Error>) -> FileError {
    match error.into() {
        redb::Error::Corrupted(detail) => FileError::Corrupt { path: path.to_owned(), detail },
        error => FileError::Write { path: path.to_owned(), source: Box::new(error) },
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, FileError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let error = |errno: Errno| FileError::Directory { path: directory.to_owned(), source: errno.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, Mode::empty()).map_err(error)?;
    let stat = fstat(&fd).map_err(error)?;
    check_private(directory, stat.st_uid, stat.st_mode)?;
    Ok(fd)
}

fn check_private(path: &Path, uid: u32, mode: u32) -> Result<(), FileError> {
    let why = if uid != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if mode & 0o077 != 0 {
        "its mode lets others in"
    } else {
        return Ok(());
    };
    Err(FileError::NotPrivate { path: path.to_owned(), why })
}

fn check_file(file: &OwnedFd, path: &Path) -> Result<(), FileError> {
    let stat = fstat(file).map_err(|errno| open_error(path, errno))?;
    let refuse = |why| Err(FileError::NotPrivate { path: path.to_owned(), why });
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refuse("it is not a regular file");
    }
    if stat.st_nlink != 1 {
        return refuse("it has a second name (hard link)");
    }
    check_private(path, stat.st_uid, stat.st_mode)?;
    if stat.st_size == 0 {
        return Err(FileError::Corrupt { path: path.to_owned(), detail: "it is empty".to_owned() });
    }
    Ok(())
}

fn open_error(path: &Path, errno: Errno) -> FileError {
    let path = path.to_owned();
    match errno {
        Errno::LOOP => FileError::NotPrivate { path, why: "it is a symbolic link" },
        Errno::ACCESS | Errno::PERM => FileError::Permission { path, source: errno.into() },
        _ => FileError::Open { path, source: errno.into() },
    }
}

/// Makes the file under another name and renames it when it is whole and durable: redb itself can't
/// tell a file whose first initialization was interrupted from a foreign one.
fn create(path: &Path, directory: &OwnedFd, name: &std::ffi::OsStr) -> Result<Database, FileError> {
    let mut unfinished = name.to_owned();
    unfinished.push(".new");
    match unlinkat(directory, &unfinished, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(open_error(path, errno)),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, &unfinished, flags, Mode::RUSR | Mode::WUSR).map_err(|e| open_error(path, e))?;
    let database = open_database(path, File::from(file))?;
    let _around = fault::around(&"CreateStore");
    renameat(directory, &unfinished, directory, name).map_err(|errno| open_error(path, errno))?;
    fsync(directory).map_err(|errno| open_error(path, errno))?;
    Ok(database)
}

fn open_database(path: &Path, file: File) -> Result<Database, FileError> {
    let backend = FileBackend::new(file).map_err(|error| database_error(path, error))?;
    open_backend(path, backend)
}

/// Opens a database on a backend, verifies every page, and settles the schema version. A backend that is refused is
/// not written to.
pub(super) fn open_backend(path: &Path, backend: impl StorageBackend) -> Result<Database, FileError> {
    let open = || {
        let failed = |error: io::Error| database_error(path, StorageError::Io(error).into());
        let held = HoldsBack::new(backend).map_err(failed)?;
        let backend = KeepsSpace::new(held.clone()).map_err(failed)?;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        // Verifies every page's checksum and rebuilds the allocator's state: without it redb may read an
        // altered file as another document, or panic later, in the middle of a write.
        builder.set_check_integrity_on_open(true);
        let database = builder.create_with_backend(backend).map_err(|error| database_error(path, error))?;
        settle_schema(path, &database, &MIGRATIONS)?;
        held.release().map_err(failed)?;
        Ok(database)
    };
    guard(path, open)
}

/// Turns a panic into an error: redb may panic on a file that was altered behind its back.
pub(super) fn guard<T>(path: &Path, work: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let detail = text.unwrap_or("the database library gave up").to_owned();
        Err(FileError::Corrupt { path: path.to_owned(), detail })
    })
}

fn database_error(path: &Path, error: DatabaseError) -> FileError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => FileError::Locked { path },
        DatabaseError::Storage(StorageError::Corrupted(detail)) => FileError::Corrupt { path, detail },
        DatabaseError::Storage(StorageError::Io(error)) if is_about_content(&error) => {
            FileError::Corrupt { path, detail: error.to_string() }
        }
        DatabaseError::Storage(StorageError::Io(source)) => FileError::Open { path, source },
        error => FileError::Read { path, source: Box::new(error.into()) },
    }
}

fn is_about_content(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Brings a file to the schema version that the last of the steps leads to, in one transaction; a new file begins with it.
pub(super) fn settle_schema(path: &Path, database: &Database, steps: &[Migration]) -> Result<(), FileError> {
    let newest = 1 + steps.len() as u64;
    let from = match schema(path, database)? {
        Some(found) if found == newest => return Ok(()),
        Some(found) if found > newest => return Err(FileError::Newer { path: path.to_owned(), found }),
        Some(0) => {
            return Err(FileError::Corrupt {
                path: path.to_owned(),
                detail: "schema version 0 never was one".to_owned(),
            });
        }
        Some(found) => found,
        None => newest,
    };
    let transaction = database.begin_write().map_err(|error| write_error(path, error))?;
    for (_, step) in (1..).zip(steps).filter(|(version, _)| *version >= from) {
        step(&transaction).map_err(|error| write_error(path, error))?;
    }
    {
        let mut meta = transaction.open_table(META).map_err(|error| write_error(path, error))?;
        meta.insert(SCHEMA_KEY, newest).map_err(|error| write_error(path, error))?;
    }
    transaction.commit().map_err(|error| write_error(path, error))
}

/// Reads the schema version; `None` for a database without any table.
fn schema(path: &Path, database: &Database) -> Result<Option<u64>, FileError> {
    let transaction = database.begin_read().map_err(|error| read_error(path, error))?;
    let mut tables = transaction.list_tables().map_err(|error| read_error(path, error))?;
    if tables.next().is_none() {
        return Ok(None);
    }
    let missing = || FileError::Corrupt { path: path.to_owned(), detail: "it has no schema version".to_owned() };
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::Storage(error)) => return Err(read_error(path, error)),
        Err(_) => return Err(missing()),
    };
    let found = redb::ReadableTable::get(&meta, SCHEMA_KEY).map_err(|error| read_error(path, error))?;
    found.map(|version| Some(version.value())).ok_or_else(missing)
}
