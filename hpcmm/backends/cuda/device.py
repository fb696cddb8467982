"""One NVIDIA GPU: its memory, its streams, its kernels and its clock."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cupy
import numpy as np
import psutil
import pynvml
from cupy.cuda import cub, nccl

from hpcmm import kernels
from hpcmm.backends.cuda import cublaslt, emulation, libraries
from hpcmm.backends.cuda.compile import OPTIONS, compile_ahead, constant_of, kernel_of
from hpcmm.backends.cuda.links import NcclLink
from hpcmm.backends.cuda.memory import Guarded, address, copy_rows, pitched_empty
from hpcmm.backends.cuda.tensor_map import tensor_map
from hpcmm.backends.cuda.xid import XidErrors
from hpcmm.model import Boxes, DeviceError, Prepared, Task, untimed

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
STATE_SECONDS = 10e-3  # for which a reading of NVML is kept: it takes 0.1 ms, and NVML's values are older
KEPT_SHARE = 1 / 16  # of the host's memory: page-locked blocks that are kept for the next problem
ROUNDED_BYTES = 1 << 30  # page-locked blocks up to this size are powers of two, so that other problems can use them
IPC_BYTES = 2 << 20  # the driver puts smaller allocations into one block, which would be mapped as a whole


def compute_processes(count: int) -> list[int]:
    """Return the number of compute processes on each GPU; 0 if NVML does not report it."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByPciBusId(cupy.cuda.Device(i).pci_bus_id) for i in range(count)]
    return [nvml_facts(handle).get("compute_processes", 0) for handle in handles]


def nccl_version() -> str:
    """Return the version of NCCL that CuPy uses; empty without NCCL."""
    try:
        version = nccl.get_version()
    except (ImportError, AttributeError, RuntimeError):
        return ""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@untimed
def survey() -> dict[str, Any]:
    """Open each GPU of this machine and describe it, its peer access and NCCL."""
    count = cupy.cuda.runtime.getDeviceCount()
    processes = compute_processes(count)  # before this process becomes one
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    return {
        "gpus": [CudaBackend(i).describe()["gpu"] for i in range(count)],
        "compute_processes": processes,
        "driver_cuda": cupy.cuda.runtime.driverGetVersion(),
        "without_peer_access": [(i, j) for i, j in pairs if not cupy.cuda.runtime.deviceCanAccessPeer(i, j)],
        "nccl": nccl_version(),
    }


def nvlinks(handle: Any) -> int:
    """Return the number of NVLinks that are up."""
    links = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        with contextlib.suppress(pynvml.NVMLError):
            links += pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED
    return links


# Properties of a GPU and limits that were set, from NVML: the key in the provenance, and how it is read. Power is
# in W and clocks are in Hz. Keys that the GPU, its driver or the permissions do not provide are left out.
NVML: dict[str, Callable[[Any], Any]] = {
    "power_limit": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) * 1e-3,
    "default_power_limit": lambda gpu: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) * 1e-3,
    "application_sm_clock": lambda gpu: pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "application_memory_clock": lambda gpu: pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_MEM) * 1e6,
    "highest_sm_clock": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "persistence": lambda gpu: bool(pynvml.nvmlDeviceGetPersistenceMode(gpu)),
    "compute_mode": lambda gpu: pynvml.nvmlDeviceGetComputeMode(gpu),
    "mig": lambda gpu: bool(pynvml.nvmlDeviceGetMigMode(gpu)[0]),
    "compute_processes": lambda gpu: len(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
    "vbios": lambda gpu: pynvml.nvmlDeviceGetVbiosVersion(gpu),
    "pci_bus": lambda gpu: pynvml.nvmlDeviceGetPciInfo(gpu).busId,
    "pcie_generation": lambda gpu: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_width": lambda gpu: pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "most_pcie_generation": lambda gpu: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "nvlinks": nvlinks,
    "numa_node": lambda gpu: pynvml.nvmlDeviceGetNumaNodeId(gpu),
}


