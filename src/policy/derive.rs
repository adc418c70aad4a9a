//! The derived network policy and the probe plan (FR-19, FR-20).
//!
//! Everything here is a function of validated configuration, and gives the same bytes for the
//! same input, since its results are digested.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::address_space::{below_default_route, representative};
use crate::domain::ids::{ConfigFingerprint, DomainId, Generation, PolicyDigest, ReadinessFingerprint, SidecarId};
use crate::domain::network::{
    Ipv6, LINK, LINK_DEVICE, LINK_V6, NetworkGrant, NetworkPolicy, PolicyRule, ProbeGrant, ProbePlan, Verdict,
};
use crate::domain::ownership::NamespaceIdentity;

/// Prefixes denied unless configuration says otherwise: the private ranges of RFC 1918.
pub const DEFAULT_DENY: [&str; 3] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];

/// Prefixes denied besides when IPv6 is on: unique local and link-local addresses, the IPv6
/// counterparts of the private ranges.
pub const DEFAULT_DENY_V6: [&str; 2] = ["fc00::/7", "fe80::/10"];

/// The well-known prefix in which a NAT64 gateway reaches IPv4 hosts (RFC 6052). Each IPv4 rule is
/// repeated in it when IPv6 is on, or a denied IPv4 host could be reached under its IPv6 name.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Addresses that stand for "anywhere else" in a probe, from the documentation blocks (RFC 5737,
/// RFC 3849): they are only looked up in the routing table, no host has them.
const ELSEWHERE: [&str; 3] = ["198.51.100.1", "192.0.2.1", "203.0.113.1"];
const ELSEWHERE_V6: [&str; 2] = ["2001:db8::1", "2001:db8:ffff::1"];

/// How long a probe may take that needs nothing beyond the connectivity helper.
const OFFLINE_DEADLINE_MS: u64 = 2_000;
/// How long it may take when the profile names destinations that are really talked to.
const ONLINE_DEADLINE_MS: u64 = 8_000;

/// Gives the default deny prefixes of the enabled address families.
pub fn default_deny(ipv6: Ipv6) -> Vec<IpNet> {
    let v6 = if ipv6.is_on() { &DEFAULT_DENY_V6[..] } else { &[] };
    DEFAULT_DENY.iter().chain(v6).filter_map(|text| text.parse().ok()).collect()
}

/// Derives the policy to install from what the profile grants.
///
/// Where two sources name the same prefix the denial stands (SR-6); validation has refused such
/// pairs before. A deny rule for a whole family is written as its two halves, so that no rule ever
/// takes the default route's place.
pub fn network_policy(grant: &NetworkGrant) -> NetworkPolicy {
    let resolvers = if grant.dns.is_empty() { vec![IpAddr::from(LINK.resolver)] } else { grant.dns.clone() };
    let denied = default_deny(grant.ipv6).into_iter().map(|prefix| (prefix, "default"));
    let denied = denied.chain(grant.deny.iter().map(|prefix| (*prefix, "configuration")));
    let enabled = |prefix: &IpNet| grant.ipv6.is_on() || matches!(prefix, IpNet::V4(_));

    let mut rules = BTreeMap::new();
    for (prefix, origin) in denied.filter(|(prefix, _)| enabled(prefix)) {
        for part in below_default_route(prefix.trunc()) {
            rules.entry(part).or_insert((Verdict::Deny, origin));
        }
    }
    for prefix in grant.allow.iter().filter(|prefix| enabled(prefix) && prefix.prefix_len() > 0) {
        rules.entry(prefix.trunc()).or_insert((Verdict::Permit, "configuration"));
    }
    for resolver in resolvers.iter().filter(|resolver| !is_link(resolver)) {
        let host = IpNet::from(*resolver);
        let denied = longest_match(rules.iter().map(|(prefix, (verdict, _))| (*prefix, *verdict)), resolver)
            == Some(Verdict::Deny);
        if denied && enabled(&host) {
            rules.entry(host).or_insert((Verdict::Permit, "resolver"));
        }
    }
    if grant.ipv6.is_on() {
        for (prefix, rule) in rules.clone() {
            if let IpNet::V4(net) = prefix {
                let kept = rules.entry(nat64(net).into()).or_insert(rule);
                if rule.0 == Verdict::Deny {
                    *kept = rule;
                }
            }
        }
    }
    let rule = |(prefix, (verdict, origin)): (IpNet, (Verdict, &str))| PolicyRule {
        prefix,
        verdict,
        origin: origin.to_owned(),
    };
    let mut rules: Vec<_> = rules.into_iter().map(rule).collect();
    rules.sort_by_key(|rule| canonical_position(rule.prefix));
    NetworkPolicy { rules, resolvers, ipv6: grant.ipv6 }
}

/// Gives what the policy says about an address: the longest matching prefix decides. It is the
/// reference that installed routes are tested against.
pub fn verdict(policy: &NetworkPolicy, address: &IpAddr) -> Verdict {
    if is_link(address) {
        return Verdict::Permit;
    }
    let by_default = if address.is_ipv4() || policy.ipv6.is_on() { Verdict::Permit } else { Verdict::Deny };
    longest_match(policy.rules.iter().map(|rule| (rule.prefix, rule.verdict)), address).unwrap_or(by_default)
}

