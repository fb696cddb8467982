"""The process of a kernel: it runs while this one's clock runs, and is stopped at all other times."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from hpcmm.backends.emulated import passing
from hpcmm.grading import sandbox
from hpcmm.grading.sandbox import Sandbox
from hpcmm.system import surroundings

PASSING = passing.__file__  # of a kernel in the emulation
STOP_SECONDS = 5.0
LOOK_SECONDS = 0.02  # between two looks at the number of threads
MOST_REPLY = 1 << 16  # bytes
MOST_THREADS = 1024
STOPPED_CPU_SECONDS = 1e-3  # at each stop; a virtual machine also counts some time until all threads have stopped


class Refused(Exception):
    """A submission that is wrong; the message says why."""


class Reply(NamedTuple):
    content: str
    seconds: float


class Session:
    """A process with shared memory of ``size`` bytes that answers requests, and is stopped between them.

    Its CPU clock shows whether all of its threads stopped; CPU time between its reply and its stop is added to the time
    of the reply, and what is counted while it is stopped to that of the next one. At each stop it may use
    ``stopped_cpu_seconds``; ``math.inf`` if all of its code is trusted.

    ``start`` is its command, its environment, and the number of processes of bubblewrap around it. The program gets its
    descriptors and ``setup`` as one more argument. Its time limit counts while it runs.
    """

    def __init__(self, start: tuple, size: int, setup: Mapping[str, Any], seconds: float, stopped_cpu_seconds: float):
        self.left = self.limit = seconds
        command, environment, self.levels = start
        self.stopped_cpu_seconds = stopped_cpu_seconds
        file = os.memfd_create("hpcmm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, size)
        # memory that is gone would end this process
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.memory = np.frombuffer(mmap.mmap(file, size), np.uint8)
        theirs, self.requests = os.pipe()
        self.replies, replies = os.pipe()
        given = {**setup, "requests": theirs, "replies": replies, "memory": file, "bytes": size}
        quiet, passed = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL), (theirs, replies, file)
        self.started = subprocess.Popen([*command, json.dumps(given)], pass_fds=passed, env=environment, **quiet)
        self.process: psutil.Process | None = None  # known from its first reply on
        self.stopped_at = 0.0  # its CPU clock
        for each in passed:
            os.close(each)
        try:
            if error := self._reply(time.perf_counter()).content:
                raise Refused(error)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Any) -> Reply:
        """Let the process run to its reply; refuse its end, a late or wrong reply, and CPU time while stopped."""
        unclocked = self.check_clock()
        with contextlib.suppress(BrokenPipeError):  # the missing reply shows it
            os.write(self.requests, json.dumps(request).encode() + b"\n")  # fits into the pipe, so it waits there
        begin = time.perf_counter()
        self._signal(signal.SIGCONT)
        reply = self._reply(begin)
        return reply if math.isinf(self.stopped_cpu_seconds) else reply._replace(seconds=reply.seconds + unclocked)

    def check_clock(self, seconds: float = 0.0) -> float:
        """Return the CPU time since the stop, after some seconds; refuse more than the process may use."""
        time.sleep(seconds)
        now = self._cpu_seconds()
        unclocked, self.stopped_at = max(0.0, now - self.stopped_at), now
        if unclocked > self.stopped_cpu_seconds:
            raise Refused(f"computed for {unclocked:.3g} s of CPU time while its clock was stopped")
        return unclocked

    def _reply(self, begin: float) -> Reply:
        text = b""
        while not text.endswith(b"\n"):
            left = begin + self.left - time.perf_counter()
            if left <= 0:
                raise Refused(f"took longer than {self.limit:g} s")
            if not select.select([self.replies], [], [], min(left, LOOK_SECONDS))[0]:
                with contextlib.suppress(psutil.Error):
                    if (process := self._find()) and process.num_threads() > MOST_THREADS:
                        raise Refused(f"starts more than {MOST_THREADS} threads")
                continue
            part = os.read(self.replies, MOST_REPLY)
            text += part
            if not part or len(text) > MOST_REPLY:
                break
        seconds = time.perf_counter() - begin
        self.left -= seconds
        self.process = self._find()
        replied_at = self._cpu_seconds()
        self._stop()
        self.stopped_at = self._cpu_seconds()
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, str) or select.select([self.replies], [], [], 0)[0]:
            raise Refused("wrote to the pipe of the grader")
        return Reply(content, seconds + self.stopped_at - replied_at)

    def _find(self) -> psutil.Process | None:
        if self.process:
            return self.process
        with contextlib.suppress(psutil.Error, IndexError):
            process = psutil.Process(self.started.pid)
            for _ in range(self.levels):
                process = process.children()[0]
            return process
        return None

    def _cpu_seconds(self) -> float:
        """Return the CPU time of all threads of the process, also of those that ended; 0 if it is gone."""
        process = self._find()
        with contextlib.suppress(OSError):
            return (
                time.clock_gettime(~process.pid << 3 | 2) if process else 0.0
            )  # CPUCLOCK_SCHED, see clock_getcpuclockid
        return 0.0

    def _signal(self, number: int) -> None:
        if process := self._find():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def _states(self) -> set[str]:
        """Return the states of all threads of the process; empty if it is gone."""
        process, found = self._find(), set()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{process.pid}/task").iterdir() if process else ():
                with contextlib.suppress(OSError):
                    found.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
        return found

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)
        until = time.perf_counter() + STOP_SECONDS
        while (states := self._states()) != {"T"}:
            if not states - {"Z", "X"}:
                self._ended(until)
            if time.perf_counter() > until:
                raise Refused("cannot be stopped: its CPU clock runs on")
            time.sleep(5e-5)

    def _ended(self, until: float) -> None:
        """Raise an error with the exit status of a process that ended."""
        try:
            status = self.started.wait(max(0.0, until - time.perf_counter()))
        except subprocess.TimeoutExpired:
            return
        number = -status if status < 0 else status - 128  # bubblewrap's status for a signal
        if number == signal.SIGSYS:
            raise Refused("starts or reaches another process")
        signalled = number in [*signal.Signals]
        how = f"signal {signal.Signals(number).name}" if signalled else f"exit status {status}"
        raise Refused(f"the process ended before the kernel returned: {how}")

    def close(self) -> None:
        """End the process, and with it all of its namespace."""
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.started.wait(STOP_SECONDS if self.process else 0)  # bubblewrap ends when its namespace is empty
        self.started.kill()
        self.started.wait()
        for each in (self.requests, self.replies):
            os.close(each)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def native(
    isolation: Sandbox, library: Path, helpers: Mapping[str, Any], size: int, limits: tuple[float, int], threads: int
) -> Session:
    """Start a process for a kernel; ``helpers`` are entries of ``native.py``, ``limits`` seconds and bytes."""
    python = library.suffix == ".py"
    packages = str(Path(np.__file__).parents[1]) if python else ""
    seconds, space = limits
    setup = {"library": str(library), "runtime": "", "packages": packages, "passing": PASSING, **helpers}
    files = [helpers[name] for name in ("runtime", "harness") if helpers.get(name)]
    modules = () if python else tuple(files) or (sandbox.plain_module(),)
    program = isolation.wrap(
        [sandbox.PYTHON, "-I", "-S", str(sandbox.NATIVE)],
        [*sandbox.of_native(packages, modules), library, PASSING, *files],
        hidden=sandbox.packages(),
    )
    environment = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    environment |= surroundings.settings("threads")
    if path := os.environ.get("LD_LIBRARY_PATH"):  # Python and OpenMP may come from there
        environment["LD_LIBRARY_PATH"] = path
    start = program, environment, isolation.levels
    return Session(start, size, {**setup, "address_space": space}, seconds, STOPPED_CPU_SECONDS)


def device(isolation: Sandbox, setup: Mapping[str, Any], size: int, seconds: float) -> Session:
    """Start a process of this package, which runs no submitted code on its CPU: CUDA may go on after replies."""
    read = sandbox.of_package()
    if "file" in setup:
        read = (*read, Path(setup["file"]).parent)
    program = isolation.wrap([sys.executable, "-P", "-m", "hpcmm.grading.device"], read, scratch="/tmp", whole=True)
    return Session((program, isolation.environment(), isolation.levels), size, setup, seconds, math.inf)
