//! What an enforcement namespace must look like for a policy to hold, and how an observed one differs.
//!
//! The Runtime Supervisor installs an [`Enforcement`] and then reads the namespace back as another
//! one (FR-19). Both are plain values, so that the attestation is a comparison of sets: nothing may be
//! missing and nothing may be there that was not wanted.
//!
//! - A **deny rule** is a unicast route to the loopback device (SR-6). Its packets arrive on `lo` with
//!   a foreign destination and are dropped, since forwarding is off. IPv4 writes it `via 127.0.0.1`;
//!   IPv6 refuses a local address as gateway, so there it is the plain device route.
//! - A **permit rule** inside a denied range is a route to the connectivity helper.
//! - A socket that is bound to the link by device or by `IP_PKTINFO` looks its route up with that device
//!   as a condition, and so would pass over every route on `lo`. One policy rule per family forbids
//!   such lookups.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::domain::network::{Ipv6, LINK, LINK_DEVICE, LINK_V6, NetworkPolicy, Verdict};

/// Name of the loopback device.
pub const LOOPBACK_DEVICE: &str = "lo";
/// The main routing table (`ip-route(8)`).
pub const MAIN_TABLE: u32 = 254;
/// The table of local and broadcast addresses, kept by the kernel.
pub const LOCAL_TABLE: u32 = 255;
/// The last table of IPv4's default rules; always empty.
const DEFAULT_TABLE: u32 = 253;
/// Priority of the rule against device-bound lookups: after local addresses, before everything else.
pub const GUARD_PRIORITY: u32 = 10;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What kind a route is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// To a gateway or onto a device.
    Unicast,
    /// To this namespace's own addresses.
    Local,
    /// To a broadcast address.
    Broadcast,
    /// To multicast groups.
    Multicast,
    /// Anything else, by its number; never wanted.
    Other(u8),
}

/// One route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Destination prefix.
    pub destination: IpNet,
    /// Routing table.
    pub table: u32,
    /// Kind.
    pub kind: RouteKind,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// Output device.
    pub device: String,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Attributes that no wanted route has, for people.
    pub surplus: Vec<String>,
}

/// One rule of the routing policy database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Address family.
    pub family: Family,
    /// Priority; the lowest is asked first.
    pub priority: u32,
    /// What happens.
    pub action: RuleAction,
    /// Output device that the lookup must be bound to.
    pub device: Option<String>,
    /// Attributes that no wanted rule has, for people.
    pub surplus: Vec<String>,
}

/// What a rule does with a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleAction {
    /// Continues in a table.
    Table(u32),
    /// Fails it.
    Prohibit,
    /// Anything else, by its number; never wanted.
    Other(u8),
}

/// One link with its addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Device name.
    pub name: String,
    /// Addresses with prefix lengths.
    pub addresses: BTreeSet<IpNet>,
}

/// One kernel setting below `/proc/sys`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Path relative to `/proc/sys`.
    pub path: String,
    /// Value, fields separated by single spaces.
    pub value: String,
}

/// Everything of a network namespace that decides where a packet goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// Links that are up.
    pub links: BTreeSet<Link>,
    /// All routes of all tables.
    pub routes: BTreeSet<Route>,
    /// All rules.
    pub rules: BTreeSet<Rule>,
    /// Settings.
    pub settings: BTreeSet<Setting>,
}

impl Enforcement {
    /// Gives what the namespace must look like for the policy to hold.
    pub fn of(policy: &NetworkPolicy) -> Self {
        let mut routes: BTreeSet<Route> = installed_routes(policy).into_iter().collect();
        routes.extend(kernel_routes(policy.ipv6));
        let mut rules = default_rules(Family::V4);
        rules.extend(installed_rules(policy.ipv6));
        if policy.ipv6.is_on() {
            rules.extend(default_rules(Family::V6));
        }
        let mut loopback = BTreeSet::from([net(Ipv4Addr::LOCALHOST, 8)]);
        let mut link = BTreeSet::from([host(LINK.own)]);
        if policy.ipv6.is_on() {
            loopback.insert(host(Ipv6Addr::LOCALHOST));
            link.insert(host(LINK_V6.0));
        }
        let links = [(LOOPBACK_DEVICE, loopback), (LINK_DEVICE, link)];
        Self {
            links: links.map(|(name, addresses)| Link { name: name.into(), addresses }).into(),
            routes,
            rules: rules.into_iter().collect(),
            settings: settings(policy.ipv6).into_iter().chain(link_settings(policy.ipv6)).collect(),
        }
    }

    /// Gives every way in which `observed` is not exactly this, each as a line for people.
    pub fn differences(&self, observed: &Self) -> Vec<String> {
        let mut lines = vec![];
        compare("link", &self.links, &observed.links, &mut lines);
        compare("route", &self.routes, &observed.routes, &mut lines);
        compare("rule", &self.rules, &observed.rules, &mut lines);
        compare("setting", &self.settings, &observed.settings, &mut lines);
        lines
    }
}

