"""What a backend is: what the rest of the suite may ask of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from hpcmm.model import HpcmmError, Task


class DeviceError(HpcmmError):
    """A device that is missing or cannot do what was asked."""


class Backend(Protocol):
    """One device of this rank, and its memory.

    The arrays of a device offer what NumPy's do: ``shape``, ``strides``, ``fill`` and slices that are views. A stream
    is a queue of work; ``None`` stands for the main one. A mark is a place in a queue.

    Attributes
    ----------
    kind : str
        Name of its record in ``hpcmm.devices``.
    in_host_memory : bool
        Whether its arrays are in the host's memory, so that nothing is uploaded or downloaded, and MPI takes them.
    uuid : str
        Of the device; empty if it has none.
    capability : str
        Compute capability of a GPU, as ``"90"``; else empty.
    has_nccl : bool
        Whether ``nccl`` can connect it with other devices.
    """

    kind: str
    in_host_memory: bool
    uuid: str
    capability: str
    has_nccl: bool

    # --- memory
    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array on the device."""

    def shared_empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array that other processes of the node may map."""

    def host_empty(self, shape: tuple[int, ...], dtype: str, pinned: bool) -> np.ndarray:
        """Return an array in host memory, page-locked if ``pinned`` makes a difference."""

    def register(self, array: np.ndarray) -> None:
        """Page-lock host memory that was allocated elsewhere."""

    def unregister(self, array: np.ndarray) -> None:
        """Undo ``register``."""

    def free_bytes(self) -> int:
        """Return the device memory that is free."""

    def release(self) -> None:
        """Free the memory of a finished point; raise what is wrong with the device, if anything."""

    # --- copies and queues
    def copy(self, source: Any, target: Any) -> None:
        """Copy between any two memories, and wait for it."""

    def copy_async(self, source: Any, target: Any, stream: Any) -> None:
        """Enqueue a copy between any two memories."""

    def stream(self) -> Any:
        """Return a queue whose copies overlap with kernels of the main one."""

    def mark(self, stream: Any = None) -> Any:
        """Mark what a queue has been given so far."""

    def wait(self, mark: Any, stream: Any = None) -> None:
        """Let a queue go on only once what was marked is done."""

    def finish(self, mark: Any) -> None:
        """Let the host wait until what was marked is done."""

    def elapsed(self, first: Any, last: Any) -> float:
        """Return the seconds between two marks."""

    def synchronize(self) -> None:
        """Wait for all queues."""

    # --- kernels
    def prepare(self, task: Task, arrays: Mapping[str, Any]) -> Callable[[], Any]:
        """Return what enqueues a task once on ``arrays``, compiled and with its workspace."""

    def compile_ahead(self, tasks: Iterable[Task]) -> None:
        """Compile the kernels of tasks in parallel; errors are raised when the tasks are prepared."""

    def resources(self, task: Task, arrays: Mapping[str, Any]) -> dict[str, float]:
        """Return ``model.RESOURCES`` of a prepared task, as far as they are known."""

    # --- timing
    def seconds(self, run: Callable[[], Any]) -> float:
        """Run once and return the seconds on the device."""

    def seconds_alone(self, run: Callable[[], Any], cold: bool, arrays: Mapping[str, Any], lead: int = 1) -> float:
        """Time one run on data in place, with empty caches if ``cold``."""

    def state(self) -> dict[str, float]:
        """Return ``model.STATES`` of the device now, as far as they are known."""

    # --- description
    def describe(self) -> dict[str, Any]:
        """Return what provenance says of the device."""
