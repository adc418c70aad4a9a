//! Installs a derived policy in the enforcement namespace by rtnetlink(7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteScope};
use rtnetlink::packet_route::rule::RuleAction as KernelAction;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use super::error::NetworkError;
use super::settings;
use crate::domain::network::{LINK, LINK_DEVICE, LINK_V6, NetworkPolicy};
use crate::policy::enforcement::{
    self, Family, LOOPBACK_DEVICE, Route, Rule, installed_routes, installed_rules, link_settings,
};

/// Largest packet on the link, as slirp4netns(1) recommends it; fewer packets mean fewer copies.
pub(super) const LINK_MTU: u32 = 65520;

/// Applies the settings and brings the loopback device up. Nothing of it needs the link.
pub(super) async fn prepare(handle: &Handle, policy: &NetworkPolicy) -> Result<(), NetworkError> {
    for setting in settings::applicable(enforcement::settings(policy.ipv6)) {
        settings::apply(&setting)?;
    }
    set_up(handle, LOOPBACK_DEVICE, None).await
}

/// Gives the link its addresses, then installs routes and rules.
pub(super) async fn install(handle: &Handle, policy: &NetworkPolicy) -> Result<(), NetworkError> {
    let link = index(handle, LINK_DEVICE).await?;
    let loopback = index(handle, LOOPBACK_DEVICE).await?;
    for setting in settings::applicable(link_settings(policy.ipv6)) {
        settings::apply(&setting)?;
    }
    add_address(handle, link, LINK.own.into()).await?;
    if policy.ipv6.is_on() {
        add_address(handle, link, LINK_V6.0.into()).await?;
    }
    // The guard comes before the link is up: there is no moment without it.
    for rule in installed_rules(policy.ipv6) {
        add_rule(handle, &rule).await?;
    }
    set_up(handle, LINK_DEVICE, Some(LINK_MTU)).await?;
    for route in installed_routes(policy) {
        let device = if route.device == LINK_DEVICE { link } else { loopback };
        add_route(handle, &route, device).await?;
    }
    Ok(())
}

async fn set_up(handle: &Handle, device: &str, mtu: Option<u32>) -> Result<(), NetworkError> {
    let mut change = LinkUnspec::new_with_name(device).up();
    if let Some(mtu) = mtu {
        change = change.mtu(mtu);
    }
    let link = |source| NetworkError::Link { device: device.to_owned(), source };
    handle.link().set(change.build()).execute().await.map_err(link)
}

async fn index(handle: &Handle, device: &str) -> Result<u32, NetworkError> {
    let mut links = handle.link().get().match_name(device).execute();
    let link = |source| NetworkError::Link { device: device.to_owned(), source };
    match links.try_next().await.map_err(link)? {
        Some(found) => Ok(found.header.index),
        None => Err(NetworkError::NoLink { device: device.to_owned() }),
    }
}

async fn add_address(handle: &Handle, link: u32, address: IpAddr) -> Result<(), NetworkError> {
    let mut request = handle.address().add(link, address, IpNet::from(address).prefix_len());
    if address.is_ipv6() {
        // Nobody else is on this link, and duplicate detection would take a second.
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    request.execute().await.map_err(|source| NetworkError::Address { address, source })
}

async fn add_rule(handle: &Handle, rule: &Rule) -> Result<(), NetworkError> {
    let device = rule.device.clone().unwrap_or_default();
    let request = handle.rule().add().priority(rule.priority).action(KernelAction::Prohibit).output_interface(device);
    let outcome = match rule.family {
        Family::V4 => request.v4().execute().await,
        Family::V6 => request.v6().execute().await,
    };
    outcome.map_err(|source| NetworkError::Rule { family: rule.family, source })
}

async fn add_route(handle: &Handle, route: &Route, device: u32) -> Result<(), NetworkError> {
    let failed = |source| NetworkError::Route { destination: route.destination, source };
    handle.route().add(message(route, device)).execute().await.map_err(failed)
}

fn message(route: &Route, device: u32) -> RouteMessage {
    let mut message = match route.destination {
        IpNet::V4(net) => {
            RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(net.network(), net.prefix_len()).build()
        }
        IpNet::V6(net) => {
            RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(net.network(), net.prefix_len()).build()
        }
    };
    message.attributes.push(RouteAttribute::Oif(device));
    if let Some(gateway) = route.gateway {
        message.attributes.push(RouteAttribute::Gateway(gateway.into()));
        if route.device == LINK_DEVICE {
            message.header.flags.insert(RouteFlags::Onlink);
        }
    } else if route.destination.network().is_ipv4() {
        message.header.scope = RouteScope::Link;
    }
    if let Some(source) = route.source {
        message.attributes.push(RouteAttribute::PrefSource(source.into()));
    }
    message
}
