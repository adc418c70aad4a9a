//! Where Lazaret keeps things for this user, by the XDG base directory rules.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use etcetera::base_strategy::Xdg;

use super::connect::client_id;
use super::error::CliError;
use crate::domain::ids::DomainId;
use crate::domain::layout::{RuntimeRoot, StorageRoot};
use crate::domain::profile::Profile;
use crate::domain::workspace::Workspace;
use crate::wire::bootstrap::{Start, StartMode};

/// The three directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// `$XDG_CONFIG_HOME/lazaret`: configuration.
    pub configuration: PathBuf,
    /// `$XDG_DATA_HOME/lazaret`: the Storage Root.
    pub storage: StorageRoot,
    /// `$XDG_RUNTIME_DIR/lazaret`: the directory of all Domains' runtime directories.
    pub runtime_base: PathBuf,
}

impl Places {
    /// Reads them from the environment.
    ///
    /// Relative values of XDG variables are ignored, as the XDG rules say. Without a runtime
    /// directory, sockets lie in `/tmp/lazaret-UID`, which is used only if it is a directory of this
    /// user's that nobody else can enter.
    pub fn from_environment() -> Result<Self, CliError> {
        let home = std::env::var_os("HOME").filter(|home| Path::new(home).is_absolute());
        if home.is_none() {
            let text = "the environment variable HOME is not set to an absolute path";
            return Err(CliError::message(text).hint("set HOME to your home directory"));
        }
        let xdg = Xdg::new()?;
        let runtime_base = match xdg.runtime_dir() {
            Some(directory) => directory.join("lazaret"),
            None => PathBuf::from(format!("/tmp/lazaret-{}", rustix::process::getuid().as_raw())),
        };
        // Both are written into records and specifications that are text.
        for (name, directory) in [("XDG_DATA_HOME", xdg.data_dir()), ("XDG_RUNTIME_DIR", runtime_base.clone())] {
            if directory.to_str().is_none() {
                let text = format!("the directory {} is not named in UTF-8", directory.display());
                return Err(CliError::message(text).hint(format!("set {name} to a directory with a plain name")));
            }
        }
        Ok(Self {
            configuration: xdg.config_dir().join("lazaret"),
            storage: StorageRoot::new(xdg.data_dir().join("lazaret")),
            runtime_base,
        })
    }

    /// Gives a Domain's runtime directory.
    pub fn runtime(&self, domain: &DomainId) -> RuntimeRoot {
        RuntimeRoot::new(&self.runtime_base, domain)
    }

    /// Gives what a Host Coordinator is started with.
    pub fn start(&self, profile: Profile, workspace: Workspace, mode: StartMode) -> Start {
        Start {
            client: client_id().clone(),
            profile,
            workspace,
            storage_root: self.storage.path().to_owned(),
            runtime_base: self.runtime_base.clone(),
            mode,
            first: None,
        }
    }
}
