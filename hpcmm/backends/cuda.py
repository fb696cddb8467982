"""One NVIDIA GPU: kernels compiled by NVRTC, with cuBLAS, CUB and CuPy as the baselines."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import cupy
import numpy as np
import pynvml
from cupy_backends.cuda.libs import cublas

from hpcmm import kernels
from hpcmm.model import Operation, Variant

C_TYPES = {"int32": "int", "float32": "float", "float64": "double"}
SPIN_NANOSECONDS = 150_000


@functools.cache
def compile_kernel(operation: str, variant: Variant, dtype: str, tile: int | None) -> cupy.RawKernel:
    """Compile a variant's source for one element type and tile width."""
    options = ["--std=c++17", "-lineinfo", f"-DREAL={C_TYPES[dtype]}"]
    if tile is not None:
        options.append(f"-DTILE={tile}")
    if variant.block:
        options.append(f"-DBLOCK={math.prod(variant.block)}")
    options += [f"-D{name}={value}" for name, value in variant.constants.items()]
    module = cupy.RawModule(code=kernels.source(operation, variant).read_text(), options=tuple(options))
    return module.get_function(operation)


def cublas_matmul(shape, dtype, parameters, arrays) -> Callable[[], None]:
    """Row-major C = alpha A B + beta C as cuBLAS's column-major C' = alpha B' A' + beta C'."""
    m, n, k = shape
    if m == 0:
        return lambda: None
    gemm = {"float32": cublas.sgemm, "float64": cublas.dgemm}[dtype]
    scalars = np.array([parameters["alpha"], parameters["beta"]], dtype)
    alpha, beta = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    a, b, c = (arrays[name].data.ptr for name in "ABC")
    handle = cupy.cuda.device.get_cublas_handle()

    def run():
        gemm(handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k, alpha, b, n, a, k, beta, c, n)
        return scalars, arrays  # held as long as the callable: cuBLAS gets bare addresses

    return run


def cub_sum(shape, dtype, parameters, arrays) -> Callable[[], None]:
    """CUB's device-wide sum, which CuPy takes for a whole array summed in its own dtype."""
    return lambda: cupy.sum(arrays["x"], dtype=dtype, out=arrays["total"])


def cupy_add(shape, dtype, parameters, arrays) -> Callable[[], None]:
    """CuPy's own elementwise kernel: no library of the vendor has an addition of whole vectors."""
    return lambda: cupy.add(arrays["x"], arrays["y"], out=arrays["z"])


BASELINES = {
    ("matmul", "cublas"): cublas_matmul,
    ("reduction", "cub"): cub_sum,
    ("vector_add", "cupy"): cupy_add,
}


class CudaBackend:
    """One GPU, its memory and its default stream."""

    in_host_memory = False

    def __init__(self, index: int):
        self.device = cupy.cuda.Device(index)
        self.device.use()
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()
        spin = cupy.RawModule(code=(kernels.FOLDER / "spin.cu").read_text()).get_function("spin")
        self._spin = functools.partial(spin, (1,), (1,), (np.uint64(SPIN_NANOSECONDS),))
        self._flush = cupy.empty(2 * self.device.attributes["L2CacheSize"], np.uint8)
        pynvml.nvmlInit()
        self._nvml = pynvml.nvmlDeviceGetHandleByPciBusId(self.device.pci_bus_id)

    def empty(self, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        return cupy.empty(shape, dtype)

    def host_empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Return page-locked host memory."""
        count, dtype = math.prod(shape), np.dtype(dtype)
        memory = cupy.cuda.alloc_pinned_memory(max(1, count * dtype.itemsize))
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def copy(self, source, target) -> None:
        """Copy host to device, device to host or device to device, and wait for it."""
        if isinstance(target, np.ndarray):
            source.get(out=target, blocking=True)
        elif isinstance(source, np.ndarray):
            target.set(source)
        else:
            cupy.copyto(target, source)
        self.device.synchronize()

    def prepare(
        self,
        operation: Operation,
        variant: Variant,
        shape: tuple[int, ...],
        dtype: str,
        parameters: Mapping[str, float],
        arrays: Mapping[str, cupy.ndarray],
    ) -> Callable[[], None]:
        """Return what enqueues the variant once on ``arrays``, compiled and with its scratch memory."""
        if variant.baseline:
            return BASELINES[operation.name, variant.name](shape, dtype, parameters, arrays)
        tile = int(parameters["tile"]) if "tile" in parameters else None
        kernel = compile_kernel(operation.name, variant, dtype, tile)
        scratch = {name: cupy.empty(length, dtype) for name, length in operation.scratch(variant, shape).items()}
        launches = operation.launches(variant, shape, dtype, parameters, {**arrays, **scratch})
        kernel.max_dynamic_shared_size_bytes = max((launch.shared_bytes for launch in launches), default=0)

        def run():
            for launch in launches:
                kernel(launch.grid, launch.block, launch.arguments, shared_mem=launch.shared_bytes)

        return run

    def seconds(self, run: Callable[[], None]) -> float:
        """Run once and return the time between events around it."""
        self._start.record()
        run()
        self._stop.record()
        self._stop.synchronize()
        return cupy.cuda.get_elapsed_time(self._start, self._stop) * 1e-3

    def seconds_alone(self, run: Callable[[], None], cold: bool, arrays: Mapping[str, cupy.ndarray]) -> float:
        """Time one run on data in place, with the L2 cache overwritten first if ``cold``."""
        if cold:
            self._flush.data.memset_async(0, self._flush.nbytes)
        self._spin()
        return self.seconds(run)

    def state(self) -> dict[str, float]:
        """Clocks, temperature, power and throttle reasons of the GPU now, as far as NVML tells."""
        readings = {
            "sm_clock": lambda: pynvml.nvmlDeviceGetClockInfo(self._nvml, pynvml.NVML_CLOCK_SM) * 1e6,
            "memory_clock": lambda: pynvml.nvmlDeviceGetClockInfo(self._nvml, pynvml.NVML_CLOCK_MEM) * 1e6,
            "temperature": lambda: pynvml.nvmlDeviceGetTemperature(self._nvml, pynvml.NVML_TEMPERATURE_GPU),
            "power": lambda: pynvml.nvmlDeviceGetPowerUsage(self._nvml) * 1e-3,
            "throttle_reasons": lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._nvml),
        }
        state = {}
        for name, read in readings.items():
            try:
                state[name] = float(read())
            except pynvml.NVMLError:
                continue  # a virtual GPU does not tell everything
        return state

    def release(self) -> None:
        """Give the memory of a finished point back to the device."""
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()

    def describe(self) -> dict[str, Any]:
        """What provenance says of the GPU."""
        properties = cupy.cuda.runtime.getDeviceProperties(self.device.id)
        attributes = self.device.attributes
        return {
            "gpu": {
                "name": properties["name"].decode(),
                "uuid": str(pynvml.nvmlDeviceGetUUID(self._nvml)),
                "driver": str(pynvml.nvmlSystemGetDriverVersion()),
                "compute_capability": self.device.compute_capability,
                "multiprocessors": attributes["MultiProcessorCount"],
                "memory_bytes": properties["totalGlobalMem"],
                "l2_bytes": attributes["L2CacheSize"],
                "max_sm_clock": attributes["ClockRate"] * 1e3,
                "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
                "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
                "cublas": cublas.getVersion(cupy.cuda.device.get_cublas_handle()),
                "cupy": cupy.__version__,
                "empty_event_pair_seconds": self.seconds_alone(lambda: None, cold=False, arrays={}),
            }
        }
