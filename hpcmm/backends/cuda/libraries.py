"""Baselines: calls of NVIDIA's libraries through CuPy, bound to their arrays."""

import functools
import math
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from cupy.cuda import cub
from cupy_backends.cuda.libs import cublas

from hpcmm.backends.cuda import cublaslt
from hpcmm.model import DeviceError
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.launch import Run
from hpcmm.operations import turns
from hpcmm.operations.matmul_ladder import Gemm

GEMM = {"float32": cublas.sgemm, "float64": cublas.dgemm}
# For cublasGemmEx: cudaDataType of elements and of results, and cublasComputeType_t
GEMM_EX = {
    "float16": (2, 2, cublas.CUBLAS_COMPUTE_32F),  # CUDA_R_16F
    "bfloat16": (14, 14, cublas.CUBLAS_COMPUTE_32F),  # CUDA_R_16BF
    "float16_to_float32": (2, 0, cublas.CUBLAS_COMPUTE_32F),
    "bfloat16_to_float32": (14, 0, cublas.CUBLAS_COMPUTE_32F),
    "int8": (3, 10, cublas.CUBLAS_COMPUTE_32I),  # CUDA_R_8I, CUDA_R_32I
    "tf32": (0, 0, cublas.CUBLAS_COMPUTE_32F_FAST_TF32),  # CUDA_R_32F
}
# CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: by default cuBLAS may round the parts of a divided sum to the type
# of C, which is another arithmetic, with errors beyond the bound
UNROUNDED_SUMS = 16


def gemm(product: Gemm, kinds: tuple[int, int, int] | None = None) -> Callable[[], Any]:
    """Bind a product, as cuBLAS's column-major C' = alpha B' A' + beta C'.

    In int8, B is transposed first, because cuBLAS then multiplies up to ten times as fast. cuBLAS itself has no product
    in float8_e4m3; cuBLASLt, a part of it, then multiplies by the first algorithm that it proposes. ``kinds`` is an
    entry of ``GEMM_EX``, by default that of ``dtype``.
    """
    dtype, alpha, a, b, beta, c = product
    (m, k), n = a.shape, b.shape[1]
    if m == 0:
        return lambda: None
    if dtype == "float8_e4m3":
        return proposed(cublaslt.Product(cupy.cuda.device.get_cublas_handle(), product), 0)
    scalars = np.array([alpha, beta], DTYPES[dtype].sums.storage)
    at = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    handle = cupy.cuda.device.get_cublas_handle()
    transposition, operation = None, cublas.CUBLAS_OP_N
    if dtype == "int8" and cublaslt.can_transpose(a, b, c):
        transposition, operation = cublaslt.Transposition(handle, b), cublas.CUBLAS_OP_T
        b = transposition.result
    pointers = [array.data.ptr for array in (a, b, c)]
    lda, ldb, ldc = (array.strides[0] // array.itemsize for array in (a, b, c))
    sizes = handle, operation, cublas.CUBLAS_OP_N, n, m, k
    kinds = kinds or GEMM_EX.get(dtype)

    def run():
        if transposition:
            transposition.run()
        if kinds:
            kind, result, sums = kinds
            cublas.setMathMode(handle, UNROUNDED_SUMS)  # each time, as calls of CuPy reset it
            cublas.gemmEx(
                *(*sizes, at[0], pointers[1], kind, ldb, pointers[0], kind, lda, at[1], pointers[2], result, ldc),
                *(sums, cublas.CUBLAS_GEMM_DEFAULT),
            )
        else:
            GEMM[dtype](*sizes, at[0], pointers[1], ldb, pointers[0], lda, at[1], pointers[2], ldc)
        return scalars, a, b, c  # keeps them alive with the callable: cuBLAS gets bare addresses

    return run


def gemm_tf32(product: Gemm) -> Callable[[], Any]:
    """Bind the same product with float32 inputs rounded to TF32, on tensor cores."""
    return gemm(product, GEMM_EX["tf32"])


def gemm_fastest(seconds: Callable[[Callable[[], Any]], float], product: Gemm) -> Run:
    """Bind the product by the fastest of the algorithms that cuBLASLt proposes for it, as ``turns`` finds it."""
    if 0 in (*product.a.shape, *product.b.shape):
        return Run(gemm(product))  # cuBLASLt knows no empty matrices
    bound, c = cublaslt.Product(cupy.cuda.device.get_cublas_handle(), product), product.c
    scratch = cupy.empty((c.shape[0], c.strides[0] // c.itemsize), c.dtype)  # rows as far apart as those of C
    runs = [functools.partial(bound.run, proposal, scratch) for proposal in bound.proposals]
    return proposed(bound, turns.fastest(lambda number: seconds(runs[number]), len(runs)))


def proposed(product: cublaslt.Product, number: int) -> Run:
    chosen = product.proposals[number]
    choice = f"{cublaslt.name_of(chosen)}: proposal {number + 1} of {len(product.proposals)}"
    return Run(functools.partial(product.run, chosen), choice=choice)


def reduction(combination: str, x: cupy.ndarray, result: cupy.ndarray) -> Callable[[], None]:
    """Bind CUB's device-wide reduction, including the allocation of its workspace and the copy of its result.

    CUB is called by name: ``cupy.sum`` may be configured not to use it, and ``cupy.min`` fails if CUB writes to
    ``out``.
    """
    operator = {"sum": cub.CUPY_CUB_SUM, "minimum": cub.CUPY_CUB_MIN, "maximum": cub.CUPY_CUB_MAX}[combination]

    def run():
        if cub.cub_reduction(x, operator, dtype=x.dtype, out=result) is None:
            raise DeviceError(f"CuPy {cupy.__version__} cannot compute the {combination} of {x.dtype} with CUB")

    return run


def addition(x: cupy.ndarray, y: cupy.ndarray, z: cupy.ndarray) -> Callable[[], None]:
    return lambda: cupy.add(x, y, out=z)


def geam(x: cupy.ndarray, y: cupy.ndarray, z: cupy.ndarray) -> Callable[[], Any]:
    """Bind cuBLAS's sum of two matrices: the vectors in columns of equal length, as square as their length allows.

    With one column the sum takes eight times as long as CuPy's (measured on an H200).
    """
    if x.size == 0:
        return lambda: None
    call = {"float32": cublas.sgeam, "float64": cublas.dgeam}[z.dtype.name]
    one = np.ones(1, z.dtype)
    columns = next(each for each in range(math.isqrt(x.size), 0, -1) if x.size % each == 0)
    rows = x.size // columns
    handle = cupy.cuda.device.get_cublas_handle()

    def run():
        call(
            *(handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, rows, columns),
            *(one.ctypes.data, x.data.ptr, rows, one.ctypes.data, y.data.ptr, rows, z.data.ptr, rows),
        )

    return run
