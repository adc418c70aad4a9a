# What every hostile script begins with: attempts, each reported by one line of what became of it.
import ctypes, errno, fcntl, json, os, select, signal, socket, stat, struct, subprocess, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, action):
    """Tries something; prints the error's name, or 'did' with what came of it."""
    try:
        outcome = 'did ' + repr(action())
    except OSError as error:
        outcome = errno.errorcode.get(error.errno, repr(error))
    except Exception as error:
        outcome = 'raised ' + repr(error)
    print(json.dumps([name, outcome]), flush=True)


def call(function, *arguments):
    """Calls a function of the C library and raises what it left in errno."""
    result = getattr(libc, function)(*arguments)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
