"""The product from host memory to host memory; all transfers overlap with each other and with the product."""

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import BlockRows, mpi
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import Scheduled, is_product, local_rows
from hpcmm.parallel.schedules import Tiling, block_row, tilings
from hpcmm.parallel.transports.base import Arrival, TransportError, on_all_ranks

SHARED_MEMORY = "/dev/shm"


class SharedArrays:
    """Arrays in memory that all ranks of a node share.

    Each rank writes its block of rows first, so that first touch places the pages near the rank that moves them. Raise
    TransportError on every rank, if the ranks are on several nodes or there is too little shared memory.
    """

    def __init__(self, comm, shapes: Mapping[str, tuple[int, int]], dtype: str):
        MPI = mpi()
        self.windows: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        try:
            if not comm.allreduce(node.size == comm.size, op=MPI.LAND):
                raise TransportError("the ranks are on several nodes")
            needed = sum(math.prod(shape) for shape in shapes.values()) * np.dtype(dtype).itemsize
            filesystem = os.statvfs(SHARED_MEMORY)
            free = comm.bcast(filesystem.f_bavail * filesystem.f_frsize, root=0)
            if needed > 0.95 * free:
                raise TransportError(f"{SHARED_MEMORY}: {needed / 2**30:.3g} GiB needed, {free / 2**30:.3g} GiB free")
            for name, shape in shapes.items():  # all ranks receive the window, or all raise an error
                size = math.prod(shape) * np.dtype(dtype).itemsize if comm.rank == 0 else 0
                window = on_all_ranks(comm, lambda size=size: MPI.Win.Allocate_shared(size, comm=node))
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
        """Free the memory; the arrays must not be accessed afterwards."""
        self.arrays = {}
        for window in self.windows:
            window.Free()


class Tile(NamedTuple):
    """A tile of this rank's C: in host memory before and after the product, on the device, and the product."""

    before: np.ndarray
    after: np.ndarray
    c: Any
    product: Callable[[], None]


class Step(NamedTuple):
    source: np.ndarray
    target: Any
    exchanges: list
    tiles: list[Tile]


def extent(first: int, count: int) -> slice:
    return slice(first, first + count)


