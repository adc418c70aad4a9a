//! What a process says about itself to the kernel, and how it starts others.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Stdio;

use rustix::io::FdFlags;
use rustix::process::{PidfdFlags, Resource, Rlimit, Signal};
use rustix::thread::UnshareFlags;
use tokio::process::Command;

use super::child::{self, Child};
use super::launch::{Entry, Gated, Image};
use super::procfs;

use crate::domain::ownership::ProcessIdentity;

pub use super::launch::LaunchError;

/// Has the command killed when the thread that spawns it ends (prctl(2), PR_SET_PDEATHSIG), and not
/// started at all when that has happened already.
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the signal was set.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: the closure runs between fork and execve and makes two raw system calls; it neither
    // allocates (an `io::Error` of an errno holds no allocation) nor takes a lock.
    unsafe { command.pre_exec(bind) };
}

/// Has the command make files and directories that others than their owner may read, as most programs
/// expect, whatever this process keeps to itself (umask(2)).
pub fn with_common_umask(command: &mut Command) {
    let set = || {
        rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
        Ok(())
    };
    // SAFETY: the closure runs between fork and execve and makes one raw system call without
    // allocation or locks.
    unsafe { command.pre_exec(set) };
}

/// Has the command lead a session of its own whose controlling terminal is `slave`, with all three
/// standard streams on it, as runsc wants it.
pub fn own_terminal(command: &mut Command, slave: OwnedFd) -> io::Result<()> {
    command.stdin(Stdio::from(slave.try_clone()?));
    command.stdout(Stdio::from(slave.try_clone()?));
    command.stderr(Stdio::from(slave));
    let take = || {
        rustix::process::setsid()?;
        Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
    };
    // SAFETY: the closure runs between fork and execve, after the standard streams are in place,
    // and makes two raw system calls without allocation or locks.
    unsafe { command.pre_exec(take) };
    Ok(())
}

/// Has the command find `fd` open under `number`, which must be none of the standard streams.
pub fn pass_descriptor(command: &mut Command, fd: OwnedFd, number: RawFd) {
    let place = move || {
        if fd.as_raw_fd() == number {
            return Ok(rustix::io::fcntl_setfd(&fd, FdFlags::empty())?);
        }
        // SAFETY: dup2(2) takes no pointer. What it may close under `number` is this child's copy of a
        // descriptor that is closed on execve anyway.
        let result = unsafe { nix::libc::dup2(fd.as_raw_fd(), number) };
        if result == number { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure runs between fork and execve and makes one raw system call without
    // allocation (an `io::Error` of an errno holds none) or locks.
    unsafe { command.pre_exec(place) };
}

/// A command to start later, in the namespaces of now.
#[derive(Debug)]
pub struct LauncherCommand {
    /// The executable.
    pub executable: PathBuf,
    /// The argument vector, `argv[0]` included.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Descriptors to pass: each with its number in the new process. Standard streams that are not
    /// named are `/dev/null`; every other descriptor is closed.
    pub fds: Vec<(OwnedFd, RawFd)>,
}

/// A process that waits to execute its command. Dropping it ends it.
pub struct Launcher {
    gated: Gated,
}

/// Forks a process that will execute the command, in the namespaces that this process has now.
///
/// The Runtime Supervisor forks slirp4netns(1) so before it unshares its network namespace. The
/// process is killed when the calling thread ends, whether it executes its command yet or not.
pub fn fork_launcher(command: LauncherCommand) -> Result<Launcher, LaunchError> {
    let image = Image::prepare(&command.executable, &command.argv, &command.env, command.fds)?;
    Ok(Launcher { gated: Gated::clone_process(image, 0, Entry::Plain)? })
}

impl Launcher {
    /// Gives the process id in this process's pid namespace.
    pub fn pid(&self) -> i32 {
        self.gated.child.pid()
    }

    /// Has the command executed; returns when it is.
    pub fn launch(self) -> Result<Child, LaunchError> {
        self.gated.open()
    }
}

/// Moves the calling thread, and the threads that it starts from now on, into a new network namespace.
pub fn unshare_network() -> io::Result<()> {
    // SAFETY: unlike CLONE_FILES, a network namespace has no part in what descriptors or memory mean.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Raises the soft limit of open files to the hard one (getrlimit(2)) and gives it.
pub fn raise_nofile() -> io::Result<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Names the calling thread, which for the main thread is what `ps -C` and `/proc/PID/comm` show; 15
/// bytes of it count.
pub fn set_process_name(name: &str) -> io::Result<()> {
    let name: Vec<u8> = name.bytes().filter(|byte| *byte != 0).take(15).collect();
    let name = CString::new(name).map_err(io::Error::from)?;
    Ok(rustix::thread::set_name(&name)?)
}

/// Gives a pidfd for exactly this process; `None` when it has ended.
pub fn open_exact(process: &ProcessIdentity) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = rustix::process::Pid::from_raw(process.pid) else { return Ok(None) };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Checked after the pidfd is held: what it holds cannot change any more.
    Ok(procfs::is_alive(process).then_some(pidfd))
}

/// Sends SIGKILL to the process behind a pidfd. One that has ended is not an error.
pub fn kill(pidfd: impl AsFd) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A process that is killed when this is dropped; one that has ended by then is not hit.
#[derive(Debug)]
pub struct KilledOnDrop(OwnedFd);

impl KilledOnDrop {
    /// Takes the process's pidfd.
    pub fn new(pidfd: OwnedFd) -> Self {
        Self(pidfd)
    }
}

impl AsFd for KilledOnDrop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Only a process that we may not signal is left, and there is nobody to tell.
        let _ = kill(&self.0);
    }
}

/// Waits until the process behind a pidfd has ended, whether or not it is a child.
pub async fn ended(pidfd: impl AsFd) -> io::Result<()> {
    child::ended(pidfd.as_fd()).await
}
