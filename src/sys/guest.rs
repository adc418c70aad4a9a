//! The few calls that `lazaret-guest` needs beyond the safe wrappers. It has one thread, always.
//!
//! # Processes in one memory
//!
//! A session is three processes, and every session starts them. Under gVisor a `fork`, which copies
//! an address space, costs 1 to 3 ms each; a process in its parent's memory (clone(2), CLONE_VM) costs
//! 0.05 ms. [`beside`] and [`until_exec`] make such processes and keep the one rule that makes them
//! sound: at any time at most one of the processes runs Rust code. The parent of [`until_exec`] is
//! suspended by the kernel (CLONE_VFORK). The parent of [`beside`] stays inside that function, in
//! a loop of bare system calls that reads and writes nothing but its own stack frame: no heap, no
//! thread-local storage, not even `errno`. What the child does to memory is thus to the parent as if a
//! function had done it that it called. Signal masks and actions, descriptors, working directory
//! and credentials are each process's own.

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

/// What a shell adds to a signal's number to tell a death by it as an exit status.
const BY_SIGNAL: u8 = 128;

/// Runs `work` as a child process in this process's memory and gives its exit status, as a shell
/// tells it. Meanwhile this process lets go of its standard streams, waits for `signals`, which must be
/// blocked, and hands those in `forwarded` on to the child. Fails with `EINVAL` in a process with several threads.
pub fn beside(signals: &SigSet, forwarded: &[Signal], work: impl FnOnce() -> u8) -> io::Result<u8> {
    let waited = signal_bits(signals.iter());
    let forwarded = signal_bits(forwarded.iter().copied());
    let mut stack = new_stack();
    let mut work = Some(work);
    let child = start(&mut stack, &mut work, libc::CLONE_VM)?;
    // The child runs now: from here to its end, nothing but bare system calls.
    Ok(bare::wait_and_forward(child, waited, forwarded))
}

/// Runs `work` as a child process in this process's memory, with this process suspended until
/// `work` has executed a program or returned, and gives the child's id. Fails with `EINVAL` in a
/// process with several threads.
pub fn until_exec(work: impl FnOnce() -> u8) -> io::Result<i32> {
    let mut stack = new_stack();
    let mut work = Some(work);
    start(&mut stack, &mut work, libc::CLONE_VM | libc::CLONE_VFORK)
}

/// Allocates a stack.
fn new_stack() -> Box<[MaybeUninit<u128>]> {
    Box::new_uninit_slice(STACK / size_of::<u128>())
}

/// Starts a process on a stack of its own. Both the stack and the work must outlive its use of
/// them: private to [`beside`] and [`until_exec`], which see to it.
fn start<F: FnOnce() -> u8>(
    stack: &mut [MaybeUninit<u128>],
    work: &mut Option<F>,
    flags: libc::c_int,
) -> io::Result<i32> {
    /// The first function of the new process; what it returns is its exit status.
    extern "C" fn enter<F: FnOnce() -> u8>(work: *mut c_void) -> libc::c_int {
        // SAFETY: `start` passes a pointer to its `Option<F>`, which outlives this process's use of
        // it, and touches it no more.
        let work = unsafe { &mut *work.cast::<Option<F>>() }.take();
        let status = work.map(guarded);
        status.unwrap_or(PANICKED).into()
    }
    // Changes nothing, and fails in a process with several threads (unshare(2)); gVisor keeps to it.
    unshare(CloneFlags::CLONE_THREAD)?;
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let work = std::ptr::from_mut(work).cast::<c_void>();
    // SAFETY: `top` is the 16-byte aligned end of a stack that is used for nothing else, and `enter::<F>`
    // matches the type behind `work`; both outlive the new process's use of them. This process has one
    // thread, and by the callers' rule, told above, it does not run Rust code beside the new one.
    let child = unsafe { libc::clone(enter::<F>, top, flags | libc::SIGCHLD, work) };
    if child < 0 { Err(io::Error::last_os_error()) } else { Ok(child) }
}

/// Gives signals as the kernel writes a set of them: bit n-1 for signal n.
fn signal_bits(signals: impl Iterator<Item = Signal>) -> u64 {
    signals.fold(0, |bits, signal| bits | 1 << (signal as u32 - 1))
}

/// System calls without libc, which would write `errno` into memory that another process uses.
mod bare {
    use std::arch::asm;

    use super::{BY_SIGNAL, libc};

    /// Waits until a child has ended and gives its exit status, handing on signals that arrive.
    pub(super) fn wait_and_forward(child: i32, waited: u64, forwarded: u64) -> u8 {
        let pid = child as usize;
        let mut flags = libc::WNOHANG;
        for stream in 0..=2 {
            // SAFETY: close(2) takes no pointer, and nothing in this process uses the streams any more.
            unsafe { call(libc::SYS_close, stream, 0, 0, 0) };
        }
        loop {
            let mut status: libc::c_int = 0;
            // SAFETY: wait4(2) writes `status`, which lives on this stack frame.
            let ended = unsafe { call(libc::SYS_wait4, pid, &raw mut status as usize, flags as usize, 0) };
            if ended == child as isize {
                return shell_status(status);
            }
            if ended == -(libc::ECHILD as isize) {
                return super::PANICKED;
            }
            let set = &raw const waited as usize;
            // SAFETY: rt_sigtimedwait(2) reads `waited`, eight bytes on this stack frame, and no more.
            let signal = unsafe { call(libc::SYS_rt_sigtimedwait, set, 0, 0, size_of::<u64>()) };
            match signal {
                1..=64 if forwarded & 1 << (signal - 1) != 0 => {
                    // SAFETY: kill(2) takes no pointer.
                    unsafe { call(libc::SYS_kill, pid, signal as usize, 0, 0) };
                }
                error if error < 0 && error != -(libc::EINTR as isize) && error != -(libc::EAGAIN as isize) => {
                    // Signals can't be waited for; the child still can.
                    flags = 0;
                }
                _ => {}
            }
        }
    }

    /// Gives a wait status as a shell tells it.
    fn shell_status(status: libc::c_int) -> u8 {
        match (status & 0x7f) as u8 {
            0 => (status >> 8) as u8,
            signal => BY_SIGNAL | signal,
        }
    }

    /// Makes a system call and gives what the kernel returns: an error as a small negative number.
    ///
    /// # Safety
    ///
    /// As for the system call itself: pointers among the arguments must be valid for what it does.
    unsafe fn call(number: libc::c_long, a: usize, b: usize, c: usize, d: usize) -> isize {
        let result: isize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the registers are those of the system call convention (syscall(2)), which
        // clobbers rcx and r11; memory counts as clobbered by default. The rest is the caller's duty.
        unsafe {
            asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
                in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above, by the convention of this architecture, which clobbers nothing.
        unsafe {
            asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c,
                in("x3") d, options(nostack));
        }
        result
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn wait_statuses_are_told_as_a_shell_tells_them() {
            for (status, expected) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (11 | 0x80, 139), (64, 192)] {
                assert_eq!(super::shell_status(status), expected);
            }
        }
    }
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
