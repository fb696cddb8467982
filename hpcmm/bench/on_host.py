"""Verify a CUDA kernel without a GPU: it runs on the host, with the threads of a block in several orders."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import mmap
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcmm import kernels
from hpcmm.backends.emulated import launch as emulated
from hpcmm.backends.emulated.launch import LAST, ORDERS, HostKernel, KernelError, compile_kernel, on_device, poison
from hpcmm.bench import hints
from hpcmm.bench.guarded import PADDING
from hpcmm.bench.same_bits import Difference, compare_alone, rounded, seeds_of, together
from hpcmm.model import DeviceError, NotTested, Task
from hpcmm.model.launch import Launch
from hpcmm.operations import guards, overwritten

NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux
FAR = (65 << 10, 65 << 10)  # rows and columns of a C with more than 2^32 elements
MOST_IN_BLOCK = 2**25  # products of its last tile, which take seconds if all sizes are equal


@dataclass
class Found:
    runs: int = 0  # with threads in several orders
    largest: tuple[int, ...] = ()  # the shape with the most elements
    error_over_bound: float = 0.0
    where: str = ""  # the first mistake
    note: str = ""  # what may be wrong on another device, although the results are right


def compiled(task: Task, folder: Path) -> Callable[..., HostKernel]:
    """Return a function that compiles a function of a task's source, ``symbol``, once."""
    if task.variant.cooperative:
        raise NotTested("needs a GPU: the blocks of a cooperative launch wait for each other")
    macros = tuple(f"-D{name}={value}" for name, value in task.macros.items())
    source = kernels.source(task.operation, task.variant)
    return functools.cache(functools.partial(compile_kernel, source, options=macros, folder=folder))


def verify(tasks: Iterable[Task], folder: Path) -> Found:
    """Run a CUDA kernel for tasks that differ in shape, type, scalars or tile, up to the first wrong result.

    Rows are padded. One more run has rows without padding, for which kernels may take another path, and other scalars.
    Raise DeviceError if the source does not compile for the host, or needs features that the host does not have.
    """
    found = Found()
    last = {}  # kernel and task of each type
    for task in tasks:
        kernel = compiled(task, folder)
        found.largest = max(found.largest, task.shape, key=math.prod)
        results = set()
        other = guards.with_other_scalars(task)
        # by ``padded``: the last run, without padding, has other scalars
        drawn = [guards.drawn_widely(of, np.random.default_rng(task.shape)) for of in (other, task)]
        matrices = any(len(operand.dimensions) > 1 for operand in task.operation.operands)
        judges = [task.operation.reference(*pair) for pair in zip((other, task), drawn, strict=True)]
        last_run = [(other, ORDERS[0], False)] * (matrices or other != task)
        for each, order, padded in [*((task, order, True) for order in ORDERS), *last_run]:
            found.runs += padded
            given = ", ".join([f"{name} {value:g}" for name, value in each.scalars.items()])
            place = f"{'x'.join(map(str, task.shape))} {task.dtype}{given and ', '}{given}"
            try:
                result, note = run(kernel, each, drawn[padded], order, padded)
            except KernelError as error:
                found.where = f"{place}: {error}{hint(kernel, each)}"
                return found
            verdict = judges[padded](result)
            if not verdict.passed:
                rows = "" if padded or not matrices else ", rows without padding"
                found.where = f"{place}: {order} order{rows}: {verdict.where}{note and '; '}{note}{hint(kernel, each)}"
                return found
            found.note = found.note or note
            found.error_over_bound = max(found.error_over_bound, verdict.error / verdict.bound if verdict.bound else 0)
            if padded:
                results.add(result.tobytes())
        if len(results) > 1 and task.variant.deterministic:
            found.where = f"{place}: the bits of the result depend on the order of threads; if this is intended, set "
            found.where += "deterministic: false"
            return found
        last[task.dtype] = kernel, task
    notes = [found.note, *(overflow(*each) for each in last.values())]
    found.note = "; ".join(filter(None, dict.fromkeys(notes)))
    return found


def same_bits(task: Task, folder: Path) -> dict[str, Difference]:
    """Compare the bits of results of a task over shapes and runs; each run has another order of threads."""
    orders = itertools.cycle(ORDERS)

    def results(each: Task, inputs: dict[str, np.ndarray]) -> Callable[[], np.ndarray]:
        kernel = compiled(each, folder)
        shapes = {operand.name: each.shape_of(operand) for operand in each.operation.operands}
        first = {name: x[: shapes[name][0]] for name, x in inputs.items()}
        return lambda: run(kernel, each, first, next(orders))[0]

    seeds = seeds_of(task, 1)
    drawn = [rounded(task, task.operation.draw(np.random.default_rng(seed), task), seed) for seed in seeds]
    return together(pair for inputs in drawn for pair in compare_alone(task, inputs, results))


def overflow(kernel: Callable[..., HostKernel], task: Task) -> str:
    """Return a note if an index overflows 32 bits, with far rows, or long ones whose last block runs."""
    if far := guards.far_apart(task):
        small, columns = far
        line = wrong(kernel, small, small, ORDERS[0], columns)
        return "" if line is None else guards.OVERFLOW + line
    if {"ROWS", "COLUMNS"} <= task.macros.keys():
        tile = task.macros["ROWS"], task.macros["COLUMNS"]
        near, long = (guards.at(task, shape) for shape in ((2 * tile[0], 2 * tile[1], 1), (*FAR, 1)))
        rest = long.shape[2:]
    elif guards.has_long_vectors(task) and "BLOCK" in task.macros:
        tile = (task.macros["BLOCK"] * task.macros["PER_THREAD"],)
        near, long = (guards.at(task, (n,)) for n in (2 * tile[0], 2**31 + tile[0]))
        rest = ()
    else:
        return ""
    if math.prod((*tile, *rest)) > MOST_IN_BLOCK or not (covered(near, tile) and covered(long, tile)):
        return ""
    parts = [dataclasses.replace(task, shape=(*tile, *each.shape[len(tile) :])) for each in (near, long)]
    line = wrong(kernel, long, parts[1], LAST) if wrong(kernel, near, parts[0], LAST) is None else None
    return "" if line is None else guards.OVERFLOW + line


