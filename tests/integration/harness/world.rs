//! What the stages of a run tell the last one.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::executable;

/// Environment variable that carries the [`World`] to the stage that runs the cases.
pub const VARIABLE: &str = "LAZARET_TEST_WORLD";

/// The run's directories and services.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct World {
    /// Directory of this run; everything that cases make lies below. Short, for socket paths.
    pub base: PathBuf,
    /// Directory with copies of `lazaret` and `lazaret-guest` that everybody may execute.
    pub binaries: PathBuf,
    /// OCI layout with the shared test image, or why there is none.
    pub image: Result<PathBuf, String>,
    /// Directory with what replays traces ([`super::replay`]), or why there is none.
    pub model: Result<PathBuf, String>,
    /// Socket of the root stage's service, when there is one.
    pub root: Option<PathBuf>,
    /// The run's own `/etc/resolv.conf`, writable, when the test network stands.
    pub resolv_conf: Option<PathBuf>,
    /// Why there is no test network, when there is none.
    pub no_network: Option<String>,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// Gives the run's world.
pub fn world() -> &'static World {
    WORLD.get().expect("cases run only after stage::enter has set the world")
}

impl World {
    /// Makes this the run's world.
    pub fn install(self) {
        WORLD.set(self).expect("the world is set once");
    }

    /// Reads the world from the environment, when an earlier stage has put it there.
    pub fn from_environment() -> Result<Option<Self>> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let text = text.to_str().context("the world is not text")?;
        serde_json::from_str(text).context("the world does not parse").map(Some)
    }

    /// Gives the executable under test.
    pub fn lazaret(&self) -> PathBuf {
        self.binaries.join("lazaret")
    }

    /// Gives the sandbox side executable.
    pub fn guest(&self) -> PathBuf {
        self.binaries.join("lazaret-guest")
    }
}

/// Copies the executables under test to where every user may run them, and gives the directory.
///
/// The build tree may lie in a home directory that the unprivileged user can't enter.
pub fn copy_binaries(base: &Path) -> Result<PathBuf> {
    let directory = base.join("bin");
    fs_err::create_dir_all(&directory)?;
    for (name, built) in
        [("lazaret", env!("CARGO_BIN_EXE_lazaret")), ("lazaret-guest", env!("CARGO_BIN_EXE_lazaret-guest"))]
    {
        executable::copy(Path::new(built), &directory.join(name))?;
    }
    Ok(directory)
}
