"""The ladder of the product: the record of each rung, and the libraries beside them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hpcmm.model import Task
from hpcmm.model.launch import Workspace
from hpcmm.operations.amx import Packed, PackedResidues
from hpcmm.operations.blocks import Tiled, rounded_up
from hpcmm.operations.heads import ladder
from hpcmm.operations.residues import Residues
from hpcmm.operations.strassen import Strassen
from hpcmm.operations.tabled import TABLE, Tabled
from hpcmm.operations.three_fp16 import ThreeFp16
from hpcmm.operations.trials import Fastest

SIXTEEN_BIT = ("float16", "bfloat16")
EIGHT_BIT = ("int8", "float8_e4m3")
TO_FLOAT32 = tuple(f"{dtype}_to_float32" for dtype in SIXTEEN_BIT)
EVERY = ("float32", "float64", *SIXTEEN_BIT)
TRANSPOSED_ROW = 16  # bytes: rows of a transposed matrix of 8-bit elements begin at multiples of it
LIBRARY_WORKSPACE = 32 << 20  # bytes for cuBLASLt, as cuBLAS takes on Hopper
OF_CUBLASLT = {"library": Workspace((LIBRARY_WORKSPACE,), "uint8")}


class Gemm(NamedTuple):
    """Row-major C = alpha A B + beta C, as a library takes it."""

    dtype: str
    alpha: float
    a: Any
    b: Any
    beta: float
    c: Any


def blas(backend: Any, task: Task, arrays: Mapping[str, Any], call: str = "gemm") -> Callable[[], Any]:
    """Bind one call of a library by a function of the device."""
    alpha, beta = task.scalars["alpha"], task.scalars["beta"]
    return getattr(backend, call)(Gemm(task.dtype, alpha, arrays["A"], arrays["B"], beta, arrays["C"]))


def workspace_of_blas(task: Task) -> dict[str, Workspace]:
    """Return the transpose of B in 8-bit types; in float8_e4m3 also the workspace of cuBLASLt, which multiplies then.

    In int8, cuBLAS is up to ten times as slow without it. In float8_e4m3, cuBLASLt needs it.
    """
    _, n, k = task.shape
    if task.dtype not in EIGHT_BIT:
        return {}
    transpose = {"transpose": Workspace((n, rounded_up(k, TRANSPOSED_ROW)), task.element.storage.name)}
    return transpose | ({} if task.dtype == "int8" else OF_CUBLASLT)


def workspace_of_fastest(task: Task) -> dict[str, Workspace]:
    """Return the workspace of ``blas``, that of the library, and the result of its trials."""
    m, n, _ = task.shape
    results = task.element.results.storage.name
    return workspace_of_blas(task) | OF_CUBLASLT | {"trial": Workspace((m, n), results)}


def emulation_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Return the bytes of the workspace of an emulated product.

    In float64 it is the bound in the documentation of cuBLAS ("Fixed-Point Workspace Requirements") for dynamic
    mantissa control and at most 79 bits: slices of A and B in int8, int32 sums of the slices, and 128 MiB.
    """
    if dtype != "float64":
        return LIBRARY_WORKSPACE
    m, n, k = shape
    slices, blocks = -(-(79 + 1) // 8), -(-k // 64)
    rows, columns, terms = rounded_up(m, 1024), rounded_up(n, 1024), rounded_up(k, 128)
    sliced = (rows + columns) * (terms * slices + 4)
    summed = min(4 * rows * columns * slices, 1 << 32) * -(-k // 8192)
    precision = 4 * (m * blocks + n * blocks + m * n)
    return max(sliced + summed, precision) * 5 // 4 + (128 << 20)


def workspace_of_emulation(task: Task) -> dict[str, Workspace]:
    return {"library": Workspace((emulation_bytes(task.dtype, task.shape),), "uint8")}


# Launches that a head cannot describe: their tiles depend on the shape, or there are several
BEFORE = {"three_fp16": ThreeFp16}
LAUNCHES = {
    **{
        name: BEFORE.get(name, Tabled).of(record)
        if "tiles" in record
        else {dtype: Tabled.of(each) for dtype, each in record.items()}
        for name, record in TABLE.items()
    },
    "amx_blocked": Packed(),
    "amx": Packed(),
    "int8_slices": Packed(3, scaled=True),
    "int8_residues": PackedResidues(14),
    "strassen_1": Strassen(1),
    "strassen_2": Strassen(2),
    "strassen_3": Strassen(3),
    "ozaki_14": Residues(14),
    "ozaki_15": Residues(15),
}

OF_LIBRARIES = blas, workspace_of_blas, workspace_of_fastest, workspace_of_emulation
LADDER = ladder("matmul", ("float32", "float64"), *OF_LIBRARIES, geometry=Tiled, launches=LAUNCHES, picks=Fastest)
