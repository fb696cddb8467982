"""The CPU: C kernels, and NumPy with its BLAS as the baseline."""

import contextlib
import ctypes
import functools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import threadpoolctl

from hpcmm import kernels
from hpcmm.backends.base import Backend
from hpcmm.backends.cpu import counters, libraries, memory
from hpcmm.kernels import modules
from hpcmm.kernels.modules import load, module_of
from hpcmm.model import DeviceError, Task, untimed
from hpcmm.model.launch import Run
from hpcmm.operations import OPERATIONS
from hpcmm.operations.matmul_ladder import Gemm
from hpcmm.operations.overwritten import on_copy

# A cold run first reads a buffer of FLUSH times the caches, within limits: reading takes time between repetitions.
FLUSH = 2
FLUSH_BYTES_PER_THREAD, FLUSH_BYTES = 64 << 20, 256 << 20
UNKNOWN_CACHE = 32 << 20
# Least time between two runs: idle threads of the first spin for 0.1 ms, see surroundings. The threads that
# empty the caches sleep at once.
SLEEP_SECONDS = 3e-4


def as_argument(value: Any):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return np.ctypeslib.as_ctypes_type(value.dtype)(value)


@untimed
def simd_paths() -> dict[str, str]:
    """Return the instruction set that each kernel with run-time dispatch, which exports ``path``, chooses here."""
    found = {}
    for operation in OPERATIONS.values():
        for variant in operation.ladder:
            if variant.device == CpuBackend.kind and not variant.library and variant.path is None:
                try:
                    module = module_of(Task(operation, variant, (), operation.dtypes_of(variant)[0]))
                except DeviceError:
                    continue  # a kernel that does not compile fails only in its own batch
                if hasattr(module, "path"):
                    module.path.restype = ctypes.c_char_p
                    found[f"{operation.name}/{variant.name}"] = module.path().decode()
    return found


def cache_sizes() -> dict[int, int]:
    caches = {}
    for cpu in os.sched_getaffinity(0):
        for index in Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            with contextlib.suppress(OSError, ValueError):
                level, size, shared = (
                    (index / name).read_text().strip() for name in ("level", "size", "shared_cpu_list")
                )
                caches[int(level), shared] = int(size.removesuffix("K")) << 10
    found: dict[int, int] = {}
    for (level, _), size in caches.items():
        found[level] = found.get(level, 0) + size
    return found


def flush_bytes(caches: Mapping[int, int], threads: int) -> int:
    """Return the bytes that a cold run reads first: the last level of the caches twice over.

    If that exceeds the limits above, as on a virtual machine that reports the cache of its whole host, even the limit
    would leave the last level as it is. The second level is then read twice over.
    """
    limit = min(FLUSH_BYTES_PER_THREAD * threads, FLUSH_BYTES)
    whole = FLUSH * (caches[max(caches)] if caches else UNKNOWN_CACHE)
    return whole if whole <= limit else min(limit, FLUSH * caches.get(2, limit))


