//! The unsafe fence: every system call that needs `unsafe`, and the kernel interfaces around it.
//!
//! Nothing here decides anything about a Domain: these are the tools that the actors use. Processes
//! are held by pidfd, files by descriptor; what lies in a tree that the sandbox could write is only
//! reached relative to a descriptor, so that no symbolic link of its making leads outside.
#![allow(unsafe_code)]
#![warn(missing_docs)]

pub mod accounts;
pub mod child;
pub mod directories;
pub mod errand;
pub mod executables;
pub mod guest;
pub mod idmap;
pub mod inherited;
mod launch;
pub mod lock;
pub mod mounts;
pub mod namespaces;
pub mod private;
pub mod process;
pub mod procfs;
pub mod pty;
pub mod readiness;
pub mod removal;
pub mod seqpacket;
pub mod signals;
pub mod tap;
pub mod terminal;
