"""C = alpha A B + beta C, with A m x k, B k x n, C m x n, all row-major."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpcmm.model import Operand, Operation, Task
from hpcmm.model.dtypes import DType
from hpcmm.operations import cores
from hpcmm.operations.blocks import Tiled
from hpcmm.operations.matmul_ladder import EIGHT_BIT, EVERY, LADDER, TO_FLOAT32
from hpcmm.operations.truth import Judge, scalars

LARGEST_C = 2**16  # of the integers in C before a product
LARGEST_FACTOR = 2**7  # ... in A and B: sums of less than 2**17 products are exact in int32
# ... in a column of A and a row of B: their products are rounded in float32, and they themselves in int8 and int16
LONG_FACTOR = 2**18
ROWS_OF_STREAM = 256  # of a matrix that one stream of random numbers fills

OPERANDS = (
    Operand("A", ("m", "k"), "rows", "in"),
    Operand("B", ("k", "n"), "replicated", "in"),
    Operand("C", ("m", "n"), "rows", "inout"),
)


def flops(task: Task) -> int:
    """Return 2 m n k, as BLAS counts: one multiplication and one addition per term."""
    m, n, k = task.shape
    return 2 * m * n * k


def nbytes(task: Task) -> int:
    """Return the compulsory traffic: A, B and C once each, C twice if it is also read."""
    m, n, k = task.shape
    passes_over_c = 2 if task.scalars.get("beta") else 1
    return (m * k + k * n) * task.element.itemsize + passes_over_c * m * n * task.element.results.itemsize


def draw(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw A, B and C uniform in [-1, 1); if beta = 0, C is NaN, because it must not be read.

    Integers are uniform: of A and B up to ``LARGEST_FACTOR`` in magnitude, of C up to ``LARGEST_C``. Without NaN, C is
    the smallest integer. A column of A and a row of B in int32 are larger. Inputs of a type with
    ``integers`` have exact results: see ``docs/bounds.md``.
    """
    arrays = {
        operand.name: np.empty(task.shape_of(operand), task.storage(operand)) for operand in task.operation.operands
    }
    fill(rng, task, arrays)
    return arrays


def fill(rng: np.random.Generator, task: Task, arrays: Mapping[str, np.ndarray]) -> None:
    for operand in task.operation.operands:
        drawn = task.element if operand.role == "in" else task.element.results
        most = LARGEST_FACTOR if operand.role == "in" else LARGEST_C
        draw_into(arrays[operand.name], rng, drawn, task.element.integers, most)
    if task.element.storage == np.int32 and (k := task.shape[2]):
        lines = zip((arrays["A"].T, arrays["B"]), rng.permutation(k), strict=False)
        for lines_of, at in lines:  # different ones, if there are two
            line = lines_of[at]
            line[...] = rng.integers(LONG_FACTOR // 2, LONG_FACTOR, line.shape) | 1
    if task.scalars["beta"] == 0:
        arrays["C"].fill(task.element.results.poison)


def draw_into(
    x: np.ndarray, rng: np.random.Generator, element: DType, largest: int = 0, below: int = LARGEST_FACTOR
) -> None:
    """Fill a matrix with random values: with ``largest``, integers but not zero, whose loss would go unnoticed."""
    values = element.stored(np.array([value for value in range(-largest, largest + 1) if value]))

    def fill(stream: np.random.Generator, rows: np.ndarray) -> None:
        if largest:
            rows[...] = values[stream.integers(len(values), size=rows.shape, dtype=np.uint8)]
            return
        if element.is_integer:
            most = min(np.iinfo(x.dtype).max + 1, below)
            rows[...] = stream.integers(-most, most, rows.shape, x.dtype)
            return
        drawn = rows if x.dtype in (np.float32, np.float64) else np.empty(rows.shape, np.float32)
        cores.uniform(stream, drawn)
        if drawn is not rows:
            rows[...] = element.stored(drawn)

    cores.draw(rng, x, fill, ROWS_OF_STREAM)


def arguments(task: Task, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of every kernel, in the order of BLAS: sizes, scalars, arrays, leading dimensions."""
    m, n, k = map(np.int32, task.shape)
    alpha, beta = scalars(task)
    a, b, c = (arrays[name] for name in "ABC")
    lda, ldb, ldc = (np.int32(array.strides[0] // array.itemsize) for array in (a, b, c))
    return m, n, k, alpha, a, lda, b, ldb, beta, c, ldc


MATMUL = Operation(
    name="matmul",
    kernels="matmul",
    dimensions=("m", "n", "k"),
    operands=OPERANDS,
    dtypes=(*EVERY, *TO_FLOAT32, *EIGHT_BIT, "int32"),
    stated=("int32",),
    scalars={"alpha": 1.5, "beta": 0.5},
    ladder=LADDER,
    metric="flops",
    flops=flops,
    bytes=nbytes,
    draw=draw,
    fill=fill,
    reference=Judge,
    arguments=arguments,
    geometry=Tiled,
    reference_on=Judge,
)
