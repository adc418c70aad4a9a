//! What Lazaret is compared with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;
use serde_json::json;

use crate::agent::{Agent, Request};
use crate::harness::world::world;
use crate::harness::{Environment, image, needs, wait_until};
use crate::measure::{self, ECHO_SCRIPT, NotInstalled, Turn};
use crate::subject::Subject;

/// Name of the text that terminals show, in the project.
pub const TEXT: &str = "text";

/// Unpacks the test image as the user's own files.
pub fn root_file_system(environment: &Environment) -> Result<PathBuf> {
    let layout = world().image.clone().map_err(anyhow::Error::msg)?;
    let bundle = environment.directory().join("bundle");
    let image = format!("{}:{}", layout.display(), image::TAG);
    let unpack = environment.invocation("umoci").args(["unpack", "--rootless", "--image", &image]).arg(&bundle);
    unpack.deadline(Duration::from_secs(120)).run()?.ok()?;
    Ok(bundle.join("rootfs"))
}

/// Writes lines of text.
pub fn write_text(path: &Path, size: usize) -> Result<()> {
    let line = "the quick brown fox jumps over the lazy dog and runs into the dark wood\n";
    Ok(fs::write(path, line.repeat(size / line.len() + 1))?)
}

/// How many terminals the output of a program passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminals {
    /// The one that it writes to.
    One,
    /// That, and one onto which script(1) copies it. Every client that shows a terminal which somebody else
    /// keeps has two, and the kernel works on each byte in both.
    Two,
}

/// Bare runsc, as root of a user namespace and with the host's network.
pub struct Runsc {
    terminals: Terminals,
    agent: Agent,
    directory: PathBuf,
    rootfs: PathBuf,
    project: PathBuf,
    number: u32,
    kept: bool,
}

impl Runsc {
    /// Prepares bundles; nothing runs yet.
    pub fn new(environment: &Environment, rootfs: &Path, terminals: Terminals) -> Result<Self> {
        let directory = environment.directory().join(format!("runsc-{terminals:?}"));
        fs::create_dir_all(directory.join("r"))?;
        let agent = Agent::start(&directory)?;
        let (rootfs, project) = (rootfs.to_owned(), environment.project());
        fs::create_dir_all(rootfs.join("workspace"))?;
        Ok(Self { terminals, agent, directory, rootfs, project, number: 0, kept: false })
    }

    fn runsc(&self, arguments: &[&str]) -> Vec<String> {
        let root = self.directory.join("r").display().to_string();
        let before = ["runsc", "--root", &root, "--ignore-cgroups", "--network=host", "--overlay2=none"];
        before.iter().chain(arguments).map(|word| (*word).to_owned()).collect()
    }

    fn bundle(&mut self, arguments: &[&str]) -> Result<(String, String)> {
        self.number += 1;
        let bundle = self.directory.join(format!("b{}", self.number));
        fs::create_dir(&bundle)?;
        let mounts = json!([
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs" },
            { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs" },
            { "destination": "/workspace", "type": "bind", "source": self.project, "options": ["rbind", "rw"] },
        ]);
        let specification = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": 0, "gid": 0 }, "args": arguments, "cwd": "/",
                "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            },
            "root": { "path": self.rootfs }, "hostname": "bare", "mounts": mounts,
            "linux": { "namespaces": [{ "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }] },
        });
        fs::write(bundle.join("config.json"), specification.to_string())?;
        Ok((bundle.display().to_string(), format!("bare{}", self.number)))
    }

    /// Makes sure that the sandbox runs that commands are executed in.
    fn keep(&mut self) -> Result<()> {
        if !self.kept {
            self.number = 999;
            let (bundle, name) = self.bundle(&["sleep", "100000"])?;
            let pid_file = self.directory.join("pid");
            let pid_file = pid_file.to_str().context("the path is text")?.to_owned();
            let run = self.runsc(&["run", "--bundle", &bundle, "--pid-file", &pid_file, &name]);
            self.agent.ask(&Request::Keep(run))?;
            wait_until("runsc runs", Duration::from_secs(20), || Path::new(&pid_file).exists())?;
            self.kept = true;
        }
        Ok(())
    }
}

impl Subject for Runsc {
    fn name(&self) -> String {
        match self.terminals {
            Terminals::One => "bare runsc".into(),
            Terminals::Two => "bare runsc, through script(1)".into(),
        }
    }

    fn start(&mut self) -> Turn {
        let (bundle, name) = self.bundle(&["true"])?;
        let run = self.runsc(&["run", "--bundle", &bundle, &name]);
        self.agent.ask(&Request::Wall(run))
    }

    fn join(&mut self) -> Turn {
        self.keep()?;
        let exec = self.runsc(&["exec", "bare1000", "true"]);
        self.agent.ask(&Request::Wall(exec))
    }

    fn echo(&mut self, keys: usize) -> Turn {
        self.keep()?;
        let exec = self.runsc(&["exec", "bare1000", "sh", "-c", ECHO_SCRIPT]);
        self.agent.ask(&Request::Echo(exec, keys))
    }

    fn output(&mut self) -> Turn {
        self.keep()?;
        let text = format!("/workspace/{TEXT}");
        let mut exec = self.runsc(&["exec", "bare1000", "cat", &text]);
        if self.terminals == Terminals::Two {
            exec = ["script", "-qec", &exec.join(" "), "/dev/null"].map(str::to_owned).to_vec();
        }
        let least = fs::metadata(self.project.join(TEXT))?.len();
        self.agent.ask(&Request::Output(exec, least))
    }
}

/// Rootless podman with runsc and slirp4netns.
pub struct Podman<'a> {
    environment: &'a Environment,
    image: Option<String>,
}

impl<'a> Podman<'a> {
    /// Does nothing yet.
    pub fn new(environment: &'a Environment) -> Self {
        Self { environment, image: None }
    }

