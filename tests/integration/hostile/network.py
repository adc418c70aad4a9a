# Arguments: port of a service on the host's loopback, a TCP and a UDP one, then denied addresses.
host_port = int(sys.argv[1])
denied = sys.argv[2:]
PORT = 80
SO_BINDTODEVICE, SO_MARK, IP_OPTIONS, IP_PKTINFO, IP_FREEBIND, IP_TRANSPARENT = 25, 36, 4, 8, 15, 19
IP_UNICAST_IF, IP_MULTICAST_IF, IP_MTU_DISCOVER, IP_TTL = 50, 32, 10, 2
interfaces = [index for index in range(1, 6)]
waiting = {}


def prepared(kind, family=socket.AF_INET):
    s = socket.socket(family, kind)
    s.setblocking(False)
    return s


def start(name, s, address, flags=0):
    """Starts a connection, or sends a datagram; whether it arrived is looked at later."""
    try:
        if s.type == socket.SOCK_STREAM:
            s.connect(address)
        else:
            s.sendto(b'hello', flags, address)
    except BlockingIOError:
        pass
    waiting[s] = name


def tries(name, address, prepare, kinds=(socket.SOCK_STREAM, socket.SOCK_DGRAM), family=socket.AF_INET):
    for kind in kinds:
        def action():
            s = prepared(kind, family)
            prepare(s)
            start(label, s, address)
        label = '%s %s %s' % (name, 'tcp' if kind == socket.SOCK_STREAM else 'udp', address[0])
        attempt(label + ' (begin)', action)


def option(level, name, value):
    return lambda s: s.setsockopt(level, name, value)


def source_route(kind, *hops):
    data = bytes([kind, 3 + 4 * len(hops), 4]) + b''.join(socket.inet_aton(hop) for hop in hops)
    return data + b'\0' * (-len(data) % 4)


def packet_info(name, address, index, source):
    def action():
        s = prepared(socket.SOCK_DGRAM)
        info = struct.pack('i4s4s', index, socket.inet_aton(source), b'\0' * 4)
        s.sendmsg([b'hello'], [(socket.IPPROTO_IP, IP_PKTINFO, info)], 0, (address, PORT))
        waiting[s] = name
    attempt(name + ' (begin)', action)


def through_connected(address):
    """A socket that has a route cached to where it may go is turned to where it may not."""
    s = prepared(socket.SOCK_DGRAM)
    s.connect(('198.51.100.1', PORT))
    s.send(b'warm')
    s.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b'tap0')
    s.sendto(b'hello', (address, PORT))
    waiting[s] = 'turned udp ' + address


for address in denied:
    there = (address, PORT)
    tries('plain', there, lambda s: None)
    for device in [b'tap0', b'lo']:
        tries('bound to %s' % device.decode(), there, option(socket.SOL_SOCKET, SO_BINDTODEVICE, device))
    for index in interfaces:
        for source in ['0.0.0.0', '10.0.2.100']:
            packet_info('packet info %d %s udp %s' % (index, source, address), address, index, source)
        tries('unicast interface %d' % index, there, option(socket.IPPROTO_IP, IP_UNICAST_IF, struct.pack('!I', index)))
    for own in ['10.0.2.100', '127.0.0.1', '10.0.2.2', address]:
        tries('from %s' % own, there, lambda s: s.bind((own, 0)))
        def foreign(s):
            s.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
            s.bind((own, 0))
        tries('freely from %s' % own, there, foreign)
    tries('transparent', there, option(socket.IPPROTO_IP, IP_TRANSPARENT, 1))
    tries('marked', there, option(socket.SOL_SOCKET, SO_MARK, 1))
    for kind, route in [('loose', 131), ('strict', 137)]:
        for hops in [(address,), ('10.0.2.2', address)]:
            tries('%s source route of %d' % (kind, len(hops)), ('198.51.100.1', PORT),
                  option(socket.IPPROTO_IP, IP_OPTIONS, source_route(route, *hops)))
            tries('%s source route of %d by the gateway' % (kind, len(hops)), ('10.0.2.2', PORT),
                  option(socket.IPPROTO_IP, IP_OPTIONS, source_route(route, *hops)))
    for flags, word in [(socket.MSG_DONTROUTE, 'unrouted'), (0x20000000, 'fast open'), (0x800, 'confirmed')]:
        kinds = [socket.SOCK_STREAM] if word == 'fast open' else [socket.SOCK_DGRAM]
        for kind in kinds:
            def action():
                s = prepared(kind)
                try:
                    s.sendto(b'hello', flags, there)
                except BlockingIOError:
                    pass
                waiting[s] = '%s %s' % (word, address)
            attempt('%s %s (begin)' % (word, address), action)
    tries('unrouted option', there, option(socket.SOL_SOCKET, 5, 1))
    attempt('turned udp %s (begin)' % address, lambda: through_connected(address))
    for mapped in ['::ffff:' + address, '64:ff9b::' + address, '::' + address, '2002:%02x%02x:%02x%02x::1' % tuple(socket.inet_aton(address))]:
        tries('as IPv6', (mapped, PORT), lambda s: None, family=socket.AF_INET6)
        def both(s):
            s.setsockopt(socket.IPPROTO_IPV6, 26, 0)
            s.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b'tap0')
        tries('as bound IPv6', (mapped, PORT), both, family=socket.AF_INET6)
    for protocol in [socket.IPPROTO_ICMP]:
        for device in [None, b'tap0']:
            def action():
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, protocol)
                s.setblocking(False)
                if device:
                    s.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, device)
                s.sendto(b'\x08\0\0\0\0\0\0\x01hello', (address, 0))
                waiting[s] = 'echo %s %s' % (device, address)
            attempt('echo %s %s (begin)' % (device, address), action)

# Ways to the host itself, and to its neighbours all at once.
for own in ['10.0.2.2', '10.0.2.3', '10.0.2.100', '127.0.0.1', '127.0.0.53', '0.0.0.0', '255.255.255.255', '10.0.2.255']:
    def broadcast(s):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    tries('host', (own, host_port), broadcast)
    tries('host bound', (own, host_port), lambda s: (broadcast(s), s.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b'tap0')))
for group in ['239.255.255.250', '224.0.0.251', '224.0.0.1']:
    tries('group', (group, 1900), lambda s: None, kinds=[socket.SOCK_DGRAM])
    tries('group bound', (group, 1900), option(socket.SOL_SOCKET, SO_BINDTODEVICE, b'tap0'), kinds=[socket.SOCK_DGRAM])
    tries('group interface', (group, 1900), option(socket.IPPROTO_IP, IP_MULTICAST_IF, socket.inet_aton('10.0.2.100')), kinds=[socket.SOCK_DGRAM])

end = time.monotonic() + 0.8
while waiting and time.monotonic() < end:
    streams = [s for s in waiting if s.type == socket.SOCK_STREAM]
    others = [s for s in waiting if s.type != socket.SOCK_STREAM]
    readable, writable, _ = select.select(others, streams, [], 0.1)
    for s in readable + writable:
        name = waiting.pop(s)
        attempt(name, lambda: s.recv(100) if s.type != socket.SOCK_STREAM else s.getpeername())
for name in waiting.values():
    print(json.dumps([name, 'silence']))
