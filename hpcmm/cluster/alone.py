"""Run a command as soon as no other measurement runs on this machine: ``python -m hpcmm.cluster.alone COMMAND...``

There are two locks, one of this user and one of the machine. Each is the name of an abstract Unix socket, so there is
no file that anybody could replace. The command inherits the sockets: the locks last as long as any of its processes.
Another user may hold a lock without a measurement. This process then waits for the lock of the machine, but not longer
than ``SECONDS_FOR_OTHERS``.
"""

import contextlib
import errno
import os
import pwd
import socket
import struct
import sys
import time
from collections.abc import Sequence

NAME = "\0hpcmm measures"  # of the machine's lock; a leading NUL means that it has no file
SECONDS_FOR_OTHERS = 3600
SECONDS_BETWEEN_TRIES = 0.5


def main(command: Sequence[str]) -> int:
    what = "the lock of this machine, a Unix socket"
    try:
        wait_for(f"{NAME} as user {os.getuid()}", 0)
        wait_for(NAME, SECONDS_FOR_OTHERS)
        what = command[0]
        os.execvp(command[0], command)
    except OSError as error:
        print(f"hpcmm: error: {error.filename or what}: {error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def wait_for(name: str, seconds_for_others: float) -> None:
    """Take a lock; give up on another user's after some seconds."""
    end = time.monotonic() + seconds_for_others
    lock = socket.socket(socket.AF_UNIX)
    reported = ""
    while True:
        try:
            lock.bind(name)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        with socket.socket(socket.AF_UNIX) as connection:
            owner, holder = identify_holder(connection, name)
            left = None if owner == os.getuid() else end - time.monotonic()
            if left is not None and left <= 0:
                if seconds_for_others:
                    about = f"waited {seconds_for_others} s for {holder}; measuring at the same time"
                    print(f"hpcmm: warning: {about}", file=sys.stderr)
                return
            if holder != reported:
                print(f"hpcmm: waiting for the measurement of {holder}", file=sys.stderr, flush=True)
                reported = holder
            connection.settimeout(left)
            try:
                connection.recv(1)  # returns when the holder's socket is closed
            except OSError:
                time.sleep(SECONDS_BETWEEN_TRIES)
    lock.listen(128)
    lock.set_inheritable(True)
    lock.detach()


def identify_holder(connection: socket.socket, name: str) -> tuple[int, str]:
    """Connect to the socket that is the lock; return its user id, -1 if unknown, and a description of its process."""
    connection.settimeout(SECONDS_BETWEEN_TRIES)
    try:
        connection.connect(name)
    except OSError:  # the socket does not listen, or its queue is full
        return -1, "an unknown process"
    process, owner, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    user = f"user {owner}"
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(owner).pw_name
    return owner, f"PID {process}" + (f" of {user}" if owner != os.getuid() else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
