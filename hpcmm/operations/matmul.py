"""C = alpha A B + beta C, with A m x k, B k x n, C m x n, all row-major."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.model import Launch, Operand, Operation, Variant, Verdict
from hpcmm.operations import accuracy
from hpcmm.operations.algorithms import PRODUCTS

TILES = (8, 16, 32)
SAMPLED_ROWS = 16  # of a product too large for every element to be checked
ROUNDINGS = 64  # in a row's sum with signs, at most; up to 6 were seen in an element, whatever k
SIGNS = 4  # per element of a row: in one sum alone, the parts of an error may cancel
PANEL = 2048  # columns of B that are widened at a time
WORTH_DIVIDING = 4  # steps that a tile's blocks must save by dividing it, as they must add up their parts
LEAST_STEPS = 2  # of such a part

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
            **{"WARP_ROWS": 32, "WARP_COLUMNS": 64},
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
    Variant(
        "stream_k",
        "cuda",
        "blocks divide the terms of a tile among them where some would be idle",
        block=(256,),
        constants={
            **{"ROWS": 128, "COLUMNS": 128, "DEPTH": 32, "STAGES": 2, "PARTS": 2, "GROUP": 8},
            **{"MAX_BLOCKS": 132},  # the SMs of an H100 or H200
        },
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
    streams = rng.spawn(-(-len(x) // accuracy.ROWS))

    def fill(rows: slice) -> None:
        streams[rows.start // accuracy.ROWS].random(dtype=x.dtype, out=x[rows])
        x[rows] *= 2
        x[rows] -= 1

    accuracy.in_threads(fill, len(x), accuracy.ROWS)


class Truth:
    """A product in higher precision than that of its inputs, and the errors that rounding may cause in theirs."""

    def __init__(self, arrays: Mapping[str, np.ndarray], parameters: Mapping[str, float]):
        self.a, self.b, self.c = arrays["A"], arrays["B"], arrays["C"]
        self.dtype = str(self.a.dtype)
        self.alpha, self.beta = (float(self.a.dtype.type(parameters[name])) for name in ("alpha", "beta"))
        self.wide = np.float64 if self.dtype == "float32" else np.longdouble
        k = self.a.shape[1]
        self.bound = accuracy.gamma(k + 2, self.dtype)
        self.underflow = (k + 2) * float(np.finfo(self.dtype).tiny)  # kernels may flush subnormal numbers to zero

    def elements(self, rows) -> tuple[np.ndarray, np.ndarray]:
        """The elements of some rows of C and the error allowed in each; B is widened in panels.

        That is ``gamma_{k+2} (|alpha| |A| |B| + |beta| |C|)`` (Higham, 3.13).
        """
        alpha, beta, wide, n = self.alpha, self.beta, self.wide, self.b.shape[1]
        truth, allowed = np.empty((2, len(rows), n), wide)
        a, start = (
            self.a[rows].astype(np.float64),
            self.c[rows].astype(wide) if beta else np.zeros((len(rows), n), wide),
        )

        def widen(panel: slice) -> None:
            b = self.b[:, panel].astype(np.float64)
            product = a @ b if self.dtype == "float32" else accuracy.exact_product(a, b)
            truth[:, panel] = alpha * product + beta * start[:, panel]
            allowed[:, panel] = abs(alpha) * (np.abs(a) @ np.abs(b)) + abs(beta) * np.abs(start[:, panel])

        if len(rows) > SAMPLED_ROWS:
            for first in range(0, n, PANEL):  # the products take the time, on all cores
                widen(slice(first, first + PANEL))
        else:
            accuracy.in_threads(widen, n, PANEL // 8)
        return truth, self.bound * allowed + self.underflow

    def row_sums(self, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sums of each row of C with each column of ``signs`` and the error allowed, which hardly grows with k.

        Each element of a row has an error of some u ||a_i|| ||b_j|| (2-norms), as that of a sum of random terms
        around zero has (Higham and Mary, *SIAM J. Sci. Comput.* 42, 2020), and those of a row add up like the steps
        of a random walk. So ``ROUNDINGS`` u (|alpha| ||a_i|| ||B||_F + |beta| ||c_i||) is allowed.
        """
        sums = self.alpha * accuracy.row_sums(self.a, accuracy.row_sums(self.b, signs))
        norms = abs(self.alpha) * accuracy.row_norms(self.a) * np.linalg.norm(accuracy.row_norms(self.b))
        if self.beta:
            sums += self.beta * accuracy.row_sums(self.c, signs)
            norms += abs(self.beta) * accuracy.row_norms(self.c)
        allowed = ROUNDINGS * float(np.finfo(self.dtype).eps) / 2 * norms + len(signs) * self.underflow
        return sums, allowed[:, None]


