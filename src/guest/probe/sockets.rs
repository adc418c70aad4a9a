//! The probe's system calls: each attempt as one non-blocking socket.

use std::ffi::OsString;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, getsockname,
    getsockopt, send, sendmsg, setsockopt, socket, sockopt,
};

use super::verdict::{Connection, Datagram};

/// The discard port: a datagram that should never leave, and does no harm if it does.
const DISCARD: u16 = 9;

/// Content of such a datagram. With the smallest send buffer one of this size fills more than the
/// half that a socket may use and still be writable (socket(7), SO_SNDBUF).
const FILLER: [u8; 4000] = [b'.'; 4000];

/// The link device, as a socket can ask for it.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Its name, for SO_BINDTODEVICE.
    name: OsString,
    /// Its index, for IP_PKTINFO and IPV6_PKTINFO.
    index: Result<libc::c_uint, Errno>,
}

impl Link {
    /// Looks a device up.
    pub(super) fn find(name: &str) -> Self {
        let index = nix::net::if_::if_nametoindex(name).map_err(|_| Errno::ENODEV);
        Self { name: name.into(), index }
    }

    /// Binds a socket to the device.
    fn bind(&self, socket: &OwnedFd) -> Result<(), Errno> {
        setsockopt(socket, sockopt::BindToDevice, &self.name)
    }
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

/// Starts a TCP connection, bound to a device if one is given.
pub(super) fn start_connection(address: SocketAddr, link: Option<&Link>) -> Result<OwnedFd, Errno> {
    let socket = open(address.ip(), SockType::Stream, None)?;
    link.map_or(Ok(()), |link| link.bind(&socket))?;
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

impl From<Result<Self, Errno>> for Sent {
    /// Takes the error of the step that was refused for what became of the datagram.
    fn from(sent: Result<Self, Errno>) -> Self {
        sent.unwrap_or_else(|errno| Self::Decided(Datagram::Refused(errno)))
    }
}

/// Opens a datagram socket that stops being writable as soon as one datagram waits in the kernel.
fn narrow(address: IpAddr) -> Result<OwnedFd, Errno> {
    let socket = open(address, SockType::Datagram, None)?;
    // The kernel raises this to the smallest size that it allows.
    setsockopt(&socket, sockopt::SndBuf, &1)?;
    Ok(socket)
}

/// Sends a datagram from a socket that is bound to the device.
pub(super) fn send_bound(address: IpAddr, link: &Link) -> Sent {
    let send = || {
        let socket = narrow(address)?;
        link.bind(&socket)?;
        connect_to(&socket, address, DISCARD)?;
        let source = own_address(&socket)?;
        if source.is_loopback() {
            return Ok(Sent::Decided(Datagram::Routed(source)));
        }
        send(socket.as_raw_fd(), &FILLER, MsgFlags::empty())?;
        Ok(Sent::Watched(socket))
    };
    Sent::from(send())
}

/// Sends a datagram that names the device itself.
pub(super) fn send_with_packet_info(address: IpAddr, link: &Link) -> Sent {
    let send = || {
        let socket = narrow(address)?;
        // A sandbox that drops the request sends by the routes, which have an attempt of their own.
        if send_from_interface(&socket, address, NO_INTERFACE).is_ok() {
            return Ok(Sent::Decided(Datagram::Routed(source(address)?)));
        }
        send_from_interface(&socket, address, link.index?)?;
        Ok(Sent::Watched(socket))
    };
    Sent::from(send())
}

/// An interface index that no interface has.
const NO_INTERFACE: libc::c_uint = 0x7fff_fff0;

/// Sends a datagram that asks for an interface.
fn send_from_interface(socket: &OwnedFd, address: IpAddr, index: libc::c_uint) -> Result<usize, Errno> {
    let to = SockaddrStorage::from(SocketAddr::new(address, DISCARD));
    let content = [IoSlice::new(&FILLER)];
    let send = |info| sendmsg(socket.as_raw_fd(), &content, &[info], MsgFlags::empty(), Some(&to));
    if address.is_ipv4() {
        let any = libc::in_addr { s_addr: 0 };
        let index = libc::c_int::try_from(index).map_err(|_| Errno::EINVAL)?;
        send(ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo { ipi_ifindex: index, ipi_spec_dst: any, ipi_addr: any }))
    } else {
        let any = libc::in6_addr { s6_addr: [0; 16] };
        send(ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo { ipi6_addr: any, ipi6_ifindex: index }))
    }
}

/// Tells whether a socket could take more, or has an error to tell.
fn is_writable(socket: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
