"""Exchanges over each transport of a device on one to four ranks; what arrives is compared with formulas of its own.

    mpiexec -n 4 python links.py cpu|cuda [lost|swapped]

On a CPU the links between host and device are copies in host memory. Ranks may share a GPU, over the transports that
work between them. With an argument the exchange is broken in that way, and the judge must see it.
"""

import sys

import numpy as np
from mpi4py import MPI
from ranks import WORLD, backend, first

from hpcmm.model import Task
from hpcmm.operations.links import LINKS
from hpcmm.parallel import ALGORITHMS, links
from hpcmm.parallel.collective_links import COLLECTIVES, PATTERNS
from hpcmm.parallel.host_links import DIRECTIONS
from hpcmm.parallel.transports.choice import Connections

DEVICE, BROKEN = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
BACKEND = backend(DEVICE)
VARIANT = {"cpu": "memcpy", "cuda": "device_copy"}[DEVICE]

EXCHANGES = links.EXCHANGES | COLLECTIVES


def expected(pattern: str, x: np.ndarray, ranks: int, rank: int) -> np.ndarray:
    """What a rank receives, by NumPy's division into blocks."""
    parts = np.array_split(x, ranks)
    if pattern == "pairs":
        return parts[rank] if rank == ranks - 1 and ranks % 2 else parts[rank + 1 - 2 * (rank % 2)]
    if pattern in PATTERNS:  # parts are padded to the longest; rank 0 receives nothing of its broadcast
        whole = np.stack([np.pad(part, (0, len(parts[0]) - len(part))) for part in parts])
        if pattern == "reduce_scatter":
            return whole[rank]
        return whole[: 0 if {"broadcast": rank == 0, "gather": rank}.get(pattern) else ranks].reshape(-1)
    if pattern == "neighbours" or pattern.startswith("distance_"):
        return parts[(rank + int(pattern.partition("_")[2] or 1)) % ranks]
    return np.concatenate([np.array_split(part, ranks)[rank] for part in parts])


def exchanged(connections: Connections, name: str, n: int, dtype: str) -> None:
    comm, algorithm = connections.ranks, ALGORITHMS[name]
    pattern, carrier = EXCHANGES[name]
    task = Task(LINKS, LINKS.variant(VARIANT), (n,), dtype)
    inputs = LINKS.draw(np.random.default_rng(n), task)
    here, (transport, _) = inputs if comm.rank == 0 else None, connections.of(algorithm)
    if algorithm.part:
        here = {"x": np.array_split(inputs["x"], comm.size)[comm.rank]}
    spread = algorithm.distribution(comm, BACKEND, task, here, transport=transport)
    run = spread.prepare(task)
    if BROKEN and comm.rank == (0 if pattern == "gather" else comm.size - 1):
        sound = run

        def run():
            sound()
            if BROKEN == "lost":
                spread.y[-1] = spread.poison_value
            else:
                spread.y[:2] = spread.y[1::-1].copy()

    spread.poison()
    spread.call(run)
    received = expected(pattern, inputs["x"], comm.size, comm.rank)
    got = np.empty(spread.y.shape, dtype)
    BACKEND.copy(spread.y, got)
    right = np.array_equal(got[: len(received)], received)
    assert comm.allreduce(right, op=MPI.LAND) != bool(BROKEN), (name, n, dtype, comm.size)
    if comm.size > 1 and comm.rank == 0:
        assert spread.transport_name == carrier
    if here:
        verdict = LINKS.reference(task, here)(spread.result["y"])
    passed = comm.allreduce(not here or verdict.passed, op=MPI.LAND)
    assert passed != bool(BROKEN), (name, n, dtype, comm.size)
    spread.close()


def copied(comm, name: str, n: int, dtype: str) -> None:
    task = Task(LINKS, LINKS.variant("device_copy"), (n,), dtype)
    inputs = LINKS.draw(np.random.default_rng(n), task)
    here = {"x": np.array_split(inputs["x"], comm.size)[comm.rank]}
    spread = ALGORITHMS[name].distribution(comm, BACKEND, task, here)
    run = spread.prepare(task)
    if BROKEN and comm.rank == comm.size - 1:
        spread.copies.pop()
    spread.poison()
    spread.call(run)
    verdict = LINKS.reference(task, here)(spread.result["y"])
    assert comm.allreduce(verdict.passed, op=MPI.LAND) != bool(BROKEN), (name, n, dtype, comm.size, verdict)
    spread.close()


cases, carriers = 0, set()
for size in (WORLD.size,) if BROKEN else range(1, WORLD.size + 1):
    comm = first(size)
    if comm == MPI.COMM_NULL:
        continue
    connections = Connections(comm, BACKEND)
    for name, (pattern, carrier) in EXCHANGES.items():
        if pattern.startswith("distance_") and int(pattern.partition("_")[2]) >= comm.size:
            continue  # a shorter distance is the same
        if links.TRANSPORTS[carrier] == VARIANT and not connections.missing(carrier):
            carriers |= {carrier} if size > 1 else set()
            for n, dtype in ((1, "float64"), (7, "int32"), (64, "float32"), (70_001, "float32"))[
                slice(2, 3) if BROKEN else slice(None)
            ]:
                exchanged(connections, name, n, dtype)
                cases += 1
    for name in DIRECTIONS if BROKEN != "swapped" else ():
        for n, dtype in ((1, "float64"), (7, "int32"), (70_001, "float32"))[2 if BROKEN else 0 :]:
            copied(comm, name, n, dtype)
            cases += 1
    if comm.rank == 0 and size == 1:
        assert all(connections.missing(each) == "" for each in links.TRANSPORTS)  # nothing is exchanged
    elif size == 2 and DEVICE == "cpu":
        assert connections.missing("mpi_rma") == ""
        assert "device's memory" in connections.missing("nccl")
    connections.close()
    comm.Free()
if WORLD.rank == 0:
    print(f"{cases} exchanges over {', '.join(sorted(carriers))}: {'broken, and found' if BROKEN else 'right'}")
