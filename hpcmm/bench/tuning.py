"""Time the builds of a product's kernels over a grid of shapes, for the table by which ``best`` picks."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hpcmm.backends.base import Backend
from hpcmm.model import DeviceError, Operation, Task
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations.builds import builds
from hpcmm.operations.tables import PROMISING, Entry

PLASTIC = 1.2207440846057596  # root of x^4 = x + 1; its powers spread points evenly over three dimensions
SMALLEST, LARGEST = 16, 10240  # sides of products of any size, and of multiples of 64
LAYER = 2048, 8192  # inputs of a layer; outputs are up to four times as many
MOST_WORK = {1: 3e11, 2: 3e11, 4: 1e11, 8: 1e11}  # multiply-adds of a shape of the grid, by bytes of an element
LEAST_ROUNDS, MOST_ROUNDS, ROUND_SECONDS = 3, 7, 20e-3  # rounds in which the builds of a shape take turns
PIECE = 1 << 22  # random elements; longer operands repeat them
ALIGNMENT = 256  # elements at multiples of which an operand starts


def grid() -> Iterator[tuple[tuple[int, int, int], float]]:
    """Yield shapes and beta without end: any size, multiples of 64, and few rows of a layer, in turns.

    Their logarithms are evenly spread (Roberts' sequence), so that the first shapes of each kind already cover its
    range. Every fourth product reads C.
    """
    number = 0
    while True:
        number += 1
        x, y, z = ((0.5 + number / PLASTIC**power) % 1 for power in (1, 2, 3))
        low, high = math.log2(SMALLEST), math.log2(LARGEST)
        if number % 3 == 0:
            shape = tuple(round(2 ** (low + (high - low) * each)) for each in (x, y, z))
        elif number % 3 == 1:
            shape = tuple(64 * max(1, round(2 ** ((high - 6) * each))) for each in (x, y, z))
        else:
            inputs = 64 * round(LAYER[0] / 64 * (LAYER[1] / LAYER[0]) ** z)
            shape = round(2 ** (12 * x)), 64 * round(inputs / 64 * 4**y), inputs
        yield shape, 0.5 if number // 3 % 4 == 3 else 0.0


class Tuner:
    """Times the builds of an operation's kernels on a device.

    Parameters
    ----------
    backend : Backend
    operation : Operation
    variant : str
        The variant that picks among the builds.
    dtype : str
    """

    def __init__(self, backend: Backend, operation: Operation, variant: str, dtype: str):
        self.backend, self.operation, self.dtype = backend, operation, dtype
        self.variant = operation.variant(variant)
        self._random: Any = None

    def task(self, shape: Sequence[int], beta: float) -> Task:
        scalars = {"alpha": 1.0, "beta": beta}
        return self.backend.placed(Task(self.operation, self.variant, tuple(shape), self.dtype, scalars))

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a shape of the grid is small enough."""
        return math.prod(shape) <= MOST_WORK[DTYPES[self.dtype].itemsize]

    def _operands(self, task: Task) -> dict[str, Any]:
        """Return operands with random elements; they are parts of one array, so that few elements are drawn."""
        sizes = [math.prod(task.shape_of(each)) for each in task.operation.operands]
        starts = np.cumsum([0, *(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)])
        if self._random is None or self._random.size < starts[-1]:
            drawn = task.operation.draw(np.random.default_rng(0), self.task((1, PIECE, 1), 1.0))["B"].reshape(-1)
            piece = self.backend.upload(drawn)
            self._random = None
            self._random = self.backend.empty((int(starts[-1]),), drawn.dtype.name)
            for start in range(0, self._random.size, PIECE):
                rest = self._random[start : start + PIECE]
                self.backend.copy(piece[: rest.size], rest)
        return {
            operand.name: self._random[start : start + size].reshape(task.shape_of(operand))
            for operand, start, size in zip(task.operation.operands, starts, sizes, strict=False)
        }

    def compile_ahead(self, shapes: Sequence[tuple[Sequence[int], float]], threads: int) -> None:
        """Compile the builds of some shapes in parallel."""
        tasks = [build.task for shape, beta in shapes for build in builds(self.task(shape, beta))]
        self.backend.compile_ahead(tasks, threads)

    def entry(self, shape: Sequence[int], beta: float) -> Entry:
        """Return the seconds of the builds of a shape, cold; of promising ones the medians of some runs in turns."""
        task = self.task(shape, beta)
        arrays = self._operands(task)
        first, runs = {}, {}
        for build in builds(task):
            try:
                runs[build.name] = self.backend.prepare(build.task, arrays)
                runs[build.name]()
                first[build.name] = min(self.backend.seconds_alone(runs[build.name], True, arrays) for _ in range(2))
            except DeviceError:
                runs.pop(build.name, None)
        if not first:
            raise DeviceError(f"{'x'.join(map(str, shape))} {self.dtype}: no build runs on this GPU")
        least = min(first.values())
        names = [name for name, seconds in first.items() if seconds < PROMISING * least]
        promising = {name: runs[name] for name in names}
        medians = in_turns(promising, lambda run: self.backend.seconds_alone(run, True, arrays))
        return Entry(tuple(shape), beta, first | medians)


def in_turns(runs: Mapping[str, Callable[[], Any]], seconds: Callable[[Callable[[], Any]], float]) -> dict[str, float]:
    """Return the median seconds of each run; they take turns in alternating order."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent = 0.0
    for turn in range(MOST_ROUNDS):
        if turn >= LEAST_ROUNDS and spent > ROUND_SECONDS:
            break
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            times[name].append(seconds(runs[name]))
            spent += times[name][-1]
    return {name: statistics.median(each) for name, each in times.items()}


def tune(tuner: Tuner, seconds: float) -> Iterator[Entry]:
    """Yield entries for the shapes of the grid until the time is over."""
    end = time.perf_counter() + seconds
    for shape, beta in grid():
        if time.perf_counter() > end:
            return
        if tuner.fits(shape):
            yield tuner.entry(shape, beta)
