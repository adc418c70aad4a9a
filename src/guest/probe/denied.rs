//! Attempts at addresses that must be unreachable.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use nix::errno::Errno;

use super::observation;
use super::sockets::{Link, Sent, connection, send_bound, send_with_packet_info, source, start_connection};
use super::verdict::{self, Datagram};
use crate::domain::network::ProbeObservation;

/// The port that attempts connect to: the one most likely to answer.
const PORT: u16 = 443;

/// All attempts at some denied addresses, under way.
#[derive(Debug)]
pub(super) struct Batch {
    /// When they began.
    begun: Instant,
    /// The attempts, by address.
    attempts: Vec<Attempts>,
}

/// The attempts at one denied address.
#[derive(Debug)]
struct Attempts {
    /// The address.
    address: IpAddr,
    /// The source address that its route begins at.
    source: Result<IpAddr, Errno>,
    /// A connection by the routes.
    connection: Result<OwnedFd, Errno>,
    /// A connection bound to the device.
    bound_connection: Result<OwnedFd, Errno>,
    /// A datagram bound to the device.
    bound: Sent,
    /// A datagram that names the device itself.
    on_packet: Sent,
}

/// What became of one address's two datagrams, by the first look.
pub(super) type Links = Vec<(Datagram, Datagram)>;

impl Batch {
    /// Starts every attempt.
    pub(super) fn open(addresses: &[IpAddr], link: &Link) -> Self {
        let begun = Instant::now();
        let start = |&address: &IpAddr| {
            let endpoint = SocketAddr::new(address, PORT);
            Attempts {
                address,
                source: source(address),
                connection: start_connection(endpoint, None),
                bound_connection: start_connection(endpoint, Some(link)),
                bound: send_bound(address, link),
                on_packet: send_with_packet_info(address, link),
            }
        };
        Self { begun, attempts: addresses.iter().map(start).collect() }
    }

    /// Looks what became of the datagrams. This must happen before the kernel gives up its search for
    /// a neighbour, after three seconds.
    pub(super) fn look_at_links(&self) -> Links {
        self.attempts.iter().map(|attempts| (attempts.bound.outcome(), attempts.on_packet.outcome())).collect()
    }

    /// Judges every attempt, the connections by what they are now.
    pub(super) fn judge(self, links: Links) -> impl Iterator<Item = ProbeObservation> {
        let elapsed = self.begun.elapsed();
        self.attempts.into_iter().zip(links).flat_map(move |(attempts, (bound, on_packet))| {
            let connected = |socket| verdict::deny_connection(connection(socket), elapsed);
            [
                ("route", verdict::deny_route(attempts.source)),
                ("tcp", connected(&attempts.connection)),
                ("device-bound tcp", connected(&attempts.bound_connection)),
                ("device-bound udp", verdict::deny_datagram(bound)),
                ("udp with packet info", verdict::deny_datagram(on_packet)),
            ]
            .map(|(attempt, verdict)| observation(format!("deny {} ({attempt})", attempts.address), verdict))
        })
    }
}
