//! The probe's system calls: each attempt as one non-blocking socket.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, getsockname,
    getsockopt, sendmsg, setsockopt, socket, sockopt,
};

use super::verdict::{Connection, Datagram};

/// The discard port: a datagram that should never leave, and does no harm if it does.
const DISCARD: u16 = 9;

/// Content of such a datagram. With the smallest send buffer one of this size fills more than the
/// half that a socket may use and still be writable (socket(7), SO_SNDBUF).
const FILLER: [u8; 4000] = [b'.'; 4000];

/// How a socket asks for the link device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device<'a> {
    /// Not at all.
    Any,
    /// By SO_BINDTODEVICE.
    Bound(&'a str),
    /// By IP_PKTINFO or IPV6_PKTINFO on the datagram.
    OnPacket(&'a str),
}

/// Opens a socket for an address's family.
fn open(address: IpAddr, kind: SockType, protocol: Option<SockProtocol>) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    socket(family, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, protocol)
}

/// Connects a socket to an address and port.
fn connect_to(socket: &OwnedFd, address: IpAddr, port: u16) -> Result<(), Errno> {
    connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, port)))
}

/// Gives a socket's own address.
fn own_address(socket: &OwnedFd) -> Result<IpAddr, Errno> {
    let name = getsockname::<SockaddrStorage>(socket.as_raw_fd())?;
    let v4 = name.as_sockaddr_in().map(|name| IpAddr::from(name.ip()));
    v4.or_else(|| name.as_sockaddr_in6().map(|name| name.ip().into())).ok_or(Errno::EAFNOSUPPORT)
}

/// Gives the source address that the kernel chooses for a destination. Sends nothing.
pub(super) fn source(address: IpAddr) -> Result<IpAddr, Errno> {
    let socket = open(address, SockType::Datagram, None)?;
    connect_to(&socket, address, DISCARD)?;
    own_address(&socket)
}

/// Opens a datagram socket that talks to one address only.
pub(super) fn datagram(address: IpAddr, port: u16, protocol: Option<SockProtocol>) -> Result<OwnedFd, Errno> {
    let socket = open(address, SockType::Datagram, protocol)?;
    connect_to(&socket, address, port)?;
    Ok(socket)
}

/// Starts a TCP connection.
pub(super) fn start_connection(address: SocketAddr, device: Device<'_>) -> Result<OwnedFd, Errno> {
    let socket = open(address.ip(), SockType::Stream, None)?;
    if let Device::Bound(name) = device {
        setsockopt(&socket, sockopt::BindToDevice, &name.into())?;
    }
    match connect_to(&socket, address.ip(), address.port()) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Says how far a connection came.
pub(super) fn connection(socket: &Result<OwnedFd, Errno>) -> Connection {
    let socket = match socket {
        Ok(socket) => socket,
        Err(errno) => return Connection::NotStarted(*errno),
    };
    if !is_writable(socket) {
        return Connection::Pending;
    }
    match getsockopt(socket, sockopt::SocketError) {
        Ok(0) => Connection::Established,
        Ok(error) => Connection::Failed(Errno::from_raw(error)),
        Err(errno) => Connection::Failed(errno),
    }
}

/// A datagram on its way, by a request for the device.
#[derive(Debug)]
pub(super) enum Sent {
    /// It needs no second look.
    Decided(Datagram),
    /// Whether it left shows in its socket.
    Watched(OwnedFd),
}

impl Sent {
    /// Says what became of the datagram.
    pub(super) fn outcome(&self) -> Datagram {
        match self {
            Self::Decided(datagram) => *datagram,
            Self::Watched(socket) if is_writable(socket) => Datagram::Left,
            Self::Watched(_) => Datagram::Held,
        }
    }
}

/// Sends a datagram by way of the device.
pub(super) fn send_through(address: IpAddr, device: Device<'_>) -> Sent {
    try_through(address, device).unwrap_or_else(|errno| Sent::Decided(Datagram::Refused(errno)))
}

/// Sends a datagram by way of the device, or gives the error of the step that was refused.
fn try_through(address: IpAddr, device: Device<'_>) -> Result<Sent, Errno> {
    let socket = open(address, SockType::Datagram, None)?;
    // The kernel raises this to the smallest size that it allows.
    setsockopt(&socket, sockopt::SndBuf, &1)?;
    let filler = [IoSlice::new(&FILLER)];
    let send = |control: &[ControlMessage<'_>], to: Option<&SockaddrStorage>| {
        sendmsg(socket.as_raw_fd(), &filler, control, MsgFlags::empty(), to)
    };
    match device {
        Device::OnPacket(name) => {
            let to = SockaddrStorage::from(SocketAddr::new(address, DISCARD));
            // A sandbox that drops the request sends by the routes, which have a check of their own.
            if send_from_interface(address, NO_INTERFACE, |control| send(control, Some(&to))).is_ok() {
                return Ok(Sent::Decided(Datagram::Routed(source(address)?)));
            }
            let index = nix::net::if_::if_nametoindex(name)?;
            send_from_interface(address, index, |control| send(control, Some(&to)))?;
        }
        Device::Any | Device::Bound(_) => {
            if let Device::Bound(name) = device {
                setsockopt(&socket, sockopt::BindToDevice, &name.into())?;
            }
            connect_to(&socket, address, DISCARD)?;
            let source = own_address(&socket)?;
            if source.is_loopback() {
                return Ok(Sent::Decided(Datagram::Routed(source)));
            }
            send(&[], None)?;
        }
    }
    Ok(Sent::Watched(socket))
}

/// An interface index that no interface has.
const NO_INTERFACE: libc::c_uint = 0x7fff_fff0;

/// Calls `send` with the control message that asks for an interface.
fn send_from_interface<T>(
    address: IpAddr,
    index: libc::c_uint,
    send: impl FnOnce(&[ControlMessage<'_>]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let any = libc::in_addr { s_addr: 0 };
    if address.is_ipv4() {
        let index = libc::c_int::try_from(index).map_err(|_| Errno::EINVAL)?;
        let info = libc::in_pktinfo { ipi_ifindex: index, ipi_spec_dst: any, ipi_addr: any };
        send(&[ControlMessage::Ipv4PacketInfo(&info)])
    } else {
        let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: [0; 16] }, ipi6_ifindex: index };
        send(&[ControlMessage::Ipv6PacketInfo(&info)])
    }
}

/// Tells whether a socket could take more, or has an error to tell.
fn is_writable(socket: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
