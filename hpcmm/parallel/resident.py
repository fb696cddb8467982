"""The product of matrices that lie on the devices by block rows, B gathered while it is multiplied.

C = beta C + alpha sum over ranks of A[:, rows of B there] B[rows there]: each rank first multiplies with its
own rows of B while the others' arrive one after the other, then with ever larger groups of those that are
there. Groups are runs of rows of one array, so a group is one local product with a longer sum; each has
the same blocks of C, and computes as well as the whole product would, but for reading and writing C once
more. Splitting B by columns would leave C alone and give each product too few blocks to fill a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mpi4py import MPI

from hpcmm.model import Variant
from hpcmm.parallel.distribution import LEAD, RowsInPlace
from hpcmm.parallel.schedules import groups, partners, runs
from hpcmm.parallel.transports import Arrival


class Resident(RowsInPlace):
    """A, B and C by block rows; each rank has room for the whole of B, of which its own rows are there."""

    def place_b(self) -> None:
        _, n, k = self.shape
        self.b = self.backend.shared_empty((k, n), self.dtype)
        self.placed("B", self.terms, self.share_of(self.comm.rank))
        self.transport.share("B", self.b)
        self.exchanges = []  # what arrives and what leaves in each step
        own = self.share_of(self.comm.rank)
        for source, destination in partners(self.comm.rank, self.comm.size):
            arrival = Arrival(source, "B", self.rows_of(source, source), self.share_of(source))
            self.exchanges.append(([arrival], [(destination, own)]))

    def rows_of(self, first: int, last: int) -> slice:
        """Rows of B that ranks ``first`` to ``last`` hold."""
        start, _ = self.terms.blocks[first]
        last_start, count = self.terms.blocks[last]
        return slice(start, last_start + count)

    def share_of(self, rank: int):
        return self.b[self.rows_of(rank, rank)]

    def received(self) -> list:
        return [self.share_of(rank) for rank in range(self.comm.size) if rank != self.comm.rank]

    def start(self) -> list:
        """Begin all exchanges; return their tickets, in the order in which they arrive."""
        begin = self.backend.mark()
        return [self.transport.start(arrivals, departures, begin) for arrivals, departures in self.exchanges]

    def prepare(self, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        rank, size = self.comm.rank, self.comm.size
        order = [rank, *(source for source, _ in partners(rank, size))]
        lengths, _ = groups(order, *self.rates(variant, parameters))
        self.note = f"in groups of {'+'.join(map(str, lengths))}"
        stages, first, done = [], True, 0
        for length in lengths:
            products = []
            for run in runs(order[done : done + length]):
                rows = self.rows_of(*run)
                if rows.start < rows.stop:
                    a, b = self.a[:, rows], self.b[rows]
                    products.append(self.local(variant, parameters, a, b, self.c, first))
                    first = False
            done += length
            stages.append((done - 1, products))  # arrivals that it needs, products

        def run() -> None:
            tickets = self.start()
            waited = 0
            for arrivals, products in stages:
                for ticket in tickets[waited:arrivals]:
                    self.transport.wait(ticket)
                waited = arrivals
                for product in products:
                    product()

        return run

    def rates(self, variant: Variant, parameters: Mapping[str, float]) -> tuple[float, float, float]:
        """Measure what ``groups`` asks for, on the slowest rank: a share's product, an exchange, the overhead."""
        size = self.comm.size
        if size == 1:
            return 0.0, 0.0, 0.0
        own = self.rows_of(self.comm.rank, self.comm.rank)
        self.restore()

        def exchange() -> None:
            for ticket in self.start():
                self.transport.wait(ticket)

        one = self.local(variant, parameters, self.a[:, own], self.b[own], self.c, False)
        whole = self.local(variant, parameters, self.a, self.b, self.c, False)
        best = []
        for work in (exchange, one, whole):  # in this order, so that the products have numbers to work on
            times = []
            for _ in range(3):
                self.comm.Barrier()
                times.append(self.backend.seconds_alone(work, False, self.arrays, LEAD))
            best.append(self.comm.allreduce(min(times), op=MPI.MAX))
        exchanged, one, whole = best
        product = max(whole - one, 0.0) / (size - 1)
        return product, exchanged / (size - 1), max(one - product, 0.0)
