"""One NVIDIA GPU: kernels compiled by NVRTC, with cuBLAS, CUB and CuPy as the baselines."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cupy
import cupyx.profiler
import numpy as np
import pynvml
from cupy.cuda import cub, nccl, nvrtc
from cupy_backends.cuda.libs import cublas

from hpcmm import kernels
from hpcmm.backends import DeviceError
from hpcmm.model import Operation, Prepared, Variant
from hpcmm.operations.reduction import identity

C_TYPES = {"int32": "int", "float32": "float", "float64": "double"}
SPIN_NANOSECONDS = 150_000
IPC_BYTES = 2 << 20  # smaller allocations share a block of the driver's, which would be mapped as a whole
os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast over NVLink has wedged drivers; nothing here needs it


@functools.cache
def compile_kernel(folder: str, variant: Variant, macros: tuple[tuple[str, Any], ...]) -> cupy.RawKernel:
    """Compile a variant's source with macros."""
    options = ("--std=c++17", "-lineinfo", *(f"-D{name}={value}" for name, value in macros))
    text = kernels.source(folder, variant).read_text()
    if not variant.architecture.endswith("a"):
        return cupy.RawModule(code=text, options=options).get_function(folder)
    # CuPy compiles for what all GPUs of a compute capability and later ones have
    program = nvrtc.createProgram(text, f"{variant.name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*options, "-ftz=true", f"-arch={variant.architecture}"))
        code = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise DeviceError(f"NVRTC: {error}\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        function = cupy.RawModule(path=file.name).get_function(folder)
        function.compile()  # while the file is there
    return function


class PitchedMemory:
    """Rows of ``width`` bytes in device memory, each from an address that suits the device (cuMemAllocPitch)."""

    driver = ctypes.CDLL("libcuda.so.1")

    def __init__(self, width: int, height: int, itemsize: int):
        pointer, pitch = ctypes.c_uint64(), ctypes.c_size_t()
        error = self.driver.cuMemAllocPitch_v2(
            ctypes.byref(pointer),
            ctypes.byref(pitch),
            ctypes.c_size_t(max(width, 1)),
            ctypes.c_size_t(max(height, 1)),
            ctypes.c_uint(max(itemsize, 4)),
        )
        if error:
            raise DeviceError(f"cuMemAllocPitch of {height} rows of {width} bytes failed with CUDA error {error}")
        self.pointer, self.pitch, self.bytes = pointer.value, pitch.value, pitch.value * max(height, 1)

    def __del__(self):
        if hasattr(self, "pointer"):
            self.driver.cuMemFree_v2(ctypes.c_uint64(self.pointer))


def pitched_empty(shape: tuple[int, int], dtype: str) -> cupy.ndarray:
    """Return a matrix whose rows are padded as the device likes it."""
    rows, columns = shape
    itemsize = np.dtype(dtype).itemsize
    owner = PitchedMemory(columns * itemsize, rows, itemsize)
    memory = cupy.cuda.UnownedMemory(owner.pointer, owner.bytes, owner)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides=(owner.pitch, itemsize))


def copy_rows(source: cupy.ndarray, target: cupy.ndarray) -> None:
    """Copy a matrix from device to device by rows, in the current stream."""
    runtime = cupy.cuda.runtime
    rows, columns = source.shape
    runtime.memcpy2DAsync(
        target.data.ptr,
        target.strides[0],
        source.data.ptr,
        source.strides[0],
        columns * source.itemsize,
        rows,
        runtime.memcpyDeviceToDevice,
        cupy.cuda.get_current_stream().ptr,
    )


def kernel_of(operation: Operation, variant: Variant, dtype: str, parameters: Mapping[str, float]) -> cupy.RawKernel:
    """Return a variant's compiled kernel at a point."""
    macros = {"REAL": C_TYPES[dtype], **operation.macros, **variant.constants_of(dtype)}
    if "tile" in parameters:
        macros["TILE"] = int(parameters["tile"])
    if variant.block:
        macros["BLOCK"] = math.prod(variant.block)
    return compile_kernel(operation.kernels, variant, tuple(macros.items()))


def cublas_matmul(shape, dtype, parameters, arrays) -> Callable[[], None]:
    """Row-major C = alpha A B + beta C as cuBLAS's column-major C' = alpha B' A' + beta C'."""
    m, n, k = shape
    if m == 0:
        return lambda: None
    gemm = {"float32": cublas.sgemm, "float64": cublas.dgemm}[dtype]
    scalars = np.array([parameters["alpha"], parameters["beta"]], dtype)
    alpha, beta = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    a, b, c = (arrays[name].data.ptr for name in "ABC")
    lda, ldb, ldc = (arrays[name].strides[0] // arrays[name].itemsize for name in "ABC")
    handle = cupy.cuda.device.get_cublas_handle()

    def run():
        gemm(handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc)
        return scalars, arrays  # held as long as the callable: cuBLAS gets bare addresses

    return run


def cub_reduction(combination: str, shape, dtype, parameters, arrays) -> Callable[[], None]:
    """CUB's device-wide reduction, with the memory that it needs and a copy of its result.

    It is asked for by name: ``cupy.sum`` may be told to do without CUB, and ``cupy.min`` fails where CUB
    shall write to ``out``. CUB has no minimum of no elements.
    """
    x, result = arrays["x"], arrays["result"]
    if x.size == 0:
        nothing = identity(combination, dtype)
        return lambda: result.fill(nothing)
    operator = {"sum": cub.CUPY_CUB_SUM, "minimum": cub.CUPY_CUB_MIN, "maximum": cub.CUPY_CUB_MAX}[combination]

    def run():
        if cub.cub_reduction(x, operator, dtype=x.dtype, out=result) is None:
            raise DeviceError(f"CuPy {cupy.__version__} does not pass a {combination} of {dtype} on to CUB")

    return run


def cupy_add(shape, dtype, parameters, arrays) -> Callable[[], None]:
    """CuPy's own elementwise kernel: no library of the vendor has an addition of whole vectors."""
    return lambda: cupy.add(arrays["x"], arrays["y"], out=arrays["z"])


BASELINES = {
    ("matmul", "cublas"): cublas_matmul,
    ("sum", "cub"): functools.partial(cub_reduction, "sum"),
    ("minimum", "cub"): functools.partial(cub_reduction, "minimum"),
    ("maximum", "cub"): functools.partial(cub_reduction, "maximum"),
    ("vector_add", "cupy"): cupy_add,
}


def survey() -> dict[str, Any]:
    """What all GPUs of this machine are, each of them tried, and how they reach each other and NCCL."""
    count = cupy.cuda.runtime.getDeviceCount()
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    try:
        version = nccl.get_version()
        nccl_version = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    except (ImportError, AttributeError, RuntimeError):
        nccl_version = ""
    return {
        "gpus": [CudaBackend(i).describe()["gpu"] for i in range(count)],
        "driver_cuda": cupy.cuda.runtime.driverGetVersion(),
        "without_peer_access": [(i, j) for i, j in pairs if not cupy.cuda.runtime.deviceCanAccessPeer(i, j)],
        "nccl": nccl_version,
    }


def address(array) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


class NcclLink:
    """NCCL between processes with a GPU each."""

    def __init__(self, size: int, identity: bytes, rank: int):
        self.comm = nccl.NcclCommunicator(size, identity, rank)

    def exchange(self, receives, sends, stream: cupy.cuda.Stream) -> None:
        """Enqueue all transfers, (rank, contiguous array) each, as one operation."""
        nccl.groupStart()
        for transfer, pairs in ((self.comm.recv, receives), (self.comm.send, sends)):
            for rank, array in pairs:
                if array.size:
                    transfer(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, rank, stream.ptr)
        nccl.groupEnd()

    def all_reduce(self, array: cupy.ndarray, combination: str) -> None:
        """Enqueue the combination of all ranks' arrays in place, on the main stream."""
        dtype = getattr(nccl, f"NCCL_{array.dtype.name.upper()}")
        how = {"sum": nccl.NCCL_SUM, "minimum": nccl.NCCL_MIN, "maximum": nccl.NCCL_MAX}[combination]
        pointer = array.data.ptr
        self.comm.allReduce(pointer, pointer, array.size, dtype, how, cupy.cuda.get_current_stream().ptr)

    def close(self) -> None:
        self.comm.destroy()


class CudaBackend:
    """One GPU, its memory and its default stream."""

    in_host_memory = False

    def __init__(self, index: int):
        self.device = cupy.cuda.Device(index)
        self.device.use()
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()
        self._busy = cupy.RawModule(code=(kernels.FOLDER / "spin.cu").read_text()).get_function("spin")
        self._spin = functools.partial(self._busy, (1,), (1,), (np.uint64(SPIN_NANOSECONDS),))
        self._flush = cupy.empty(2 * self.device.attributes["L2CacheSize"], np.uint8)
        attributes = self.device.attributes
        # Memory moves data on both edges of its clock, which comes in kHz; the width is in bits.
        bandwidth = 2 * attributes["MemoryClockRate"] * 1e3 * attributes["GlobalMemoryBusWidth"] / 8
        self.limits = {
            "sm_threads": attributes["MaxThreadsPerMultiProcessor"],
            "sm_blocks": attributes["MaxBlocksPerMultiprocessor"],
            "sm_registers": attributes["MaxRegistersPerMultiprocessor"],
            "sm_shared_bytes": attributes["MaxSharedMemoryPerMultiprocessor"],
            "reserved_shared_bytes": attributes["ReservedSharedMemoryPerBlock"],
            "memory_bytes_per_second": bandwidth,
        }
        pynvml.nvmlInit()
        self._nvml = pynvml.nvmlDeviceGetHandleByPciBusId(self.device.pci_bus_id)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self._nvml))
        self.capability = self.device.compute_capability
        self.multiprocessors = attributes["MultiProcessorCount"]

    def empty(self, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        with self._allocating(shape, dtype):
            return cupy.empty(shape, dtype)

    @contextlib.contextmanager
    def _allocating(self, shape: tuple[int, ...], dtype: str) -> Iterator[None]:
        try:
            yield
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
            size, free = math.prod(shape) * np.dtype(dtype).itemsize / 2**30, self.free_bytes() / 2**30
            raise DeviceError(f"{self.uuid} does not give {size:.3g} GiB, it has {free:.3g} free: {error}") from error

    def host_empty(self, shape: tuple[int, ...], dtype: str, pinned: bool) -> np.ndarray:
        """Return host memory, page-locked or pageable."""
        if not pinned:
            return np.empty(shape, dtype)
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

    def stream(self) -> cupy.cuda.Stream:
        """Return a stream whose copies overlap with kernels of the default stream."""
        return cupy.cuda.Stream(non_blocking=True)

    def mark(self, stream: cupy.cuda.Stream | None = None) -> cupy.cuda.Event:
        """Mark what a stream, by default the main one, has been given so far."""
        event = cupy.cuda.Event()
        event.record(stream)
        return event

    def wait(self, mark: cupy.cuda.Event, stream: cupy.cuda.Stream | None = None) -> None:
        """Let a stream, by default the main one, go on only once what was marked is done."""
        (stream or cupy.cuda.get_current_stream()).wait_event(mark)

    def finish(self, mark: cupy.cuda.Event) -> None:
        """Let the host wait until what was marked is done."""
        mark.synchronize()

    def elapsed(self, first: cupy.cuda.Event, last: cupy.cuda.Event) -> float:
        return cupy.cuda.get_elapsed_time(first, last) * 1e-3

    def copy_async(self, source, target, stream: cupy.cuda.Stream) -> None:
        """Enqueue a copy between any two memories: of all bytes, or by rows where they lie apart."""
        runtime = cupy.cuda.runtime
        if not target.size:
            return
        if source.flags.c_contiguous and target.flags.c_contiguous:
            runtime.memcpyAsync(address(target), address(source), target.nbytes, runtime.memcpyDefault, stream.ptr)
            return
        rows, columns = target.shape
        runtime.memcpy2DAsync(
            *(address(target), target.strides[0], address(source), source.strides[0]),
            *(columns * target.itemsize, rows, runtime.memcpyDefault, stream.ptr),
        )

    def register(self, array: np.ndarray) -> None:
        """Page-lock host memory that somebody else allocated."""
        cupy.cuda.runtime.hostRegister(array.ctypes.data, array.nbytes, 0)

    def unregister(self, array: np.ndarray) -> None:
        cupy.cuda.runtime.hostUnregister(array.ctypes.data)

    def free_bytes(self) -> int:
        """Device memory that nobody has, or only this process's pool."""
        free, _ = cupy.cuda.runtime.memGetInfo()
        return free + cupy.get_default_memory_pool().free_bytes()

    def shared_empty(self, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        """Return device memory that other processes may map: an allocation of its own."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        with self._allocating(shape, dtype):
            memory = cupy.cuda.Memory(max(1, -(-size // IPC_BYTES)) * IPC_BYTES)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def export(self, array: cupy.ndarray) -> bytes:
        """Return the handle by which another process of this node maps memory of ``shared_empty``."""
        return cupy.cuda.runtime.ipcGetMemHandle(array.data.ptr)

    def open_peer(self, handle: bytes, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        """Map another process's array; give it to ``close_peer`` in the end."""
        pointer = cupy.cuda.runtime.ipcOpenMemHandle(handle)
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        memory = cupy.cuda.UnownedMemory(pointer, size, None, self.device.id)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def close_peer(self, array: cupy.ndarray) -> None:
        cupy.cuda.runtime.ipcCloseMemHandle(array.data.ptr)

    @property
    def has_nccl(self) -> bool:
        return bool(nccl.available)

    def nccl_identity(self) -> bytes:
        return nccl.get_unique_id()

    def nccl(self, size: int, identity: bytes, rank: int) -> NcclLink:
        return NcclLink(size, identity, rank)

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
        if variant.pitched:
            padded = {name: pitched_empty(array.shape, dtype) for name, array in arrays.items()}
            plain = dataclasses.replace(variant, pitched=False)
            run = self.prepare(operation, plain, shape, dtype, parameters, padded)
            results = [operand.name for operand in operation.operands if operand.role != "in"]
            return Prepared(
                run,
                before=lambda: [copy_rows(arrays[name], padded[name]) for name in arrays],
                after=lambda: [copy_rows(padded[name], arrays[name]) for name in results],
            )
        kernel = kernel_of(operation, variant, dtype, parameters)
        scratch = {name: cupy.empty(length, dtype) for name, length in operation.scratch(variant, shape).items()}
        arrays = {**arrays, **scratch}
        launches = operation.launches(variant, shape, dtype, parameters, arrays, self.multiprocessors)
        kernel.max_dynamic_shared_size_bytes = max((launch.shared_bytes for launch in launches), default=0)

        def run():
            for launch in launches:
                kernel(launch.grid, launch.block, launch.arguments, shared_mem=launch.shared_bytes)

        return run

    def resources(
        self,
        operation: Operation,
        variant: Variant,
        shape: tuple[int, ...],
        dtype: str,
        parameters: Mapping[str, float],
        arrays: Mapping[str, cupy.ndarray],
    ) -> dict[str, float]:
        """Return ``RESOURCES`` of a variant that was prepared, for its first launch; nothing of a library's."""
        if variant.baseline:
            return {}
        scratch = dict.fromkeys(operation.scratch(variant, shape))  # its geometry needs no memory
        arrays = {**arrays, **scratch}
        launches = operation.launches(variant, shape, dtype, parameters, arrays, self.multiprocessors)
        if not launches:
            return {}
        first = launches[0]
        kernel = kernel_of(operation, variant, dtype, parameters)
        resident = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            kernel.kernel.ptr, math.prod(first.block), first.shared_bytes
        )
        return {
            "registers": kernel.num_regs,
            "shared_bytes": kernel.shared_size_bytes,
            "dynamic_shared_bytes": first.shared_bytes,
            "local_bytes": kernel.local_size_bytes,
            "constant_bytes": kernel.const_size_bytes,
            "block_x": first.block[0],
            "block_y": math.prod(first.block[1:]),
            "grid_x": first.grid[0],
            "grid_y": math.prod(first.grid[1:]),
            "resident_blocks": resident,
            **self.limits,
        }

    def seconds(self, run: Callable[[], None]) -> float:
        """Run once and return the time between events around it."""
        self._start.record()
        run()
        self._stop.record()
        self._stop.synchronize()
        return cupy.cuda.get_elapsed_time(self._start, self._stop) * 1e-3

    def seconds_alone(
        self, run: Callable[[], None], cold: bool, arrays: Mapping[str, cupy.ndarray], lead: int = 1
    ) -> float:
        """Time one run on data in place, with the L2 cache overwritten first if ``cold``.

        ``lead`` is the number of spin kernels before it: more for a run that takes the host longer to queue.
        """
        if cold:
            self._flush.data.memset_async(0, self._flush.nbytes)
        for _ in range(lead):
            self._spin()
        return self.seconds(run)

    def marked(self, run: Callable[[], None], number: int) -> Callable[[], None]:
        """Return ``run`` so that a profiler sees it and nothing else, after a kernel ``spin`` of ``number`` blocks.

        All kernels of an operation have its name; a mark's grid tells the profiler's reader whose they are.
        """

        def watched():
            with cupyx.profiler.profile():
                self._busy((number,), (1,), (np.uint64(0),))
                run()
                self.device.synchronize()

        return dataclasses.replace(run, run=watched) if isinstance(run, Prepared) else watched

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

    def synchronize(self) -> None:
        self.device.synchronize()

    def release(self) -> None:
        """Give the memory of a finished point back to the device; raise what is wrong with it, if anything."""
        self.device.synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()

    def describe(self) -> dict[str, Any]:
        """What provenance says of the GPU."""
        properties = cupy.cuda.runtime.getDeviceProperties(self.device.id)
        attributes = self.device.attributes
        return {
            "gpu": {
                "name": properties["name"].decode(),
                "uuid": self.uuid,
                "driver": str(pynvml.nvmlSystemGetDriverVersion()),
                "compute_capability": self.capability,
                "multiprocessors": self.multiprocessors,
                "memory_bytes": properties["totalGlobalMem"],
                "l2_bytes": attributes["L2CacheSize"],
                "max_sm_clock": attributes["ClockRate"] * 1e3,
                "max_memory_clock": attributes["MemoryClockRate"] * 1e3,
                "memory_bus_bits": attributes["GlobalMemoryBusWidth"],
                "ecc": bool(attributes["EccEnabled"]),
                "constant_bytes": attributes["TotalConstantMemory"],
                "warp_size": attributes["WarpSize"],
                "block_threads": attributes["MaxThreadsPerBlock"],
                "block_dimensions": [attributes[f"MaxBlockDim{axis}"] for axis in "XYZ"],
                "grid_dimensions": [attributes[f"MaxGridDim{axis}"] for axis in "XYZ"],
                "block_registers": attributes["MaxRegistersPerBlock"],
                "block_shared_bytes": attributes["MaxSharedMemoryPerBlock"],
                "block_shared_bytes_on_request": attributes["MaxSharedMemoryPerBlockOptin"],
                **self.limits,
                "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
                "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
                "cublas": cublas.getVersion(cupy.cuda.device.get_cublas_handle()),
                "cupy": cupy.__version__,
                "empty_event_pair_seconds": self.seconds_alone(lambda: None, cold=False, arrays={}),
            }
        }
