//! The few calls that `lazaret-guest` needs beyond the safe wrappers. It has one thread, always.

use std::io;
use std::os::fd::RawFd;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, fork};

/// Forks. Fails with `EINVAL` in a process that has more than one thread.
///
/// `unshare(CLONE_THREAD)` changes nothing and fails in a process with several threads
/// (unshare(2)); gVisor keeps to that.
pub fn fork_single_threaded() -> io::Result<ForkResult> {
    unshare(CloneFlags::CLONE_THREAD)?;
    // SAFETY: the call above showed that this thread is the process's only one, so no lock is held
    // by a thread that will be missing in the child, and the child may go on as the parent could.
    Ok(unsafe { fork() }?)
}

/// Gives every signal its default action again, as a freshly executed program expects it. The Rust
/// runtime ignores SIGPIPE, for one, and ignored signals stay ignored across `execve`.
pub fn default_signal_actions() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default action runs no code of this process, so no handler's preconditions
        // can be broken. It fails for no signal but the two that are left out.
        let _ = unsafe { sigaction(signal, &default) };
    }
}

/// Marks every descriptor from `first` up to be closed by `execve`.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // gVisor takes descriptors for signed numbers and refuses a last one above that.
    let last = RawFd::MAX;
    // SAFETY: CLOSE_RANGE_CLOEXEC closes nothing now; it sets a flag on descriptors, and takes no pointer.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

unsafe extern "C" {
    /// `argv[0]`, as glibc keeps it (program_invocation_name(3)).
    static program_invocation_name: *mut libc::c_char;
}

/// Overwrites this process's command line, as others see it in `/proc/PID/cmdline`, with `title`.
/// A session's whole environment stands in the arguments of its first process; a plain `ps` must
/// not print it. `length` is the number of bytes of the original arguments, each with its NUL.
pub fn replace_command_line(title: &str, length: usize) {
    // SAFETY: glibc sets the variable before `main` and nothing here writes it.
    let start = unsafe { program_invocation_name }.cast::<u8>();
    if start.is_null() {
        return;
    }
    // SAFETY: the kernel lays the argument strings out one after the other, NUL-terminated, in
    // memory that stays mapped and writable (execve(2), proc(5) on arg_start); `length` does not
    // reach beyond them, as the caller measured it on those very strings. The process has one
    // thread, and `std::env::args_os` reads the memory only when called, as NUL-terminated strings,
    // which it still holds.
    let arguments = unsafe { std::slice::from_raw_parts_mut(start, length) };
    arguments.fill(0);
    let shown = title.len().min(length.saturating_sub(1));
    arguments[..shown].copy_from_slice(&title.as_bytes()[..shown]);
}
