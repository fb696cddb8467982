"""Random inputs in the host memory of a device."""

from __future__ import annotations

import numpy as np

from hpcmm.model import Task
from hpcmm.operations import cores


def draw_inputs(backend, task: Task, pinned: bool, *seed: int) -> dict[str, np.ndarray]:
    """Draw the random inputs of a task into the backend's host memory; the same for every variant."""
    rng = np.random.default_rng([*seed, *task.shape])
    if task.operation.fill:
        operands = [operand for operand in task.operation.operands if operand.role != "out"]
        arrays = {
            operand.name: backend.host_empty(task.shape_of(operand), task.storage(operand), pinned)
            for operand in operands
        }
        task.operation.fill(rng, task, arrays)
        return arrays
    drawn = task.operation.draw(rng, task)
    if not (backend.in_host_memory or pinned):
        return drawn
    inputs = {}
    for name in list(drawn):
        array = drawn.pop(name)  # few arrays are in memory twice
        inputs[name] = backend.host_empty(array.shape, array.dtype, pinned)
        cores.copy(array, inputs[name])
    return inputs
