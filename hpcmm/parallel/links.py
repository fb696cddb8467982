"""Exchanges alone: patterns of sources and destinations, over each transport.

Each rank draws its part of x. After the exchange every received piece returns to its owner by MPI. The result of each
rank equals its part of x only if the right bytes arrived at the right rank.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hpcmm.model import Operation
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import BlockRows, mpi, posted
from hpcmm.parallel.distribution import OnDevices
from hpcmm.parallel.memory import Need
from hpcmm.parallel.schedules import block_row
from hpcmm.parallel.transports.base import Arrival

# Clocks are inaccurate at a microsecond: messages are repeated up to this number of bytes and this number of times.
REPEATED_BYTES, MOST_ROUNDS = 1 << 16, 100

MOST_OF_A_NODE = 8  # devices whose links are all measured, one direction of each in every pattern of a distance
# Transports of these patterns: MPI between host memories; between GPUs, the one in which a rank waits only for its link
OF_DISTANCES = ("mpi", "peer")

# By transport, the variant that uses the same memory
TRANSPORTS = {
    **dict.fromkeys(("mpi", "mpi_rma"), "memcpy"),
    **dict.fromkeys(("peer", "nccl", "mpi_cuda", "pinned"), "device_copy"),
}

Blocks = Sequence[tuple[int, int]]  # (first element, elements) of each rank's part
Piece = tuple[int, int, int]  # source, first element in its part, elements


def pairs(blocks: Blocks, rank: int) -> list[Piece]:
    """Ranks 2i and 2i + 1 swap their parts, all pairs at once; a rank without a partner copies its own."""
    partner = rank ^ 1 if rank ^ 1 < len(blocks) else rank
    return [(partner, 0, blocks[partner][1])]


def neighbours(blocks: Blocks, rank: int, distance: int = 1) -> list[Piece]:
    """Each rank receives the part of the next one, or of the one at a distance, in a ring."""
    source = (rank + distance) % len(blocks)
    return [(source, 0, blocks[source][1])]


def all_to_all(blocks: Blocks, rank: int) -> list[Piece]:
    """Each rank receives its share of the part of every rank."""
    return [(source, *block_row(count, len(blocks), rank)) for source, (_, count) in enumerate(blocks)]


PATTERNS: dict[str, tuple[Callable[[Blocks, int], list[Piece]], str]] = {
    "pairs": (pairs, "ranks 2i and 2i + 1 swap their parts"),
    "neighbours": (neighbours, "each rank sends its part to the one before it"),
    "all_to_all": (all_to_all, "each rank sends a share of its part to every rank"),
    **{
        f"distance_{distance}": (
            partial(neighbours, distance=distance),
            f"each rank sends its part to the one {distance} before it",
        )
        for distance in range(2, MOST_OF_A_NODE)
    },
}


def message_elements(pattern: str, n: int, ranks: int) -> int:
    """Return the elements of the longest message between two ranks."""
    part = -(-n // ranks)
    return -(-part // ranks) if pattern == "all_to_all" else part


def bus_factor(pattern: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests define them: the share that leaves its rank."""
    return (ranks - 1) / ranks if pattern == "all_to_all" else 1.0


def rounds_of(nbytes: int) -> int:
    return min(MOST_ROUNDS, max(1, REPEATED_BYTES // max(1, nbytes)))


def exchange_alone(
    name: str, text: str, carrier: str | None, distribution: Any, need: Callable[..., Need], part: Any = None
) -> Algorithm:
    record = {"measures": ("kernel",), "baseline": False, "variants": (TRANSPORTS.get(carrier, "device_copy"),)}
    record |= {"transport": carrier, "fixed": carrier is not None, "part": part}
    return Algorithm(name, f"exchange alone, {text}", distribution, is_exchange, need, **record)


def is_exchange(operation: Operation) -> bool:
    """Return whether an operation moves one vector, distributed by blocks, to another one."""
    return [(operand.dimensions, operand.distribution, operand.role) for operand in operation.operands] == [
        (operation.dimensions, "rows", role) for role in ("in", "out")
    ] and len(operation.dimensions) == 1


class Links(OnDevices):
    def __init__(self, *arguments, pattern: str, **options):
        super().__init__(*arguments, **options)
        comm = self.comm
        parts = BlockRows(comm, self.shape[0])
        self.blocks, pieces_of = parts.blocks, PATTERNS[pattern][0]
        self.pieces = [pieces_of(self.blocks, rank) for rank in range(comm.size)]
        source, target = self.ends
        own, length = self.inputs[source], 0
        self.mine = []  # the source of each piece that this rank receives, its place there, and its place in y
        for rank, start, count in self.pieces[comm.rank]:
            self.mine.append((rank, slice(start, start + count), slice(length, length + count)))
            length += count
        self.x = self.backend.shared_empty((max(1, parts.rows),), self.dtype)
        self.y = self.backend.empty((max(1, length),), self.dtype)
        self.received = (self.y,)
        if own.size:
            self.backend.copy(own, self.x[: own.size])
        self.arrays = {source: self.x, target: self.y}
        self.result[target] = np.empty(parts.rows, self.dtype)
        largest = message_elements(pattern, self.shape[0], comm.size) * self.x.itemsize
        self.rounds = rounds_of(largest)
        self.share(**{source: self.x})
        self.transport.fence(self.backend.mark())
        self.exchange = self._exchange(source)

    def _exchange(self, name: str) -> Callable[[], None]:
        me = self.comm.rank
        own = [(self.x[part], self.y[place]) for source, part, place in self.mine if source == me]
        others = [(source, part, self.y[place]) for source, part, place in self.mine if source != me]
        arrivals = [Arrival(source, name, part, target) for source, part, target in others if target.size]
        departures = self._sent(self.x)

        def run() -> None:
            ticket = self.transport.start(arrivals, departures, self.backend.mark())
            for source, target in own:
                target[...] = source
            self.transport.wait(ticket)

        return run

    def fetch(self) -> None:
        (result,), host, back = self.result.values(), self.fetched(self.y), []
        for source, part, place in self.mine:
            if source == self.comm.rank:
                result[part] = host[place]
            else:
                back.append((source, host[place]))
        mpi().Request.Waitall(posted(self.comm, self._sent(result), back))

    def _sent(self, own: Any) -> list[tuple[int, Any]]:
        return [
            (rank, own[start : start + count])
            for rank, pieces in enumerate(self.pieces)
            for source, start, count in pieces
            if source == self.comm.rank != rank and count
        ]


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int, pattern: str) -> Need:
    """Return the memory of the rank with the most: its part and what it receives; on the host its part twice, too."""
    _, own = block_row(shape[0], ranks, 0)
    received = own
    if pattern == "all_to_all":
        count, longer = divmod(shape[0], ranks)
        received = longer * -(-(count + 1) // ranks) + (ranks - longer) * -(-count // ranks)
    return Need(own + received, 0, 3 * own + received)


def part(shape: Sequence[int], ranks: int, rank: int) -> tuple[int, ...]:
    return (block_row(shape[0], ranks, rank)[1],)


# Name of each algorithm: its pattern and transport
EXCHANGES = {
    f"{pattern}_{carrier}": (pattern, carrier)
    for pattern in PATTERNS
    for carrier in (OF_DISTANCES if pattern.startswith("distance") else TRANSPORTS)
}
LINKS = tuple(
    exchange_alone(
        *(name, f"over {carrier}: {PATTERNS[pattern][1]}", carrier),
        *(partial(Links, pattern=pattern), partial(need, pattern=pattern), part),
    )
    for name, (pattern, carrier) in EXCHANGES.items()
)
