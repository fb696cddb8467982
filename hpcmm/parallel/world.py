"""The ranks of this job and where they run."""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import Any, NoReturn

from mpi4py import MPI

from hpcmm.model import HpcmmError

PATIENCE_SECONDS = 10  # of a rank that failed: others that fail likewise come soon


class LaunchError(HpcmmError):
    """Ranks that were not started as one job."""


def world() -> MPI.Comm:
    """Return the communicator of all ranks.

    Raises
    ------
    LaunchError
        If Slurm started several tasks that do not see each other.
    """
    comm = MPI.COMM_WORLD
    tasks = int(os.environ.get("SLURM_NTASKS", 1))
    if tasks > 1 and comm.size == 1:
        raise LaunchError(
            f"Slurm has {tasks} tasks for this job but MPI sees one rank: the launcher and the MPI library "
            f"({MPI.Get_library_version().split(',')[0].strip()}) do not fit together; "
            "start it with that library's mpiexec, or srun --mpi=pmi2 or --mpi=pmix"
        )
    return comm


def local_rank(comm: MPI.Comm) -> int:
    """Return the rank among those on this node."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return node.rank
    finally:
        node.Free()


def threads_per_rank(comm: MPI.Comm) -> int:
    """Return the CPU threads that this rank may use.

    The CPUs that its affinity allows are divided by the ranks of the node that share the same
    ones; ``OMP_NUM_THREADS`` is an upper limit.
    """
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    cpus = frozenset(os.sched_getaffinity(0))
    sharing = node.allgather(cpus).count(cpus)
    node.Free()
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(len(cpus) // sharing, int(limit) if limit.isdigit() else len(cpus)))


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


def exchange(comm: MPI.Comm, failure: tuple[str, bool] | None) -> list[tuple[str, bool] | None]:
    """Wait for all ranks and tell each of them how it went on every one.

    A rank that failed ends the job if the others do not come soon: they may be waiting for it in the
    middle of their work.

    Parameters
    ----------
    comm : MPI.Comm
        One that is used for nothing else where something may have failed.
    failure : tuple or None
        What went wrong on this rank, its message first.

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
    MPI.COMM_WORLD.Abort(1)
    raise SystemExit(1)  # Abort does not return; this is for singletons of MPIs where it does
