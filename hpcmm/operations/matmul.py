"""C = alpha A B + beta C, with A m x k, B k x n, C m x n, all row-major."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.model import Launch, Operand, Operation, Variant, Verdict
from hpcmm.operations import accuracy
from hpcmm.operations.algorithms import PRODUCTS

TILES = (8, 16, 32)
SAMPLED_ROWS = 16  # of a product too large for every element to be checked
PANEL = 2048  # columns of B that are widened at a time
ROWS = 256  # rows that one thread draws or widens at a time

LADDER = (  # the order here is the order of the rungs
    Variant("serial", "cpu", "triple loop on one thread", source="000, 004", slow=True),
    Variant(
        "serial_double", "cpu", "sums in double also for float; for double the same as serial", source="004", slow=True
    ),
    Variant(
        "unrolled",
        "cpu",
        "k loop unrolled by four, with four partial sums and a remainder loop",
        source="001",
        slow=True,
    ),
    Variant("pthread", "cpu", "rows dealt out to POSIX threads, the serial loop in each", source="000", slow=True),
    Variant("avx", "cpu", "SIMD intrinsics on one thread: AVX-512, AVX2 or NEON, chosen at run time", source="000"),
    Variant("openmp", "cpu", "rows shared out over OpenMP threads, inner loop over contiguous rows of B", source="000"),
    Variant("packed", "cpu", "packed panels, register tiles and cache blocks, SIMD chosen at run time, all threads"),
    Variant("numpy", "cpu", "NumPy's BLAS", baseline=True, deterministic=False),
    Variant(
        "naive_unguarded",
        "cuda",
        "one thread computes one element of C, grid = n / block: multiples of the block only",
        source="000, 003 kernel00",
        tiles=TILES,
        exact=True,
    ),
    Variant("naive", "cuda", "grid rounded up, bounds tested: any size", source="003 kernel01, 004", tiles=TILES),
    Variant("naive_unrolled", "cuda", "k loop unrolled by a stride, with a remainder", source="001", tiles=TILES),
    Variant(
        "uncoalesced",
        "cuda",
        "a warp's threads take different rows",
        source="000, 004 unit 4",
        tiles=TILES,
    ),
    Variant(
        "coalesced",
        "cuda",
        "a warp takes 32 neighbouring columns",
        source="000, 004 unit 4",
        block=(256,),
        constants={"ROWS": 8, "COLUMNS": 32},
    ),
    Variant(
        "tiled_exact",
        "cuda",
        "tiles of A and B staged in shared memory, multiples of the tile only",
        source="000, 002, 003 kernel10, 004 unit 3",
        tiles=TILES,
        exact=True,
    ),
    Variant("tiled_padded", "cuda", "the last tile padded with zeros: any size", source="001", tiles=TILES),
    Variant("tiled_remainder", "cuda", "the last tile in a loop of its own", source="003 kernel11", tiles=TILES),
    Variant("bank_conflict", "cuda", "tiles stored by columns, against the banks", source="000, 001", tiles=TILES),
    Variant("conflict_free", "cuda", "the same with padded rows", source="000, 001", tiles=TILES),
    Variant("tiled_unrolled", "cuda", "the loop over a tile written out", source="000, 001", tiles=TILES),
    Variant(
        "pitched",
        "cuda",
        "tiled_padded on copies whose rows start at aligned addresses (pitched allocation)",
        source="001",
        tiles=TILES,
        pitched=True,
    ),
    Variant(
        "register_1d",
        "cuda",
        "each thread computes a column of 8 elements in registers",
        block=(512,),
        constants={"ROWS": 64, "COLUMNS": 64, "DEPTH": 8},
    ),
    Variant(
        "register_2d",
        "cuda",
        "each thread computes 8 x 8 elements in registers",
        block=(256,),
        constants={"ROWS": 128, "COLUMNS": 128, "DEPTH": 8},
    ),
    Variant(
        "vectorized",
        "cuda",
        "16 bytes a load, A transposed in shared memory",
        block=(256,),
        constants={"ROWS": 128, "COLUMNS": 128, "DEPTH": 8},
    ),
    Variant(
        "warp_tiled",
        "cuda",
        "the lanes of a warp share one tile of C",
        block=(256,),
        constants={"ROWS": 128, "COLUMNS": 128, "DEPTH": 16},
    ),
    Variant(
        "asynchronous",
        "cuda",
        "tiles arrive by cp.async in a ring of stages, operands in registers one step ahead",
        block=(256,),
        constants={"ROWS": 128, "COLUMNS": 128, "DEPTH": 8, "STAGES": 3},
        architecture="sm_80",
    ),
    Variant(
        "swizzled",
        "cuda",
        "blocks go through C in groups of rows, to share tiles in the L2 cache",
        block=(256,),
        constants={"ROWS": 128, "COLUMNS": 128, "DEPTH": 8, "STAGES": 3, "GROUP": 8},
        architecture="sm_80",
    ),
    Variant(
        "oblong",
        "cuda",
        "each thread computes 16 x 8 elements of float32, with fewer loads",
        block=(256,),
        constants={
            **{"ROWS": {"float32": 256, "float64": 128}, "COLUMNS": 128},
            **{"DEPTH": 8, "STAGES": 4, "GROUP": 8},
        },
        architecture="sm_80",
    ),
    Variant(
        "tensor_core",
        "cuda",
        "tensor cores: float64 as is, float32 split into two TF32 parts, three products added",
        block=(128,),
        constants={
            **{"ROWS": 64, "COLUMNS": 128, "DEPTH": 16, "STAGES": 4, "GROUP": 8},
            **{"WARP_ROWS": 64, "WARP_COLUMNS": 32},
        },
        architecture="sm_80",
        arithmetic={"float32": "three TF32 products"},
    ),
    Variant(
        "warpgroup",
        "cuda",
        "warpgroups of Hopper start three TF32 products from shared memory, and load the next tile meanwhile",
        block=(256,),
        constants={"ROWS": 128, "COLUMNS": 128, "DEPTH": 32, "STAGES": 2, "PARTS": 2, "GROUP": 8},
        dtypes=("float32",),
        architecture="sm_90a",
        arithmetic={"float32": "three TF32 products"},
    ),
    Variant("cublas", "cuda", "cuBLAS, without TF32", source="001", baseline=True),
)

OPERANDS = (
    Operand("A", ("m", "k"), "rows", "in"),
    Operand("B", ("k", "n"), "replicated", "in"),
    Operand("C", ("m", "n"), "rows", "inout"),
)


def flops(shape: tuple[int, ...], parameters: Mapping[str, float]) -> int:
    """2 m n k, as BLAS counts: one multiplication and one addition a term."""
    m, n, k = shape
    return 2 * m * n * k


def nbytes(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]) -> int:
    """Compulsory traffic: A, B and C once each, C twice where it is read too."""
    m, n, k = shape
    passes_over_c = 2 if parameters["beta"] else 1
    return (m * k + k * n + passes_over_c * m * n) * np.dtype(dtype).itemsize


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]):
    """A, B and C uniform in [-1, 1); C is NaN where beta = 0 says that it is not read."""
    m, n, k = shape
    arrays = {}
    for name, dimensions in (("A", (m, k)), ("B", (k, n)), ("C", (m, n))):
        arrays[name] = np.empty(dimensions, dtype)
        draw_into(arrays[name], rng)
    if parameters["beta"] == 0:
        arrays["C"].fill(np.nan)
    return arrays


def draw_into(x: np.ndarray, rng: np.random.Generator) -> None:
    """Fill a matrix from as many streams as it has groups of rows: the same however many threads do it."""
    streams = rng.spawn(-(-len(x) // ROWS))

    def fill(rows: slice) -> None:
        streams[rows.start // ROWS].random(dtype=x.dtype, out=x[rows])
        x[rows] *= 2
        x[rows] -= 1

    accuracy.in_threads(fill, len(x), ROWS)


def reference(arrays: Mapping[str, np.ndarray], parameters: Mapping[str, float]) -> Callable[[np.ndarray], Verdict]:
    """Return the judge of a computed C (m x n), from inputs that it keeps.

    Every element of a product up to ``accuracy.COMPONENTWISE_LIMIT`` multiply-adds is held to
    ``gamma_{k+2} (|alpha| |A| |B| + |beta| |C|)`` (Higham, 3.13). Of larger ones ``SAMPLED_ROWS`` random
    rows are, and all others are judged by Freivalds' random product with signs: each row sum is held
    to the sum of those bounds.
    """
    a, b, c = arrays["A"], arrays["B"], arrays["C"]
    (m, k), n = a.shape, b.shape[1]
    dtype = str(a.dtype)
    alpha, beta = (float(np.dtype(dtype).type(parameters[name])) for name in ("alpha", "beta"))
    bound = accuracy.gamma(k + 2, dtype)
    underflow = (k + 2) * float(np.finfo(dtype).tiny)  # kernels may flush subnormal numbers to zero
    wide = np.float64 if dtype == "float32" else np.longdouble
    products = 2 if dtype == "float32" else 7

    def elements(rows) -> tuple[np.ndarray, np.ndarray]:
        """The true elements of some rows of C and the error allowed in each; B is widened in panels."""
        truth, allowed = np.empty((2, len(rows), n), wide)
        wide_a, start = a[rows].astype(np.float64), c[rows].astype(wide) if beta else np.zeros((len(rows), n), wide)

        def widen(panel: slice) -> None:
            wide_b = b[:, panel].astype(np.float64)
            product = wide_a @ wide_b if dtype == "float32" else accuracy.exact_product(wide_a, wide_b)
            truth[:, panel] = alpha * product + beta * start[:, panel]
            allowed[:, panel] = abs(alpha) * (np.abs(wide_a) @ np.abs(wide_b)) + abs(beta) * np.abs(start[:, panel])

        if len(rows) > SAMPLED_ROWS:
            for first in range(0, n, PANEL):  # the products take the time, on all cores
                widen(slice(first, first + PANEL))
        else:
            accuracy.in_threads(widen, n, PANEL // 8)
        return truth, bound * allowed + underflow

    if products * m * n * k <= accuracy.COMPONENTWISE_LIMIT:
        truth, allowed = elements(np.arange(m))
        return lambda got: accuracy.judge(got, truth, allowed, bound, f"componentwise, {np.dtype(wide).name}")

    def row_sums(x, weights, of=np.asarray):
        return np.concatenate(accuracy.in_threads(lambda rows: of(x[rows]).astype(wide) @ weights, len(x), ROWS))

    rng = np.random.default_rng()
    rows = np.sort(rng.choice(m, min(m, SAMPLED_ROWS), replace=False))
    truth, allowed = elements(rows)
    ones, signs = np.ones(n, wide), rng.choice(np.array([-1, 1], wide), n)
    sums = alpha * row_sums(a, row_sums(b, signs))
    allowed_sums = abs(alpha) * row_sums(a, row_sums(b, ones, np.abs), np.abs)
    if beta:
        sums += beta * row_sums(c, signs)
        allowed_sums += abs(beta) * row_sums(c, ones, np.abs)
    allowed_sums = bound * allowed_sums + n * underflow

    def judge(got: np.ndarray) -> Verdict:
        name = f"Freivalds and {len(rows)} rows componentwise, {np.dtype(wide).name}"
        sampled = accuracy.judge(got[rows], truth, allowed, bound, name)
        summed = accuracy.judge(row_sums(got, signs), sums, allowed_sums, bound, name)
        if summed.passed and sampled.passed:
            return sampled
        # the first wrong row that either found, and its worst element
        wrong = [(rows, sampled), (np.arange(m), summed)]
        row = min(int(index[int(v.where.split(":")[0])]) for index, v in wrong if not v.passed)
        (expected,), _ = elements([row])
        column = int(np.argmax(np.nan_to_num(np.abs(got[row] - expected), nan=np.inf)))
        where = accuracy.describe((row, column), got[row, column], expected[column])
        return Verdict(False, float(np.max([sampled.error, summed.error])), bound, name, where)

    return judge


def arguments(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float], arrays: Mapping) -> tuple:
    """The arguments of every matmul kernel, BLAS fashion: sizes, scalars, arrays, leading dimensions."""
    m, n, k = map(np.int32, shape)
    real = np.dtype(dtype).type
    alpha, beta = real(parameters["alpha"]), real(parameters["beta"])
    a, b, c = (arrays[name] for name in "ABC")
    lda, ldb, ldc = (np.int32(array.strides[0] // array.itemsize) for array in (a, b, c))
    return m, n, k, alpha, a, lda, b, ldb, beta, c, ldc


def covered(variant: Variant, dtype: str, parameters: Mapping[str, float]) -> tuple[int, int]:
    """Rows and columns of C that one block computes."""
    constants, tile = variant.constants_of(dtype), int(parameters.get("tile", 0))
    return constants.get("ROWS", tile), constants.get("COLUMNS", tile)


def launches(
    variant: Variant, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float], arrays: Mapping
) -> list[Launch]:
    """One launch of blocks that cover C; of an ``exact`` variant, as many as fit into C."""
    m, n, _ = shape
    rows, columns = covered(variant, dtype, parameters)
    grid = (n // columns, m // rows) if variant.exact else (-(-n // columns), -(-m // rows))
    if 0 in grid:
        return []
    shared = shared_bytes(variant, dtype)
    return [Launch(grid, variant.block or (columns, rows), arguments(shape, dtype, parameters, arrays), shared)]


def shared_bytes(variant: Variant, dtype: str) -> int:
    """Dynamic shared memory of a ring of stages: a tile of A and one of B each, padded, or the parts of B alone."""
    constants, itemsize = variant.constants_of(dtype), np.dtype(dtype).itemsize
    if "STAGES" not in constants:
        return 0
    rows, columns, depth, stages = (constants[name] for name in ("ROWS", "COLUMNS", "DEPTH", "STAGES"))
    if "PARTS" in constants:
        tiles = constants["PARTS"] * depth * columns * itemsize
    elif "WARP_ROWS" in constants:  # A and B by rows
        tiles = rows * (depth + 4) * itemsize + depth * (columns * itemsize + 32)
    else:  # A by columns, B by rows that need no padding
        tiles = depth * (rows * itemsize + 16) + depth * columns * itemsize
    return stages * tiles


MATMUL = Operation(
    name="matmul",
    kernels="matmul",
    dimensions=("m", "n", "k"),
    operands=OPERANDS,
    dtypes=("float32", "float64"),
    parameters={"alpha": 1.5, "beta": 0.5},
    ladder=LADDER,
    metric="flops",
    flops=flops,
    bytes=nbytes,
    draw=draw,
    reference=reference,
    arguments=arguments,
    launches=launches,
    scratch=lambda variant, shape: {},
    algorithms=PRODUCTS,
)
