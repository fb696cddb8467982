"""Calls of NumPy's BLAS, bound to their arrays: the baseline of a product."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from hpcmm.backends.cpu import memory
from hpcmm.dtypes import DTYPES, DType
from hpcmm.model import untimed

ROW_MAJOR, NO_TRANSPOSE = 101, 111  # CBLAS_LAYOUT, CBLAS_TRANSPOSE
TYPES = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}
# Symbols of cblas_?gemm whose integers certainly have 64 bits: NumPy's wheels, other builds of OpenBLAS, MKL.
WIDE_SYMBOLS = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_", "cblas_{}gemm_64")
NARROW_SYMBOLS = ("scipy_cblas_{}gemm", "cblas_{}gemm")


@dataclass(frozen=True)
class Gemm:
    """A ``cblas_?gemm`` of a loaded library: its symbol, the library, and the type of its integers."""

    symbol: str
    library: str
    integer: Any
    function: Any


def blas_libraries() -> list[dict[str, Any]]:
    """Return the records of threadpoolctl about the loaded BLAS libraries, NumPy's own first."""
    found = [each for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"]
    return sorted(found, key=lambda each: "numpy" not in each["filepath"])


@functools.cache
def find_gemm(dtype: str) -> Gemm | None:
    """Return the ``cblas_?gemm`` of NumPy's BLAS; None if it has none with integers of known size."""
    if dtype not in TYPES:
        return None
    letter = TYPES[dtype][0]
    for about in blas_libraries():
        library = ctypes.CDLL(about["filepath"])
        symbols = [(each, ctypes.c_int64) for each in WIDE_SYMBOLS]
        if about["internal_api"] == "openblas" and (integer := openblas_integer(library)):
            symbols += [(each, integer) for each in NARROW_SYMBOLS]
        for pattern, integer in symbols:
            if function := getattr(library, symbol := pattern.format(letter), None):
                name = f"{about['internal_api']} {about['version']}, {Path(about['filepath']).name}"
                return Gemm(symbol, name, integer, function)
    return None


def openblas_integer(library: ctypes.CDLL) -> Any:
    """Return the type of OpenBLAS's integers where the names of its symbols do not show it; None if unknown."""
    for name in ("scipy_openblas_get_config", "openblas_get_config"):
        if config := getattr(library, name, None):
            config.restype = ctypes.c_char_p
            return ctypes.c_int64 if b"USE64BITINT" in config() else ctypes.c_int
    return None


def gemm(dtype: str, alpha: float, a: np.ndarray, b: np.ndarray, beta: float, c: np.ndarray) -> Callable[[], Any]:
    """Bind row-major C = alpha A B + beta C in one call of BLAS.

    If the BLAS offers no such call, NumPy's product and passes over C replace it. A product with sums in a wider
    type is computed in that type, and its result is rounded once.
    """
    if DTYPES[dtype].accumulator:
        return widened(DTYPES[dtype], alpha, a, b, beta, c)
    (m, k), n = a.shape, b.shape[1]
    found = find_gemm(dtype)
    if found is None:
        return product_and_passes(alpha, a, b, beta, c)
    real, integer = TYPES[dtype][1], found.integer

    def of(x: np.ndarray) -> tuple[Any, Any]:
        return ctypes.c_void_p(x.ctypes.data), integer(max(1, x.strides[0] // x.itemsize if len(x) > 1 else x.shape[1]))

    arguments = (
        *(ctypes.c_int(ROW_MAJOR), ctypes.c_int(NO_TRANSPOSE), ctypes.c_int(NO_TRANSPOSE)),
        *(integer(m), integer(n), integer(k)),
        *(real(alpha), *of(a), *of(b), real(beta), *of(c)),
    )
    call = found.function
    call.restype = None

    def run():
        call(*arguments)
        return a, b, c  # held as long as the callable: BLAS gets bare addresses

    return run


def widened(
    element: DType, alpha: float, a: np.ndarray, b: np.ndarray, beta: float, c: np.ndarray
) -> Callable[[], None]:
    """Bind C = alpha A B + beta C in the type of the sums: each run converts A, B and C, and rounds the result."""
    wide = [memory.empty(x.shape, element.sums.storage) for x in (a, b, c)]
    run_wide = gemm(element.accumulator, alpha, wide[0], wide[1], beta, wide[2])

    def run() -> None:
        for x, target in zip((a, b, c) if beta else (a, b), wide, strict=False):
            target[...] = element.numbers(x)
        run_wide()
        c[...] = element.stored(wide[2])

    return run


def product_and_passes(alpha: float, a: np.ndarray, b: np.ndarray, beta: float, c: np.ndarray) -> Callable[[], None]:
    """Bind row-major C = alpha A B + beta C in NumPy, with a buffer for the product: NumPy has no beta."""
    alpha, beta = c.dtype.type(alpha), c.dtype.type(beta)
    product = memory.empty(c.shape, c.dtype)

    def run() -> None:
        np.matmul(a, b, out=product)
        np.multiply(product, alpha, out=product)
        if beta == 0:
            c[...] = product
        else:
            np.multiply(c, beta, out=c)
            np.add(c, product, out=c)

    return run


@untimed
def describe() -> dict[str, Any]:
    """Return the provenance of NumPy's BLAS."""
    about = [
        f"{each['internal_api']} {each['version']} ({each.get('architecture', 'unknown')})" for each in blas_libraries()
    ]
    calls = {dtype: find_gemm(dtype) for dtype in TYPES}
    gemms = {
        dtype: f"{each.symbol} of {each.library}" if each else "numpy.matmul and passes"
        for dtype, each in calls.items()
    }
    return {"blas": ", ".join(about), "gemm": gemms}
