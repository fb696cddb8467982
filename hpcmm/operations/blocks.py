"""How blocks of threads cover the matrix C of a product: geometries of CUDA kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcmm.model import Geometry, Launch, Task

WORTH_DIVIDING = 4  # steps that a tile's blocks must save by dividing it, as they must add up their parts
LEAST_STEPS = 2  # of such a part
SMS = 132  # of an H100 or H200
# Blocks of one per SM that run at the same time, by blocks per cluster: a cluster stays within a GPC (measured).
RESIDENT_BLOCKS = {1: 132, 2: 132, 3: 108, 4: 100}


@dataclass(frozen=True)
class Staged:
    """What a block holds of a product at a time: ``rows`` x ``depth`` of A and ``depth`` x ``columns`` of B."""

    rows: int
    columns: int
    depth: int


class OverC(Geometry):
    """Blocks that cover C, each a rectangle of it."""

    def covered(self, task: Task) -> tuple[int, int]:
        """Return rows and columns of C that a block computes."""
        raise NotImplementedError

    def staged(self, task: Task) -> Staged | None:
        """Return what a block holds in shared memory at a time; None if every thread loads for itself."""
        return None

    def grid(self, task: Task) -> tuple[int, int]:
        """Return blocks along n and m; the last ones may reach beyond C."""
        m, n, _ = task.shape
        rows, columns = self.covered(task)
        return -(-n // columns), -(-m // rows)


@dataclass(frozen=True)
class SquareBlocks(OverC):
    """One thread for each element of C, in square blocks of the task's tile width; of an exact variant, those that fit.

    Parameters
    ----------
    tiled : bool
        Whether a block stages tiles of A and B in shared memory.
    """

    tiled: bool = False

    def macros(self, task: Task) -> dict[str, int]:
        return {"TILE": task.tile}

    def covered(self, task: Task) -> tuple[int, int]:
        return task.tile, task.tile

    def staged(self, task: Task) -> Staged | None:
        return Staged(task.tile, task.tile, task.tile) if self.tiled else None

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        m, n, _ = task.shape
        grid = (n // task.tile, m // task.tile) if task.variant.exact else self.grid(task)
        return [Launch(grid, (task.tile, task.tile), task.operation.arguments(task, arrays))] if all(grid) else []


@dataclass(frozen=True)
class Blocks(OverC):
    """Blocks of ``threads`` threads, each with ``rows`` x ``columns`` of C, and ``depth`` terms at a time if given.

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
        """Return the dynamic shared memory of a block."""
        return 0

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        grid = self.grid(task)
        if not all(grid):
            return []
        return [Launch(grid, (self.threads,), task.operation.arguments(task, arrays), self.shared_bytes(task))]


@dataclass(frozen=True)
class Ring(Blocks):
    """Blocks with a ring of ``stages`` tiles in dynamic shared memory, A stored by columns.

    ``group`` rows of blocks are worked on together, so that they share tiles in the L2 cache; 0 if the order of
    blocks is the grid's.
    """

    stages: int = 0
    group: int = 0

    def macros(self, task: Task) -> dict[str, int]:
        group = {"GROUP": self.group} if self.group else {}
        return {**super().macros(task), "STAGES": self.stages, **group}

    def shared_bytes(self, task: Task) -> int:
        """A column of A is padded by 16 bytes; rows of B need no padding."""
        itemsize = task.element.itemsize
        return self.stages * self.depth * (self.rows * itemsize + 16 + self.columns * itemsize)


@dataclass(frozen=True)
class TensorCoreRing(Ring):
    """A ring for ``mma``: A and B stored by rows, each warp with ``warp_rows`` x ``warp_columns`` of C."""

    warp_rows: int = 0
    warp_columns: int = 0

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "WARP_ROWS": self.warp_rows, "WARP_COLUMNS": self.warp_columns}

    def shared_bytes(self, task: Task) -> int:
        """A row of A is padded by 4 elements, a row of B by 32 bytes: fragments are read without bank conflicts."""
        itemsize = task.element.itemsize
        a, b = self.rows * (self.depth + 4) * itemsize, self.depth * (self.columns * itemsize + 32)
        return self.stages * (a + b)


@dataclass(frozen=True)
class WarpgroupRing(Ring):
    """A ring for ``wgmma``: ``parts`` parts of B in shared memory; A goes to registers."""

    parts: int = 2

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "PARTS": self.parts}

    def shared_bytes(self, task: Task) -> int:
        return self.stages * self.parts * self.depth * self.columns * task.element.itemsize


@dataclass(frozen=True)
class StreamK(WarpgroupRing):
    """Blocks that divide the terms of tiles among them where some would be idle (stream-K).

    ``most_blocks`` is the number of SMs that the source has workspace for.
    """

    most_blocks: int = 0

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "MAX_BLOCKS": self.most_blocks}

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        steps = -(-task.shape[2] // self.depth)
        most = min(self.most_blocks, multiprocessors)
        return [
            Launch(
                (blocks_that_divide(math.prod(launch.grid), steps, most),),
                *(launch.block, launch.arguments, launch.shared_bytes),
            )
            for launch in super().launches(task, arrays, multiprocessors)
        ]


@dataclass(frozen=True)
class FmaTile:
    """A tile of C by FMA units, as ``fma_tile.cuh`` divides it.

    ``slices`` groups of warps have the whole tile each, and divide its terms. A thread has ``high`` x ``wide``
    elements, a warp ``lane_rows`` rows of threads. Each group has a ring of ``stages`` stages of ``depth`` terms, and
    ``part`` of them are unrolled.
    """

    rows: int
    columns: int
    slices: int
    high: int
    wide: int
    lane_rows: int
    depth: int
    stages: int
    part: int

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.high * self.wide) * self.slices

    @property
    def macros(self) -> dict[str, int]:
        return {
            **{"ROWS": self.rows, "COLUMNS": self.columns, "SLICES": self.slices, "HIGH": self.high},
            **{"WIDE": self.wide, "LANE_ROWS": self.lane_rows, "DEPTH": self.depth, "STAGES": self.stages},
            **{"PART": self.part, "BLOCK": self.threads},
        }

    @property
    def ring_bytes(self) -> int:
        """Shared memory of the rings of all groups, in float32."""
        return self.slices * self.stages * (self.rows + self.columns) * self.depth * 4


