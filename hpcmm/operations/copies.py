"""Copies of A and B whose rows can be loaded 16 bytes at a time, made by a launch before the product."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hpcmm.model import Task
from hpcmm.model.launch import Launch, Workspace
from hpcmm.operations.blocks import rounded_up

# Launches overlap up to this size of A and B together, and of the operands that the kernel reads without a copy.
OVERLAPPED_BYTES, DIRECT_BYTES = 30 << 20, 10 << 20


def copied_rows(task: Task, line: int) -> dict[str, Workspace]:
    """Return the copies of A and B that a product needs because their rows are no multiple of 16 bytes, by name.

    Rows of a copy are a multiple of ``line`` elements.
    """
    m, n, k = task.shape
    sizes = {"copy_a": (m, k), "copy_b": (k, n)}
    return {
        name: Workspace((rows, rounded_up(columns, line)), task.element.storage.name)
        for name, (rows, columns) in sizes.items()
        if rows and columns * task.element.itemsize % 16
    }


def copied(task: Task, arrays: Mapping[str, Any], threads: int) -> tuple[list[Launch], tuple[Any, ...]]:
    """Return the launch of ``copy`` if the workspace of a product has copies, and the arguments of the product.

    These have the copies in place of A and B, with zeros behind each row. Each thread of ``copy`` copies 8 elements.
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
    lda, ldb = (np.int32(matrix.strides[0] // matrix.itemsize) for matrix in (a, b))
    launch = Launch((blocks,), (threads,), (*copies[0], *copies[1]), function="copy")
    return [launch], (m, n, k, alpha, a, lda, b, ldb, *rest)


def may_overlap(task: Task) -> bool:
    """Return whether a product may start before the launch that copies its operands has ended.

    With large operands, a product that overlaps with the copies takes longer.
    """
    names = [name.removeprefix("copy_").upper() for name in task.workspace]
    sizes = {
        operand.name: math.prod(task.shape_of(operand)) * task.element.itemsize for operand in task.operation.operands
    }
    direct = sum(sizes[name] for name in "AB" if name not in names)
    return sizes["A"] + sizes["B"] <= OVERLAPPED_BYTES and direct <= DIRECT_BYTES
