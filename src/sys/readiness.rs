//! Descriptors whose readiness tokio watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor, which must be non-blocking where it is read or written. Must be called in
/// a tokio runtime.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor must stay open and the same while it is registered. An `OwnedFd` gives
    // always the same number and closes it only when it is dropped, and `AsyncFd` drops it after
    // the registration has ended.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
