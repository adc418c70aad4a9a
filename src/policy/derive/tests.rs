use proptest::prelude::*;

use super::*;
use crate::policy::address_space::representative;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_default_policy_denies_private_ranges_and_nothing_else() {
    let policy = network_policy(&NetworkGrant::default());
    let prefixes: Vec<_> = policy.rules.iter().map(|rule| rule.prefix.to_string()).collect();
    assert_eq!(prefixes, DEFAULT_DENY);
    assert_eq!(policy.resolvers, [ip("10.0.2.3")]);
    for denied in ["10.0.0.1", "10.0.2.4", "172.31.255.255", "192.168.77.1", "fd00::1", "2001:db8::1"] {
        assert_eq!(verdict(&policy, &ip(denied)), Verdict::Deny, "{denied}");
    }
    for permitted in ["10.0.2.2", "10.0.2.3", "11.0.0.1", "172.32.0.1", "8.8.8.8"] {
        assert_eq!(verdict(&policy, &ip(permitted)), Verdict::Permit, "{permitted}");
    }
}

#[test]
fn the_most_specific_rule_decides_and_a_tie_is_denied() {
    let allow = vec![net("10.1.0.0/16"), net("192.168.0.0/16")];
    let policy = network_policy(&NetworkGrant { allow, deny: vec![net("10.1.7.0/24")], ..NetworkGrant::default() });
    assert_eq!(verdict(&policy, &ip("10.1.2.3")), Verdict::Permit);
    assert_eq!(verdict(&policy, &ip("10.1.7.3")), Verdict::Deny);
    assert_eq!(verdict(&policy, &ip("192.168.1.1")), Verdict::Deny);
}

#[test]
fn configured_resolvers_in_denied_ranges_are_reachable_and_others_need_no_rule() {
    let policy =
        network_policy(&NetworkGrant { dns: vec![ip("192.168.77.53"), ip("9.9.9.9")], ..NetworkGrant::default() });
    let added: Vec<_> = policy.rules.iter().filter(|rule| rule.origin == "resolver").collect();
    assert_eq!(added.len(), 1);
    assert_eq!(added[0].prefix, net("192.168.77.53/32"));
    assert_eq!(policy.resolvers, [ip("192.168.77.53"), ip("9.9.9.9")]);
    let plan = probe_plan(&policy, &ProbeGrant::default());
    assert!(plan.routed.contains(&ip("192.168.77.53")) && plan.routed.contains(&ip("9.9.9.9")));
}

#[test]
fn denying_everything_leaves_the_default_route_alone() {
    let grant =
        NetworkGrant { deny: vec![net("0.0.0.0/0")], allow: vec![net("198.51.100.0/24")], ..NetworkGrant::default() };
    let policy = network_policy(&grant);
    assert!(policy.rules.iter().all(|rule| rule.prefix.prefix_len() > 0));
    assert_eq!(verdict(&policy, &ip("8.8.8.8")), Verdict::Deny);
    assert_eq!(verdict(&policy, &ip("223.1.1.1")), Verdict::Deny);
    assert_eq!(verdict(&policy, &ip("198.51.100.9")), Verdict::Permit);
    let plan = probe_plan(&policy, &ProbeGrant::default());
    assert_eq!(plan.routed, [ip("198.51.100.254"), ip("198.51.100.1")]);
}

#[test]
fn ipv6_gets_an_equal_policy_and_its_view_of_ipv4_too() {
    let policy =
        network_policy(&NetworkGrant { ipv6: Ipv6::On, allow: vec![net("10.1.0.0/16")], ..NetworkGrant::default() });
    for denied in ["fd00::99", "fe80::1", "64:ff9b::10.2.0.1", "64:ff9b::c0a8:1"] {
        assert_eq!(verdict(&policy, &ip(denied)), Verdict::Deny, "{denied}");
    }
    for permitted in ["2001:db8::1", "64:ff9b::10.1.0.1", "64:ff9b::8.8.8.8", "fd00::2"] {
        assert_eq!(verdict(&policy, &ip(permitted)), Verdict::Permit, "{permitted}");
    }
    let plan = probe_plan(&policy, &ProbeGrant::default());
    assert!(plan.routed.contains(&ip("2001:db8::1")));
    assert!(plan.denied.iter().any(|address| net("fc00::/7").contains(address)));
}

#[test]
fn ipv6_prefixes_are_left_out_while_ipv6_is_off() {
    let policy = network_policy(&NetworkGrant { deny: vec![net("2001:db8::/32")], ..NetworkGrant::default() });
    assert_eq!(policy.rules.len(), 3);
}

#[test]
fn the_default_probe_plan_needs_no_other_machine() {
    let policy = network_policy(&NetworkGrant::default());
    let plan = probe_plan(&policy, &ProbeGrant::default());
    assert_eq!(plan.denied, [ip("10.255.255.254"), ip("172.31.255.254"), ip("192.168.255.254")]);
    assert_eq!(plan.routed, [ip("198.51.100.1")]);
    assert_eq!(plan.echo, [ip("10.0.2.2"), ip("10.0.2.3")]);
    assert!(plan.resolve.is_empty() && plan.connect.is_empty());
}