/// Gives the routes to install for a policy, in an order in which each one's gateway is reachable.
pub fn installed_routes(policy: &NetworkPolicy) -> Vec<Route> {
    let on_link = |address: IpAddr| route(address.into(), None, LINK_DEVICE, None);
    let mut routes = vec![on_link(LINK.gateway.into()), on_link(LINK.resolver.into())];
    if policy.ipv6.is_on() {
        routes.push(on_link(LINK_V6.1.into()));
    }
    routes.push(through_helper(net(Ipv4Addr::UNSPECIFIED, 0)));
    if policy.ipv6.is_on() {
        routes.push(through_helper(net(Ipv6Addr::UNSPECIFIED, 0)));
    }
    let enabled = policy.rules.iter().filter(|rule| policy.ipv6.is_on() || rule.prefix.network().is_ipv4());
    routes.extend(enabled.map(|rule| match rule.verdict {
        Verdict::Permit => through_helper(rule.prefix),
        Verdict::Deny => held_back(rule.prefix),
    }));
    routes
}

/// Gives the rules to install.
pub fn installed_rules(ipv6: Ipv6) -> Vec<Rule> {
    let guard = |family| Rule {
        family,
        priority: GUARD_PRIORITY,
        action: RuleAction::Prohibit,
        device: Some(LINK_DEVICE.into()),
        surplus: vec![],
    };
    let families: &[Family] = if ipv6.is_on() { &[Family::V4, Family::V6] } else { &[Family::V4] };
    families.iter().copied().map(guard).collect()
}

/// Gives the settings of the whole namespace.
///
/// A dropped connection attempt gives up after two retries (about seven seconds) instead of two
/// minutes. ICMP echo sockets are open to the sandbox's own group, which is 0 in this user namespace.
/// Ports below 1024 are left to gVisor's own check, since the sentry holds no capability here.
pub fn settings(ipv6: Ipv6) -> Vec<Setting> {
    let set = |path: &str, value: &str| Setting { path: path.into(), value: value.into() };
    let mut all = vec![
        // First, as changing it resets others. A new namespace may inherit it from the host's.
        set("net/ipv4/ip_forward", "0"),
        set("net/ipv4/tcp_syn_retries", "2"),
        set("net/ipv4/ping_group_range", "0 0"),
        set("net/ipv4/ip_unprivileged_port_start", "0"),
        set("net/ipv4/conf/all/route_localnet", "0"),
    ];
    if ipv6.is_on() {
        all.extend([set("net/ipv6/conf/all/disable_ipv6", "0"), set("net/ipv6/conf/all/forwarding", "0")]);
    } else {
        all.extend([set("net/ipv6/conf/all/disable_ipv6", "1"), set("net/ipv6/conf/default/disable_ipv6", "1")]);
    }
    all
}

/// Gives the settings of the link, to apply while it is down.
pub fn link_settings(ipv6: Ipv6) -> Vec<Setting> {
    let set = |family: &str, name: &str, value: &str| Setting {
        path: format!("net/{family}/conf/{LINK_DEVICE}/{name}"),
        value: value.into(),
    };
    let mut all = vec![set("ipv4", "route_localnet", "0")];
    if ipv6.is_on() {
        all.extend([
            set("ipv6", "disable_ipv6", "0"),
            // The helper sends router advertisements; addresses and routes come from the policy alone.
            set("ipv6", "accept_ra", "0"),
            set("ipv6", "autoconf", "0"),
            set("ipv6", "addr_gen_mode", "1"),
        ]);
    }
    all
}

fn host(address: impl Into<IpAddr>) -> IpNet {
    IpNet::from(address.into())
}

fn net(address: impl Into<IpAddr>, length: u8) -> IpNet {
    IpNet::new_assert(address.into(), length)
}

fn route(destination: IpNet, gateway: Option<IpAddr>, device: &str, source: Option<IpAddr>) -> Route {
    let table = MAIN_TABLE;
    Route { destination, table, kind: RouteKind::Unicast, gateway, device: device.into(), source, surplus: vec![] }
}

fn through_helper(destination: IpNet) -> Route {
    let gateway = match destination {
        IpNet::V4(_) => LINK.gateway.into(),
        IpNet::V6(_) => LINK_V6.1.into(),
    };
    route(destination, Some(gateway), LINK_DEVICE, None)
}

/// A deny route. Its preferred source makes the verdict visible to a socket that only connects.
fn held_back(destination: IpNet) -> Route {
    match destination {
        IpNet::V4(_) => {
            let loopback = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
            route(destination, loopback, LOOPBACK_DEVICE, loopback)
        }
        IpNet::V6(_) => route(destination, None, LOOPBACK_DEVICE, Some(Ipv6Addr::LOCALHOST.into())),
    }
}

