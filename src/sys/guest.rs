//! The few calls that `lazaret-guest` needs beyond the safe wrappers. It has one thread, always.
//!
//! # Processes in one memory
//!
//! Under gVisor a `fork`, which copies an address space, costs 1 to 3 ms; a process in its parent's memory
//! (clone(2), CLONE_VM) costs 0.05 ms. [`until_exec`] makes such a process and keeps the one rule that makes it
//! sound: at any time only one of the two runs. The parent is suspended by the kernel (CLONE_VFORK) until the
//! child has its own memory or is gone. Signal masks and actions, descriptors, working directory and
//! credentials are each process's own.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Defines the C function `main` of `lazaret-guest`, which calls `$run` and exits with the status that it
/// gives. Rust's own start-up (guard pages, stack overflow reports, sanitised streams, ignored
/// SIGPIPE) is left out: it costs a new process under gVisor 1.7 ms, a tenth of a session's start.
#[macro_export]
macro_rules! guest_main {
    ($run:path) => {
        // SAFETY: this is the program's only `main`, with the signature that C gives it.
        #[unsafe(no_mangle)]
        extern "C" fn main(
            _count: ::std::ffi::c_int,
            _arguments: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            $crate::sys::guest::guarded($run).into()
        }
    };
}

/// Runs `work` and gives its exit status, or that of a failure of Lazaret's own when it panicked.
pub fn guarded(work: impl FnOnce() -> u8) -> u8 {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED)
}

/// Stack of a process in its parent's memory: ample for what runs on it, and below the size from
/// which malloc(3) asks the kernel for a mapping of its own.
const STACK: usize = 96 * 1024;

/// Exit status of a process whose work panicked.
const PANICKED: u8 = 125;

/// Runs `work` as a child process in this process's memory, with this process suspended until
/// `work` has executed a program or returned, and gives the child's id. Fails with `EINVAL` in a
/// process with several threads.
pub fn until_exec<F: FnOnce() -> u8>(work: F) -> io::Result<i32> {
    /// The first function of the new process; what it returns is its exit status.
    extern "C" fn enter<F: FnOnce() -> u8>(work: *mut c_void) -> libc::c_int {
        // SAFETY: `until_exec` passes a pointer to its `Option<F>`, which outlives this process's use of
        // it, and is suspended meanwhile.
        let work = unsafe { &mut *work.cast::<Option<F>>() }.take();
        let status = work.map(guarded);
        status.unwrap_or(PANICKED).into()
    }
    let mut stack: Box<[MaybeUninit<u128>]> = Box::new_uninit_slice(STACK / size_of::<u128>());
    let mut work = Some(work);
    // Changes nothing, and fails in a process with several threads (unshare(2)); gVisor keeps to it.
    unshare(CloneFlags::CLONE_THREAD)?;
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let work = (&raw mut work).cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `top` is the 16-byte aligned end of a stack that is used for nothing else, and `enter::<F>`
    // matches the type behind `work`; both outlive the new process's use of them, since this process, which
    // has one thread, is suspended until then (clone(2), CLONE_VFORK).
    let child = unsafe { libc::clone(enter::<F>, top, flags, work) };
    if child < 0 { Err(io::Error::last_os_error()) } else { Ok(child) }
}

/// Keeps a ^Z from stopping this process before its `execve`: its parent, suspended until then, could
/// not continue it. `execve` makes the default of what has a handler. All other signals still are as
/// runsc starts a process, at their defaults.
pub fn stay_until_exec() {
    /// Does nothing.
    extern "C" fn nothing(_: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing and so is async-signal-safe. Setting one for SIGTSTP cannot fail.
    let _ = unsafe { sigaction(Signal::SIGTSTP, &action) };
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
/// not print it.
pub fn replace_command_line(title: &str) {
    // Each with its NUL.
    let length = std::env::args_os().map(|argument| argument.len() + 1).sum();
    // SAFETY: glibc sets the variable before `main` and nothing here writes it.
    let start = unsafe { program_invocation_name }.cast::<u8>();
    if start.is_null() {
        return;
    }
    // SAFETY: the kernel lays the argument strings out one after the other, NUL-terminated, in
    // memory that stays mapped and writable (execve(2), proc(5) on arg_start), from `argv[0]` on;
    // `length` was measured on those very strings just now. The process has one thread, and
    // `std::env::args_os` reads the memory only when called, as NUL-terminated strings, which it still
    // holds, so that another call of this finds no more.
    let arguments = unsafe { std::slice::from_raw_parts_mut(start, length) };
    arguments.fill(0);
    let shown = title.len().min(length.saturating_sub(1));
    arguments[..shown].copy_from_slice(&title.as_bytes()[..shown]);
}