def field_value(handle: Any, field: int) -> int:
    """Return a field of NVML that is an unsigned integer."""
    (found,) = pynvml.nvmlDeviceGetFieldValues(handle, [field])
    if found.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(found.nvmlReturn)
    is_int = found.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return found.value.uiVal if is_int else found.value.ullVal


def ecc_errors(handle: Any, kind: int) -> int:
    """Return the ECC errors of a kind over the life of a GPU."""
    return pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_AGGREGATE_ECC)


# How NVML reads ``quantities.ERROR_COUNTERS``
ERRORS: dict[str, Callable[[Any], int]] = {
    "ecc_corrected": lambda gpu: ecc_errors(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc_uncorrected": lambda gpu: ecc_errors(gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "rows_remapped_corrected": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[0],
    "rows_remapped_uncorrected": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[1],
    "pcie_replays": lambda gpu: pynvml.nvmlDeviceGetPcieReplayCounter(gpu),
    "nvlink_flit_errors": lambda gpu: field_value(gpu, pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL),
    "nvlink_data_errors": lambda gpu: field_value(gpu, pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL),
    "nvlink_replays": lambda gpu: field_value(gpu, pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL),
    "nvlink_recoveries": lambda gpu: field_value(gpu, pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL),
}


def nvml_facts(handle: Any) -> dict[str, Any]:
    """Return the entries of ``NVML`` for a GPU that can be read."""
    return readable(NVML, handle)


def readable(sources: Mapping[str, Callable[[Any], Any]], handle: Any) -> dict[str, Any]:
    """Return the values that a GPU, its driver and the binding provide."""
    found = {}
    for name, read in sources.items():
        with contextlib.suppress(pynvml.NVMLError, AttributeError):  # an older binding lacks some functions
            value = read(handle)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


class CudaBackend:
    """One GPU, its memory and its default stream."""

    kind = "cuda"
    in_host_memory = False
    cold = True

    def __init__(self, index: int):
        self.index = index
        self.device = cupy.cuda.Device(index)
        self.device.use()
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()
        self.late = False
        self._locked_bytes = 0  # of the pool of page-locked memory
        self._locked = cupy.cuda.PinnedMemoryPool(self._lock)
        self._read_at, self._state = -math.inf, {}
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
        pynvml.nvmlInit()
        self._nvml = pynvml.nvmlDeviceGetHandleByPciBusId(self.device.pci_bus_id)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self._nvml))
        self.capability = self.device.compute_capability
        self.multiprocessors = attributes["MultiProcessorCount"]

    def placed(self, task: Task) -> Task:
        return task if task.multiprocessors else dataclasses.replace(task, multiprocessors=self.multiprocessors)

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
        """Return host memory, page-locked or pageable."""
        if not pinned:
            return np.empty(shape, dtype)
        count, dtype = math.prod(shape), np.dtype(dtype)
        size = max(1, count * dtype.itemsize)
        if size <= ROUNDED_BYTES:
            size = 1 << (size - 1).bit_length()
        return np.frombuffer(self._locked.malloc(size), dtype, count).reshape(shape)

    def _lock(self, size: int) -> cupy.cuda.PinnedMemoryPointer:
        """Allocate page-locked memory for the pool."""
        memory = cupy.cuda.PinnedMemory(size)
        self._locked_bytes += size
        return cupy.cuda.PinnedMemoryPointer(memory, 0)

    def copy(self, source, target) -> None:
        """Copy host to device, device to host or device to device, and wait until it is done."""
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
        """Return a stream whose copies overlap with kernels of the default stream."""
        return cupy.cuda.Stream(non_blocking=True)

    def mark(self, stream: cupy.cuda.Stream | None = None) -> cupy.cuda.Event:
        """Return an event after the work queued in a stream, by default the main one."""
        event = cupy.cuda.Event()
        event.record(stream)
        return event

    def wait(self, mark: cupy.cuda.Event, stream: cupy.cuda.Stream | None = None) -> None:
        """Make a stream, by default the main one, wait for the work before a mark."""
        (stream or cupy.cuda.get_current_stream()).wait_event(mark)

    def finish(self, mark: cupy.cuda.Event) -> None:
        """Make the host wait for the work before a mark."""
        mark.synchronize()

    def elapsed(self, first: cupy.cuda.Event, last: cupy.cuda.Event) -> float:
        return cupy.cuda.get_elapsed_time(first, last) * 1e-3

    def copy_async(self, source, target, stream: cupy.cuda.Stream) -> None:
        """Enqueue a copy between any two memories, by rows if an array is not contiguous."""
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

    @untimed
    def huge_pages(self, arrays: Iterable[cupy.ndarray]) -> float:
        return math.nan

    def register(self, array: np.ndarray) -> None:
        """Page-lock host memory that was allocated elsewhere."""
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
        """Return the IPC handle of memory from ``shared_empty``, for other processes of this node."""
        return cupy.cuda.runtime.ipcGetMemHandle(array.data.ptr)

    def open_peer(self, handle: bytes, shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
        """Map another process's array; ``close_peer`` unmaps it."""
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

    def gemm_emulated(self, dtype: str, alpha: float, a: Any, b: Any, beta: float, c: Any) -> Callable[[], Any]:
        """Bind the product in the arithmetic by which cuBLAS emulates the type; it emulates no empty product."""
        bind = libraries.gemm if 0 in (*a.shape, *b.shape) else emulation.gemm
        return bind(dtype, alpha, a, b, beta, c)

    def why_not_emulated(self, dtype: str) -> str:
        """Return the reason why cuBLAS does not emulate a type on this GPU; empty if it does."""
        return emulation.why_missing(dtype, self.capability)

    def gemm_fastest(self, *product: Any) -> Prepared:
        """Bind the product by the fastest algorithm of cuBLASLt's heuristics."""
        timed = functools.partial(self.seconds_alone, cold=self.cold, arrays={}, lead=TRIAL_SPINS)
        return libraries.gemm_fastest(timed, *product)

    def prepare(self, task: Task, arrays: Mapping[str, cupy.ndarray]) -> Callable[[], Any]:
        """Return a callable that enqueues a task once on ``arrays``; compile the kernel and allocate its workspace."""
        if task.variant.library:
            return task.variant.library(self, task, arrays)
        if task.variant.function:
            stream = cupy.cuda.get_current_stream()
            return functools.partial(task.variant.function, stream=stream, **arrays, **task.scalars)
        task = self.placed(task).picked
        if task.variant.pitched:
            padded = {name: pitched_empty(array.shape, array.dtype) for name, array in arrays.items()}
            plain = dataclasses.replace(task, variant=dataclasses.replace(task.variant, pitched=False))
            run = self.prepare(plain, padded)
            results = [operand.name for operand in task.operation.operands if operand.role != "in"]
            return Prepared(
                run,
                before=lambda: [copy_rows(arrays[name], padded[name]) for name in arrays],
                after=lambda: [copy_rows(padded[name], arrays[name]) for name in results],
            )
        if task.variant.guard_rows:
            guarded = {
                name: Guarded(array.shape, task.dtype, task.variant.guard_rows) for name, array in arrays.items()
            }
            plain = dataclasses.replace(task, variant=dataclasses.replace(task.variant, guard_rows=0))
            results = [operand.name for operand in task.operation.operands if operand.role != "in"]
            return Prepared(
                self.prepare(plain, {name: each.array for name, each in guarded.items()}),
                before=lambda: [each.fill(arrays[name]) for name, each in guarded.items()],
                after=lambda: [copy_rows(guarded[name].array, arrays[name]) for name in results],
                complaint=lambda: "; ".join(filter(None, (each.complaint(name) for name, each in guarded.items()))),
            )
        constants = [
            (constant_of(task, name), arrays[operand])
            for name, operand in task.geometry.in_constant_memory(task).items()
        ]
        workspace = {name: self.empty(each.shape, each.dtype) for name, each in task.workspace.items()}
        launches = task.geometry.launches(task, {**arrays, **workspace})
        compiled = [kernel_of(launch.task or task, launch.function) for launch in launches]
        for kernel, launch in zip(compiled, launches, strict=True):
            if launch.shared_bytes > kernel.max_dynamic_shared_size_bytes:
                kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
        calls = [
            (
                *(kernel, launch.grid, launch.block),
                tuple(tensor_map(each) if isinstance(each, Boxes) else each for each in launch.arguments),
                launch.shared_bytes,
            )
            for kernel, launch in zip(compiled, launches, strict=True)
        ]

        def run():
            for constant, array in constants:
                constant.copy_from_device_async(array.data, array.nbytes)
            for kernel, grid, block, arguments, shared_bytes in calls:
                kernel(grid, block, arguments, shared_mem=shared_bytes)

        run.launches = "; ".join(
            f"{launch.function or task.operation.kernels}, grid {launch.grid}, block {launch.block}, "
            f"{launch.shared_bytes} bytes of dynamic shared memory"
            for launch in launches
        )
        return run

    def compile_ahead(self, tasks: Iterable[Task], threads: int) -> None:
        """Compile the kernels of tasks in parallel; errors are raised when the tasks are prepared."""
        compile_ahead(map(self.placed, tasks), self.index, threads)

    @untimed
    def resources(self, task: Task, arrays: Mapping[str, cupy.ndarray]) -> dict[str, float]:
        """Return ``RESOURCES`` of a prepared task; empty for a library and a Python function.

        They are of its first launch, or of the first one that is named as the operation's kernels if there are several
        functions.
        """
        task = self.placed(task).picked
        if not task.variant.compiled:
            return {}
        workspace = {name: each.placeholder for name, each in task.workspace.items()}
        launches = task.geometry.launches(task, {**arrays, **workspace})
        if not launches:
            return {}
        first = next(launch for launch in launches if not launch.function)
        kernel = kernel_of(first.task or task)
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

    def checksum(self, array: cupy.ndarray) -> int:
        array = cupy.ascontiguousarray(array)
        if array.data.ptr % self._sum.itemsize:
            array = array.copy()
        self._sum.data.memset_async(0, self._sum.nbytes)
        self._checksum((array, np.uint64(array.nbytes), self._sum))
        return int(self._sum.get()[0])

    def seconds(self, run: Callable[[], None]) -> float:
        """Run once and return the time between events around it."""
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

    def marked(self, run: Callable[[], None], number: int) -> Callable[[], None]:
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

        return dataclasses.replace(run, run=watched) if isinstance(run, Prepared) else watched

    @untimed
    def state(self) -> dict[str, float]:
        """Return clocks, temperature, power and throttle reasons of the GPU, where NVML supports them.

        They are at most ``STATE_SECONDS`` older than NVML's.
        """
        if time.perf_counter() < self._read_at + STATE_SECONDS:
            return self._state
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
                continue  # a virtual GPU supports only some queries
        self._read_at, self._state = time.perf_counter(), state
        return state

    @untimed
    def vitals(self) -> dict[str, float]:
        found = {"clock" if name == "sm_clock" else name: value for name, value in self.state().items()}
        with contextlib.suppress(DeviceError):
            found["energy"] = self.energy()
        return found

    def energy(self) -> float:
        try:
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._nvml) * 1e-3
        except pynvml.NVMLError as error:
            raise DeviceError(f"NVML has no energy counter for {self.uuid}: {error}") from error

    @untimed
    def errors(self) -> dict[str, float]:
        xid = {"xid": lambda gpu: self._xid_errors.count()}
        return {name: float(value) for name, value in readable(ERRORS | xid, self._nvml).items()}

    @functools.cached_property
    def _xid_errors(self) -> XidErrors:
        return XidErrors(self._nvml)

    def allocate_separately(self) -> None:
        """Allocate each further array separately, so that a sanitizer knows where it ends."""
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
        """Return the provenance of the GPU."""
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
                "cublas": cublaslt.version(),
                "cub": cub.get_build_version(),
                "nccl": self.nccl_version,
                "cupy": cupy.__version__,
                "nvrtc_options": " ".join(OPTIONS),
                **nvml_facts(self._nvml),
                "empty_event_pair_seconds": self.empty_event_pair(),
            }
        }
