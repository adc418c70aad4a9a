//! The test image that most cases share: Debian with the tools that cases drive.
//!
//! Made by `scripts/base-image.sh` as an OCI layout, once for a list of packages, and kept in
//! `target/test-image`. It has a user `dev` (1000), which the image names as its user.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use fs_err as fs;

use super::command::Invocation;

/// Environment variable that names the cache directory instead of the default.
pub const CACHE_VARIABLE: &str = "LAZARET_TEST_IMAGE_CACHE";

/// Name of the image in its layout.
pub const TAG: &str = "latest";

const PACKAGES: &[&str] = &[
    "curl",
    "git",
    "iproute2",
    "iputils-ping",
    "less",
    "netcat-openbsd",
    "procps",
    "psmisc",
    "python3-minimal",
    "libpython3-stdlib",
    "tmux",
    "vim-tiny",
];

/// Gives the directory that images are kept in.
pub fn cache() -> PathBuf {
    match std::env::var_os(CACHE_VARIABLE) {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-image"),
    }
}

/// Gives the layout directory, and makes it when it is missing.
pub fn ensure() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/base-image.sh");
    let mut hasher = DefaultHasher::new();
    (PACKAGES, fs::read(&script)?).hash(&mut hasher);
    let layout = cache().join(format!("{:016x}", hasher.finish()));
    if !layout.join("index.json").exists() {
        eprintln!("making the test image, once: {}", layout.display());
        Invocation::new(script).arg(&layout).args(PACKAGES).deadline(Duration::from_secs(900)).run()?.ok()?;
    }
    Ok(layout)
}

/// Makes a copy of the layout below the run's directory, since the build tree may be closed to the
/// unprivileged user, and gives the copy.
pub fn ensure_below(base: &Path) -> Result<PathBuf> {
    let (layout, copy) = (ensure()?, base.join("image"));
    Invocation::new("cp").arg("-r").arg(&layout).arg(&copy).run()?.ok()?;
    Ok(copy)
}

/// Serialises the one preparation of the shared image.
static PREPARED: Mutex<bool> = Mutex::new(false);

/// Runs the preparation once in a run; a failure is tried again by the next case.
pub fn prepare_once(prepare: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut prepared = PREPARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !*prepared {
        prepare()?;
        *prepared = true;
    }
    Ok(())
}