    fn podman(&self, arguments: &[&str]) -> Command {
        self.environment.invocation("podman").args(arguments).command()
    }

    /// Configures podman and brings the test image into its storage.
    fn prepare(&self) -> Result<String> {
        let directory = self.environment.config().join("containers");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("storage.conf"), "[storage]\ndriver = \"overlay\"\n")?;
        let engine = "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n";
        let runsc = needs::find_program("runsc").context("runsc is not installed")?;
        let runtimes = format!("[engine.runtimes]\nrunsc = [\"{}\"]\n", runsc.display());
        fs::write(directory.join("containers.conf"), format!("{engine}{runtimes}"))?;
        let layout = world().image.clone().map_err(anyhow::Error::msg)?;
        let pull = format!("oci:{}:{}", layout.display(), image::TAG);
        let pull = self.environment.invocation("podman").args(["pull", "--quiet", &pull]);
        let output = pull.deadline(Duration::from_secs(180)).run()?.ok()?;
        Ok(output.stdout().trim().to_owned())
    }
}

impl Subject for Podman<'_> {
    fn name(&self) -> String {
        "podman + runsc + slirp4netns".into()
    }

    fn start(&mut self) -> Turn {
        if self.image.is_none() {
            self.image = Some(self.prepare()?);
        }
        let image = self.image.clone().context("prepared above")?;
        // Its own network stack refuses to start on new kernels, so runsc uses the namespace's, as Lazaret does.
        let runtime = ["--runtime=runsc", "--runtime-flag=ignore-cgroups", "--runtime-flag=network=host"];
        let run = ["run", "--rm", "--network=slirp4netns", "--pull=never", &image, "true"];
        Ok(vec![measure::wall(self.podman(&[&runtime[..], &run[..]].concat()))?])
    }
}

/// Bubblewrap: namespaces without gVisor and without a network.
pub struct Bubblewrap<'a> {
    environment: &'a Environment,
    rootfs: PathBuf,
}

impl<'a> Bubblewrap<'a> {
    /// Uses the root file system.
    pub fn new(environment: &'a Environment, rootfs: &Path) -> Self {
        Self { environment, rootfs: rootfs.to_owned() }
    }
}

impl Subject for Bubblewrap<'_> {
    fn name(&self) -> String {
        "bubblewrap".into()
    }

    fn start(&mut self) -> Turn {
        let bwrap = self.environment.invocation("bwrap").arg("--ro-bind").arg(&self.rootfs).arg("/");
        let bwrap = bwrap.args(["--proc", "/proc", "--dev", "/dev", "--unshare-all", "--die-with-parent", "true"]);
        Ok(vec![measure::wall(bwrap.command())?])
    }
}

/// Another sandbox for agents, where it is installed.
pub struct Other<'a> {
    environment: &'a Environment,
    name: &'static str,
    program: &'static str,
}

impl<'a> Other<'a> {
    /// Gives all that are known.
    pub fn all(environment: &'a Environment) -> [Self; 2] {
        [("sandbox-runtime", "srt"), ("ai-jail", "ai-jail")].map(|(name, program)| Self { environment, name, program })
    }
}

impl Subject for Other<'_> {
    fn name(&self) -> String {
        self.name.into()
    }

    fn start(&mut self) -> Turn {
        let program = needs::find_program(self.program).ok_or(NotInstalled)?;
        // What it needs itself, such as node, is found where it was found.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let run = self.environment.invocation(program).env("PATH", path).arg("true");
        Ok(vec![measure::wall(run.command())?])
    }
}
