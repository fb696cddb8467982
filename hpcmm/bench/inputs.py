"""Random inputs in the host memory of a device."""

from __future__ import annotations

import numpy as np

from hpcmm.model import Task
from hpcmm.operations import cores


def draw_inputs(backend, task: Task, pinned: bool, seed: int) -> dict[str, np.ndarray]:
    """Draw the random inputs of a task into the backend's host memory; the same for every variant."""
    return into_host(backend, task.operation.draw(np.random.default_rng([seed, *task.shape]), task), pinned)


def into_host(backend, arrays: dict[str, np.ndarray], pinned: bool) -> dict[str, np.ndarray]:
    """Return arrays in page-locked memory of the host if ``pinned``, and if that makes a difference to the device.

    ``arrays`` is emptied, so that few arrays are in memory twice.
    """
    if backend.in_host_memory or not pinned:
        return arrays
    found = {}
    for name in list(arrays):
        array = arrays.pop(name)
        found[name] = backend.host_empty(array.shape, array.dtype, pinned)
        cores.copy(array, found[name])
    return found
