//! Ending as a signal's default action would have it.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

/// Ends this process by the signal, so that its parent sees what happened; a shell shows 128 and
/// the signal's number. For a signal whose default action does not end a process, exits with that
/// status.
pub fn die_by(signal: Signal) -> ! {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this process.
    let installed = unsafe { sigaction(signal, &default) };
    let mut mask = SigSet::empty();
    mask.add(signal);
    if installed.is_ok() && mask.thread_unblock().is_ok() {
        // Either this does not return, or the status below says the same.
        let _ = raise(signal);
    }
    std::process::exit(128 + signal as i32)
}
