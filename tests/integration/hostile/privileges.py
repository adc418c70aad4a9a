# What a process in the sandbox does with mounts, namespaces, other processes and the kernel.
# Argument: a file of a volume that is read-only.
PROTECTED = ['/workspace/.git/config', '/workspace/.git/hooks', '/workspace/.git', '/run/lazaret/bin',
             '/run/lazaret/mailbox/results', '/workspace', '/reference', '/proc', '/']
WRITES = {
    '/workspace/.git/config': ['/workspace/.git/config', '/tmp/m/.git/config', '/tmp/m/workspace/.git/config', '/tmp/m/config'],
    'guest executable': ['/run/lazaret/bin/lazaret-guest', '/tmp/m/bin/lazaret-guest', '/tmp/m/lazaret-guest',
                         '/tmp/m/run/lazaret/bin/lazaret-guest'],
    'volume': [sys.argv[1], '/tmp/m/' + os.path.basename(sys.argv[1]), '/tmp/m' + sys.argv[1]],
}


def writes(prefix):
    for name, paths in WRITES.items():
        for path in paths:
            if os.path.exists(path):
                attempt('%swrite %s by %s' % (prefix, name, path), lambda: open(path, 'ab').write(b'evil\n'))
    for directory in ['/run/lazaret/bin', '/run/lazaret/mailbox/results', os.path.dirname(sys.argv[1])]:
        attempt('%smake a file in %s' % (prefix, directory), lambda: open(directory + '/evil', 'w'))


def mounts(prefix):
    os.makedirs('/tmp/m', exist_ok=True)
    for target in PROTECTED:
        for flags, word in [(0, ''), (1, 'forced '), (2, 'lazy '), (8, 'own ')]:
            attempt('%s%sunmount %s' % (prefix, word, target), lambda: call('umount2', target.encode(), flags))
        attempt('%sremount %s' % (prefix, target), lambda: mount(None, target, None, REMOUNT))
        attempt('%sbind remount %s' % (prefix, target), lambda: mount(None, target, None, REMOUNT | BIND))
    writes(prefix)
    for source in PROTECTED + ['/run/lazaret', '/proc/1/root', '/proc/self/root']:
        for flags, word in [(BIND, 'bind '), (BIND | REC, 'rbind '), (MOVE, 'move ')]:
            name = prefix + word + source
            try:
                mount(source, '/tmp/m', None, flags)
            except OSError as error:
                report(name, errno.errorcode[error.errno])
                continue
            report(name, 'did')
            for below in ['/.git/config', '/.git/hooks', '/.git', '/config', '/hooks', '/workspace/.git/config',
                          '/workspace/.git', '/workspace', '/bin', '/run/lazaret/bin']:
                attempt(name + ', unmount ' + below, lambda: call('umount2', b'/tmp/m' + below.encode(), 2))
            mount_again = lambda: mount(None, '/tmp/m', None, REMOUNT | BIND)
            attempt(name + ', remount', mount_again)
            writes(name + ', ')
            attempt(name + ', hooks', lambda: os.listdir('/tmp/m/.git/hooks'))
            attempt(name + ', end', lambda: call('umount2', b'/tmp/m', 2))
    kinds = [line.split()[-1] for line in open('/proc/filesystems')]
    for kind in dict.fromkeys(kinds + ['9p', 'overlay', 'fuse', 'hostfs', 'ext4', 'debugfs', 'bpf', 'securityfs']):
        data = 'trans=fd,rfdno=0,wfdno=0' if kind in ('9p', 'fuse') else None
        attempt(prefix + 'mount ' + kind, lambda: mount('none', '/tmp/m', kind, 0, data))
        attempt(prefix + 'mounted ' + kind, lambda: sorted(os.listdir('/tmp/m'))[:20])
        attempt(prefix + 'end ' + kind, lambda: call('umount2', b'/tmp/m', 2))
    attempt(prefix + 'pivot', lambda: call('pivot_root', b'/tmp', b'/tmp'))
    attempt(prefix + 'open_tree', lambda: syscall(428, -100, b'/workspace/.git', 0x8001))
    attempt(prefix + 'fsopen', lambda: syscall(430, b'tmpfs', 0))
    attempt(prefix + 'mount_setattr', lambda: syscall(442, -100, b'/workspace/.git/config', 0, b'\0' * 32, 32))


def others(prefix):
    for name, flag in [('mount', NEWNS), ('uts', NEWUTS), ('ipc', NEWIPC), ('pid', NEWPID), ('net', NEWNET)]:
        in_child(lambda: attempt('%snew %s namespace' % (prefix, name), lambda: call('unshare', flag)))
    for pid in ['1', 'self']:
        for kind in ['mnt', 'user', 'pid', 'net', 'uts', 'ipc', 'cgroup']:
            def enter():
                call('setns', os.open('/proc/%s/ns/%s' % (pid, kind), os.O_RDONLY), 0)
            if pid == '1':
                in_child(lambda: attempt('%senter %s of init' % (prefix, kind), enter))
    buffer = ctypes.create_string_buffer(64)
    refused = {
        'trace init': lambda: call('ptrace', 16, 1, 0, 0),
        'seize init': lambda: call('ptrace', 0x4206, 1, 0, 0),
        'read memory of init': lambda: syscall(310, 1, buffer, 1, buffer, 1, 0),
        'open memory of init': lambda: open('/proc/1/mem', 'r+b'),
        'descriptors of init': lambda: syscall(438, syscall(434, 1, 0), 0, 0),
        'host name': lambda: socket.sethostname('evil'),
        'clock': lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        'reboot': lambda: call('reboot', 0x1234567),
        'swapon': lambda: call('swapon', b'/tmp/b', 0),
        'init_module': lambda: syscall(175, 0, 0, b''),
        'bpf': lambda: syscall(321, 0, 0, 0),
        'perf_event_open': lambda: syscall(298, b'\0' * 128, 0, -1, -1, 0),
        'iopl': lambda: syscall(172, 3),
        'ioperm': lambda: syscall(173, 0, 8, 1),
        'kexec_load': lambda: syscall(246, 0, 0, 0, 0),
        'io_uring_setup': lambda: syscall(425, 8, buffer),
        'userfaultfd': lambda: syscall(323, 0),
        'acct': lambda: call('acct', b'/tmp/a'),
        'quotactl': lambda: syscall(179, 0, b'/', 0, 0),
        'file handle': lambda: syscall(303, -100, b'/workspace', buffer, ctypes.byref(ctypes.c_int()), 0),
        'open by handle': lambda: syscall(304, -100, buffer, 0),
    }
    for name, action in refused.items():
        attempt(prefix + name, action)
    for name, mode, device in [('disk', 0o60600, (8, 0)), ('memory', 0o20600, (1, 1)), ('kvm', 0o20600, (10, 232)), ('fuse', 0o20600, (10, 229))]:
        path = '/tmp/%s%d' % (name, len(prefix))
        attempt(prefix + 'node ' + name, lambda: os.mknod(path, mode, os.makedev(*device)))
        attempt(prefix + 'open node ' + name, lambda: os.open(path, os.O_RDWR))


def status():
    wanted = ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'Uid', 'Groups')
    lines = [line.split(':') for line in open('/proc/self/status')]
    return {name: value.split() for name, value in lines if name in wanted}


print(json.dumps(['status', json.dumps(status())]), flush=True)
in_child(lambda: (mounts(''), others('')))


def in_a_namespace():
    become_root_of_a_namespace(NEWNS)
    mounts('in a user namespace: ')
    others('in a user namespace: ')


in_child(in_a_namespace)
