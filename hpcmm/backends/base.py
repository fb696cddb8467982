"""The interface of a device: ``Backend``, and what an ``Accelerator`` has besides it."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hpcmm.model import DeviceError, Task, untimed
from hpcmm.model.launch import Run


class Backend:
    """One device of this rank, and its memory. Methods with a body are those of a device that lacks a feature.

    Arrays of a device have ``shape``, ``strides``, ``fill`` and slices that are views, as in NumPy. A stream is a queue
    of work; ``None`` is the main stream. A mark is a position in a stream.
    """

    kind: str  # name of its record in ``hpcmm.model.devices``
    # Whether its arrays are in host memory: nothing is uploaded or downloaded, and MPI accepts them
    in_host_memory: bool
    uuid = ""  # UUID of the device
    capability = ""  # compute capability of a GPU, such as ``"90"``
    # Whether repetitions start with empty caches, and trials that choose an algorithm of a library
    cold = True
    # Whether a GPU tries builds of a kernel where nothing decides yet which of them runs a task
    tries = False
    has_nccl = False  # whether ``nccl`` can connect it with other devices
    nccl_version = ""  # version of NCCL, such as ``"2.28.9"``; empty without NCCL
    # Whether the device reached the start of the last ``seconds_alone`` before the host had queued all of the run. The
    # time then contains launch latency of the host.
    late = False

    def placed(self, task: Task) -> Task:
        """Return the task on this device: with its name and SM count, unless the task states one."""
        return task

    # --- memory
    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array on the device."""

    def shared_empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array that other processes of the node may map."""

    def host_empty(self, shape: tuple[int, ...], dtype: str, pinned: bool) -> np.ndarray:
        """Return an array in host memory, page-locked if ``pinned`` makes a difference."""

    @untimed
    def huge_pages(self, arrays: Iterable[Any]) -> float:
        """Return the share of the bytes of its arrays that are on huge pages of the host; NaN for device memory."""
        return math.nan

    def register(self, array: np.ndarray) -> None:
        """Page-lock host memory that was allocated elsewhere."""

    def unregister(self, array: np.ndarray) -> None:
        """Undo ``register``."""

    def free_bytes(self) -> int:
        """Return the free device memory in bytes."""

    def release(self, before_next: bool = False) -> None:
        """Free the memory of a finished problem; raise an error of the device, if there is one.

        ``before_next`` is whether another problem follows at once: page-locked memory may be kept for it.
        """

    # --- copies and streams
    def copy(self, source: Any, target: Any) -> None:
        """Copy between any two memories, and wait until it is done."""

    def upload(self, array: np.ndarray) -> Any:
        """Return an array of the host on the device, where NumPy's functions and ``@`` compute by the library."""

    def copy_async(self, source: Any, target: Any, stream: Any) -> None:
        """Enqueue a copy between any two memories."""

    def stream(self) -> Any:
        """Return a stream whose copies overlap with kernels of the main stream."""

    def mark(self, stream: Any = None) -> Any:
        """Return a mark after the work queued in a stream."""

    def wait(self, mark: Any, stream: Any = None) -> None:
        """Make a stream wait for the work before a mark."""

    def finish(self, mark: Any) -> None:
        """Make the host wait for the work before a mark."""

    def elapsed(self, first: Any, last: Any) -> float:
        """Return the seconds between two marks."""

    def synchronize(self) -> None:
        """Wait for all streams."""

    # --- kernels
    def prepare(self, task: Task, arrays: Mapping[str, Any]) -> Run:
        """Return the run of a task on ``arrays``; compile the kernel and allocate its workspace."""

    def compile_ahead(self, tasks: Iterable[Task], threads: int) -> None:
        """Compile the kernels of tasks in parallel; errors are raised when the tasks are prepared."""

    @untimed
    def resources(self, task: Task, arrays: Mapping[str, Any]) -> dict[str, float]:
        """Return the known ``quantities.RESOURCES`` of a prepared task."""
        return {}

    def checksum(self, array: Any) -> int:
        """Return 64 bits that depend on each bit of an array and its position, the same on every device."""

    # --- timing
    def seconds(self, run: Callable[[], Any]) -> float:
        """Run once and return the seconds on the device."""

    def seconds_alone(self, run: Callable[[], Any], cold: bool, arrays: Mapping[str, Any], lead: int = 1) -> float:
        """Time one run on data in place, with empty caches if ``cold``."""

    def clock(self, run: Callable[[], Any], seconds: float) -> float:
        """Return the clock [Hz] of the device while a run of some seconds repeats; NaN if it cannot be read."""
        return math.nan

    @untimed
    def state(self) -> dict[str, float]:
        """Return the known ``quantities.STATES`` of the device now."""
        return {}

    def energy(self) -> float:
        """Return the energy counter of the device in J; raise DeviceError if it cannot be read."""
        raise DeviceError(f"no counter of the energy of a {self.kind} is read")

    # --- description
    @untimed
    def describe(self) -> dict[str, Any]:
        """Return the provenance of the device."""


class Accelerator(Backend):
    """A device with its own memory, which other processes may map."""

    index: int  # among the visible devices of its kind

    def export(self, array: Any) -> bytes:
        """Return the handle of an array from ``shared_empty``, for other processes of this node."""

    def open_peer(self, handle: bytes, shape: tuple[int, ...], dtype: str) -> Any:
        """Map another process's array; ``close_peer`` unmaps it."""

    def close_peer(self, array: Any) -> None:
        """Unmap another process's array."""

    def nccl_identity(self) -> bytes:
        """Return the identity of a new group of devices."""

    def nccl(self, size: int, identity: bytes, rank: int) -> Any:
        """Connect this device as one of a group."""

    def allocate_separately(self) -> None:
        """Allocate each further array separately, so that a sanitizer knows where it ends."""

    def marked(self, run: Run, number: int) -> Run:
        """Return a run that a profiler identifies by a number from 1."""