class CpuBackend(Backend):
    kind = "cpu"
    in_host_memory = True

    def __init__(self, threads: int):
        self.threads = threads
        names = "evict", "checksum", "state"
        module, summing, state = (load(name, kernels.FOLDER / f"{name}.c", {}) for name in names)
        self._evict, self._fill_caches, self._checksum = module.evict, module.fill_caches, summing.checksum
        self._restore, self._cpus = state.restore, os.sched_getaffinity(0)
        for function in (self._evict, self._fill_caches, self._checksum):
            function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._fill_caches.restype = self._checksum.restype = ctypes.c_uint64
        self._core_clock = module.core_clock
        self._core_clock.restype = ctypes.c_double
        self.caches = cache_sizes()
        self._flush: np.ndarray | None = None
        threadpoolctl.threadpool_limits(threads)

    empty = shared_empty = staticmethod(memory.empty)
    huge_pages, counted = staticmethod(memory.huge_pages), staticmethod(counters.counted)

    def host_empty(self, shape: tuple[int, ...], dtype: str, pinned: bool) -> np.ndarray:
        return memory.empty(shape, dtype)

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        np.copyto(target, source)

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array

    # There are no streams: work is done when the function that enqueues it returns, and a mark is the time.

    def mark(self, stream: None = None) -> float:
        return time.perf_counter()

    def elapsed(self, first: float, last: float) -> float:
        return last - first

    def copy_async(self, source: np.ndarray, target: np.ndarray, stream: None) -> None:
        np.copyto(target, source)

    def free_bytes(self) -> int:
        return psutil.virtual_memory().available

    # --- baselines of operations

    gemm, gemm_onednn = staticmethod(libraries.gemm), staticmethod(libraries.gemm_onednn)
    why_no_mkl, why_no_onednn = (staticmethod(functools.partial(libraries.why_not, name)) for name in ("mkl", "onednn"))

    def gemm_mkl(self, product: Gemm) -> Callable[[], Any]:
        return libraries.gemm_mkl(self.threads, product)

    def why_no_amx(self, dtype: str) -> str:
        amx = module_of(Task(OPERATIONS["matmul"], OPERATIONS["matmul"].variant("amx"), (), "int8"))
        amx.path.restype = ctypes.c_char_p
        found = amx.path().decode() == "amx"
        return "" if found else "this CPU has no AMX, or the system does not grant it; the kernel would emulate it"

    def prepare(self, task: Task, arrays: Mapping[str, np.ndarray]) -> Run:
        if task.variant.contract and task.variant.contract.overwrites:
            return on_copy(self, task, arrays)
        if task.variant.library:
            return Run.of(task.variant.library(self, task, arrays))
        if task.variant.function:
            return Run(functools.partial(task.variant.function, stream=None, **arrays, **task.scalars))
        kernel = getattr(module_of(task), task.operation.kernels, None)
        if kernel is None:
            source = kernels.source(task.operation, task.variant)
            raise DeviceError(f"{source} has no function {task.operation.kernels}")
        kernel.restype = None
        self.restored()  # libraries that gcc 12 links with -Ofast flush subnormal numbers once they are loaded
        arguments = [as_argument(value) for value in task.operation.arguments(task, arrays)]
        arguments.append(ctypes.c_int(self.threads))
        workspace = {name: self.empty(each.shape, each.dtype) for name, each in task.workspace.items()}
        arguments += map(as_argument, workspace.values())
        kept = {**arrays, **workspace}  # keeps them alive with the callable: the arguments are bare addresses

        def once():
            kernel(*arguments)
            return kept

        left = ""

        def complaint() -> str:
            nonlocal left
            left = left or self.restored()
            return left

        return Run(once, complaint=complaint)

    def restored(self) -> str:
        """Restore the floating-point modes and the CPU affinity of this process; return which of them a kernel changed.

        Other kernels of the process would have other results or times. The text is empty if nothing changed.
        """
        found = self._restore(self.threads)
        said = ["another rounding mode"] * (found & 1) + ["subnormal numbers flushed to zero"] * (found >> 1)
        if os.sched_getaffinity(0) != self._cpus:
            os.sched_setaffinity(0, self._cpus)
            said.append("its thread bound to other CPUs")
        return f"leaves {', '.join(said)}" if said else ""

    def checksum(self, array: np.ndarray) -> int:
        array = np.ascontiguousarray(array)
        return self._checksum(array.ctypes.data, array.nbytes, self.threads)

    def seconds(self, run: Callable[[], None]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def seconds_alone(self, run: Callable[[], Any], cold: bool, arrays: Mapping[str, Any], lead: int = 1) -> float:
        """Time one run on data in place, with empty caches if ``cold``.

        A buffer that is read fills the caches with clean lines, also in the place of the packing buffers of kernels and
        of BLAS. The arrays are then dropped line by line.
        """
        ready = time.perf_counter() + SLEEP_SECONDS
        if cold:
            self.fill_caches()
            for array in arrays.values():
                if not self._evict(array.ctypes.data, array.nbytes, self.threads):
                    raise DeviceError("this processor cannot empty its caches from a program: set cache: hot")
        if (left := ready - time.perf_counter()) > 0:
            time.sleep(left)
        return self.seconds(run)

    def fill_caches(self) -> int:
        """Read the flush buffer with all threads; return the sum of the first bytes of its lines."""
        if self._flush is None:
            self._flush = memory.empty((flush_bytes(self.caches, self.threads),), np.uint8)
            self._flush.fill(1)  # pages that were never written are one page of zeros
        return self._fill_caches(self._flush.ctypes.data, self._flush.nbytes, self.threads)

    @untimed
    def describe(self) -> dict[str, Any]:
        last = self.caches.get(max(self.caches, default=0), 0)
        cache = {"last_level_bytes": last, "flush_bytes": flush_bytes(self.caches, self.threads)}
        about = {"threads_per_rank": self.threads, **libraries.describe(), "simd": simd_paths()}
        about["compiler"] = modules.describe()
        about["core_clock"] = self._core_clock()
        about["events"] = counters.why_unreadable()
        return {"cpu": about | {name: value for name, value in cache.items() if value}}
