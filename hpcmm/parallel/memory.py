"""What each algorithm takes of the memories, computed before anything is allocated."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import psutil
from mpi4py import MPI

from hpcmm.model import TEXTBOOK, HpcmmError, Operation, Point
from hpcmm.parallel.schedules import block_rows, grid, panels

USABLE = 0.95  # of what is free; drivers and libraries take some as they go
GIB = 2**30


class MemoryShortageError(HpcmmError):
    """A problem that cannot fit; the message has the figures and says what would."""


@dataclass(frozen=True)
class Need:
    """Elements that one rank holds at once at most.

    Parameters
    ----------
    device : int
        On its device, which of a CPU is the host's memory.
    staging : int
        In host memory, on the way to a device that has memory of its own.
    whole : int
        In host memory, of rank 0's whole arrays.
    """

    device: int
    staging: int
    whole: int


def need(algorithm: str, operation: Operation, shape: tuple[int, ...], ranks: int, rank: int) -> Need:
    """Return what a rank needs for an operation spread by an algorithm.

    >>> from hpcmm.operations.matmul import MATMUL
    >>> [need(name, MATMUL, (64, 64, 64), 4, 1).device // 1024 for name in ("scatter", "resident", "ring", "summa")]
    [7, 7, 6, 7]
    """
    sizes = dict(zip(operation.dimensions, shape, strict=True))
    whole = {o.name: math.prod(sizes[d] for d in o.dimensions) for o in operation.operands}
    inputs = [whole[o.name] for o in operation.operands if o.role != "out"]
    results = sum(whole[o.name] for o in operation.operands if o.role != "in")
    root = rank == 0
    drawn = sum(inputs) + max(inputs)  # they are drawn before one after the other is copied to its place
    if algorithm in (TEXTBOOK, "all_reduce"):
        _, rows = block_rows(shape[0], ranks)[rank]
        sizes[operation.dimensions[0]] = rows
        part = {
            o.name: whole[o.name] if o.distribution == "replicated" else math.prod(sizes[d] for d in o.dimensions)
            for o in operation.operands
        }
        kept = sum(part[o.name] for o in operation.operands if o.role == "inout")
        moved = sum(part[o.name] * (2 if o.role == "inout" else 1) for o in operation.operands)
        return Need(sum(part.values()) + kept, 0 if root else moved, drawn + results if root else 0)

    m, n, k = shape
    _, rows = block_rows(m, ranks)[rank]
    _, terms = block_rows(k, ranks)[rank]
    most = block_rows(k, ranks)[0][1]
    staging, copied = max(rows * k, terms * n, rows * n), 0
    match algorithm:
        case "staged":
            device = rows * k + k * n + rows * n
            staging, copied = 0, m * k + k * n + m * n  # into the memory that the node shares
        case "resident":
            device = rows * k + k * n + 2 * rows * n
        case "ring":
            device = rows * k + terms * n + 2 * rows * n + min(2, ranks - 1) * most * n
        case "cublasmp":  # with a result of its own, and room for the whole of B among the library's
            device = rows * k + terms * n + 3 * rows * n + k * n
        case "summa":
            of_rows, of_columns = grid(ranks)
            i, j = divmod(rank, of_columns)
            rows, columns = block_rows(m, of_rows)[i][1], block_rows(n, of_columns)[j][1]
            a, b = rows * block_rows(k, of_columns)[j][1], block_rows(k, of_rows)[i][1] * columns
            cut = panels(k, of_rows, of_columns)
            buffers = min(2, len(cut)) * max(panel.terms for panel in cut) * (rows + columns) if ranks > 1 else 0
            device, staging = a + b + 2 * rows * columns + buffers, max(a, b, rows * columns)
    return Need(device, staging, drawn + copied + results if root else 0)


def host_free() -> int:
    """Host memory that this process may still take, by the system and by its control groups."""
    free = psutil.virtual_memory().available
    try:
        place = PurePosixPath(Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip())
    except OSError:
        return free
    for group in (place, *place.parents):
        folder = Path("/sys/fs/cgroup") / str(group).lstrip("/")
        try:
            limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        except OSError:
            continue
        if limit != "max":
            free = min(free, int(limit) - int(used))
    return free


def shortage(comm: MPI.Comm, backend, operation: Operation, point: Point, algorithms: Sequence[str]) -> str:
    """Say which memory is too small to hold a point spread by all of ``algorithms`` at once; empty if none is.

    Collective; every rank comes to the same answer.
    """
    size = np.dtype(point.dtype).itemsize
    needs = [need(name, operation, point.shape, comm.size, comm.rank) for name in algorithms]
    device, staging = sum(each.device for each in needs) * size, sum(each.staging for each in needs) * size
    inputs = need(TEXTBOOK, operation, point.shape, comm.size, comm.rank).whole * size
    whole = sum(each.whole for each in needs) * size - (len(needs) - 1) * inputs  # drawn once for all
    host = MPI.Get_processor_name()
    places = [(f"host {host}", host_free(), whole + (device if backend.in_host_memory else staging))]
    if not backend.in_host_memory:
        places.append((f"{backend.uuid} on {host}", backend.free_bytes(), device))
    free: dict[str, int] = {}
    asked: dict[str, int] = defaultdict(int)
    for each in comm.allgather(places):
        for name, available, wanted in each:
            free[name] = min(free.get(name, available), available)
            asked[name] += wanted
    for name, wanted in asked.items():
        if wanted > USABLE * free[name]:
            return f"{wanted / GIB:.3g} GiB of {name}, where {free[name] / GIB:.3g} are free"
    return ""


def preflight(comm: MPI.Comm, backend, operation: Operation, points: Sequence[Point]) -> dict[str, tuple[str, bool]]:
    """Hold the needs of points against the memories, before any of them is begun.

    Returns
    -------
    dict
        Of each point's key, what it lacks and which algorithm would fit (empty if it fits), and whether the
        textbook's algorithm fits beside the point's own.
    """
    found: dict[tuple, tuple[str, bool]] = {}
    for point in points:
        if kind(point) in found:
            continue
        lacking = shortage(comm, backend, operation, point, [point.algorithm])
        if lacking:
            names = [algorithm.name for algorithm in operation.algorithms]
            fit = [name for name in names if not shortage(comm, backend, operation, point, [name])]
            lacking = f"needs {lacking}; " + (f"would fit: {', '.join(fit)}" if fit else "no algorithm would fit")
        both = list(dict.fromkeys([point.algorithm, TEXTBOOK]))
        found[kind(point)] = lacking, not lacking and not shortage(comm, backend, operation, point, both)
    return {point.key: found[kind(point)] for point in points}


def kind(point: Point) -> tuple:
    """What decides the memory that a point takes."""
    return point.algorithm, point.shape, point.dtype