@dataclass(frozen=True)
class SplitChoice:
    """A tile that ``SplitK`` can choose, with the constants of its time model.

    Parameters
    ----------
    tile : FmaTile
    most_parts : int
        Largest number of blocks that divide the terms of a tile; limited by shared memory.
    share : float
        Share of the FMA units' peak rate that the main loop reaches.
    overhead : float
        Seconds of prologue and epilogue per wave of blocks.
    """

    tile: FmaTile
    most_parts: int
    share: float
    overhead: float

    def seconds(self, shape: tuple[int, int, int], parts: int) -> float:
        """Return the predicted time on an H100 or H200, without the launch.

        Blocks run in waves, each at 128 FMAs per clock and SM at 1.975 GHz. The exchange of a cluster costs 1 us.
        """
        m, n, k = shape
        blocks = -(-m // self.tile.rows) * -(-n // self.tile.columns) * parts
        terms = -(-k // self.tile.depth // parts) * self.tile.depth
        waves = -(-blocks // RESIDENT_BLOCKS[parts])
        main_loop = self.tile.rows * self.tile.columns * terms / (128 * 1.975e9 * self.share)
        return waves * (main_loop + self.overhead) + 1e-6 * (parts > 1)


@dataclass(frozen=True)
class SplitK(OverC):
    """Tiles whose terms are divided among the blocks of a cluster; the tile and the parts depend on the shape.

    The constants of ``choices`` are a fit to the times of 53 shapes on an H200; over these shapes, the choice costs
    0.6 % on average beside the fastest of all tiles.
    """

    choices: tuple[SplitChoice, ...]

    def chosen(self, task: Task) -> tuple[FmaTile, int]:
        """Return the tile and the number of parts with the least predicted time."""
        every = [(choice, parts) for choice in self.choices for parts in range(1, choice.most_parts + 1)]
        choice, parts = min(every, key=lambda each: each[0].seconds(task.shape, each[1])) if task.shape else every[0]
        return choice.tile, parts

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        return {**tile.macros, "PARTS": parts}

    def covered(self, task: Task) -> tuple[int, int]:
        tile, _ = self.chosen(task)
        return tile.rows, tile.columns

    def staged(self, task: Task) -> Staged | None:
        tile, _ = self.chosen(task)
        return Staged(tile.rows, tile.columns, tile.depth)

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        tile, parts = self.chosen(task)
        grid = self.grid(task)
        if not all(grid):
            return []
        fragments = tile.high * tile.wide // 4 // tile.slices  # vectors of a thread that the blocks exchange
        exchanged = parts * -(-fragments // parts) * tile.threads * 16 if parts > 1 else 0
        arguments = task.operation.arguments(task, arrays)
        return [Launch((*grid, parts), (tile.threads,), arguments, tile.ring_bytes + exchanged)]


@dataclass(frozen=True)
class StreamKFma(OverC):
    """Persistent blocks with tiles by FMA units, which divide the terms of tiles where some would be idle.

    ``group`` rows of blocks share tiles in the L2 cache; ``most_blocks`` is the number of SMs that the source has
    workspace for.
    """

    tile: FmaTile
    group: int
    most_blocks: int

    def macros(self, task: Task) -> dict[str, int]:
        return {**self.tile.macros, "GROUP": self.group, "MAX_BLOCKS": self.most_blocks}

    def covered(self, task: Task) -> tuple[int, int]:
        return self.tile.rows, self.tile.columns

    def staged(self, task: Task) -> Staged | None:
        return Staged(self.tile.rows, self.tile.columns, self.tile.depth)

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        grid = self.grid(task)
        if not all(grid):
            return []
        most, tiles = min(self.most_blocks, multiprocessors), math.prod(grid)
        steps = max(1, -(-task.shape[2] // self.tile.depth))
        # persistent: a wave of blocks has all tiles, whole or in parts
        blocks = tiles
        if tiles > most or -tiles % most * steps > WORTH_DIVIDING * most:
            blocks = min(most, max(tiles, tiles * steps // LEAST_STEPS))
        return [Launch((blocks,), (self.tile.threads,), task.operation.arguments(task, arrays), self.tile.ring_bytes)]


def blocks_that_divide(tiles: int, steps: int, most: int) -> int:
    """Return the number of blocks for ``tiles`` tiles of ``steps`` steps each, where ``most`` run at the same time.

    It is the number of tiles where dividing them would save less than adding up the parts costs. Otherwise no block
    that runs at the same time is idle.
    """
    idle = -tiles % most  # in the last wave, if no tile is divided
    if idle * steps <= WORTH_DIVIDING * most:
        return tiles
    return min(most, max(tiles, tiles * steps // LEAST_STEPS))
