"""The product of matrices that stay on the devices by block rows; an all-gather of B overlaps with the product."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel import whole_sums
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.cost import Line, Machine
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import ProductInPlace, is_product, local_rows
from hpcmm.parallel.schedules import arriving, block_row, block_rows, column_panels, consecutive, divisions, source


class Resident(ProductInPlace):
    """A, B and C by block rows; each rank has a buffer for all of B, which starts with its own rows."""

    def load(self) -> None:
        m, n, k = self.shape
        self.a = self.placed("A", self.block_rows(m, k))
        self.terms = block_rows(k, self.comm.size)
        self.b = self.backend.shared_empty((k, n), self.dtype)
        self.load_block("B", self.block_rows(k, n), self.share_of(self.comm.rank))
        self.share(B=self.b)
        self.order = arriving(self.comm.rank, self.comm.size)
        self.received = [self.share_of(rank) for rank in self.order[1:]]

    def rows_of(self, first: int, last: int) -> slice:
        start, _ = self.terms[first]
        last_start, count = self.terms[last]
        return slice(start, last_start + count)

    def share_of(self, rank: int):
        return self.b[self.rows_of(rank, rank)]

    def asked(self, rank: int, step: int) -> list[tuple[int, str, slice]]:
        owner = source(rank, self.comm.size, step)
        return [(owner, "B", self.rows_of(owner, owner))]

    def schedules(self) -> dict[str, Any]:
        """Return, by names such as ``1+3 | 4``, the sizes of the groups of shares of B for each panel of columns."""
        _, n, _ = self.shape
        found = []
        for lengths in divisions(self.comm.size):
            found.append([lengths])
            if len(column_panels(n, 2)) == 2:
                found += [[lengths, lengths], [lengths, (self.comm.size,)]]
        return {" | ".join("+".join(map(str, lengths)) for lengths in panels): panels for panels in found}

    def prepare_schedule(self, schedule: Any, task: Task) -> Run:
        _, n, _ = self.shape
        work = [[] for _ in range(self.comm.size)]  # products that wait for so many arrivals
        for (column, width), lengths in zip(column_panels(n, len(schedule)), schedule, strict=True):
            columns, first, done = slice(column, column + width), True, 0
            for length in lengths:
                group = self.order[done : done + length]
                done += length
                for rows in (self.rows_of(*run) for run in consecutive(group)):
                    if rows.start < rows.stop:
                        a, b, c = self.a[:, rows], self.b[rows, columns], self.c[:, columns]
                        work[done - 1].append(self.local_product(task, a, b, c, first))
                        first = False
        exchanges = [self.exchange_of(step) for step in range(1, self.comm.size)]
        return Run(partial(self.as_they_arrive, exchanges, work))


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: the whole of B, and C twice."""
    _, n, k = shape
    rows, terms = local_rows(shape, ranks, rank)
    device = rows * k + k * n + 2 * rows * n
    return Need(device, max(rows * k, terms * n, rows * n), whole_elements(operation, shape, rank))


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict the fastest division, for shares of B that arrive one after the other."""
    _, n, k = shape
    exchange = machine.exchange(block_row(k, ranks, 0)[1] * n * itemsize)
    return multiplied(shape, ranks, machine.local, {0: [number * exchange for number in range(ranks)]})


def multiplied(shape: Sequence[int], ranks: int, local: Line, arrived: Mapping[int, Sequence[float]]) -> float:
    """Return when the slowest rank has multiplied what arrived, by the division that is fastest for it.

    ``arrived`` has the times of the shares of B by rank, its own first. A group that has arrived is multiplied, in one
    product per run of rows.
    """
    m, n, k = shape
    rows, terms = block_rows(m, ranks), block_rows(k, ranks)
    ends = []
    for lengths in divisions(ranks):
        slowest = 0.0
        for rank, times in arrived.items():
            order, end, done = arriving(rank, ranks), 0.0, 0
            for length in lengths:
                group = order[done : done + length]
                done += length
                work = sum(2 * rows[rank][1] * n * terms[share][1] for share in group) * local.per_unit
                end = max(end, times[done - 1]) + work + len(consecutive(group)) * local.latency
            slowest = max(slowest, end)
        ends.append(slowest)
    return min(ends)


RESIDENT = Algorithm(
    "resident",
    "A, B and C stay on the devices by block rows; B is gathered while it is multiplied",
    distribution=Resident,
    suits=is_product,
    need=need,
    predict=predict,
    measures=("kernel",),
)
RESIDENT = replace(RESIDENT, whole_sums=whole_sums.form_of(RESIDENT, lambda ranks: (ranks, 1)))
