//! Configuration → derived network policy, probe plan, sandbox specification, protections.
#![warn(missing_docs)]

pub mod address_space;
pub mod derive;
pub mod enforcement;
pub mod explain;
pub mod mapping;
pub mod protections;
pub mod sandbox;
