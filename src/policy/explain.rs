//! For each grant, where it came from.
