"""Baselines: calls of NVIDIA's libraries through CuPy, bound to their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from cupy.cuda import cub
from cupy_backends.cuda.libs import cublas

from hpcmm.backends.base import DeviceError
from hpcmm.dtypes import DTYPES

GEMM = {"float32": cublas.sgemm, "float64": cublas.dgemm}
# cudaDataType of 16-bit elements, for cublasGemmEx with sums in float32: CUDA_R_16F, CUDA_R_16BF
GEMM_EX = {"float16": 2, "bfloat16": 14}


def gemm(dtype: str, alpha: float, a: cupy.ndarray, b: cupy.ndarray, beta: float, c: cupy.ndarray) -> Callable[[], Any]:
    """Bind row-major C = alpha A B + beta C, as cuBLAS's column-major C' = alpha B' A' + beta C'."""
    (m, k), n = a.shape, b.shape[1]
    if m == 0:
        return lambda: None
    scalars = np.array([alpha, beta], DTYPES[dtype].sums.storage)
    at = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    pointers = [array.data.ptr for array in (a, b, c)]
    lda, ldb, ldc = (array.strides[0] // array.itemsize for array in (a, b, c))
    handle = cupy.cuda.device.get_cublas_handle()
    sizes = handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k

    def run():
        if kind := GEMM_EX.get(dtype):
            cublas.gemmEx(
                *(*sizes, at[0], pointers[1], kind, ldb, pointers[0], kind, lda, at[1], pointers[2], kind, ldc),
                *(cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT),
            )
        else:
            GEMM[dtype](*sizes, at[0], pointers[1], ldb, pointers[0], lda, at[1], pointers[2], ldc)
        return scalars, a, b, c  # keeps them alive with the callable: cuBLAS gets bare addresses

    return run


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
    """Bind CuPy's elementwise z = x + y."""
    return lambda: cupy.add(x, y, out=z)
