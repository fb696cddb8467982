"""Geometries of kernels whose tiles are copied by TMA: rings, and persistent blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpcmm.model import Task
from hpcmm.model.launch import Boxes, Launch, Workspace
from hpcmm.operations.blocks import ChosenTile, Staged, Tiled, macros_of, rounded_up, tiles_of
from hpcmm.operations.waves import Work

BOX = 64  # columns of a box of 16-bit elements that TMA copies; rows of a box of C
GROUP = 128  # elements along each dimension of a tile that is transposed
ROW_BYTES = 128  # of a row of a box
REGISTERS = 65536  # of an SM
SHARED_BYTES = 227 * 1024  # that a block can use
PRODUCER_REGISTERS = 40  # per thread, of the producer of a block in float64
NEAR = 4  # launches between two blocks that share reads of the L2 cache, at most; measured on an H200
CACHED_BYTES = 100e6  # of A and B, twice the L2 cache of an H100 or H200; beyond, most reads are from memory


@dataclass(frozen=True)
class TmaChoice:
    """A width of tiles that ``PersistentTma`` can choose."""

    columns: int  # columns of a tile of C
    stages: int  # pipeline stages
    c_boxes: int  # shared-memory boxes that stage C, for each consumer; 0 if C is stored directly
    # Whether the blocks of a cluster lie side by side in C and share a tile of A, instead of one below the other with a
    # shared tile of B
    shares_a: bool = False
    rows: int = 128  # rows of a tile of C: 64 for each consumer

    @property
    def threads(self) -> int:
        """Threads of a block: a warpgroup that loads, and one for each 64 rows."""
        return 128 + 2 * self.rows


@dataclass(frozen=True)
class PersistentTma(ChosenTile):
    """Persistent blocks of a producer and one or two consumers, which also read and write C by TMA.

    The tile depends on the shape: small ones occupy more SMs.
    """

    choices: tuple[TmaChoice, ...]
    cluster: int = 1  # blocks of a cluster; each copies its part of a tile of B or A for all
    group_rows: int = 8  # rows of clusters' tiles in a group of the rasterization order
    depth: int = 64

    def details(self, tile: TmaChoice, divided: int) -> str:
        return "shares A" if tile.shares_a else ""

    def tile(self, task: Task) -> TmaChoice:
        """Return the chosen tile."""
        return self.chosen(task)[0]

    def work_of(self, tile: TmaChoice, divided: int) -> Work:
        return Work(tile.rows, tile.columns, self.depth, tile.rows / 16, shared=self.cluster, copied=True)

    def clusters(self, task: Task, choice: TmaChoice) -> int:
        """Return the number of units of work: the tiles of C of a cluster, or of a block if there are no clusters."""
        (m, n, _), (rows, columns) = task.shape, (1, self.cluster) if choice.shares_a else (self.cluster, 1)
        return -(-m // (choice.rows * rows)) * -(-n // (choice.columns * columns))

    def ring(self, task: Task) -> Tiled:
        """Return the geometry of a block; two mbarriers of 8 bytes belong to each stage."""
        choice = self.tile(task)
        return Tiled(
            rows=choice.rows,
            columns=choice.columns,
            depth=self.depth,
            block=(choice.threads,),
            shared_bytes=choice.stages * ((choice.rows + choice.columns) * ROW_BYTES + 16),
            tensor_maps={"A": choice.rows, "B": self.depth},
            constants={"STAGES": choice.stages, "GROUP_ROWS": self.rows_of_group(task, choice)},
        )

    def rows_of_group(self, task: Task, choice: TmaChoice) -> int:
        """Return the rows of tiles, or of clusters' tiles, in a group of the rasterization order."""
        return self.group_rows if self.cluster > 1 else near_rows(task, choice.columns, self.group_rows)

    def macros(self, task: Task) -> dict[str, int]:
        choice = self.tile(task)
        cluster = {"CLUSTER": self.cluster, "SHARES_A": int(choice.shares_a)} if self.cluster > 1 else {}
        sixteen_bit = {"BFLOAT16": int(task.dtype == "bfloat16")}
        return {**self.ring(task).macros(task), **sixteen_bit, "C_BOXES": choice.c_boxes, **cluster}

    def phase(self, task: Task) -> Staged | None:
        return self.ring(task).phase(task)

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: TmaChoice, divided: int) -> list[Launch]:
        ring, clusters = self.ring(task), self.clusters(task, tile)
        a, b = ring.boxes(task, arrays)
        if tile.shares_a:
            a = replace(a, rows=a.rows // self.cluster)
        else:
            b = replace(b, rows=b.rows // self.cluster)
        boxes = a, b, Boxes(arrays["C"], BOX, BOX, task.dtype)
        # a box of C has a barrier of 8 bytes
        boxes_of_c = tile.rows // BOX * tile.c_boxes * (BOX * BOX * task.element.itemsize + 8)
        return [
            Launch(
                (self.cluster * even_blocks(clusters, max(1, task.sms // self.cluster)),),
                ring.block,
                (*task.operation.arguments(task, arrays), *boxes),
                ring.shared_bytes + boxes_of_c,
            )
        ]


@dataclass(frozen=True)
class SixteenBitTma(PersistentTma):
    """Persistent blocks of 16-bit types, for rows that TMA takes."""

    def able(self, task: Task, tile: TmaChoice, divided: int) -> bool:
        _, n, k = task.shape
        return aligned(task, n, k)

    def rows_of_group(self, task: Task, choice: TmaChoice) -> int:
        if self.cluster > 1:
            return self.group_rows
        return near_rows(task, choice.columns, rows_beyond_cache(task, choice.columns, self.group_rows))


def even_blocks(tiles: int, most: int) -> int:
    """Return the least number of blocks that compute so many tiles in as few waves as ``most`` blocks.

    Idle SMs free power for the busy ones. On an H200, TF32 at 8192 is 2 % faster on 128 SMs than on 132.

    >>> even_blocks(512, 132), even_blocks(100, 132)
    (128, 100)
    """
    return -(-tiles // -(-tiles // most))


def rows_beyond_cache(task: Task, columns: int, rows: int) -> int:
    """Return twice as many rows of tiles in a group of the rasterization order if A and B exceed ``CACHED_BYTES``.

    Waves of tiles of so many ``columns`` then read less of B from memory. A narrow C keeps ``rows``.
    """
    if not task.shape:
        return rows
    m, n, k = task.shape
    large = (m + n) * k * task.element.itemsize > CACHED_BYTES and -(-n // columns) >= 4 * rows
    return 2 * rows if large else rows


def near_rows(task: Task, columns: int, most: int = NEAR) -> int:
    """Return the rows of tiles in a group of the rasterization order, for blocks that are not in clusters.

    Blocks reuse a tile of A from L2 only if they are launched within ``NEAR`` of each other. With fewer columns of
    tiles, blocks that share a tile of B are as near.
    """
    if not task.shape:
        return most
    _, n, _ = task.shape
    return max(1, min(most, -(-n // columns) // 2))


def aligned(task: Task, *columns: int) -> bool:
    """Return whether rows of so many elements are multiples of 16 bytes, as TMA requires."""
    return not any(column * task.element.itemsize % 16 for column in columns)


def copied_rows(task: Task, line: int) -> dict[str, Workspace]:
    """Return the copies of A and B that a product needs because TMA does not take their rows, by name.

    TMA takes rows of a multiple of 16 bytes. Those of a copy are a multiple of ``line`` elements.
    """
    m, n, k = task.shape
    sizes = {"copy_a": (m, k), "copy_b": (k, n)}
    return {
        name: Workspace((rows, rounded_up(columns, line)), task.element.storage.name)
        for name, (rows, columns) in sizes.items()
        if rows and not aligned(task, columns)
    }


def copied(task: Task, arrays: Mapping[str, Any], threads: int) -> tuple[list[Launch], tuple[Any, ...]]:
    """Return the launch of ``copy`` if the workspace of a product has copies, and the arguments of the product.

    These have the copies in place of A and B. Each thread of ``copy`` copies 8 elements.
    """
    m, n, k, alpha, a, lda, b, ldb, *rest = task.operation.arguments(task, arrays)
    workspace, copies, blocks = task.workspace, [], 0
    for name, matrix, ld, height, width in (("copy_a", a, lda, m, k), ("copy_b", b, ldb, k, n)):
        copy = arrays[name] if name in workspace else matrix
        copies.append((height if name in workspace else np.int32(0), width, matrix, ld, copy))
        blocks += -(-int(height) * copy.shape[1] // (8 * threads)) if name in workspace else 0
    if not blocks:
        return [], (m, n, k, alpha, a, lda, b, ldb, *rest)
    (*_, a), (*_, b) = copies
    a, b = a[:, : int(k)], b[:, : int(n)]
    lda, ldb = (np.int32(each.strides[0] // each.itemsize) for each in (a, b))
    launch = Launch((blocks,), (threads,), (*copies[0], *copies[1]), function="copy")
    return [launch], (m, n, k, alpha, a, lda, b, ldb, *rest)


# Launches overlap up to this size of A and B together, and of the operands that the kernel reads without a copy.
OVERLAPPED_BYTES, DIRECT_BYTES = 30 << 20, 10 << 20


def may_overlap(task: Task, *copied: str) -> bool:
    """Return whether a product starts before the launch that copies operands ends: those named, or those of TMA.

    With large operands, an overlapping product takes longer.
    """
    names = copied or [name.removeprefix("copy_").upper() for name in task.workspace]
    sizes = {
        operand.name: math.prod(task.shape_of(operand)) * task.element.itemsize for operand in task.operation.operands
    }
    direct = sum(sizes[name] for name in "AB" if name not in names)
    return sizes["A"] + sizes["B"] <= OVERLAPPED_BYTES and direct <= DIRECT_BYTES


@dataclass(frozen=True)
class ThreeFp16(PersistentTma):
    """Persistent blocks that multiply the FP16 parts of A and B, after a launch that splits them."""

    split_block: int = 256  # threads of a block that splits
    # split_columns, split_parts: columns of B of a cluster, and its blocks, which divide the terms
    split_columns: int = 32
    split_parts: int = 8

    @property
    def terms(self) -> int:
        """Terms of a stage, each as a high and a low part."""
        return self.depth // 2

    def macros(self, task: Task) -> dict[str, int]:
        return {
            **self.ring(task).macros(task),
            **{"BFLOAT16": 0, "PART_TERMS": self.terms, "SPLIT_BLOCK": self.split_block},
            **{"SPLIT_COLUMNS": self.split_columns, "SPLIT_PARTS": self.split_parts},
        }

    def workspace(self, task: Task) -> dict[str, Workspace]:
        m, n, k = task.shape
        columns = 2 * rounded_up(k, self.terms)
        return {
            "parts_a": Workspace((m, columns), "float16"),
            "parts_b": Workspace((columns, rounded_up(n, 8)), "float16"),
            "inverse_a": Workspace((m, 2), "float32"),
            "inverse_b": Workspace((rounded_up(n, self.tile(task).columns), 2), "float32"),
        }

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: TmaChoice, divided: int) -> list[Launch]:
        tiles = math.prod(self.over_c(task))
        m, n, k, _, a, lda, b, ldb, *_ = arguments = task.operation.arguments(task, arrays)
        parts_a, parts_b, inverse_a, inverse_b = parts = [arrays[name] for name in self.workspace(task)]
        row_threads = 32  # of a row of A; a thread splits 8 elements at a time
        while row_threads < min(self.split_block, int(k) // 8):
            row_threads *= 2
        blocks_of_b = len(inverse_b) // self.split_columns * self.split_parts
        blocks_of_a = rounded_up(-(-int(m) * row_threads // self.split_block), self.split_parts)
        ring = self.ring(task)
        boxes = Boxes(parts_a, ring.rows, BOX, "float16"), Boxes(parts_b, self.depth, BOX, "float16")
        return [
            Launch(
                (blocks_of_b + blocks_of_a,),
                (self.split_block,),
                (m, n, k, a, lda, b, ldb, *parts, np.int32(row_threads)),
                function="split",
            ),
            Launch(
                (even_blocks(tiles, task.sms),),
                ring.block,
                (*arguments, *boxes, inverse_a, inverse_b),
                ring.shared_bytes,
            ),
        ]


@dataclass(frozen=True)
class TransposedInt8(PersistentTma):
    """Persistent blocks for int8, with a producer and two consumers, and a kernel before them that transposes B.

    The transpose has rows of whole groups of ``GROUP`` terms, and whole groups of rows.
    """

    depth: int = 128

    def groups(self, task: Task) -> tuple[int, int]:
        """Return the number of groups along n and k."""
        _, n, k = task.shape
        return -(-n // GROUP), -(-max(k, 1) // GROUP)

    def workspace(self, task: Task) -> dict[str, Workspace]:
        columns, terms = self.groups(task)
        return {"transposed": Workspace((columns * GROUP, terms * GROUP), "uint8")}

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: TmaChoice, divided: int) -> list[Launch]:
        tiles = math.prod(self.over_c(task))
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = task.operation.arguments(task, arrays)
        transposed, ring = arrays["transposed"], self.ring(task)
        boxes = Boxes(a, ring.rows, self.depth, "uint8"), Boxes(transposed, ring.columns, self.depth, "uint8")
        depth = np.int32(transposed.shape[1])
        return [
            Launch(self.groups(task), (32, 8), (n, k, depth, b, ldb, transposed), function="transpose"),
            Launch(
                (even_blocks(tiles, task.sms),),
                ring.block,
                (m, n, k, alpha, a, lda, beta, c, ldc, *boxes),
                ring.shared_bytes,
                overlaps=may_overlap(task, "B"),
            ),
        ]


@dataclass(frozen=True)
class DmmaRing:
    """A tile that ``PersistentDmma`` can choose."""

    # rows, columns: a team's tile of C
    rows: int
    columns: int
    # warp_rows, warp_columns: the part of it that a warp computes
    warp_rows: int
    warp_columns: int
    slices: int  # groups of warps of a team that each cover the tile and take turns at the pipeline stages
    teams: int  # groups of warps of a block that each have tiles and a ring of their own
    depth: int = 16  # terms of a pipeline stage
    most_stages: int = 12  # maximum number of pipeline stages of a team

    @property
    def warps(self) -> int:
        """Warps that multiply."""
        return self.rows * self.columns // (self.warp_rows * self.warp_columns) * self.slices * self.teams

    @property
    def threads(self) -> int:
        return 128 + 32 * self.warps

    @property
    def producers(self) -> int:
        """Threads of a team that load."""
        return 4 // self.teams * 32

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer thread, a multiple of 8: an even share of the block's, without the producers'.

        A block has the registers that its threads are launched with. A consumer that asks for more waits for ever.
        """
        at_launch = min(REGISTERS // self.threads // 8 * 8, 248) * self.threads
        return min(248, (at_launch - 128 * PRODUCER_REGISTERS) // (32 * self.warps) // 8 * 8)

    @property
    def exchange_bytes(self) -> int:
        """Bytes of shared memory for the sums that the slices of a team exchange."""
        return (self.slices - 1) * self.rows * self.columns * 8

    @property
    def stage_bytes(self) -> int:
        """Bytes of shared memory of a pipeline stage: boxes of A and B, and two mbarriers."""
        return (self.rows + rounded_up(self.columns, 16)) * ROW_BYTES + 16

    @property
    def stages(self) -> int:
        """Pipeline stages of a team, a multiple of ``slices``: as many as fit, at most ``most_stages``."""
        fit = (SHARED_BYTES // self.teams - self.exchange_bytes) // self.stage_bytes
        return min(fit, self.most_stages) // self.slices * self.slices

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return self.teams * (self.stages * self.stage_bytes + self.exchange_bytes)


@dataclass(frozen=True)
class PersistentDmma(ChosenTile):
    """Persistent blocks of float64, whose producers copy by TMA; the tile depends on the shape."""

    choices: tuple[DmmaRing, ...]
    group_rows: int = 8  # rows of tiles in a group of the rasterization order, up to ``CACHED_BYTES`` of A and B

    def work_of(self, tile: DmmaRing, divided: int) -> Work:
        return Work(
            *(tile.rows, tile.columns, tile.depth, tile.warps / tile.teams),
            slices=tile.slices,
            resident=tile.teams,
            loaders=tile.producers,
        )

    def details(self, tile: DmmaRing, divided: int) -> str:
        return f"teams {tile.teams}" + (f", slices {tile.slices}" if tile.slices > 1 else "")

    def macros(self, task: Task) -> dict[str, int]:
        tile, _ = self.chosen(task)
        names = "rows", "columns", "warp_rows", "warp_columns", "depth", "stages", "slices", "teams"
        defines = macros_of(tile, *names, "consumer_registers") | {"BLOCK": tile.threads}
        return defines | {"GROUP_ROWS": rows_beyond_cache(task, tile.columns, self.group_rows)}

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: DmmaRing, divided: int) -> list[Launch]:
        tiles = tiles_of(task.shape, tile)
        boxes = Boxes(arrays["A"], tile.rows, tile.depth, "float64"), Boxes(arrays["B"], tile.depth, 16, "float64")
        arguments = (*task.operation.arguments(task, arrays), *boxes)
        return [Launch((even_blocks(tiles, task.sms),), (tile.threads,), arguments, tile.shared_bytes)]
