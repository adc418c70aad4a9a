//! The version of the installed runsc.
//!
//! To ask costs 15 ms, a good part of a session's start, so the answer is kept in the Storage Root
//! for exactly this file.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::domain::layout::StorageRoot;
use crate::sys::directories::ensure_private;
use crate::sys::private;

/// The oldest release that is known to work, by its date.
pub const OLDEST: u32 = 20_240_729;

/// What `runsc --version` said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its first line, without the program's name.
    pub text: String,
    /// The release's date as a number, `YYYYMMDD`; absent in a build that does not tell.
    pub date: Option<u32>,
}

impl Version {
    /// Reads the output of `runsc --version`. Forms that exist: `0.0~20240729.0` (Debian),
    /// `release-20240729.0`, `release-20201208.0-43-gHASH` (a developer's build) and `VERSION_MISSING`.
    pub fn parse(output: &str) -> Option<Self> {
        let text = output.lines().next()?.trim().strip_prefix("runsc version ")?.to_owned();
        let date =
            text.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 8 && digits.starts_with("20"));
        let date = date.and_then(|digits| digits.parse().ok());
        Some(Self { text, date })
    }
}

/// The answer, and the file that gave it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    version: Version,
}

/// Gives the version of an executable, from what is kept or by asking it.
pub fn version(executable: &Path, storage: &StorageRoot) -> io::Result<Version> {
    let metadata = std::fs::metadata(executable)?;
    let current = |version| Kept {
        path: executable.to_owned(),
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        version,
    };
    let file = storage.path().join("runsc-version.json");
    let kept = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    if let Some(kept) = kept
        && kept == current(kept.version.clone())
    {
        return Ok(kept.version);
    }
    let version = ask(executable)?;
    // What can't be kept is asked again.
    let _ = keep(storage, &file, &current(version.clone()));
    Ok(version)
}

fn ask(executable: &Path) -> io::Result<Version> {
    let output = Command::new(executable).arg("--version").stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    Version::parse(&said).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        let said = error.lines().chain(said.lines()).next().unwrap_or("nothing").to_owned();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("'runsc --version' ended with {} and said: {said}", output.status),
        )
    })
}

fn keep(storage: &StorageRoot, file: &Path, kept: &Kept) -> io::Result<()> {
    ensure_private(storage.path()).map_err(io::Error::other)?;
    private::write_file(file, &serde_json::to_vec(kept)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_version_is_read() {
        for (output, text, date) in [
            ("runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n", "0.0~20240729.0", Some(20_240_729)),
            ("runsc version release-20260817.0\nspec: 1.1.0\n", "release-20260817.0", Some(20_260_817)),
            (
                "runsc version release-20201208.0-43-g0123456789ab\n",
                "release-20201208.0-43-g0123456789ab",
                Some(20_201_208),
            ),
            ("runsc version VERSION_MISSING\nspec: 20240729\n", "VERSION_MISSING", None),
            ("runsc version 19991231\n", "19991231", None),
        ] {
            assert_eq!(Version::parse(output), Some(Version { text: text.into(), date }), "{output}");
        }
        assert_eq!(Version::parse("podman version 4\n"), None);
        assert_eq!(Version::parse(""), None);
    }

    #[test]
    fn a_program_is_asked_once_until_it_changes() {
        let base = tempfile::tempdir().unwrap();
        let storage = StorageRoot::new(base.path().join("storage"));
        let program = base.path().join("runsc");
        let asked = base.path().join("asked");
        let install = |version: &str| {
            let script = format!("#!/bin/sh\necho x >> {}\necho 'runsc version {version}'\n", asked.display());
            std::fs::write(base.path().join("script"), script).unwrap();
            // What this process writes itself may still be open in a child that another test forks (ETXTBSY).
            let mut install = Command::new("install");
            install.arg("--mode=755").arg(base.path().join("script")).arg(&program);
            assert!(install.status().unwrap().success());
        };
        let times = || std::fs::read_to_string(&asked).unwrap().lines().count();
        install("release-20240729.0");
        for _ in 0..3 {
            assert_eq!(version(&program, &storage).unwrap().date, Some(20_240_729));
        }
        assert_eq!(times(), 1);
        install("release-20260817.0");
        assert_eq!(version(&program, &storage).unwrap().date, Some(20_260_817));
        assert_eq!(times(), 2);
        std::fs::write(storage.path().join("runsc-version.json"), "garbage").unwrap();
        assert_eq!(version(&program, &storage).unwrap().date, Some(20_260_817));
    }

    #[test]
    fn a_program_that_is_something_else_is_quoted() {
        let base = tempfile::tempdir().unwrap();
        let storage = StorageRoot::new(base.path().join("storage"));
        let error = version(Path::new("/bin/false"), &storage).unwrap_err();
        assert!(error.to_string().starts_with("'runsc --version' ended with exit status: 1 and said: "), "{error}");
        assert!(version(Path::new("/no/such/file"), &storage).is_err());
    }
}