def covered(task: Task, tile: tuple[int, ...]) -> bool:
    """Return whether each block has one tile of the largest launch of a task."""
    zeros = {operand: np.zeros((), task.storage(operand)) for operand in task.operation.operands}
    arrays = {operand.name: np.broadcast_to(zero, task.shape_of(operand)) for operand, zero in zeros.items()}
    arrays |= {name: needed.placeholder for name, needed in task.workspace.items()}
    blocks = max((math.prod(launch.grid) for launch in task.geometry.launches(task, arrays)), default=0)
    return blocks * math.prod(tile) >= math.prod(task.shape[: len(tile)])


def wrong(kernel: Callable[..., HostKernel], task: Task, part: Task, order: str, columns: int = 0) -> str | None:
    """Run a task with elements in its last part only; return None if it is right, else an error's line."""
    inputs = part.operation.draw(np.random.default_rng(0), part)
    arrays, parts = {}, {}
    for operand in task.operation.operands:
        shape, storage = task.shape_of(operand), task.storage(operand)
        whole = (*shape[:-1], columns or shape[-1]) if len(shape) > 1 else shape
        memory = untouched(math.prod(whole) * storage.itemsize).view(storage).reshape(whole)
        arrays[operand.name] = memory[:, : shape[1]] if len(shape) > 1 else memory
        parts[operand.name] = arrays[operand.name][(..., *(slice(-size, None) for size in part.shape_of(operand)))]
        parts[operand.name][...] = inputs.get(operand.name, 0)
    # alone, the last block finds zeros where others would have written
    for name, needed in task.workspace.items():
        zeros = untouched(needed.nbytes).view(needed.dtype).reshape(needed.shape)
        arrays[name] = zeros if order == LAST else poison(needed.shape, needed.dtype)
    try:
        launch_all(kernel, task, arrays, order)
    except KernelError as error:
        line = re.search(r"in line \d+(?: of \S+)?", str(error))
        return f", {line[0]}" if line else ""
    right = part.operation.reference(part, inputs)(parts[task.operation.output.name]).passed
    return None if right else ""


def untouched(size: int) -> np.ndarray:
    """Return bytes of zeros that take memory only where they are written."""
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE), np.uint8)


def launch_all(kernel: Callable[..., HostKernel], task: Task, arrays: dict[str, np.ndarray], order: str) -> str:
    """Run all launches of a task and return their notes. ``kernel`` compiles the function ``symbol`` of the source."""
    notes = []
    for launch in task.geometry.launches(task, arrays):
        function = kernel(symbol=launch.function or task.operation.kernels)
        try:
            function(launch, order, dynamic_bytes=launch.shared_bytes)
        except KernelError as error:
            raise KernelError(named(str(error), launch, arrays)) from error
        notes.append(function.note)
    return next(filter(None, notes), "")


def run(
    kernel: Callable[..., HostKernel], task: Task, inputs: dict[str, np.ndarray], order: str, padded: bool = True
) -> tuple[np.ndarray, str]:
    """Run a task on copies of its inputs between guards; return result and note, or raise KernelError."""
    rng = np.random.default_rng(task.shape)
    places = guards.layout(task, rng, padded, PADDING, apart=emulated.MARGIN)
    memory = on_device(np.zeros(places[-1].end, np.uint8))
    guards.fill(memory, places, task, inputs, rng)
    before = memory.copy()
    arrays = {place.name: place.of(memory) for place in places}
    for name, needed in task.workspace.items():
        arrays[name] = poison(needed.shape, needed.dtype)
    own = overwritten.copied(task, arrays, poison)
    overwritten.copy(own.before)
    note = launch_all(kernel, task, own.arrays, order)
    overwritten.copy(own.after)
    if wrong := guards.trespass(before, memory, places, task):
        raise KernelError(f"{order} order: {wrong}")
    return arrays[task.operation.output.name], note


def hint_of(task: Task, folder: Path) -> str:
    """Return a hint at the mistake of a product that is wrong on a GPU; empty if it does not compile for the host."""
    try:
        return hint(compiled(task, folder), task)
    except DeviceError:
        return ""


def hint(kernel: Callable[..., HostKernel], task: Task) -> str:
    """Return a hint at the mistake of a kernel, after a semicolon; empty without one."""

    def again(other: Task, inputs: dict[str, np.ndarray]) -> np.ndarray | None:
        try:
            return run(kernel, other, inputs, ORDERS[0])[0]
        except KernelError:
            return None

    of_operation = hints.of_product if task.operation.kernels == "matmul" else hints.of_vector
    found = of_operation(task, again)
    return found and f"; {found}"


def named(message: str, launch: Launch, arrays: dict[str, np.ndarray]) -> str:
    """Replace the numbers of a launch's arrays by their names."""
    given = [x for x in launch.arguments if isinstance(x, np.ndarray)]
    names = [next((name for name, y in arrays.items() if x is y or x.base is y), "") for x in given]

    def name(found: re.Match) -> str:
        own = names[int(found[1])] if int(found[1]) < len(names) else ""
        return own.removeprefix("own_") or found[0]

    return re.sub(r"array (\d+)", name, message)
