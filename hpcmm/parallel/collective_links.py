"""Collectives of MPI on vectors in host memory, alone: broadcast, gather and reduce-scatter.

Rank 0 compares the result with x. It has poison wherever a rank received another value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import BlockRows, broadcast, mpi
from hpcmm.parallel.distribution import OnDevices
from hpcmm.parallel.links import TRANSPORTS, is_exchange
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.vector_all_reduce import agreed

# By pattern, the description, and bus bandwidth over algorithm bandwidth for some ranks, as nccl-tests define it. A
# repetition is one message: further ones would start before the last rank has received the first.
PATTERNS: dict[str, tuple[str, Callable[[int], float]]] = {
    "broadcast": ("every rank receives the vector of rank 0", lambda ranks: 1.0),
    "gather": ("rank 0 receives the parts of all ranks", lambda ranks: (ranks - 1) / ranks),
    "reduce_scatter": ("each rank receives its part of the sum of all vectors", lambda ranks: (ranks - 1) / ranks),
}
COLLECTIVES = {f"{pattern}_mpi": pattern for pattern in PATTERNS}


class Collective(OnDevices):
    """On each rank what it sends and what it receives; ``pattern`` is a key of ``PATTERNS``."""

    transport_name = "mpi"

    def __init__(self, *arguments, pattern: str, **options):
        super().__init__(*arguments, **options)
        comm, (n,), self.pattern = self.comm, self.shape, pattern
        self.parts = BlockRows(comm, n)
        (source,), (self.target,) = (
            [each.name for each in self.operation.operands if each.role == r] for r in ("in", "out")
        )
        if pattern == "gather":
            self.x = self.part_of(source, self.parts)
        else:
            self.x = self.inputs[source] if comm.rank == 0 else np.empty(n, self.dtype)
        if pattern == "reduce_scatter":  # every rank contributes to each part of the sum
            broadcast(comm, self.x)
            self.x = np.where(np.arange(n) % comm.size == comm.rank, self.x, 0).astype(self.dtype)
        # rank 0 broadcasts from its own vector
        own = self.parts.rows if pattern == "reduce_scatter" else n if (pattern == "gather") == (comm.rank == 0) else 0
        self.y = np.empty(own, self.dtype)
        self.arrays, self.received = {source: self.x, self.target: self.y}, (self.y,)
        if comm.rank == 0:
            self.result[self.target] = np.empty(n, self.dtype)

    def prepare(self, task: Task) -> Run:
        comm, x, y = self.comm, self.x, self.y
        if self.pattern == "broadcast":
            return Run(lambda: broadcast(comm, x if comm.rank == 0 else y))
        if self.pattern == "gather":
            return Run(lambda: self.parts.gather(x, y if comm.rank == 0 else None))
        counts = [count for _, count in self.parts.blocks]
        return Run(lambda: comm.Reduce_scatter(x, y, counts, op=mpi().SUM))

    def fetch(self) -> None:
        if self.pattern == "reduce_scatter":
            self.parts.gather(self.y, self.result.get(self.target))
            return
        found = self.x if self.pattern == "broadcast" and self.comm.rank == 0 else self.y
        found = agreed(self.comm, found, self.poison_value) if self.pattern == "broadcast" else found
        if self.comm.rank == 0:
            self.result[self.target][...] = found


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: both vectors, and those that are compared."""
    return Need(2 * shape[0], 0, whole_elements(operation, shape, rank) + 4 * shape[0])


COLLECTIVE_LINKS = tuple(
    Algorithm(
        name,
        f"exchange alone, over mpi: {PATTERNS[pattern][0]}",
        distribution=partial(Collective, pattern=pattern),
        suits=is_exchange,
        need=need,
        measures=("kernel",),
        variants=(TRANSPORTS["mpi"],),
        transport="mpi",
        fixed=True,
        baseline=False,
    )
    for name, pattern in COLLECTIVES.items()
)
