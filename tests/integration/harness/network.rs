//! The test network: a network namespace of the run's own, and hosts in it.
//!
//! Every address lies on the namespace's loopback device and nothing leads out, so no packet of a
//! test leaves the machine. To a sandbox the hosts are as far away as any: slirp4netns, which runs in
//! this namespace as it would on a developer's machine, connects to them.
//!
//! What reaches a host is counted at the host. Besides, every packet on the device is counted by its
//! destination, so that an attempt at a port that nobody serves is seen as well.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};

use super::command::Invocation;
use super::resolver;

/// A host that the default policy permits.
pub const PERMITTED: &str = "198.51.100.1";
/// A host that the default policy denies: RFC 1918.
pub const DENIED: &str = "10.9.0.1";
/// Another one.
pub const DENIED_TOO: &str = "192.168.77.1";
/// An IPv6 host outside private ranges (RFC 3849).
pub const PERMITTED_V6: &str = "2001:db8:51::1";
/// An IPv6 host of a private range (RFC 4193).
pub const DENIED_V6: &str = "fd09::1";
/// A resolver on a permitted address; the run's `/etc/resolv.conf` names it at first.
pub const RESOLVER: &str = "198.51.100.53";
/// A resolver as systemd-resolved has it.
pub const LOOPBACK_RESOLVER: &str = "127.0.0.53";
/// A denied host that a connectivity helper may take for a neighbour of its own.
pub const NEIGHBOUR: &str = "10.0.2.4";
/// A multicast group; the route to it leads to the device.
pub const GROUP: &str = "239.255.255.250";
/// A resolver behind the deny routes.
pub const DENIED_RESOLVER: &str = "10.9.0.53";
/// Port of the greeting service, TCP and UDP, on every host.
pub const PORT: u16 = 80;

const HOSTS: [&str; 6] = [PERMITTED, DENIED, DENIED_TOO, NEIGHBOUR, PERMITTED_V6, DENIED_V6];
const RESOLVERS: [&str; 3] = [RESOLVER, LOOPBACK_RESOLVER, DENIED_RESOLVER];

/// How often each host was contacted, by `tcp ADDRESS` and `udp ADDRESS`, and how many packets went to
/// each address, by `packet ADDRESS`.
static CONTACTS: LazyLock<Mutex<BTreeMap<String, u64>>> = LazyLock::new(Mutex::default);

/// Gives how often each host was contacted so far.
pub fn contacts() -> BTreeMap<String, u64> {
    CONTACTS.lock().expect("no holder panics").clone()
}

fn count(transport: &str, host: IpAddr) {
    *CONTACTS.lock().expect("no holder panics").entry(format!("{transport} {host}")).or_default() += 1;
}

/// Moves this process, single-threaded and root, into namespaces of its own and makes the test
/// network there; gives the private `/etc/resolv.conf`, which is the unprivileged user's to change.
pub fn enter(base: &Path) -> Result<PathBuf> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).context("unshare")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("make mounts private")?;
    let resolv_conf = base.join("resolv.conf");
    fs::write(&resolv_conf, format!("nameserver {RESOLVER}\n"))?;
    fs::set_permissions(&resolv_conf, std::fs::Permissions::from_mode(0o666))?;
    let target = fs::canonicalize("/etc/resolv.conf")?;
    mount(Some(&resolv_conf), &target, none, MsFlags::MS_BIND, none).context("bind resolv.conf")?;
    for setting in ["all", "default", "lo"] {
        // A kernel without IPv6 has no such file.
        drop(fs::write(format!("/proc/sys/net/ipv6/conf/{setting}/disable_ipv6"), "0"));
    }
    ip(&["link", "set", "lo", "up"])?;
    for host in HOSTS.into_iter().chain(RESOLVERS).filter(|host| !host.starts_with("127.")) {
        let address: IpAddr = host.parse()?;
        match address {
            IpAddr::V4(_) => ip(&["address", "add", host, "dev", "lo"])?,
            IpAddr::V6(_) => ip(&["address", "add", host, "dev", "lo", "nodad"])?,
        }
    }
    ip(&["route", "add", "224.0.0.0/4", "dev", "lo"])?;
    // As systemd sets it on a developer's machine; slirp4netns sends echo requests by it.
    fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")?;
    Ok(resolv_conf)
}

fn ip(arguments: &[&str]) -> Result<()> {
    Invocation::new("ip").args(arguments).run()?.ok()?;
    Ok(())
}

/// Starts all hosts and resolvers as threads of this process.
pub fn serve() -> Result<()> {
    let everything = socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    std::thread::spawn(move || watch(&everything));
    for host in HOSTS {
        let address = SocketAddr::new(host.parse()?, PORT);
        let listener = TcpListener::bind(address).with_context(|| format!("bind {address}"))?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count("tcp", address.ip());
                // A client that goes away is its own affair.
                std::thread::spawn(move || drop(greet(stream, address.ip())));
            }
        });
        let socket = UdpSocket::bind(address)?;
        std::thread::spawn(move || echo(&socket, address.ip()));
    }
    RESOLVERS.into_iter().try_for_each(|resolver| resolver::serve(resolver.parse()?))
}

/// Counts packets by destination. A packet of the loopback device is seen twice.
fn watch(everything: &OwnedFd) {
    let mut packet = [0; 64];
    while let Ok(length) = recv(everything.as_raw_fd(), &mut packet, MsgFlags::empty()) {
        let destination = match (packet[0] >> 4, length) {
            (4, 20..) => IpAddr::from(<[u8; 4]>::try_from(&packet[16..20]).expect("four bytes")),
            (6, 40..) => IpAddr::from(<[u8; 16]>::try_from(&packet[24..40]).expect("sixteen bytes")),
            _ => continue,
        };
        count("packet", destination);
    }
}

/// Answers as a web server does, also to a client that sends nothing.
fn greet(mut stream: TcpStream, host: IpAddr) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    // Whatever the client asks, and also when it asks nothing, the answer is the same.
    drop(stream.read(&mut [0; 4096]));
    let body = format!("hello from {host}\n");
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn echo(socket: &UdpSocket, host: IpAddr) {
    let mut buffer = [0; 65536];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        count("udp", host);
        drop(socket.send_to(&buffer[..length], from));
    }
}
