"""The reduction of a vector that lies on the devices: each rank reduces its part, then all combine their results.

The combination leaves the result on every device, as a program that goes on computing there would want it. NCCL
combines in the stream; any other transport takes the one number through host memory and MPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.model import Variant
from hpcmm.parallel.block_rows import BlockRows
from hpcmm.parallel.distribution import LEAD, Distribution


class AllReduce(Distribution):
    """A part of the vector and the whole's result on each device."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        backend, dtype = self.backend, self.dtype
        parts = BlockRows(self.comm, self.shape[0])
        whole = self.inputs.get("x")
        part = np.empty(parts.rows, dtype) if whole is None else parts.part_of(whole)
        parts.scatter(whole, part)
        self.local_shape = (parts.rows,)
        self.arrays = {"x": backend.empty(self.local_shape, dtype), "result": backend.empty((), dtype)}
        if part.size:
            backend.copy(part, self.arrays["x"])
        if self.comm.rank == 0:
            self.result["result"] = np.empty((), dtype)

    @property
    def carried(self) -> str:
        return self.transport.reduces if self.comm.size > 1 else ""

    def prepare(self, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        arguments = (self.operation, variant, self.local_shape, self.dtype, parameters, self.arrays)
        reduce = self.backend.prepare(*arguments)

        def run() -> None:
            reduce()
            self.transport.all_reduce(self.arrays["result"], self.operation.combination)

        return run

    def poison(self) -> None:
        for array in (*self.result.values(), self.arrays["result"]):
            array.fill(self.poison_value)

    def call(self, run: Callable[[], None]) -> dict[str, float]:
        """Run once and fetch the result: the way here is no part of the algorithm."""
        seconds = self.kernel(run, cold=False)
        self.fetch()
        return {"kernel": seconds, "total": seconds}

    def kernel(self, run: Callable[[], None], cold: bool) -> float:
        self.arrays["result"].fill(self.poison_value)
        self.backend.synchronize()
        self.comm.Barrier()
        return self.backend.seconds_alone(run, cold, self.arrays, LEAD)

    def fetch(self) -> None:
        host = np.empty((), self.dtype)
        self.backend.copy(self.arrays["result"], host)
        if self.comm.rank == 0:
            self.result["result"][...] = host
