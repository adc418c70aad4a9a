# What every hostile script begins with: attempts, each reported by one line of what became of it.
import ctypes, errno, fcntl, json, mmap, os, select, signal, socket, stat, struct, subprocess, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, action):
    """Tries something; reports the error's name, or 'did' with what came of it."""
    try:
        outcome = 'did ' + repr(action())
    except OSError as error:
        outcome = errno.errorcode.get(error.errno, repr(error))
    except BaseException as error:
        outcome = 'raised ' + repr(error)
    report(name, outcome)


def report(name, outcome):
    # One write, so that lines of several processes do not mix.
    os.write(1, (json.dumps([name, outcome]) + '\n').encode())


def in_child(action):
    """Does something in a process of its own, whose namespaces, root and ends are its own."""
    pid = os.fork()
    if not pid:
        try:
            action()
        except BaseException as error:
            report('child', 'raised ' + repr(error))
        os._exit(0)
    os.waitpid(pid, 0)


def call(function, *arguments):
    """Calls a function of the C library and raises what it left in errno."""
    result = getattr(libc, function)(*arguments)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def syscall(number, *arguments):
    return call('syscall', ctypes.c_long(number), *arguments)


def mount(source, target, kind, flags, data=None):
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    return call('mount', encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])


NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, REMOUNT, BIND, MOVE, REC = 1, 32, 4096, 8192, 16384


def become_root_of_a_namespace(more=0):
    """Makes a user namespace, in which this process has every capability."""
    uid, gid = os.getuid(), os.getgid()
    call('unshare', NEWUSER | more)
    for file, text in [('setgroups', 'deny'), ('uid_map', '0 %d 1' % uid), ('gid_map', '0 %d 1' % gid)]:
        try:
            with open('/proc/self/' + file, 'w') as opened:
                opened.write(text)
        except OSError:
            pass
