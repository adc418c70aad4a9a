# Every way by which a socket could get to an address that the policy denies.
# Arguments: port of a service on the host's own loopback, then denied addresses.
host_port, denied = int(sys.argv[1]), sys.argv[2:]
PORT = 80
SO_BINDTODEVICE, SO_MARK, SO_DONTROUTE = 25, 36, 5
IP_OPTIONS, IP_PKTINFO, IP_FREEBIND, IP_TRANSPARENT, IP_UNICAST_IF = 4, 8, 15, 19, 50
IP_MULTICAST_IF, IP_MULTICAST_TTL, IPV6_V6ONLY = 32, 33, 26
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
waiting = {}


def tries(name, address, prepare=lambda s: None, kinds=(STREAM, DATAGRAM), family=socket.AF_INET, flags=0):
    """Starts a connection and sends a datagram, without waiting for either."""
    for kind in kinds:
        label = '%s %s %s' % (name, 'tcp' if kind == STREAM else 'udp', address[0])

        def action():
            s = socket.socket(family, kind)
            s.setblocking(False)
            prepare(s)
            try:
                if kind == STREAM and not flags:
                    s.connect(address)
                else:
                    s.sendto(b'hello', flags, address)
            except BlockingIOError:
                pass
            waiting[s] = label
        attempt(label + ' (begin)', action)


def option(name, value, level=socket.IPPROTO_IP):
    return lambda s: s.setsockopt(level, name, value)


def bound(device):
    return option(SO_BINDTODEVICE, device, socket.SOL_SOCKET)


def both(*actions):
    return lambda s: [action(s) for action in actions]


def source_route(kind, *hops):
    data = bytes([kind, 3 + 4 * len(hops), 4]) + b''.join(socket.inet_aton(hop) for hop in hops)
    return option(IP_OPTIONS, data + b'\0' * (-len(data) % 4))


def with_packet_info(address, index, source):
    label = 'packet info %d %s udp %s' % (index, source, address)

    def action():
        s = socket.socket(socket.AF_INET, DATAGRAM)
        s.setblocking(False)
        info = struct.pack('i4s4s', index, socket.inet_aton(source), b'\0' * 4)
        s.sendmsg([b'hello'], [(socket.IPPROTO_IP, IP_PKTINFO, info)], 0, (address, PORT))
        waiting[s] = label
    attempt(label + ' (begin)', action)


def turned(s):
    """A socket that has a route cached to where it may go."""
    s.connect(('198.51.100.1', PORT))
    s.send(b'warm')
    bound(b'tap0')(s)


def echo(address, prepare):
    def action():
        s = socket.socket(socket.AF_INET, DATAGRAM, socket.IPPROTO_ICMP)
        s.setblocking(False)
        prepare(s)
        s.sendto(b'\x08\0\0\0\0\0\0\x01hello', (address, 0))
        waiting[s] = 'echo ' + address
    attempt('echo %s (begin)' % address, action)


for address in denied:
    there = (address, PORT)
    tries('plain', there)
    tries('bound to tap0', there, bound(b'tap0'))
    tries('bound to lo', there, bound(b'lo'))
    for index in range(1, 5):
        for source in ['0.0.0.0', '10.0.2.100']:
            with_packet_info(address, index, source)
        tries('unicast interface %d' % index, there, option(IP_UNICAST_IF, struct.pack('!I', index)))
    for own in ['10.0.2.100', '127.0.0.1', '10.0.2.2', address]:
        tries('from ' + own, there, lambda s: s.bind((own, 0)))
        tries('freely from ' + own, there, both(option(IP_FREEBIND, 1), lambda s: s.bind((own, 0))))
        tries('bound from ' + own, there, both(bound(b'tap0'), lambda s: s.bind((own, 0))))
    tries('transparent', there, option(IP_TRANSPARENT, 1))
    tries('marked', there, option(SO_MARK, 1, socket.SOL_SOCKET))
    tries('unrouted', there, option(SO_DONTROUTE, 1, socket.SOL_SOCKET))
    tries('unrouted and bound', there, both(bound(b'tap0'), option(SO_DONTROUTE, 1, socket.SOL_SOCKET)))
    tries('unrouted datagram', there, kinds=[DATAGRAM], flags=socket.MSG_DONTROUTE)
    tries('fast open', there, kinds=[STREAM], flags=0x20000000)
    tries('turned', there, turned, kinds=[DATAGRAM])
    for kind, word in [(131, 'loose'), (137, 'strict')]:
        for hops in [(address,), ('10.0.2.2', address)]:
            for first in ['198.51.100.1', '10.0.2.2']:
                tries('%s source route %d' % (word, len(hops)), (first, PORT), source_route(kind, *hops))
    octets = tuple(socket.inet_aton(address))
    for mapped in ['::ffff:' + address, '::' + address, '64:ff9b::' + address, '2002:%02x%02x:%02x%02x::1' % octets]:
        tries('IPv6', (mapped, PORT), family=socket.AF_INET6)
        tries('bound IPv6', (mapped, PORT), both(option(IPV6_V6ONLY, 0, socket.IPPROTO_IPV6), bound(b'tap0')),
              family=socket.AF_INET6)
    echo(address, lambda s: None)
    echo(address, bound(b'tap0'))
    tries('resolver', (address, 53))
    tries('bound resolver', (address, 53), bound(b'tap0'))

# Ways to the host itself, and to everybody at once.
broadcast = option(socket.SO_BROADCAST, 1, socket.SOL_SOCKET)
for own in ['10.0.2.2', '10.0.2.3', '10.0.2.100', '127.0.0.1', '127.0.0.53', '0.0.0.0', '255.255.255.255', '10.0.2.255']:
    tries('host', (own, host_port), broadcast)
    tries('host bound', (own, host_port), both(broadcast, bound(b'tap0')))
for group in ['239.255.255.250', '224.0.0.251']:
    far = option(IP_MULTICAST_TTL, 9)
    for name, prepare in [('', far), ('bound ', both(far, bound(b'tap0'))),
                          ('out of ', both(far, option(IP_MULTICAST_IF, socket.inet_aton('10.0.2.100')))),
                          ('from ', both(far, lambda s: s.bind(('10.0.2.100', 0))))]:
        tries(name + 'group', (group, 1900), prepare, kinds=[DATAGRAM])

end = time.monotonic() + 0.5
while waiting and time.monotonic() < end:
    streams = [s for s in waiting if s.type == STREAM]
    others = [s for s in waiting if s.type != STREAM]
    readable, writable, _ = select.select(others, streams, [], 0.1)
    for s in readable + writable:
        attempt(waiting.pop(s), lambda: s.getpeername() if s.type == STREAM else s.recv(100))
for label in waiting.values():
    report(label, 'silence')
