"""Shapes at which kernels often fail, such as single elements and ragged ones, and random shapes of products."""

import random
from collections.abc import Mapping

from hpcmm.model import Operation

# Sizes of all remainders by 8; the last ones: beyond the numbers of a byte
GIVEN = "1x1x1 17x33x1 1x17x33 33x1x17 31x32x33 64x64x64 10x70x40 65x7x131 302x4x6 3x298x15 5x3x298"
RAGGED = [tuple(map(int, shape.split("x"))) for shape in GIVEN.split()]
LENGTHS = (1, 2, 12, 33, 45, 70, 1000, 4099)  # of all remainders by 7 and, with the block, by 8

SIDE = 64  # sides of products that are multiples
SMALLEST, LARGEST = 16, 10240  # sides of products of any size, and largest multiple
LAYER = 2048, 8192  # inputs of a layer; outputs are up to four times as many
ROWS_OF_LAYER = 4096  # at most
KINDS = ("any", "multiples", "layers")


def ragged(operation: Operation, macros: Mapping[str, object]) -> list[tuple[int, ...]]:
    """Return shapes to verify a kernel at, without duplicates; its macros give its block.

    >>> from hpcmm.operations import OPERATIONS
    >>> ragged(OPERATIONS["sum"], {"BLOCK": 4})
    [(1,), (2,), (12,), (33,), (45,), (70,), (1000,), (4099,), (3,), (4,), (5,), (17,)]
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


def of_kind(kind: str, x: float, y: float, z: float) -> tuple[int, int, int]:
    """Return the shape m, n, k of a product at a point of the unit cube; logarithms of sides are proportional to it.

    The kinds are any size, multiples of ``SIDE``, and few rows of a layer of a neural network.

    >>> of_kind("any", 0, 0.5, 1), of_kind("multiples", 0, 0.5, 1), of_kind("layers", 0, 0.5, 1)
    ((16, 405, 10240), (64, 832, 10240), (1, 16384, 8192))
    """
    if kind == "any":
        m, n, k = (round(SMALLEST * (LARGEST / SMALLEST) ** each) for each in (x, y, z))
    elif kind == "multiples":
        m, n, k = (SIDE * round((LARGEST / SIDE) ** each) for each in (x, y, z))
    else:
        k = SIDE * round(LAYER[0] / SIDE * (LAYER[1] / LAYER[0]) ** z)
        m, n = round(ROWS_OF_LAYER**x), SIDE * round(k / SIDE * 4**y)
    return m, n, k


def drawn(kind: str, count: int, seed: int) -> list[tuple[int, int, int]]:
    """Return different random shapes of a kind, the same for a seed, of which the first are the same for any count."""
    stream, found = random.Random(seed), {}
    while len(found) < count:
        found[of_kind(kind, stream.random(), stream.random(), stream.random())] = None
    return list(found)
