//! The Runtime Supervisor's supervision tree.
