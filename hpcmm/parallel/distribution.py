"""The interface through which a distributed algorithm is measured."""

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hpcmm.model import Task, untimed
from hpcmm.model.launch import Run
from hpcmm.operations.reduction import no_result
from hpcmm.parallel.collectives import BlockRows
from hpcmm.parallel.transports.base import Transport

# Spin kernels launched before a timed run that communicates: the host needs longer to queue it than a single kernel.
QUEUE_SPINS = 12
# Maximum number of runs of one repetition if the host is late; each starts twice as many spin kernels as the previous
# one, up to MOST_SPINS.
LATE_RUNS = 6
MOST_SPINS = 2 ** (LATE_RUNS - 1)


class Distribution:
    """The arrays of one problem on all ranks, and the algorithm that computes on them.

    All methods are collective. The variant of the problem is ignored. ``inputs`` are the whole arrays on rank 0, which
    are never written, and None on other ranks. Host memory is page-locked if ``pinned``, and the device has its own
    memory. ``transport`` moves arrays between the ranks, for algorithms that exchange arrays.
    """

    arrays: Mapping[str, Any]  # operands of the kernel on this rank's device
    schedule = ""  # of the prepared run, for algorithms with several

    def __init__(
        self,
        comm,
        backend,
        problem: Task,
        inputs: Mapping[str, np.ndarray] | None,
        pinned: bool = True,
        transport: Transport | None = None,
    ):
        self.comm, self.backend, self.transport = comm, backend, transport
        # What ``close`` releases. Whatever acquires a resource adds its release at once.
        self.releases = contextlib.ExitStack()
        self.problem, self.operation, self.shape, self.pinned = problem, problem.operation, problem.shape, pinned
        self.dtype = problem.element.storage  # of arrays
        self.inputs = inputs or {}
        self.poison_value = no_result(problem.element.results.name, problem.operation.combination)
        self.result: dict[str, np.ndarray] = {}  # whole results, on rank 0
        self.late_runs = 0  # runs that were repeated because the host of some rank was late

    @property
    def transport_name(self) -> str:
        return self.transport.name if self.transport else ""

    def share(self, **arrays: Any) -> None:
        """Make arrays of this rank available to arrivals by name, until ``close``."""
        self.shares = arrays
        self.releases.callback(self.transport.unshare)
        for name, array in arrays.items():
            self.transport.share(name, array)

    def prepare(self, task: Task) -> Run:
        """Return a run of this rank's part; ``task`` is the whole problem with a variant."""
        raise NotImplementedError

    def poison(self) -> None:
        """Fill all outputs with a value that no run computes."""
        raise NotImplementedError

    def call(self, run: Run) -> dict[str, float]:
        """Run once end to end, from rank 0's inputs to rank 0's result; return this rank's seconds by phase."""
        raise NotImplementedError

    def save_inputs(self) -> None:
        """Save the inputs that ``kernel`` overwrites; called once after the first ``call`` and before ``kernel``."""

    def kernel(self, run: Run, cold: bool) -> float:
        """Run once on arrays in place, all ranks starting together; return the seconds on this rank."""
        raise NotImplementedError

    def clock(self, run: Run, seconds: float) -> float:
        """Return the clock [Hz] of the slowest device while a kernel of some seconds repeats; NaN if unknown."""
        return math.nan

    def fetch(self) -> None:
        """Gather the result of the last ``kernel`` on rank 0, outside any timing."""
        raise NotImplementedError

    def fetched(self, array: Any) -> np.ndarray:
        """Return a copy of an array on the device in host memory."""
        host = np.empty(array.shape, self.dtype)
        if host.size:
            self.backend.copy(array, host)
        return host

    def checksum(self) -> int:
        """Return a checksum of the bits of this rank's part of the last result, outside any timing."""
        arrays = self.arrays
        outputs = [operand.name for operand in self.operation.operands if operand.role != "in"]
        return functools.reduce(
            operator.xor, (self.backend.checksum(arrays[name]) for name in outputs if name in arrays), 0
        )

    @untimed
    def resources(self, task: Task) -> dict[str, float]:
        """Return the kernel's use of device resources, if a run is one kernel on one set of arrays."""
        return {}

    def pick(self, task: Task) -> str:
        """Return the rung and tile picked for the rank's part, if a run is one kernel on one set of arrays."""
        return ""

    def close(self) -> None:
        """Release all resources, the last one first; the object cannot be used afterwards, but closed again."""
        self.backend.synchronize()
        self.result = {}
        self.releases.close()


class OnDevices(Distribution):
    """Arrays that stay on the devices, where a run works on them: its end-to-end time is that of the kernel.

    A subclass sets ``received``, the arrays that a run writes, and ``rounds`` if a run repeats its work. One that only
    exchanges arrays sets ``exchange``, which does so once.
    """

    received: Sequence[Any]
    exchange: Callable[[], None]
    rounds = 1

    def prepare(self, task: Task) -> Run:
        return Run(lambda: [self.exchange() for _ in range(self.rounds)])

    @property
    def ends(self) -> list[str]:
        return [operand.name for role in ("in", "out") for operand in self.operation.operands if operand.role == role]

    def part_of(self, name: str, parts: BlockRows) -> np.ndarray:
        """Distribute an input of rank 0 by block rows; return this rank's part, in host memory."""
        whole = self.inputs.get(name)
        part = np.empty(parts.rows, self.dtype) if whole is None else parts.part_of(whole)
        parts.scatter(whole, part)
        return part

    def poison(self) -> None:
        for array in (*self.result.values(), *self.received):
            array.fill(self.poison_value)

    def restore(self) -> None:
        for array in self.received:
            array.fill(self.poison_value)
        self.backend.synchronize()
        self.comm.Barrier()

    def call(self, run: Run) -> dict[str, float]:
        """Run once and fetch the result; the time does not include the distribution of the inputs."""
        seconds = self.kernel(run, cold=False)
        self.fetch()
        return {"kernel": seconds, "total": seconds}

    def kernel(self, run: Run, cold: bool) -> float:
        """Run all rounds; return the seconds of one."""
        self.restore()
        return self.backend.seconds_alone(run, cold, self.arrays, QUEUE_SPINS) / self.rounds
