"""The product of matrices that lie on the devices by block rows, B gathered while it is multiplied.

C = beta C + alpha sum over ranks of A[:, rows of B there] B[rows there]: each rank first multiplies with its
own rows of B while the others' arrive one after the other, then with groups of those that are there. Groups
are runs of rows of one array, so a group is one local product with a longer sum. It reads and writes C once more,
which the columns of C need not all: with one half of them multiplied so, all of B may have arrived for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hpcmm.model import Variant
from hpcmm.parallel.distribution import RowsInPlace
from hpcmm.parallel.schedules import column_panels, divisions, partners, runs
from hpcmm.parallel.transports import Arrival


class Resident(RowsInPlace):
    """A, B and C by block rows; each rank has room for the whole of B, of which its own rows are there."""

    def place_b(self) -> None:
        _, n, k = self.shape
        self.b = self.backend.shared_empty((k, n), self.dtype)
        self.placed("B", self.terms, self.share_of(self.comm.rank))
        self.transport.share("B", self.b)
        self.order = [self.comm.rank]  # in which shares of B are there
        self.exchanges = []  # what arrives and what leaves in each step
        own = self.share_of(self.comm.rank)
        for source, destination in partners(self.comm.rank, self.comm.size):
            self.order.append(source)
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

    def schedules(self) -> dict[str, Any]:
        """By a name as ``1+3 | 4``, for each panel of columns in which groups its product takes the shares of B.

        Besides each division for all columns, there are the same for either half, and the other half at once when
        all shares are there.
        """
        _, n, _ = self.shape
        found = []
        for lengths in divisions(self.comm.size):
            found.append([lengths])
            if len(column_panels(n, 2)) == 2:
                found += [[lengths, lengths], [lengths, (self.comm.size,)]]
        return {" | ".join("+".join(map(str, lengths)) for lengths in each): each for each in found}

    def follow(self, schedule: Any, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        _, n, _ = self.shape
        work: list[tuple[int, Callable[[], None]]] = []  # how many arrivals it needs, a product
        for (column, width), lengths in zip(column_panels(n, len(schedule)), schedule, strict=True):
            columns, first, done = slice(column, column + width), True, 0
            for length in lengths:
                group = self.order[done : done + length]
                done += length
                for rows in (self.rows_of(*run) for run in runs(group)):
                    if rows.start < rows.stop:
                        a, b, c = self.a[:, rows], self.b[rows, columns], self.c[:, columns]
                        work.append((done - 1, self.local(variant, parameters, a, b, c, first)))
                        first = False
        work.sort(key=lambda each: each[0])
        work.append((len(self.exchanges), lambda: None))  # shares without rows are sent and received, too

        def run() -> None:
            begin, waited = self.backend.mark(), 0
            tickets = [self.transport.start(arrivals, departures, begin) for arrivals, departures in self.exchanges]
            for needed, product in work:
                for ticket in tickets[waited:needed]:
                    self.transport.wait(ticket)
                waited = needed
                product()

        return run
