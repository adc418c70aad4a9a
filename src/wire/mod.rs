//! The bytes between Lazaret's processes: length-limited, versioned frames.
//!
//! - [`frame`]: how a message becomes bytes, and the limits that are refused before allocation
//! - [`hello`]: the first, plain-text exchange on the Host Coordinator's socket, which enrols a client
//! - [`client`]: Client CLI ↔ Host Coordinator, under mutual TLS
//! - [`bootstrap`]: a starting Host Coordinator → the Client CLI that started it
//! - [`lease`]: Host Coordinator ↔ Runtime Supervisor, over the lifetime lease
//! - [`lifeline`]: Runtime Supervisor ↔ session wrapper in the sandbox
#![warn(missing_docs)]

pub mod bootstrap;
pub mod client;
pub mod frame;
pub mod hello;
pub mod lease;
pub mod lifeline;
