"""Geometry of the rung for 16-bit types that divides the terms of a tile among the blocks of a cluster (split-K)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcmm.model import Boxes, Launch, Task, Workspace
from hpcmm.operations.blocks import RESIDENT_BLOCKS, ChosenTile
from hpcmm.operations.tma import BOX, ROW_BYTES, arrival, copied, copied_rows, even_blocks, whole_lines

CHUNK = 8  # elements in 16 bytes; TMA requires rows of a multiple of 16 bytes
WARP_BOX = 16 * ROW_BYTES  # of C, for each warp of the consumers
# The rest of the time model: a fit to times of an H200
START = 5.74e-6  # seconds of a launch without products
PART_LINES = 1.31  # time of products, relative to others, if rows are no multiple of a line
EXCHANGE = 1.03e-6  # seconds of the barriers of a cluster
EXCHANGED_BYTES_PER_SECOND = 41e9  # rate at which the blocks of a cluster write and read the sums of a tile
COLUMN = 12e-9  # seconds for a column of a tile whose elements are stored one by one


@dataclass(frozen=True)
class WgmmaTile:
    """A tile of C, with one consumer warpgroup for 64 rows, and a warp that loads."""

    rows: int
    columns: int
    stages: int
    depth: int = BOX

    def threads(self, parts: int) -> int:
        """Return the threads of a block.

        The largest tile, with several in turn, needs more registers than each of these threads gets. There a whole
        warpgroup loads, which gives registers to the others.
        """
        return 2 * self.rows + (128 if parts == 1 and self.rows * self.columns == 128 * 256 else 32)

    def macros(self, parts: int) -> dict[str, int]:
        return {
            **{"ROWS": self.rows, "COLUMNS": self.columns, "DEPTH": self.depth, "STAGES": self.stages},
            **{"PARTS": parts, "BLOCK": self.threads(parts)},
        }

    def shared_bytes(self, parts: int) -> int:
        """Return the dynamic shared memory of a block: stages, boxes of C of its warps, two mbarriers per stage."""
        boxes = self.rows // 16 * WARP_BOX if parts == 1 else 0
        return self.stages * ((self.rows + self.columns) * ROW_BYTES + 16) + boxes


@dataclass(frozen=True)
class WgmmaChoice:
    """A tile that ``SplitWgmma`` can choose, with the constants of its time model.

    Parameters
    ----------
    tile : WgmmaTile
    parts : tuple of int
        Numbers of blocks that may divide the terms of a tile.
    step : float
        Seconds for the products of a stage.
    end : float
        Seconds of prologue and epilogue per wave of blocks.
    """

    tile: WgmmaTile
    parts: tuple[int, ...]
    step: float
    end: float

    def seconds(self, shape: tuple[int, int, int], parts: int) -> float:
        """Return the predicted time on an H100 or H200, without a copy of unaligned rows."""
        m, n, k = shape
        tile = self.tile
        waves = -(-(-(-m // tile.rows) * -(-n // tile.columns) * parts) // RESIDENT_BLOCKS[parts])
        steps = -(-k // tile.depth // parts)
        mainloop = waves * steps * self.step * (1 if whole_lines(shape) else PART_LINES)
        exchange = EXCHANGE + tile.rows * tile.columns * 4 / EXCHANGED_BYTES_PER_SECOND if parts > 1 else 0
        stores = tile.columns / parts * COLUMN if n % CHUNK else 0
        return START + max(mainloop, arrival(shape, tile.rows, tile.columns)) + waves * (self.end + exchange + stores)


@dataclass(frozen=True)
class SplitWgmma(ChosenTile):
    """Tiles whose terms are divided among the blocks of a cluster; tile and parts depend on the shape.

    Parameters
    ----------
    choices : tuple of WgmmaChoice
    group_rows : int
        Rows of tiles in a group of the rasterization order.
    copy_block : int
        Threads of a block that copies rows which TMA does not take.
    """

    choices: tuple[WgmmaChoice, ...]
    group_rows: int = 8
    copy_block: int = 256

    def chosen(self, task: Task) -> tuple[WgmmaTile, int]:
        """Return the tile and the number of parts with the shortest predicted time."""
        if not task.shape:
            return self.choices[0].tile, self.choices[0].parts[0]
        _, choice, parts = self.fastest(task)
        return choice.tile, parts

    def seconds(self, task: Task) -> float:
        """Return the shortest predicted time."""
        return self.fastest(task)[0]

    def fastest(self, task: Task) -> tuple[float, WgmmaChoice, int]:
        """Return the shortest predicted time, with the choice and the number of parts."""
        every = [(choice, parts) for choice in self.choices for parts in choice.parts]
        return min(
            ((choice.seconds(task.shape, parts), choice, parts) for choice, parts in every), key=lambda each: each[0]
        )

    def division(self, tile: WgmmaTile, divided: int) -> str:
        return f"parts {divided}"

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        own = {"GROUP_ROWS": self.group_rows, "COPY_BLOCK": self.copy_block}
        return {**tile.macros(parts), **own, "BFLOAT16": int(task.dtype == "bfloat16")}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        return copied_rows(task, CHUNK)

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        (tile, parts), (columns, rows) = self.chosen(task), self.grid(task)
        if not rows * columns:
            return []
        launches, arguments = copied(task, arrays, self.copy_block)
        *_, a, _, b, _, _, _, _ = arguments
        boxes = Boxes(a, tile.rows, BOX, task.dtype), Boxes(b, tile.depth, BOX, task.dtype)
        tiles = rows * columns
        grid = even_blocks(tiles, multiprocessors) if parts == 1 else tiles, 1, parts
        return [*launches, Launch(grid, (tile.threads(parts),), (*arguments, *boxes), tile.shared_bytes(parts))]
