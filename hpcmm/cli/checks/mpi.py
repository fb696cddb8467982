"""Checks of MPI, of its launcher, and of the ranks that one started."""

import importlib.metadata
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hpcmm import parallel
from hpcmm.cli.checks.check import Check, attempt, excerpt, one_line

# Number of ranks, as set by the launchers of Open MPI, MPICH and Intel MPI, and Slurm
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
PRINT_SIZE = "from mpi4py import MPI; print(f'<{MPI.COMM_WORLD.size}>', flush=True)"
MESSAGE_BYTES = 1_000_000  # more than MPI sends without waiting for the receiver
EXCHANGE = f"{PRINT_SIZE}; from hpcmm.cli.checks.mpi import exchange; exchange(MPI.COMM_WORLD)"


def check_start_of_mpi() -> Iterator[Check]:
    """Yield the reason why MPI cannot start. Below a launcher MPI reports it itself."""
    if missing := parallel.missing():
        yield Check("MPI", "error", missing, parallel.INSTALL)
    elif processes_started() == 1:
        tried = attempt(sys.executable, "-c", PRINT_SIZE)  # another process, because MPI may end it
        if tried.returncode:
            advice = "load the MPI module, or install the extra: pip install 'hpcmm[mpich]'"
            yield Check("MPI", "error", excerpt(tried.stderr), advice)


def check_mpi(comm) -> Iterator[Check]:
    if comm is None:
        return
    from hpcmm.parallel import world

    about = world.describe(comm)
    version = importlib.metadata.version("mpi4py")
    yield Check("MPI", "ok", f"{one_line(about['library'])} (MPI {about['standard']}), mpi4py {version}")
    expected = processes_started()
    advice = (
        "the launcher does not belong to mpi4py's MPI library: use that library's mpiexec, or srun --mpi=pmi2 or "
        "--mpi=pmix, or rebuild mpi4py: pip install --no-binary mpi4py --force-reinstall mpi4py"
    )
    if expected > 1 and comm.size == 1:
        yield Check("launcher", "error", f"started {expected} processes, and each is rank 0 of 1", advice)
    elif comm.size > 1:
        yield Check("launcher", "ok", f"{comm.size} ranks of one job")
    else:
        yield check_launcher(advice)


def processes_started() -> int:
    """Return the number of processes that the launcher started, 1 without a launcher."""
    return max([int(os.environ[name]) for name in SIZE_VARIABLES if os.environ.get(name, "").isdigit()], default=1)


def check_launcher(advice: str) -> Check:
    """Start two ranks, because this process is alone."""
    mpiexec = find_launcher()
    if not mpiexec:
        return Check("launcher", "warning", "no mpiexec beside this Python or on PATH", "load the MPI module")
    tried = attempt(mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-c", EXCHANGE)
    sizes = re.findall("<([0-9]+)>", tried.stdout)  # the output of several ranks may be interleaved
    if tried.returncode == 0 and sizes == ["2", "2"]:
        return Check("launcher", "ok", f"{mpiexec} starts 2 ranks of one job, which exchange 1 MB")
    if tried.returncode == 0 and sizes == ["1", "1"]:
        return Check("launcher", "error", f"{mpiexec} starts 2 processes, and each is rank 0 of 1", advice)
    why = excerpt(tried.stderr or tried.stdout) or f"exit status {tried.returncode}"
    hint = "run it yourself to see its messages; login nodes may forbid it"
    return Check("launcher", "error", f"{mpiexec} -n 2 failed: {why}", hint)


def exchange(comm) -> None:
    """Pass a message on around all ranks, and compare what arrives."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    received = comm.sendrecv(bytes([comm.rank % 256]) * MESSAGE_BYTES, right, source=left)
    if received != bytes([left % 256]) * MESSAGE_BYTES:
        raise RuntimeError(f"a message of {MESSAGE_BYTES} bytes from rank {left} arrived changed")


def find_launcher() -> str:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("mpiexec", path=places) or ""


def check_cores(ranks: list[tuple[str, set[int]]]) -> Check:
    """Compare the ranks of each node with the CPUs that all of them together may use; ``ranks`` has both of each."""
    nodes: dict[str, list[set[int]]] = {}
    for host, allowed in ranks:
        nodes.setdefault(host, []).append(allowed)
    counts = {host: (len(sets), len(set().union(*sets))) for host, sets in nodes.items()}
    text = ", ".join(f"{count} ranks on {cores} cores of {host}" for host, (count, cores) in counts.items())
    fine = all(count <= cores for count, cores in counts.values())
    return Check.of("cores", fine, text, "ranks share cores: start fewer per node, or do not bind them to one core")


def check_ranks(ranks: list[tuple[str, int, int]]) -> Check:
    """Compare the ranks of each node with its GPUs; ``ranks`` has (node name, local rank, number of GPUs)."""
    nodes = Counter(host for host, _, _ in ranks)
    found = ", ".join(f"{count} on {host}" for host, count in nodes.items())
    missing = ", ".join(f"rank {rank} of {host}" for host, rank, gpus in ranks if 0 < gpus <= rank)
    found += f"; without a GPU of its own: {missing}" if missing else ""
    return Check.of("ranks", not missing, found, "start fewer ranks per node")
