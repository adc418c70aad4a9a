//! Descriptors that a process is started with.

use std::collections::BTreeSet;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::io::FdFlags;

/// Descriptors that were taken; each can be owned once.
static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Takes the descriptor with this number, which the starter of this process passed; nothing when it is
/// not open or was taken before. It is closed on exec from here on.
pub fn take(number: RawFd) -> Option<OwnedFd> {
    if number <= 2 || !TAKEN.lock().ok()?.insert(number) {
        return None;
    }
    if nix::fcntl::fcntl(unsafe_borrow(number)?, nix::fcntl::FcntlArg::F_GETFD).is_err() {
        return None;
    }
    // SAFETY: the descriptor is open, as fcntl just showed. Nothing else in this process owns it: it was
    // not opened here but inherited, the standard streams are excluded, and `TAKEN` gives it away once.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).ok()?;
    Some(fd)
}

/// Borrows a number that may not be open, only to ask whether it is.
fn unsafe_borrow<'a>(number: RawFd) -> Option<std::os::fd::BorrowedFd<'a>> {
    // SAFETY: the number is not -1, the one value that a `BorrowedFd` may not hold, and the borrow is used
    // for F_GETFD alone, which is defined for a number that is not open (fcntl(2), EBADF).
    (number >= 0).then(|| unsafe { std::os::fd::BorrowedFd::borrow_raw(number) })
}
