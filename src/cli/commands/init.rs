//! `lazaret init`: writes a commented starter configuration.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::config::starter::{self, StarterFile};
use crate::cli::config::{ConfigDirs, ConfigError};
use crate::cli::error::CliError;
use crate::cli::output::{self, Style, Target};
use crate::sys::directories::{self, DirectoryError};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
}

/// What to do with a file that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it as it is.
    Keep,
    /// Write the starter's in its place.
    Replace,
}

/// What became of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is new, or new in the place of an old one.
    Written,
    /// It existed and was left as it is.
    Kept,
}

/// The starter could not be written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The configuration directory cannot be made.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Writes the starter and says what to do next.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let dirs = ConfigDirs::from_environment().map_err(ConfigError::into_cli)?;
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let outcomes = write_starter(&dirs, existing)?;
    let style = output::style(Target::Output);
    let mut text = String::new();
    for (path, outcome) in &outcomes {
        let word = match outcome {
            Outcome::Written => style.green("wrote"),
            Outcome::Kept => style.yellow("kept "),
        };
        text.push_str(&format!("{word} {}\n", path.display()));
    }
    if outcomes.iter().any(|(_, outcome)| *outcome == Outcome::Kept) {
        text.push_str("Files that existed are kept as they are; --force replaces them.\n");
    }
    text.push_str(&next_steps(style));
    output::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes every file of the starter.
pub fn write_starter(dirs: &ConfigDirs, existing: Existing) -> Result<Vec<(PathBuf, Outcome)>, InitError> {
    for directory in [&dirs.config, &dirs.profiles()] {
        // A symbolic link to a directory is fine here: people keep configuration in a repository.
        if !directory.is_dir() {
            directories::ensure_private(directory)?;
        }
    }
    let write = |file: StarterFile| {
        let path = dirs.config.join(&file.path);
        let outcome = write_atomically(&path, &file.content, existing)
            .map_err(|source| InitError::Write { path: path.clone(), source })?;
        Ok((path, outcome))
    };
    starter::files().into_iter().map(write).collect()
}

/// Writes a file so that it is there whole or not at all, and never in the place of another one
/// unless told to.
fn write_atomically(path: &Path, content: &str, existing: Existing) -> io::Result<Outcome> {
    if existing == Existing::Keep && path.symlink_metadata().is_ok() {
        return Ok(Outcome::Kept);
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let result = write_new(&temporary, content).and_then(|()| put(&temporary, path, existing));
    if !matches!(result, Ok(Outcome::Written)) {
        // What remains is a hidden file that nobody reads.
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

fn put(temporary: &Path, path: &Path, existing: Existing) -> io::Result<Outcome> {
    match existing {
        Existing::Replace => std::fs::rename(temporary, path)?,
        // A link is refused when the name is taken meanwhile, on every file system.
        Existing::Keep => match std::fs::hard_link(temporary, path) {
            Ok(()) => std::fs::remove_file(temporary)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Outcome::Kept),
            Err(error) => return Err(error),
        },
    }
    Ok(Outcome::Written)
}

fn next_steps(style: Style) -> String {
    let steps = starter::next_steps();
    let width = steps.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let mut text = String::from("\nNext:\n");
    for (command, what) in steps {
        let padding = " ".repeat(width - command.len());
        text.push_str(&format!("  {}{padding}  {}\n", style.bold(&command), style.dim(what)));
    }
    let names: Vec<_> = starter::profile_names().into_iter().map(String::from).collect();
    text.push_str(&format!("Profiles: {}; 'lazaret config reference' explains every key.\n", names.join(", ")));
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cli::config::check_all;

    fn dirs(home: &Path) -> ConfigDirs {
        ConfigDirs { config: home.join("config/lazaret"), home: home.to_owned() }
    }

    #[test]
    fn what_is_written_is_private_and_valid() {
        let home = tempfile::tempdir().unwrap();
        let dirs = dirs(home.path());
        let outcomes = write_starter(&dirs, Existing::Keep).unwrap();
        assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Written));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dirs.config), mode(&dirs.profiles())), (0o700, 0o700));
        assert!(outcomes.iter().all(|(path, _)| mode(path) == 0o600));
        let checked = check_all(&dirs).unwrap();
        assert_eq!(checked.len(), outcomes.len());
        for file in checked {
            assert!(file.result.is_ok(), "{}: {:?}", file.path.display(), file.result.unwrap_err().records());
        }
        let left: Vec<_> = std::fs::read_dir(&dirs.config).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn files_that_exist_are_replaced_only_by_force() {
        let home = tempfile::tempdir().unwrap();
        let dirs = dirs(home.path());
        std::fs::create_dir_all(dirs.profiles()).unwrap();
        std::fs::write(dirs.common_file(), "# mine\n").unwrap();
        let outcomes = write_starter(&dirs, Existing::Keep).unwrap();
        assert_eq!(outcomes[0], (dirs.common_file(), Outcome::Kept));
        assert_eq!(outcomes[1].1, Outcome::Written);
        assert_eq!(std::fs::read_to_string(dirs.common_file()).unwrap(), "# mine\n");
        let outcomes = write_starter(&dirs, Existing::Replace).unwrap();
        assert_eq!(outcomes[0].1, Outcome::Written);
        assert_ne!(std::fs::read_to_string(dirs.common_file()).unwrap(), "# mine\n");
    }
}
