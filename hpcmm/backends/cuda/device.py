"""One NVIDIA GPU: its memory, its streams, its kernels and its clock."""

import contextlib
import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cupy
import numpy as np
import psutil
import pynvml
from cupy.cuda import cub, nccl

from hpcmm import kernels
from hpcmm.backends.base import Accelerator
from hpcmm.backends.cuda import cublaslt, emulation, launching, libraries
from hpcmm.backends.cuda.compile import OPTIONS, compile_ahead
from hpcmm.backends.cuda.links import NcclLink
from hpcmm.backends.cuda.memory import address, copy_rows
from hpcmm.backends.cuda.nvml import Sensors, compute_processes
from hpcmm.model import DeviceError, Task, untimed
from hpcmm.model.launch import Run
from hpcmm.operations.matmul_ladder import Gemm

SPIN_NANOSECONDS = 50_000  # long enough to queue a kernel; a call of a library may need several
TRIAL_SPINS = 12  # before a trial of a library's algorithm, which is not repeated if the host is late
READ_BLOCKS, READ_THREADS = 4, 512  # of an SM, and of a block that reads a buffer
READ_BYTES = 16  # that a thread reads at a time
# Time that a run repeats while the SM clock is measured, and how often at most. Some global timers advance by 1 µs at a
# time, so 100 runs of 5 µs are exact to 0.2 %.
CLOCK_SECONDS, MOST_CLOCK_RUNS = 10e-3, 100
CLOCK_BLOCKS = 4  # of an SM, so that each has one
MOST_SMS = 1024  # identifiers of SMs
EMPTY_PAIRS = 21  # empty pairs of events; the provenance records the median of their times
KEPT_SHARE = 1 / 16  # of the host's memory: page-locked blocks that are kept for the next problem
ROUNDED_BYTES = 1 << 30  # page-locked blocks up to this size are powers of two, so that other problems can use them
IPC_BYTES = 2 << 20  # the driver puts smaller allocations into one block, which would be mapped as a whole


def nccl_version() -> str:
    try:
        version = nccl.get_version()
    except (ImportError, AttributeError, RuntimeError):
        return ""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@untimed
def survey() -> dict[str, Any]:
    """Open each GPU of this machine and describe it, its peer access and NCCL."""
    count = cupy.cuda.runtime.getDeviceCount()
    buses = [cupy.cuda.Device(i).pci_bus_id for i in range(count)]
    processes = compute_processes(buses)  # before this process becomes one
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    return {
        "gpus": [CudaBackend(i).describe()["gpu"] for i in range(count)],
        "compute_processes": processes,
        "driver_cuda": cupy.cuda.runtime.driverGetVersion(),
        "without_peer_access": [(i, j) for i, j in pairs if not cupy.cuda.runtime.deviceCanAccessPeer(i, j)],
        "nccl": nccl_version(),
    }


