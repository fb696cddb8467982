"""All-reduce of vectors among the devices, alone.

Each rank holds a vector of the whole length: its own part of x, and zeros elsewhere. The sum of these vectors is x, on
every rank. The result equals x only if every rank received the sum of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import BlockRows, broadcast, reduce
from hpcmm.parallel.distribution import OnDevices
from hpcmm.parallel.links import TRANSPORTS, is_exchange, rounds_of
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.schedules import block_row

PATTERN = "all_reduce"
# By algorithm, its transport: one that reduces arrays in the memory that holds them
ALL_REDUCES = {f"{PATTERN}_{carrier}": carrier for carrier in ("mpi", "nccl")}


def bus_factor(ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests define them for an all-reduce."""
    return 2 * (ranks - 1) / ranks


class VectorAllReduce(OnDevices):
    """On each rank a vector with its part of x, and the sum over all ranks."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        parts = BlockRows(self.comm, self.shape[0])
        (source,), (self.target,) = (
            [each.name for each in self.operation.operands if each.role == r] for r in ("in", "out")
        )
        own = self.part_of(source, parts)
        self.x, self.y = (self.backend.empty(self.shape, self.dtype) for _ in range(2))
        self.x.fill(0)
        if own.size:
            self.backend.copy(own, self.x[parts.first : parts.first + parts.rows])
        self.arrays, self.received = {source: self.x, self.target: self.y}, (self.y,)
        if self.comm.rank == 0:
            self.result[self.target] = np.empty(self.shape, self.dtype)
        self.rounds = rounds_of(self.x.nbytes)

    def prepare(self, task: Task) -> Run:
        def once() -> None:
            for _ in range(self.rounds):
                self.transport.all_reduce(self.x, "sum", self.y)

        return Run(once)

    def fetch(self) -> None:
        """Give rank 0 its own result, with poison wherever that of another rank differs."""
        own = np.empty(self.shape, self.dtype)
        self.backend.copy(self.y, own)
        own = agreed(self.comm, own, self.poison_value)
        if self.comm.rank == 0:
            self.result[self.target][...] = own


def agreed(comm, own: np.ndarray, poison: float) -> np.ndarray:
    """Return on rank 0 its own array, with poison wherever that of another rank differs. Collective."""
    first = own.copy()
    broadcast(comm, first)
    differs = (own != first).view(np.uint8)
    anywhere = np.zeros_like(differs)
    reduce(comm, differs, anywhere if comm.rank == 0 else None, "maximum")
    return np.where(anywhere > 0, np.array(poison, own.dtype), own)


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: both vectors, and on the host the results that are compared."""
    _, part = block_row(shape[0], ranks, rank)
    return Need(2 * shape[0], part, whole_elements(operation, shape, rank) + 4 * shape[0])


VECTOR_ALL_REDUCES = tuple(
    Algorithm(
        name,
        f"exchange alone, over {carrier}: every rank receives the sum of the vectors of all ranks",
        distribution=VectorAllReduce,
        suits=is_exchange,
        need=need,
        measures=("kernel",),
        variants=(TRANSPORTS[carrier],),
        transport=carrier,
        fixed=True,
        baseline=False,
    )
    for name, carrier in ALL_REDUCES.items()
)
