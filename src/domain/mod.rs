//! The vocabulary: each noun of `docs/glossary.md` as one type, without IO.
#![warn(missing_docs)]

pub mod artifact;
pub mod capabilities;
pub mod escalation;
pub mod escaped;
pub mod failure;
pub mod ids;
pub mod layout;
pub mod network;
pub mod ownership;
pub mod profile;
pub mod routing;
pub mod runtime;
pub mod session;
pub mod workspace;
