"""Run a command as soon as no other measurement runs on this machine: ``python -m hpcmm.cluster.alone COMMAND...``

There are two locks. The command inherits both open files, so the locks last as long as any of its processes:

- a file in a folder that only this user can write to. Nobody else can hold it, replace it or make it a link.
- an abstract Unix socket, which all users of the machine share. If another user holds it, this process waits, but
  not longer than ``SECONDS_FOR_OTHERS``: the holder may not be a measurement.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcmm.system import files

LOCK = "hpcmm.lock"
NAME = "\0hpcmm measures"  # of the socket; a leading NUL means that it has no file
SECONDS_FOR_OTHERS = 3600
SECONDS_BETWEEN_TRIES = 0.5


class FolderError(Exception):
    """No folder exists that only this user can write to."""


def main(command: Sequence[str]) -> int:
    """Wait for other measurements, then become the command."""
    try:
        folder = own_folder()
        wait_for_own(own_file(folder), folder / LOCK)
        wait_for_others()
        with naming(command[0]):
            os.execvp(command[0], command)
    except FolderError as error:
        print(f"hpcmm: error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"hpcmm: error: {error.filename}: {error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Name what an OSError is about, where Python does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or name
        raise


def own_folder() -> Path:
    """Return XDG_RUNTIME_DIR, or a folder of this user in the temporary folder.

    Raises
    ------
    FolderError
        If another user owns it or may write to it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and not why_not_own(Path(runtime)):
        return Path(runtime)
    folder = Path(tempfile.gettempdir(), f"hpcmm-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if reason := why_not_own(folder):
        raise FolderError(
            f"{folder}: {reason}; remove it, or set TMPDIR to a folder on this machine that only you can write to"
        )
    return folder


def why_not_own(folder: Path) -> str:
    """Return why a folder does not belong to this user alone; empty if it does."""
    try:
        status = folder.lstat()
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISDIR(status.st_mode):
        return "not a folder"
    if status.st_uid != os.getuid():
        return f"belongs to {user(status.st_uid)}"
    return "others may write to it" if status.st_mode & 0o022 else ""


def own_file(folder: Path) -> int:
    """Open the lock file; return its descriptor."""
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
        raise FolderError(f"{folder / LOCK}: not a file of this user; remove it")
    os.set_inheritable(file, True)
    return file


def wait_for_own(file: int, path: Path) -> None:
    """Take the lock of this user, and write this process's PID into it."""
    reported = ""
    while True:
        try:
            files.lock(file, path, wait=False)
            break
        except BlockingIOError:
            if holder := os.pread(file, 20, 0).decode(errors="replace"):  # it may not have written it yet
                reported = report(f"PID {holder}", reported)
            time.sleep(SECONDS_BETWEEN_TRIES)
    with contextlib.suppress(OSError):  # of a full disk
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)


def wait_for_others() -> None:
    """Take the lock of the machine; give up on another user's lock after ``SECONDS_FOR_OTHERS``."""
    end = time.monotonic() + SECONDS_FOR_OTHERS
    lock = socket.socket(socket.AF_UNIX)
    reported = ""
    while True:
        try:
            with naming("the lock of this machine, a Unix socket"):
                lock.bind(NAME)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        with socket.socket(socket.AF_UNIX) as connection:
            owner, holder = identify_holder(connection)
            left = None if owner == os.getuid() else end - time.monotonic()
            if left is not None and left <= 0:
                print(
                    f"hpcmm: warning: waited {SECONDS_FOR_OTHERS} s for {holder}; measuring at the same time",
                    file=sys.stderr,
                )
                return
            reported = report(holder, reported)
            connection.settimeout(left)
            try:
                connection.recv(1)  # returns when the holder's socket is closed
            except OSError:
                time.sleep(SECONDS_BETWEEN_TRIES)
    lock.listen(128)
    lock.set_inheritable(True)
    lock.detach()


def identify_holder(connection: socket.socket) -> tuple[int, str]:
    """Connect to the socket that is the lock; return its user id, -1 if unknown, and a description of its process."""
    connection.settimeout(SECONDS_BETWEEN_TRIES)
    try:
        connection.connect(NAME)
    except OSError:  # the socket does not listen, or its queue is full
        return -1, "an unknown process"
    process, owner, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return owner, f"PID {process}" + (f" of {user(owner)}" if owner != os.getuid() else "")


def report(holder: str, reported: str) -> str:
    """Print which process this one waits for, unless already reported; return it."""
    if holder != reported:
        print(f"hpcmm: waiting for the measurement of {holder}", file=sys.stderr, flush=True)
    return holder


def user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
