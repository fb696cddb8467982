"""Launches that the head of a kernel's file lists, in order, with arrays of their own between them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcmm.model import Geometry, Task
from hpcmm.model.launch import Launch, Workspace
from hpcmm.operations.heads import MOST_SHARED, MOST_THREADS, number, sizes_of
from hpcmm.operations.reduction import START

LAST = {"grid": 1, "block": 1}  # a launch that copies the result from the workspace


def name_of(i: int, count: int) -> str:
    """Return the function of a launch; that of the last one is named as the operation's kernels."""
    return f"hpcmm_launch_{i + 1}" if i < count - 1 else ""


@dataclass(frozen=True)
class Listed(Geometry):
    """Launches, each with a grid, a block and bytes of shared memory, as expressions over the sizes and constants.

    Each gets the arguments of the operation and the arrays of the workspace.
    """

    listed: Sequence[Mapping[str, Any]] = field(hash=False)
    lengths: Mapping[str, int | str] = field(hash=False)  # elements of each array of the workspace
    adds: bool = False  # whether blocks add to the result of a reduction
    constants: Mapping[str, int] = field(default_factory=dict, hash=False)  # further macros of the source

    def check(self, dimensions: Sequence[str]) -> None:
        """Raise ValueError for what is no expression over the sizes, or not allowed."""
        known = {**dict.fromkeys(dimensions, 100), "root": 10, "ITEMSIZE": 4, **self.constants}
        for launch in self.listed:
            launch_of(launch, known)
        for length in self.lengths.values():
            number(length, known)

    def macros(self, task: Task) -> dict[str, int]:
        return dict(self.constants)

    def known(self, task: Task) -> dict[str, int]:
        sizes = sizes_of(task)
        return {**sizes, "root": math.isqrt(sizes["n"]), "ITEMSIZE": task.element.itemsize, **self.constants}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        known, kind = self.known(task), task.element.storage.name
        return {name: Workspace((max(1, number(length, known)),), kind) for name, length in self.lengths.items()}

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        arguments, known = task.operation.arguments(task, arrays), self.known(task)
        whole = (*arguments, *(arrays[name] for name in self.lengths))
        found = [Launch((1,), (1,), arguments, 0, START)] if self.adds else []
        for i, launch in enumerate(self.listed):
            grid, block, shared = launch_of(launch, known)
            if math.prod(grid):
                found.append(Launch(grid, block, whole, shared, name_of(i, len(self.listed))))
        return found


def launch_of(launch: Mapping[str, Any], known: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return grid, block and bytes of shared memory of a launch of a head; raise ValueError for what is not allowed."""
    grid, block = (
        tuple(number(x, known) for x in (sizes if isinstance(sizes, list) else [sizes]))
        for sizes in (launch.get("grid", 1), launch["block"])
    )
    shared = number(launch.get("shared_bytes", 0), known)
    if min(block) < 1 or math.prod(block) > MOST_THREADS:
        raise ValueError(f"a block of {math.prod(block)} threads")
    if not 0 <= shared <= MOST_SHARED:
        raise ValueError(f"{shared} bytes of shared memory")
    return grid, block, shared
