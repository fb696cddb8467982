"""What a kernel is tested with: padded arrays between guards that it may not write to, in one piece of memory.

Guards and the padding of inputs are NaN. A kernel that ignores a leading dimension or reads beyond a row then has a
wrong result, and one that writes there or to an input is found by ``trespass``. ``hpcmm bench`` and ``hpcmm grade``
both use it.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcmm.model import Task
from hpcmm.model.contract import Contract
from hpcmm.operations.reduction import no_result

ROWS = 8  # of a matrix, before and after it
ELEMENTS = 256  # of a vector or a single element, before and after it
COLUMNS = (0, 0, 3, 4, 8)  # padding of the rows of a matrix; drawn
LARGE = 2.0**100  # factor of the numbers of an extreme
OVERFLOW = "an index overflows 32 bits from 2^31 elements on"
OF_INT = re.compile(r"\(int(?:32_t)?\)\(n\)[^{}]*\}\s*\Z")  # the length in the call of an adapted source
VECTORS = ("reduction", "vector_add", "copy")  # the kernels of these
MOST_FAR = 2**32  # multiply-adds of a product with such indices, which take seconds on a CPU
ALIGNMENT = 256  # of regions, as the allocator of a GPU has it


@dataclass(frozen=True)
class Guarded:
    """An array inside a region of the memory."""

    name: str
    begin: int  # offset of the region in bytes
    region: tuple[int, ...]  # shape of the region
    shape: tuple[int, ...]  # shape of the array, which begins ``guard`` rows (or elements) into the region
    dtype: str

    @property
    def guard(self) -> int:
        return ROWS if len(self.shape) > 1 else ELEMENTS

    @property
    def end(self) -> int:
        return self.begin + math.prod(self.region) * np.dtype(self.dtype).itemsize

    def whole(self, memory: np.ndarray) -> np.ndarray:
        return memory[self.begin : self.end].view(self.dtype).reshape(self.region)

    def inside(self, region: Any) -> Any:
        """Return the array as a view of its region, which may be on a device."""
        rows = region[self.guard : self.guard + (self.shape[0] if self.shape else 1)]
        return rows[:, : self.shape[1]] if len(self.shape) > 1 else rows.reshape(self.shape)

    def of(self, memory: np.ndarray) -> np.ndarray:
        return self.inside(self.whole(memory))


class Placed:
    """A task's run on its device, on copies of arrays between guards in the memory of the host."""

    def __init__(self, backend: Any, task: Task, places: Sequence[Guarded], memory: np.ndarray):
        self.backend, self.places, self.memory = backend, places, memory
        self.regions = {place.name: place.whole(memory) for place in places}
        for place in () if backend.in_host_memory else places:
            self.regions[place.name] = backend.empty(tuple(place.region), place.dtype)
            backend.copy(place.whole(memory), self.regions[place.name])
        self.run = backend.prepare(task, {place.name: place.inside(self.regions[place.name]) for place in places})

    def fetch(self) -> None:
        for place in () if self.backend.in_host_memory else self.places:
            self.backend.copy(self.regions[place.name], place.whole(self.memory))


