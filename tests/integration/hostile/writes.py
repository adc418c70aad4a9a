# Root of the sandbox writes to every directory and file that the image brought.
done = refused = 0
for base, directories, files in os.walk('/'):
    if base == '/':
        directories[:] = [d for d in directories if d not in ('proc', 'sys', 'dev', 'workspace', 'run', 'tmp')]
    if base.startswith(('/usr/lib/python3', '/usr/share')):
        continue
    for name in files:
        path = os.path.join(base, name)
        if os.path.islink(path) or done + refused > 1500:
            continue
        try:
            with open(path, 'ab') as file:
                file.write(b'evil')
            done += 1
        except OSError:
            refused += 1
    try:
        with open(base + '/evil', 'w') as file:
            file.write('evil')
        done += 1
    except OSError:
        refused += 1
report('done', done)
report('refused', refused)
attempt('chmod', lambda: os.chmod('/etc/passwd', 0o777))
attempt('chown', lambda: os.chown('/usr/bin/env', 1, 1))
attempt('setuid', lambda: os.chmod('/usr/bin/env', 0o4755))
attempt('rename', lambda: os.rename('/etc', '/etc.old'))
attempt('rename back', lambda: os.rename('/etc.old', '/etc'))
attempt('unlink', lambda: os.unlink('/etc/passwd'))
attempt('link', lambda: os.link('/usr/bin/env', '/usr/bin/env2'))
attempt('write link', lambda: open('/usr/bin/env2', 'r+b').write(b'evil'))
attempt('remove tree', lambda: subprocess.run(['rm', '-rf', '/var/lib', '/home', '/opt', '/srv'], capture_output=True).returncode)
