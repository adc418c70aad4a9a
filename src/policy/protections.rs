//! Protective mounts over the workspace (Git Sentry).
