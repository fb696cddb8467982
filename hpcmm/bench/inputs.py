"""Random inputs in the host memory of a device, and runs of a task on them."""

from collections.abc import Callable, Mapping

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


def computing(backend, task: Task) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Return a function that computes a task once on a device, and returns the result in host memory.

    Operands with fewer rows than the inputs are their first rows. No builds are tried for them, which would take longer
    than all runs: without an earlier trial, the model chooses one.
    """
    output = task.operation.output
    arrays = {each.name: backend.empty(task.shape_of(each), task.storage(each)) for each in task.operation.operands}
    tries, backend.tries = backend.tries, False
    try:
        run = backend.prepare(task, arrays)
    finally:
        backend.tries = tries

    def compute(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        arrays[output.name].fill(task.element.results.poison)
        for name, content in inputs.items():
            backend.copy(content[: len(arrays[name])] if content.ndim else content, arrays[name])
        run.whole()
        backend.synchronize()
        host = np.empty(task.shape_of(output), task.storage(output))
        backend.copy(arrays[output.name], host)
        return host

    return compute
