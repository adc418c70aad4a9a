//! Fork and execute in two halves: all preparation before, only raw system calls between.
//!
//! ```text
//! parent  prepare ── clone3 ── (id maps, unshare, …) ── open gate ── read error pipe to its end
//! child                └─ wait at gate ── [namespaces' set-up] ── descriptors ── execve ─┘
//! ```
//!
//! The parent may have other threads, so that the child, a copy with one thread, must not touch any
//! lock: no allocation, no environment, no locale, no Rust standard stream. A parent that dies
//! before it opens the gate closes it, and the child then ends.

mod child_half;

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::fs::{Mode, OFlags};

use super::child::Child;
use child_half::{ChildPlan, run_child};

/// A command that could not be brought to execution.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// An argument, variable or path cannot be passed.
    #[error("'{0}' holds a NUL byte")]
    Nul(String),
    /// The executable cannot be opened.
    #[error("cannot open the executable {path}")]
    Executable {
        /// The executable.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A pipe or descriptor could not be had.
    #[error("cannot make the descriptors of a new process")]
    Descriptors(#[source] io::Error),
    /// The kernel makes no such process.
    #[error("cannot create the process")]
    Clone(#[source] io::Error),
    /// A step of the new process failed before its program began.
    #[error("{step} failed")]
    Step {
        /// Which.
        step: Step,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A step of the new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Supplementary groups are dropped.
    Groups = 1,
    /// The group id becomes 0.
    GroupId,
    /// The user id becomes 0.
    UserId,
    /// Mounts become private.
    Propagation,
    /// A fresh `/proc` is mounted.
    Proc,
    /// The working directory becomes `/`.
    Directory,
    /// Descriptors are put in their places.
    Descriptors,
    /// The parent-death signal is set.
    DeathSignal,
    /// The program is executed.
    Execute,
}

impl Step {
    fn from_code(code: u32) -> Option<Self> {
        const ALL: [Step; 9] = [
            Step::Groups,
            Step::GroupId,
            Step::UserId,
            Step::Propagation,
            Step::Proc,
            Step::Directory,
            Step::Descriptors,
            Step::DeathSignal,
            Step::Execute,
        ];
        ALL.into_iter().find(|step| *step as u32 == code)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Groups => "dropping supplementary groups in the new user namespace",
            Self::GroupId => "becoming group 0 of the new user namespace",
            Self::UserId => "becoming user 0 of the new user namespace",
            Self::Propagation => "making mounts private in the new mount namespace",
            Self::Proc => "mounting /proc in the new namespaces",
            Self::Directory => "changing to the root directory",
            Self::Descriptors => "placing the descriptors of the new process",
            Self::DeathSignal => "binding the new process to its parent",
            Self::Execute => "executing the program",
        })
    }
}

/// Whether the new process drops its supplementary groups. Where the kernel had to be told
/// `setgroups deny` (user_namespaces(7)) it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Groups {
    Drop,
    Keep,
}

/// What the new process does between the gate and its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Only executes.
    Plain,
    /// Becomes root of new user, pid and mount namespaces.
    Namespaces(Groups),
}

/// Everything that execution needs, made before the clone.
pub(super) struct Image {
    path: CString,
    /// Set when the path means something else in the new process: everything below `/proc`.
    opened: Option<OwnedFd>,
    argv: Vec<CString>,
    env: Vec<CString>,
    fds: Vec<(OwnedFd, RawFd)>,
}

impl Image {
    pub(super) fn prepare(
        executable: &Path,
        argv: &[OsString],
        env: &[(OsString, OsString)],
        mut fds: Vec<(OwnedFd, RawFd)>,
    ) -> Result<Self, LaunchError> {
        let opened = if executable.starts_with("/proc") {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let opened = rustix::fs::open(executable, flags, Mode::empty());
            Some(opened.map_err(|e| LaunchError::Executable { path: executable.to_owned(), source: e.into() })?)
        } else {
            None
        };
        for standard in 0..3 {
            if fds.iter().all(|(_, number)| *number != standard) {
                let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
                fds.push((null.map_err(|e| LaunchError::Descriptors(e.into()))?, standard));
            }
        }
        let pair = |(name, value): &(OsString, OsString)| {
            let mut text = name.clone();
            text.push("=");
            text.push(value);
            c_string(&text)
        };
        Ok(Self {
            path: c_string(executable.as_os_str())?,
            opened,
            argv: argv.iter().map(|argument| c_string(argument)).collect::<Result<_, _>>()?,
            env: env.iter().map(pair).collect::<Result<_, _>>()?,
            fds,
        })
    }
}

