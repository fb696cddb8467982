"""Geometries of kernels that divide the terms of a tile among warps and the blocks of a cluster (split-K)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hpcmm.model import Task
from hpcmm.model.launch import Launch
from hpcmm.operations.blocks import ChosenTile, macros_of
from hpcmm.operations.waves import CLUSTERED, Work


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
        names = "rows", "columns", "slices", "thread_rows", "thread_columns", "lane_rows", "depth", "stages", "unroll"
        return macros_of(self, *names) | {"BLOCK": self.threads}

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
        return macros_of(self, *(field.name for field in fields(self))) | {"BLOCK": self.threads}

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
    """A tile that ``SplitK`` can choose, and the maximum number of blocks that divide its terms.

    Shared memory limits it.
    """

    tile: FmaTile | DmmaTile
    max_parts: int


class Clusters(ChosenTile):
    """Tiles whose terms are divided among the slices of a block and the blocks of a cluster."""

    def shared_bytes(self, task: Task) -> int:
        """Return the dynamic shared memory of a block in bytes."""
        raise NotImplementedError

    def details(self, tile: FmaTile | DmmaTile | SkinnyTile, divided: int) -> str:
        return f"slices {tile.slices}, parts {divided}"

    def work_of(self, tile: FmaTile | DmmaTile | SkinnyTile, divided: int) -> Work:
        return Work(
            *(tile.rows, tile.columns, tile.depth, tile.threads / 32),
            slices=tile.slices,
            parts=divided,
            resident=tile.resident,
        )

    def macros(self, task: Task) -> dict[str, int]:
        tile, parts = self.chosen(task)
        return {**tile.macros, "PARTS": parts}

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: Any, divided: int) -> list[Launch]:
        arguments = task.operation.arguments(task, arrays)
        return [Launch((*self.over_c(task), divided), (tile.threads,), arguments, self.shared_bytes(task))]


@dataclass(frozen=True)
class SplitK(Clusters):
    """Tiles whose terms are divided among the blocks of a cluster (split-K); tile and parts depend on the shape."""

    choices: tuple[SplitChoice, ...]

    def candidates(self) -> list[tuple[FmaTile | DmmaTile, int]]:
        return [(choice.tile, parts) for choice in self.choices for parts in CLUSTERED if parts <= choice.max_parts]

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
        return macros_of(self, *(field.name for field in fields(self))) | {"BLOCK": self.threads}

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
class Skinny(Clusters):
    """Tiles with few rows or few columns, whose terms are divided among the blocks of a cluster (split-K).

    The tiles of ``choices`` were the fastest of 553 builds at 1 to 16 rows or columns by 4096, 8192 and 16384 on an
    H200.
    """

    choices: tuple[SkinnyTile, ...]
    parts: tuple[int, ...] = (1, 2, 4, 8)

    def candidates(self) -> list[tuple[SkinnyTile, int]]:
        return [(tile, parts) for tile in self.choices for parts in self.parts]

    def able(self, task: Task, tile: SkinnyTile, divided: int) -> bool:
        m, n, k = task.shape
        narrow = m if tile.few_rows else n
        return narrow <= 2 * tile.narrow and (divided == 1 or divided * tile.slices * tile.depth <= k)

    def details(self, tile: SkinnyTile, divided: int) -> str:
        return f"{tile.depth} terms, slices {tile.slices}, parts {divided}"

    def shared_bytes(self, task: Task) -> int:
        tile, _ = self.chosen(task)
        return tile.ring_bytes(task.element.itemsize)
