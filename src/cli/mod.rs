//! The Client CLI.
