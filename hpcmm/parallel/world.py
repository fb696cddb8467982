"""The ranks of this job, where they run, and how they end. Importing this module starts MPI."""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from mpi4py import MPI

from hpcmm.model import HpcmmError

PATIENCE_SECONDS = 10  # that a failed rank waits for the others, which may fail as well


class LaunchError(HpcmmError):
    """Ranks that were not started as one job."""


def world() -> MPI.Comm:
    """Return the communicator of all ranks.

    Raises
    ------
    LaunchError
        If srun started this process as one of several tasks, and MPI does not see the others.
    """
    comm = MPI.COMM_WORLD
    environment = os.environ
    # Only of a task that srun started: an allocation, or a shell in a task, says nothing about a launch in it.
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
    """Return the name of the node, as Slurm knows it under Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def local_rank(comm: MPI.Comm, devices: Sequence[str] = ()) -> int:
    """Return the rank among those on this node that see the same devices.

    Where the launcher shows each rank a GPU of its own, each is the first on its GPU.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    seen = node.allgather(tuple(devices))
    rank = seen[: node.rank].count(tuple(devices))
    node.Free()
    return rank


def threads_per_rank(comm: MPI.Comm) -> int:
    """Return the CPU threads that this rank may use.

    The CPUs that its affinity allows are divided by the ranks of the node that share the same
    ones; ``OMP_NUM_THREADS`` and what Slurm gave a task are upper limits.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    cpus = frozenset(os.sched_getaffinity(0))
    sharing = node.allgather(cpus).count(cpus)
    node.Free()
    given = (os.environ.get(name, "").split(",")[0] for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"))
    limits = [int(limit) for limit in given if limit.isdecimal()]
    return max(1, min(len(cpus) // sharing, *limits, len(cpus)))


def describe(comm: MPI.Comm) -> dict[str, Any]:
    """What provenance says of MPI."""
    return {
        "library": MPI.Get_library_version().splitlines()[0].strip("\0 "),
        "standard": ".".join(map(str, MPI.Get_version())),
        "ranks": comm.size,
    }


def duplicate(comm: MPI.Comm) -> MPI.Comm:
    """Return a communicator of the same ranks in which no message of another one can be received."""
    return comm.Dup()


def describe_error(error: Exception) -> str:
    """Print where an unexpected error came from; return what it says in one line."""
    if not isinstance(error, HpcmmError):
        traceback.print_exception(error)
        sys.stderr.flush()
    text = " ".join(str(error).split())
    return text if isinstance(error, HpcmmError) else f"{type(error).__name__}: {text}"


def gather_failures(comm: MPI.Comm, failure: tuple[str, bool] | None) -> list[tuple[str, bool] | None]:
    """Wait for all ranks and return the failures of all on each.

    A rank that failed ends the job if the others do not arrive within ``PATIENCE_SECONDS``: they may be waiting for
    it in the middle of their work.

    Parameters
    ----------
    comm : MPI.Comm
        A communicator without pending messages of what failed.
    failure : tuple or None
        This rank's failure, the message first.

    Returns
    -------
    list
        The failure of each rank, None where there is none.
    """
    request = comm.Ibarrier()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not request.Test():
        if failure and time.monotonic() > deadline:
            abort(f"rank {comm.rank}: {failure[0]}")
        time.sleep(1e-3)
    return comm.allgather(failure)


def abort(message: str) -> NoReturn:
    """End all ranks with this message and exit status 1."""
    print(f"hpcmm: error: {message}", file=sys.stderr, flush=True)
    time.sleep(1)  # a launcher that is told to end the ranks may drop what it has not read yet
    MPI.COMM_WORLD.Abort(1)
    raise SystemExit(1)  # Abort does not return; this is for singletons of MPIs where it does


class Watchdog:
    """Ends all ranks when they do not come on, after each has said where it stands.

    Every rank has one, and all are wound up together: a rank that waits in a barrier for another one
    finds out by its own clock, and says so whatever MPI does. A rank that says nothing then is stopped,
    or its node is gone.

    Parameters
    ----------
    comm : MPI.Comm
    patience : float
        Seconds beyond what is expected.
    """

    GRACE = 3.0  # seconds in which the others say where they stand, too

    def __init__(self, comm: MPI.Comm, patience: float):
        self.rank, self.size, self.patience = comm.rank, comm.size, patience
        self._changed = threading.Condition()
        self._doing, self._seconds, self._deadline = "", 0.0, float("inf")
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, *_) -> None:
        """Let the ranks take all the time that they need."""
        with self._changed:
            self._deadline = float("inf")
            self._changed.notify()
        faulthandler.cancel_dump_traceback_later()

    def expect(self, doing: str, seconds: float) -> None:
        """Tell what comes next, and the seconds that it should take at most."""
        seconds += self.patience
        with self._changed:
            self._doing, self._seconds, self._deadline = doing, seconds, time.monotonic() + seconds
            self._changed.notify()
        # needs no Python to act, where a library never comes back with the lock of the interpreter
        faulthandler.dump_traceback_later(seconds + 3 * self.GRACE, exit=True)

    def _watch(self) -> None:
        with self._changed:
            while (left := self._deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
        stands = "".join(traceback.format_stack(sys._current_frames()[threading.main_thread().ident]))
        print(
            f"hpcmm: error: rank {self.rank} of {self.size} on {node()} has not done with {self._doing} "
            f"after {self._seconds:.0f} s and stands here; a rank that says nothing is stopped or lost\n{stands}",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(self.GRACE)
        MPI.COMM_WORLD.Abort(1)
