//! Denied addresses, and the network's own configuration.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::{Prison, USERS};
use crate::harness::network::{DENIED, DENIED_TOO, LOOPBACK_RESOLVER, NEIGHBOUR};
use crate::harness::world::world;
use crate::harness::{Case, CaseResult, Invocation, Need, case, root, sessions};

pub fn cases() -> Vec<Case> {
    // Other cases contact denied hosts on purpose; here nobody may.
    const NEEDS: &[Need] = &[Need::Sandbox, Need::TestNetwork, Need::Root, Need::Alone];
    vec![
        case("escape_denied_network", NEEDS, escape_denied_network),
        case("escape_network_configuration", NEEDS, escape_network_configuration),
    ]
}

/// Each attempt at a denied address, of which no packet may come out of the sandbox.
fn escape_denied_network() -> CaseResult {
    // The worst resolver: one on the host's own loopback, where the helper has to go.
    let resolv_conf = world().resolv_conf.as_ref().context("the test network has one")?;
    let before = fs::read_to_string(resolv_conf)?;
    fs::write(resolv_conf, format!("nameserver {LOOPBACK_RESOLVER}\n"))?;
    let outcome = USERS.into_iter().try_for_each(denied_network_as);
    fs::write(resolv_conf, before)?;
    outcome
}

fn denied_network_as(user: &str) -> CaseResult {
    let prison = Prison::new(user, "")?;
    prison.shell("getent hosts permitted.test")?;
    let service = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = service.local_addr()?.port();
    let datagrams = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    service.set_nonblocking(true)?;
    datagrams.set_nonblocking(true)?;

    let before = root::contacts()?;
    let script = include_str!("../hostile/sockets.py");
    let denied = [DENIED, DENIED_TOO, NEIGHBOUR, "172.16.9.9"];
    let outcomes = prison.attack(script, &[&[port.to_string().as_str()], denied.as_slice()].concat())?;
    let after = root::contacts()?;

    let attempts = outcomes.select(|name| !name.ends_with("(begin)"))?;
    ensure!(attempts.len() > 200, "only {} attempts got as far as a socket", attempts.len());
    // A source route is asked of a permitted host, which answers, as it does to what warms a socket up.
    let answers = |(name, outcome): &&(&str, &str)| {
        outcome.starts_with("did") && !name.contains("source route") && !outcome.contains("warm")
    };
    let answered: Vec<_> = attempts.iter().filter(answers).collect();
    ensure!(answered.is_empty(), "answered: {answered:?}");
    let contacted = forbidden(&before, &after);
    ensure!(contacted.is_empty(), "contacts with denied addresses: {contacted:?}");
    ensure!(service.accept().is_err(), "a service on the host's loopback was reached");
    ensure!(datagrams.recv_from(&mut [0; 100]).is_err(), "a datagram service on the host's loopback was reached");
    Ok(())
}

/// Gives what was counted at addresses that nobody may contact.
fn forbidden(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    let denied = |address: Ipv4Addr| {
        address.is_private() || address.is_multicast() || address.is_broadcast() || address.is_unspecified()
    };
    let grown = after.iter().filter(|(key, count)| before.get(*key) != Some(count));
    let keys = grown.map(|(key, _)| key).filter(|key| {
        let address = key.split(' ').nth(1).unwrap_or_default();
        // IPv6 is off in these sandboxes.
        address.contains(':') || address.parse().is_ok_and(denied)
    });
    keys.cloned().collect()
}

/// Gives everything that decides about packets in the enforcement namespace, as text.
fn enforcement(supervisor: i32) -> Result<String> {
    let script = "ip -o link; ip -o address; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule; \
                  ip neighbour show nud permanent; cat /proc/sys/net/ipv4/ip_forward \
                  /proc/sys/net/ipv4/conf/all/route_localnet /proc/sys/net/ipv4/ping_group_range";
    let enter = Invocation::new("nsenter").arg(format!("--target={supervisor}"));
    let enter = enter.args(["--user", "--net", "--preserve-credentials", "--", "sh", "-c", script]);
    let shown = enter.run()?.ok()?.stdout();
    ensure!(shown.contains("10.0.0.0/8 via 127.0.0.1") && shown.contains("prohibit"), "no policy there: {shown}");
    Ok(shown)
}

fn escape_network_configuration() -> CaseResult {
    for user in USERS {
        let prison = Prison::new(user, "")?;
        prison.shell("true")?;
        let supervisor = sessions::process(&sessions::status(&prison.environment, &[])?, "supervisor")?;
        let before = enforcement(supervisor)?;
        let outcomes = prison.attack(include_str!("../hostile/links.py"), &[])?;
        ensure!(enforcement(supervisor)? == before, "the network was changed: {}", enforcement(supervisor)?);
        // gVisor answers some requests from inside a user namespace without doing anything; what
        // would give a socket, a route or an address must be refused outright.
        outcomes.expect_refused(|name| {
            ["socket", "route", "address", "rule", "neighbour", "tun", "SIOC"].iter().any(|part| name.contains(part))
        })?;
    }
    Ok(())
}
