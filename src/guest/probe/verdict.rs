//! What an attempt's outcome says about the policy. Pure.

use std::net::IpAddr;
use std::time::Duration;

use nix::errno::Errno;

/// Whether an attempt went as the policy says, and what was seen, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether it was as the policy says.
    pub(super) holds: bool,
    /// What was seen.
    pub(super) seen: String,
}

/// How far a TCP connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    /// The kernel refused to start it.
    NotStarted(Errno),
    /// Nothing was heard of it.
    Pending,
    /// It failed after it was started.
    Failed(Errno),
    /// The other side accepted it.
    Established,
}

/// What became of a datagram that asked for the link device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Datagram {
    /// The kernel refused it.
    Refused(Errno),
    /// The request for the device changed nothing: it went the way of the routes, from this address.
    Routed(IpAddr),
    /// The kernel still holds it, for want of a neighbour.
    Held,
    /// It left the sandbox.
    Left,
}

/// How long the kernel looks for a neighbour before it reports the destination unreachable: three
/// requests, one a second (arp(7)). An earlier report came in a packet.
const NEIGHBOUR_SEARCH: Duration = Duration::from_secs(1);

/// Judges the way to a denied address by the source address that the kernel chose for it.
pub(super) fn deny_route(source: Result<IpAddr, Errno>) -> Verdict {
    match source {
        Ok(source) if source.is_loopback() => holds(format!("held back by the deny route, from {source}")),
        Ok(source) => fails(format!("routed out of the sandbox, from {source}")),
        Err(errno) => refused(errno),
    }
}

/// Judges an attempt at a denied address that the kernel refused at once. That the attempt itself
/// could not be made says nothing about the policy and so does not pass for evidence.
fn refused(errno: Errno) -> Verdict {
    match errno {
        Errno::ENODEV | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ENOBUFS => {
            fails(format!("could not be tried: {}", words(errno)))
        }
        errno => holds(format!("refused: {}", words(errno))),
    }
}

/// Judges a connection to a denied address: any sign that a packet came back is a failure.
pub(super) fn deny_connection(connection: Connection, elapsed: Duration) -> Verdict {
    match connection {
        Connection::NotStarted(errno) => refused(errno),
        Connection::Pending | Connection::Failed(Errno::ETIMEDOUT) => holds("no answer".into()),
        Connection::Failed(Errno::EHOSTUNREACH) if elapsed >= NEIGHBOUR_SEARCH => {
            holds("no neighbour answers for it".into())
        }
        Connection::Failed(errno) => fails(format!("answered: {}", words(errno))),
        Connection::Established => fails("connected".into()),
    }
}

/// Judges a datagram to a denied address that asked for the link device.
pub(super) fn deny_datagram(datagram: Datagram) -> Verdict {
    match datagram {
        Datagram::Refused(errno) => refused(errno),
        Datagram::Routed(source) if source.is_loopback() => {
            holds(format!("held back by the deny route, from {source}"))
        }
        Datagram::Routed(source) => fails(format!("routed out of the sandbox, from {source}")),
        Datagram::Held => holds("held by the kernel: no neighbour answers for it".into()),
        Datagram::Left => fails("left through the link".into()),
    }
}

/// Judges the way to a permitted address: it must start at our own address on the link.
pub(super) fn routed(source: Result<IpAddr, Errno>, own: IpAddr) -> Verdict {
    match source {
        Ok(source) if source == own => holds(format!("routed to the link, from {source}")),
        Ok(source) => fails(format!("not routed to the link: from {source}, not {own}")),
        Err(errno) => fails(format!("no route: {}", words(errno))),
    }
}

/// Judges a connection that must be accepted.
pub(super) fn reachable(connection: Connection) -> Verdict {
    match connection {
        Connection::Established => holds("connected".into()),
        Connection::Pending => fails("no answer in time".into()),
        Connection::NotStarted(errno) | Connection::Failed(errno) => fails(words(errno)),
    }
}

/// Gives an error in words.
pub(super) fn words(errno: Errno) -> String {
    errno.desc().to_lowercase()
}

/// Gives a verdict of something that is as the policy says.
pub(super) fn holds(seen: String) -> Verdict {
    Verdict { holds: true, seen }
}

/// Gives a verdict of something that is not as the policy says.
pub(super) fn fails(seen: String) -> Verdict {
    Verdict { holds: false, seen }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(6);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_denied_address_starts_at_loopback_or_nowhere() {
        assert!(deny_route(Ok(ip("127.0.0.1"))).holds);
        assert!(deny_route(Ok(ip("::1"))).holds);
        assert!(deny_route(Err(Errno::ENETUNREACH)).holds);
        assert!(!deny_route(Ok(ip("10.0.2.100"))).holds);
        assert!(!deny_route(Ok(ip("0.0.0.0"))).holds);
    }

    #[test]
    fn a_refusal_is_an_answer_and_so_a_failure() {
        let held = |connection, elapsed| deny_connection(connection, elapsed).holds;
        assert!(held(Connection::Pending, SOON));
        assert!(held(Connection::NotStarted(Errno::EACCES), SOON));
        assert!(held(Connection::Failed(Errno::ETIMEDOUT), Duration::from_secs(8)));
        assert!(!held(Connection::Established, SOON));
        assert!(!held(Connection::Failed(Errno::ECONNREFUSED), SOON));
        assert!(!held(Connection::Failed(Errno::ECONNRESET), SOON));
        assert!(!held(Connection::Failed(Errno::ENETUNREACH), Duration::from_secs(4)));
    }

    #[test]
    fn an_early_unreachable_came_in_a_packet_and_a_late_one_from_the_neighbour_search() {
        assert!(!deny_connection(Connection::Failed(Errno::EHOSTUNREACH), SOON).holds);
        assert!(deny_connection(Connection::Failed(Errno::EHOSTUNREACH), Duration::from_secs(3)).holds);
    }

    #[test]
    fn a_datagram_that_is_not_held_left() {
        assert!(deny_datagram(Datagram::Held).holds);
        assert!(deny_datagram(Datagram::Refused(Errno::EACCES)).holds);
        assert!(deny_datagram(Datagram::Routed(ip("127.0.0.1"))).holds);
        assert!(!deny_datagram(Datagram::Routed(ip("10.0.2.100"))).holds);
        assert!(!deny_datagram(Datagram::Left).holds);
    }

    #[test]
    fn what_could_not_be_tried_is_no_evidence() {
        assert!(!deny_datagram(Datagram::Refused(Errno::ENODEV)).holds);
        assert!(!deny_connection(Connection::NotStarted(Errno::EMFILE), SOON).holds);
        assert!(!deny_route(Err(Errno::ENFILE)).holds);
    }

    #[test]
    fn a_permitted_address_starts_at_the_link() {
        let own = ip("10.0.2.100");
        assert!(routed(Ok(own), own).holds);
        assert!(!routed(Ok(ip("127.0.0.1")), own).holds);
        assert!(!routed(Err(Errno::ENETUNREACH), own).holds);
    }

    #[test]
    fn what_must_answer_must_accept() {
        assert!(reachable(Connection::Established).holds);
        assert!(!reachable(Connection::Pending).holds);
        assert_eq!(reachable(Connection::Failed(Errno::ECONNREFUSED)).seen, "connection refused");
    }
}
