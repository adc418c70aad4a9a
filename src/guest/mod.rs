//! What `lazaret-guest` does inside the sandbox.
