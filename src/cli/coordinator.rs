//! Starting a Host Coordinator: this executable again, in a session of its own, with an environment
//! that holds what it needs and no descriptor but the bootstrap pair's end.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use nix::fcntl::OFlag;
use nix::libc;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::sys::stat::Mode;
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use crate::domain::ids::DomainId;
use crate::sys::process;
use crate::sys::seqpacket::{self, Lease};
use crate::wire::bootstrap::{BootstrapMessage, COORDINATOR, DESCRIPTOR, Start};
use crate::wire::frame::{self, FrameError};

/// Variables that a Host Coordinator gets besides those with one of [`PREFIXES`]: programs, places,
/// locale, registry access.
const VARIABLES: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "DOCKER_CONFIG",
    "REGISTRY_AUTH_FILE",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Beginnings of names of variables that a Host Coordinator gets.
const PREFIXES: [&str; 4] = ["XDG_", "LC_", "LAZARET_", "RUST_BACKTRACE"];

/// A Host Coordinator that can't be started or spoken to.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The bootstrap pair can't be made.
    #[error("the bootstrap socket pair can't be made")]
    Pair(#[source] io::Error),
    /// The process can't be started.
    #[error("the Host Coordinator can't be started")]
    Spawn(#[source] io::Error),
    /// A message can't be sent.
    #[error("the Host Coordinator can't be told what to start")]
    Send(#[source] io::Error),
    /// A message can't be received.
    #[error("the Host Coordinator can't be heard")]
    Receive(#[source] io::Error),
    /// A message is malformed.
    #[error("the Host Coordinator and this client don't understand each other")]
    Message(#[source] FrameError),
    /// It ended before it said how the start went.
    #[error("the Host Coordinator ended before it said how the start went")]
    Died,
}

/// A Host Coordinator that this process started.
#[derive(Debug)]
pub struct Coordinator {
    pid: Pid,
    bootstrap: Lease,
}

impl Coordinator {
    /// Starts one and tells it what to do. Must be called in a tokio runtime.
    pub async fn start(start: &Start, domain: &DomainId) -> Result<Self, CoordinatorError> {
        let message = frame::encode(start).map_err(CoordinatorError::Message)?;
        let (ours, theirs) = seqpacket::pair().map_err(CoordinatorError::Pair)?;
        let bootstrap = Lease::new(ours).map_err(CoordinatorError::Pair)?;
        let title = format!("lazaret: coordinator {} {domain}", start.profile.name);
        let pid = spawn(&title, theirs).map_err(CoordinatorError::Spawn)?;
        let coordinator = Self { pid, bootstrap };
        coordinator.bootstrap.send(&message, &[]).await.map_err(CoordinatorError::Send)?;
        Ok(coordinator)
    }

    /// Waits for its next message.
    pub async fn message(&self) -> Result<BootstrapMessage, CoordinatorError> {
        match self.bootstrap.receive().await {
            Ok(Some((bytes, _))) => frame::decode(&bytes).map_err(CoordinatorError::Message),
            Ok(None) => Err(CoordinatorError::Died),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(CoordinatorError::Died),
            Err(error) => Err(CoordinatorError::Receive(error)),
        }
    }

    /// Closes the bootstrap pair, which cancels a start under way, and waits until it has ended.
    pub async fn cancel(self) {
        let Self { pid, bootstrap } = self;
        drop(bootstrap);
        reap(pid).await;
    }

    /// Lets it go on by itself.
    pub fn release(self) {}
}

/// Waits for a child and reaps it.
async fn reap(pid: Pid) {
    // A child that was not reaped keeps its id, so this is exactly it.
    if let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        let _ = process::ended(pidfd).await;
    }
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
}

fn spawn(title: &str, bootstrap: OwnedFd) -> io::Result<Pid> {
    let argv = [CString::new(title)?, CString::new(COORDINATOR)?];
    let env = environment(std::env::vars_os())?;
    // Clear of the numbers that are about to be filled.
    let bootstrap = rustix::io::fcntl_dupfd_cloexec(bootstrap, DESCRIPTOR + 1)?;
    let mut actions = PosixSpawnFileActions::init()?;
    actions.add_open(0, "/dev/null", OFlag::O_RDWR, Mode::empty())?;
    actions.add_dup2(0, 1)?;
    actions.add_dup2(0, 2)?;
    actions.add_dup2(bootstrap.as_raw_fd(), DESCRIPTOR)?;
    // A descriptor that the shell left open here would be held as long as the Domain lives.
    for inherited in open_descriptors()?.into_iter().filter(|fd| *fd > DESCRIPTOR) {
        actions.add_close(inherited)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::from_bits_retain(libc::POSIX_SPAWN_SETSID.into())
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
    )?;
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_sigmask(&SigSet::empty())?;
    let pid = posix_spawn(c"/proc/self/exe", &actions, &attributes, &argv, &env)?;
    Pid::from_raw(pid.as_raw()).ok_or_else(|| io::Error::other("the new process has no id"))
}

fn open_descriptors() -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Gives the environment of a Host Coordinator.
fn environment(variables: impl Iterator<Item = (OsString, OsString)>) -> io::Result<Vec<CString>> {
    let wanted = |name: &OsString| {
        name.to_str().is_some_and(|name| VARIABLES.contains(&name) || PREFIXES.iter().any(|p| name.starts_with(p)))
    };
    let assignment = |(name, value): (OsString, OsString)| {
        let mut text = name.into_vec();
        text.push(b'=');
        text.extend(value.into_vec());
        CString::new(text).map_err(io::Error::from)
    };
    variables.filter(|(name, _)| wanted(name)).map(assignment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_gets_no_secret_by_chance() {
        let given = ["PATH", "HOME", "XDG_RUNTIME_DIR", "LC_ALL", "LAZARET_LOG", "https_proxy", "DOCKER_CONFIG"];
        let kept_back = ["ANTHROPIC_API_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY", "TERM", "PWD"];
        let all = given.iter().chain(&kept_back).map(|name| (OsString::from(name), OsString::from("v")));
        let expected: Vec<_> = given.iter().map(|name| CString::new(format!("{name}=v")).unwrap()).collect();
        assert_eq!(environment(all).unwrap(), expected);
    }
}