class Staged(Scheduled):
    """Rank 0's matrices in shared host memory, and each rank's share on its device, in tiles."""

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
            self.releases.callback(self.shared.free)
        except TransportError as error:
            self.shared = None
            self._report(f"no shared host memory ({error}); rank 0 sends each rank its share by MPI")
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
                self.result["C"] = backend.host_empty((m, n), dtype, False)
        self.a = backend.empty((rows, k), dtype)
        self.b = backend.shared_empty((k * n,), dtype)  # one row-major panel after the other
        self.c = backend.empty((rows * n,), dtype)
        self.arrays = {"A": self.a, "B": self.b, "C": self.c}
        self.share(B=self.b)
        self.upload, self.download = backend.stream(), backend.stream()

    def _page_lock(self) -> None:
        """Page-lock this rank's shares; if the system forbids it, the driver stages the copies."""

        def register() -> None:
            for array in self.host.values():
                if array.size:
                    self.backend.register(array)
                    self.releases.callback(self.backend.unregister, array)

        try:
            on_all_ranks(self.comm, register)
        except TransportError as error:
            self._report(f"rank 0's memory is not page-locked: {error}")

    def _report(self, text: str) -> None:
        if self.comm.rank == 0:
            print(f"staged: {text}", file=sys.stderr, flush=True)

    def schedules(self) -> dict[str, Tiling]:
        m, n, _ = self.shape
        return tilings(m, n, self.comm.size)

    def prepare_schedule(self, schedule: Tiling, task: Task) -> Run:
        self.reads_c = task.scalars["beta"] != 0
        steps: list[Step] = []

        def tile(part: tuple[int, int], panel: tuple[int, int]) -> Tile:
            rows, columns = extent(*part), extent(*panel)
            c = self._panel(self.c, columns)[rows]
            product = self.local_product(task, self.a[rows], self._panel(self.b, columns), c, first=True)
            return Tile(self.host["C"][rows, columns], self.host["result"][rows, columns], c, product)

        for matrix, arrived, tiles in schedule.arrivals():
            part = extent(*arrived)
            if matrix == "A":  # the last part is shorter on a rank with fewer rows
                upload = self.host["A"][part], self.a[part], []
            else:
                own = self._panel(self.b, part)[self._rows_of(self.comm.rank)]
                upload = self.host["B"][:, part], own, self._exchanges(part)
            steps.append(Step(*upload, [tile(*each) for each in tiles]))
        return Run(functools.partial(self._pipeline, steps))

    def _exchanges(self, columns: slice) -> list:
        rank, size = self.comm.rank, self.comm.size
        panel, steps = self._panel(self.b, columns), []
        begin, width = panel.shape[0] * columns.start, panel.shape[1]
        for step in range(1, size):
            source, destination = (rank + step) % size, (rank - step) % size
            rows = self._rows_of(source)
            place = slice(begin + rows.start * width, begin + rows.stop * width)
            steps.append(([Arrival(source, "B", place, panel[rows])], [(destination, panel[self._rows_of(rank)])]))
        return steps

    def _panel(self, memory, columns: slice):
        """Return a panel of columns of B or C; the memory holds one row-major panel after the other."""
        rows = memory.size // self.shape[1]
        return memory[rows * columns.start : rows * columns.stop].reshape(rows, columns.stop - columns.start)

    def poison(self) -> None:
        for array in (*self.result.values(), self.a, self.b, self.c):
            array.fill(self.poison_value)
        if not self.shared:
            for array in self.host.values():
                array.fill(self.poison_value)
        self.backend.synchronize()
        self.comm.Barrier()

    def time_once(self, run: Run) -> float:
        return self.call(run)["total"]

    def call(self, run: Run) -> dict[str, float]:
        return run()

    def _pipeline(self, steps: list[Step]) -> dict[str, float]:
        """Run once end to end. Phases overlap; the seconds of each are only its own work."""
        backend, transport, comm = self.backend, self.transport, self.comm
        seconds = {}
        comm.Barrier()
        begin = time.perf_counter()
        if not self.shared:
            for name in ("A", "B", "C") if self.reads_c else ("A", "B"):
                self.blocks[name].scatter(self.inputs.get(name), self.host[name])
            seconds["scatter"] = time.perf_counter() - begin

        first = backend.mark(self.upload)
        uploaded, ready = [], []  # events of each step, and of each tile
        for step in steps:
            backend.copy_async(step.source, step.target, self.upload)
            uploaded.append(backend.mark(self.upload))
            for tile in step.tiles:
                if self.reads_c:
                    backend.copy_async(tile.before, tile.c, self.upload)
                ready.append(backend.mark(self.upload))

        computed, downloaded = [], []
        for step, arrived in zip(steps, uploaded, strict=True):
            if step.exchanges:
                transport.fence(arrived)
                for ticket in [transport.start(*exchange, arrived) for exchange in step.exchanges]:
                    transport.wait(ticket)
            for tile in step.tiles:
                backend.wait(ready[len(computed)])
                computed.append([backend.mark()])
                tile.product()
                computed[-1].append(backend.mark())
                backend.wait(computed[-1][1], self.download)
                downloaded.append([backend.mark(self.download)])
                backend.copy_async(tile.c, tile.after, self.download)
                downloaded[-1].append(backend.mark(self.download))
        backend.finish(downloaded[-1][1])
        done = time.perf_counter()
        if not self.shared:
            self.rows.gather(self.host["result"], self.result.get("C"))
            seconds["gather"] = time.perf_counter() - done
        comm.Barrier()
        seconds["total"] = time.perf_counter() - begin
        if not backend.in_host_memory:
            seconds["upload"] = backend.elapsed(first, ready[-1])
            seconds["download"] = sum(backend.elapsed(*marks) for marks in downloaded)
        seconds["kernel"] = sum(backend.elapsed(*marks) for marks in computed)
        return seconds

    def _rows_of(self, rank: int) -> slice:
        return extent(*self.terms.blocks[rank])


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: all of B and no second C; rank 0 also counts the matrices that the node shares."""
    m, n, k = shape
    rows, _ = local_rows(shape, ranks, rank)
    shared = m * k + k * n + m * n if rank == 0 else 0
    return Need(rows * k + k * n + rows * n, 0, whole_elements(operation, shape, rank) + shared)


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict the fastest tiling; uploads, gathers, products and downloads have one queue each.

    Uploads and downloads also share the memory of the host, so all of them take at least the sum of their times.
    """
    if not {"upload", "download"} <= set(machine.moves):
        return math.nan
    m, n, k = shape
    _, terms = block_row(k, ranks, 0)
    up, down, ends = machine.moves["upload"], machine.moves["download"], []
    for tiling in tilings(m, n, ranks).values():
        uploaded = gathered = multiplied = downloaded = copies = 0.0
        for matrix, (_, count), tiles in tiling.arrivals():
            uploaded += up(count * (k if matrix == "A" else terms) * itemsize)
            if matrix == "B":
                gathered = max(gathered, uploaded) + (ranks - 1) * machine.exchange(terms * count * itemsize)
            for (_, height), (_, width) in tiles:
                uploaded += up(height * width * itemsize)
                multiplied = max(multiplied, gathered, uploaded) + machine.local(2 * height * width * k)
                downloaded = max(downloaded, multiplied) + down(height * width * itemsize)
                copies += down(height * width * itemsize)
        ends.append(max(downloaded, uploaded + copies))
    return min(ends)


STAGED = Algorithm(
    "staged",
    "each rank moves only its share between the memory of rank 0 and its device; copies, exchanges and products "
    "overlap, tile by tile",
    distribution=Staged,
    suits=is_product,
    need=need,
    predict=predict,
    measures=("call",),
)
