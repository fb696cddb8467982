"""Time builds of a product on a GPU in turns: all builds for a table, and the most promising ones for a choice.

``Fastest`` is a variant's pick of the rung with the fastest build for the shape, on the GPU at hand.
"""

import contextlib
import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpcmm.model import DeviceError, Task, Variant
from hpcmm.operations import choice, tables, turns
from hpcmm.operations.choice import Build
from hpcmm.system import surroundings

LEAST_ROUNDS, MOST_ROUNDS, ROUND_SECONDS = 3, 7, 20e-3  # rounds in which promising builds take turns for a table
TRIAL_ROUNDS = 60  # of a trial, at most
SPINS = 4  # before a run, so that the host queues it ahead of the device
PIECE = 1 << 22  # random elements; longer operands repeat them
ALIGNMENT = 256  # elements at multiples of which an operand starts


class Operands:
    """Random operands of products on a device: parts of one array, so that few elements are drawn."""

    def __init__(self, backend: Any):
        self.backend, self.dtype, self.numbers = backend, "", np.empty(0)

    def of(self, task: Task) -> dict[str, Any]:
        operands = task.operation.operands
        alike = [operand for operand in operands if task.storage(operand) == task.storage(operands[0])]
        sizes = [math.prod(task.shape_of(operand)) for operand in alike]
        starts = np.cumsum([0, *(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)])
        if self.dtype != task.dtype or self.numbers.size < starts[-1]:
            self._draw(task, int(starts[-1]))
        arrays = {
            operand.name: self.numbers[start : start + size].reshape(task.shape_of(operand))
            for operand, start, size in zip(alike, starts, sizes, strict=False)
        }
        others = [operand for operand in operands if operand not in alike]  # sums of int8 are wider
        return arrays | {other.name: self.backend.empty(task.shape_of(other), task.storage(other)) for other in others}

    def _draw(self, task: Task, size: int) -> None:
        one = replace(task, shape=(1, min(PIECE, size), 1))
        drawn = task.operation.draw(np.random.default_rng(0), one)["B"].reshape(-1)
        piece = self.backend.upload(drawn)
        self.numbers = np.empty(0)  # frees its memory
        self.numbers, self.dtype = self.backend.empty((size,), drawn.dtype.name), task.dtype
        for start in range(0, size, PIECE):
            rest = self.numbers[start : start + PIECE]
            self.backend.copy(piece[: rest.size], rest)


def timed(backend: Any, builds: Sequence[Build], arrays: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of builds, with cold caches; of promising ones the medians of some runs in turns.

    Long runs are repeated alone, as in ``turns.fastest``.
    """
    first: dict[str, float] = {}
    runs: dict[str, Callable[[], Any]] = {}

    def seconds(run: Callable[[], Any]) -> float:
        return backend.seconds_alone(run, True, arrays, SPINS)

    for build in builds:
        try:
            run = backend.prepare(build.task, arrays)
            run()
            first[build.name], runs[build.name] = min(seconds(run) for _ in range(2)), run
        except DeviceError:
            continue
    least = min(first.values(), default=0.0)
    promising = {name: runs[name] for name in first if first[name] < tables.SLOW * least}
    if least >= turns.LONG:
        return first | {name: turns.alone(functools.partial(seconds, run)) for name, run in promising.items()}
    return first | in_turns(promising, seconds)


def in_turns(runs: Mapping[str, Callable[[], Any]], seconds: Callable[[Callable[[], Any]], float]) -> dict[str, float]:
    """Return the median seconds of each run; the runs take turns in alternating order."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent = 0.0
    for turn in range(MOST_ROUNDS):
        if turn >= LEAST_ROUNDS and spent > ROUND_SECONDS:
            break
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            times[name].append(seconds(runs[name]))
            spent += times[name][-1]
    return {name: statistics.median(each) for name, each in times.items()}


def decide(backend: Any, task: Task) -> None:
    """Try the most promising builds of a task on a device, if nothing decides yet which of them runs it.

    Caches are cold. Another process that tries builds of this GPU meanwhile is waited for. Without memory for a trial,
    none is made.
    """
    task = backend.placed(task)
    if not choice.undecided(task):
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # keeping the result reports it
            stack.enter_context(tables.locked(tables.of_user(task.gpu)))
        if not choice.undecided(task):
            return
        builds = choice.candidates(task)
        backend.compile_ahead([build.task for build in builds], surroundings.cpus())
        try:
            arrays = Operands(backend).of(task)
            runs = [functools.cache(functools.partial(backend.prepare, build.task, arrays)) for build in builds]
            number = turns.fastest(
                lambda number: backend.seconds_alone(runs[number](), True, arrays, SPINS), len(builds), TRIAL_ROUNDS
            )
        except DeviceError as error:
            print(f"no trial of builds of {task.variant.name} at {task.shape}: {error}", flush=True)
            return
        choice.keep(task, builds[number].name, len(builds))


@dataclass(frozen=True)
class Fastest:
    """Picks the fastest build among rungs, the same for the same task."""

    names: Mapping[str, tuple[str, ...]] = field(hash=False)  # the rungs, by element type

    def rungs(self, dtype: str) -> tuple[str, ...]:
        return self.names[dtype]

    def variant(self, task: Task) -> Variant:
        return choice.chosen(task).build.task.variant

    def by(self, task: Task) -> str:
        return choice.chosen(task).by

    def decide(self, backend: Any, task: Task) -> None:
        decide(backend, task)
