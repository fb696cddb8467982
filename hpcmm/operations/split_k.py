"""Geometries of kernels that divide the terms of a tile among warps and the blocks of a cluster (split-K)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcmm.model import Task
from hpcmm.model.launch import Launch
from hpcmm.operations.blocks import ChosenTile, resident_blocks, tiles_of

# Of an SM's FMA units in float32, and of its tensor cores in float64, at the clock of an H100 or H200
FMA_PER_SECOND = 128 * 1.975e9
MAX_NARROW = 16  # maximum number of rows or columns of a skinny tile


@dataclass(frozen=True)
class FmaTile:
    """A tile of C on the FMA units, divided as in ``fma_tile.cuh``.

    The warps of a block form ``slices`` slices. Each slice computes the whole tile for a part of the terms. It has a
    ring of ``stages`` pipeline stages of ``depth`` terms; the loop over ``unroll`` terms is unrolled. A thread computes
    ``thread_rows`` x ``thread_columns`` elements, and a warp has ``lane_rows`` rows of threads. ``resident`` blocks fit
    on an SM.
    """

    rows: int
    columns: int
    slices: int
    thread_rows: int
    thread_columns: int
    lane_rows: int
    depth: int
    stages: int
    unroll: int
    resident: int = 1

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.thread_rows * self.thread_columns) * self.slices

    @property
    def macros(self) -> dict[str, int]:
        return {
            **{"ROWS": self.rows, "COLUMNS": self.columns, "SLICES": self.slices},
            **{"THREAD_ROWS": self.thread_rows, "THREAD_COLUMNS": self.thread_columns, "LANE_ROWS": self.lane_rows},
            **{"DEPTH": self.depth, "STAGES": self.stages, "UNROLL": self.unroll, "BLOCK": self.threads},
        }

    @property
    def ring_bytes(self) -> int:
        """Bytes of shared memory of the rings of all slices, in float32."""
        return self.slices * self.stages * (self.rows + self.columns) * self.depth * 4

    @property
    def vectors(self) -> int:
        """16-byte vectors of C that a thread adds up."""
        return self.thread_rows * self.thread_columns // 4 // self.slices


@dataclass(frozen=True)
class DmmaTile:
    """A tile of C on the tensor cores in float64, divided as in ``split_k_dmma.cu``.

    The warps of a block form ``slices`` slices. Each slice computes the whole tile for a part of the terms. It has a
    ring of ``stages`` pipeline stages of ``depth`` terms. A warp computes ``warp_rows`` x ``warp_columns`` elements.
    One instruction multiplies ``step`` terms; with ``ahead``, its operands are loaded a step before. Registers are
    limited so that ``resident`` blocks fit on an SM.
    """

    rows: int
    columns: int
    slices: int
    warp_rows: int
    warp_columns: int
    depth: int
    stages: int
    step: int = 8
    ahead: int = 1
    resident: int = 1

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.warp_rows * self.warp_columns) * 32 * self.slices

    @property
    def macros(self) -> dict[str, int]:
        return {
            **{"ROWS": self.rows, "COLUMNS": self.columns, "SLICES": self.slices, "WARP_ROWS": self.warp_rows},
            **{"WARP_COLUMNS": self.warp_columns, "DEPTH": self.depth, "STAGES": self.stages, "STEP": self.step},
            **{"AHEAD": self.ahead, "RESIDENT": self.resident, "BLOCK": self.threads},
        }

    @property
    def ring_bytes(self) -> int:
        """Bytes of shared memory of the rings of all slices, in float64."""
        return self.slices * self.stages * (self.rows + self.columns) * self.depth * 8

    @property
    def vectors(self) -> int:
        """16-byte vectors of C that a thread adds up."""
        return self.warp_rows * self.warp_columns // 64 // self.slices


@dataclass(frozen=True)
class SplitChoice:
    """A tile that ``SplitK`` can choose, with the constants of its time model.

    Parameters
    ----------
    tile : FmaTile or DmmaTile
    max_parts : int
        Maximum number of blocks that divide the terms of a tile; shared memory limits it.
    share : float
        Share of the peak rate of the FMA units or tensor cores that the mainloop reaches.
    overhead : float
        Seconds of prologue and epilogue per wave of blocks.
    alone : float
        Time of a block that is alone on its SM, relative to its share of the time of the blocks that fit on an SM.
    """

    tile: FmaTile | DmmaTile
    max_parts: int
    share: float
    overhead: float
    alone: float = 1.0

    def seconds(self, task: Task, parts: int, unaligned: float = 1.0) -> float:
        """Return the predicted time at the clock of an H100 or H200, without the launch.

        Blocks run in waves. The exchange of a cluster costs 1 us. ``unaligned`` is the time of a mainloop if n or k is
        odd, relative to the others.
        """
        _, n, k = task.shape
        blocks = tiles_of(task.shape, self.tile) * parts
        terms = -(-k // self.tile.depth // parts) * self.tile.depth
        of_most = -(-blocks // resident_blocks(parts, task.sms))  # blocks of the SM with the most
        waves, rest = divmod(of_most, self.tile.resident)
        of_sm = waves * self.tile.resident + (max(rest, self.alone) if rest else 0)
        mainloop = self.tile.rows * self.tile.columns * terms / (FMA_PER_SECOND * self.share)
        if n % 2 or k % 2:
            mainloop *= unaligned
        return of_sm * mainloop + (waves + (rest > 0)) * self.overhead + 1e-6 * (parts > 1)


class Clusters(ChosenTile):
    """Tiles whose terms are divided among the slices of a block and the blocks of a cluster."""

    def shared_bytes(self, task: Task) -> int:
        """Return the dynamic shared memory of a block in bytes."""
        raise NotImplementedError

    def details(self, tile: FmaTile | DmmaTile | SkinnyTile, divided: int) -> str:
        return f"slices {tile.slices}, parts {divided}"

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        return {**tile.macros, "PARTS": parts}

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        tile, parts = self.chosen(task)
        grid = self.over_c(task)
        if not all(grid):
            return []
        arguments = task.operation.arguments(task, arrays)
        return [Launch((*grid, parts), (tile.threads,), arguments, self.shared_bytes(task))]


@dataclass(frozen=True)
class SplitK(Clusters):
    """Tiles whose terms are divided among the blocks of a cluster (split-K); tile and parts depend on the shape.

    The constants of ``choices`` are a fit to times on an H200. In float32, over 53 shapes, the chosen tile is 0.6 %
    slower on average than the fastest one.

    Parameters
    ----------
    choices : tuple of SplitChoice
    unaligned : float
        Time of a mainloop if n or k is odd, relative to the others.
    """

    choices: tuple[SplitChoice, ...]
    unaligned: float = 1.0

    def candidates(self) -> list[tuple[SplitChoice, int]]:
        return [(choice, parts) for choice in self.choices for parts in range(1, choice.max_parts + 1)]

    def seconds_of(self, task: Task, choice: SplitChoice, parts: int) -> float:
        return choice.seconds(task, parts, self.unaligned)

    def chosen(self, task: Task) -> tuple[FmaTile | DmmaTile, int]:
        choice, parts = super().chosen(task)
        return choice.tile, parts

    def shared_bytes(self, task: Task) -> int:
        tile, parts = self.chosen(task)
        exchanged = parts * -(-tile.vectors // parts) * tile.threads * 16 if parts > 1 else 0
        return tile.ring_bytes + exchanged


@dataclass(frozen=True)
class SkinnyTile:
    """A tile of C with few rows or few columns, divided as in ``skinny.cu``.

    The warps of a block form ``slices`` slices. Each slice computes the whole tile for a part of the terms. It has a
    ring of ``stages`` pipeline stages of ``depth`` terms. A warp computes ``warp_rows`` rows, and a thread
    ``thread_columns`` columns of all of them. ``lane_terms`` lanes of a warp divide the terms of the same elements.
    With ``tensor``, tensor cores compute the rows of a warp. Registers are limited so that ``resident`` blocks fit on
    an SM.
    """

    rows: int
    columns: int
    warp_rows: int
    thread_columns: int
    lane_terms: int
    slices: int
    depth: int
    stages: int
    resident: int
    tensor: bool = False

    @property
    def few_rows(self) -> bool:
        return self.rows < self.columns

    @property
    def narrow(self) -> int:
        """The smaller of rows and columns."""
        return min(self.rows, self.columns)

    @property
    def threads(self) -> int:
        if self.tensor:
            warp_columns = 128 if self.few_rows else self.columns
        else:
            warp_columns = 32 // self.lane_terms * self.thread_columns
        return 32 * self.slices * (self.rows // self.warp_rows) * (self.columns // warp_columns)

    @property
    def macros(self) -> dict[str, int]:
        return {
            **{"ROWS": self.rows, "COLUMNS": self.columns, "WARP_ROWS": self.warp_rows},
            **{"THREAD_COLUMNS": self.thread_columns, "LANE_TERMS": self.lane_terms, "SLICES": self.slices},
            **{"DEPTH": self.depth, "STAGES": self.stages},
            **{"RESIDENT": self.resident, "TENSOR": int(self.tensor), "BLOCK": self.threads},
        }

    def ring_bytes(self, itemsize: int) -> int:
        """Return the bytes of shared memory of the rings of all slices, with the padding against bank conflicts."""
        width = 16 // itemsize
        a_pitch = self.depth + (8 if self.tensor and self.depth % 16 == 0 else 0)
        b_pitch = self.columns + (2 if self.tensor and self.few_rows else 0)
        if self.tensor:
            padded = 0 if self.few_rows else 4
        else:
            padded = width if self.lane_terms > 1 and self.columns % 2 == 0 else 0
        stage = self.rows * a_pitch + self.depth // width * (width * b_pitch + padded)
        return self.slices * self.stages * stage * itemsize


@dataclass(frozen=True)
class SkinnyChoice:
    """A tile that ``Skinny`` can choose.

    Parameters
    ----------
    tile : SkinnyTile
    max_parts : int
        Maximum number of blocks that divide the terms of a tile, a power of two.
    per_sm : int
        Maximum number of blocks per SM of a launch that divides the terms of tiles.
    least : int
        Minimum number of columns of C for a tile with few rows, of rows for a tile with few columns.
    """

    tile: SkinnyTile
    max_parts: int
    per_sm: int
    least: int = 0

    def parts(self, task: Task) -> int:
        """Return the number of blocks that divide the terms of a tile; each of their slices has a stage."""
        tiles, parts, most = tiles_of(task.shape, self.tile), self.max_parts, self.per_sm * task.sms
        while parts > 1 and (parts * tiles > most or parts * self.tile.slices * self.tile.depth > task.shape[2]):
            parts //= 2
        return parts


@dataclass(frozen=True)
class Skinny(Clusters):
    """Tiles with few rows or few columns, whose terms are divided among the blocks of a cluster (split-K).

    ``choices`` stand in the order of their tiles' rows or columns. The first one that covers the few rows or columns
    of C is chosen; the last one covers a C with more of both. They were the fastest of 553 builds at 1 to 16 rows or
    columns by 4096, 8192 and 16384 on an H200.
    """

    choices: tuple[SkinnyChoice, ...]

    def candidates(self) -> list[tuple[SkinnyTile, int]]:
        tiles = dict.fromkeys(each.tile for each in self.choices)
        return [(tile, parts) for tile in tiles for parts in (1, 2, 4, 8)]

    def able(self, task: Task, tile: SkinnyTile, divided: int) -> bool:
        m, n, k = task.shape
        narrow = m if tile.few_rows else n
        return narrow <= 2 * tile.narrow and (divided == 1 or divided * tile.slices * tile.depth <= k)

    def chosen(self, task: Task) -> tuple[SkinnyTile, int]:
        """Return the tile and the number of its parts."""
        if self.build is not None:
            return self.candidates()[self.build]
        if not task.shape:
            return self.choices[0].tile, self.choices[0].max_parts
        m, n, _ = task.shape
        few_rows = m <= n and n > MAX_NARROW  # if both are few, loads run along the rows of A
        narrow, length = (m, n) if few_rows else (n, m)
        able = [each for each in self.choices if each.tile.few_rows == few_rows and length >= each.least]
        choice = next((each for each in able if each.tile.narrow >= narrow), able[-1])
        return choice.tile, choice.parts(task)

    def details(self, tile: SkinnyTile, divided: int) -> str:
        return f"{tile.depth} terms, slices {tile.slices}, parts {divided}"

    def shared_bytes(self, task: Task) -> int:
        tile, _ = self.chosen(task)
        return tile.ring_bytes(task.element.itemsize)