/// Plans what the probe inside the sandbox tries (FR-20).
///
/// Each deny rule is tried at an address that no more specific rule decides, so that the very
/// route made for it is seen to hold; likewise each permit rule. Nothing in a default plan leaves
/// the machine.
pub fn probe_plan(policy: &NetworkPolicy, grant: &ProbeGrant) -> ProbePlan {
    let mut denied = representatives(policy, Verdict::Deny);
    denied.extend(&grant.denied);
    let mut routed = representatives(policy, Verdict::Permit);
    routed.extend(policy.resolvers.iter().filter(|resolver| !is_link(resolver)));
    routed.extend(elsewhere(policy, &ELSEWHERE));
    if policy.ipv6.is_on() {
        routed.extend(elsewhere(policy, &ELSEWHERE_V6));
    }
    let offline = grant.resolve.is_empty() && grant.connect.is_empty();
    ProbePlan {
        denied: unique(denied),
        routed: unique(routed),
        echo: vec![LINK.gateway.into(), LINK.resolver.into()],
        resolvers: policy.resolvers.clone(),
        resolve: grant.resolve.clone(),
        connect: grant.connect.clone(),
        device: LINK_DEVICE.to_owned(),
        deadline_ms: if offline { OFFLINE_DEADLINE_MS } else { ONLINE_DEADLINE_MS },
    }
}

/// Digests what a policy does. Where its rules came from is left out, so that a policy read back
/// from the kernel, which does not know, has the same digest.
pub fn digest(policy: &NetworkPolicy) -> PolicyDigest {
    let mut rules: Vec<_> = policy.rules.iter().map(|rule| (canonical_position(rule.prefix), rule)).collect();
    rules.sort_by_key(|(position, _)| *position);
    let mut text = String::from("lazaret network policy 1\n");
    text.push_str(if policy.ipv6.is_on() { "ipv6 on\n" } else { "ipv6 off\n" });
    for resolver in &policy.resolvers {
        text.push_str(&format!("resolver {resolver}\n"));
    }
    for (_, rule) in rules {
        let word = match rule.verdict {
            Verdict::Permit => "permit",
            Verdict::Deny => "deny",
        };
        text.push_str(&format!("{word} {}\n", rule.prefix));
    }
    PolicyDigest::of(text.as_bytes())
}

/// Gives the network readiness fingerprint (FR-18): a digest over everything that network
/// readiness of one generation is bound to.
pub fn readiness_fingerprint(
    domain: &DomainId,
    generation: Generation,
    configuration: &ConfigFingerprint,
    sidecar: &SidecarId,
    policy: &PolicyDigest,
    namespace: &NamespaceIdentity,
) -> ReadinessFingerprint {
    let NamespaceIdentity { device, inode } = namespace;
    let text = format!(
        "lazaret network readiness 1\ndomain {domain}\ngeneration {generation}\nconfiguration {configuration}\n\
         sidecar {sidecar}\npolicy {policy}\nnamespace {device}:{inode}\n"
    );
    ReadinessFingerprint::of(text.as_bytes())
}

/// Tells whether the address is one of the link's own, which have host routes of their own.
pub fn is_link(address: &IpAddr) -> bool {
    link_addresses().contains(address)
}

fn link_addresses() -> [IpAddr; 5] {
    [LINK.own.into(), LINK.gateway.into(), LINK.resolver.into(), LINK_V6.0.into(), LINK_V6.1.into()]
}

fn nat64(net: Ipv4Net) -> Ipv6Net {
    let address = u128::from(NAT64) | u128::from(u32::from(net.network()));
    Ipv6Net::new_assert(address.into(), 96 + net.prefix_len())
}

fn longest_match(rules: impl Iterator<Item = (IpNet, Verdict)>, address: &IpAddr) -> Option<Verdict> {
    let matching = rules.filter(|(prefix, _)| prefix.contains(address));
    matching.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, verdict)| verdict)
}

/// By family, then address, then length.
fn canonical_position(prefix: IpNet) -> (bool, IpAddr, u8) {
    (matches!(prefix, IpNet::V6(_)), prefix.network(), prefix.prefix_len())
}

/// Gives for each rule of one kind an address that it alone decides, where there is one.
fn representatives(policy: &NetworkPolicy, wanted: Verdict) -> Vec<IpAddr> {
    let link = link_addresses().map(IpNet::from);
    let decided = |rule: &PolicyRule| {
        let within = policy.rules.iter().map(|other| other.prefix);
        let mut finer: Vec<IpNet> = within.filter(|p| *p != rule.prefix && rule.prefix.contains(p)).collect();
        finer.extend(link);
        representative(rule.prefix, &finer)
    };
    policy.rules.iter().filter(|rule| rule.verdict == wanted).filter_map(decided).collect()
}

fn elsewhere(policy: &NetworkPolicy, candidates: &[&str]) -> Option<IpAddr> {
    let mut addresses = candidates.iter().filter_map(|text| text.parse().ok());
    addresses.find(|address| verdict(policy, address) == Verdict::Permit)
}

/// Drops later repetitions.
fn unique(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut seen = std::collections::BTreeSet::new();
    addresses.into_iter().filter(|address| seen.insert(*address)).collect()
}

#[cfg(test)]
mod tests;
