//! Runtime Supervisor ↔ session wrapper: one byte a message, over a stream socket pair whose one end
//! the wrapper finds as descriptor [`DESCRIPTOR`].
//!
//! ```text
//! supervisor                          wrapper
//!                 ◀───────────────  READY     signals are blocked: none can end or stop it any more
//!   BEGIN         ───────────────▶            the command is started
//!   (hang-up)     ───────────────▶            the session's whole process tree is killed
//!                 ◀───────────────  ENDED     nothing of the tree is left; the wrapper ends
//! ```
//!
//! The supervisor's end closed, by intent or because the supervisor is gone, is the order to end: before
//! `BEGIN` the command never runs. A wrapper that ends without `ENDED` was killed; the supervisor then
//! sends [`SWEEP`] to the sandbox's init, to which the tree has fallen. Bytes from the wrapper are the sandbox's: they
//! say when things may be tidied up, and grant nothing.

/// The wrapper's descriptor, the first after the standard streams.
pub const DESCRIPTOR: i32 = 3;

/// Lets the command start.
pub const BEGIN: u8 = b'b';

/// The wrapper can be sent signals.
pub const READY: u8 = b'r';

/// The process tree has ended.
pub const ENDED: u8 = b'e';

/// The signal on which the sandbox's init kills every process that has become its child.
pub const SWEEP: i32 = nix::libc::SIGUSR1;
