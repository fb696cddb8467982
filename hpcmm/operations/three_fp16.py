"""Products of float32 by FP16 parts, which another launch prepares."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpcmm.model import Task
from hpcmm.model.launch import Launch, Workspace
from hpcmm.operations.blocks import rounded_up
from hpcmm.operations.tabled import Tabled, Tile


class ThreeFp16(Tabled):
    """Persistent blocks that multiply the FP16 parts of A and B, after a launch that splits them."""

    def workspace(self, task: Task) -> dict[str, Workspace]:
        m, n, k = task.shape
        tile = self.chosen(task)
        columns = 2 * rounded_up(k, tile.part_terms)
        return {
            "parts_a": Workspace((m, columns), "float16"),
            "parts_b": Workspace((columns, rounded_up(n, 8)), "float16"),
            "inverse_a": Workspace((m, 2), "float32"),
            "inverse_b": Workspace((rounded_up(n, tile.columns), 2), "float32"),
        }

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: Tile) -> list[Launch]:
        m, n, k, _, a, lda, b, ldb, *_ = arguments = task.operation.arguments(task, arrays)
        parts_a, parts_b, inverse_a, inverse_b = parts = [arrays[name] for name in self.workspace(task)]
        row_threads = 32  # of a row of A; a thread splits 8 elements at a time
        while row_threads < min(tile.split_block, int(k) // 8):
            row_threads *= 2
        blocks_of_b = len(inverse_b) // tile.split_columns * tile.split_parts
        blocks_of_a = rounded_up(-(-int(m) * row_threads // tile.split_block), tile.split_parts)
        boxes = self.boxes(task, tile, {"A": parts_a, "B": parts_b}, "float16")
        splitting = (m, n, k, a, lda, b, ldb, *parts, np.int32(row_threads))
        return [
            Launch((blocks_of_b + blocks_of_a,), (tile.split_block,), splitting, function="split"),
            self.product(task, tile, (*arguments, *boxes, inverse_a, inverse_b)),
        ]
