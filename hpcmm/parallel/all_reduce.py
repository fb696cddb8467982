"""The reduction of vectors on the devices: each rank reduces its part, then an all-reduce combines the results.

The result is left on every device, ready for further work there. NCCL reduces in the stream. Other transports reduce
the single number in host memory with MPI.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from hpcmm.model import Operation, Task
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import BlockRows
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.distribution import OnDevices
from hpcmm.parallel.memory import Need, local_elements, whole_elements
from hpcmm.parallel.schedules import block_rows


def is_reduction(operation: Operation) -> bool:
    """Return whether an operation reduces vectors, distributed by blocks, to one number."""
    inputs = [each for each in operation.operands if each.role == "in"]
    results = [each for each in operation.operands if each.role != "in"]
    return (
        len(operation.dimensions) == 1
        and all((each.dimensions, each.distribution) == (operation.dimensions, "rows") for each in inputs)
        and [(each.dimensions, each.distribution, each.role) for each in results] == [((), "combined", "out")]
    )


class AllReduce(OnDevices):
    """On each device a part of each vector, and the result of the whole vectors."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        backend, dtype = self.backend, self.dtype
        parts = BlockRows(self.comm, self.shape[0])
        self.local_shape = (parts.rows,)
        self.arrays = {}
        for operand in self.operation.operands:
            if operand.role == "out":
                self.output_name, self.output = operand.name, backend.empty((), dtype)
                self.arrays[operand.name] = self.output
                continue
            part = self.part_of(operand.name, parts)
            self.arrays[operand.name] = backend.empty(self.local_shape, dtype)
            if part.size:
                backend.copy(part, self.arrays[operand.name])
        self.received = (self.output,)
        if self.comm.rank == 0:
            self.result[self.output_name] = np.empty((), dtype)

    @property
    def transport_name(self) -> str:
        return self.transport.reduces if self.comm.size > 1 else ""

    def prepare(self, task: Task) -> Callable[[], None]:
        reduce = self.backend.prepare(dataclasses.replace(task, shape=self.local_shape), self.arrays)

        def run() -> None:
            reduce()
            self.transport.all_reduce(self.output, self.operation.combination)

        return run

    def fetch(self) -> None:
        host = np.empty((), self.dtype)
        self.backend.copy(self.output, host)
        if self.comm.rank == 0:
            self.result[self.output_name][...] = host


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its parts and the result. Rank 0 stages nothing: it has the whole vectors."""
    local = sum(local_elements(operation, shape, ranks, rank).values())
    return Need(local, 0 if rank == 0 else local, whole_elements(operation, shape, rank))


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict the reduction of the largest part, plus an all-reduce proportional to log2 of the ranks."""
    _, elements = block_rows(shape[0], ranks)[0]
    return machine.local(elements) + (math.log2(ranks) * machine.doubling if ranks > 1 else 0.0)


ALL_REDUCE = Algorithm(
    "all_reduce",
    "for reductions: each device holds a part of the vector, and every device receives the result",
    distribution=AllReduce,
    suits=is_reduction,
    need=need,
    predict=predict,
    measures=("kernel",),
    transport="nccl",
)
