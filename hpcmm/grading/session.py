"""The process of a kernel: it runs while this one's clock runs, and is stopped at all other times."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import psutil

from hpcmm import surroundings
from hpcmm.model import HpcmmError

NATIVE = Path(__file__).with_name("native.py")
STOP_SECONDS = 10.0
MOST_REPLY = 1 << 16  # bytes
PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 3, 4, 36
NOT_ALONE = "starts or reaches another process"


class Refused(Exception):
    """A submission that is wrong; the message says why."""


class Reply(NamedTuple):
    """The answer to a request: its content, and the seconds until it came."""

    content: Any
    seconds: float


class Session:
    """A process with shared memory that answers requests.

    It is stopped between requests. A kernel that leaves a thread behind gains nothing: only the contents of the shared
    memory when the reply arrives count, and the next inputs are written while the process is stopped.

    Parameters
    ----------
    program : sequence of str
        The program; it gets its descriptors and ``setup`` as one more argument.
    size : int
        Bytes of shared memory.
    setup : mapping
    seconds : float
        Time limit of the process, from its start to its end, while it runs.
    environment : mapping of str to str
    """

    GROUP: ClassVar[dict[str, Any]] = {"process_group": 0}  # signals reach all of the group

    def __init__(
        self,
        program: Sequence[str],
        size: int,
        setup: Mapping[str, Any],
        seconds: float,
        environment: Mapping[str, str],
    ):
        self.left = self.limit = seconds
        file = os.memfd_create("hpcmm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # memory that is gone would end this process
        self.memory = np.frombuffer(mmap.mmap(file, size), np.uint8)
        theirs, self.requests = os.pipe()
        self.replies, replies = os.pipe()
        given = {**setup, "requests": theirs, "replies": replies, "memory": file, "bytes": size}
        self.folder = tempfile.TemporaryDirectory(prefix="hpcmm-")
        self.process = subprocess.Popen(
            [*program, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs, replies, file),
            env=dict(environment),
            cwd=self.folder.name,
            **self.GROUP,
        )
        for each in (theirs, replies, file):
            os.close(each)
        try:
            if error := self._reply().content:
                raise Refused(error)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Any) -> Reply:
        """Let the process go on until it replied to a request.

        Raises
        ------
        Refused
            If it ends, exceeds its time limit, or replies with anything but one line of JSON.
        """
        with contextlib.suppress(BrokenPipeError):  # the missing reply shows it
            os.write(self.requests, json.dumps(request).encode() + b"\n")  # fits into the pipe, so it waits there
        begin = time.perf_counter()
        os.killpg(self.process.pid, signal.SIGCONT)
        return self._reply(begin)

    def _reply(self, begin: float | None = None) -> Reply:
        begin = time.perf_counter() if begin is None else begin
        text = b""
        while not text.endswith(b"\n"):
            left = begin + self.left - time.perf_counter()
            if left <= 0 or not select.select([self.replies], [], [], left)[0]:
                raise Refused(f"took longer than {self.limit:g} s")
            part = os.read(self.replies, MOST_REPLY)
            text += part
            if not part or len(text) > MOST_REPLY:
                break
        end = time.perf_counter()
        self.left -= end - begin
        self._stop()
        if select.select([self.replies], [], [], 0)[0] or text.count(b"\n") != 1:
            raise Refused("wrote to the pipe of the grader")
        try:
            return Reply(json.loads(text), end - begin)
        except ValueError:
            raise Refused("wrote to the pipe of the grader") from None

    def _stop(self) -> None:
        """Stop the process; raise an error if it ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGSTOP)
        until = time.perf_counter() + STOP_SECONDS
        options = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        while not (state := os.waitid(os.P_PID, self.process.pid, options)):
            if time.perf_counter() > until:
                raise Refused("cannot be stopped")
            time.sleep(1e-4)
        if state.si_code == os.CLD_STOPPED:
            return
        if state.si_status == signal.SIGSYS:
            raise Refused(NOT_ALONE)
        how = (
            f"exit status {state.si_status}"
            if state.si_code == os.CLD_EXITED
            else f"signal {signal.Signals(state.si_status).name}"
        )
        raise Refused(f"the process ended before the kernel returned: {how}")

    def _end(self) -> None:
        """End the process and all of its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self._end()
        for each in (self.requests, self.replies):
            os.close(each)
        self.folder.cleanup()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Untrusted(Session):
    """A session whose process may start others, if the system has no filter of its calls.

    The grader adopts each descendant whose parent ends, and thus finds daemons too. The session of Unix distinguishes
    them from a trusted process: a process can create a session, but not enter that of the grader.
    """

    GROUP: ClassVar[dict[str, Any]] = {"start_new_session": True}

    def __init__(self, *arguments):
        self.before = [each.pid for each in psutil.Process().children()]
        adopt_orphans(True)
        super().__init__(*arguments)

    def _stop(self) -> None:
        super()._stop()
        if not filtered() and (self._adopted() or psutil.Process(self.process.pid).children()):
            raise Refused(NOT_ALONE)

    def _adopted(self) -> list[int]:
        """Return the descendants that are children of this process; one that ended stays until this process waits."""
        own = {*self.before, self.process.pid}
        children = (each.pid for each in psutil.Process().children())
        return [each for each in children if each not in own and os.getsid(each) != os.getsid(0)]

    def _end(self) -> None:
        """End the process and all of its descendants: the children of one that ends are adopted."""
        super()._end()
        until = time.perf_counter() + STOP_SECONDS
        while adopted := self._adopted():
            for each in adopted:
                os.kill(each, signal.SIGKILL)
                os.waitpid(each, os.WNOHANG)
            if time.perf_counter() > until:
                raise HpcmmError(f"processes of a submission cannot be ended: {', '.join(map(str, adopted))}")
        adopt_orphans(False)


def adopt_orphans(adopt: bool) -> None:
    """Set whether this process becomes the parent of descendants whose parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


@functools.cache
def filtered() -> bool:
    """Return whether the filter of system calls works here: on machines with a table of them, if Linux has filters."""
    return subprocess.run([sys.executable, "-I", "-S", str(NATIVE)]).returncode == 0


def native(library: Path, symbol: str, size: int, seconds: float, address_space: int, threads: int) -> Session:
    """Start a process that runs a kernel in native code."""
    program = [sys.executable, "-I", "-S", str(NATIVE)]
    setup = {"library": str(library), "symbol": symbol, "address_space": address_space, "filtered": filtered()}
    environment = {"OMP_NUM_THREADS": str(threads), **surroundings.settings("threads")}
    if path := os.environ.get("LD_LIBRARY_PATH"):  # Python and OpenMP may come from there
        environment["LD_LIBRARY_PATH"] = path
    return Untrusted(program, size, setup, seconds, environment)


def trusted(setup: Mapping[str, Any], size: int, seconds: float) -> Session:
    """Start a process that runs code of this package on a device; code for a GPU has no access to it."""
    program = [sys.executable, "-m", "hpcmm.grading.device"]
    return Session(program, size, setup, seconds, surroundings.measuring(os.environ))


@contextlib.contextmanager
def unreadable() -> Iterator[None]:
    """Forbid other processes of this user to read or write the memory of this one, as a debugger does."""
    libc = ctypes.CDLL(None)
    before = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_DUMPABLE, before, 0, 0, 0)
