"""The textbook algorithm: scatter block rows, broadcast the rest, compute, gather."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from hpcmm.model import TEXTBOOK, Operation, Task, untimed
from hpcmm.model.launch import Run
from hpcmm.operations import cores
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import BlockRows, broadcast, reduce
from hpcmm.parallel.cost import Machine, moved
from hpcmm.parallel.distribution import LATE_RUNS, MOST_SPINS, Distribution
from hpcmm.parallel.memory import Need, local_elements, whole_elements
from hpcmm.parallel.product import is_product
from hpcmm.parallel.schedules import block_row


def is_divisible(operation: Operation) -> bool:
    """Return whether all operands distributed by rows have the operation's first dimension as their own first."""
    first = operation.dimensions[:1]
    return all(operand.dimensions[:1] == first for operand in operation.operands if operand.distribution == "rows")


class Scatter(Distribution):
    """One operation's arrays on all ranks, and its end-to-end call from rank 0's inputs to rank 0's result.

    Every call starts from the same inputs. If the device has its own memory, rank 0's rows are views of its whole
    arrays. If kernels work in host memory, the rows that they overwrite are received in a copy. All
    communication is MPI on host memory for every transport.
    """

    transport_name = ""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        backend, group = self.backend, self.group
        self.rows = BlockRows(group, self.shape[0])
        self.local_shape = (self.rows.rows, *self.shape[1:])
        self.sent: dict[str, np.ndarray] = {}  # in host memory: the parts that this rank receives
        self.returned: dict[str, np.ndarray] = {}  # in host memory: the parts that it sends back
        self.arrays: dict[str, np.ndarray] = {}  # the kernel's arguments
        self.pristine: dict[str, np.ndarray] = {}  # copies of the arrays that the kernel overwrites
        part = dataclasses.replace(self.problem, shape=self.local_shape)
        for operand in self.operation.operands:
            name, dtype, by_rows = operand.name, self.problem.storage(operand), operand.distribution == "rows"
            whole, root = self.problem.shape_of(operand), group.rank == 0
            local = whole if operand.distribution == "replicated" else part.shape_of(operand)
            if operand.role != "in" and root:
                self.result[name] = backend.host_empty(whole, dtype, self.pinned)
            if operand.role != "out":
                if root and (operand.role == "in" or not backend.in_host_memory):
                    self.sent[name] = self.rows.part_of(self.inputs[name]) if by_rows else self.inputs[name]
                else:
                    self.sent[name] = backend.host_empty(local, dtype, self.pinned)
            in_place = backend.in_host_memory and name in self.sent
            self.arrays[name] = self.sent[name] if in_place else backend.empty(local, dtype)
            if operand.role == "inout":
                self.pristine[name] = backend.empty(local, dtype)
            if operand.role != "in":
                if backend.in_host_memory:
                    self.returned[name] = self.arrays[name]
                elif root and by_rows:
                    self.returned[name] = self.rows.part_of(self.result[name])
                else:
                    self.returned[name] = backend.host_empty(local, dtype, self.pinned)

    @property
    def group(self):
        """The ranks among which a problem is divided."""
        return self.comm

    def prepare(self, task: Task) -> Run:
        """Return a run of ``task`` on this rank's rows; without rows of the result it does nothing."""
        returns_rows = any(o.role != "in" and o.distribution == "rows" for o in self.operation.operands)
        if self.rows.rows == 0 and returns_rows:
            idle = (lambda: None) if task.variant.on_copies else None  # the phase of copies is the same on all ranks
            return Run(lambda: None, before=idle, after=idle)
        return self.backend.prepare(dataclasses.replace(task, shape=self.local_shape), self.arrays)

    def poison(self) -> None:
        whole = list(self.result.values())
        parts = [part for part in self.returned.values() if not any(np.shares_memory(part, other) for other in whole)]
        for array in (*whole, *parts):
            cores.fill(array, self.poison_value)
        self._poison_outputs()

    def _poison_outputs(self) -> None:
        for operand in self.operation.operands:
            if operand.role == "out":
                self.arrays[operand.name].fill(self.poison_value)

    def call(self, run: Run) -> dict[str, float]:
        """Run once end to end; return the seconds of each phase on this rank.

        A barrier follows each phase, so that no phase includes the wait for a rank that is still in the previous phase.
        """
        operands = self.operation.operands
        moves = not self.backend.in_host_memory
        seconds: dict[str, float] = {}
        clock = self._phases(seconds)
        for operand in operands:
            if operand.role != "out" and operand.distribution == "rows":
                self.rows.scatter(self.inputs.get(operand.name), self.sent[operand.name])
        clock("scatter")
        if any(operand.distribution == "replicated" for operand in operands):
            for operand in operands:
                if operand.distribution == "replicated":
                    broadcast(self.group, self.sent[operand.name])
            clock("broadcast")
        if moves:
            for name, array in self.sent.items():
                self.backend.copy(array, self.arrays[name])
            clock("upload")
        if run.before:
            run.before()
            self.backend.synchronize()
            clock("pitch")
        kernel = self.backend.seconds(run)
        clock("kernel")
        if run.after:
            run.after()
            self.backend.synchronize()
            clock("pitch")
        if moves:
            for name, array in self.returned.items():
                self.backend.copy(self.arrays[name], array)
            clock("download")
        self._gather()
        clock("gather")
        seconds["kernel"] = kernel
        return seconds

    def _phases(self, seconds: dict[str, float]) -> Callable[[str], None]:
        """Return a function that ends a phase: it adds the phase's seconds and updates the total."""
        self.group.Barrier()
        start = last = time.perf_counter()

        def clock(phase: str) -> None:
            nonlocal last
            done = time.perf_counter()
            self.group.Barrier()
            seconds[phase] = seconds.get(phase, 0.0) + done - last
            last = time.perf_counter()
            seconds["total"] = last - start

        return clock

    def _gather(self) -> None:
        for operand in self.operation.operands:
            if operand.distribution == "combined":
                part, whole = self.returned[operand.name], self.result.get(operand.name)
                reduce(self.group, part, whole, self.operation.combination)
            elif operand.role != "in":
                self.rows.gather(self.returned[operand.name], self.result.get(operand.name))

    def save_inputs(self) -> None:
        for name, array in self.pristine.items():
            if self.backend.in_host_memory:
                self.rows.scatter(self.inputs.get(name), self.sent[name])
            self.backend.copy(self.sent[name], array)

    def restore(self) -> None:
        for name, array in self.pristine.items():
            self.backend.copy(array, self.arrays[name])
        self._poison_outputs()

    def kernel(self, run: Run, cold: bool) -> float:
        """Run once on arrays in place; repeat it if the host of any rank queued it too late."""
        for _ in range(LATE_RUNS):
            seconds = self._kernel(run, cold)
            if not self.comm.allreduce(int(self.backend.late)):
                break
            self.late_runs += 1
            run.spins = min(2 * run.spins, MOST_SPINS)
        return seconds

    def _kernel(self, run: Run, cold: bool) -> float:
        self.restore()
        if run.before:
            run.before()
        self.comm.Barrier()
        seconds = self.backend.seconds_alone(run, cold, {**self.arrays, **run.copies}, run.spins)
        if run.after:
            run.after()
        return seconds

    def clock(self, run: Run, seconds: float) -> float:
        return float(np.min(self.comm.allgather(self.backend.clock(run, seconds))))

    def fetch(self) -> None:
        for name, array in self.returned.items():
            if not self.backend.in_host_memory:
                self.backend.copy(self.arrays[name], array)
        self._gather()

    @untimed
    def resources(self, task: Task) -> dict[str, float]:
        return self.backend.resources(dataclasses.replace(task, shape=self.local_shape), self.arrays)

    def pick(self, task: Task) -> str:
        return self.backend.placed(dataclasses.replace(task, shape=self.local_shape)).pick


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its parts, twice if the kernel overwrites them; rank 0 stages nothing."""
    local = local_elements(operation, shape, ranks, rank)
    overwritten = sum(local[operand.name] for operand in operation.operands if operand.role == "inout")
    parts = sum(local.values())
    return Need(parts + overwritten, 0 if rank == 0 else parts + overwritten, whole_elements(operation, shape, rank))


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict a product's end-to-end time, the sum of its phases. NaN for other operations."""
    if not is_product(operation) or (ranks > 1 and not machine.moves):
        return math.nan
    m, n, k = shape
    _, rows = block_row(m, ranks, 0)
    moves = sum(line(moved(phase, shape, itemsize, ranks)) for phase, line in machine.moves.items())
    return moves + machine.local(2 * rows * n * k)


SCATTER = Algorithm(
    TEXTBOOK,
    "the textbook: block rows are scattered, the rest is broadcast, results are gathered, one step after the other",
    distribution=Scatter,
    suits=is_divisible,
    need=need,
    predict=predict,
    source="project requirement",
    transport=None,
)
