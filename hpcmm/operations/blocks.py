"""Geometries of CUDA kernels: how thread blocks cover the matrix C of a product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpcmm.model import Boxes, Geometry, Launch, Task, Workspace

MIN_SAVED_STEPS = 4  # minimum steps per block that dividing tiles must save, because the parts must be added up
MIN_STEPS = 2  # minimum steps of a part of a tile
SMS = 132  # SMs of an H100 or H200
BOX = 64  # columns of a box of 16-bit elements that TMA copies; rows of a box of C
ROW_BYTES = 128  # of a row of a box
MAX_NARROW = 16  # maximum number of rows or columns of a skinny tile
# Blocks that ran at the same time on an H200, one per SM, by blocks per cluster: a cluster stays within a GPC. For
# clusters of 3 and 4 blocks, 126 and 128 did not; numbers in between were not tried.
RESIDENT_BLOCKS = {1: 132, 2: 132, 3: 108, 4: 100}


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

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
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

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
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

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
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
class StreamK(WarpgroupRing):
    """Blocks that divide the terms of tiles if some blocks would be idle otherwise (stream-K).

    ``max_blocks`` is the number of SMs that the workspace in the source suffices for.
    """

    max_blocks: int = 0

    def macros(self, task: Task) -> dict[str, int]:
        return {**super().macros(task), "MAX_BLOCKS": self.max_blocks}

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        blocks = self.blocks(task, min(self.max_blocks, multiprocessors))
        return [
            Launch((blocks,), launch.block, launch.arguments, launch.shared_bytes)
            for launch in super().launches(task, arrays, multiprocessors)
        ]

    def blocks(self, task: Task, most: int) -> int:
        """Return the number of blocks, if at most ``most`` are resident."""
        return stream_k_blocks(math.prod(self.grid(task)), -(-task.shape[2] // self.depth), most)


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


@dataclass(frozen=True)
class TmaRing(SixteenBit):
    """Blocks whose tiles are copied by TMA; their kernels get tensor maps of A and B.

    Two mbarriers of 8 bytes belong to each stage.
    """

    def shared_bytes(self, task: Task) -> int:
        return self.stages * ((self.rows + self.columns) * ROW_BYTES + 16)

    def boxes(self, task: Task, arrays: Mapping[str, Any]) -> tuple[Boxes, ...]:
        """Return the matrices that TMA copies, with their boxes."""
        return Boxes(arrays["A"], self.rows, BOX, task.dtype), Boxes(arrays["B"], self.depth, BOX, task.dtype)

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        return [
            replace(launch, arguments=(*launch.arguments, *self.boxes(task, arrays)))
            for launch in super().launches(task, arrays, multiprocessors)
        ]


@dataclass(frozen=True)
class TmaChoice:
    """A width of tiles that ``PersistentTma`` can choose, with the constants of its time model.

    Parameters
    ----------
    columns : int
        Columns of a tile of C.
    stages : int
        Pipeline stages.
    c_boxes : int
        Boxes in shared memory through which C goes, for each consumer; 0 if it does not.
    start : float
        Seconds of a launch without products.
    step : float
        Seconds for the products of a stage.
    end : float
        Seconds per tile that the products of the next tile do not hide.
    """

    columns: int
    stages: int
    c_boxes: int
    start: float
    step: float
    end: float


@dataclass(frozen=True)
class PersistentTma(OverC):
    """Persistent blocks of a producer and two consumers, which also read and write C by TMA.

    The width of tiles depends on the shape: narrow ones occupy more SMs. The constants of ``choices`` are a fit to the
    times of 15 shapes on an H200. Over these, the chosen width is 0.6 % (``persistent``) and 1.1 % (``multicast``)
    slower on average than the fastest one.

    Parameters
    ----------
    choices : tuple of TmaChoice
    cluster : int
        Blocks of a cluster, one below the other in C; each copies its part of a tile of B for all.
    group_rows : int
        Rows of clusters' tiles in a group of the rasterization order.
    """

    choices: tuple[TmaChoice, ...]
    cluster: int = 1
    group_rows: int = 8
    rows: int = 128
    depth: int = 64

    def chosen(self, task: Task) -> TmaChoice:
        """Return the choice with the shortest predicted time on an H100 or H200."""
        return min(self.choices, key=lambda each: self.seconds(each, task.shape)) if task.shape else self.choices[0]

    def seconds(self, choice: TmaChoice, shape: tuple[int, int, int]) -> float:
        """Return the predicted time: each wave of blocks computes a tile per SM."""
        m, n, k = shape
        tiles = -(-m // (self.rows * self.cluster)) * -(-n // choice.columns)
        waves = -(-tiles // (SMS // self.cluster))
        return choice.start + waves * (-(-k // self.depth) * choice.step + choice.end)

    def ring(self, task: Task) -> TmaRing:
        """Return the geometry of a block."""
        choice = self.chosen(task)
        return TmaRing(384, self.rows, choice.columns, self.depth, stages=choice.stages, group_rows=self.group_rows)

    def macros(self, task: Task) -> dict[str, int]:
        cluster = {"CLUSTER": self.cluster} if self.cluster > 1 else {}
        return {**self.ring(task).macros(task), "C_BOXES": self.chosen(task).c_boxes, **cluster}

    def covered(self, task: Task) -> tuple[int, int]:
        return self.rows, self.chosen(task).columns

    def staged(self, task: Task) -> Staged | None:
        return self.ring(task).staged(task)

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        columns, rows = self.grid(task)
        tiles = columns * -(-rows // self.cluster)
        if not tiles:
            return []
        ring = self.ring(task)
        a, b = ring.boxes(task, arrays)
        boxes = a, replace(b, rows=self.depth // self.cluster), Boxes(arrays["C"], BOX, BOX, task.dtype)
        # a box of C has a barrier of 8 bytes
        boxes_of_c = self.rows // BOX * self.chosen(task).c_boxes * (BOX * BOX * task.element.itemsize + 8)
        return [
            Launch(
                (self.cluster * min(tiles, multiprocessors // self.cluster),),
                (ring.threads,),
                (*task.operation.arguments(task, arrays), *boxes),
                ring.shared_bytes(task) + boxes_of_c,
            )
        ]


def rounded_up(size: int, multiple: int) -> int:
    """Return the least multiple that is not smaller.

    >>> rounded_up(65, 32)
    96
    """
    return -(-size // multiple) * multiple


def even_blocks(tiles: int, most: int) -> int:
    """Return the least number of blocks that compute so many tiles in as few waves as ``most`` blocks.

    SMs without a block leave their power to the others. On an H200, TF32 at 8192 is 2 % faster on 128 SMs than on 132.

    >>> even_blocks(512, 132), even_blocks(100, 132)
    (128, 100)
    """
    return -(-tiles // -(-tiles // most))


@dataclass(frozen=True)
class ThreeFp16(PersistentTma):
    """Persistent blocks that multiply the FP16 parts of A and B, after a launch that splits them.

    Parameters
    ----------
    split_block : int
        Threads of a block that splits.
    split_columns, split_parts : int
        Columns of B of a cluster, and its blocks, which divide the terms.
    """

    split_block: int = 256
    split_columns: int = 32
    split_parts: int = 8

    @property
    def terms(self) -> int:
        """Terms of a stage, each as a high and a low part."""
        return self.depth // 2

    def seconds(self, choice: TmaChoice, shape: tuple[int, int, int]) -> float:
        m, n, k = shape
        return super().seconds(choice, (m, n, 2 * k))

    def macros(self, task: Task) -> dict[str, int]:
        return {
            **self.ring(task).macros(task),
            **{"PART_TERMS": self.terms, "SPLIT_BLOCK": self.split_block},
            **{"SPLIT_COLUMNS": self.split_columns, "SPLIT_PARTS": self.split_parts},
        }

    def workspace(self, task: Task) -> dict[str, Workspace]:
        m, n, k = task.shape
        columns = 2 * rounded_up(k, self.terms)
        return {
            "parts_a": Workspace((m, columns), "float16"),
            "parts_b": Workspace((columns, rounded_up(n, 8)), "float16"),
            "inverse_a": Workspace((m, 2), "float32"),
            "inverse_b": Workspace((rounded_up(n, self.chosen(task).columns), 2), "float32"),
        }

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        tiles = math.prod(self.grid(task))
        if not tiles:
            return []
        m, n, k, _, a, lda, b, ldb, *_ = arguments = task.operation.arguments(task, arrays)
        parts_a, parts_b, inverse_a, inverse_b = parts = [arrays[name] for name in self.workspace(task)]
        row_threads = 32  # of a row of A; a thread splits 8 elements at a time
        while row_threads < min(self.split_block, int(k) // 8):
            row_threads *= 2
        blocks_of_b = len(inverse_b) // self.split_columns * self.split_parts
        blocks_of_a = rounded_up(-(-int(m) * row_threads // self.split_block), self.split_parts)
        ring = self.ring(task)
        boxes = Boxes(parts_a, self.rows, BOX, "float16"), Boxes(parts_b, self.depth, BOX, "float16")
        return [
            Launch(
                (blocks_of_b + blocks_of_a,),
                (self.split_block,),
                (m, n, k, a, lda, b, ldb, *parts, np.int32(row_threads)),
                function="split",
            ),
            Launch(
                (even_blocks(tiles, multiprocessors),),
                (ring.threads,),
                (*arguments, *boxes, inverse_a, inverse_b),
                ring.shared_bytes(task),
            ),
        ]


@dataclass(frozen=True)
class Tf32(PersistentTma):
    """Persistent blocks that multiply float32 elements rounded to TF32, after launches that prepare A and B.

    B is transposed. A is copied if its rows are no multiple of 16 bytes, because TMA takes no others.

    Parameters
    ----------
    transposed, transpose_block : int
        Rows and columns of the tile that a block transposes, and its threads.
    """

    depth: int = 32
    transposed: int = 64
    transpose_block: int = 256

    def macros(self, task: Task) -> dict[str, int]:
        transpose = {"TRANSPOSED": self.transposed, "TRANSPOSE_BLOCK": self.transpose_block}
        return {**self.ring(task).macros(task), **transpose}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        m, n, k = task.shape
        pitch = rounded_up(k, 4)
        copy = {"copy": Workspace((m, pitch), "float32")} if k < pitch else {}
        return {"transpose": Workspace((n, pitch), "float32"), **copy}

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        tiles = math.prod(self.grid(task))
        if not tiles:
            return []
        m, n, k, alpha, a, lda, b, ldb, *rest = task.operation.arguments(task, arrays)
        ring, transpose, block = self.ring(task), arrays["transpose"], (self.transpose_block,)
        launches = []
        if k:
            grid = -(-int(n) // self.transposed), -(-int(k) // self.transposed)
            launches.append(Launch(grid, block, (n, k, b, ldb, transpose), function="transpose_b"))
        if "copy" in self.workspace(task):
            launches.append(Launch((int(m),), block, (k, a, lda, arrays["copy"]), function="copy_a"))
            a, lda = arrays["copy"], np.int32(rounded_up(int(k), 4))
        boxes = Boxes(a, self.rows, self.depth, "tfloat32"), Boxes(transpose, ring.columns, self.depth, "float32")
        arguments = m, n, k, alpha, a, lda, b, ldb, *rest, *boxes
        blocks = (even_blocks(tiles, multiprocessors),)
        return [*launches, Launch(blocks, (ring.threads,), arguments, ring.shared_bytes(task))]


@dataclass(frozen=True)
class FmaTile:
    """A tile of C on the FMA units, divided as in ``fma_tile.cuh``.

    The warps of a block form ``slices`` slices. Each slice computes the whole tile for a part of the terms. It has a
    ring of ``stages`` pipeline stages of ``depth`` terms; the loop over ``unroll`` terms is unrolled. A thread computes
    ``thread_rows`` x ``thread_columns`` elements, and a warp has ``lane_rows`` rows of threads.
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
    """

    tile: FmaTile | DmmaTile
    max_parts: int
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
        mainloop = self.tile.rows * self.tile.columns * terms / (128 * 1.975e9 * self.share)
        return waves * (mainloop + self.overhead) + 1e-6 * (parts > 1)


@dataclass(frozen=True)
class SplitK(OverC):
    """Tiles whose terms are divided among the blocks of a cluster (split-K); tile and parts depend on the shape.

    The constants of ``choices`` are a fit to the times of 53 shapes on an H200. Over these shapes, the chosen tile is
    0.6 % slower on average than the fastest one.
    """

    choices: tuple[SplitChoice, ...]

    def chosen(self, task: Task) -> tuple[FmaTile | DmmaTile, int]:
        """Return the tile and the number of parts with the shortest predicted time."""
        every = self.able()
        choice, parts = min(every, key=lambda each: each[0].seconds(task.shape, each[1])) if task.shape else every[0]
        return choice.tile, parts

    def seconds(self, task: Task) -> float:
        """Return the shortest predicted time, without the launch."""
        return min(choice.seconds(task.shape, parts) for choice, parts in self.able())

    def able(self) -> list[tuple[SplitChoice, int]]:
        """Return each tile with each number of parts."""
        return [(choice, parts) for choice in self.choices for parts in range(1, choice.max_parts + 1)]

    def pick(self, task: Task) -> str:
        return pick_of(*self.chosen(task))

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
        exchanged = parts * -(-tile.vectors // parts) * tile.threads * 16 if parts > 1 else 0
        arguments = task.operation.arguments(task, arrays)
        return [Launch((*grid, parts), (tile.threads,), arguments, tile.ring_bytes + exchanged)]


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
    max_blocks : int
        Maximum number of blocks of a launch that divides the terms of tiles.
    least : int
        Minimum number of columns of C for a tile with few rows, of rows for a tile with few columns.
    """

    tile: SkinnyTile
    max_parts: int
    max_blocks: int
    least: int = 0

    def parts(self, shape: tuple[int, int, int]) -> int:
        """Return the number of blocks that divide the terms of a tile; each of their slices has a stage."""
        m, n, k = shape
        tiles = -(-m // self.tile.rows) * -(-n // self.tile.columns)
        parts = self.max_parts
        while parts > 1 and (parts * tiles > self.max_blocks or parts * self.tile.slices * self.tile.depth > k):
            parts //= 2
        return parts


@dataclass(frozen=True)
class Skinny(OverC):
    """Tiles with few rows or few columns, whose terms are divided among the blocks of a cluster (split-K).

    ``choices`` stand in the order of their tiles' rows or columns. The first one that covers the few rows or columns
    of C is chosen; the last one covers a C with more of both. They were the fastest of 553 builds at 1 to 16 rows or
    columns by 4096, 8192 and 16384 on an H200.
    """

    choices: tuple[SkinnyChoice, ...]

    def chosen(self, task: Task) -> tuple[SkinnyTile, int]:
        """Return the tile and the number of its parts."""
        if not task.shape:
            return self.choices[0].tile, self.choices[0].max_parts
        m, n, _ = task.shape
        few_rows = m <= n and n > MAX_NARROW  # if both are few, loads run along the rows of A
        narrow, length = (m, n) if few_rows else (n, m)
        able = [each for each in self.choices if each.tile.few_rows == few_rows and length >= each.least]
        choice = next((each for each in able if each.tile.narrow >= narrow), able[-1])
        return choice.tile, choice.parts(task.shape)

    def pick(self, task: Task) -> str:
        return pick_of(*self.chosen(task))

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
        arguments = task.operation.arguments(task, arrays)
        return [Launch((*grid, parts), (tile.threads,), arguments, tile.ring_bytes(task.element.itemsize))]


@dataclass(frozen=True)
class StreamKFma(OverC):
    """Persistent blocks with tiles on the FMA units, which divide tiles if some blocks would be idle (stream-K).

    The rasterization order goes through groups of ``group_rows`` rows of tiles, which share tiles in the L2 cache.
    ``max_blocks`` is the number of SMs that the workspace in the source suffices for.
    """

    tile: FmaTile
    group_rows: int
    max_blocks: int

    def macros(self, task: Task) -> dict[str, int]:
        return {**self.tile.macros, "GROUP_ROWS": self.group_rows, "MAX_BLOCKS": self.max_blocks}

    def covered(self, task: Task) -> tuple[int, int]:
        return self.tile.rows, self.tile.columns

    def staged(self, task: Task) -> Staged | None:
        return Staged(self.tile.rows, self.tile.columns, self.tile.depth)

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        grid = self.grid(task)
        if not all(grid):
            return []
        blocks = self.blocks(task, min(self.max_blocks, multiprocessors))
        return [Launch((blocks,), (self.tile.threads,), task.operation.arguments(task, arrays), self.tile.ring_bytes)]

    def blocks(self, task: Task, most: int) -> int:
        """Return the number of blocks, at most ``most``: one wave computes all tiles, whole or in parts."""
        tiles, steps = math.prod(self.grid(task)), max(1, -(-task.shape[2] // self.tile.depth))
        if tiles > most or -tiles % most * steps > MIN_SAVED_STEPS * most:
            return min(most, max(tiles, tiles * steps // MIN_STEPS))
        return tiles


def pick_of(tile: FmaTile | DmmaTile | SkinnyTile, parts: int) -> str:
    """Describe a tile that was picked.

    >>> pick_of(FmaTile(96, 64, 4, 6, 8, 8, 16, 4, 8), 2)
    '96x64, slices 4, parts 2'
    """
    return f"{tile.rows}x{tile.columns}, slices {tile.slices}, parts {parts}"


def stream_k_blocks(tiles: int, steps: int, most: int) -> int:
    """Return the number of blocks for ``tiles`` tiles of ``steps`` steps each, if at most ``most`` are resident.

    There is one block per tile if dividing tiles saves less than adding up the parts costs. Otherwise the blocks divide
    the tiles so that no resident block is idle.
    """
    idle = -tiles % most  # idle blocks in the last wave if no tile is divided
    if idle * steps <= MIN_SAVED_STEPS * most:
        return tiles
    return min(most, max(tiles, tiles * steps // MIN_STEPS))
