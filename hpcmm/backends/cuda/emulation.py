"""Products that cuBLAS emulates, through ctypes: float64 by int8 products, float32 by products of BF16.

CuPy has no binding for the settings of emulation, and each of its calls replaces the workspace of the handle.
"""

import ctypes
import functools
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p
from typing import Any

import cupy
import numpy as np
from cuda.pathfinder import load_nvidia_dynamic_lib

from hpcmm.backends.cuda import cublaslt
from hpcmm.model import DeviceError
from hpcmm.model.launch import Run
from hpcmm.operations.matmul_ladder import Gemm, emulation_bytes

# Values of enumerations in cublas_api.h
COMPUTE = {"float64": 79, "float32": 78}  # CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT, _32F_EMULATED_16BFX9
EAGER = 2  # CUBLAS_EMULATION_STRATEGY_EAGER: wherever it is possible, not only where the library expects a gain
NO_TRANSPOSE, DEFAULT_ALGORITHM = 0, -1
# The function that came with the emulation of each type, and the release
CAME_WITH = {
    "float64": ("cublasSetFixedPointEmulationMantissaBitCountPointer", "13.0 update 2"),
    "float32": ("cublasSetEmulationStrategy", "12.9"),
}
OF_BF16 = ("100", "103")  # compute capabilities on which cuBLAS emulates float32; elsewhere it computes float32
NATIVE = -1  # number of mantissa bits if cuBLAS wrote none

SIGNATURES = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasSetEmulationStrategy": (c_void_p, c_int),
    "cublasSetFixedPointEmulationMantissaBitCountPointer": (c_void_p, c_void_p),
    "cublasGemmEx": (
        *(c_void_p, *(c_int,) * 5, c_void_p),
        *(c_void_p, c_int, c_int) * 2,
        *(c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ),
}


@functools.cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)


def call(name: str, *arguments: Any) -> None:
    function = getattr(library(), name)
    function.argtypes, function.restype = SIGNATURES[name], c_int
    if status := function(*arguments):
        raise DeviceError(f"{name} failed with status {status} of cublasStatus_t")


def why_missing(dtype: str, capability: str) -> str:
    """Return the reason why cuBLAS does not emulate a type on a GPU of a compute capability; empty if it does."""
    function, release = CAME_WITH[dtype]
    if not hasattr(library(), function):
        return f"this cuBLAS ({cublaslt.version()}) does not emulate {dtype}; CUDA {release} or later does"
    if dtype == "float32" and capability not in OF_BF16:
        able = " and ".join(f"{each[:-1]}.{each[-1]}" for each in OF_BF16)
        this = f"{capability[:-1]}.{capability[-1]}"
        return f"cuBLAS emulates float32 only on GPUs of compute capability {able}; this one has {this}"
    return ""


class Product:
    """Row-major C = alpha A B + beta C, emulated, as cuBLAS's column-major C' = alpha B' A' + beta C'.

    It has a handle and a workspace of its own: other products are not emulated, and no run allocates memory.
    """

    def __init__(self, product: Gemm):
        dtype, alpha, a, b, beta, c = product
        (m, k), n = a.shape, b.shape[1]
        self.handle, self.arrays = c_void_p(), (a, b, c)
        self.scalars = np.array([alpha, beta], dtype)
        self.workspace = cupy.empty(emulation_bytes(dtype, (m, n, k)), np.uint8)
        self.bits = cupy.full(1, NATIVE, np.int32)
        call("cublasCreate_v2", byref(self.handle))
        call("cublasSetStream_v2", self.handle, cupy.cuda.get_current_stream().ptr)
        call("cublasSetWorkspace_v2", self.handle, self.workspace.data.ptr, self.workspace.nbytes)
        call("cublasSetEmulationStrategy", self.handle, EAGER)
        if dtype == "float64":
            call("cublasSetFixedPointEmulationMantissaBitCountPointer", self.handle, self.bits.data.ptr)
        kind, at = cublaslt.REAL[dtype], self.scalars.ctypes.data
        of_a, of_b, of_c = ((array.data.ptr, kind, array.strides[0] // array.itemsize) for array in self.arrays)
        self.arguments = (
            *(self.handle, NO_TRANSPOSE, NO_TRANSPOSE, n, m, k, at, *of_b, *of_a),
            *(at + self.scalars.itemsize, *of_c, COMPUTE[dtype], DEFAULT_ALGORITHM),
        )

    def __del__(self):
        if self.handle:
            library().cublasDestroy_v2(self.handle)  # fails without harm if the process ends

    def run(self) -> None:
        call("cublasGemmEx", *self.arguments)

    def complaint(self) -> str:
        """Return that cuBLAS computed the last product in float64 itself; empty if it emulated it.

        It does so if the rows of A or columns of B have numbers so different that 79 mantissa bits are not enough.
        """
        return "" if int(self.bits.get()[0]) > 0 else "cuBLAS did not emulate this product but computed it in float64"


def gemm(product: Gemm) -> Run:
    bound = Product(product)
    return Run(bound.run, complaint=bound.complaint if product.dtype == "float64" else str)
