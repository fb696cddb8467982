"""Sums of matrices in higher precision, on all cores, each in one pass over its matrix: ``kernels/verify.c``.

Elements are of ``kind`` float64, float32, int32, int8, float16, or bfloat16 and float8_e4m3, which are stored as their
bits. Sums are long double for float64, and float64 for the other kinds.
"""

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from hpcmm import kernels
from hpcmm.kernels import modules
from hpcmm.operations import cores

GROUP = 4  # as in verify.c


def type_of(kind: str) -> type[np.floating]:
    return np.longdouble if kind == "float64" else np.float64


def row_sums(x: np.ndarray, weights: np.ndarray, kind: str) -> np.ndarray:
    """Return ``x @ weights`` for up to four columns of weights."""
    return _weighted(x, weights, kind, square=False)


def row_norms(x: np.ndarray, kind: str, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the 2-norm of each row; with ``weights``, each element is first multiplied by that of its column."""
    squares = np.ones(x.shape[1]) if weights is None else weights**2
    return np.sqrt(_weighted(x, squares[:, None], kind, square=True)[:, 0])


def products(a: np.ndarray, b: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``a @ b`` and, in float64, ``|a| @ |b|`` and ``a**2 @ b**2``, for a few rows ``a`` in float64."""
    b = b if _has_rows(b) or _has_rows(b.T) else np.ascontiguousarray(b)
    (rows, terms), columns = a.shape, b.shape[1]
    padded = -(-rows // GROUP) * GROUP
    factors = np.zeros((terms, padded))
    factors[:, :rows] = a.T
    total = np.empty((columns, padded), type_of(kind))
    magnitudes, squares = np.empty((2, columns, padded))
    sizes = padded, terms, columns, *(stride // b.itemsize for stride in b.strides)
    given, found = _pointers(factors, b), _pointers(total, magnitudes, squares)
    _function("products", kind)(*given, *map(ctypes.c_size_t, sizes), *found, cores.count())
    return total.T[:rows], magnitudes.T[:rows], squares.T[:rows]


def _weighted(x: np.ndarray, weights: np.ndarray, kind: str, square: bool) -> np.ndarray:
    """Return the sums of each row of x, or of its squares, with weights. Neither x nor a transpose is copied."""
    if not _has_rows(x) and not _has_rows(x.T):
        x = np.ascontiguousarray(x)
    name, matrix = ("row_sums", x) if _has_rows(x) else ("column_sums", x.T)
    padded = np.zeros((len(weights), GROUP), type_of(kind))
    padded[:, : weights.shape[1]] = weights
    total = np.empty((len(x), GROUP), padded.dtype)
    sizes = *matrix.shape, matrix.strides[0] // matrix.itemsize
    address, factors, target = _pointers(matrix, padded, total)
    _function(name, kind)(address, *map(ctypes.c_size_t, sizes), factors, int(square), target, cores.count())
    return total[:, : weights.shape[1]]


def _has_rows(x: np.ndarray) -> bool:
    """Return whether the elements of each row lie side by side, and rows follow each other."""
    down, along = x.strides
    return (along == x.itemsize or x.shape[1] == 1) and down >= 0 and down % x.itemsize == 0


def _pointers(*arrays: np.ndarray) -> tuple[ctypes.c_void_p, ...]:
    return tuple(ctypes.c_void_p(array.ctypes.data) for array in arrays)


@functools.cache
def _function(name: str, kind: str) -> Callable[..., None]:
    found = getattr(modules.load("verify", kernels.FOLDER / "verify.c", {}), f"{name}_{kind}")
    found.restype = None
    return found
