//! A real registry on a loopback port: docker-registry, with optional password.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;

use super::command::{Invocation, Running};
use super::environment::Environment;
use super::wait::wait_until;

/// A running registry; killed when dropped.
#[derive(Debug)]
pub struct Registry {
    port: u16,
    storage: PathBuf,
    credentials: Option<(String, String)>,
    process: Running,
}

impl Registry {
    /// Starts a registry whose storage lies in the case's directory.
    pub fn start(environment: &Environment) -> Result<Self> {
        Self::start_with(environment, None)
    }

    /// Starts a registry that demands a user name and password.
    pub fn start_with_password(environment: &Environment, user: &str, password: &str) -> Result<Self> {
        Self::start_with(environment, Some((user.to_owned(), password.to_owned())))
    }

    fn start_with(environment: &Environment, credentials: Option<(String, String)>) -> Result<Self> {
        // The port is free when it is chosen; nobody else in this network namespace takes it at once.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = environment.directory().join(format!("registry-{port}"));
        let storage = directory.join("storage");
        fs::create_dir_all(&storage)?;
        let mut configuration = format!(
            "version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    rootdirectory: {}\n  delete:\n    enabled: true\n\
             http:\n  addr: 127.0.0.1:{port}\n",
            storage.display()
        );
        if let Some((user, password)) = &credentials {
            let line = Invocation::new("htpasswd").args(["-Bbn", user, password]).run()?.ok()?.stdout();
            let file = directory.join("htpasswd");
            fs::write(&file, line)?;
            configuration += &format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", file.display());
        }
        let file = directory.join("config.yml");
        fs::write(&file, configuration)?;
        let process = environment.invocation("docker-registry").arg("serve").arg(&file).spawn()?;
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until("the registry answers", Duration::from_secs(20), answers)?;
        Ok(Self { port, storage, credentials, process })
    }

    /// Gives `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Gives the registry's storage directory, where a case may damage blobs.
    pub fn storage(&self) -> &PathBuf {
        &self.storage
    }

    /// Copies an image into the registry; `source` as skopeo(1) names it. Gives the full reference.
    pub fn push(&self, environment: &Environment, source: &str, name: &str) -> Result<String> {
        let reference = format!("{}/{name}", self.address());
        let mut copy =
            environment.invocation("skopeo").args(["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"]);
        if let Some((user, password)) = &self.credentials {
            copy = copy.arg(format!("--dest-creds={user}:{password}"));
        }
        let copy = copy.arg(source).arg(format!("docker://{reference}"));
        copy.deadline(Duration::from_secs(120)).run()?.ok().context("skopeo could not push")?;
        Ok(reference)
    }

    /// Kills the registry, as a machine that goes down does.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}
