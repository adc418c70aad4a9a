//! ICMP echo on an unprivileged socket (icmp(7)): the kernel fills in identifier and checksum.

use std::net::IpAddr;

/// What the request carries, to be returned.
const PAYLOAD: &[u8] = b"lazaret probe";

/// Gives an echo request.
pub(super) fn request(address: IpAddr, sequence: u16) -> Vec<u8> {
    let kind = if address.is_ipv4() { 8 } else { 128 };
    let [high, low] = sequence.to_be_bytes();
    [&[kind, 0, 0, 0, 0, 0, high, low], PAYLOAD].concat()
}

/// Tells whether a packet is an answer to one of our requests.
pub(super) fn is_reply(address: IpAddr, packet: &[u8]) -> bool {
    let kind = if address.is_ipv4() { 0 } else { 129 };
    packet.first() == Some(&kind) && packet.get(8..) == Some(PAYLOAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_returns_the_payload_and_nothing_else_counts() {
        for (address, kind) in [("10.0.2.2", 0u8), ("fd00::2", 129)] {
            let address: IpAddr = address.parse().unwrap();
            let mut packet = request(address, 7);
            assert_eq!(&packet[6..8], &[0, 7]);
            assert!(!is_reply(address, &packet), "a request is no reply");
            packet[0] = kind;
            assert!(is_reply(address, &packet));
            packet.pop();
            assert!(!is_reply(address, &packet));
            assert!(!is_reply(address, &[]));
        }
    }
}
