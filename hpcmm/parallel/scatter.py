"""The textbook algorithm: scatter block rows, broadcast the rest, compute, gather."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.model import Prepared, Variant
from hpcmm.parallel.block_rows import BlockRows, broadcast, combine
from hpcmm.parallel.distribution import Distribution


class Scatter(Distribution):
    """One operation's arrays over all ranks, and its call from rank 0's inputs to rank 0's result.

    Rank 0's inputs are never written, so every call starts from the same ones. Rank 0's own rows
    are views of its whole arrays where the device has memory of its own; where kernels work in the
    host's memory, what they overwrite is received into a copy. Parameters are those of ``Distribution``;
    what is exchanged goes by MPI on host memory, whatever the transport.
    """

    carried = ""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        comm, backend, operation, shape, dtype = self.comm, self.backend, self.operation, self.shape, self.dtype
        pinned = self.pinned
        self.rows = BlockRows(comm, shape[0])
        self.local_shape = (self.rows.rows, *shape[1:])
        self.sent: dict[str, np.ndarray] = {}  # host side of what arrives at this rank
        self.returned: dict[str, np.ndarray] = {}  # host side of what leaves it
        self.arrays: dict[str, np.ndarray] = {}  # what the kernel works on
        self.pristine: dict[str, np.ndarray] = {}  # what the kernel overwrites, as it was
        whole_size = dict(zip(operation.dimensions, shape, strict=True))
        local_size = dict(zip(operation.dimensions, self.local_shape, strict=True))
        for operand in operation.operands:
            name = operand.name
            whole_shape = tuple(whole_size[d] for d in operand.dimensions)
            if operand.distribution == "replicated":
                local = whole_shape
            else:
                local = tuple(local_size[d] for d in operand.dimensions)
            root = comm.rank == 0
            if operand.role != "in" and root:
                self.result[name] = backend.host_empty(whole_shape, dtype, pinned)
            if operand.role != "out":
                own = root and (operand.role == "in" or not backend.in_host_memory)
                if not own:
                    self.sent[name] = backend.host_empty(local, dtype, pinned)
                elif operand.distribution == "rows":
                    self.sent[name] = self.rows.part_of(self.inputs[name])
                else:
                    self.sent[name] = self.inputs[name]
            if backend.in_host_memory:
                self.arrays[name] = self.sent[name] if name in self.sent else backend.empty(local, dtype)
            else:
                self.arrays[name] = backend.empty(local, dtype)
            if operand.role == "inout":
                self.pristine[name] = backend.empty(local, dtype)
            if operand.role != "in":
                if backend.in_host_memory:
                    self.returned[name] = self.arrays[name]
                elif root and operand.distribution == "rows":
                    self.returned[name] = self.rows.part_of(self.result[name])
                else:
                    self.returned[name] = backend.host_empty(local, dtype, pinned)

    def prepare(self, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        """Return what runs ``variant`` on this rank's rows; nothing where it has no rows to return."""
        returns_rows = any(o.role != "in" and o.distribution == "rows" for o in self.operation.operands)
        if self.rows.rows == 0 and returns_rows:
            return lambda: None
        return self.backend.prepare(self.operation, variant, self.local_shape, self.dtype, parameters, self.arrays)

    def poison(self) -> None:
        """Fill every place that a result is going to be written to with what no result is."""
        for array in (*self.result.values(), *self.returned.values()):
            array.fill(self.poison_value)
        self._poison_outputs()

    def _poison_outputs(self) -> None:
        for operand in self.operation.operands:
            if operand.role == "out":
                self.arrays[operand.name].fill(self.poison_value)

    def call(self, run: Callable[[], None]) -> dict[str, float]:
        """Do the whole call once.

        Returns
        -------
        dict
            Seconds of each phase on this rank. A barrier ends each phase, so that a phase's time is
            its own and not the wait for a rank that is still in the one before.
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
                    broadcast(self.comm, self.sent[operand.name])
            clock("broadcast")
        if moves:
            for name, array in self.sent.items():
                self.backend.copy(array, self.arrays[name])
            clock("upload")
        pitched = isinstance(run, Prepared) and run.before is not None
        if pitched:
            run.before()
            self.backend.synchronize()
            clock("pitch")
        kernel = self.backend.seconds(run)
        clock("kernel")
        if pitched:
            run.after()
            self.backend.synchronize()
            clock("pitch")
        if moves:
            for name, array in self.returned.items():
                self.backend.copy(self.arrays[name], array)
            clock("download")
        self._bring_back()
        clock("gather")
        seconds["kernel"] = kernel
        return seconds

    def _phases(self, seconds: dict[str, float]) -> Callable[[str], None]:
        """Return the clock that ends a phase, and keeps the total up to it."""
        self.comm.Barrier()
        start = last = time.perf_counter()

        def clock(phase: str) -> None:
            nonlocal last
            done = time.perf_counter()
            self.comm.Barrier()
            seconds[phase] = seconds.get(phase, 0.0) + done - last
            last = time.perf_counter()
            seconds["total"] = last - start

        return clock

    def _bring_back(self) -> None:
        for operand in self.operation.operands:
            if operand.distribution == "combined":
                part, whole = self.returned[operand.name], self.result.get(operand.name)
                combine(self.comm, part, whole, self.operation.combination)
            elif operand.role != "in":
                self.rows.gather(self.returned[operand.name], self.result.get(operand.name))

    def keep(self) -> None:
        """Put what the kernel will overwrite aside; call it after a first ``call``, before ``kernel``."""
        for name, array in self.pristine.items():
            if self.backend.in_host_memory:
                self.rows.scatter(self.inputs.get(name), self.sent[name])
            self.backend.copy(self.sent[name], array)

    def restore(self) -> None:
        """Give the kernel the arrays as they were before it ran: no result of an earlier run is left."""
        for name, array in self.pristine.items():
            self.backend.copy(array, self.arrays[name])
        self._poison_outputs()

    def kernel(self, run: Callable[[], None], cold: bool) -> float:
        """Run the kernel alone on arrays in place; all ranks start together. Returns seconds."""
        self.restore()
        pitched = isinstance(run, Prepared) and run.before is not None
        if pitched:
            run.before()
        self.comm.Barrier()
        seconds = self.backend.seconds_alone(run, cold, self.arrays)
        if pitched:
            run.after()
        return seconds

    def fetch(self) -> None:
        """Bring the arrays of the last run back to rank 0, outside any timing."""
        for name, array in self.returned.items():
            if not self.backend.in_host_memory:
                self.backend.copy(self.arrays[name], array)
        self._bring_back()

    def resources(self, variant: Variant, parameters: Mapping[str, float]) -> dict[str, float]:
        return self.backend.resources(self.operation, variant, self.local_shape, self.dtype, parameters, self.arrays)
