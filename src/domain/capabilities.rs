//! Linux capabilities in the sandbox (capabilities(7)), as plain data.
//!
//! gVisor keeps its own capability sets; nothing here gives a right on the host. The list is what a
//! developer expects of root in a container: install packages, change owners, switch users, serve a
//! low port. What would reach mounts, devices, the network's configuration or other sessions is not in it.

/// One capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Its name, as the OCI runtime specification writes it.
    pub name: &'static str,
    /// Its bit number.
    pub number: u32,
}

/// Defines a capability by name and bit number.
const fn capability(name: &'static str, number: u32) -> Capability {
    Capability { name, number }
}

/// The capabilities that a session's processes may hold: root all of them, any other user none until
/// it becomes root. They are the whole bounding set, and init's.
///
/// They are what package managers need to install as root: to own, read and mark any file
/// (`CHOWN`, `DAC_OVERRIDE`, `FOWNER`, `FSETID`), to become a service user and signal it
/// (`SETUID`, `SETGID`, `KILL`), and to run a maintainer script below another root
/// (`SYS_CHROOT`); and `NET_BIND_SERVICE`, to serve on a port below 1024. Left out with a reason:
/// `MKNOD` (gVisor makes no device nodes here), `SETFCAP` (this runsc stores no file capabilities),
/// `AUDIT_WRITE` (there is no audit socket), `SETPCAP` (only the session wrapper lowers a bounding set).
pub const AGENT: &[Capability] = &[
    capability("CAP_CHOWN", 0),
    capability("CAP_DAC_OVERRIDE", 1),
    capability("CAP_FOWNER", 3),
    capability("CAP_FSETID", 4),
    capability("CAP_KILL", 5),
    capability("CAP_SETGID", 6),
    capability("CAP_SETUID", 7),
    capability("CAP_NET_BIND_SERVICE", 10),
    capability("CAP_SYS_CHROOT", 18),
];

/// What `lazaret-guest session` starts with besides [`AGENT`], to take the rest out of the bounding set before
/// the command runs.
pub const SESSION_START: &[Capability] = &[capability("CAP_SETPCAP", 8)];

/// Gives the names of the agent's capabilities.
pub fn agent() -> impl Iterator<Item = &'static str> {
    AGENT.iter().map(|capability| capability.name)
}

/// Gives the names of the capabilities that `lazaret-guest session` must be started with.
pub fn session_start() -> impl Iterator<Item = &'static str> {
    AGENT.iter().chain(SESSION_START).map(|capability| capability.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_holds_nothing_that_reaches_beyond_its_session() {
        for forbidden in ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_PTRACE", "CAP_MKNOD"] {
            assert!(AGENT.iter().all(|capability| capability.name != forbidden), "{forbidden}");
        }
        assert_eq!(session_start().count(), AGENT.len() + SESSION_START.len());
    }
}
