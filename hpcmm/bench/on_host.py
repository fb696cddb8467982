"""Verify a CUDA kernel without a GPU: it runs on the host, with the threads of a block in several orders."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcmm import kernels
from hpcmm.backends.emulated.launch import ORDERS, HostKernel, KernelError, compile_kernel, on_device, poison
from hpcmm.bench import hints
from hpcmm.model import Task


@dataclass
class Found:
    """The result for a kernel: the number of runs, the largest error over its bound, and the first mistake."""

    runs: int = 0
    error_over_bound: float = 0.0
    where: str = ""


def verify(tasks: Iterable[Task], folder: Path) -> Found:
    """Run a kernel for tasks that differ in shape, type, scalars or tile, up to the first wrong result.

    Parameters
    ----------
    tasks : iterable of Task
        Of one variant with a CUDA source.
    folder : Path
        Folder of compiled kernels.

    Raises
    ------
    DeviceError
        If the source does not compile for the host, or needs features that the host does not have.
    """
    found = Found()
    for task in tasks:
        source = kernels.source(task.operation, task.variant)
        macros = tuple(f"-D{name}={value}" for name, value in task.macros.items())
        kernel = functools.cache(functools.partial(compile_kernel, source, options=macros, folder=folder))
        inputs = task.operation.draw(np.random.default_rng(task.shape), task)
        judge = task.operation.reference(task, inputs)
        given = ", ".join([f"{name} {value:g}" for name, value in task.scalars.items()])
        place = f"{'x'.join(map(str, task.shape))} {task.dtype}{given and ', '}{given}"
        results = set()
        for order in ORDERS:
            found.runs += 1
            try:
                result = run(kernel, task, inputs, order)
            except KernelError as error:
                found.where = f"{place}: {named(str(error), task)}{hint(kernel, task)}"
                return found
            verdict = judge(result)
            if not verdict.passed:
                found.where = f"{place}: {order} order: {verdict.where}{hint(kernel, task)}"
                return found
            found.error_over_bound = max(found.error_over_bound, verdict.error / verdict.bound if verdict.bound else 0)
            results.add(result.tobytes())
        if len(results) > 1 and task.variant.deterministic:
            found.where = f"{place}: the bits of the result depend on the order of threads; if this is intended, set "
            found.where += "deterministic: false"
            return found
    return found


def run(kernel: Callable[..., HostKernel], task: Task, inputs: dict[str, np.ndarray], order: str) -> np.ndarray:
    """Run all launches of a task on copies of its inputs; return its result.

    ``kernel`` compiles the function ``symbol`` of the source, or finds it compiled.
    """
    arrays = {name: on_device(array) for name, array in inputs.items()}
    lengths = dict(zip(task.operation.dimensions, task.shape, strict=True))
    for operand in task.operation.operands:
        if operand.role == "out":
            arrays[operand.name] = poison(tuple(lengths[each] for each in operand.dimensions), task.storage(operand))
    for name, needed in task.workspace.items():
        arrays[name] = poison(needed.shape, needed.dtype)
    for launch in task.geometry.launches(task, arrays):
        function = launch.function or task.operation.kernels
        kernel(symbol=function)(launch, order, dynamic_bytes=launch.shared_bytes)
    for operand in task.operation.operands:
        if operand.role == "in" and arrays[operand.name].tobytes() != inputs[operand.name].tobytes():
            raise KernelError(f"{order} order: the input {operand.name} has changed")
    (result,) = (operand.name for operand in task.operation.operands if operand.role != "in")
    return arrays[result]


def hint(kernel: Callable[..., HostKernel], task: Task) -> str:
    """Return a hint at the mistake of a product, after a semicolon; empty without one."""
    if task.operation.kernels != "matmul":
        return ""

    def again(other: Task, inputs: dict[str, np.ndarray]) -> np.ndarray | None:
        try:
            return run(kernel, other, inputs, ORDERS[0])
        except KernelError:
            return None

    found = hints.of_product(task, again)
    return found and f"; {found}"


def named(message: str, task: Task) -> str:
    """Replace numbers of arrays by the names of operands, where each launch has all operands."""
    names = [operand.name for operand in task.operation.operands]
    return re.sub(
        r"array (\d+)", lambda found: names[int(found[1])] if int(found[1]) < len(names) else found[0], message
    )