def drawn(task: Task, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw the inputs of a task, with zeros in one row or element of each array: some kernels skip a sum of 0."""
    inputs = task.operation.draw(rng, task)
    for array in inputs.values():
        if array.ndim and len(array) > 1:
            array[rng.integers(len(array))] = 0
    return inputs


def drawn_widely(task: Task, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw inputs as ``drawn`` does, but such that more kinds of mistakes show.

    The elements of an extreme have both signs, none is zero, and they may be large: a kernel may start from 0 or -1000,
    or compare magnitudes.
    """
    if task.operation.combination == "sum":
        return drawn(task, rng)
    x, large = task.operation.draw(rng, task)["x"], 1 if task.element.is_integer else LARGE
    return {"x": x * x.dtype.type((1, -large, large)[task.shape[0] % 3])}


def with_other_scalars(task: Task) -> Task:
    """Return a task with scalars of the other sign, in another ratio and, unless results are exact, with all bits.

    Those that the kernel's contract fixes, and a beta of 0, stay as they are. Of integers, beta is -2: 0 by default.
    """
    fixed = (task.variant.contract or Contract()).scalars
    other = {name: -value * (1 if task.element.exact else 0.7) for name, value in task.scalars.items() if value}
    if "beta" in task.scalars and task.element.is_integer:
        other["beta"] = -2.0
    elif "beta" in other and not task.element.exact:
        other["beta"] *= 2
    return dataclasses.replace(task, scalars=task.scalars | {name: other[name] for name in other if name not in fixed})


def layout(
    task: Task, rng: np.random.Generator, pitched: bool = True, columns: Sequence[int] = COLUMNS, apart: int = ALIGNMENT
) -> tuple[Guarded, ...]:
    """Return the places of the operands of a task.

    If ``pitched``, the rows of matrices are padded by one of ``columns``; for a kernel that states a multiple of the
    length of rows, by this multiple, because it may rely on the alignment. Regions begin at multiples of ``apart``.
    """
    contract = task.variant.contract or Contract()
    pitched = pitched and not contract.packed
    places, begin = [], 0
    for operand in task.operation.operands:
        shape = task.shape_of(operand)
        if len(shape) > 1:
            multiple = contract.multiples.get(operand.dimensions[-1], 1)
            padding = int(rng.choice(columns)) if multiple == 1 else multiple
            region = (shape[0] + 2 * ROWS, shape[1] + (padding if pitched else 0))
        else:
            region = ((shape[0] if shape else 1) + 2 * ELEMENTS,)
        places.append(Guarded(operand.name, begin, region, shape, task.storage(operand).name))
        begin = -(-places[-1].end // apart) * apart
    return tuple(places)


def at(task: Task, shape: tuple[int, ...]) -> Task:
    """Return a task at another shape, or at the nearest one that the kernel takes."""
    if contract := task.variant.contract:
        shape = contract.nearest(dict(zip(task.operation.dimensions, shape, strict=True)))
    return dataclasses.replace(task, shape=tuple(shape))


def far_apart(task: Task) -> tuple[Task, int] | None:
    """Return a small task, and a leading dimension at which indices of its last rows need more than 32 bits."""
    rows = [operand.dimensions[0] for operand in task.operation.operands if len(operand.dimensions) > 1]
    if not rows or len(task.operation.dimensions) < 3 or (task.variant.contract or Contract()).packed:
        return None
    small = at(task, (5,) * len(task.operation.dimensions))
    sizes = (small.shape[task.operation.dimensions.index(row)] for row in rows)
    least = min((size for size in sizes if size > 1), default=2)
    return small, (2**32 // (least - 1) // 1024 + 1) * 1024


def has_long_vectors(task: Task) -> bool:
    """Return whether a kernel on vectors may run with zeros before the last elements, and without a copy of them.

    One whose length is an ``int`` is given no vector with an index that overflows.
    """
    if task.variant.on_copies or task.operation.kernels not in VECTORS or task.operation.combination != "sum":
        return False
    return not (task.variant.adapted and OF_INT.search(task.variant.adapted.read_text(encoding="utf-8")))


def far_packed(task: Task) -> tuple[Task, Task] | None:
    """Return a task of packed arrays whose last elements have indices beyond 2^31, and its part that is not zero.

    Its result is small, because a CPU has to write all of it: rows of A are long, and of vectors only sums are.
    """
    contract = task.variant.contract or Contract()
    if has_long_vectors(task) and task.operation.kernels == "reduction":
        far, part = (at(task, (n,)) for n in (2**31 + 1000, 1000))
        return (far, part) if far.shape[0] > 2**31 else None
    if len(task.operation.dimensions) < 3 or not contract.packed:
        return None
    part = at(task, (2, 1, 29))
    m, n, k = part.shape
    far = at(task, (m, n, 2**31 // m + k))
    return (far, part) if m > 1 and far.shape[:2] == (m, n) and math.prod(far.shape) <= MOST_FAR else None


def most_bytes(task: Task) -> int:
    """Return an upper bound of the bytes of a layout."""
    most = 0
    for operand in task.operation.operands:
        rows, *columns = task.shape_of(operand) or (1,)
        padding = max(*COLUMNS, *(task.variant.contract or Contract()).multiples.values())
        wide, guard = (columns[0] + padding, ROWS) if columns else (1, ELEMENTS)
        most += (rows + 2 * guard) * wide * task.storage(operand).itemsize + ALIGNMENT
    return most


def fill(memory: np.ndarray, places: Sequence[Guarded], task: Task, inputs: Mapping[str, np.ndarray], rng) -> None:
    """Write inputs, poisoned outputs and guards: NaN around inputs, so that a result that depends on them is NaN."""
    roles = {operand.name: operand.role for operand in task.operation.operands}
    for place in places:
        region = place.whole(memory)
        if roles[place.name] == "in":
            region.fill(task.element.poison)
        else:
            memory[place.begin : place.end] = np.frombuffer(rng.bytes(place.end - place.begin), np.uint8)
        place.of(memory)[...] = inputs.get(place.name, no_result(task.dtype, task.operation.combination))


def trespass(before: np.ndarray, after: np.ndarray, places: Sequence[Guarded], task: Task) -> str:
    """Return which write was not allowed; empty if only outputs changed. The outputs are copied into ``before``."""
    for place in places:
        if next(operand.role for operand in task.operation.operands if operand.name == place.name) != "in":
            place.of(before)[...] = place.of(after)
    words = len(before) // 8 * 8  # eight bytes at a time take less memory
    if np.array_equal(before[:words].view(np.uint64), after[:words].view(np.uint64)) and np.array_equal(
        before[words:], after[words:]
    ):
        return ""
    wrong = np.flatnonzero(before != after)
    for place in places:
        if place.begin <= wrong[0] < place.end:
            element = (int(wrong[0]) - place.begin) // np.dtype(place.dtype).itemsize
            index = [int(i) for i in np.unravel_index(element, place.region)]
            index[0] -= place.guard
            where = ":".join(map(str, index))
            inside = all(0 <= i < size for i, size in zip(index, place.shape or (1,), strict=True))
            return (
                f"wrote to its input {place.name} at {where}" if inside else f"wrote outside {place.name}, at {where}"
            )
    return "wrote outside its arrays"
