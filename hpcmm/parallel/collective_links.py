"""Collectives on vectors, alone: by MPI in host memory, by NCCL between devices.

A whole vector consists of one part per rank. Each part is padded to the longest one, as NCCL requires. Rank 0 compares
the result with x. It has poison wherever a rank received another value.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hpcmm.model import Operation
from hpcmm.parallel.collectives import broadcast, reduce
from hpcmm.parallel.distribution import OnDevices
from hpcmm.parallel.links import exchange_alone, rounds_of
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.schedules import block_row, block_rows

# By pattern, the description, and bus bandwidth over algorithm bandwidth for some ranks, as nccl-tests define it
PATTERNS: dict[str, tuple[str, Callable[[int], float]]] = {
    "all_reduce": ("every rank receives the sum of the vectors of all ranks", lambda ranks: 2 * (ranks - 1) / ranks),
    "broadcast": ("every rank receives the vector of rank 0", lambda ranks: 1.0),
    "gather": ("rank 0 receives the parts of all ranks", lambda ranks: (ranks - 1) / ranks),
    "all_gather": ("every rank receives the parts of all ranks", lambda ranks: (ranks - 1) / ranks),
    "reduce_scatter": ("each rank receives its part of the sum of all vectors", lambda ranks: (ranks - 1) / ranks),
}
# A repetition of these is one message: further ones would start before the last rank has received the first.
ONE_WAY = ("broadcast", "gather")
# By algorithm, its pattern and a transport that carries out collectives in the memory that holds the arrays
COLLECTIVES = {f"{pattern}_{carrier}": (pattern, carrier) for pattern in PATTERNS for carrier in ("mpi", "nccl")}


class Collective(OnDevices):
    """On each rank what it sends and what it receives; ``pattern`` is a key of ``PATTERNS``."""

    def __init__(self, *arguments, pattern: str, **options):
        super().__init__(*arguments, **options)
        comm, (n,), self.pattern = self.comm, self.shape, pattern
        source, self.target = self.ends
        vector = self.inputs[source] if comm.rank == 0 else np.empty(n, self.dtype)
        broadcast(comm, vector)
        if "reduce" in pattern:  # every rank contributes to each part of the sum
            every, vector = vector, np.zeros(n, self.dtype)
            vector[comm.rank :: comm.size] = every[comm.rank :: comm.size]
        parts = in_parts(n, comm.size)
        rows = np.zeros(parts.shape, self.dtype)
        rows[parts] = vector
        sends, receives = slice(None), slice(None)  # parts
        if pattern == "broadcast":
            sends, receives = (receives, slice(0)) if comm.rank == 0 else (slice(0), receives)
        elif pattern in ("gather", "all_gather"):
            sends, receives = comm.rank, slice(0) if comm.rank and pattern == "gather" else receives
        elif pattern == "reduce_scatter":
            receives = comm.rank
        sent, received = np.atleast_2d(rows[sends]), np.atleast_2d(rows[receives])
        self.x, self.y = (self.backend.empty((part.size,), self.dtype) for part in (sent, received))
        if sent.size:
            self.backend.copy(sent.reshape(-1), self.x)
        self.arrays, self.received = {source: self.x, self.target: self.y}, (self.y,)
        if comm.rank == 0:
            self.result[self.target] = np.empty(n, self.dtype)
        self.rounds = 1 if pattern in ONE_WAY else rounds_of(rows.nbytes)
        self.exchange = partial(self.transport.collect, pattern, self.x, self.y)

    def fetch(self) -> None:
        comm = self.comm
        received = self.fetched(self.x if self.pattern == "broadcast" and comm.rank == 0 else self.y)
        if self.pattern == "reduce_scatter":
            every = np.empty((comm.size, received.size), self.dtype)
            comm.Gather(received, every)
            received = every
        elif self.pattern != "gather":
            received = agreed(comm, received, self.poison_value)
        if comm.rank == 0:
            (n,) = self.shape
            self.result[self.target][...] = received.reshape(comm.size, -1)[in_parts(n, comm.size)]


def in_parts(n: int, ranks: int) -> np.ndarray:
    """Return which elements of padded parts, one row per rank, are elements of a vector.

    >>> in_parts(4, 3).astype(int)
    array([[1, 1],
           [1, 0],
           [1, 0]])
    """
    blocks = block_rows(n, ranks)
    return np.arange(blocks[0][1]) < np.array([[count] for _, count in blocks])


def agreed(comm, own: np.ndarray, poison: float) -> np.ndarray:
    """Return on rank 0 its own array, with poison wherever that of another rank differs. Collective."""
    first = own.copy()
    broadcast(comm, first)
    differs = (own != first).view(np.uint8)
    anywhere = np.zeros_like(differs)
    reduce(comm, differs, anywhere if comm.rank == 0 else None, "maximum")
    return np.where(anywhere > 0, np.array(poison, own.dtype), own)


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: both vectors, and on the host their elements and the results that are compared."""
    padded = ranks * block_row(shape[0], ranks, 0)[1]
    return Need(2 * padded, 0, whole_elements(operation, shape, rank) + 4 * padded)


COLLECTIVE_LINKS = tuple(
    exchange_alone(name, f"over {carrier}: {PATTERNS[pattern][0]}", carrier, partial(Collective, pattern=pattern), need)
    for name, (pattern, carrier) in COLLECTIVES.items()
)
