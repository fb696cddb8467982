"""Geometries of kernels with TMA that divide the terms of a tile among the blocks of a cluster (split-K)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hpcmm.model import Task
from hpcmm.model.launch import Boxes, Launch, Workspace
from hpcmm.operations.blocks import ChosenTile, macros_of
from hpcmm.operations.stream_k import stream_k_blocks
from hpcmm.operations.tma import BOX, ROW_BYTES, aligned, copied, copied_rows, even_blocks, may_overlap, near_rows
from hpcmm.operations.waves import Work

SHARED_BYTES = 227 * 1024  # of shared memory that the blocks of an SM can have


@dataclass(frozen=True)
class SplitTile:
    """A tile of C that ``SplitTma`` can choose."""

    # rows, columns: the block's tile of C
    rows: int
    columns: int
    stages: int  # pipeline stages
    parts: tuple[int, ...]  # numbers of blocks that may divide the terms of a tile

    @property
    def ring_bytes(self) -> int:
        """Bytes of shared memory of the stages, with two mbarriers each."""
        return self.stages * ((self.rows + self.columns) * ROW_BYTES + 16)


@dataclass(frozen=True)
class SplitTma(ChosenTile):
    """Tiles whose terms are divided among the blocks of a cluster; with one part, blocks are persistent.

    Tile and parts depend on the shape.
    """

    choices: tuple[SplitTile, ...]
    group_rows: int = 8  # rows of tiles in a group of the rasterization order, with several parts
    copy_block: int = 256  # threads of a block that copies rows which TMA does not take

    depth: ClassVar[int]  # terms of a stage: those of a row of a box
    line: ClassVar[int]  # rows of copies are multiples of so many elements
    waits: ClassVar[bool] = False  # whether the kernel waits for copies by itself
    box_dtype: ClassVar[str] = ""  # of the tensor maps; empty for that of the task

    def threads(self, tile: SplitTile, parts: int) -> int:
        """Return the threads of a block."""
        raise NotImplementedError

    def shared_bytes(self, tile: SplitTile, parts: int) -> int:
        """Return the dynamic shared memory of a block."""
        return tile.ring_bytes

    def work_of(self, tile: SplitTile, divided: int) -> Work:
        warps = (self.threads(tile, divided) - 32) // 128 * 4  # without the producer, a warp or a warpgroup
        return Work(tile.rows, tile.columns, self.depth, warps, parts=divided, copied=True)

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        group_rows = self.group_rows if parts > 1 else near_rows(task, tile.columns)
        defines = macros_of(tile, "rows", "columns", "stages") | {"DEPTH": self.depth, "PARTS": parts}
        return defines | {"BLOCK": self.threads(tile, parts), "GROUP_ROWS": group_rows, "COPY_BLOCK": self.copy_block}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        return copied_rows(task, self.line)

    def blocks(self, task: Task, tiles: int) -> int:
        """Return the number of persistent blocks."""
        return even_blocks(tiles, task.sms)

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: SplitTile, parts: int) -> list[Launch]:
        tiles = math.prod(self.over_c(task))
        launches, arguments = copied(task, arrays, self.copy_block)
        _, _, _, _, a, _, b, *_ = arguments
        dtype = self.box_dtype or task.dtype
        boxes = Boxes(a, tile.rows, self.depth, dtype), Boxes(b, self.depth, self.depth, dtype)
        grid = self.blocks(task, tiles) if parts == 1 else tiles, 1, parts
        block, shared = self.threads(tile, parts), self.shared_bytes(tile, parts)
        overlaps = self.waits and bool(launches) and may_overlap(task)
        return [*launches, Launch(grid, (block,), (*arguments, *boxes), shared, overlaps=overlaps)]


class SplitWgmma(SplitTma):
    """Tiles of 16-bit types, with one consumer warpgroup for 64 rows, and a warp that loads."""

    depth = BOX
    line = 8  # the least that TMA takes
    waits = True

    def threads(self, tile: SplitTile, parts: int) -> int:
        """Return the threads of a block.

        The largest tile, with several in turn, needs more registers than each of these threads gets. There a whole
        warpgroup loads, which gives registers to the others.
        """
        return 2 * tile.rows + (128 if parts == 1 and tile.rows * tile.columns == 128 * 256 else 32)

    def shared_bytes(self, tile: SplitTile, parts: int) -> int:
        """Return the dynamic shared memory of a block: stages, and a box of C for each warp of a persistent one."""
        return super().shared_bytes(tile, parts) + (tile.rows * ROW_BYTES if parts == 1 else 0)

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "BFLOAT16": int(task.dtype == "bfloat16")}


class StreamKWgmma(SplitWgmma):
    """The same tiles, whose last ones all blocks divide if SMs would be idle otherwise (stream-K)."""

    def shared_bytes(self, tile: SplitTile, parts: int) -> int:
        """Return the dynamic shared memory of a block, with a number that its consumers share."""
        return super().shared_bytes(tile, parts) + 16

    def work_of(self, tile: SplitTile, divided: int) -> Work:
        return replace(super().work_of(tile, divided), divided=True)

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "MAX_BLOCKS": task.sms}

    def blocks(self, task: Task, tiles: int) -> int:
        return min(task.sms, stream_k_blocks(tiles, -(-task.shape[2] // self.depth), task.sms))


@dataclass(frozen=True)
class FewRows(ChosenTile):
    """Tiles of the transpose of C, whose k are divided among the blocks of a cluster.

    A warpgroup computes 64 columns of C, and a warp loads. TMA has to take the rows of A and B.
    """

    choices: tuple[SplitTile, ...]

    def threads(self, tile: SplitTile) -> int:
        """Return the threads of a block."""
        return 2 * tile.columns + 32

    def able(self, task: Task, tile: SplitTile, parts: int) -> bool:
        m, n, k = task.shape
        narrower = [choice.rows for choice in self.choices if m <= choice.rows]
        stages = parts == 1 or parts * BOX <= k
        return aligned(task, n, k) and tile.rows == min(narrower, default=0) and stages

    def work_of(self, tile: SplitTile, parts: int) -> Work:
        resident = max(1, SHARED_BYTES // (tile.ring_bytes + 1024))
        return Work(tile.rows, tile.columns, BOX, tile.columns / 16, parts=parts, resident=resident)

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        defines = macros_of(tile, "rows", "columns", "stages") | {"DEPTH": BOX, "PARTS": parts, "GROUP_ROWS": 1}
        return defines | {"BLOCK": self.threads(tile), "BFLOAT16": int(task.dtype == "bfloat16")}

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: SplitTile, parts: int) -> list[Launch]:
        boxes = [Boxes(arrays[name], rows, BOX, task.dtype) for name, rows in (("A", tile.rows), ("B", BOX))]
        arguments = (*task.operation.arguments(task, arrays), *boxes)
        return [Launch((*self.over_c(task), parts), (self.threads(tile),), arguments, tile.ring_bytes)]


@dataclass(frozen=True)
class ShortTile:
    """A tile of C that ``ShortK`` can choose, with stages that a block loads at once, and blocks that fit on an SM."""

    rows: int
    columns: int
    stages: int
    resident: int


@dataclass(frozen=True)
class ShortK(ChosenTile):
    """Tiles whose few steps of k a block loads at once, from rows of any alignment."""

    choices: tuple[ShortTile, ...]
    most: ClassVar[int] = 256  # steps of k; with more, pipelines are faster

    def able(self, task: Task, tile: ShortTile, divided: int) -> bool:
        return task.shape[2] <= self.most

    def details(self, tile: ShortTile, divided: int) -> str:
        return f"stages {tile.stages}"

    def work_of(self, tile: ShortTile, divided: int) -> Work:
        return Work(tile.rows, tile.columns, BOX, tile.rows / 16, resident=tile.resident)

    def macros(self, task: Task) -> dict[str, int]:
        tile, _ = self.chosen(task)
        defines = macros_of(tile, "rows", "columns", "stages", "resident") | {"DEPTH": BOX, "GROUP_ROWS": 1}
        return defines | {"BLOCK": 2 * tile.rows, "BFLOAT16": int(task.dtype == "bfloat16")}

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: ShortTile, divided: int) -> list[Launch]:
        shared = tile.stages * (tile.rows + tile.columns) * ROW_BYTES
        return [Launch(self.over_c(task), (2 * tile.rows,), task.operation.arguments(task, arrays), shared)]


class Tf32(SplitTma):
    """Tiles of float32 rounded to TF32, with one consumer warpgroup for 64 columns, and a warpgroup that loads.

    Blocks compute the transpose of C.
    """

    depth = line = 32
    box_dtype = "tfloat32"

    def threads(self, tile: SplitTile, parts: int) -> int:
        return 128 + 2 * tile.columns
