"""cuBLASLt through ctypes: products by the algorithms that its heuristics propose, and transposition of 8-bit matrices.

CuPy has no binding for it.
"""

import ctypes
import functools
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import cupy
import numpy as np
from cuda.pathfinder import load_nvidia_dynamic_lib

from hpcmm.model import DeviceError
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations.blocks import rounded_up
from hpcmm.operations.matmul_ladder import LIBRARY_WORKSPACE, TRANSPOSED_ROW, Gemm

REQUESTED = 8  # proposals of the heuristics
ALIGNMENT = 256  # of addresses, which heuristics assume by default
LARGE = 1 << 21  # elements of a matrix from which cuBLASLt transposes faster than CuPy, on an H200
# Values of enumerations in cublas_api.h, library_types.h and cublasLt.h
COMPUTE = {"float32": 68, "float64": 70, "int32": 72}  # CUBLAS_COMPUTE_32F, _64F, _32I, by the type of sums
# CUDA_R_32F, _64F, _16F, _8I, _32I, _16BF, _8F_E4M3
REAL = {"float32": 0, "float64": 1, "float16": 2, "int8": 3, "int32": 10, "bfloat16": 14, "float8_e4m3": 28}
# cublasLtMatmulPreferenceAttributes_t; the alignments are of A, B, C and D
MAX_WORKSPACE_BYTES, REDUCTION_SCHEMES, MIN_ALIGNMENT = 1, 3, (5, 6, 7, 8)
IN_COMPUTE_TYPE = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
TRANSPOSE, TRANSA = 1, {"cublasLtMatmulDesc": 3, "cublasLtMatrixTransformDesc": 2}  # CUBLAS_OP_T; its attribute
ALGORITHM = {"algorithm": 0, "tile": 1, "split": 2, "stages": 6}  # cublasLtMatmulAlgoConfigAttributes_t


class Algorithm(ctypes.Structure):
    """An opaque ``cublasLtMatmulAlgo_t``."""

    _fields_ = (("data", c_uint64 * 8),)


class Proposal(ctypes.Structure):
    """A ``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


SIGNATURES = {
    "cublasLtMatmulDescCreate": (POINTER(c_void_p), c_int, c_int),
    "cublasLtMatrixLayoutCreate": (POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatmulPreferenceCreate": (POINTER(c_void_p),),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, POINTER(Proposal), POINTER(c_int)),
    "cublasLtMatmulAlgoConfigGetAttribute": (POINTER(Algorithm), c_int, c_void_p, c_size_t, POINTER(c_size_t)),
    "cublasLtMatmul": (*(c_void_p,) * 12, POINTER(Algorithm), c_void_p, c_size_t, c_void_p),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixTransformDescCreate": (POINTER(c_void_p), c_int),
    "cublasLtMatrixTransformDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixTransform": (c_void_p,) * 11,
    "cublasLtMatrixTransformDescDestroy": (c_void_p,),
}


@functools.cache
def library() -> ctypes.CDLL:
    """Return the cuBLASLt that CuPy's cuBLAS uses."""
    found = ctypes.CDLL(load_nvidia_dynamic_lib("cublasLt").abs_path)
    for name, types in SIGNATURES.items():
        getattr(found, name).argtypes, getattr(found, name).restype = types, c_int
    return found


def version() -> int:
    """Return the version of cuBLASLt, which is that of cuBLAS; cuBLAS itself needs a handle for it."""
    read = library().cublasLtGetVersion
    read.argtypes, read.restype = (), c_size_t
    return read()


def call(name: str, *arguments: Any) -> None:
    status = getattr(library(), name)(*arguments)
    if status:
        raise DeviceError(f"{name} failed with status {status} of cublasStatus_t")


