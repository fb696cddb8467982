"""The product from host memory to host memory, with everything that moves overlapping.

On one node, rank 0's matrices lie in memory that all ranks share, and each rank moves only its own share
between it and its device, over its own link: rows of A and C, and one part of B, which the devices then gather
from each other. Columns of B and C are taken in panels: while one is multiplied, the next is uploaded and
gathered and the one before is downloaded. Over several nodes, or where the shared memory is too small, rank 0
first sends each rank its share by MPI; from there on all is the same.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
from mpi4py import MPI

from hpcmm.model import Variant
from hpcmm.parallel.block_rows import BlockRows
from hpcmm.parallel.distribution import Distribution
from hpcmm.parallel.schedules import column_panels
from hpcmm.parallel.transports import Arrival, TransportError, together

SHARED_MEMORY = "/dev/shm"


class SharedArrays:
    """Arrays in memory that all ranks of a node share.

    Each rank touches its block of rows first, so that its pages lie near the rank that moves them.

    Raises
    ------
    TransportError
        On every rank, if the ranks are on several nodes or there is too little of such memory.
    """

    def __init__(self, comm: MPI.Comm, shapes: Mapping[str, tuple[int, int]], dtype: str):
        self.windows: list[MPI.Win] = []
        self.arrays: dict[str, np.ndarray] = {}
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        try:
            if not comm.allreduce(node.size == comm.size, op=MPI.LAND):
                raise TransportError("the ranks are on several nodes")
            needed = sum(math.prod(shape) for shape in shapes.values()) * np.dtype(dtype).itemsize
            disk = os.statvfs(SHARED_MEMORY)
            free = comm.bcast(disk.f_bavail * disk.f_frsize, root=0)
            if needed > 0.95 * free:
                raise TransportError(f"{SHARED_MEMORY} has {free / 2**30:.3g} GiB free of {needed / 2**30:.3g} needed")
            for name, shape in shapes.items():  # together() has all ranks go on or fail
                size = math.prod(shape) * np.dtype(dtype).itemsize if comm.rank == 0 else 0
                window = together(comm, lambda size=size: MPI.Win.Allocate_shared(size, comm=node))
                self.windows.append(window)
                memory, _ = window.Shared_query(0)
                array = np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)
                BlockRows(comm, shape[0]).part_of(array).fill(0)
                self.arrays[name] = array
            comm.Barrier()
        except TransportError:
            self.free()
            raise
        finally:
            node.Free()

    def free(self) -> None:
        """Give the memory back; the arrays must not be touched any more."""
        self.arrays = {}
        for window in self.windows:
            window.Free()


class Staged(Distribution):
    """Rank 0's matrices where all ranks reach them, and each rank's share on its device in panels."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        comm, backend, dtype = self.comm, self.backend, self.dtype
        m, n, k = self.shape
        self.rows, self.terms = BlockRows(comm, m), BlockRows(comm, k)
        rows = self.rows.rows
        whole = {"A": (m, k), "B": (k, n), "C": (m, n), "result": (m, n)}
        self.blocks = {name: self.terms if name == "B" else self.rows for name in whole}
        try:
            self.shared = SharedArrays(comm, whole, dtype)
        except TransportError as error:
            self.shared = None
            if comm.rank == 0:
                print(f"staged: rank 0 sends each rank its share by MPI: {error}", file=sys.stderr, flush=True)
        self.registered = []
        if self.shared:
            self.host = {name: self.blocks[name].part_of(array) for name, array in self.shared.arrays.items()}
            if comm.rank == 0:
                for name, array in self.inputs.items():
                    np.copyto(self.shared.arrays[name], array)
                self.result["C"] = self.shared.arrays["result"]
            if self.pinned:
                self._page_lock()
        else:
            self.host = {
                name: backend.host_empty((self.blocks[name].rows, shape[1]), dtype, self.pinned)
                for name, shape in whole.items()
            }
            if comm.rank == 0:
                self.result["C"] = np.empty((m, n), dtype)
        self.a = backend.empty((rows, k), dtype)
        self.panels = column_panels(n)
        self.b = [backend.shared_empty((k, width), dtype) for _, width in self.panels]
        self.c = [backend.empty((rows, width), dtype) for _, width in self.panels]
        self.upload, self.download = backend.stream(), backend.stream()
        self.exchanges = []  # of each panel, what arrives and what leaves in each step
        for number, panel in enumerate(self.b):
            self.transport.share(f"B{number}", panel)
            own, steps = panel[self._rows_of(comm.rank)], []
            for step in range(1, comm.size):
                source, destination = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
                part = self._rows_of(source)
                steps.append(([Arrival(source, f"B{number}", part, panel[part])], [(destination, own)]))
            self.exchanges.append(steps)

    def _page_lock(self) -> None:
        """Let the devices reach this rank's shares directly; where the system forbids it, copies take a detour."""

        def register() -> None:
            for array in self.host.values():
                if array.size:
                    self.backend.register(array)
                    self.registered.append(array)

        try:
            together(self.comm, register)
        except TransportError as error:
            if self.comm.rank == 0:
                print(f"staged: rank 0's memory is not page-locked: {error}", file=sys.stderr, flush=True)

    def prepare(self, variant: Variant, parameters: Mapping[str, float]) -> list[Callable[[], None]]:
        """Return what multiplies each panel; ``call`` has it run."""
        self.reads_c = parameters["beta"] != 0
        products = []
        for b, c in zip(self.b, self.c, strict=True):
            shape = (c.shape[0], c.shape[1], self.a.shape[1])
            arrays = {"A": self.a, "B": b, "C": c}
            if 0 in shape:
                products.append(lambda: None)
            else:
                products.append(self.backend.prepare(self.operation, variant, shape, self.dtype, parameters, arrays))
        return products

    def poison(self) -> None:
        for array in (*self.result.values(), self.a, *self.b, *self.c):
            array.fill(self.poison_value)
        if not self.shared:
            for array in self.host.values():
                array.fill(self.poison_value)
        self.backend.synchronize()
        self.comm.Barrier()

    def call(self, run: list[Callable[[], None]]) -> dict[str, float]:
        """Do the whole call once. Where phases overlap, each one's time is that of its own work."""
        backend, transport, comm = self.backend, self.transport, self.comm
        seconds = {}
        comm.Barrier()
        begin = time.perf_counter()
        if not self.shared:
            for name in ("A", "B", "C") if self.reads_c else ("A", "B"):
                self.blocks[name].scatter(self.inputs.get(name), self.host[name])
            seconds["scatter"] = time.perf_counter() - begin

        first = backend.mark(self.upload)
        own, shared, uploaded = self._rows_of(comm.rank), [], []
        for number, ((column, width), b, c) in enumerate(zip(self.panels, self.b, self.c, strict=True)):
            columns = slice(column, column + width)
            backend.copy_async(self.host["B"][:, columns], b[own], self.upload)
            shared.append(backend.mark(self.upload))
            if number == 0:  # it arrives while the first panel of B is gathered
                backend.copy_async(self.host["A"], self.a, self.upload)
            if self.reads_c:
                backend.copy_async(self.host["C"][:, columns], c, self.upload)
            uploaded.append(backend.mark(self.upload))

        computed, downloaded = [], []
        for number, ((column, width), c, product) in enumerate(zip(self.panels, self.c, run, strict=True)):
            transport.settle(shared[number])
            for ticket in [transport.start(*step, shared[number]) for step in self.exchanges[number]]:
                transport.wait(ticket)
            backend.wait(uploaded[number])
            computed.append([backend.mark()])
            product()
            computed[-1].append(backend.mark())
            backend.wait(computed[-1][1], self.download)
            downloaded.append([backend.mark(self.download)])
            backend.copy_async(c, self.host["result"][:, column : column + width], self.download)
            downloaded[-1].append(backend.mark(self.download))
        backend.finish(downloaded[-1][1])
        done = time.perf_counter()
        if not self.shared:
            self.rows.gather(self.host["result"], self.result.get("C"))
            seconds["gather"] = time.perf_counter() - done
        comm.Barrier()
        seconds["total"] = time.perf_counter() - begin
        if not backend.in_host_memory:
            seconds["upload"] = backend.elapsed(first, uploaded[-1])
            seconds["download"] = sum(backend.elapsed(*marks) for marks in downloaded)
        seconds["kernel"] = sum(backend.elapsed(*marks) for marks in computed)
        return seconds

    def _rows_of(self, rank: int) -> slice:
        start, count = self.terms.blocks[rank]
        return slice(start, start + count)

    def close(self) -> None:
        self.transport.unshare()
        self.backend.synchronize()
        for array in self.registered:
            self.backend.unregister(array)
        self.host, self.result, self.registered = {}, {}, []
        if self.shared:
            self.shared.free()
