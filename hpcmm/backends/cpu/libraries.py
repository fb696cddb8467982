"""Calls of libraries, bound to their arrays: NumPy's BLAS, the baseline of a product, and MKL and oneDNN beside it."""

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from hpcmm.backends.cpu import memory
from hpcmm.model import DeviceError, untimed
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations.matmul_ladder import Gemm

ROW_MAJOR, NO_TRANSPOSE = 101, 111  # CBLAS_LAYOUT, CBLAS_TRANSPOSE
TYPES = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}
# Symbols of cblas_?gemm whose integers certainly have 64 bits: NumPy's wheels, other builds of OpenBLAS, MKL.
WIDE_SYMBOLS = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_", "cblas_{}gemm_64")
NARROW_SYMBOLS = ("scipy_cblas_{}gemm", "cblas_{}gemm")


@dataclass(frozen=True)
class Call:
    """A ``cblas_?gemm`` of a loaded library: its symbol, the library, and the type of its integers."""

    symbol: str
    library: str
    integer: Any
    function: Any


def blas_libraries() -> list[dict[str, Any]]:
    """Return the records of threadpoolctl about the loaded BLAS libraries, NumPy's own first."""
    libraries = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    return sorted(libraries, key=lambda each: "numpy" not in each["filepath"])


@functools.cache
def find_gemm(dtype: str) -> Call | None:
    """Return the ``cblas_?gemm`` of NumPy's BLAS; None if it has none with integers of known size."""
    if dtype not in TYPES:
        return None
    letter = TYPES[dtype][0]
    for about in blas_libraries():
        library = ctypes.CDLL(about["filepath"])
        symbols = [(symbol, ctypes.c_int64) for symbol in WIDE_SYMBOLS]
        if about["internal_api"] == "openblas" and (integer := openblas_integer(library)):
            symbols += [(symbol, integer) for symbol in NARROW_SYMBOLS]
        for pattern, integer in symbols:
            if function := getattr(library, symbol := pattern.format(letter), None):
                name = f"{about['internal_api']} {about['version']}, {Path(about['filepath']).name}"
                return Call(symbol, name, integer, function)
    return None


def openblas_integer(library: ctypes.CDLL) -> Any:
    """Return the type of OpenBLAS's integers where the names of its symbols do not show it; None if unknown."""
    for name in ("scipy_openblas_get_config", "openblas_get_config"):
        if config := getattr(library, name, None):
            config.restype = ctypes.c_char_p
            return ctypes.c_int64 if b"USE64BITINT" in config() else ctypes.c_int
    return None


def gemm(product: Gemm) -> Callable[[], Any]:
    """Bind a product in one call of BLAS."""
    if DTYPES[product.dtype].accumulator:
        return widened(product)
    if DTYPES[product.dtype].is_integer:
        return of_integers(product)
    if found := find_gemm(product.dtype):
        return bind(found, product)
    raise DeviceError(f"no product of {product.dtype} is known of NumPy's BLAS; install NumPy by pip, with OpenBLAS")


def bind(found: Call, product: Gemm) -> Callable[[], Any]:
    dtype, alpha, a, b, beta, c = product
    (m, k), n = a.shape, b.shape[1]
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


def widened(product: Gemm) -> Callable[[], None]:
    """Bind a product in a wider type: each run converts A, B and C, and rounds the result.

    It is the type of the sums, or float64 for integers, whose sums are exact in it: BLAS has no integers.
    """
    element = DTYPES[product.dtype]
    name = "float64" if element.is_integer else element.accumulator
    a, b, c = (memory.empty(x.shape, name) for x in (product.a, product.b, product.c))
    run_wide = gemm(Gemm(name, product.alpha, a, b, product.beta, c))

    def run() -> None:
        a[...] = element.numbers(product.a)
        b[...] = element.numbers(product.b)
        if product.beta:
            c[...] = element.results.numbers(product.c)
        run_wide()
        product.c[...] = element.results.stored(c)

    return run


def of_integers(product: Gemm) -> Callable[[], None]:
    """Bind a product of integers, of which BLAS has none, in NumPy, with a buffer for A B."""
    c = product.c
    alpha, beta = c.dtype.type(product.alpha), c.dtype.type(product.beta)
    buffer = memory.empty(c.shape, c.dtype)

    def run() -> None:
        np.matmul(product.a, product.b, out=buffer)
        np.multiply(buffer, alpha, out=buffer)
        if beta == 0:
            c[...] = buffer
        else:
            np.multiply(c, beta, out=c)
            np.add(c, buffer, out=c)

    return run


# --- libraries that need not be installed


MKL_GNU_THREADS = 3  # MKL_THREADING_GNU: MKL then shares the threads of our kernels
DNNL_CPU, DNNL_IN_ORDER, DNNL_LINEAR = 1, 1, 0x26  # dnnl_cpu, dnnl_stream_in_order, dnnl_eltwise_linear
DNNL_TYPES = {"bfloat16": 2, "float32": 3, "int32": 4, "int8": 5}  # dnnl_data_type_t
DNNL_SOURCE, DNNL_WEIGHTS, DNNL_RESULT = 1, 33, 17  # DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST
# Libraries that the packages of oneDNN need, which the loader does not search in the folder of a virtual environment
DNNL_NEEDS = ("libtbb.so.12", "libintlc.so.5", "libimf.so", "libsvml.so", "libirng.so", "libsycl.so.*")


