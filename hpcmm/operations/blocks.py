"""Geometries of CUDA kernels: how thread blocks cover the matrix C of a product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hpcmm.model import Geometry, Launch, Task

# Share of the SMs that clusters of so many blocks can fill, at a block per SM. A cluster stays within a GPC, whose last
# SMs may be too few for it. The shares are those of an H100 or H200.
CLUSTERED = {1: Fraction(1), 2: Fraction(1), 3: Fraction(39, 44), 4: Fraction(10, 11)}
CLUSTERED |= {6: Fraction(17, 22), 8: Fraction(10, 11)}


def rounded_up(size: int, multiple: int) -> int:
    """Return the least multiple that is not smaller.

    >>> rounded_up(65, 32)
    96
    """
    return -(-size // multiple) * multiple


def resident_blocks(parts: int, sms: int) -> int:
    """Return the blocks that run at the same time, at one per SM, in clusters of ``parts`` blocks.

    >>> [resident_blocks(parts, 132) for parts in CLUSTERED]
    [132, 132, 117, 120, 102, 120]
    """
    return max(1, math.floor(sms * CLUSTERED[parts] / parts)) * parts


def tiles_of(shape: tuple[int, ...], tile: Any) -> int:
    """Return the number of tiles of ``tile.rows`` x ``tile.columns`` that cover C."""
    m, n, _ = shape
    return -(-m // tile.rows) * -(-n // tile.columns)


@dataclass(frozen=True)
class Staged:
    """The tiles that a block stages at a time: ``rows`` x ``depth`` of A and ``depth`` x ``columns`` of B."""

    rows: int
    columns: int
    depth: int


class OverC(Geometry):
    """Blocks that cover C, with one tile of C each."""

    def covered(self, task: Task) -> tuple[int, int]:
        """Return the rows and columns of a block's tile of C."""
        raise NotImplementedError

    def staged(self, task: Task) -> Staged | None:
        """Return the tiles that a block stages in shared memory; None if every thread loads for itself."""
        return None

    def grid(self, task: Task) -> tuple[int, int]:
        """Return the number of blocks along n and m; the last ones may extend past C."""
        m, n, _ = task.shape
        rows, columns = self.covered(task)
        return -(-n // columns), -(-m // rows)


class ChosenTile(OverC):
    """Blocks whose tile of C, and the division of its terms, depend on the shape of a task and on the SM count.

    A subclass predicts the time of each of its candidates, or overrides ``chosen``.
    """

    def candidates(self) -> list[tuple[Any, int]]:
        """Return each tile, with each division of its terms: a number of parts, or whether they are divided."""
        raise NotImplementedError

    def seconds_of(self, task: Task, tile: Any, divided: int) -> float:
        """Return the predicted time of a candidate at the clock of an H100 or H200."""
        raise NotImplementedError

    def chosen(self, task: Task) -> tuple[Any, int]:
        """Return the tile and the division of its terms with the shortest predicted time; the first without a shape."""
        every = self.candidates()
        return min(every, key=lambda each: self.seconds_of(task, *each)) if task.shape else every[0]

    def seconds(self, task: Task) -> float:
        """Return the shortest predicted time."""
        return min(self.seconds_of(task, *each) for each in self.candidates())

    def division(self, tile: Any, divided: int) -> str:
        """Describe the division; empty if no terms are divided."""
        raise NotImplementedError

    def pick(self, task: Task) -> str:
        tile, divided = self.chosen(task)
        return ", ".join(filter(None, (f"{tile.rows}x{tile.columns}", self.division(tile, divided))))

    def covered(self, task: Task) -> tuple[int, int]:
        tile, _ = self.chosen(task)
        return tile.rows, tile.columns

    def staged(self, task: Task) -> Staged | None:
        tile, _ = self.chosen(task)
        return Staged(tile.rows, tile.columns, tile.depth)


@dataclass(frozen=True)
class SquareBlocks(OverC):
    """One thread per element of C, in square blocks of the task's tile width; an exact variant drops partial blocks.

    Parameters
    ----------
    tiled : bool
        Whether a block stages tiles of A and B in shared memory.
    rounded_up : bool
        Whether an exact variant has partial blocks nevertheless.
    """

    tiled: bool = False
    rounded_up: bool = False

    def macros(self, task: Task) -> dict[str, int]:
        return {"TILE": task.tile}

    def covered(self, task: Task) -> tuple[int, int]:
        return task.tile, task.tile

    def staged(self, task: Task) -> Staged | None:
        return Staged(task.tile, task.tile, task.tile) if self.tiled else None

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        m, n, _ = task.shape
        whole = task.variant.exact and not self.rounded_up
        grid = (n // task.tile, m // task.tile) if whole else self.grid(task)
        return [Launch(grid, (task.tile, task.tile), task.operation.arguments(task, arrays))] if all(grid) else []


@dataclass(frozen=True)
class Blocks(OverC):
    """Blocks of ``threads`` threads with ``rows`` x ``columns`` of C each, in steps of ``depth`` terms if given.

    Parameters
    ----------
    extra : mapping of str to int
        Further compile-time constants of the source.
    """

    threads: int
    rows: int
    columns: int
    depth: int = 0
    extra: Mapping[str, int] | None = None

    def macros(self, task: Task) -> dict[str, int]:
        depth = {"DEPTH": self.depth} if self.depth else {}
        return {"ROWS": self.rows, "COLUMNS": self.columns, **depth, "BLOCK": self.threads, **(self.extra or {})}

    def covered(self, task: Task) -> tuple[int, int]:
        return self.rows, self.columns

    def staged(self, task: Task) -> Staged | None:
        return Staged(self.rows, self.columns, self.depth) if self.depth else None

    def shared_bytes(self, task: Task) -> int:
        """Return the dynamic shared memory of a block in bytes."""
        return 0

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        grid = self.grid(task)
        if not all(grid):
            return []
        return [Launch(grid, (self.threads,), task.operation.arguments(task, arrays), self.shared_bytes(task))]


@dataclass(frozen=True)
class OwnBlocks(OverC):
    """Blocks as the head of a user's file describes them.

    Parameters
    ----------
    tiles : tuple of int
        Widths of square blocks with one thread per element of C, as ``SquareBlocks``; empty if ``block`` is given.
    rows, columns : int
        Rows and columns of C per block.
    block : tuple of int
        Threads of a block in x, y and z.
    shared_bytes : int
        Dynamic shared memory of a block.
    cluster : tuple of int
        Blocks of a cluster in x, y and z, which the source states with ``__cluster_dims__``. The grid is rounded up to
        whole clusters.
    constants : mapping of str to int
        Further macros of the source.
    """

    tiles: tuple[int, ...] = (16,)
    rows: int = 0
    columns: int = 0
    block: tuple[int, ...] = ()
    shared_bytes: int = 0
    cluster: tuple[int, ...] = (1,)
    constants: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self):
        if self.block:
            threads = (*self.block, 1)
            object.__setattr__(self, "tiles", ())
            object.__setattr__(self, "columns", self.columns or threads[0])
            object.__setattr__(self, "rows", self.rows or threads[1])

    def macros(self, task: Task) -> dict[str, int]:
        if self.tiles:
            return {"TILE": task.tile, **self.constants}
        return {"ROWS": self.rows, "COLUMNS": self.columns, "BLOCK": math.prod(self.block), **self.constants}

    def covered(self, task: Task) -> tuple[int, int]:
        return (task.tile, task.tile) if self.tiles else (self.rows, self.columns)

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        grid, cluster = self.grid(task), (*self.cluster, 1, 1)
        if not all(grid):
            return []
        whole = [-(-blocks // of) * of for blocks, of in zip((*grid, 1), cluster, strict=False)]
        block = (task.tile, task.tile) if self.tiles else self.block
        return [Launch(tuple(whole), block, task.operation.arguments(task, arrays), self.shared_bytes)]


@dataclass(frozen=True)
class Ring(Blocks):
    """Blocks with a ring of ``stages`` pipeline stages in dynamic shared memory, A stored by columns.

    The rasterization order goes through groups of ``group_rows`` rows of tiles, which share tiles in the L2 cache; 0
    keeps the order of the grid.
    """

    stages: int = 0
    group_rows: int = 0

    def macros(self, task: Task) -> dict[str, int]:
        stages = {"STAGES": self.stages} if self.stages else {}
        group = {"GROUP_ROWS": self.group_rows} if self.group_rows else {}
        return {**super().macros(task), **stages, **group}

    def shared_bytes(self, task: Task) -> int:
        """Return the bytes of the ring: columns of A are padded by 16 bytes, rows of B are not."""
        itemsize = task.element.itemsize
        return self.stages * self.depth * (self.rows * itemsize + 16 + self.columns * itemsize)


@dataclass(frozen=True)
class TensorCoreRing(Ring):
    """A ring for ``mma``: A and B stored by rows; a warp computes ``warp_rows`` x ``warp_columns`` of C."""

    warp_rows: int = 0
    warp_columns: int = 0

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "WARP_ROWS": self.warp_rows, "WARP_COLUMNS": self.warp_columns}

    def shared_bytes(self, task: Task) -> int:
        """Return the bytes of the ring.

        Rows of A are padded by 4 elements and rows of B by 32 bytes, so that fragments load without bank conflicts.
        """
        itemsize = task.element.itemsize
        a, b = self.rows * (self.depth + 4) * itemsize, self.depth * (self.columns * itemsize + 32)
        return self.stages * (a + b)


@dataclass(frozen=True)
class WarpgroupRing(Ring):
    """A ring for ``wgmma``: ``parts`` TF32 parts of B in shared memory; A goes to registers."""

    parts: int = 2

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "PARTS": self.parts}

    def shared_bytes(self, task: Task) -> int:
        return self.stages * self.parts * self.depth * self.columns * task.element.itemsize


@dataclass(frozen=True)
class SixteenBit(Ring):
    """Blocks for float16 and bfloat16, whose tiles in shared memory have rows of 128 bytes with a swizzle, unpadded.

    A warp computes ``warp_rows`` x ``warp_columns`` of C, or a warpgroup 64 rows if these are 0. Without ``stages``
    the source declares the shared memory.
    """

    warp_rows: int = 0
    warp_columns: int = 0

    def macros(self, task: Task) -> dict[str, int]:
        warp = {"WARP_ROWS": self.warp_rows, "WARP_COLUMNS": self.warp_columns} if self.warp_rows else {}
        return {**super().macros(task), **warp, "BFLOAT16": int(task.dtype == "bfloat16")}

    def shared_bytes(self, task: Task) -> int:
        return self.stages * self.depth * (self.rows + self.columns) * task.element.itemsize
