//! The network grant: prefixes, resolvers and probe targets, and what they must not say together.

use std::net::IpAddr;

use ipnet::IpNet;
use toml::Spanned;

use super::notes::{Notes, Shaped};
use super::raw::{RawCommon, RawNetwork};
use super::source::SourceFile;
use super::values::{self, Wrong};
use crate::domain::network::{Ipv6, LINK, LINK_V6, NetworkGrant, ProbeGrant, Verdict};
use crate::policy::address_space::below_default_route;
use crate::policy::derive;

/// How many resolvers a program's resolver library reads (resolv.conf(5), MAXNS).
const MOST_RESOLVERS: usize = 3;

/// A value with the file and the place that it comes from.
type Placed<'a, T> = (T, &'a SourceFile, &'a Spanned<String>);

/// Reads the network grant and refuses what contradicts itself.
pub fn grant(
    raw: &RawNetwork,
    file: &SourceFile,
    common: Option<&Shaped<RawCommon>>,
    notes: &mut Notes,
) -> NetworkGrant {
    let ipv6 = Ipv6::from(raw.ipv6.as_ref().is_some_and(|ipv6| {
        notes.record("network.ipv6", ipv6.get_ref().to_string(), file, ipv6);
        *ipv6.get_ref()
    }));
    let allow: Vec<Placed<'_, IpNet>> = prefixes("network.allow", file, &raw.allow, notes);
    let mut deny = prefixes("network.deny", file, &raw.deny, notes);
    if let Some(common) = common {
        deny.extend(prefixes("network.deny", &common.file, &common.raw.network.deny, notes));
    }
    // A denial in config.toml for a family that this profile leaves off holds by itself.
    let own = |placed: &&Placed<'_, IpNet>| placed.1.path() == file.path();
    for (prefix, file, at) in allow.iter().chain(deny.iter().filter(own)) {
        if !ipv6.is_on() && matches!(prefix, IpNet::V6(_)) {
            let message = format!("'{prefix}' is an IPv6 prefix, but IPv6 is off in this profile");
            notes.problem(file, at.span(), Wrong::new(message, "write ipv6 = true in [network], or take it out"));
        }
    }
    refuse_conflicts(&allow, &deny, ipv6, notes);
    let dns = resolvers(raw, file, ipv6, &deny, notes);

    for (key, placed) in [("network.allow", &allow), ("network.deny", &deny)] {
        for (prefix, file, at) in placed {
            notes.record(key, prefix.to_string(), file, at);
        }
    }
    let prefixes_of = |placed: Vec<Placed<'_, IpNet>>| {
        let enabled = |prefix: &IpNet| ipv6.is_on() || matches!(prefix, IpNet::V4(_));
        let mut prefixes: Vec<IpNet> = placed.into_iter().map(|(prefix, ..)| prefix).filter(enabled).collect();
        prefixes.sort();
        prefixes.dedup();
        prefixes
    };
    let mut grant =
        NetworkGrant { allow: prefixes_of(allow), deny: prefixes_of(deny), dns, ipv6, probe: ProbeGrant::default() };
    grant.probe = probe(raw, file, &grant, notes);
    grant
}

fn prefixes<'a>(
    key: &str,
    file: &'a SourceFile,
    words: &'a [Spanned<String>],
    notes: &mut Notes,
) -> Vec<Placed<'a, IpNet>> {
    let mut placed = Vec::new();
    for (prefix, at) in notes.list(key, file, words, values::prefix) {
        match reserved(prefix) {
            Some(wrong) => notes.problem(file, at.span(), wrong),
            None => placed.push((prefix, file, at)),
        }
    }
    placed
}

/// Says why a prefix is not one that policy can decide about.
fn reserved(prefix: IpNet) -> Option<Wrong> {
    let within = |outer: &str| outer.parse::<IpNet>().is_ok_and(|outer| outer.contains(&prefix));
    if within("127.0.0.0/8") || within("::1/128") {
        let message = format!("'{prefix}' is the sandbox's own loopback, which no route leads out of");
        return Some(Wrong::new(message, "take it out; the host's loopback is out of reach in any case"));
    }
    if within("::ffff:0:0/96") {
        let message = format!("'{prefix}' is IPv4 written as IPv6");
        return Some(Wrong::new(message, "write the IPv4 prefix"));
    }
    let link_v4 = IpNet::new(LINK.gateway.into(), 24).ok()?.trunc();
    let link_v6 = IpNet::new(LINK_V6.1.into(), 64).ok()?.trunc();
    if link_v4.contains(&prefix) || link_v6.contains(&prefix) {
        let message = format!("'{prefix}' lies in the network between the sandbox and its connectivity helper");
        return Some(Wrong::new(message, format!("take it out; hosts in the host's own {link_v4} cannot be reached")));
    }
    None
}

