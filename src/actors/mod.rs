//! Actors: the only code that touches the world, in two supervision trees.

pub mod host;
pub mod runtime;