fn c_string(text: &OsStr) -> Result<CString, LaunchError> {
    CString::new(text.as_bytes()).map_err(|_| LaunchError::Nul(text.to_string_lossy().into_owned()))
}

/// A new process that waits at its gate. Dropping it ends it.
pub(super) struct Gated {
    pub(super) child: Child,
    gate: OwnedFd,
    errors: OwnedFd,
}

impl Gated {
    /// Clones this process with `flags` (clone(2)); the copy waits at the gate.
    pub(super) fn clone_process(image: Image, flags: u64, entry: Entry) -> Result<Self, LaunchError> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (gate_read, gate_write) = pipe().map_err(|e| LaunchError::Descriptors(e.into()))?;
        let (error_read, error_write) = pipe().map_err(|e| LaunchError::Descriptors(e.into()))?;

        // The child's tables. They hold pointers into `image`, which outlives the clone in both copies.
        let argv: Vec<*const libc::c_char> = null_terminated(&image.argv);
        let env: Vec<*const libc::c_char> = null_terminated(&image.env);
        let mut staged: Vec<RawFd> = vec![-1; image.fds.len()];
        let mut plan = ChildPlan {
            image: &image,
            argv: &argv,
            env: &env,
            staged: &mut staged,
            gate_read: gate_read.as_raw_fd(),
            gate_write: gate_write.as_raw_fd(),
            errors: error_write.as_raw_fd(),
            entry,
        };

        // Blocked, so that no handler of this program runs in the child before it has none.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(|e| LaunchError::Clone(e.into()))?;
        let cloned = clone3(flags, &mut plan);
        let _ = mask.thread_set_mask();
        let (pid, pidfd) = cloned.map_err(LaunchError::Clone)?;
        Ok(Self { child: Child::new(pid, pidfd), gate: gate_write, errors: error_read })
    }

    /// Opens the gate and waits until the program executes or a step failed.
    pub(super) fn open(self) -> Result<Child, LaunchError> {
        let Self { mut child, gate, errors } = self;
        // EPIPE would mean that the child has ended; the error pipe and the exit status then say how.
        let _ = std::fs::File::from(gate.try_clone().map_err(LaunchError::Descriptors)?).write_all(b"!");
        let mut report = Vec::with_capacity(8);
        let read = std::fs::File::from(errors).take(8).read_to_end(&mut report);
        // Held open until here: its end tells the child that the parent is gone.
        drop(gate);
        read.map_err(LaunchError::Descriptors)?;
        let Ok(report) = <[u8; 8]>::try_from(report) else { return Ok(child) };
        let [a, b, c, d, e, f, g, h] = report;
        let _ = child.wait_blocking();
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes([e, f, g, h]));
        let step = Step::from_code(u32::from_ne_bytes([a, b, c, d])).unwrap_or(Step::Execute);
        Err(LaunchError::Step { step, source })
    }
}

fn null_terminated(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Clones; the child never returns from here.
fn clone3(flags: u64, plan: &mut ChildPlan<'_>) -> io::Result<(i32, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is a plain structure of integers, for which all zeroes is a valid value
    // that clone(2) defines as "not used".
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags | libc::CLONE_PIDFD as u64;
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM and with a zero stack clone3 is fork: the child gets a copy of this
    // address space and stack. `arguments` and the `pidfd` that it points to live across the call,
    // and the size is the structure's own. The child calls only `run_child`, which never returns
    // and makes only async-signal-safe calls, so that locks held by other threads do not matter.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match pid {
        0 => run_child(plan),
        1.. => {
            // SAFETY: CLONE_PIDFD made the kernel store a new descriptor here that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok((pid as i32, pidfd))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::ended;
    use crate::sys::namespaces::tests::block_on;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn a_closed_gate_ends_the_process() {
        let image = Image::prepare(Path::new("/bin/sleep"), &["sleep".into(), "100".into()], &[], Vec::new()).unwrap();
        let Gated { mut child, gate, errors } = Gated::clone_process(image, 0, Entry::Plain).unwrap();
        drop(gate);
        block_on(async { tokio::time::timeout(Duration::from_secs(5), ended(child.pidfd().as_fd())).await })
            .unwrap()
            .unwrap();
        assert_eq!(child.wait_blocking().unwrap().code(), Some(127));
        drop(errors);
    }

    #[test]
    fn every_step_has_its_code() {
        for code in 1..=9 {
            assert_eq!(Step::from_code(code).map(|step| step as u32), Some(code));
        }
        assert_eq!(Step::from_code(0), None);
        assert_eq!(Step::from_code(10), None);
    }
}
