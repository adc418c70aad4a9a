//! Giving up privileges, for good.

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities};

use super::{SessionError, step};
use crate::domain::capabilities::{AGENT, Capability};
use crate::domain::runtime::GuestProcess;

/// Becomes the process's user. Root keeps the agent's capabilities; any other user has none, and
/// whoever becomes root later finds no more than the agent's in the bounding set.
///
/// `no_new_privs` stays off: it would make `sudo` in an image fail where gVisor lets it work, and
/// the bounding set already says how far a privileged program can get.
pub(super) fn drop_to(process: &GuestProcess) -> Result<(), SessionError> {
    let keep = agent_set(AGENT);
    // Thirty calls are cheaper here than reading the set from `/proc`.
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if keep.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel knows none with this number, so none with a higher one.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(step("limit capabilities")(error)),
        }
    }
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(step("give up capabilities"))?;
    let groups: Vec<Gid> = process.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(step("set supplementary groups"))?;
    let (uid, gid) = (Uid::from_raw(process.uid), Gid::from_raw(process.gid));
    setresgid(gid, gid, gid).map_err(step("set the group"))?;
    // From root to any other id this clears the permitted and effective sets (capabilities(7)).
    setresuid(uid, uid, uid).map_err(step("set the user"))
}

/// Gives a list of capabilities as a set.
fn agent_set(list: &[Capability]) -> CapabilitySet {
    CapabilitySet::from_bits_retain(list.iter().fold(0, |bits, capability| bits | 1 << capability.number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::capabilities::SESSION_START;

    #[test]
    fn the_listed_numbers_are_those_of_the_names() {
        let expected = CapabilitySet::CHOWN
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::FOWNER
            | CapabilitySet::FSETID
            | CapabilitySet::KILL
            | CapabilitySet::SETGID
            | CapabilitySet::SETUID
            | CapabilitySet::NET_BIND_SERVICE
            | CapabilitySet::SYS_CHROOT;
        assert_eq!(agent_set(AGENT), expected);
        assert_eq!(agent_set(SESSION_START), CapabilitySet::SETPCAP);
    }
}
