//! The child's half: from the clone to its program. Async-signal-safe throughout.

use std::convert::Infallible;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use nix::libc;
use nix::sys::signal::SigSet;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::Signal;

use super::{Entry, Groups, Image, Step};

/// What the child reads; plain references and numbers, so that nothing is dropped there.
pub(super) struct ChildPlan<'a> {
    pub(super) image: &'a Image,
    pub(super) argv: &'a [*const libc::c_char],
    pub(super) env: &'a [*const libc::c_char],
    pub(super) staged: &'a mut [RawFd],
    pub(super) gate_read: RawFd,
    pub(super) gate_write: RawFd,
    pub(super) errors: RawFd,
    pub(super) entry: Entry,
}

/// The child's whole life up to its program. Async-signal-safe throughout.
pub(super) fn run_child(plan: &mut ChildPlan<'_>) -> ! {
    let (step, errno) = match child_steps(plan) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    let mut report = [0u8; 8];
    report[..4].copy_from_slice(&(step as u32).to_ne_bytes());
    report[4..].copy_from_slice(&errno.raw_os_error().to_ne_bytes());
    let _ = rustix::io::write(borrow(plan.errors), &report);
    exit_now()
}

fn exit_now() -> ! {
    // SAFETY: _exit ends the process at once and has no preconditions.
    unsafe { libc::_exit(127) }
}

/// Borrows a descriptor that is open in the child.
fn borrow<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: called with numbers from the plan, which its owners in the parent's frame keep open
    // across the clone, or which the child itself duplicated and never closes.
    unsafe { BorrowedFd::borrow_raw(number) }
}

fn child_steps(plan: &mut ChildPlan<'_>) -> Result<Infallible, (Step, Errno)> {
    // With its own copy of the write end open the child would never see the parent's death.
    // SAFETY: the parent's frame owns this number, but in the child that frame never ends, so that
    // nobody else uses or closes it again.
    unsafe { libc::close(plan.gate_write) };
    wait_at_gate(plan.gate_read);
    reset_signals();
    if let Entry::Namespaces(groups) = plan.entry {
        enter_namespaces(groups)?;
    }
    // Not whatever the developer's shell has: umoci makes directories that an image only implies by it.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    rustix::process::chdir(c"/").map_err(|e| (Step::Directory, e))?;
    // After the change of ids, which clears it (prctl(2)).
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| (Step::DeathSignal, e))?;
    if parent_is_gone(plan.gate_read) {
        exit_now();
    }
    let opened = place_descriptors(plan).map_err(|e| (Step::Descriptors, e))?;
    Err((Step::Execute, execute(plan, opened)))
}

fn wait_at_gate(gate: RawFd) {
    let mut byte = [0u8; 1];
    loop {
        match rustix::io::read(borrow(gate), &mut byte) {
            Ok(1..) => return,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => exit_now(),
        }
    }
}

/// The parent keeps the gate open until the program executes, so its hang-up means death. A parent
/// that dies after the death signal was set kills this process instead: exit closes descriptors
/// before it notifies children.
fn parent_is_gone(gate: RawFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let gate = borrow(gate);
    let mut fds = [PollFd::new(&gate, PollFlags::empty())];
    let seen = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    seen.is_err() || fds[0].revents().contains(PollFlags::HUP)
}

/// Gives every signal its default disposition, then unblocks all.
fn reset_signals() {
    // All zeroes is the default disposition in every architecture's `struct sigaction`, of which
    // none is larger.
    let default = [0u64; 16];
    for signal in 1..=64 {
        // SAFETY: the kernel only reads the structure, which installs no code. The system call
        // itself, since the C library refuses the two signals that it keeps for itself. SIGKILL
        // and SIGSTOP are refused by the kernel, which is what is wanted of them.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8usize) };
    }
    let none = SigSet::empty();
    let _ = none.thread_set_mask();
}

fn enter_namespaces(groups: Groups) -> Result<(), (Step, Errno)> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    // The raw calls change one thread, and the child has only one; glibc's would signal threads
    // that it thinks exist.
    if groups == Groups::Drop {
        set_thread_groups(&[]).map_err(|e| (Step::Groups, e))?;
    }
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).map_err(|e| (Step::GroupId, e))?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).map_err(|e| (Step::UserId, e))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change(c"/", private).map_err(|e| (Step::Propagation, e))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", flags, None::<&std::ffi::CStr>).map_err(|e| (Step::Proc, e))
}

/// Puts every descriptor in its place and closes all others at execution. Gives the number of the
/// opened executable.
fn place_descriptors(plan: &mut ChildPlan<'_>) -> Result<Option<RawFd>, Errno> {
    // First everything moves above all targets, so that no target's number is still a source.
    let floor = plan.image.fds.iter().map(|(_, target)| *target).max().unwrap_or(2) + 1;
    for ((source, _), staged) in plan.image.fds.iter().zip(plan.staged.iter_mut()) {
        *staged = duplicate(source.as_raw_fd(), floor)?;
    }
    plan.errors = duplicate(plan.errors, floor)?;
    let opened = match &plan.image.opened {
        Some(opened) => Some(duplicate(opened.as_raw_fd(), floor)?),
        None => None,
    };
    // SAFETY: changes only flags of this process's own descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } != 0 {
        return Err(last_errno());
    }
    for ((_, target), staged) in plan.image.fds.iter().zip(plan.staged.iter()) {
        // SAFETY: what the target number was before is either inherited and unused in the child or
        // was duplicated above; dup2 leaves the copy open across execve.
        if unsafe { libc::dup2(*staged, *target) } < 0 {
            return Err(last_errno());
        }
    }
    Ok(opened)
}

fn duplicate(number: RawFd, floor: RawFd) -> Result<RawFd, Errno> {
    // SAFETY: fcntl with F_DUPFD_CLOEXEC only makes a new descriptor.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, floor) };
    if copy < 0 { Err(last_errno()) } else { Ok(copy) }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(nix::errno::Errno::last_raw())
}

/// Executes the program; gives the reason when it comes back.
fn execute(plan: &ChildPlan<'_>, opened: Option<RawFd>) -> Errno {
    let (argv, env) = (plan.argv.as_ptr(), plan.env.as_ptr());
    match opened {
        // SAFETY: both vectors are NULL-terminated arrays of pointers to NUL-terminated strings
        // that live in the parent's frame, of which the child has a copy that never ends. The
        // empty path with AT_EMPTY_PATH means the descriptor itself.
        Some(fd) => unsafe {
            libc::syscall(libc::SYS_execveat, fd, c"".as_ptr(), argv, env, libc::AT_EMPTY_PATH);
        },
        // SAFETY: as above, and the path is a NUL-terminated string of the same lifetime.
        None => unsafe {
            libc::execve(plan.image.path.as_ptr(), argv, env);
        },
    }
    last_errno()
}
