"""Shapes at which kernels often fail: single elements, thin, ragged in each dimension, around the size of a block."""

from __future__ import annotations

from collections.abc import Mapping

from hpcmm.model import Operation

RAGGED = (
    (1, 1, 1),
    (17, 33, 1),
    (1, 17, 33),
    (33, 1, 17),
    (31, 32, 33),
    (64, 64, 64),
    (9, 70, 40),
    (65, 7, 129),
    (300, 3, 5),
    (3, 300, 5),
    (5, 3, 300),
)  # the last: beyond the numbers of a byte
LENGTHS = (1, 2, 33, 1000, 4099)


def ragged(operation: Operation, macros: Mapping[str, object]) -> list[tuple[int, ...]]:
    """Return shapes to verify a kernel at, without duplicates; its macros give its block.

    >>> from hpcmm.operations import OPERATIONS
    >>> ragged(OPERATIONS["sum"], {"BLOCK": 4})
    [(1,), (2,), (33,), (1000,), (4099,), (3,), (4,), (5,), (17,)]
    """
    whole = {name: value for name, value in macros.items() if isinstance(value, int)}
    count = len(operation.dimensions)
    if count == 1:
        block = whole.get("BLOCK", 256) * whole.get("PER_THREAD", 1)
        lengths = (*LENGTHS, *(each for each in (block - 1, block, block + 1, 4 * block + 1) if each > 0))
        return list(dict.fromkeys((length,) for length in lengths))
    rows, columns = (whole.get(name, whole.get("TILE", 32)) for name in ("ROWS", "COLUMNS"))
    depth = whole.get("DEPTH", 8)
    shapes = [*RAGGED, (rows, columns, 4 * depth), (rows + 12, 2 * columns + 5, 20), (2 * rows - 1, columns, depth + 5)]
    return list(dict.fromkeys((*shape, *(5,) * count)[:count] for shape in shapes))