def file_of(pattern: str) -> Path | None:
    """Return a shared library of the Python environment or of ``LD_LIBRARY_PATH``; None if there is none."""
    folders = [Path(sys.prefix, "lib"), *map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")))]
    return next((path for folder in folders for path in sorted(folder.glob(pattern))), None)


@functools.cache
def mkl() -> ctypes.CDLL:
    path = file_of("libmkl_rt.so*")
    if path is None:
        raise DeviceError("MKL is not installed: pip install mkl")
    library = ctypes.CDLL(str(path))
    library.MKL_Set_Threading_Layer(MKL_GNU_THREADS)
    return library


def gemm_mkl(threads: int, product: Gemm) -> Callable[[], Any]:
    mkl().MKL_Set_Num_Threads(threads)
    symbol = f"cblas_{TYPES[product.dtype][0]}gemm_64"
    return bind(Call(symbol, "MKL", ctypes.c_int64, getattr(mkl(), symbol)), product)


class Onednn:
    """oneDNN with an engine of the CPU; each function of its C interface returns 0 for success."""

    def __init__(self):
        path = file_of("libdnnl.so.3")
        if path is None:
            raise DeviceError("oneDNN is not installed: pip install onednn-cpu-gomp, or onednn")
        if runtime := file_of("libintelocl.so"):  # the package onednn runs on a CPU by OpenCL
            os.environ.setdefault("OCL_ICD_FILENAMES", str(runtime))
        for needed in filter(None, map(file_of, DNNL_NEEDS)):
            ctypes.CDLL(str(needed), mode=ctypes.RTLD_GLOBAL)
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise DeviceError(f"oneDNN cannot be loaded: {error}") from error
        self.engine = self.new("engine_create", DNNL_CPU, ctypes.c_size_t(0))
        self.stream = self.new("stream_create", self.engine, DNNL_IN_ORDER)

    def call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self.library, f"dnnl_{name}")(*arguments):
            raise DeviceError(f"oneDNN: dnnl_{name} failed with status {status}")

    def new(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self.call(name, ctypes.byref(found), *arguments)
        return found

    def memory(self, x: np.ndarray, dtype: str) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        pair = ctypes.c_int64 * 2
        shape, strides = pair(*x.shape), pair(x.strides[0] // x.itemsize, 1)
        about = self.new("memory_desc_create_with_strides", 2, shape, DNNL_TYPES[dtype], strides)
        return about, self.new("memory_create", about, self.engine, ctypes.c_void_p(x.ctypes.data))


class Argument(ctypes.Structure):
    """``dnnl_exec_arg_t``."""

    _fields_ = (("number", ctypes.c_int), ("memory", ctypes.c_void_p))


onednn = functools.cache(Onednn)


def gemm_onednn(product: Gemm) -> Callable[[], Any]:
    """Bind a product in one matmul of oneDNN, with the scalars as operations behind it."""
    dtype, alpha, a, b, beta, c = product
    dnnl, result = onednn(), DTYPES[dtype].results.name
    bound = [dnnl.memory(x, each) for x, each in ((a, dtype), (b, dtype), (c, result))]
    after, attributes = dnnl.new("post_ops_create"), dnnl.new("primitive_attr_create")
    if alpha != 1:
        dnnl.call("post_ops_append_eltwise", after, DNNL_LINEAR, ctypes.c_float(alpha), ctypes.c_float(0))
    if beta:
        dnnl.call("post_ops_append_sum", after, ctypes.c_float(beta), 0, DNNL_TYPES[result])
    dnnl.call("primitive_attr_set_post_ops", attributes, after)
    about = [pair[0] for pair in bound]
    chosen = dnnl.new("matmul_primitive_desc_create", dnnl.engine, *about[:2], None, about[2], attributes)
    primitive = dnnl.new("primitive_create", chosen)
    numbers = (DNNL_SOURCE, DNNL_WEIGHTS, DNNL_RESULT)
    given = [Argument(number, pair[1].value) for number, pair in zip(numbers, bound, strict=True)]
    arguments = (Argument * 3)(*given)

    def run():
        dnnl.call("primitive_execute", primitive, dnnl.stream, 3, arguments)
        dnnl.call("stream_wait", dnnl.stream)
        return a, b, c

    return run


OPTIONAL = {"mkl": mkl, "onednn": onednn}


def why_not(name: str, dtype: str) -> str:
    try:
        OPTIONAL[name]()
    except DeviceError as error:
        return str(error)
    return ""


@untimed
def describe() -> dict[str, Any]:
    about = [
        f"{library['internal_api']} {library['version']} ({library.get('architecture', 'unknown')})"
        for library in blas_libraries()
    ]
    calls = {dtype: find_gemm(dtype) for dtype in TYPES}
    gemms = {dtype: f"{each.symbol} of {each.library}" if each else "unknown" for dtype, each in calls.items()}
    return {"blas": ", ".join(about), "gemm": gemms}