#[test]
fn digests_ignore_origin_and_order_but_not_meaning() {
    let policy = network_policy(&NetworkGrant { allow: vec![net("10.1.0.0/16")], ..NetworkGrant::default() });
    let mut read_back = policy.clone();
    read_back.rules.reverse();
    read_back.rules.iter_mut().for_each(|rule| rule.origin = "read back".into());
    assert_eq!(digest(&policy), digest(&read_back));
    read_back.rules[0].verdict = Verdict::Permit;
    assert_ne!(digest(&policy), digest(&read_back));
    assert_ne!(digest(&policy), digest(&NetworkPolicy { ipv6: Ipv6::On, ..policy.clone() }));
    assert_ne!(digest(&policy), digest(&NetworkPolicy { resolvers: vec![], ..policy }));
}

#[test]
fn the_readiness_fingerprint_binds_every_part() {
    let domain = DomainId::derive(&"claude".parse().unwrap(), std::path::Path::new("/p"));
    let other = DomainId::derive(&"codex".parse().unwrap(), std::path::Path::new("/p"));
    let (sidecar, foreign) = (SidecarId::mint(), SidecarId::mint());
    let (config, policy) = (ConfigFingerprint::of(b"c"), PolicyDigest::of(b"p"));
    let space = NamespaceIdentity { device: 4, inode: 7 };
    let first = readiness_fingerprint(&domain, Generation(1), &config, &sidecar, &policy, &space);
    let moved = NamespaceIdentity { device: 4, inode: 8 };
    let others = [
        readiness_fingerprint(&other, Generation(1), &config, &sidecar, &policy, &space),
        readiness_fingerprint(&domain, Generation(2), &config, &sidecar, &policy, &space),
        readiness_fingerprint(&domain, Generation(1), &ConfigFingerprint::of(b"d"), &sidecar, &policy, &space),
        readiness_fingerprint(&domain, Generation(1), &config, &foreign, &policy, &space),
        readiness_fingerprint(&domain, Generation(1), &config, &sidecar, &PolicyDigest::of(b"q"), &space),
        readiness_fingerprint(&domain, Generation(1), &config, &sidecar, &policy, &moved),
    ];
    assert!(others.iter().all(|other| *other != first));
    assert_eq!(first, readiness_fingerprint(&domain, Generation(1), &config, &sidecar, &policy, &space));
}

/// Prefixes around the private ranges, so that they nest and clash often.
fn prefix() -> impl Strategy<Value = IpNet> {
    let base = prop_oneof![Just(0x0a00_0000u32), Just(0x0a80_0000), Just(0xc0a8_0000), Just(0xac10_0000), any::<u32>()];
    (base, any::<u32>(), 0u8..=32).prop_map(|(base, noise, length)| {
        let address = std::net::Ipv4Addr::from(base ^ (noise & 0x0003_ffff));
        IpNet::new(address.into(), length).unwrap().trunc()
    })
}

fn grants() -> impl Strategy<Value = NetworkGrant> {
    let prefixes = || proptest::collection::vec(prefix(), 0..10);
    let dns = proptest::collection::vec(prefix().prop_map(|net| net.network()), 0..3);
    (prefixes(), prefixes(), dns, any::<bool>().prop_map(Ipv6::from))
        .prop_map(|(allow, deny, dns, ipv6)| NetworkGrant { allow, deny, dns, ipv6, probe: ProbeGrant::default() })
}

proptest! {
    #[test]
    fn rules_are_canonical_and_a_denied_prefix_is_never_permitted(grant in grants()) {
        let policy = network_policy(&grant);
        let positions: Vec<_> = policy.rules.iter().map(|rule| canonical_position(rule.prefix)).collect();
        prop_assert!(positions.windows(2).all(|pair| pair[0] < pair[1]));
        for denied in grant.deny.iter().flat_map(|prefix| below_default_route(*prefix)) {
            let rule = policy.rules.iter().find(|rule| rule.prefix == denied).expect("each denial has a rule");
            prop_assert_eq!(rule.verdict, Verdict::Deny);
        }
        let mut shuffled = grant.clone();
        shuffled.allow.reverse();
        shuffled.deny.reverse();
        prop_assert_eq!(digest(&network_policy(&shuffled)), digest(&policy));
    }

    #[test]
    fn each_rule_is_probed_unless_finer_rules_decide_all_of_it(grant in grants()) {
        let policy = network_policy(&grant);
        let plan = probe_plan(&policy, &grant.probe);
        prop_assert!(plan.denied.iter().all(|a| verdict(&policy, a) == Verdict::Deny));
        for rule in &policy.rules {
            let mut finer: Vec<_> = policy.rules.iter().map(|other| other.prefix).filter(|p| *p != rule.prefix).collect();
            finer.retain(|p| rule.prefix.contains(p));
            finer.extend(link_addresses().map(IpNet::from));
            let probes = if rule.verdict == Verdict::Deny { &plan.denied } else { &plan.routed };
            let tried = probes.iter().any(|a| rule.prefix.contains(a) && !finer.iter().any(|p| p.contains(a)));
            prop_assert_eq!(tried, representative(rule.prefix, &finer).is_some(), "{}", rule.prefix);
        }
    }
}
