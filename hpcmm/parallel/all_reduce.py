"""The reduction of vectors on the devices: each rank reduces its part, then an all-reduce combines the results."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.operations.reduction import UFUNCS, identity
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import BlockRows
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.distribution import OnDevices
from hpcmm.parallel.memory import Need, elements, whole_elements
from hpcmm.parallel.schedules import block_row, block_tree, part_of_tree, tree_nodes


def is_reduction(operation: Operation) -> bool:
    inputs = [operand for operand in operation.operands if operand.role == "in"]
    results = [operand for operand in operation.operands if operand.role != "in"]
    return (
        len(operation.dimensions) == 1
        and all((array.dimensions, array.distribution) == (operation.dimensions, "rows") for array in inputs)
        and [(result.dimensions, result.distribution, result.role) for result in results] == [((), "combined", "out")]
    )


class AllReduce(OnDevices):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        backend, dtype = self.backend, self.dtype
        blocks = block_tree(self.shape[0], self.comm.size)
        parts = BlockRows(self.comm, self.shape[0], blocks)
        self.first = parts.first
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
        self.as_tree = False  # whether the last task was combined as a tree, in host memory
        if self.comm.rank == 0:
            self.result[self.output_name] = np.empty((), dtype)

    @property
    def transport_name(self) -> str:
        if self.comm.size == 1:
            return ""
        return "mpi" if self.as_tree else self.transport.reduces

    def prepare(self, task: Task) -> Run:
        self.as_tree = bool(task.variant.leaf_bytes) and self.comm.size > 1
        if self.as_tree:
            return self.prepare_tree(task)
        reduce = self.backend.prepare(dataclasses.replace(task, shape=self.local_shape), self.arrays)

        def once() -> None:
            reduce()
            self.transport.all_reduce(self.output, self.operation.combination)

        return Run(once)

    def prepare_tree(self, task: Task) -> Run:
        (length,) = self.local_shape
        every = [tree_nodes(self.shape[0], *block) for block in block_tree(self.shape[0], self.comm.size)]
        nodes, whole = every[self.comm.rank], [node for of_rank in every for node in of_rank]
        own, gathered = np.empty(len(nodes), self.dtype), np.empty(len(whole), self.dtype)
        counts = [len(of_rank) for of_rank in every]
        values = self.backend.empty((len(nodes),), self.dtype)
        runs = []
        for i, (first, count) in enumerate(nodes):
            start = first - self.first
            part = slice(start, min(start + count, length))
            value = values[i : i + 1].reshape(())
            arrays = {name: x[part] if x.shape else value for name, x in self.arrays.items()}
            local = dataclasses.replace(task, shape=(part.stop - part.start,))
            runs.append(self.backend.prepare(local, arrays))
        combination = self.operation.combination
        neutral = identity(combination, str(self.dtype))

        def once() -> None:
            for run in runs:
                run()
            if nodes:
                self.backend.copy(values, own)
            self.comm.Allgatherv(own, [gathered, counts])
            result = of_tree([*zip(whole, gathered, strict=True)], UFUNCS[combination], neutral)
            self.backend.copy(np.full((), result), self.output)

        return Run(once)

    def fetch(self) -> None:
        result = self.fetched(self.output)
        if self.comm.rank == 0:
            self.result[self.output_name][...] = result


def of_tree(nodes: Sequence[tuple[tuple[int, int], np.generic]], combine: np.ufunc, neutral: np.generic) -> np.generic:
    """Combine the aligned groups that cover a vector, in order, as a binary tree by index."""
    waiting: list[tuple[int, np.generic]] = []  # groups whose neighbours come later, each smaller than the last
    for (first, size), value in nodes:
        while waiting and waiting[-1][0] == size and first % (2 * size):
            _, before = waiting.pop()
            first, size, value = first - size, 2 * size, combine(before, value)
        waiting.append((size, value))
    result = neutral
    for _, value in reversed(waiting):
        result = combine(value, result)
    return result


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its parts and the result. Rank 0 stages nothing: it has the whole vectors."""
    _, count = part_of_tree(shape[0], ranks, rank)
    local = sum(elements(operation, (count,)).values())
    return Need(local, 0 if rank == 0 else local, whole_elements(operation, shape, rank))


NCCL_BASE, NCCL_HOP = 6.6, 0.6  # microseconds: NCCL's model of a short all-reduce over NVLink, src/graph/tuning.cc
NODE = 8  # GPUs that pass a sum along a chain; NCCL connects nodes as a tree


def combining(seconds: float, ranks: int, how: Literal["nccl", "copies", "mpi"]) -> Callable[[int], float]:
    """Return the seconds of combining one number per rank over any ranks, from a measurement on ``ranks``.

    NCCL has a constant part and two hops for each further GPU of a node or doubling of nodes. Copies to the host and
    back take the same time on any number of ranks, far longer than MPI in host memory. MPI alone has a message for each
    doubling of the ranks.

    >>> [round(combining(9.0, 2, how)(4), 2) for how in ("nccl", "copies", "mpi")]
    [11.77, 9.0, 18.0]
    """

    def amount(ranks: int) -> float:
        if how == "nccl":
            return NCCL_BASE + 2 * NCCL_HOP * (min(ranks, NODE) - 1 + math.log2(max(1.0, ranks / NODE)))
        return math.log2(ranks) if how == "mpi" else 1.0

    return lambda others: seconds * amount(others) / amount(ranks)


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    _, count = block_row(shape[0], ranks, 0)
    if ranks == 1:
        return machine.local(count)
    return machine.local(count) + machine.combine(ranks) if machine.combine else math.nan


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
