//! The least of DNS that shows whether a name resolves (RFC 1035).

use std::net::IpAddr;

/// Which kind of address is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
}

impl Record {
    /// Gives the record type's number.
    fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

/// What a resolver answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The name has this address.
    Address(IpAddr),
    /// The name has no address of the kind that was asked for.
    Empty,
    /// The resolver answered with this error code.
    Error(u8),
}

/// The text is not a name that DNS can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidName;

/// The Internet class.
const CLASS: u16 = 1;

/// Most records of an answer that are looked at.
const RECORDS: u16 = 64;

/// Gives a query.
pub(super) fn query(id: u16, name: &str, record: Record) -> Result<Vec<u8>, InvalidName> {
    let mut packet = Vec::with_capacity(name.len() + 18);
    // One question, recursion desired.
    for word in [id, 0x0100, 1, 0, 0, 0] {
        packet.extend(word.to_be_bytes());
    }
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length)).ok_or(InvalidName)?;
        packet.push(length);
        packet.extend(label.bytes());
    }
    packet.push(0);
    if packet.len() > 12 + 255 {
        return Err(InvalidName);
    }
    packet.extend(record.number().to_be_bytes());
    packet.extend(CLASS.to_be_bytes());
    Ok(packet)
}

/// Reads the response to a query; `None` when the packet is not that.
pub(super) fn answer(query: &[u8], packet: &[u8]) -> Option<Answer> {
    let is_response = packet.get(2)? & 0x80 != 0;
    let question = query.get(12..)?;
    let echoed = packet.get(12..12 + question.len())?;
    if packet.get(..2)? != query.get(..2)? || !is_response || !echoed.eq_ignore_ascii_case(question) {
        return None;
    }
    let code = packet[3] & 0x0f;
    if code != 0 {
        return Some(Answer::Error(code));
    }
    let wanted = word(query, query.len() - 4)?;
    let mut at = 12 + question.len();
    for _ in 0..word(packet, 6)?.min(RECORDS) {
        let Some(record) = skip_name(packet, at) else { break };
        let (Some(kind), Some(length)) = (word(packet, record), word(packet, record + 8)) else { break };
        let data = record + 10..record + 10 + usize::from(length);
        at = data.end;
        if kind == wanted
            && let Some(address) = packet.get(data).and_then(address)
        {
            return Some(Answer::Address(address));
        }
    }
    Some(Answer::Empty)
}

/// Reads a record's data as an address.
fn address(data: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(data).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(data).ok().map(IpAddr::from))
}

/// Gives the position after a name: labels up to a zero or a pointer, which ends the name.
fn skip_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = *packet.get(at)?;
        match length {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

/// Reads a 16-bit number.
fn word(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A response to a query, with records of (type, data) that point back at the question's name.
    fn response(query: &[u8], code: u8, records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut packet = query.to_vec();
        packet[2] |= 0x80;
        packet[3] = 0x80 | code;
        packet[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        for (kind, data) in records {
            packet.extend([0xc0, 12]);
            packet.extend(kind.to_be_bytes());
            packet.extend([0, 1, 0, 0, 0, 60]);
            packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            packet.extend(*data);
        }
        packet
    }

    #[test]
    fn an_address_behind_an_alias_is_found() {
        let query = query(7, "www.example.org.", Record::A).unwrap();
        let alias: (u16, &[u8]) = (5, b"\x03cdn\xc0\x10");
        let packet = response(&query, 0, &[alias, (1, &[198, 51, 100, 7])]);
        assert_eq!(answer(&query, &packet), Some(Answer::Address("198.51.100.7".parse().unwrap())));
        assert_eq!(answer(&query, &response(&query, 0, &[alias])), Some(Answer::Empty));
    }

    #[test]
    fn an_ipv6_address_is_found() {
        let query = query(7, "example.org", Record::Aaaa).unwrap();
        let data = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
        let packet = response(&query, 0, &[(28, &data)]);
        assert_eq!(answer(&query, &packet), Some(Answer::Address("2001:db8::7".parse().unwrap())));
    }

    #[test]
    fn an_error_code_is_an_answer() {
        let query = query(7, "nowhere.example", Record::A).unwrap();
        assert_eq!(answer(&query, &response(&query, 3, &[])), Some(Answer::Error(3)));
    }

    #[test]
    fn a_packet_that_answers_something_else_is_ignored() {
        let asked = query(7, "a.example", Record::A).unwrap();
        for other in
            [query(8, "a.example", Record::A), query(7, "b.example", Record::A), query(7, "a.example", Record::Aaaa)]
        {
            assert_eq!(answer(&asked, &response(&other.unwrap(), 0, &[])), None);
        }
        assert_eq!(answer(&asked, &asked), None, "a query is no response");
    }

    #[test]
    fn names_that_dns_cannot_carry_are_refused() {
        for name in ["", ".", "a..b", &"x".repeat(64), &vec!["x".repeat(60); 5].join(".")] {
            assert_eq!(query(1, name, Record::A), Err(InvalidName), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_packet_panics(packet in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..200) {
            let query = query(7, "www.example.org", Record::A).unwrap();
            let _ = answer(&query, &packet);
            let whole = [response(&query, 0, &[(5, b"\x01x\0")]), packet].concat();
            let _ = answer(&query, &whole[..cut.min(whole.len())]);
            let _ = answer(&query, &whole);
        }
    }
}
