"""Files that others may have put in place, and the user's cache: a pipe would block for ever, a device has no end."""

import contextlib
import errno
import fcntl
import functools
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def opened(path: str | Path, mode: str = "rb", **how) -> IO:
    """Open a regular file, with the arguments of ``open``; a folder, pipe, socket or device raises OSError."""

    def opener(name: str, flags: int) -> int:
        special = OSError(errno.EINVAL, "a pipe, socket or device, not a file", os.fspath(path))
        folder = IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        try:
            number = os.open(name, flags | os.O_NONBLOCK, 0o666)  # without it, a pipe waits for its other end
        except OSError as error:
            raise {errno.ENXIO: special, errno.EISDIR: folder}.get(error.errno, error) from None
        kind = os.fstat(number).st_mode
        if stat.S_ISREG(kind):
            return number
        os.close(number)
        raise folder if stat.S_ISDIR(kind) else special

    return open(path, mode, opener=opener, **how)


def text_of(path: str | Path, **how) -> str:
    """Return the text of a regular file in UTF-8; ``how`` has arguments of ``open``."""
    with opened(path, "r", **{"encoding": "utf-8"} | how) as file:
        return file.read()


def bytes_of(path: str | Path) -> bytes:
    with opened(path) as file:
        return file.read()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Make a folder, and yield a path in it for a file that replaces ``path`` at once, only if the body succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def lock(file: IO | int, path: str | Path, wait: bool) -> None:
    """Lock an open file for this process and its children; errors name the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        raise OSError(error.errno, f"cannot be locked: {error.strerror}", os.fspath(path)) from error


def user_cache() -> Path:
    """Return the folder in which all programs of the user cache; it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache")  # noqa: PTH111


def cache() -> Path:
    """Return the folder of compiled kernels: the user's cache, or a temporary folder if that is not writable."""
    folder = user_cache() / "hpcmm"
    return folder if usable(folder) else _temporary_cache()


def usable(folder: Path) -> bool:
    """Make a folder; return whether a file can be created in it. Root has every permission, but not in ``/proc``."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    return False


@functools.cache
def _temporary_cache() -> Path:
    return Path(tempfile.mkdtemp(prefix="hpcmm-"))
