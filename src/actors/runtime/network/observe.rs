//! Reads the enforcement namespace back by rtnetlink(7) and proc(5), as a value to compare.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::packet_route::rule::{RuleAction as KernelAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};

use super::error::NetworkError;
use super::settings;
use crate::domain::network::Ipv6;
use crate::policy::enforcement::{Enforcement, Family, Link, Route, RouteKind, Rule, RuleAction};

/// Reads everything back that decides where a packet goes.
///
/// Links that are down are left out: the kernel gives every namespace such devices when a tunnel
/// module is loaded, and a link that is down carries nothing. The rules of IPv6 are left out when it
/// is off, since without an address and a route they are asked about nothing.
pub(super) async fn observe(handle: &Handle, ipv6: Ipv6) -> Result<Enforcement, NetworkError> {
    let names = link_names(handle).await?;
    let mut rules = rules(handle, Family::V4).await?;
    if ipv6.is_on() {
        rules.extend(self::rules(handle, Family::V6).await?);
    }
    let mut routes = routes(handle, Family::V4, &names).await?;
    if Path::new("/proc/sys/net/ipv6").is_dir() {
        routes.extend(self::routes(handle, Family::V6, &names).await?);
    }
    Ok(Enforcement { links: links(handle, &names).await?, routes, rules, settings: settings::read(ipv6)? })
}

/// What is known of each link by its index: name, and whether it is up.
type LinkNames = BTreeMap<u32, (String, bool)>;

async fn link_names(handle: &Handle) -> Result<LinkNames, NetworkError> {
    let messages: Vec<_> = handle.link().get().execute().try_collect().await.map_err(NetworkError::ReadBack)?;
    let describe = |message: &rtnetlink::packet_route::link::LinkMessage| {
        let name = message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        let up = message.header.flags.contains(LinkFlags::Up);
        (message.header.index, (name.unwrap_or_default(), up))
    };
    Ok(messages.iter().map(describe).collect())
}

async fn links(handle: &Handle, names: &LinkNames) -> Result<BTreeSet<Link>, NetworkError> {
    let messages: Vec<_> = handle.address().get().execute().try_collect().await.map_err(NetworkError::ReadBack)?;
    let mut addresses: BTreeMap<u32, BTreeSet<IpNet>> = BTreeMap::new();
    for message in messages {
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        let net = address.and_then(|address| IpNet::new(address, message.header.prefix_len).ok());
        addresses.entry(message.header.index).or_default().extend(net);
    }
    let used = |(index, (_, up)): &(&u32, &(String, bool))| *up || addresses.contains_key(index);
    let link = |(index, (name, _)): (&u32, &(String, bool))| Link {
        name: name.clone(),
        addresses: addresses.get(index).cloned().unwrap_or_default(),
    };
    Ok(names.iter().filter(used).map(link).collect())
}

async fn routes(handle: &Handle, family: Family, names: &LinkNames) -> Result<BTreeSet<Route>, NetworkError> {
    let query = match family {
        Family::V4 => RouteMessageBuilder::<Ipv4Addr>::new().build(),
        Family::V6 => RouteMessageBuilder::<Ipv6Addr>::new().build(),
    };
    let messages: Vec<_> = handle.route().get(query).execute().try_collect().await.map_err(NetworkError::ReadBack)?;
    Ok(messages.iter().map(|message| route(message, family, names)).collect())
}

fn route(message: &RouteMessage, family: Family, names: &LinkNames) -> Route {
    let header = &message.header;
    let mut destination = unspecified(family);
    let mut route = Route {
        destination: IpNet::from(destination),
        table: header.table.into(),
        kind: kind(header.kind),
        gateway: None,
        device: String::new(),
        source: None,
        surplus: vec![],
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(found) => destination = address(found).unwrap_or(destination),
            RouteAttribute::Gateway(found) => route.gateway = address(found),
            RouteAttribute::PrefSource(found) => route.source = address(found),
            RouteAttribute::Oif(index) => {
                route.device = names.get(index).map(|(name, _)| name.clone()).unwrap_or_default();
            }
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(_) | RouteAttribute::CacheInfo(_) | RouteAttribute::Preference(_) => {}
            other => route.surplus.push(format!("{other:?}")),
        }
    }
    if header.tos != 0 || header.source_prefix_length != 0 {
        route.surplus.push(format!("tos {} source length {}", header.tos, header.source_prefix_length));
    }
    match IpNet::new(destination, header.destination_prefix_length) {
        Ok(net) => route.destination = net,
        Err(_) => route.surplus.push(format!("prefix length {}", header.destination_prefix_length)),
    }
    route
}

fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn address(found: &RouteAddress) -> Option<IpAddr> {
    match found {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn kind(kind: RouteType) -> RouteKind {
    match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        RouteType::Broadcast => RouteKind::Broadcast,
        RouteType::Multicast => RouteKind::Multicast,
        other => RouteKind::Other(other.into()),
    }
}

async fn rules(handle: &Handle, family: Family) -> Result<BTreeSet<Rule>, NetworkError> {
    let version = match family {
        Family::V4 => IpVersion::V4,
        Family::V6 => IpVersion::V6,
    };
    let messages: Vec<_> = handle.rule().get(version).execute().try_collect().await.map_err(NetworkError::ReadBack)?;
    let wanted = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    Ok(messages.iter().filter(|message| message.header.family == wanted).map(|message| rule(message, family)).collect())
}

fn rule(message: &RuleMessage, family: Family) -> Rule {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let mut rule = Rule { family, priority: 0, action: RuleAction::Prohibit, device: None, surplus: vec![] };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Oifname(device) => rule.device = Some(device.clone()),
            RuleAttribute::Table(found) => table = *found,
            // All ones stands for "no suppression".
            RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::Protocol(_) => {}
            other => rule.surplus.push(format!("{other:?}")),
        }
    }
    rule.action = match header.action {
        KernelAction::ToTable => RuleAction::Table(table),
        KernelAction::Prohibit => RuleAction::Prohibit,
        other => RuleAction::Other(other.into()),
    };
    if header.tos != 0 || header.src_len != 0 || header.dst_len != 0 {
        rule.surplus.push(format!("tos {} lengths {} {}", header.tos, header.src_len, header.dst_len));
    }
    rule
}
