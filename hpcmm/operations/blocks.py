"""Geometries of CUDA kernels: how thread blocks cover the matrix C of a product."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcmm.model import Geometry, HpcmmError, Task
from hpcmm.model.launch import Boxes, Launch
from hpcmm.operations.heads import number, sizes_of
from hpcmm.operations.waves import Work

BOX_BYTES = 128  # of a row of a box that TMA copies


def rounded_up(size: int, multiple: int) -> int:
    """Return the least multiple that is not smaller.

    >>> rounded_up(65, 32)
    96
    """
    return -(-size // multiple) * multiple


def of_type(task: Task) -> dict[str, int]:
    """Return the macro by which a source distinguishes both 16-bit types."""
    return {"BFLOAT16": int(task.dtype == "bfloat16")} if task.element.itemsize == 2 else {}


@dataclass(frozen=True)
class Staged:
    """The tiles that a block stages at a time: ``rows`` x ``depth`` of A and ``depth`` x ``columns`` of B."""

    rows: int
    columns: int
    depth: int


class OverC(Geometry):
    """Blocks that cover C, with one tile of C each."""

    def covered(self, task: Task) -> tuple[int, int]:
        raise NotImplementedError

    def phase(self, task: Task) -> Staged | None:
        """Return the tiles that a block stages in shared memory; None if every thread loads for itself."""
        return None

    def over_c(self, task: Task) -> tuple[int, int]:
        """Return the number of blocks along n and m; the last ones may extend past C."""
        m, n, _ = task.shape
        rows, columns = self.covered(task)
        return -(-n // columns), -(-m // rows)

    def work(self, task: Task) -> Work:
        raise NotImplementedError


@dataclass(frozen=True)
class Tiled(OverC):
    """Blocks that the head of a kernel's file describes; ``head.schema.yaml`` lists its keys."""

    tiles: tuple[int, ...] = (16,)
    rows: int = 0
    columns: int = 0
    depth: int = 0  # steps of k that a block stages at a time; 0 if it stages none
    block: tuple[int, ...] = ()  # threads of a block in x, y and z
    grid: tuple[str, ...] = ()
    shared_bytes: int = 0  # dynamic shared memory of a block
    cluster: tuple[int, ...] = (1,)
    tensor_maps: Mapping[str, int] = field(default_factory=dict, hash=False)
    staged: bool = False  # whether square blocks stage tiles of A and B in shared memory
    constants: Mapping[str, int] = field(default_factory=dict, hash=False)  # further macros of the source

    def __post_init__(self):
        if self.block:
            threads = (*self.block, 1)
            object.__setattr__(self, "tiles", ())
            object.__setattr__(self, "columns", self.columns or threads[0])
            object.__setattr__(self, "rows", self.rows or threads[1])
        if self.grid:
            defined = dict.fromkeys(("m", "n", "k"), 1) | self._macros(max(self.tiles, default=0))
            try:
                self._blocks(defined)
            except ValueError as error:
                names = ", ".join(defined)
                raise ValueError(f"{list(self.grid)} is not allowed; allowed: expressions over {names}") from error

    def _macros(self, tile: int) -> dict[str, int]:
        if self.tiles:
            return {"TILE": tile, **self.constants}
        depth = {"DEPTH": self.depth} if self.depth else {}
        block = {"ROWS": self.rows, "COLUMNS": self.columns, **depth, "BLOCK": math.prod(self.block)}
        return {**block, **self.constants}

    def _blocks(self, defined: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(number(expression, defined) for expression in self.grid)

    def macros(self, task: Task) -> dict[str, int]:
        return {**self._macros(task.tile), **of_type(task)}

    def covered(self, task: Task) -> tuple[int, int]:
        return (task.tile, task.tile) if self.tiles else (self.rows, self.columns)

    def phase(self, task: Task) -> Staged | None:
        rows, columns = self.covered(task)
        depth = task.tile if self.tiles and self.staged else self.depth
        return Staged(rows, columns, depth) if depth else None

    def work(self, task: Task) -> Work:
        return Work(*self.covered(task), max(1, self.depth), math.prod(self.block) / 32)

    def blocks(self, task: Task) -> tuple[int, ...]:
        if self.grid:
            try:
                return self._blocks({**sizes_of(task), **self.macros(task)})
            except ValueError as error:
                raise HpcmmError(f"grid: {error} has no value at {sizes_of(task)}") from error
        cluster = (*self.cluster, 1, 1)
        over = zip((*self.over_c(task), 1), cluster, strict=False)
        return tuple(rounded_up(blocks, of) for blocks, of in over)[: 3 if cluster[2] > 1 else 2]

    def boxes(self, task: Task, arrays: Mapping[str, Any]) -> tuple[Boxes, ...]:
        width = BOX_BYTES // task.element.itemsize
        return tuple(Boxes(arrays[name], rows, width, task.dtype) for name, rows in self.tensor_maps.items())

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        grid, block = self.blocks(task), (task.tile, task.tile) if self.tiles else self.block
        arguments = (*task.operation.arguments(task, arrays), *self.boxes(task, arrays))
        return [Launch(grid, block, arguments, self.shared_bytes)] if min(grid) > 0 else []
