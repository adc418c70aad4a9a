//! A DNS responder for the test names (RFC 1035), over UDP and TCP.
//!
//! `permitted.test` and `denied.test` are the hosts of [`super::network`]; `resolver.test` is the
//! address of the resolver that was asked, so that a case can tell which one it was; every other name
//! does not exist.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use anyhow::{Context, Result};

use super::network::{DENIED, DENIED_V6, PERMITTED, PERMITTED_V6};

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const HEADER: usize = 12;
const NAME_ERROR: u16 = 3;

/// Starts a resolver on port 53 of the address.
pub fn serve(address: IpAddr) -> Result<()> {
    let endpoint = SocketAddr::new(address, 53);
    let socket = UdpSocket::bind(endpoint).with_context(|| format!("bind {endpoint}"))?;
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if let Some(reply) = answer(&buffer[..length], address) {
                drop(socket.send_to(&reply, from));
            }
        }
    });
    let listener = TcpListener::bind(endpoint)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || drop(converse(stream, address)));
        }
    });
    Ok(())
}

/// Answers queries on one TCP connection; each message has its length in front.
fn converse(mut stream: TcpStream, address: IpAddr) -> std::io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        let Some(reply) = answer(&query, address) else { return Ok(()) };
        let length = u16::try_from(reply.len()).expect("a reply is a query and one record");
        stream.write_all(&[&length.to_be_bytes(), reply.as_slice()].concat())?;
    }
}

/// Gives the reply to a query with one question; none to bytes that are not such a query.
fn answer(query: &[u8], resolver: IpAddr) -> Option<Vec<u8>> {
    let (name, end) = question_name(query)?;
    let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
    let question = query.get(HEADER..end + 4)?;
    let known: Option<[IpAddr; 2]> = match name.as_str() {
        "permitted.test" => Some([PERMITTED.parse().ok()?, PERMITTED_V6.parse().ok()?]),
        "denied.test" => Some([DENIED.parse().ok()?, DENIED_V6.parse().ok()?]),
        "resolver.test" => Some([resolver, resolver]),
        _ => None,
    };
    let data = known.and_then(|known| {
        known.into_iter().find_map(|address| match (address, kind) {
            (IpAddr::V4(address), TYPE_A) => Some(address.octets().to_vec()),
            (IpAddr::V6(address), TYPE_AAAA) => Some(address.octets().to_vec()),
            _ => None,
        })
    });
    // Response, authoritative, recursion available, and recursion desired as it was in the query.
    let flags = 0x8480 | (u16::from_be_bytes([query[2], query[3]]) & 0x0100);
    let flags = if known.is_some() { flags } else { flags | NAME_ERROR };
    let mut reply = query[..2].to_vec();
    for field in [flags, 1, u16::from(data.is_some()), 0, 0] {
        reply.extend(field.to_be_bytes());
    }
    reply.extend(question);
    if let Some(data) = data {
        reply.extend([0xc0, 0x0c]);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 0]);
        reply.extend(u16::try_from(data.len()).expect("an address is short").to_be_bytes());
        reply.extend(data);
    }
    Some(reply)
}

/// Reads the first question's name and gives it with the offset behind it.
fn question_name(query: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), HEADER);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels.join("."), at)),
            1..64 => labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase()),
            _ => return None,
        }
        at += length;
    }
}
