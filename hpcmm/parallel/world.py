"""The ranks of this job, where they run, and how they end. Importing this module starts MPI."""

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn

from mpi4py import MPI

from hpcmm.model import HpcmmError, untimed
from hpcmm.system import surroundings
from hpcmm.system.text import described

SECONDS_TO_END = 30  # of a process, once MPI has ended or aborts
PATIENCE_SECONDS = 10  # for which a failed rank waits for the others, which may fail as well


class LaunchError(HpcmmError):
    """The ranks were not started as one job."""


def world() -> MPI.Comm:
    comm = MPI.COMM_WORLD
    environment = os.environ
    # These variables are valid only in a task of srun itself, not in an allocation or in a shell within a task.
    started_by_srun = environment.get("SLURM_TASK_PID") == str(os.getpid())
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1") if started_by_srun else "1"
    if comm.size == 1 and tasks.isdecimal() and int(tasks) > 1:
        raise LaunchError(
            f"srun started {tasks} tasks but MPI sees one rank: the launcher does not match the MPI library "
            f"({MPI.Get_library_version().splitlines()[0].partition(',')[0].strip()}); "
            "start it with that library's mpiexec, or srun --mpi=pmi2 or --mpi=pmix"
        )
    return comm


def node() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def local_rank(comm: MPI.Comm, devices: Sequence[str] = ()) -> int:
    """Return the index of this rank among the ranks of its node that see the same devices: 0 if each sees its own."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    seen = node.allgather(tuple(devices))
    rank = seen[: node.rank].count(tuple(devices))
    node.Free()
    return rank


def threads_per_rank(comm: MPI.Comm) -> int:
    """Return the CPU threads that this rank may use.

    The CPUs of its affinity mask, within the CPU quota, are divided among the ranks of the node with the same mask.
    ``OMP_NUM_THREADS`` and ``SLURM_CPUS_PER_TASK`` are upper limits.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mask = frozenset(os.sched_getaffinity(0))
    sharing = node.allgather(mask).count(mask)
    node.Free()
    given = (os.environ.get(name, "").split(",")[0] for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"))
    limits = [int(limit) for limit in given if limit.isdecimal()]
    return max(1, min([surroundings.cpus() // sharing, *limits]))


@untimed
def describe(comm: MPI.Comm) -> dict[str, Any]:
    return {
        "library": MPI.Get_library_version().splitlines()[0].strip("\0 "),
        "standard": ".".join(map(str, MPI.Get_version())),
        "ranks": comm.size,
    }


def describe_error(error: Exception) -> str:
    """Print the traceback of an unexpected error; return its message in one line."""
    if not isinstance(error, HpcmmError):
        traceback.print_exception(error)
        sys.stderr.flush()
        return described(error)
    return " ".join(str(error).split())


def gather_failures(comm: MPI.Comm, failure: tuple[str, bool] | None) -> list[tuple[str, bool] | None]:
    """Wait for all ranks; return the failure of each rank, the message first, or None.

    A failed rank ends the job if the others do not arrive within ``PATIENCE_SECONDS``: they may be blocked in
    communication with it. The communicator has no pending messages of the failed work.
    """
    request = comm.Ibarrier()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not request.Test():
        if failure and time.monotonic() > deadline:
            abort(f"rank {comm.rank}: {failure[0]}")
        time.sleep(1e-3)
    return comm.allgather(failure)


def abort(message: str) -> NoReturn:
    print(f"hpcmm: error: {message}", file=sys.stderr)
    abort_ranks(1)
    raise SystemExit(1)  # for singletons of MPI libraries whose Abort returns


def end_all(kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error and end all ranks, before the interpreter destroys objects that wait for other ranks."""
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, Exception):
        abort_ranks(1)


if MPI.COMM_WORLD.size > 1:
    sys.excepthook = end_all


def abort_ranks(seconds: float) -> None:
    """End all ranks after some seconds: a launcher that ends them may drop output that it has not read yet."""
    sys.stderr.flush()
    time.sleep(seconds)
    must_end()
    MPI.COMM_WORLD.Abort(1)


def must_end() -> None:
    """Let a timer of the C library end this process unless it ends within ``SECONDS_TO_END``.

    The threads of Python do not outlive the interpreter, and libraries may wait for ranks or devices after that.
    """
    signal.alarm(SECONDS_TO_END)


class Watchdog:
    """Ends all ranks if they are stuck, after each has printed its stack.

    They are stuck after ``patience`` seconds beyond the expected time. Every rank has its own watchdog, and all are set
    at the same time. It also covers the end of MPI, where ranks wait for each other, and after it ``must_end`` the rest
    of the process. A rank that waits in a barrier for another one notices by its own clock and reports without MPI. A
    rank that does not report is stopped, or its node is lost.
    """

    GRACE = 3.0  # seconds for the other ranks to report, too

    def __init__(self, comm: MPI.Comm, patience: float):
        self.rank, self.size, self.patience = comm.rank, comm.size, patience
        self._changed = threading.Condition()
        self._step, self._seconds, self._deadline = "", 0.0, float("inf")
        self._overdue: Callable[[float], str] | None = None
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def __enter__(self) -> "Watchdog":
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        """End MPI, unless there was an error, and limit the time of what follows."""
        if kind is None:
            self.expect("the end of MPI", SECONDS_TO_END)
            MPI.COMM_WORLD.Barrier()  # unlike Finalize, it lets the thread report a rank that does not come
            MPI.Finalize()
        with self._changed:
            self._deadline = float("inf")
            self._changed.notify()
        faulthandler.cancel_dump_traceback_later()
        must_end()

    def expect(self, step: str, seconds: float, overdue: Callable[[float], str] | None = None) -> None:
        """Set the next step and the upper bound of its seconds.

        ``overdue`` is called with the seconds when they are over. It returns what runs; empty if unknown.
        """
        seconds += self.patience
        with self._changed:
            self._step, self._seconds, self._deadline = step, seconds, time.monotonic() + seconds
            self._overdue = overdue
            self._changed.notify()
        # also works if a library never releases the GIL
        faulthandler.dump_traceback_later(seconds + 3 * self.GRACE, exit=True)

    def _watch(self) -> None:
        with self._changed:
            while (left := self._deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
        running = self._overdue(self._seconds) if self._overdue else ""
        step = f"{self._step}: {running}" if running else self._step
        stack = "".join(traceback.format_stack(sys._current_frames()[threading.main_thread().ident]))
        print(
            f"hpcmm: error: rank {self.rank} of {self.size} on {node()}: stuck in {step} for "
            f"{self._seconds:.0f} s; stack follows. A rank without a report is stopped or lost.\n{stack}",
            file=sys.stderr,
        )
        abort_ranks(self.GRACE)
