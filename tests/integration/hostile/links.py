# Attempts to change the network itself: by netlink, by ioctl, by settings, by packets of one's own.


def netlink(kind, flags, body, protocol=0):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    s.settimeout(0.3)
    s.sendto(struct.pack('=IHHII', 16 + len(body), kind, flags | 5, 1, 0) + body, (0, 0))
    data = s.recv(4096)
    if struct.unpack_from('=H', data, 4)[0] == 2:
        error = -struct.unpack_from('=i', data, 16)[0]
        if error:
            raise OSError(error, os.strerror(error))


def attribute(kind, data):
    return struct.pack('=HH', 4 + len(data), kind) + data + b'\0' * (-len(data) % 4)


def address(text):
    return socket.inet_aton(text)


def internet(text):
    return struct.pack('HH4s8x', socket.AF_INET, 0, address(text))


def interface(name, rest):
    return struct.pack('16s24s', name, rest)


def everything(prefix):
    def route(prefix_length, destination, gateway=None, index=2):
        body = struct.pack('=BBBBBBBBI', 2, prefix_length, 0, 0, 254, 4, 0, 1, 0) + attribute(1, address(destination))
        body += attribute(4, struct.pack('=i', index))
        return body + (attribute(5, address(gateway)) if gateway else b'')
    link = lambda index, change: struct.pack('=BBHiII', 0, 0, 0, index, 0, change)
    owned = lambda text, length: struct.pack('=BBBBI', 2, length, 0, 0, 2) + attribute(1, address(text)) + attribute(2, address(text))
    rule = struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 254, 0, 0, 1, 0)
    requests = {
        'route added': (24, 0x400, route(32, '10.9.0.1', '10.0.2.2')),
        'route on the link added': (24, 0x400, route(24, '10.9.0.0')),
        'route replaced': (24, 0x500, route(8, '10.0.0.0', '10.0.2.2')),
        'route removed': (25, 0, route(8, '10.0.0.0', '127.0.0.1', 1)),
        'address added': (20, 0x600, owned('10.9.0.2', 24)),
        'address removed': (21, 0, owned('10.0.2.100', 32)),
        'rule added': (32, 0x400, rule + attribute(6, struct.pack('=I', 1))),
        'rule removed': (33, 0, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 0, 0, 0, 8, 0) + attribute(6, struct.pack('=I', 10))),
        'neighbour added': (28, 0x400, struct.pack('=BBHiHBB', 2, 0, 0, 2, 128, 0, 1) + attribute(1, address('10.9.0.1'))
                            + attribute(2, b'\x52\x55\x0a\0\2\2')),
        'link down': (19, 0, link(2, 1)),
        'loopback down': (19, 0, link(1, 1)),
        'link removed': (17, 0, link(2, 0)),
        'link renamed': (19, 0, link(2, 0) + attribute(3, b'tap1\0')),
        'link added': (16, 0x600, link(0, 0) + attribute(3, b'dummy7\0') + attribute(18, attribute(1, b'dummy'))),
    }
    for name, request in requests.items():
        attempt(prefix + name, lambda: netlink(*request))
    attempt(prefix + 'filter', lambda: netlink(0xa00, 0, struct.pack('=BBH', 2, 0, 0), 12))
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    entry = struct.pack('L', 0) + internet('10.9.0.1') + internet('10.0.2.2') + internet('255.255.255.255')
    entry += struct.pack('H', 7) + b'\0' * 62
    arp = internet('10.9.0.1') + struct.pack('H14s', 1, b'\x52\x55\x0a\0\2\2') + struct.pack('i', 6) + b'\0' * 16
    for name, request, argument in [
        ('SIOCADDRT', 0x890b, entry), ('SIOCDELRT', 0x890c, entry),
        ('SIOCSIFADDR', 0x8916, interface(b'tap0', internet('10.9.0.2'))),
        ('SIOCSIFNETMASK', 0x891c, interface(b'tap0', internet('255.0.0.0'))),
        ('SIOCSIFFLAGS', 0x8914, interface(b'lo', b'')),
        ('SIOCSIFHWADDR', 0x8924, interface(b'tap0', struct.pack('H6s', 1, b'\2\2\2\2\2\2'))),
        ('SIOCSIFMTU', 0x8922, interface(b'tap0', struct.pack('i', 100))),
        ('SIOCSARP', 0x8955, arp + b'tap0'.ljust(16, b'\0')),
    ]:
        attempt(prefix + name, lambda: fcntl.ioctl(s, request, argument))
    attempt(prefix + 'tun', lambda: os.open('/dev/net/tun', os.O_RDWR))
    attempt(prefix + 'iptables', lambda: s.getsockopt(socket.IPPROTO_IP, 64, 84))
    for setting in ['ip_forward', 'conf/all/route_localnet', 'conf/tap0/rp_filter', 'conf/all/arp_accept', 'ping_group_range']:
        attempt(prefix + setting, lambda: open('/proc/sys/net/ipv4/' + setting, 'w').write('1'))
    for kind, protocol in [(socket.SOCK_RAW, 1), (socket.SOCK_RAW, 255), (socket.SOCK_RAW, 17)]:
        attempt('%sraw socket %d' % (prefix, protocol), lambda: socket.socket(socket.AF_INET, kind, protocol))
    for kind in [socket.SOCK_RAW, socket.SOCK_DGRAM]:
        attempt('%spacket socket %d' % (prefix, kind), lambda: socket.socket(socket.AF_PACKET, kind, 768))
    # Families that reach a host or a network by other means: X.25, vsock, XDP, Bluetooth, TIPC and more.
    known = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET)
    for family in range(1, 46):
        if family not in known:
            for kind in [1, 2, 3, 5]:
                attempt('%ssocket family %d kind %d' % (prefix, family, kind), lambda: socket.socket(family, kind))


everything('')


def in_a_namespace():
    become_root_of_a_namespace(NEWNS)
    everything('in a user namespace: ')


in_child(in_a_namespace)
