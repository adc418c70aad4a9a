//! Arithmetic on address prefixes: which addresses a prefix has left when others are taken out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Address blocks that make poor probe targets, since the kernel treats them specially: "this
/// network", loopback, multicast and the reserved block for IPv4; unspecified, loopback and
/// multicast for IPv6.
const SPECIAL: [&str; 6] = ["0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "::ffff:0:0/96", "ff00::/8"];

/// Gives an address of `prefix` that lies in none of `without`, and the same one each time.
///
/// Ordinary unicast addresses are preferred, then the last but one of the highest gap, as that is
/// seldom a network, gateway or broadcast address. `None` when `without` covers the prefix.
pub fn representative(prefix: IpNet, without: &[IpNet]) -> Option<IpAddr> {
    let mut ordinary = without.to_vec();
    ordinary.extend(special());
    let gap = highest_gap(prefix, &ordinary).or_else(|| highest_gap(prefix, without))?;
    let (low, high) = gap;
    Some(address(prefix, if high - low >= 2 { high - 1 } else { low }))
}

/// Gives the two halves of the prefix that holds a whole address family, and any other as it is.
///
/// A rule for the whole family would stand in the place of the default route; its halves mean the
/// same and are more specific than it.
pub fn below_default_route(prefix: IpNet) -> Vec<IpNet> {
    if prefix.prefix_len() > 0 {
        return vec![prefix];
    }
    prefix.subnets(1).map(Iterator::collect).unwrap_or_default()
}

fn special() -> impl Iterator<Item = IpNet> {
    SPECIAL.iter().filter_map(|text| text.parse().ok())
}

/// Gives the bounds of the highest run of addresses in `prefix` that no member of `without` holds.
fn highest_gap(prefix: IpNet, without: &[IpNet]) -> Option<(u128, u128)> {
    let (low, mut high) = bounds(prefix);
    let same_family = without.iter().filter(|other| is_ipv4(**other) == is_ipv4(prefix));
    let mut taken: Vec<_> = same_family.map(|other| bounds(*other)).collect();
    taken.sort_by_key(|(_, end)| std::cmp::Reverse(*end));
    for (start, end) in taken {
        if end < high {
            return Some((low.max(end + 1), high)).filter(|(from, to)| from <= to);
        }
        if start <= low {
            return None;
        }
        high = high.min(start - 1);
    }
    Some((low, high))
}

fn is_ipv4(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V4(_))
}

fn bounds(prefix: IpNet) -> (u128, u128) {
    match prefix {
        IpNet::V4(net) => (u32::from(net.network()).into(), u32::from(net.broadcast()).into()),
        IpNet::V6(net) => (net.network().into(), net.broadcast().into()),
    }
}

/// Turns a number from [`bounds`] back into an address of the prefix's family.
fn address(prefix: IpNet, number: u128) -> IpAddr {
    match prefix {
        IpNet::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        IpNet::V6(_) => Ipv6Addr::from(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn prefers_ordinary_addresses_near_the_end() {
        assert_eq!(representative(net("10.0.0.0/8"), &[]), Some("10.255.255.254".parse().unwrap()));
        assert_eq!(representative(net("10.0.0.7/32"), &[]), Some("10.0.0.7".parse().unwrap()));
        assert_eq!(representative(net("10.0.0.6/31"), &[]), Some("10.0.0.6".parse().unwrap()));
        assert_eq!(representative(net("128.0.0.0/1"), &[]), Some("223.255.255.254".parse().unwrap()));
        assert_eq!(representative(net("240.0.0.0/4"), &[]), Some("255.255.255.254".parse().unwrap()));
        assert_eq!(representative(net("fe80::/10"), &[net("10.0.0.0/8")]).unwrap().to_string().get(..4), Some("febf"));
        assert_eq!(
            representative(net("10.0.0.0/8"), &[net("10.128.0.0/9"), net("10.64.0.0/10")]),
            Some("10.63.255.254".parse().unwrap())
        );
        assert_eq!(representative(net("10.0.0.0/8"), &[net("10.128.0.0/9"), net("10.0.0.0/9")]), None);
    }

    #[test]
    fn a_whole_family_becomes_two_halves() {
        assert_eq!(below_default_route(net("0.0.0.0/0")), [net("0.0.0.0/1"), net("128.0.0.0/1")]);
        assert_eq!(below_default_route(net("::/0")), [net("::/1"), net("8000::/1")]);
        assert_eq!(below_default_route(net("10.0.0.0/8")), [net("10.0.0.0/8")]);
    }

    /// Prefixes of one tiny block, so that every address can be tried.
    fn small_prefix() -> impl Strategy<Value = IpNet> {
        (24u8..=32, 0u32..256)
            .prop_map(|(length, host)| IpNet::new(Ipv4Addr::from(0x0a00_0000 | host).into(), length).unwrap().trunc())
    }

    proptest! {
        #[test]
        fn agrees_with_trying_every_address(
            prefix in small_prefix(),
            without in proptest::collection::vec(small_prefix(), 0..12),
        ) {
            let free = |a: &IpAddr| prefix.contains(a) && !without.iter().any(|other| other.contains(a));
            let all = (0u32..256).map(|host| IpAddr::from(Ipv4Addr::from(0x0a00_0000 | host)));
            let any_free = all.into_iter().any(|a| free(&a));
            let chosen = representative(prefix, &without);
            prop_assert_eq!(chosen.is_some(), any_free);
            if let Some(address) = chosen {
                prop_assert!(free(&address), "{} is taken", address);
            }
        }
    }
}
