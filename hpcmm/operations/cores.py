"""Work on arrays of the host with all its cores."""

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

STREAM = 2**18  # elements of a vector that one stream of random numbers fills
PART = 2**16  # elements that a thread takes at a time; with fewer, the calls take longer than the work
MOVED = 2**22  # the same if elements are only written or copied
Filling = Callable[[np.random.Generator, np.ndarray], None]  # of an array, from a stream of random numbers


def count() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))


@functools.cache
def threads(count: int) -> ThreadPoolExecutor:
    """Return a pool of threads that lasts until the process ends; starting a thread takes a millisecond."""
    return ThreadPoolExecutor(count)


def in_threads(work: Callable[[slice], Any], length: int, step: int) -> list[Any]:
    """Call ``work`` on slices of ``step`` out of ``length``, on all cores: NumPy releases the interpreter's lock.

    ``work`` must not call this function, because threads would wait for each other forever.
    """
    parts = [slice(i, min(i + step, length)) for i in range(0, length, step)]
    if len(parts) < 2:
        return list(map(work, parts))
    return list(threads(count()).map(work, parts))


def rows_of_part(columns: int, part: int = PART) -> int:
    """Return the rows of a matrix that a thread takes at a time, with ``part`` elements."""
    return max(1, part // max(1, columns))


def draw(rng: np.random.Generator, array: np.ndarray, work: Filling, step: int = STREAM) -> np.ndarray:
    """Call ``work(stream, part)`` on parts of ``step`` rows of an array, on all cores; return the array.

    Each part has a stream of random numbers of its own, so the values do not depend on the number of threads.
    """
    streams = rng.spawn(-(-len(array) // step))
    in_threads(lambda rows: work(streams[rows.start // step], array[rows]), len(array), step)
    return array


def uniform(stream: np.random.Generator, array: np.ndarray) -> None:
    """Fill an array with numbers uniform in [-1, 1)."""
    stream.random(dtype=array.dtype, out=array)
    array *= 2
    array -= 1


def integers(least: int, end: int) -> Filling:
    """Return a function that fills an array with integers uniform in [least, end)."""

    def fill(stream: np.random.Generator, array: np.ndarray) -> None:
        array[...] = stream.integers(least, end, array.shape, array.dtype)

    return fill


def copy(source: np.ndarray, target: np.ndarray) -> None:
    def copy_rows(rows: slice) -> None:
        target[rows] = source[rows]

    _by_rows(copy_rows, target)


def fill(array: np.ndarray, value: Any) -> None:
    def fill_rows(rows: slice) -> None:
        array[rows] = value

    _by_rows(fill_rows, array)


def _by_rows(work: Callable[[Any], None], array: np.ndarray) -> None:
    if array.ndim == 0:
        work(())
    else:
        in_threads(work, len(array), rows_of_part(math.prod(array.shape[1:]), MOVED))
