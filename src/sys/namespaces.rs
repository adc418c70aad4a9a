//! Processes in new user, pid and mount namespaces, as root of a mapped identity range.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use nix::libc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;

use super::idmap::{self, IdMapError};
use super::launch::{Entry, Gated, Image, LaunchError};
use crate::domain::artifact::IdMapping;

pub use super::child::Child as MappedChild;
pub use super::launch::Step;

/// A command to run as root of new namespaces.
#[derive(Debug)]
pub struct MappedCommand {
    /// The executable. `/proc/self/exe` means the caller's own.
    pub executable: PathBuf,
    /// The argument vector, `argv[0]` included.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Descriptors to pass: each with its number in the new process. Standard streams that are not
    /// named are `/dev/null`; every other descriptor is closed.
    pub fds: Vec<(OwnedFd, RawFd)>,
    /// The identity mapping.
    pub mapping: IdMapping,
}

/// A command that could not be run in new namespaces.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The process could not be brought to execution.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Its identities could not be mapped.
    #[error("cannot map identities into the new user namespace")]
    Mapping(#[from] IdMapError),
    /// Its end or its output could not be collected.
    #[error("cannot collect the result of {program}")]
    Collect {
        /// The executable.
        program: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Starts a command as user 0, group 0 and process 1 of new user, pid and mount namespaces.
///
/// When this returns the command executes. It has no supplementary groups, private mounts and a
/// fresh `/proc`; it is killed when the calling *thread* ends (prctl(2), PR_SET_PDEATHSIG), so call
/// this from a thread that outlives it. The call takes some milliseconds, most of them in
/// newuidmap(1) and newgidmap(1).
pub fn spawn_mapped(command: MappedCommand) -> Result<MappedChild, NamespaceError> {
    let MappedCommand { executable, argv, env, fds, mapping } = command;
    let image = Image::prepare(&executable, &argv, &env, fds)?;
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    let gated = Gated::clone_process(image, flags as u64, Entry::Namespaces(idmap::groups(&mapping)))?;
    idmap::install(gated.child.pid(), &mapping)?;
    Ok(gated.open()?)
}

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub struct MappedOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// The end of its standard output, at most [`OUTPUT_KEPT`] bytes.
    pub stdout: Vec<u8>,
    /// The end of its standard error, at most [`OUTPUT_KEPT`] bytes.
    pub stderr: Vec<u8>,
}

/// How much of a command's output [`run_mapped`] keeps.
pub const OUTPUT_KEPT: usize = 64 << 10;

/// Runs a command as [`spawn_mapped`] does and collects its end and its output. The command must
/// not name descriptors 1 and 2. Dropping the future kills the command.
pub async fn run_mapped(mut command: MappedCommand) -> Result<MappedOutput, NamespaceError> {
    let program = command.executable.clone();
    let collect = |source| NamespaceError::Collect { program: program.clone(), source };
    let (stdout, into_stdout) = output_pipe().map_err(collect)?;
    let (stderr, into_stderr) = output_pipe().map_err(collect)?;
    command.fds.push((into_stdout, libc::STDOUT_FILENO));
    command.fds.push((into_stderr, libc::STDERR_FILENO));
    let mut child = spawn_mapped(command)?;
    let (stdout, stderr, status) = tokio::join!(read_end(stdout), read_end(stderr), child.wait());
    let status = status.map_err(collect)?;
    Ok(MappedOutput { status, stdout: stdout.map_err(collect)?, stderr: stderr.map_err(collect)? })
}

fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((pipe::Receiver::from_owned_fd(read)?, write))
}

/// Reads to the end and keeps the last [`OUTPUT_KEPT`] bytes.
async fn read_end(mut from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    while from.read_buf(&mut kept).await? > 0 {
        if kept.len() > 2 * OUTPUT_KEPT {
            kept.drain(..kept.len() - OUTPUT_KEPT);
        }
    }
    kept.drain(..kept.len().saturating_sub(OUTPUT_KEPT));
    Ok(kept)
}

/// Tries to make the namespaces, map the caller's own ids and execute `program` in them.
pub fn try_namespaces(program: &Path) -> Result<ExitStatus, NamespaceError> {
    let own = |outside| vec![crate::domain::artifact::IdRange { inside: 0, outside, count: 1 }];
    let mapping =
        IdMapping { uids: own(rustix::process::geteuid().as_raw()), gids: own(rustix::process::getegid().as_raw()) };
    let command = MappedCommand {
        executable: program.to_owned(),
        argv: vec![program.into()],
        env: Vec::new(),
        fds: Vec::new(),
        mapping,
    };
    let mut child = spawn_mapped(command)?;
    child.wait_blocking().map_err(|source| NamespaceError::Collect { program: program.to_owned(), source })
}
