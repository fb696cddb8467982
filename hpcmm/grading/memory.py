"""The memory that a kernel's process shares with this one: arrays between guards that no kernel may write to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcmm.model import Task

ROWS = 8  # of a matrix, before and after it
ELEMENTS = 256  # of a vector or a single element, before and after it
COLUMNS = (0, 0, 3, 4, 8)  # beside the rows of a matrix; drawn
ALIGNMENT = 256  # of regions, as the allocator of a GPU has it


@dataclass(frozen=True)
class Guarded:
    """An array inside a region of the shared memory.

    Parameters
    ----------
    name : str
    begin : int
        Offset of the region in bytes.
    region : tuple of int
        Shape of the region.
    shape : tuple of int
        Shape of the array, which begins ``guard`` rows (or elements) into the region.
    dtype : str
    """

    name: str
    begin: int
    region: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str

    @property
    def guard(self) -> int:
        return ROWS if len(self.shape) > 1 else ELEMENTS

    @property
    def end(self) -> int:
        """Offset of the end of the region."""
        return self.begin + math.prod(self.region) * np.dtype(self.dtype).itemsize

    def whole(self, memory: np.ndarray) -> np.ndarray:
        """Return the region as a view of the memory."""
        return memory[self.begin : self.end].view(self.dtype).reshape(self.region)

    def inside(self, region: Any) -> Any:
        """Return the array as a view of its region, which may be on a device."""
        rows = region[self.guard : self.guard + (self.shape[0] if self.shape else 1)]
        return rows[:, : self.shape[1]] if len(self.shape) > 1 else rows.reshape(self.shape)

    def of(self, memory: np.ndarray) -> np.ndarray:
        """Return the array as a view of the memory."""
        return self.inside(self.whole(memory))


def layout(task: Task, rng: np.random.Generator, pitched: bool = True) -> tuple[Guarded, ...]:
    """Return the places of the operands of a task, with a random pitch of matrices if ``pitched``."""
    sizes = dict(zip(task.operation.dimensions, task.shape, strict=True))
    places, begin = [], 0
    for operand in task.operation.operands:
        shape = tuple(sizes[name] for name in operand.dimensions)
        if len(shape) > 1:
            region = (shape[0] + 2 * ROWS, shape[1] + (int(rng.choice(COLUMNS)) if pitched else 0))
        else:
            region = ((shape[0] if shape else 1) + 2 * ELEMENTS,)
        places.append(Guarded(operand.name, begin, region, shape, task.storage(operand).name))
        begin = -(-places[-1].end // ALIGNMENT) * ALIGNMENT
    return tuple(places)


def most_bytes(task: Task) -> int:
    """Return an upper bound of the bytes of a layout."""
    sizes = dict(zip(task.operation.dimensions, task.shape, strict=True))
    most = 0
    for operand in task.operation.operands:
        rows, *columns = [sizes[name] for name in operand.dimensions] or [1]
        wide, guard = (columns[0] + max(COLUMNS), ROWS) if columns else (1, ELEMENTS)
        most += (rows + 2 * guard) * wide * task.storage(operand).itemsize + ALIGNMENT
    return most


def fill(memory: np.ndarray, places: Sequence[Guarded], task: Task, inputs: Mapping[str, np.ndarray], rng) -> None:
    """Write inputs, poisoned outputs and guards.

    Guards of inputs are NaN, so that a result that depends on them is NaN; those of outputs are random.
    """
    roles = {operand.name: operand.role for operand in task.operation.operands}
    for place in places:
        region = place.whole(memory)
        if roles[place.name] == "in":
            region.fill(task.element.poison)
        else:
            memory[place.begin : place.end] = np.frombuffer(rng.bytes(place.end - place.begin), np.uint8)
        place.of(memory)[...] = inputs.get(place.name, task.element.poison)


def trespass(before: np.ndarray, after: np.ndarray, places: Sequence[Guarded], task: Task) -> str:
    """Return which write was not allowed; empty if only outputs changed. The outputs are copied into ``before``."""
    for place in places:
        if next(each.role for each in task.operation.operands if each.name == place.name) != "in":
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
