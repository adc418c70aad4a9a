//! The git router: the file system that a sandbox sees as its Agent Workspace.
//!
//! A process of its own serves it through FUSE, out of three trees of the host: the developer's
//! project (*shared*), the Domain's Ignored Workspace State (*persistent*) and storage that ends
//! with the Domain generation (*transient*). Which of them a path belongs to is decided here.
//!
//! ```text
//! kernel ── requests ──▶ the router's process ──▶ shared | persistent | transient
//!                             │
//!                             ├ Git Sentry: what host tools would execute or obey (SR-4)
//!                             └ routing: what Git ignores stays in the sandbox (SR-13)
//! ```
