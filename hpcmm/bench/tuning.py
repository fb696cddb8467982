"""Time the builds of a product's kernels over a grid of shapes, for the table by which ``best`` picks."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcmm.backends.base import Backend
from hpcmm.model import DeviceError, Operation, Task
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations import trials
from hpcmm.operations.choice import builds
from hpcmm.operations.shapes import KINDS, of_kind
from hpcmm.operations.tables import Entry

PLASTIC = 1.2207440846057596  # root of x^4 = x + 1; its powers spread points evenly over three dimensions
# Multiply-adds of a shape of the grid, by bytes of an element, so that a run takes about 1 ms at most. Longer runs
# would cost ``turns.ALONE`` seconds for each build.
MOST_WORK = {1: 3e11, 2: 3e11, 4: 3e10, 8: 3e10}


def grid() -> Iterator[tuple[tuple[int, int, int], float]]:
    """Yield shapes of each kind and beta without end.

    Their logarithms are evenly spread (Roberts' sequence), so that the first shapes of each kind already cover its
    range. Every fourth product reads C.
    """
    number = 0
    while True:
        number += 1
        point = ((0.5 + number / PLASTIC**power) % 1 for power in (1, 2, 3))
        yield of_kind(KINDS[number % 3], *point), 0.5 if number // 3 % 4 == 3 else 0.0


class Tuner:
    """Times the builds of an operation's kernels on a device; ``variant`` picks among them."""

    def __init__(self, backend: Backend, operation: Operation, variant: str, dtype: str):
        self.backend, self.operation, self.dtype = backend, operation, dtype
        self.variant = operation.variant(variant)
        self.operands = trials.Operands(backend)

    def task(self, shape: Sequence[int], beta: float) -> Task:
        scalars = {"alpha": 1.0, "beta": beta}
        return self.backend.placed(Task(self.operation, self.variant, tuple(shape), self.dtype, scalars))

    def fits(self, shape: Sequence[int]) -> bool:
        return math.prod(shape) <= MOST_WORK[DTYPES[self.dtype].itemsize]

    def compile_ahead(self, shapes: Sequence[tuple[Sequence[int], float]], threads: int) -> None:
        tasks = [build.task for shape, beta in shapes for build in builds(self.task(shape, beta))]
        self.backend.compile_ahead(tasks, threads)

    def entry(self, shape: Sequence[int], beta: float) -> Entry:
        task = self.task(shape, beta)
        able = builds(task)
        seconds = trials.timed(self.backend, able, self.operands.of(task))
        if not seconds:
            raise DeviceError(f"{'x'.join(map(str, shape))} {self.dtype}: no build runs on this GPU")
        every = {build.name for build in builds(replace(task, shape=()))}
        return Entry(tuple(shape), beta, seconds, every - {build.name for build in able})


def tune(tuner: Tuner, seconds: float) -> Iterator[Entry]:
    end = time.perf_counter() + seconds
    for shape, beta in grid():
        if time.perf_counter() > end:
            return
        if tuner.fits(shape):
            yield tuner.entry(shape, beta)