class CudaBackend(Sensors, Accelerator):
    kind = "cuda"
    in_host_memory = False

    def __init__(self, index: int):
        self.index = index
        self.device = cupy.cuda.Device(index)
        self.device.use()
        super().__init__(self.device.pci_bus_id)
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()
        self.late = False
        self._locked_bytes = 0  # of the pool of page-locked memory
        self._locked = cupy.cuda.PinnedMemoryPool(self._lock)
        self._busy = cupy.RawModule(code=(kernels.FOLDER / "spin.cu").read_text()).get_function("spin")
        self._spin = functools.partial(self._busy, (1,), (1,), (np.uint64(SPIN_NANOSECONDS),))
        attributes = self.device.attributes
        self._flush, self._clean = (cupy.zeros(2 * attributes["L2CacheSize"], np.uint8) for _ in range(2))
        read = cupy.RawModule(code=(kernels.FOLDER / "read.cu").read_text()).get_function("read_buffer")
        vectors, found = np.uint64(self._clean.nbytes // READ_BYTES), cupy.zeros(1, np.uint32)
        grid = READ_BLOCKS * attributes["MultiProcessorCount"]
        self._read = functools.partial(read, (grid,), (READ_THREADS,), (self._clean, vectors, found))
        checksum = cupy.RawModule(code=(kernels.FOLDER / "checksum.cu").read_text()).get_function("checksum")
        self._checksum = functools.partial(checksum, (grid,), (READ_THREADS,))
        self._sum = cupy.zeros(1, np.uint64)
        self._clocks = cupy.RawModule(code=(kernels.FOLDER / "clock.cu").read_text()).get_function("read_clocks")
        # double data rate: two transfers per clock cycle; the clock is in kHz, the width in bits
        bandwidth = 2 * attributes["MemoryClockRate"] * 1e3 * attributes["GlobalMemoryBusWidth"] / 8
        self.limits = {
            "sm_threads": attributes["MaxThreadsPerMultiProcessor"],
            "sm_blocks": attributes["MaxBlocksPerMultiprocessor"],
            "sm_registers": attributes["MaxRegistersPerMultiprocessor"],
            "sm_shared_bytes": attributes["MaxSharedMemoryPerMultiprocessor"],
            "reserved_shared_bytes": attributes["ReservedSharedMemoryPerBlock"],
            "memory_bytes_per_second": bandwidth,
        }
        self.capability = self.device.compute_capability
        self.multiprocessors = attributes["MultiProcessorCount"]
        self.largest_clock = attributes["ClockRate"] * 1e3
        self.name = cupy.cuda.runtime.getDeviceProperties(self.device.id)["name"].decode()

    def placed(self, task: Task) -> Task:
        if task.gpu:
            return task
        return dataclasses.replace(
            task,
            multiprocessors=task.multiprocessors or self.multiprocessors,
            gpu=self.name,
            clock=self.largest_clock,
            bandwidth=self.limits["memory_bytes_per_second"],
        )

    def empty(self, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        with self._allocating(shape, dtype):
            return cupy.empty(shape, dtype)

    @contextlib.contextmanager
    def _allocating(self, shape: tuple[int, ...], dtype: str) -> Iterator[None]:
        try:
            yield
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
            size, free = math.prod(shape) * np.dtype(dtype).itemsize / 2**30, self.free_bytes() / 2**30
            raise DeviceError(f"{self.uuid} cannot allocate {size:.3g} GiB, {free:.3g} are free: {error}") from error

    def host_empty(self, shape: tuple[int, ...], dtype: str, pinned: bool) -> np.ndarray:
        if not pinned:
            return np.empty(shape, dtype)
        count, dtype = math.prod(shape), np.dtype(dtype)
        size = max(1, count * dtype.itemsize)
        if size <= ROUNDED_BYTES:
            size = 1 << (size - 1).bit_length()
        return np.frombuffer(self._locked.malloc(size), dtype, count).reshape(shape)

    def _lock(self, size: int) -> cupy.cuda.PinnedMemoryPointer:
        memory = cupy.cuda.PinnedMemory(size)
        self._locked_bytes += size
        return cupy.cuda.PinnedMemoryPointer(memory, 0)

    def copy(self, source, target) -> None:
        if isinstance(target, np.ndarray):
            source.get(out=target, blocking=True)
        elif isinstance(source, np.ndarray):
            target.set(source)
        else:
            cupy.copyto(target, source)
        self.device.synchronize()

    def upload(self, array: np.ndarray) -> cupy.ndarray:
        return cupy.asarray(array)

    def stream(self) -> cupy.cuda.Stream:
        return cupy.cuda.Stream(non_blocking=True)

    def mark(self, stream: cupy.cuda.Stream | None = None) -> cupy.cuda.Event:
        event = cupy.cuda.Event()
        event.record(stream)
        return event

    def wait(self, mark: cupy.cuda.Event, stream: cupy.cuda.Stream | None = None) -> None:
        (stream or cupy.cuda.get_current_stream()).wait_event(mark)

    def finish(self, mark: cupy.cuda.Event) -> None:
        mark.synchronize()

    def elapsed(self, first: cupy.cuda.Event, last: cupy.cuda.Event) -> float:
        return cupy.cuda.get_elapsed_time(first, last) * 1e-3

    def copy_async(self, source, target, stream: cupy.cuda.Stream) -> None:
        runtime = cupy.cuda.runtime
        if not target.size:
            return
        if source.flags.c_contiguous and target.flags.c_contiguous:
            runtime.memcpyAsync(address(target), address(source), target.nbytes, runtime.memcpyDefault, stream.ptr)
            return
        copy_rows(source, target, stream)

    def register(self, array: np.ndarray) -> None:
        cupy.cuda.runtime.hostRegister(array.ctypes.data, array.nbytes, 0)

    def unregister(self, array: np.ndarray) -> None:
        cupy.cuda.runtime.hostUnregister(array.ctypes.data)

    def free_bytes(self) -> int:
        """Return the free device memory in bytes, including free blocks of this process's pool."""
        free, _ = cupy.cuda.runtime.memGetInfo()
        return free + cupy.get_default_memory_pool().free_bytes()

    def shared_empty(self, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        """Return device memory that other processes may map, in a separate allocation."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        with self._allocating(shape, dtype):
            memory = cupy.cuda.Memory(max(1, -(-size // IPC_BYTES)) * IPC_BYTES)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def export(self, array: cupy.ndarray) -> bytes:
        return cupy.cuda.runtime.ipcGetMemHandle(array.data.ptr)

    def open_peer(self, handle: bytes, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        pointer = cupy.cuda.runtime.ipcOpenMemHandle(handle)
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        memory = cupy.cuda.UnownedMemory(pointer, size, None, self.device.id)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def close_peer(self, array: cupy.ndarray) -> None:
        cupy.cuda.runtime.ipcCloseMemHandle(array.data.ptr)

    @property
    def has_nccl(self) -> bool:
        return bool(nccl.available)

    @property
    def nccl_version(self) -> str:
        return nccl_version()

    def nccl_identity(self) -> bytes:
        return nccl.get_unique_id()

    def nccl(self, size: int, identity: bytes, rank: int) -> NcclLink:
        return NcclLink(size, identity, rank)

    # --- baselines of operations

    gemm, gemm_tf32 = map(staticmethod, (libraries.gemm, libraries.gemm_tf32))
    reduction, addition, geam = map(staticmethod, (libraries.reduction, libraries.addition, libraries.geam))

    def gemm_emulated(self, product: Gemm) -> Callable[[], Any]:
        """Bind the product in the arithmetic by which cuBLAS emulates the type; it emulates no empty product."""
        return (libraries.gemm if 0 in (*product.a.shape, *product.b.shape) else emulation.gemm)(product)

    def why_not_emulated(self, dtype: str) -> str:
        return emulation.why_missing(dtype, self.capability)

    def gemm_fastest(self, product: Gemm) -> Run:
        timed = functools.partial(self.seconds_alone, cold=self.cold, arrays={}, lead=TRIAL_SPINS)
        return libraries.gemm_fastest(timed, product)

    def prepare(self, task: Task, arrays: Mapping[str, cupy.ndarray]) -> Run:
        return launching.prepare(self, task, arrays)

    @untimed
    def resources(self, task: Task, arrays: Mapping[str, cupy.ndarray]) -> dict[str, float]:
        found = launching.resources(self.placed(task).picked, arrays)
        return found | self.limits if found else {}

    def compile_ahead(self, tasks: Iterable[Task], threads: int) -> None:
        compile_ahead(map(self.placed, tasks), self.index, threads)

    def checksum(self, array: cupy.ndarray) -> int:
        array = cupy.ascontiguousarray(array)
        if array.data.ptr % self._sum.itemsize:
            array = array.copy()
        self._sum.data.memset_async(0, self._sum.nbytes)
        self._checksum((array, np.uint64(array.nbytes), self._sum))
        return int(self._sum.get()[0])

    def seconds(self, run: Callable[[], None]) -> float:
        self._start.record()
        run()
        self._stop.record()
        self.late = self._start.done
        self._stop.synchronize()
        return cupy.cuda.get_elapsed_time(self._start, self._stop) * 1e-3

    def seconds_alone(
        self, run: Callable[[], None], cold: bool, arrays: Mapping[str, cupy.ndarray], lead: int = 1
    ) -> float:
        """Time one run on data in place, with the L2 cache emptied first if ``cold``.

        A memset replaces what the cache holds but leaves dirty lines, whose write-back would fall into the timed run.
        Reading another buffer replaces them with clean lines.

        ``lead`` is the number of spin kernels before it: more for a run that takes the host longer to queue.
        """
        if cold:
            self._flush.data.memset_async(0, self._flush.nbytes)
            self._read()
        for _ in range(lead):
            self._spin()
        return self.seconds(run)

    def clock(self, run: Callable[[], None], seconds: float) -> float:
        """Return the SM clock [Hz] while a run of some seconds repeats: the median over the SMs.

        NVML cannot be used: it reads the clock after a run. Here a small kernel reads the counters of each SM before
        and after the runs, on the same stream.
        """
        first, last = (cupy.zeros((MOST_SMS, 2), np.uint64) for _ in range(2))
        taken = cupy.zeros((2, MOST_SMS), np.uint32)
        grid = (CLOCK_BLOCKS * self.multiprocessors,)
        self._clocks(grid, (1,), (taken[0], first))
        for _ in range(min(MOST_CLOCK_RUNS, math.ceil(CLOCK_SECONDS / max(seconds, 1e-9)))):
            run()
        self._clocks(grid, (1,), (taken[1], last))
        before, after = (each.get().astype(np.int64) for each in (first, last))
        both = (before[:, 1] > 0) & (after[:, 1] > before[:, 1])
        cycles, nanoseconds = (after - before)[both].T
        return float(np.median(cycles / nanoseconds)) * 1e9 if both.any() else math.nan

    def marked(self, run: Run, number: int) -> Run:
        """Return ``run`` as the only code that is profiled, after a kernel ``spin`` of ``number`` blocks.

        All kernels of an operation have the same name; the grid of ``spin`` identifies the point in the profile.
        Only the first run is profiled: the profiler makes the host late, and a late run is repeated.
        """
        from cupyx.profiler import profile  # imports much of SciPy

        profiled = False

        def watched():
            nonlocal profiled
            if profiled:
                run()
                return
            profiled = True
            with profile():
                self._busy((number,), (1,), (np.uint64(0),))
                run()
                self.device.synchronize()

        return dataclasses.replace(run, once=watched)

    def allocate_separately(self) -> None:
        cupy.cuda.set_allocator(None)

    def synchronize(self) -> None:
        self.device.synchronize()

    def release(self, before_next: bool = False) -> None:
        self.device.synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
        # to page-lock a GB takes as long as to verify several results of this size
        if not before_next or self._locked_bytes > KEPT_SHARE * psutil.virtual_memory().total:
            self._locked.free_all_blocks()
            self._locked_bytes = 0

    def empty_event_pair(self) -> float:
        """Return the median seconds between two events with nothing between them."""
        return statistics.median(self.seconds_alone(lambda: None, False, {}) for _ in range(EMPTY_PAIRS))

    @untimed
    def describe(self) -> dict[str, Any]:
        properties = cupy.cuda.runtime.getDeviceProperties(self.device.id)
        attributes = self.device.attributes
        about = {
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
            "cublas": cublaslt.version(),
            "cub": cub.get_build_version(),
            "nccl": self.nccl_version,
            "cupy": cupy.__version__,
            "nvrtc_options": " ".join(OPTIONS),
            **self.properties(),
            "empty_event_pair_seconds": self.empty_event_pair(),
        }
        return {"gpu": about}
