//! Pure decisions: state and event in, new state and a list of effects out. No IO, clock or randomness.

pub mod admission;
pub mod catalog;
pub mod generation;
pub mod lifecycle;
pub mod recovery;
pub mod restart;
pub mod session;
pub mod supervision;
#[cfg(test)]
mod walk;