fn refuse_conflicts(allow: &[Placed<'_, IpNet>], deny: &[Placed<'_, IpNet>], ipv6: Ipv6, notes: &mut Notes) {
    let defaults = derive::default_deny(ipv6);
    for (prefix, file, at) in allow {
        if prefix.prefix_len() == 0 {
            let message = format!("'{prefix}' permits what is permitted already, and opens no denied range");
            let help = "take it out; permit parts of denied ranges by more specific prefixes, such as \"10.1.0.0/16\"";
            notes.problem(file, at.span(), Wrong::new(message, help));
            continue;
        }
        let narrower = format!("\"{}\"", narrower(*prefix));
        let denied = deny.iter().find(|(denied, ..)| below_default_route(*denied).contains(prefix));
        if let Some((_, denied_file, denied_at)) = denied {
            let place = denied_file.origin(&denied_at.span());
            let message = format!("'{prefix}' is both permitted and denied");
            let help =
                format!("it is denied at {place}; take one of them out, or permit a part of it, such as {narrower}");
            notes.problem(file, at.span(), Wrong::new(message, help));
        } else if defaults.contains(prefix) {
            let message =
                format!("'{prefix}' is denied by default, and a permission must be more specific than a denial");
            let help = format!("permit the part that is needed, such as {narrower}");
            notes.problem(file, at.span(), Wrong::new(message, help));
        }
    }
}

/// Gives an example of a more specific prefix.
fn narrower(prefix: IpNet) -> IpNet {
    let length = (prefix.prefix_len() + 8).min(prefix.max_prefix_len());
    IpNet::new(prefix.network(), length).map_or(prefix, |net| net.trunc())
}

fn resolvers(
    raw: &RawNetwork,
    file: &SourceFile,
    ipv6: Ipv6,
    deny: &[Placed<'_, IpNet>],
    notes: &mut Notes,
) -> Vec<IpAddr> {
    let mut dns = Vec::new();
    for (address, at) in notes.list("network.dns", file, &raw.dns, values::address) {
        let denied = deny.iter().find(|(prefix, ..)| *prefix == IpNet::from(address));
        let wrong = if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            let help = "leave 'dns' out: the sandbox then uses the host's resolver, wherever it listens";
            Some(Wrong::new(format!("'{address}' is no resolver that a sandbox can reach"), help))
        } else if address.is_ipv6() && !ipv6.is_on() {
            let message = format!("'{address}' is an IPv6 address, but IPv6 is off in this profile");
            Some(Wrong::new(message, "write an IPv4 address, or ipv6 = true in [network]"))
        } else if let Some((_, denied_file, denied_at)) = denied {
            let place = denied_file.origin(&denied_at.span());
            let message = format!("'{address}' is a resolver and denied");
            Some(Wrong::new(message, format!("take one of them out; it is denied at {place}")))
        } else if dns.len() == MOST_RESOLVERS {
            let message = format!("programs use {MOST_RESOLVERS} resolvers at most");
            Some(Wrong::new(message, "keep the ones that matter"))
        } else {
            None
        };
        match wrong {
            Some(wrong) => notes.problem(file, at.span(), wrong),
            None => {
                notes.record("network.dns", address.to_string(), file, at);
                dns.push(address);
            }
        }
    }
    dns
}

fn probe(raw: &RawNetwork, file: &SourceFile, grant: &NetworkGrant, notes: &mut Notes) -> ProbeGrant {
    let policy = derive::network_policy(grant);
    let mut probe = ProbeGrant::default();
    for (name, at) in notes.list("network.probe.resolve", file, &raw.probe.resolve, values::host_name) {
        notes.record("network.probe.resolve", &name, file, at);
        probe.resolve.push(name);
    }
    for (endpoint, at) in notes.list("network.probe.connect", file, &raw.probe.connect, values::endpoint) {
        if derive::verdict(&policy, &endpoint.ip()) == Verdict::Deny {
            let message = format!("'{endpoint}' must be reachable for a start, but the policy denies it");
            let help = format!("permit it with allow = [\"{}\"], or take it out", IpNet::from(endpoint.ip()));
            notes.problem(file, at.span(), Wrong::new(message, help));
        }
        notes.record("network.probe.connect", endpoint.to_string(), file, at);
        probe.connect.push(endpoint);
    }
    for (address, at) in notes.list("network.probe.denied", file, &raw.probe.denied, values::address) {
        if derive::verdict(&policy, &address) == Verdict::Permit {
            let message = format!("'{address}' must be unreachable for a start, but the policy permits it");
            let help = format!("deny it with deny = [\"{}\"], or take it out", IpNet::from(address));
            notes.problem(file, at.span(), Wrong::new(message, help));
        }
        notes.record("network.probe.denied", address.to_string(), file, at);
        probe.denied.push(address);
    }
    probe
}