/// Routes that the kernel makes by itself for the addresses above.
fn kernel_routes(ipv6: Ipv6) -> Vec<Route> {
    let kernel = |destination, kind, device: &str, source| Route {
        table: LOCAL_TABLE,
        kind,
        ..route(destination, None, device, source)
    };
    let localhost = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
    let broadcast = host(Ipv4Addr::new(127, 255, 255, 255));
    let mut routes = vec![
        kernel(net(Ipv4Addr::new(127, 0, 0, 0), 8), RouteKind::Local, LOOPBACK_DEVICE, localhost),
        kernel(host(Ipv4Addr::LOCALHOST), RouteKind::Local, LOOPBACK_DEVICE, localhost),
        kernel(broadcast, RouteKind::Broadcast, LOOPBACK_DEVICE, localhost),
        kernel(host(LINK.own), RouteKind::Local, LINK_DEVICE, Some(LINK.own.into())),
    ];
    if ipv6.is_on() {
        let multicast = net(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);
        routes.extend([
            kernel(host(Ipv6Addr::LOCALHOST), RouteKind::Local, LOOPBACK_DEVICE, None),
            kernel(host(LINK_V6.0), RouteKind::Local, LINK_DEVICE, None),
            kernel(multicast, RouteKind::Multicast, LINK_DEVICE, None),
            route(host(LINK_V6.0), None, LINK_DEVICE, None),
        ]);
    }
    routes
}

/// Rules that every namespace begins with.
fn default_rules(family: Family) -> Vec<Rule> {
    let rule =
        |priority, table| Rule { family, priority, action: RuleAction::Table(table), device: None, surplus: vec![] };
    let mut rules = vec![rule(0, LOCAL_TABLE), rule(32766, MAIN_TABLE)];
    if family == Family::V4 {
        rules.push(rule(32767, DEFAULT_TABLE));
    }
    rules
}

fn compare<T: Ord + std::fmt::Debug>(
    what: &str,
    wanted: &BTreeSet<T>,
    observed: &BTreeSet<T>,
    lines: &mut Vec<String>,
) {
    lines.extend(wanted.difference(observed).map(|item| format!("missing {what}: {item:?}")));
    lines.extend(observed.difference(wanted).map(|item| format!("unwanted {what}: {item:?}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::network::PolicyRule;

    fn policy(rules: &[(&str, Verdict)], ipv6: Ipv6) -> NetworkPolicy {
        let rule = |(prefix, verdict): &(&str, Verdict)| PolicyRule {
            prefix: prefix.parse().unwrap(),
            verdict: *verdict,
            origin: "test".into(),
        };
        NetworkPolicy { rules: rules.iter().map(rule).collect(), resolvers: vec![LINK.resolver.into()], ipv6 }
    }

    /// Looks an address up as the kernel does: the longest prefix of the main table.
    fn device_for(enforcement: &Enforcement, address: &str) -> String {
        let address: IpAddr = address.parse().unwrap();
        let main = enforcement.routes.iter().filter(|r| r.table == MAIN_TABLE && r.destination.contains(&address));
        main.max_by_key(|r| r.destination.prefix_len()).map(|r| r.device.clone()).unwrap_or_default()
    }

    #[test]
    fn the_longest_prefix_decides_and_the_link_stays_reachable() {
        let enforcement = Enforcement::of(&policy(
            &[("10.0.0.0/8", Verdict::Deny), ("10.9.0.0/16", Verdict::Permit), ("10.9.1.0/24", Verdict::Deny)],
            Ipv6::Off,
        ));
        for (address, device) in [
            ("10.1.1.1", "lo"),
            ("10.9.0.1", "tap0"),
            ("10.9.1.1", "lo"),
            ("10.0.2.2", "tap0"),
            ("10.0.2.3", "tap0"),
            ("10.0.2.4", "lo"),
            ("198.51.100.1", "tap0"),
        ] {
            assert_eq!(device_for(&enforcement, address), device, "{address}");
        }
    }

    #[test]
    fn without_ipv6_nothing_of_it_is_wanted() {
        let enforcement = Enforcement::of(&policy(&[("fc00::/7", Verdict::Deny)], Ipv6::Off));
        assert!(enforcement.routes.iter().all(|route| route.destination.network().is_ipv4()));
        assert!(enforcement.rules.iter().all(|rule| rule.family == Family::V4));
    }

    #[test]
    fn with_ipv6_the_same_holds() {
        let enforcement = Enforcement::of(&policy(&[("fc00::/7", Verdict::Deny)], Ipv6::On));
        assert_eq!(device_for(&enforcement, "fd12::1"), "lo");
        assert_eq!(device_for(&enforcement, "fd00::2"), "tap0");
        assert_eq!(device_for(&enforcement, "2001:db8::1"), "tap0");
        assert_eq!(enforcement.rules.iter().filter(|r| r.action == RuleAction::Prohibit).count(), 2);
    }

    #[test]
    fn a_missing_and_an_unwanted_route_are_both_differences() {
        let wanted = Enforcement::of(&policy(&[("10.0.0.0/8", Verdict::Deny)], Ipv6::Off));
        assert_eq!(wanted.differences(&wanted.clone()), Vec::<String>::new());
        let mut observed = wanted.clone();
        observed.routes.retain(|route| route.destination != "10.0.0.0/8".parse().unwrap());
        observed.routes.insert(through_helper("10.9.0.0/16".parse().unwrap()));
        let lines = wanted.differences(&observed);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("missing route") && lines[0].contains("10.0.0.0/8"));
        assert!(lines[1].starts_with("unwanted route") && lines[1].contains("10.9.0.0/16"));
    }
}