class Descriptors:
    """Owner of cuBLASLt's descriptors, which it destroys at its end."""

    def __init__(self):
        self.destroyers: list[tuple[str, c_void_p]] = []

    def _created(self, kind: str, *arguments: int) -> c_void_p:
        created = c_void_p()
        call(f"{kind}Create", byref(created), *arguments)
        self.destroyers.append((f"{kind}Destroy", created))
        return created

    def _layout(self, dtype: str, array: cupy.ndarray) -> c_void_p:
        """Return the layout of a row-major matrix, as the column-major layout of its transpose."""
        rows, columns = array.shape
        return self._created("cublasLtMatrixLayout", REAL[dtype], columns, rows, array.strides[0] // array.itemsize)

    def _transposing(self, kind: str, *arguments: int) -> c_void_p:
        """Return a description of an operation that transposes its first matrix."""
        description, value = self._created(kind, *arguments), c_int(TRANSPOSE)
        call(f"{kind}SetAttribute", description, TRANSA[kind], byref(value), ctypes.sizeof(value))
        return description

    def __del__(self):
        for name, created in self.destroyers:
            getattr(library(), name)(created)


class Transposition(Descriptors):
    """The transpose of a matrix of 8-bit elements, by cuBLASLt, or by CuPy if the matrix is small."""

    def __init__(self, handle: int, b: cupy.ndarray):
        super().__init__()
        k, n = b.shape
        self.handle, self.source = handle, b
        # The transpose; its rows are padded to a multiple of ``TRANSPOSED_ROW`` bytes
        self.result = cupy.empty((n, rounded_up(k, TRANSPOSED_ROW)), b.dtype)[:, :k]
        self.scalars = np.array([1, 0], np.float32)
        self.description = self._transposing("cublasLtMatrixTransformDesc", REAL["float32"])
        self.layouts = [self._layout("int8", array) for array in (b, self.result)]

    def run(self) -> None:
        if self.source.size < LARGE:
            cupy.copyto(self.result, self.source.T)
            return
        at = self.scalars.ctypes.data
        source, result = self.layouts
        call(
            "cublasLtMatrixTransform",
            *(self.handle, self.description, at, self.source.data.ptr, source, at + self.scalars.itemsize, None, None),
            *(self.result.data.ptr, result, cupy.cuda.get_current_stream().ptr),
        )


def can_transpose(a: cupy.ndarray, b: cupy.ndarray, c: cupy.ndarray) -> bool:
    """Return whether cuBLAS multiplies int8 matrices if B has been transposed; its documentation has the conditions."""
    k, n = b.shape
    steps = (array.strides[0] // array.itemsize for array in (a, c))
    return k > 0 and all(each % 4 == 0 for each in (n, k, *steps, a.data.ptr, c.data.ptr))


def refuse_float8(a: cupy.ndarray, b: cupy.ndarray, c: cupy.ndarray) -> None:
    """Raise an error if cuBLASLt cannot multiply matrices of float8_e4m3.

    It takes rows of A, of the transpose of B and of C that begin at multiples of 16 bytes and have a multiple of 16
    bytes.
    """
    k, n = b.shape
    places = (place for array in (a, c) for place in (array.data.ptr, array.strides[0]))
    if 0 in b.shape or k % 16 or n % 4 or any(place % 16 for place in places):
        raise DeviceError(
            f"cuBLASLt cannot multiply {a.shape[0]}x{n}x{k} in float8_e4m3; allowed: k that is a multiple of 16, n of "
            "4, and rows of A and C that begin at multiples of 16 bytes"
        )


class Product(Descriptors):
    """Row-major C = alpha A B + beta C, as cuBLASLt's column-major C' = alpha B' A' + beta C'."""

    def __init__(self, handle: int, product: Gemm):
        super().__init__()
        dtype, alpha, a, b, beta, c = product
        if dtype == "float8_e4m3":
            refuse_float8(a, b, c)
        sums = DTYPES[dtype].sums
        transposes = dtype == "float8_e4m3" or (dtype == "int8" and can_transpose(a, b, c))
        self.transposition = Transposition(handle, b) if transposes else None  # the transposition of B
        b = self.transposition.result if self.transposition else b
        self.handle, self.arrays = handle, (a, b, c)
        self.scalars = np.array([alpha, beta], sums.storage)
        self.workspace = cupy.empty(LIBRARY_WORKSPACE, np.uint8)
        describe = self._transposing if self.transposition else self._created
        self.description = describe("cublasLtMatmulDesc", COMPUTE[sums.name], REAL[sums.name])
        types = DTYPES[dtype].stem, DTYPES[dtype].stem, DTYPES[dtype].results.name
        self.layouts = [self._layout(*each) for each in zip(types, (b, a, c), strict=True)]
        self.rounds = types[-1] != sums.name
        self.proposals = self._proposals()  # the proposals of the heuristics, the best one first; there is at least one
        if not self.proposals:
            sizes = *c.shape, a.shape[1]
            raise DeviceError(f"cuBLASLt proposes no algorithm for {'x'.join(map(str, sizes))} in {dtype}")

    def _proposals(self) -> list[Proposal]:
        preference = self._created("cublasLtMatmulPreference")
        a, b, c = self.arrays
        limits = {MAX_WORKSPACE_BYTES: c_uint64(LIBRARY_WORKSPACE)}
        if self.rounds:  # the other schemes of split-k round the parts of a sum to the type of C
            limits[REDUCTION_SCHEMES] = c_uint32(IN_COMPUTE_TYPE)
        for attribute, array in zip(MIN_ALIGNMENT, (b, a, c, c), strict=True):
            limits[attribute] = c_uint32(min(ALIGNMENT, array.data.ptr & -array.data.ptr))
        for attribute, value in limits.items():
            call("cublasLtMatmulPreferenceSetAttribute", preference, attribute, byref(value), ctypes.sizeof(value))
        found, count = (Proposal * REQUESTED)(), c_int()
        b_layout, a_layout, c_layout = self.layouts
        call(
            "cublasLtMatmulAlgoGetHeuristic",
            *(self.handle, self.description, b_layout, a_layout, c_layout, c_layout, preference),
            *(REQUESTED, found, byref(count)),
        )
        return [each for each in found[: count.value] if each.state == 0]

    def run(self, proposal: Proposal, result: cupy.ndarray | None = None) -> None:
        if self.transposition:
            self.transposition.run()
        a, b, c = self.arrays
        at = self.scalars.ctypes.data
        b_layout, a_layout, c_layout = self.layouts
        call(
            "cublasLtMatmul",
            *(self.handle, self.description, at, b.data.ptr, b_layout, a.data.ptr, a_layout),
            *(at + self.scalars.itemsize, c.data.ptr, c_layout, (c if result is None else result).data.ptr, c_layout),
            *(byref(proposal.algorithm), self.workspace.data.ptr, LIBRARY_WORKSPACE),
            cupy.cuda.get_current_stream().ptr,
        )


def name_of(proposal: Proposal) -> str:
    """Return the numbers that identify the algorithm of a proposal: ``"algorithm 66, tile 20, split 1, stages 0"``."""
    found = []
    for name, attribute in ALGORITHM.items():
        value, written = c_uint32(), c_size_t()
        call(
            "cublasLtMatmulAlgoConfigGetAttribute",
            *(byref(proposal.algorithm), attribute, byref(value), ctypes.sizeof(value), byref(written)),
        )
        found.append(f"{name} {value.value}")
    return ", ".join(found)
