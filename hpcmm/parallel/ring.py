"""The product with B never whole anywhere: its block rows go round the ranks while they are multiplied.

Each rank has room for its own rows of B and two ranks' more: one that is multiplied while the next arrives.
Two-sided transports hand on what has just arrived to the neighbour, so that each part of B enters a node
once; a one-sided one reads from the owner, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpcmm.model import Variant
from hpcmm.parallel.distribution import RowsInPlace
from hpcmm.parallel.transports import Arrival


class Ring(RowsInPlace):
    """A, B and C by block rows, and two buffers for block rows of B."""

    def place_b(self) -> None:
        _, n, _ = self.shape
        self.b = self.backend.shared_empty((self.terms.rows, n), self.dtype)
        self.placed("B", self.terms, self.b)
        self.transport.share("B", self.b)
        largest = self.terms.blocks[0][1]
        room = 2 if self.comm.size > 2 else self.comm.size - 1
        self.buffers = [self.backend.empty((largest, n), self.dtype) for _ in range(room)]

    def received(self) -> list:
        return self.buffers

    def schedules(self) -> dict[str, int]:
        _, n, _ = self.shape
        return self.panels_of_columns(n)

    def follow(self, schedule: int, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        rank, size = self.comm.rank, self.comm.size
        places, products, first = [], [], True  # where each rank's rows are when they are multiplied
        for step in range(size):
            start, count = self.terms.blocks[(rank + step) % size]
            places.append(self.b if step == 0 else self.buffers[step % len(self.buffers)][:count])
            a = self.a[:, start : start + count]
            products.append(self.local(variant, parameters, a, places[-1], self.c, first, schedule))
            first = first and count == 0
        exchanges = []
        for step in range(1, size):
            source = (rank + (step if self.transport.one_sided else 1)) % size
            arrival = Arrival(source, "B", slice(None), places[step])
            exchanges.append(([arrival], [((rank - 1) % size, places[step - 1])]))

        def run() -> None:
            ticket = None
            for step, product in enumerate(products):
                if step:
                    self.transport.wait(ticket)
                if step < size - 1:
                    # not before the product that read the target's buffer, which the main stream was given
                    ticket = self.transport.start(*exchanges[step], self.backend.mark())
                product()

        return run
