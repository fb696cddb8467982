"""What measuring asks of an algorithm, and what products on data in place have in common."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcmm.model import Algorithm, Operation, Variant
from hpcmm.operations.reduction import identity
from hpcmm.parallel.block_rows import BlockRows
from hpcmm.parallel.schedules import column_panels
from hpcmm.parallel.transports import Transport

LEAD = 4  # spin kernels ahead of a product with exchanges, whose launches take the host longer to queue
PATIENCE = 2.0  # seconds of runs after which no other schedule is tried


def no_result(dtype: str, combination: str) -> float:
    """Return what stands for a missing result, and shows after MPI's combination with those of other ranks.

    That is NaN or the least integer; for a minimum or maximum what beats any number, as NaN need not.
    """
    if combination == "minimum":
        return identity("maximum", dtype)
    if combination == "maximum":
        return identity("minimum", dtype)
    return np.iinfo(dtype).min if dtype.startswith("int") else np.nan


class Distribution:
    """One problem's arrays over all ranks, worked on by one algorithm.

    All methods are collective. Rank 0's inputs are never written.

    Parameters
    ----------
    comm : MPI.Comm
    backend : CpuBackend or CudaBackend
    operation : Operation
    shape : tuple of int
        Of the whole problem.
    dtype : str
    inputs : mapping of str to ndarray, or None
        The whole input arrays on rank 0; None on other ranks.
    pinned : bool
        Whether host memory is page-locked, where the device has memory of its own.
    transport : Transport
        What carries exchanges between the ranks, for those that have any.
    """

    schedule = ""  # by which a prepared call goes, where there are several, as it is recorded

    def __init__(
        self,
        comm: MPI.Comm,
        backend,
        operation: Operation,
        shape: tuple[int, ...],
        dtype: str,
        inputs: Mapping[str, np.ndarray] | None,
        pinned: bool = True,
        transport: Transport | None = None,
    ):
        self.comm, self.backend, self.transport = comm, backend, transport
        self.operation, self.shape, self.dtype, self.pinned = operation, shape, dtype, pinned
        self.inputs = inputs or {}
        self.poison_value = no_result(dtype, operation.combination)
        self.result: dict[str, np.ndarray] = {}  # whole results, on rank 0

    @property
    def carried(self) -> str:
        """What carries this algorithm's exchanges, as it is recorded."""
        return self.transport.name if self.transport else ""

    def prepare(self, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        """Return what runs this rank's part with ``variant`` once."""
        raise NotImplementedError

    def poison(self) -> None:
        """Fill every place that a result is going to be written to with what no result is."""
        raise NotImplementedError

    def call(self, run: Callable[[], None]) -> dict[str, float]:
        """Go once from rank 0's inputs to rank 0's result; return the seconds of each phase on this rank."""
        raise NotImplementedError

    def keep(self) -> None:
        """Prepare for ``kernel``, after a first ``call``."""

    def kernel(self, run: Callable[[], None], cold: bool) -> float:
        """Run alone on data in place; all ranks start together. Returns seconds on this rank."""
        raise NotImplementedError

    def fetch(self) -> None:
        """Bring the result of the last ``kernel`` to rank 0, outside any timing."""
        raise NotImplementedError

    def resources(self, variant: Variant, parameters: Mapping[str, float]) -> dict[str, float]:
        """What a kernel takes of a device, where a call is one kernel on one set of arrays."""
        return {}

    def close(self) -> None:
        """Give up what other ranks or the driver know of the arrays; the object is of no use afterwards."""


def distribute(algorithm: Algorithm, *arguments: Any, **options: Any) -> Distribution:
    """Place a problem for an algorithm: the class of its name in the module of its name."""
    module = importlib.import_module(f"hpcmm.parallel.{algorithm.name}")
    name = "".join(word.capitalize() for word in algorithm.name.split("_"))
    return getattr(module, name)(*arguments, **options)


class Scheduled(Distribution):
    """A product whose work can be done in several orders, of which it takes the fastest here."""

    def schedules(self) -> dict[str, Any]:
        """The orders in which the work can be done, by name; the likeliest to be the fastest first.

        They are the same on all ranks.
        """
        raise NotImplementedError

    def follow(self, schedule: Any, variant: Variant, parameters: Mapping[str, float]) -> Any:
        """Return what does this rank's part once by one of ``schedules``."""
        raise NotImplementedError

    def attempt(self, run: Any) -> float:
        """Do what ``follow`` returned once; seconds on this rank."""
        raise NotImplementedError

    def prepare(self, variant: Variant, parameters: Mapping[str, float]) -> Any:
        """Return what goes by the schedule that was the fastest on the slowest rank.

        All are run, and the faster half of those again, until one is left or ``PATIENCE`` is at its end.
        """
        schedules = self.schedules()
        seconds, spent, left = dict.fromkeys(schedules, math.inf), 0.0, list(schedules)
        while len(left) > 1 and spent < PATIENCE:
            for name in left:
                run = self.follow(schedules[name], variant, parameters)
                for _ in range(2):  # the first may load kernels
                    if spent < PATIENCE:
                        taken = self.comm.allreduce(self.attempt(run), op=MPI.MAX)
                        seconds[name] = min(seconds[name], taken)
                        spent += taken
            left = sorted(seconds, key=seconds.get)[: len(left) // 2]
        self.schedule = left[0]
        return self.follow(schedules[self.schedule], variant, parameters)

    def local(
        self, variant: Variant, parameters: Mapping[str, float], a, b, c, first: bool, panels: int = 1
    ) -> Callable[[], None]:
        """Return what adds alpha a b to c, or to beta c if it is the ``first`` to do so, by panels of columns."""
        (rows, columns), terms = c.shape, a.shape[1]
        if 0 in (rows, columns, terms):
            return lambda: None
        parameters = {**parameters, "beta": parameters["beta"] if first else 1.0}
        products = []
        for column, width in column_panels(columns, panels):
            panel = slice(column, column + width)
            arrays = {"A": a, "B": b[:, panel], "C": c[:, panel]}
            shape = (rows, width, terms)
            products.append(self.backend.prepare(self.operation, variant, shape, self.dtype, parameters, arrays))

        def run() -> None:
            for product in products:
                product()

        return run


class ProductInPlace(Scheduled):
    """A product of blocks that are on the devices before it starts and stay there.

    A subclass says in ``place`` which blocks this rank has, sets ``c`` and ``kept_c`` (C and what it was
    before the product) there, and adds ``schedules``, ``follow``, ``received``, ``arrays`` and ``fetch``.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        m, n, _ = self.shape
        if self.comm.rank == 0:
            self.result["C"] = np.empty((m, n), self.dtype)
        self.place()
        self.backend.synchronize()
        self.comm.Barrier()  # others may read from here on

    def place(self) -> None:
        raise NotImplementedError

    @property
    def arrays(self) -> dict[str, Any]:
        """All that the computation touches, for those who empty caches."""
        raise NotImplementedError

    def received(self) -> list:
        """The places where what belongs to other ranks arrives."""
        raise NotImplementedError

    def panels_of_columns(self, columns: int) -> dict[str, int]:
        """The schedules of those who only choose whether a local product is cut into two panels of columns.

        For a large product two calls of a library can be faster than one.
        """
        counts = {"columns whole": 1, "columns in halves": 2}
        return {name: count for name, count in counts.items() if len(column_panels(columns, count)) == count}

    def poison(self) -> None:
        for array in self.result.values():
            array.fill(self.poison_value)

    def restore(self) -> None:
        """C as it was before any product, and nothing of what arrived for an earlier one."""
        if self.c.size:
            self.backend.copy(self.kept_c, self.c)
        for array in self.received():
            array.fill(self.poison_value)
        self.backend.synchronize()
        self.comm.Barrier()

    def call(self, run: Callable[[], None]) -> dict[str, float]:
        """Run once on data in place and fetch the result: the way here is no part of these algorithms."""
        self.restore()
        begin = time.perf_counter()
        kernel = self.backend.seconds(run)
        computed = time.perf_counter()
        self.fetch()
        end = time.perf_counter()
        return {"kernel": kernel, "gather": end - computed, "total": end - begin}

    def kernel(self, run: Callable[[], None], cold: bool) -> float:
        self.restore()
        return self.backend.seconds_alone(run, cold, self.arrays, LEAD)

    def attempt(self, run: Callable[[], None]) -> float:
        return self.kernel(run, cold=False)

    def close(self) -> None:
        self.transport.unshare()


class RowsInPlace(ProductInPlace):
    """A, B and C by block rows. A subclass places B's in ``place_b``."""

    def place(self) -> None:
        m, n, k = self.shape
        self.rows, self.terms = BlockRows(self.comm, m), BlockRows(self.comm, k)
        rows = self.rows.rows
        self.a = self.placed("A", self.rows, self.backend.empty((rows, k), self.dtype))
        self.kept_c = self.placed("C", self.rows, self.backend.empty((rows, n), self.dtype))
        self.c = self.backend.empty((rows, n), self.dtype)
        self.place_b()

    def place_b(self) -> None:
        raise NotImplementedError

    def placed(self, name: str, blocks: BlockRows, target):
        """Scatter an input's block rows into ``target`` on each rank's device."""
        whole = self.inputs.get(name)
        part = np.empty(target.shape, self.dtype) if whole is None else blocks.part_of(whole)
        blocks.scatter(whole, part)
        if part.size:
            self.backend.copy(part, target)
        return target

    @property
    def arrays(self) -> dict[str, Any]:
        return {"A": self.a, "B": self.b, "C": self.c}

    def fetch(self) -> None:
        part = np.empty(self.c.shape, self.dtype)
        if part.size:
            self.backend.copy(self.c, part)
        self.rows.gather(part, self.result.get("C"))
