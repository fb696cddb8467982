"""The ranks of this job and where they run."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from mpi4py import MPI

from hpcmm.model import HpcmmError


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


def abort(message: str) -> NoReturn:
    """End all ranks with this message and exit status 1."""
    print(f"hpcmm: error: {message}", file=sys.stderr, flush=True)
    MPI.COMM_WORLD.Abort(1)
    raise SystemExit(1)  # Abort does not return; this is for singletons of MPIs where it does
