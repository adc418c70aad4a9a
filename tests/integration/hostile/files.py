# What of the host can be seen. Arguments: text that only files of the host hold, then names and
# paths that only the host has.
mark, foreign = sys.argv[1].encode(), sys.argv[2:]
names = {name for name in foreign if '/' not in name}
seen, hits = 0, []
for base, directories, files in os.walk('/'):
    if base == '/':
        directories[:] = [d for d in directories if d not in ('proc', 'sys', 'usr')]
    for name in directories + files:
        seen += 1
        if name in names:
            hits.append(os.path.join(base, name))
    for name in files:
        path = os.path.join(base, name)
        try:
            if stat.S_ISREG(os.lstat(path).st_mode) and os.lstat(path).st_size < 1 << 20:
                if mark in open(path, 'rb').read():
                    hits.append(path)
        except OSError:
            pass
report('seen', seen)
report('hits', hits)
for path in foreign:
    if '/' in path:
        attempt('path ' + path, lambda: os.stat(path))
roots = []
for pid in ['self', 'thread-self', '1'] + [p for p in os.listdir('/proc') if p.isdigit()]:
    for link in ['root', 'cwd']:
        try:
            inside = '/proc/%s/%s' % (pid, link)
            target = os.readlink(inside)
            if os.stat(inside).st_ino != os.stat(target).st_ino or not target.startswith('/'):
                roots.append([inside, target])
            os.chdir(inside)
            for step in range(20):
                os.chdir('..')
            if os.stat('.').st_ino != os.stat('/').st_ino:
                roots.append([inside, 'up'])
        except OSError:
            pass
report('roots', roots)
report('mounts', open('/proc/self/mountinfo').read() + open('/proc/mounts').read())
report('processes', sorted((p, open('/proc/%s/cmdline' % p).read()) for p in os.listdir('/proc') if p.isdigit()))
report('environment', dict(os.environ))
report('environment of init', open('/proc/1/environ').read() if os.access('/proc/1/environ', os.R_OK) else '')
report('devices', sorted(os.listdir('/dev')))


def out_of_a_root():
    """The way out of chroot(2) by a descriptor of a directory outside."""
    os.makedirs('/tmp/cell', exist_ok=True)
    fd = os.open('/', os.O_RDONLY)
    os.chroot('/tmp/cell')
    os.fchdir(fd)
    for step in range(50):
        os.chdir('..')
    os.chroot('.')
    return sorted(os.listdir('/'))


attempt('listing', lambda: sorted(os.listdir('/')))
in_child(lambda: attempt('out of a root', out_of_a_root))
for path in ['/proc/kcore', '/proc/kmsg', '/proc/kallsyms', '/proc/sys/kernel/core_pattern', '/sys/kernel/uevent_helper', '/sys/kernel/debug',
             '/sys/firmware', '/proc/config.gz', '/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/sda', '/dev/vda', '/proc/1/map_files', '/proc/driver']:
    attempt('kernel ' + path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(10))
