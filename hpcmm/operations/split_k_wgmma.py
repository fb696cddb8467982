"""Geometry of the rung for 16-bit types that divides the terms of a tile among the blocks of a cluster (split-K)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcmm.model import Boxes, Launch, Task, Workspace
from hpcmm.operations.blocks import SMS, ChosenTile, rounded_up
from hpcmm.operations.tma import BOX, ROW_BYTES, even_blocks

BYTES_PER_SECOND = 4.4e12  # rate at which cold matrices arrive
CHUNK = 8  # elements of 16 bytes, of which TMA requires a whole number per row
WARP_BOX = 16 * ROW_BYTES  # of C, for each warp of the consumers
# Blocks that run at the same time, at one per SM, by blocks per cluster: a cluster stays within a GPC.
RESIDENT_BLOCKS = {1: SMS, 2: SMS, 3: 108, 4: 128, 6: 108, 8: 128}


@dataclass(frozen=True)
class WgmmaTile:
    """A tile of C, with one consumer warpgroup for 64 rows, and a warp that loads.

    Registers are limited so that ``resident`` blocks fit on an SM.
    """

    rows: int
    columns: int
    stages: int
    resident: int = 1
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
            **{"RESIDENT": self.resident, "PARTS": parts, "BLOCK": self.threads(parts)},
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
        """Return the predicted time on an H100 or H200, without what all choices have in common."""
        m, n, k = shape
        tile = self.tile
        blocks = -(-m // tile.rows) * -(-n // tile.columns) * parts
        waves = -(-blocks // RESIDENT_BLOCKS[parts])
        mainloop = -(-k // tile.depth // parts) * self.step
        exchange = 1e-6 + tile.rows * tile.columns * 4 / 80e9 if parts > 1 else 0
        return max(waves * mainloop, 2 * (m * k + k * n) / BYTES_PER_SECOND) + waves * (self.end + exchange)


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
        every = [(choice, parts) for choice in self.choices for parts in choice.parts]
        choice, parts = min(every, key=lambda each: each[0].seconds(task.shape, each[1])) if task.shape else every[0]
        return choice.tile, parts

    def division(self, tile: WgmmaTile, divided: int) -> str:
        return f"parts {divided}"

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        own = {"GROUP_ROWS": self.group_rows, "COPY_BLOCK": self.copy_block}
        return {**tile.macros(parts), **own, "BFLOAT16": int(task.dtype == "bfloat16")}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        m, n, k = task.shape
        sizes = {"copy_a": (m, k), "copy_b": (k, n)}
        return {
            name: Workspace((rows, rounded_up(columns, CHUNK)), task.element.storage.name)
            for name, (rows, columns) in sizes.items()
            if columns % CHUNK and rows
        }

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        (tile, parts), (columns, rows) = self.chosen(task), self.grid(task)
        if not rows * columns:
            return []
        m, n, k, alpha, a, lda, b, ldb, *rest = task.operation.arguments(task, arrays)
        launches, copies, chunks = [], [], 0
        for name, matrix, ld, height, width in (("copy_a", a, lda, m, k), ("copy_b", b, ldb, k, n)):
            copied = name in self.workspace(task)
            copy = arrays[name] if copied else matrix
            copies.append((np.int32(height if copied else 0), width, matrix, ld, copy))
            chunks += int(height) * copy.shape[1] // CHUNK if copied else 0
        (*_, a), (*_, b) = copies
        if chunks:
            grid = (-(-chunks // self.copy_block),)
            launches.append(Launch(grid, (self.copy_block,), (*copies[0], *copies[1]), function="copy"))
            a, b = a[:, : int(k)], b[:, : int(n)]
            lda, ldb = (np.int32(each.strides[0] // each.itemsize) for each in (a, b))
        boxes = Boxes(a, tile.rows, BOX, task.dtype), Boxes(b, tile.depth, BOX, task.dtype)
        arguments = m, n, k, alpha, a, lda, b, ldb, *rest, *boxes
        tiles = rows * columns
        grid = even_blocks(tiles, multiprocessors * tile.resident) if parts == 1 else tiles, 1, parts
        return [*launches, Launch(grid, (tile.threads(parts),), arguments, tile.shared_bytes(parts))]
