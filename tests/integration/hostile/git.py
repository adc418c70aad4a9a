# Attempts to get configuration or a hook to where the host's Git obeys it.
GIT = '/workspace/.git'
CONFIG, HOOKS = GIT + '/config', GIT + '/hooks'
EVIL = '[core]\n\tfsmonitor = touch /workspace/pwned; false\n\thooksPath = /workspace/evil-hooks\n'
os.makedirs('/workspace/evil-hooks', exist_ok=True)
for directory in ['/workspace/evil-hooks', HOOKS]:
    for hook in ['pre-commit', 'post-checkout', 'post-index-change', 'fsmonitor-watchman', 'reference-transaction']:
        with open(directory + '/' + hook, 'w') as file:
            file.write('#!/bin/sh\ntouch "$(git rev-parse --show-toplevel)/pwned"\n')
        os.chmod(directory + '/' + hook, 0o755)
with open('/workspace/evil-config', 'w') as file:
    file.write(EVIL)


def written(path, mode):
    with open(path, mode) as file:
        file.write(EVIL)


def through_a_mapping():
    fd = os.open(CONFIG, os.O_RDWR)
    mmap.mmap(fd, 0).write(EVIL.encode())


def through_a_reopened_descriptor():
    fd = os.open(CONFIG, os.O_RDONLY)
    written('/proc/self/fd/%d' % fd, 'a')


def swapped(first, second, flags):
    return syscall(316, -100, first.encode(), -100, second.encode(), flags)


for mode in ['a', 'w', 'r+', 'x']:
    attempt('open ' + mode, lambda: written(CONFIG, mode))
attempt('mapping', through_a_mapping)
attempt('descriptor', through_a_reopened_descriptor)
attempt('truncate', lambda: os.truncate(CONFIG, 0))
attempt('fallocate', lambda: os.posix_fallocate(os.open(CONFIG, os.O_RDWR), 0, 10))
attempt('chmod', lambda: os.chmod(CONFIG, 0o666))
attempt('chown', lambda: os.chown(CONFIG, 0, 0))
attempt('utime', lambda: os.utime(CONFIG))
attempt('xattr', lambda: os.setxattr(CONFIG, 'user.evil', b'x'))
attempt('unlink', lambda: os.unlink(CONFIG))
attempt('rename over', lambda: os.rename('/workspace/evil-config', CONFIG))
attempt('rename away', lambda: os.rename(CONFIG, GIT + '/config.old'))
attempt('rename out', lambda: os.rename(CONFIG, '/workspace/config.old'))
for flags, word in [(2, 'exchange'), (4, 'whiteout')]:
    attempt(word, lambda: swapped('/workspace/evil-config', CONFIG, flags))
    attempt(word + ' git', lambda: swapped('/workspace/evil-hooks', GIT, flags))
    attempt(word + ' hooks', lambda: swapped('/workspace/evil-hooks', HOOKS, flags))
attempt('link away', lambda: os.link(CONFIG, '/workspace/linked'))
attempt('link within', lambda: os.link(CONFIG, GIT + '/linked'))
attempt('link over', lambda: os.link('/workspace/evil-config', CONFIG))
attempt('symlink over', lambda: os.symlink('/workspace/evil-config', CONFIG))
for path in ['/workspace/linked', GIT + '/linked']:
    attempt('write ' + path, lambda: written(path, 'r+'))
attempt('git config', lambda: subprocess.run(['git', '-C', '/workspace', 'config', 'core.hooksPath', '/workspace/evil-hooks'],
                                             check=True, capture_output=True))
attempt('git config file', lambda: subprocess.run(['git', 'config', '--file', CONFIG, 'core.evil', 'x'],
                                                  check=True, capture_output=True))
attempt('git remote', lambda: subprocess.run(['git', '-C', '/workspace', 'remote', 'add', 'evil', '/x'], check=True,
                                             capture_output=True))
attempt('remove hooks', lambda: os.rmdir(HOOKS))
attempt('rename hooks', lambda: os.rename(HOOKS, GIT + '/hooks.old'))
attempt('hooks over', lambda: os.rename('/workspace/evil-hooks', HOOKS))
attempt('symlink hooks', lambda: os.symlink('/workspace/evil-hooks', HOOKS))
attempt('rename git', lambda: os.rename(GIT, '/workspace/.git.old'))
attempt('mv git', lambda: subprocess.run(['mv', GIT, '/workspace/git2'], check=True, capture_output=True))
attempt('remove git', lambda: os.rmdir(GIT))
attempt('symlink git', lambda: os.symlink('/workspace/evil-hooks', GIT))
attempt('rename workspace', lambda: os.rename('/workspace', '/workspace2'))
attempt('init again', lambda: subprocess.run(['git', 'init', '--template=/workspace/evil-hooks', '/workspace'], check=True,
                                             capture_output=True))
# The same by names that lead there in another way.
os.chdir(GIT)
for path in ['config', '../.git/config', '/workspace/src/../.git/config', '/proc/self/cwd/config', '/workspace//.git/./config']:
    attempt('by ' + path, lambda: written(path, 'a'))
fd = os.open('/workspace', os.O_RDONLY | os.O_DIRECTORY)
attempt('by descriptor', lambda: os.open('.git/config', os.O_WRONLY, dir_fd=fd))
attempt('rename by descriptor', lambda: os.rename('.git', 'git3', src_dir_fd=fd, dst_dir_fd=fd))
os.symlink('.git/config', '/workspace/alias')
attempt('by a link', lambda: written('/workspace/alias', 'a'))
# A case of its own is another file here; it must not become the host's.
for name in ['.GIT', '.Git', 'git~1', '.git ']:
    os.makedirs('/workspace/%s/hooks' % name, exist_ok=True)
    written('/workspace/%s/config' % name, 'w')
attempt('config seen', lambda: 'evil' in open(CONFIG).read())
attempt('hooks seen', lambda: sorted(os.listdir(HOOKS)))


def racing():
    """Renames what is not protected in and out while the protected names are opened."""
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        for action in [lambda: os.rename('/workspace/src', '/workspace/src2'), lambda: os.rename('/workspace/src2', '/workspace/src'),
                       lambda: os.unlink('/workspace/race'), lambda: os.symlink('/workspace/.git', '/workspace/race'),
                       lambda: written('/workspace/race/config', 'a'), lambda: os.rename('/workspace/race', GIT + '/race')]:
            try:
                action()
            except OSError:
                pass


attempt('race', racing)
