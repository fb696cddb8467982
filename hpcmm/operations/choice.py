"""Choose among builds of kernels by predicted times, which times in tables of the GPU correct.

A table has times of builds at some shapes (``hpcmm.operations.tables``). At another shape, a model predicts the time of
each build, and the deviations from it at the nearest shapes of the table correct the prediction. Without a near shape
the model decides alone.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hpcmm.model import Task
from hpcmm.operations import tables
from hpcmm.operations.builds import Build, builds
from hpcmm.operations.tables import PROMISING, Entry

NEAREST = 16  # shapes that correct a prediction
FAR = 3.0  # binary orders of magnitude; a shape that is farther away corrects nothing
NEARBY = 0.5  # distance below which shapes have nearly the same weight
USUAL = 0.1  # weight of a build's median deviation, relative to a shape at distance 0
MOST = 0.5  # by which a logarithm may deviate from the median; more is noise
UNALIKE = 1.0  # added to the distance if rows are aligned otherwise, or if only one of the products reads C
GAIN = 0.02  # relative; a build has to be so much faster to be chosen instead of the model's

OTHERS = {"float16": "bfloat16"}  # types whose times are those of another one

Seconds = Callable[[Task], float]  # predicted for the build of a task


class Known(NamedTuple):
    """An entry of a table, and the logarithms of measured over predicted seconds of all builds that can run there."""

    entry: Entry
    deviations: Mapping[str, float]


def alignment(task: Task) -> tuple[int, ...]:
    """Return the bytes, up to 16, of which rows of A and of B are multiples."""
    _, n, k = task.shape
    return tuple(math.gcd(16, columns * task.element.itemsize) for columns in (k, n))


def reads_c(task: Task) -> bool:
    return bool(task.scalars.get("beta"))


def at(task: Task, entry: Entry) -> Task:
    """Return the same task at the shape of an entry."""
    return replace(task, shape=entry.shape, scalars={**task.scalars, "beta": entry.beta})


def distance(task: Task, entry: Entry) -> float:
    """Return the distance of an entry's shape in binary orders of magnitude."""
    steps = (math.log2(x / y) for x, y in zip(task.shape, entry.shape, strict=True))
    unlike = alignment(task) != alignment(at(task, entry))
    return math.hypot(*steps) + UNALIKE * (unlike + (reads_c(task) != bool(entry.beta)))


def entries(task: Task) -> list[Entry]:
    """Return the entries of the tables of a task's GPU for its type; the user's own come first."""
    found = []
    for table in tables.tables(task.gpu, task.multiprocessors):
        found += table.get(task.dtype) or table.get(OTHERS.get(task.dtype, ""), [])
    return found


def measured(task: Task, entry: Entry, seconds: Seconds) -> Known:
    """Return an entry with deviations. A build that it lacks took at least ``PROMISING`` times the shortest time."""
    deviations = {}
    for build in builds(at(task, entry)):
        if build.name in entry.unknown:
            continue
        predicted = seconds(build.task)
        took = entry.seconds.get(build.name) or max(predicted, PROMISING * entry.least)
        deviations[build.name] = math.log(took / predicted)
    return Known(entry, deviations)


def medians(known: Sequence[Known]) -> dict[str, float]:
    """Return the median deviation of each build."""
    found: dict[str, list[float]] = {}
    for each in known:
        for name, deviation in each.deviations.items():
            found.setdefault(name, []).append(deviation)
    return {name: statistics.median(each) for name, each in found.items()}


def corrected(task: Task, known: Sequence[Known], usual: Mapping[str, float], seconds: Seconds) -> dict[str, float]:
    """Return the seconds of each build by the model and the nearest entries; empty without a near one."""
    nearest = sorted((distance(task, each.entry), number) for number, each in enumerate(known))[:NEAREST]
    near = [((NEARBY / (NEARBY + far)) ** 2, known[number].deviations) for far, number in nearest if far <= FAR]
    if not near:
        return {}
    found = {}
    for build in builds(task):
        middle, total, weights = usual.get(build.name, 0.0), 0.0, USUAL
        for weight, deviations in near:
            if build.name in deviations:
                total += weight * min(MOST, max(-MOST, deviations[build.name] - middle))
                weights += weight
        found[build.name] = seconds(build.task) * math.exp(middle + total / weights)
    return found


def chosen(task: Task, model: str, seconds: Seconds) -> Build | None:
    """Return the build that tables choose for a task; none if they do not, or if their choice is the model's.

    Parameters
    ----------
    task : Task
    model : str
        Name of the build that the model chooses.
    seconds : callable
        The prediction of the model for a build.
    """
    every = entries(task)
    if not every or not all(task.shape) or math.prod(task.shape) > max(math.prod(each.shape) for each in every):
        return None
    by_name = {each.name: each for each in builds(task)}
    for entry in every:
        times = {name: time for name, time in entry.seconds.items() if name in by_name}
        if times and entry.shape == task.shape and bool(entry.beta) == reads_c(task):
            return by_name[min(times, key=times.__getitem__)]
    known, usual = _known(replace(task, shape=(), scalars={}), tables.version(task.gpu), seconds)
    times = corrected(task, known, usual, seconds)
    fastest = min(times, key=times.__getitem__, default=model)
    if fastest == model or (model in times and times[fastest] > (1 - GAIN) * times[model]):
        return None
    return by_name[fastest]


@functools.lru_cache(maxsize=64)
def _known(task: Task, version: tuple, seconds: Seconds) -> tuple[list[Known], dict[str, float]]:
    """Return all entries with deviations, and the medians; ``task`` has any shape, ``version`` is of the tables."""
    known = [measured(task, entry, seconds) for entry in entries(task)]
    return known, medians(known)
