//! Network policy and the evidence that it holds.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::ids::{PolicyDigest, ReadinessFingerprint};
use super::ownership::NamespaceIdentity;

/// What a profile grants of the network, as written in configuration; by default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkGrant {
    /// Prefixes granted inside denied ranges.
    pub allow: Vec<IpNet>,
    /// Prefixes denied besides the default ones.
    pub deny: Vec<IpNet>,
    /// Resolvers to use; empty means the host's, through the connectivity helper.
    pub dns: Vec<IpAddr>,
    /// Whether IPv6 is on, under an equal policy.
    pub ipv6: Ipv6,
    /// What the readiness probe tries besides its defaults.
    pub probe: ProbeGrant,
}

/// Whether IPv6 is on in a sandbox; written as `true` or `false`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Ipv6 {
    /// It is not.
    #[default]
    Off,
    /// It is, under a policy equal to the one for IPv4.
    On,
}

impl Ipv6 {
    /// Tells whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

impl From<bool> for Ipv6 {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl From<Ipv6> for bool {
    fn from(ipv6: Ipv6) -> Self {
        ipv6.is_on()
    }
}

/// What the readiness probe tries besides its defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeGrant {
    /// Names that must resolve.
    pub resolve: Vec<String>,
    /// TCP endpoints that must accept a connection.
    pub connect: Vec<SocketAddr>,
    /// Further addresses that must be unreachable.
    pub denied: Vec<IpAddr>,
}

/// What happens to packets for a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Routed to the connectivity helper.
    Permit,
    /// Held back by a loopback-unicast deny route (SR-6).
    Deny,
}

/// One rule of a derived policy: a prefix, what happens to it, and where the rule came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// The destination prefix, host bits zero.
    pub prefix: IpNet,
    /// What happens.
    pub verdict: Verdict,
    /// Where the rule came from, for people: `default`, `configuration`, `resolver`.
    pub origin: String,
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Permit => "permit",
            Verdict::Deny => "deny",
        };
        write!(f, "{verdict} {} ({})", self.prefix, self.origin)
    }
}

/// The derived network policy of a generation (FR-19). Longest prefix wins; no two rules have the
/// same prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    /// Rules in canonical order: by family, then address, then length.
    pub rules: Vec<PolicyRule>,
    /// What the sandbox's `/etc/resolv.conf` names.
    pub resolvers: Vec<IpAddr>,
    /// Whether IPv6 is on.
    pub ipv6: Ipv6,
}

/// Addresses on the link between the enforcement namespace and the connectivity helper.
///
/// slirp4netns(1) fixes them relative to its network: .2 is the gateway, .3 the resolver, .100 us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAddresses {
    /// The enforcement namespace's own address.
    pub own: std::net::Ipv4Addr,
    /// The helper as gateway.
    pub gateway: std::net::Ipv4Addr,
    /// The helper as resolver.
    pub resolver: std::net::Ipv4Addr,
}

/// The link addresses in use: those of slirp4netns's default network.
pub const LINK: LinkAddresses = LinkAddresses {
    own: std::net::Ipv4Addr::new(10, 0, 2, 100),
    gateway: std::net::Ipv4Addr::new(10, 0, 2, 2),
    resolver: std::net::Ipv4Addr::new(10, 0, 2, 3),
};

/// IPv6 counterparts of [`LINK`], when IPv6 is on.
pub const LINK_V6: (std::net::Ipv6Addr, std::net::Ipv6Addr) =
    (std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100), std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

/// Hardware addresses of the connectivity helper, which libslirp makes from its addresses, and the
/// broadcast address, by which its IPv4 ones are asked for.
pub const LINK_RECEIVERS: [[u8; 6]; 3] = [[0xff; 6], [0x52, 0x55, 10, 0, 2, 2], [0x52, 0x55, 10, 0, 2, 3]];

/// The same for IPv6, with the groups by which its addresses are asked for (RFC 2464).
pub const LINK_RECEIVERS_V6: [[u8; 6]; 4] =
    [[0x52, 0x56, 0, 0, 0, 2], [0x52, 0x56, 0, 0, 0, 3], [0x33, 0x33, 0xff, 0, 0, 2], [0x33, 0x33, 0xff, 0, 0, 3]];

/// Name of the device that slirp4netns serves.
pub const LINK_DEVICE: &str = "tap0";

/// What the probe inside the sandbox tries before publication (FR-20).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePlan {
    /// Addresses that must be unreachable, at least one for each deny rule that is not wholly
    /// covered by more specific permits.
    pub denied: Vec<IpAddr>,
    /// Addresses that must be routed to the connectivity helper, at least one for each permit rule.
    pub routed: Vec<IpAddr>,
    /// Addresses that must answer an ICMP echo; by default the helper's gateway, which answers offline.
    pub echo: Vec<IpAddr>,
    /// Resolvers that names are asked of.
    pub resolvers: Vec<IpAddr>,
    /// Names that must resolve.
    pub resolve: Vec<String>,
    /// TCP endpoints that must accept a connection.
    pub connect: Vec<SocketAddr>,
    /// Device that a device-bound socket tries to reach `denied` through.
    pub device: String,
    /// How long all of it may take, in milliseconds.
    pub deadline_ms: u64,
}

/// One observation of the probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeObservation {
    /// What was tried, such as `deny 10.255.255.254 (route)`.
    pub subject: String,
    /// Whether it was as the policy says.
    pub holds: bool,
    /// What was seen.
    pub seen: String,
}

/// What the probe inside the sandbox found (FR-18, FR-20).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Every observation, in the order of the plan.
    pub observations: Vec<ProbeObservation>,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
}

impl ProbeReport {
    /// Gives the observations that are not as the policy says.
    pub fn failures(&self) -> impl Iterator<Item = &ProbeObservation> {
        self.observations.iter().filter(|o| !o.holds)
    }
}

/// What reading the enforcement namespace back showed after the policy was installed (FR-19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkAttestation {
    /// The enforcement network namespace.
    pub namespace: NamespaceIdentity,
    /// Digest of the policy that was read back as installed.
    pub policy: PolicyDigest,
    /// The readiness fingerprint (FR-18).
    pub fingerprint: ReadinessFingerprint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_receives_for_its_own_addresses_alone() {
        for (address, receiver) in [LINK.gateway, LINK.resolver].iter().zip(&LINK_RECEIVERS[1..]) {
            assert_eq!(receiver[..2], [0x52, 0x55]);
            assert_eq!(receiver[2..], address.octets());
        }
        let gateway = LINK_V6.1.octets();
        assert_eq!(LINK_RECEIVERS_V6[0][3..], gateway[13..]);
        assert_eq!(LINK_RECEIVERS_V6[2][3..], gateway[13..]);
    }
}
