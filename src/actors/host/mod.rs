//! The Host Coordinator's supervision tree.
