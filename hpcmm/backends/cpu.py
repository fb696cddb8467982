"""The CPU: C kernels that the package's build compiled, and NumPy as the baseline."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.metadata
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from hpcmm import kernels
from hpcmm.backends import DeviceError
from hpcmm.model import Operation, Variant
from hpcmm.operations import OPERATIONS
from hpcmm.operations.reduction import identity

CTYPES = {
    np.dtype("int32"): ctypes.c_int,
    np.dtype("uint64"): ctypes.c_size_t,
    np.dtype("float32"): ctypes.c_float,
    np.dtype("float64"): ctypes.c_double,
}


def load(name: str, source: Path) -> ctypes.CDLL:
    """Load the module ``kernels/<name>.so`` and refuse one that an older source was compiled into."""
    path = Path(importlib.metadata.distribution("hpcmm").locate_file(f"hpcmm/kernels/{name}.so"))
    if not path.exists():
        raise DeviceError(f"{source.name} is not compiled ({path} is missing): run `make setup` or `pip install -e .`")
    try:
        module = ctypes.CDLL(str(path))
    except OSError as error:  # as when it calls a function that is nowhere
        raise DeviceError(f"{source.name} cannot be loaded: {error}") from error
    built = (ctypes.c_char * 64).in_dll(module, "source_sha256").value.decode()
    if built != hashlib.sha256(source.read_bytes()).hexdigest():
        raise DeviceError(f"{source.name} changed since it was compiled: run `make setup` or `pip install -e .`")
    return module


def as_argument(value: Any):
    """Return an array's address, or a NumPy scalar as ctypes hands it over."""
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return CTYPES[value.dtype](value)


def blas_matmul(shape, dtype, parameters, arrays) -> Callable[[], None]:
    """C = alpha A B + beta C in NumPy, the product into a buffer of its own as NumPy has no beta."""
    real = np.dtype(dtype).type
    a, b, c, alpha, beta = *(arrays[name] for name in "ABC"), real(parameters["alpha"]), real(parameters["beta"])
    product = np.empty_like(c)

    def run():
        np.matmul(a, b, out=product)
        np.multiply(product, alpha, out=product)
        if beta == 0:
            c[...] = product
        else:
            np.multiply(c, beta, out=c)
            np.add(c, product, out=c)

    return run


def numpy_reduction(ufunc: np.ufunc, combination: str, shape, dtype, parameters, arrays) -> Callable[[], None]:
    initial = identity(combination, dtype)
    return lambda: ufunc.reduce(arrays["x"], dtype=dtype, out=arrays["result"], initial=initial)


def numpy_add(shape, dtype, parameters, arrays) -> Callable[[], None]:
    return lambda: np.add(arrays["x"], arrays["y"], out=arrays["z"])


BASELINES = {
    ("matmul", "numpy"): blas_matmul,
    ("sum", "numpy"): functools.partial(numpy_reduction, np.add, "sum"),
    ("minimum", "numpy"): functools.partial(numpy_reduction, np.minimum, "minimum"),
    ("maximum", "numpy"): functools.partial(numpy_reduction, np.maximum, "maximum"),
    ("vector_add", "numpy"): numpy_add,
}


def simd_paths() -> dict[str, str]:
    """Which instructions each kernel that chooses them at run time takes here: those that export ``path``."""
    found = {}
    for operation in OPERATIONS.values():
        for variant in operation.ladder:
            if variant.device == "cpu" and not variant.baseline:
                name = f"{operation.name}/{variant.name}"
                try:
                    module = load(f"{name}-{operation.dtypes[0]}", kernels.source(operation.kernels, variant))
                except DeviceError:
                    continue  # a stale kernel stops its own batch only
                if hasattr(module, "path"):
                    module.path.restype = ctypes.c_char_p
                    found[name] = module.path().decode()
    return found


class CpuBackend:
    """Kernels on the host: its memory is the host's, so nothing is uploaded or downloaded."""

    in_host_memory = True
    capability = ""

    def __init__(self, threads: int):
        self.threads = threads
        self._evict = load("evict", kernels.FOLDER / "evict.c").evict
        self._evict.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        threadpoolctl.threadpool_limits(threads)

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return np.empty(shape, dtype)

    def host_empty(self, shape: tuple[int, ...], dtype: str, pinned: bool) -> np.ndarray:
        """Return host memory; nothing is copied to a device, so ``pinned`` makes no difference."""
        return np.empty(shape, dtype)

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        np.copyto(target, source)

    # What overlaps on a GPU is done at once on a CPU: its only stream is the host's own course, and a
    # mark in it is the time.

    def stream(self) -> None:
        return None

    def mark(self, stream: None = None) -> float:
        return time.perf_counter()

    def wait(self, mark: float, stream: None = None) -> None:
        """What the mark stands for is done."""

    def finish(self, mark: float) -> None:
        """What the mark stands for is done."""

    def elapsed(self, first: float, last: float) -> float:
        return last - first

    def copy_async(self, source: np.ndarray, target: np.ndarray, stream: None) -> None:
        np.copyto(target, source)

    def shared_empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return np.empty(shape, dtype)

    def register(self, array: np.ndarray) -> None:
        """Nothing is copied to a device."""

    def unregister(self, array: np.ndarray) -> None:
        """Nothing was registered."""

    def synchronize(self) -> None:
        """Nothing runs but the host."""

    def prepare(
        self,
        operation: Operation,
        variant: Variant,
        shape: tuple[int, ...],
        dtype: str,
        parameters: Mapping[str, float],
        arrays: Mapping[str, np.ndarray],
    ) -> Callable[[], None]:
        """Return what runs the variant once on ``arrays``."""
        if variant.baseline:
            return BASELINES[operation.name, variant.name](shape, dtype, parameters, arrays)
        module = load(f"{operation.name}/{variant.name}-{dtype}", kernels.source(operation.kernels, variant))
        kernel = getattr(module, operation.kernels, None)
        if kernel is None:
            raise DeviceError(f"{variant.name}.c has no function {operation.kernels}")
        kernel.restype = None
        arguments = [as_argument(value) for value in operation.arguments(shape, dtype, parameters, arrays)]
        arguments.append(ctypes.c_int(self.threads))
        kept = dict(arrays)  # the arguments are bare addresses: whoever holds the callable holds the arrays

        def run():
            kernel(*arguments)
            return kept

        return run

    def resources(self, *_) -> dict[str, float]:
        """Nothing that limits a kernel's threads is to be asked of a CPU."""
        return {}

    def seconds(self, run: Callable[[], None]) -> float:
        """Run once and return the time."""
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def seconds_alone(
        self, run: Callable[[], None], cold: bool, arrays: Mapping[str, np.ndarray], lead: int = 1
    ) -> float:
        """Time one run on data in place, dropped from the caches first if ``cold``."""
        if cold:
            for array in arrays.values():
                if not self._evict(array.ctypes.data, array.nbytes):
                    raise DeviceError("this processor cannot empty its caches from a program: set cache: hot")
        return self.seconds(run)

    def state(self) -> dict[str, float]:
        return {}

    def release(self) -> None:
        """Nothing is kept between points."""

    def describe(self) -> dict[str, Any]:
        """What provenance says of the CPU."""
        libraries = [
            f"{each['internal_api']} {each['version']} ({each.get('architecture', 'unknown')})"
            for each in threadpoolctl.threadpool_info()
            if each["user_api"] == "blas"
        ]
        return {"cpu": {"threads_per_rank": self.threads, "blas": ", ".join(libraries), "simd": simd_paths()}}
