//! How runsc is called for one sandbox: its flags, its private files and its name.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::domain::runtime::{DEFAULT_PATH, RuntimePlan};

/// One sandbox as runsc knows it.
///
/// Everything lies below one private directory, since whoever can open runsc's control socket there
/// controls the sandbox. Each command has a log file of its own: runsc appends to it, and the first
/// error in it is the root cause of that command's failure.
#[derive(Debug, Clone)]
pub struct Sandbox {
    executable: PathBuf,
    directory: PathBuf,
    name: String,
}

impl Sandbox {
    /// Names the plan's sandbox.
    pub fn of(plan: &RuntimePlan) -> Self {
        Self {
            executable: plan.runsc.clone(),
            directory: plan.runsc_directory.clone(),
            name: plan.sandbox.runsc_name().to_owned(),
        }
    }

    /// The container's name, which is the sandbox's too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// runsc's `--root`. The name is short because the control socket lies in it.
    pub fn root(&self) -> PathBuf {
        self.directory.join("r")
    }

    /// The OCI bundle.
    pub fn bundle(&self) -> PathBuf {
        self.directory.join("bundle")
    }

    /// The pid file of the attached client.
    pub fn pid_file(&self) -> PathBuf {
        self.directory.join("run.pid")
    }

    /// The log of the attached client.
    pub fn run_log(&self) -> PathBuf {
        self.directory.join("run.log")
    }

    /// Where a panicking sandbox writes.
    pub fn panic_log(&self) -> PathBuf {
        self.directory.join("panic.log")
    }

    /// The control socket (urpc).
    pub fn control_socket(&self) -> PathBuf {
        self.root().join(format!("runsc-{}.sock", self.name))
    }

    /// Private files of the `n`th exec.
    pub fn exec_directory(&self, n: u64) -> PathBuf {
        self.directory.join(format!("exec-{n}"))
    }

    /// Begins a command line with the flags that every call for this sandbox must share.
    ///
    /// The environment is empty but for a search path: nothing of the developer's reaches runsc.
    pub fn command(&self, log: &Path) -> Command {
        let mut command = Command::new(&self.executable);
        let flag = |name: &str, path: &Path| {
            let mut flag = std::ffi::OsString::from(format!("--{name}="));
            flag.push(path);
            flag
        };
        command
            .arg(flag("root", &self.root()))
            .arg(flag("log", log))
            .arg("--log-format=json")
            .arg(flag("panic-log", &self.panic_log()))
            .args(FLAGS)
            .env_clear()
            .env("PATH", DEFAULT_PATH)
            .current_dir("/");
        command
    }
}

/// Flags that decide how the sandbox is confined.
///
/// - `--network=host` means the network namespace of the specification, which is the enforcement
///   namespace; runsc's own network stack would not take over the routes on `lo`.
/// - Control groups can't be had without privileges.
/// - `--overlay2=none`: the root is an overlay already, and one of runsc's own would keep a
///   file of any size in it.
/// - Root files change only from inside (`exclusive`), those of mounts on both sides (`shared`).
/// - No host socket or pipe can be opened from inside.
const FLAGS: [&str; 12] = [
    "--platform=systrap",
    "--ignore-cgroups",
    "--network=host",
    "--overlay2=none",
    "--directfs=true",
    "--file-access=exclusive",
    "--file-access-mounts=shared",
    "--host-uds=none",
    "--host-fifo=none",
    "--oci-seccomp=false",
    "--net-raw=false",
    "--watchdog-action=panic",
];
