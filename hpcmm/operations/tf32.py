"""Geometry of the rung for float32 that multiplies elements rounded to TF32, and divides the terms of a narrow C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcmm.model import Boxes, Launch, Task, Workspace
from hpcmm.operations.blocks import RESIDENT_BLOCKS, ChosenTile
from hpcmm.operations.tma import ROW_BYTES, arrival, copied, copied_rows, even_blocks

LINE = 32  # elements of a line of the L2 cache, and of a row of a box
# Of the time model: a fit to times of an H200
START = 4.0e-6  # seconds of a launch without products
EXCHANGE = 1.0e-6  # seconds of the barriers of a cluster
EXCHANGED_BYTES_PER_SECOND = 60e9  # rate at which the blocks of a cluster write and read the sums of a tile


@dataclass(frozen=True)
class Tf32Tile:
    """A tile of C, with one consumer warpgroup for 64 columns, and a warpgroup that loads."""

    rows: int
    columns: int
    stages: int
    depth: int = LINE

    @property
    def threads(self) -> int:
        return 128 + 2 * self.columns

    @property
    def shared_bytes(self) -> int:
        """Return the dynamic shared memory of a block: stages, with two mbarriers each."""
        return self.stages * ((self.rows + self.columns) * ROW_BYTES + 16)


@dataclass(frozen=True)
class Tf32Choice:
    """A tile that ``Tf32`` can choose, with the constants of its time model.

    Parameters
    ----------
    tile : Tf32Tile
    parts : tuple of int
        Numbers of blocks that may divide the terms of a tile.
    step : float
        Seconds for the products of a stage.
    end : float
        Seconds of prologue and epilogue per wave of blocks.
    """

    tile: Tf32Tile
    parts: tuple[int, ...]
    step: float
    end: float

    def seconds(self, shape: tuple[int, int, int], parts: int) -> float:
        """Return the predicted time on an H100 or H200, without a copy of unaligned rows."""
        m, n, k = shape
        tile = self.tile
        waves = -(-(-(-m // tile.rows) * -(-n // tile.columns) * parts) // RESIDENT_BLOCKS[parts])
        mainloop = waves * -(-k // tile.depth // parts) * self.step
        exchange = EXCHANGE + tile.rows * tile.columns * 4 / EXCHANGED_BYTES_PER_SECOND if parts > 1 else 0
        loaded = max(mainloop, arrival(shape, tile.rows, tile.columns, 4))
        return START + loaded + waves * (self.end / parts + exchange)


@dataclass(frozen=True)
class Tf32(ChosenTile):
    """Blocks that multiply float32 elements rounded to TF32, and compute the transpose of C.

    Tile and parts depend on the shape. With one part, blocks are persistent; with several, the blocks of a cluster
    divide the terms of a tile.

    Parameters
    ----------
    choices : tuple of Tf32Choice
    group_rows : int
        Rows of tiles in a group of the rasterization order.
    copy_block : int
        Threads of a block that copies rows which TMA does not take.
    """

    choices: tuple[Tf32Choice, ...]
    group_rows: int = 8
    copy_block: int = 256

    def chosen(self, task: Task) -> tuple[Tf32Tile, int]:
        """Return the tile and the number of parts with the shortest predicted time."""
        every = [(choice, parts) for choice in self.choices for parts in choice.parts]
        if task.shape:
            every.sort(key=lambda each: each[0].seconds(task.shape, each[1]))
        choice, parts = every[0]
        return choice.tile, parts

    def division(self, tile: Tf32Tile, divided: int) -> str:
        return f"parts {divided}"

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        return {
            **{"ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.depth, "STAGES": tile.stages},
            **{"PARTS": parts, "BLOCK": tile.threads, "GROUP_ROWS": self.group_rows, "COPY_BLOCK": self.copy_block},
        }

    def workspace(self, task: Task) -> dict[str, Workspace]:
        return copied_rows(task, LINE)

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        (tile, parts), (columns, rows) = self.chosen(task), self.grid(task)
        if not rows * columns:
            return []
        launches, arguments = copied(task, arrays, self.copy_block)
        *_, a, _, b, _, _, _, _ = arguments
        boxes = Boxes(a, tile.rows, tile.depth, "tfloat32"), Boxes(b, tile.depth, tile.depth, "tfloat32")
        tiles = rows * columns
        grid = even_blocks(tiles, multiprocessors) if parts == 1 else tiles, 1, parts
        return [*launches, Launch(grid, (tile.threads,), (*arguments, *boxes), tile.shared_bytes)]
