//! Lazaret: rootless gVisor sandboxes for AI coding agents, as a library under two thin binaries.
//!
//! Three processes run this code. The **Client CLI** ([`cli`]) is what a developer starts. The
//! **Host Coordinator** ([`actors::host`]) leads one Domain from the host's namespaces. The
//! **Runtime Supervisor** ([`actors::runtime`]) is process 1 of the Domain generation's own
//! namespaces. Inside the sandbox runs [`guest`], as the separate static binary `lazaret-guest`.
//!
//! Imports point down this list and never up:
//!
//! ```text
//! bin → cli → actors → oci → identity → wire → core → domain
//!                    → store → core
//!                    → policy → domain
//!                    → git_router → sys → domain
//!                    → sys → domain
//! ```
//!
//! `domain`, `core` and `policy` decide and never touch the world; a test reads their `use`
//! lines and enforces it.

pub mod actors;
pub mod cli;
pub mod core;
pub mod domain;
pub mod fault;
pub mod git_router;
pub mod guest;
pub mod identity;
pub mod observe;
pub mod oci;
pub mod policy;
pub mod protocol_trace;
pub mod store;
pub mod sys;
pub mod wire;
