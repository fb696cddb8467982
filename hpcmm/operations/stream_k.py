"""Geometries of kernels whose resident blocks divide the terms of tiles (stream-K)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hpcmm.model import Task
from hpcmm.model.launch import Launch
from hpcmm.operations.blocks import ChosenTile, OverC, Staged, Tiled, macros_of, tiles_of
from hpcmm.operations.split_k import FmaTile
from hpcmm.operations.waves import Work

MIN_SAVED_STEPS = 4  # minimum steps per block that dividing tiles must save, because the parts must be added up
MIN_STEPS = 2  # minimum steps of a part of a tile


def stream_k_blocks(tiles: int, steps: int, most: int) -> int:
    """Return the number of blocks for ``tiles`` tiles of ``steps`` steps each, if at most ``most`` are resident.

    There is one block per tile if dividing tiles saves less than adding up the parts costs. Otherwise the blocks divide
    the tiles so that no resident block is idle.
    """
    idle = -tiles % most  # idle blocks in the last wave if no tile is divided
    if idle * steps <= MIN_SAVED_STEPS * most:
        return tiles
    return min(most, max(tiles, tiles * steps // MIN_STEPS))


class StreamK(Tiled):
    """Blocks that divide the terms of tiles if some blocks would be idle otherwise (stream-K)."""

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "MAX_BLOCKS": task.sms}

    def work(self, task: Task) -> Work:
        return replace(super().work(task), divided=True)

    def blocks(self, task: Task) -> tuple[int, ...]:
        """Return the number of blocks, of which one per SM is resident."""
        return (stream_k_blocks(math.prod(self.over_c(task)), -(-task.shape[2] // self.depth), task.sms),)


@dataclass(frozen=True)
class StreamKFma(OverC):
    """Persistent blocks with tiles on the FMA units, which divide tiles if some blocks would be idle (stream-K).

    The rasterization order goes through groups of ``group_rows`` rows of tiles, which share tiles in the L2 cache.
    """

    tile: FmaTile
    group_rows: int

    def macros(self, task: Task) -> dict[str, int]:
        return {**self.tile.macros, "GROUP_ROWS": self.group_rows, "MAX_BLOCKS": task.sms}

    def covered(self, task: Task) -> tuple[int, int]:
        return self.tile.rows, self.tile.columns

    def phase(self, task: Task) -> Staged | None:
        return Staged(self.tile.rows, self.tile.columns, self.tile.depth)

    def work(self, task: Task) -> Work:
        tile = self.tile
        return Work(tile.rows, tile.columns, tile.depth, tile.threads / 32, tile.slices, divided=True)

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        grid = self.over_c(task)
        if not all(grid):
            return []
        return [
            Launch(
                self.blocks(task), (self.tile.threads,), task.operation.arguments(task, arrays), self.tile.ring_bytes
            )
        ]

    def blocks(self, task: Task) -> tuple[int, ...]:
        """Return the number of blocks, at most one per SM: one wave computes all tiles, whole or in parts."""
        steps = -(-task.shape[2] // self.tile.depth)
        return (min(task.sms, stream_k_blocks(math.prod(self.over_c(task)), steps, task.sms)),)


@dataclass(frozen=True)
class DmmaChoice:
    """A tile that ``StreamKDmma`` can choose."""

    # rows, columns: the block's tile of C
    rows: int
    columns: int
    # warp_rows, warp_columns: the part of it that a warp computes
    warp_rows: int
    warp_columns: int
    stages: int  # pipeline stages of ``depth`` terms
    resident: int  # blocks per SM
    depth: int = 16

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.warp_rows * self.warp_columns) * 32

    @property
    def ring_bytes(self) -> int:
        """Bytes of shared memory of a block. Rows of A and B are padded by 32 bytes against bank conflicts."""
        return self.stages * 8 * (self.rows * (self.depth + 4) + self.depth * (self.columns + 4))

    def blocks(self, task: Task, divided: bool) -> int:
        """Return the number of blocks: one per tile, or as many as are resident.

        Several blocks per tile divide all tiles alike, because a block then has the part of one tile only.
        """
        tiles, slots = tiles_of(task.shape, self), task.sms * self.resident
        if not divided:
            return tiles
        steps = tiles * -(-task.shape[2] // self.depth)
        return max(1, min(slots // tiles * tiles if 2 * tiles <= slots else slots, steps))


@dataclass(frozen=True)
class StreamKDmma(ChosenTile):
    """Tiles of float64 on the tensor cores, one per block or divided among resident blocks (stream-K)."""

    choices: tuple[DmmaChoice, ...]
    group_rows: int = 8  # rows of tiles in a group of the rasterization order

    def candidates(self) -> list[tuple[DmmaChoice, bool]]:
        return [(choice, divided) for choice in self.choices for divided in (False, True)]

    def work_of(self, tile: DmmaChoice, divided: int) -> Work:
        return Work(
            *(tile.rows, tile.columns, tile.depth, tile.threads / 32), resident=tile.resident, divided=bool(divided)
        )

    def details(self, tile: DmmaChoice, divided: int) -> str:
        return f"warps {tile.warp_rows}x{tile.warp_columns}, resident {tile.resident}" + ", divided" * divided

    def macros(self, task: Task) -> dict[str, int]:
        tile, _ = self.chosen(task)
        defines = macros_of(tile, *(field.name for field in fields(tile))) | {"BLOCK": tile.threads}
        return defines | {"MAX_BLOCKS": tile.resident * task.sms, "GROUP_ROWS": self.group_rows}

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: DmmaChoice, divided: int) -> list[Launch]:
        blocks = tile.blocks(task, divided)
        return [Launch((blocks,), (tile.threads,), task.operation.arguments(task, arrays), tile.ring_bytes)]
