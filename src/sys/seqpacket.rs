//! The lifetime lease: a pair of connected SOCK_SEQPACKET sockets that carry messages with
//! descriptors, and whose end says that the other process is gone (unix(7)).
//!
//! A message may be larger than the kernel lets one packet be (socket(7), SO_SNDBUF), so it travels
//! as one or more packets. Each begins with a byte that says whether it is the first and whether it
//! is the last of its message; descriptors ride on the first. A message whose sender was cancelled
//! between two packets is given up at the next first packet.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

use super::readiness;

/// The payload of one packet at most.
const PACKET: usize = 32 << 10;
/// A message at most; a longer one is refused on both sides.
pub const MESSAGE_LIMIT: usize = 8 << 20;
/// Descriptors with one message at most.
pub const DESCRIPTOR_LIMIT: usize = 8;

const FIRST: u8 = 1;
const LAST: u8 = 2;

/// Makes a connected pair, both ends closed on execution.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// One end of a lease.
#[derive(Debug)]
pub struct Lease {
    socket: AsyncFd<OwnedFd>,
    sending: Mutex<()>,
    receiving: Mutex<Partial>,
}

/// A message of which packets are still to come.
#[derive(Debug, Default)]
struct Partial {
    begun: bool,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// One received packet.
struct Packet {
    flags: u8,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Lease {
    /// Takes one end of a [`pair`]. Must be called in a tokio runtime.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket: readiness::watch(socket, Interest::READABLE | Interest::WRITABLE)?,
            sending: Mutex::new(()),
            receiving: Mutex::new(Partial::default()),
        })
    }

    /// Sends one message with copies of the descriptors.
    pub async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.len() > MESSAGE_LIMIT || fds.len() > DESCRIPTOR_LIMIT {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large for the lease"));
        }
        let _turn = self.sending.lock().await;
        let mut first = FIRST;
        let mut rest = bytes;
        loop {
            let (now, later) = rest.split_at(rest.len().min(PACKET));
            let last = if later.is_empty() { LAST } else { 0 };
            let fds = if first == FIRST { fds } else { &[] };
            self.socket.async_io(Interest::WRITABLE, |socket| send_packet(socket, first | last, now, fds)).await?;
            if last == LAST {
                return Ok(());
            }
            (first, rest) = (0, later);
        }
    }

    /// Receives one message; `None` when the other process is gone. Cancelling the future loses nothing.
    pub async fn receive(&self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut partial = self.receiving.lock().await;
        loop {
            let Some(packet) = self.socket.async_io(Interest::READABLE, receive_packet).await? else { return Ok(None) };
            if let Some(message) = partial.add(packet)? {
                return Ok(Some(message));
            }
        }
    }
}

impl Partial {
    /// Adds a packet; gives the message when it was the last.
    fn add(&mut self, packet: Packet) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if packet.flags & !(FIRST | LAST) != 0 {
            return refuse("a packet of the lease has an unknown kind");
        }
        if packet.flags & FIRST != 0 {
            *self = Self { begun: true, bytes: packet.bytes, fds: packet.fds };
        } else if !self.begun {
            return refuse("a message of the lease has no beginning");
        } else if self.bytes.len() + packet.bytes.len() > MESSAGE_LIMIT {
            return refuse("a message of the lease is too large");
        } else {
            self.bytes.extend(packet.bytes);
        }
        if packet.flags & LAST == 0 {
            return Ok(None);
        }
        let whole = std::mem::take(self);
        Ok(Some((whole.bytes, whole.fds)))
    }
}

fn send_packet(socket: &OwnedFd, flags: u8, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for the lease"));
    }
    let parts = [IoSlice::new(std::slice::from_ref(&flags)), IoSlice::new(bytes)];
    // A packet goes whole or not at all.
    rustix::io::retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a packet; `None` when the peer is gone. Our packets are never empty.
fn receive_packet(socket: &OwnedFd) -> io::Result<Option<Packet>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTOR_LIMIT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = [0u8];
    let mut bytes = vec![0u8; PACKET];
    let received = {
        let mut parts = [IoSliceMut::new(&mut flags), IoSliceMut::new(&mut bytes)];
        rustix::io::retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))
    };
    let received = match received {
        Ok(received) => received,
        Err(Errno::CONNRESET | Errno::PIPE) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Taken out first, so that they are closed when the packet is refused.
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet of the lease was cut off"));
    }
    bytes.truncate(received.bytes - 1);
    Ok(Some(Packet { flags: flags[0], bytes, fds }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    fn leases() -> (Lease, Lease) {
        let (a, b) = pair().unwrap();
        (Lease::new(a).unwrap(), Lease::new(b).unwrap())
    }

    #[tokio::test]
    async fn messages_of_every_size_arrive_whole() {
        let (a, b) = leases();
        for size in [0, 1, PACKET - 1, PACKET, PACKET + 1, 3 * PACKET, 1 << 20, MESSAGE_LIMIT] {
            let message: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            let (sent, received) = tokio::join!(a.send(&message, &[]), b.receive());
            sent.unwrap();
            let (bytes, fds) = received.unwrap().unwrap();
            assert!(bytes == message && fds.is_empty(), "{size}");
        }
        assert!(a.send(&vec![0; MESSAGE_LIMIT + 1], &[]).await.is_err());
    }

    #[tokio::test]
    async fn descriptors_ride_along() {
        let (a, b) = leases();
        let (read, write) = rustix::pipe::pipe().unwrap();
        a.send(b"pipe", &[read.as_fd(), write.as_fd()]).await.unwrap();
        let (_, mut fds) = b.receive().await.unwrap().unwrap();
        assert!(rustix::io::fcntl_getfd(&fds[0]).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        std::fs::File::from(fds.pop().unwrap()).write_all(b"x").unwrap();
        let mut byte = [0u8; 1];
        std::fs::File::from(read).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[tokio::test]
    async fn the_end_of_one_end_is_seen() {
        let (a, b) = leases();
        a.send(b"last words", &[]).await.unwrap();
        drop(a);
        assert_eq!(b.receive().await.unwrap().unwrap().0, b"last words");
        assert!(b.receive().await.unwrap().is_none());
        assert!(b.send(b"anybody?", &[]).await.is_err());
    }

    #[tokio::test]
    async fn a_cancelled_message_is_given_up() {
        let (a, b) = leases();
        send_packet(a.socket.get_ref(), FIRST, b"half of", &[]).unwrap();
        a.send(b"whole", &[]).await.unwrap();
        assert_eq!(b.receive().await.unwrap().unwrap().0, b"whole");
        send_packet(a.socket.get_ref(), LAST, b"tail", &[]).unwrap();
        assert!(b.receive().await.is_err(), "no beginning");
    }
}
