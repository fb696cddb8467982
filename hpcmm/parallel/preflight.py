"""Host and device memory of points, computed and compared with the free memory before anything is allocated."""

import contextlib
import functools
import socket
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import psutil

from hpcmm.model import TEXTBOOK, Task
from hpcmm.model.measurement import Point
from hpcmm.operations import choice, task_of
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.memory import whole_elements
from hpcmm.parallel.schedules import block_row
from hpcmm.system import surroundings

USABLE = 0.95  # of the free memory; drivers and libraries allocate some later
GIB = 2**30


def workspace_bytes(task: Task, ranks: int, rank: int) -> int:
    """Return the bytes of a task's workspace for a rank's block of rows; its parts need no more."""
    first, *others = task.shape
    _, rows = block_row(first, ranks, rank)
    local = replace(task, shape=(rows, *others))
    chooses = local.variant.picks or getattr(local.geometry, "several", False)
    tasks = [candidate.task for candidate in choice.candidates(local)] if chooses and rows else [local]
    return max(sum(each.nbytes for each in one.workspace.values()) for one in tasks) if rows else 0


def largest_need(algorithm: Algorithm, task: Task, ranks: int, in_host_memory: bool) -> tuple[int, int]:
    """Return the peak memory of a task with all ranks on one node.

    It is the bytes of host memory of all ranks together, and the largest number of bytes of device memory on a rank; 0
    if the devices compute ``in_host_memory``. On GPUs, the task has their SM count.

    >>> from hpcmm.operations.matmul import MATMUL
    >>> from hpcmm.parallel import ALGORITHMS
    >>> task = Task(MATMUL, MATMUL.variant("naive"), (64, 64, 64), "float64", tile=16)
    >>> [largest_need(ALGORITHMS[name], task, 4, False) for name in ("ring", "summa")]
    [(196608, 49152), (196608, 57344)]
    """
    taken = [rank_bytes(algorithm, task, ranks, rank, in_host_memory) for rank in range(ranks)]
    return sum(host for host, _ in taken), max(device for _, device in taken)


def itemsize_of(task: Task) -> int:
    return max(task.element.itemsize, task.element.results.itemsize)


def rank_bytes(algorithm: Algorithm, task: Task, ranks: int, rank: int, in_host_memory: bool) -> tuple[int, int]:
    """Return the bytes of host memory and of device memory of a rank; the latter is 0 if the device is the host."""
    algorithm = algorithm.of(task.element, task.variant.invariant)
    need = algorithm.need(task.operation, task.shape, ranks, rank)
    host, device = need.bytes(itemsize_of(task), in_host_memory)
    variants = {task.variant}
    if algorithm.name == TEXTBOOK:  # the library takes turns with the variant
        variants |= {task.operation.baseline(task.variant.device, task.dtype) or task.variant}
    if algorithm.part:
        task, ranks, rank = replace(task, shape=tuple(algorithm.part(task.shape, ranks, rank))), 1, 0
    extra = sum(workspace_bytes(replace(task, variant=variant), ranks, rank) for variant in variants)
    return (host + extra, device) if in_host_memory else (host, device + extra)


def host_free() -> int:
    free = psutil.virtual_memory().available
    for folder in surroundings.control_groups():
        with contextlib.suppress(OSError):
            limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
            free = free if limit == "max" else min(free, int(limit) - int(used))
    return free


def shortage(comm, backend, task: Task, algorithms: Sequence[Algorithm], memories: Sequence[tuple[str, int]]) -> str:
    """Return which memory is too small for a task distributed by all ``algorithms`` at once; empty if none.

    Collective; every rank returns the same. ``memories`` names each memory of this rank, the host's first, with
    its free bytes.
    """
    needs = [rank_bytes(algorithm, task, comm.size, comm.rank, backend.in_host_memory) for algorithm in algorithms]
    # the whole arrays are drawn once for all
    shared = (len(needs) - 1) * whole_elements(task.operation, task.shape, comm.rank) * itemsize_of(task)
    wanted_here = sum(host for host, _ in needs) - shared, sum(device for _, device in needs)
    # a CPU has no memory besides the host's
    here = [(*memory, wanted) for memory, wanted in zip(memories, wanted_here, strict=False)]
    free: dict[str, int] = {}
    needed: dict[str, int] = defaultdict(int)
    for each in comm.allgather(here):
        for memory, available, wanted in each:
            free[memory] = min(free.get(memory, available), available)
            needed[memory] += wanted
    for memory, wanted in needed.items():
        if wanted > USABLE * free[memory]:
            return f"{wanted / GIB:.3g} GiB of {memory}, but {free[memory] / GIB:.3g} GiB are free"
    return ""


def preflight(comm, backend, points: Sequence[Point], algorithms: Sequence[Algorithm]) -> dict[str, tuple[str, bool]]:
    """Compare the memory that points need with the free memory, before the first starts.

    Collective; every rank returns the same: by each point's key, the missing memory and those of the ``algorithms``
    that would fit (empty if the point fits), and whether the textbook algorithm is measured beside the point's own: it
    is the baseline, and both fit.
    """
    by_name = {algorithm.name: algorithm for algorithm in algorithms}
    name = socket.gethostname()
    memories = [(f"host {name}", host_free())]
    if not backend.in_host_memory:
        memories.append((f"{backend.uuid} on {name}", backend.free_bytes()))
    found: dict[tuple, tuple[str, bool]] = {}
    for point in points:
        if memory_key(point) in found:
            continue
        own, task = by_name[point.algorithm], backend.placed(task_of(point))
        lacks = functools.partial(shortage, comm, backend, task, memories=memories)
        why = lacks([own])
        if why:
            fit = [each.name for each in algorithms if not each.part and not lacks([each])]
            why = f"needs {why}; " + (f"would fit: {', '.join(fit)}" if fit else "no algorithm would fit")
        beside = own.name == TEXTBOOK or (own.baseline and not lacks([own, by_name[TEXTBOOK]]))
        found[memory_key(point)] = why, not why and beside
    return {point.key: found[memory_key(point)] for point in points}


def memory_key(point: Point) -> tuple:
    return point.algorithm, point.variant, point.shape, point.dtype
