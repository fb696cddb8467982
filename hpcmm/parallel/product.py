"""Common parts of the distributed matrix products: the operations that are products, schedules and blocks."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hpcmm.model import Operand, Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.collectives import Block, move_blocks
from hpcmm.parallel.distribution import Distribution, OnDevices
from hpcmm.parallel.schedules import block_row, block_rows, column_panels
from hpcmm.parallel.transports.base import Arrival

TUNING_SECONDS = 2.0  # of trial runs; no further schedule is tried afterwards


def is_product(operation: Operation) -> bool:
    """Return whether an operation is C = alpha A B + beta C, with A and C by rows and B replicated."""
    if len(operation.dimensions) != 3 or "beta" not in operation.scalars:
        return False
    m, n, k = operation.dimensions
    return set(operation.operands) == {
        Operand("A", (m, k), "rows", "in"),
        Operand("B", (k, n), "replicated", "in"),
        Operand("C", (m, n), "rows", "inout"),
    }


def local_rows(shape: Sequence[int], ranks: int, rank: int) -> tuple[int, int]:
    m, _, k = shape
    return block_row(m, ranks, rank)[1], block_row(k, ranks, rank)[1]


class Scheduled(Distribution):
    """A product with several schedules; it times them and uses the fastest."""

    def schedules(self) -> dict[str, Any]:
        """Return the schedules by name, the most promising first; they are the same on all ranks."""
        raise NotImplementedError

    def prepare_schedule(self, schedule: Any, task: Task) -> Run:
        """Return a run of this rank's part by one of ``schedules``."""
        raise NotImplementedError

    def time_once(self, run: Run) -> float:
        """Execute a run from ``prepare_schedule`` once; return the seconds on this rank."""
        return self.kernel(run, cold=False)

    def prepare(self, task: Task) -> Run:
        """Time the schedules; return a run by the one whose slowest rank is the fastest."""
        schedules = self.schedules()
        seconds, spent, left = dict.fromkeys(schedules, math.inf), 0.0, list(schedules)
        while len(left) > 1 and spent < TUNING_SECONDS:
            for name in left:
                run = self.prepare_schedule(schedules[name], task)
                for _ in range(2):  # the first run may load kernels
                    if spent < TUNING_SECONDS:
                        slowest = max(self.comm.allgather(self.time_once(run)))
                        seconds[name] = min(seconds[name], slowest)
                        spent += slowest
            left = sorted(seconds, key=seconds.get)[: len(left) // 2]
        self.schedule = left[0]
        return self.prepare_schedule(schedules[self.schedule], task)

    def local_product(self, task: Task, a, b, c, first: bool, panels: int = 1) -> Callable[[], None]:
        """Return a callable that adds alpha a b to c, in panels of columns."""
        (rows, columns), terms = c.shape, a.shape[1]
        if 0 in (rows, columns, terms):
            return lambda: None
        scalars = {**task.scalars, "beta": task.scalars["beta"] if first else 1.0}
        products = []
        for column, width in column_panels(columns, panels):
            panel = slice(column, column + width)
            arrays = {"A": a, "B": b[:, panel], "C": c[:, panel]}
            local = dataclasses.replace(task, shape=(rows, width, terms), scalars=scalars)
            products.append(self.backend.prepare(local, arrays))

        def run() -> None:
            for product in products:
                product()

        return run


class ProductInPlace(Scheduled, OnDevices):
    """A product of blocks that are on the devices before it starts and stay there; C by block rows.

    A subclass places A and B in ``load``, and sets ``received`` to the buffers for blocks of other ranks, and
    ``c_blocks`` to the block of each rank if these are no block rows. It defines ``schedules`` and
    ``prepare_schedule``.
    """

    received: Sequence[Any] = ()

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        m, n, _ = self.shape
        if self.comm.rank == 0:
            self.result["C"] = np.empty((m, n), self.dtype)
        self.c_blocks = self.block_rows(m, n)
        self.load()
        self.saved_c = self.placed("C", self.c_blocks)  # C before the product
        self.c = self.backend.empty(self.saved_c.shape, self.dtype)
        self.backend.synchronize()
        self.comm.Barrier()  # from here on, other ranks may read the blocks

    def load(self) -> None:
        """Allocate this rank's blocks of A and B on the device and fill them from rank 0's inputs."""
        raise NotImplementedError

    def block_rows(self, rows: int, columns: int) -> list[Block]:
        return [(block, (0, columns)) for block in block_rows(rows, self.comm.size)]

    def placed(self, name: str, blocks: Sequence[Block]) -> Any:
        (_, rows), (_, columns) = blocks[self.comm.rank]
        return self.load_block(name, blocks, self.backend.empty((rows, columns), self.dtype))

    def load_block(self, name: str, blocks: Sequence[Block], target: Any) -> Any:
        """Fill ``target`` with this rank's block of an input, and return it; without a target it has none."""
        part = np.empty((0, 0) if target is None else target.shape, self.dtype)
        move_blocks(self.comm, self.inputs.get(name), part, blocks, scatter=True)
        if part.size:
            self.backend.copy(part, target)
        return target

    def fetch(self) -> None:
        move_blocks(self.comm, self.result.get("C"), self.fetched(self.c), self.c_blocks, scatter=False)

    @property
    def arrays(self) -> dict[str, Any]:
        """All arrays that the computation touches; a cold run evicts them from the caches."""
        return {"A": self.a, "B": self.b, "C": self.c}

    def column_schedules(self, columns: int) -> dict[str, int]:
        """Return schedules with each local product in one panel of columns or in two.

        For a large product, two library calls can be faster than one.
        """
        counts = {"columns whole": 1, "columns in halves": 2}
        return {name: count for name, count in counts.items() if len(column_panels(columns, count)) == count}

    def asked(self, rank: int, step: int) -> list[tuple[int, str, slice]]:
        """Return what arrives on a rank in a step: the source, and name and part of the array that it shares."""
        raise NotImplementedError

    def exchange_of(self, step: int, targets: Mapping[str, Any] | None = None) -> tuple[list, list]:
        """Return the arrivals and departures of a step; without ``targets``, parts keep their places in the arrays."""
        arrivals = [
            Arrival(source, name, part, targets[name] if targets else self.shares[name][part])
            for source, name, part in self.asked(self.comm.rank, step)
        ]
        departures = [
            (rank, self.shares[name][part])
            for rank in range(self.comm.size)
            for source, name, part in self.asked(rank, step)
            if source == self.comm.rank
        ]
        return arrivals, departures

    def in_turns(self, exchanges: Sequence[Sequence | None], products: Sequence[Callable[[], None]]) -> None:
        """Multiply after each exchange, while the next one is underway; None stands for no exchange at first."""
        ticket = exchanges[0] and self.transport.start(*exchanges[0], self.backend.mark())
        for step, product in enumerate(products):
            if exchanges[step]:
                self.transport.wait(ticket)
            if step + 1 < len(products):
                # after the product that reads the receive buffers; it is already in the main stream
                ticket = self.transport.start(*exchanges[step + 1], self.backend.mark())
            product()

    def as_they_arrive(self, exchanges: Sequence[Sequence], products: Sequence[Sequence[Callable[[], None]]]) -> None:
        """Start all exchanges; multiply the local blocks, then the blocks of each exchange when it has completed."""
        begin = self.backend.mark()
        tickets = [self.transport.start(*exchange, begin) for exchange in exchanges]
        for number, ready in enumerate(products):
            if number:
                self.transport.wait(tickets[number - 1])
            for product in ready:
                product()

    def restore(self) -> None:
        if self.c.size:
            self.backend.copy(self.saved_c, self.c)
        super().restore()