def reference(arrays: Mapping[str, np.ndarray], parameters: Mapping[str, float]) -> Callable[[np.ndarray], Verdict]:
    """Return the judge of a computed C (m x n), from inputs that it keeps.

    Every element of a product up to ``accuracy.COMPONENTWISE_LIMIT`` multiply-adds is held to what rounding may
    cause, and ``SAMPLED_ROWS`` random rows are of larger ones. This bound grows with k, and from k = 8192 on it lets
    float32 lose a term. So each row is judged by Freivalds' random products with signs besides, which find what is
    wrong in rows that are not sampled, too.
    """
    truth = Truth(arrays, parameters)
    (m, k), n, wide = truth.a.shape, truth.b.shape[1], np.dtype(truth.wide)
    products = 2 if truth.dtype == "float32" else 7
    rng = np.random.default_rng()
    if everything := products * m * n * k <= accuracy.COMPONENTWISE_LIMIT:
        rows, name = np.arange(m), f"componentwise, {wide.name}"
    else:
        rows = np.sort(rng.choice(m, min(m, SAMPLED_ROWS), replace=False))
        name = f"Freivalds and {len(rows)} rows componentwise, {wide.name}"
    signs = rng.choice(np.array([-1, 1], wide), (n, SIGNS))
    elements, allowed = truth.elements(rows)
    sums, allowed_sums = truth.row_sums(signs)

    def judge(got: np.ndarray) -> Verdict:
        sampled = accuracy.judge(got if everything else got[rows], elements, allowed, truth.bound, name)
        summed = accuracy.judge(accuracy.row_sums(got, signs), sums, allowed_sums, truth.bound, name)
        if (sampled.passed and summed.passed) or (everything and not sampled.passed):
            return sampled
        # the first wrong row that either found, and its worst element
        wrong = [(rows, sampled), (np.arange(m), summed)]
        row = min(int(index[int(v.where.split(":")[0])]) for index, v in wrong if not v.passed)
        (expected,), _ = truth.elements([row])
        column = int(np.argmax(np.nan_to_num(np.abs(got[row] - expected), nan=np.inf)))
        where = accuracy.describe((row, column), got[row, column], expected[column])
        return Verdict(False, float(np.max([sampled.error, summed.error])), truth.bound, name, where)

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
    variant: Variant,
    shape: tuple[int, ...],
    dtype: str,
    parameters: Mapping[str, float],
    arrays: Mapping,
    multiprocessors: int,
) -> list[Launch]:
    """One launch of blocks that cover C; of an ``exact`` variant, as many as fit into C."""
    m, n, k = shape
    rows, columns = covered(variant, dtype, parameters)
    grid = (n // columns, m // rows) if variant.exact else (-(-n // columns), -(-m // rows))
    if 0 in grid:
        return []
    if most := variant.constants.get("MAX_BLOCKS"):
        steps = -(-k // variant.constants["DEPTH"])
        grid = (blocks_that_divide(math.prod(grid), steps, min(most, multiprocessors)),)
    shared = shared_bytes(variant, dtype)
    return [Launch(grid, variant.block or (columns, rows), arguments(shape, dtype, parameters, arrays), shared)]


def blocks_that_divide(tiles: int, steps: int, most: int) -> int:
    """Blocks that are to compute ``tiles`` tiles of ``steps`` steps each, where ``most`` can work at the same time.

    They are as many as the tiles where to divide those would save less than to add up the parts costs: then each has
    one, or none of those that work at the same time is idle.
    """
    idle = -tiles % most  # in the last round, if no tile is divided
    if idle * steps <= WORTH_DIVIDING * most:
        return tiles
    return min(most, max(tiles, tiles * steps // LEAST_STEPS))


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
