"""z = x + y, elementwise, of vectors of n elements."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpcmm.model import Geometry, Operand, Operation, Task, Verdict
from hpcmm.model.launch import Launch
from hpcmm.operations import accuracy, cores
from hpcmm.operations.heads import ladder, number


@dataclass(frozen=True)
class OverVector(Geometry):
    """Blocks of ``block`` threads over a vector, ``per_thread`` elements per thread; 256 threads as in 004."""

    per_thread: int = 1
    max_blocks: int = 0
    block: tuple[int, ...] = (256,)
    grid: tuple[int | str, ...] = ()
    shared_bytes: int = 0
    constants: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self):
        self.blocks(1)

    def blocks(self, n: int) -> tuple[int, ...]:
        return tuple(number(each, {"n": n, "root": math.isqrt(n), **self.constants}) for each in self.grid)

    def macros(self, task: Task) -> dict[str, int]:
        launched = {"BLOCK": math.prod(self.block), "PER_THREAD": self.per_thread, "MAX_BLOCKS": self.max_blocks}
        return {**launched, **self.constants}

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        (n,) = task.shape
        blocks = -(-n // (math.prod(self.block) * self.per_thread))
        grid = self.blocks(n) or (min(blocks, self.max_blocks or blocks),)
        return [Launch(grid, self.block, task.operation.arguments(task, arrays), self.shared_bytes)] if n else []


def numpy_add(backend: Any, task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[], None]:
    return lambda: np.add(arrays["x"], arrays["y"], out=arrays["z"])


def cupy_add(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], None]:
    """Bind CuPy's elementwise kernel: no NVIDIA library computes z = x + y."""
    return backend.addition(arrays["x"], arrays["y"], arrays["z"])


def cublas_geam(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], None]:
    """Bind cuBLAS's sum of two matrices, alpha X + beta Y with alpha = beta = 1, which hold the vectors."""
    return backend.geam(arrays["x"], arrays["y"], arrays["z"])


DTYPES = ("int32", "float32", "float64")

OPERANDS = (Operand("x", ("n",), "rows", "in"), Operand("y", ("n",), "rows", "in"), Operand("z", ("n",), "rows", "out"))


def draw(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw x and y uniform in [-1/3, 1/3), with all bits of the type, so that most sums are rounded.

    One sum is -0. Sums of integers neither overflow nor equal the minimum of the type, the poison of outputs.
    """

    def fractions(stream: np.random.Generator, x: np.ndarray) -> None:
        cores.uniform(stream, x)
        x /= 3  # uniform numbers lie on a grid, on which all sums are exact

    fill = cores.integers(1 - 2**30, 2**30) if task.element.is_integer else fractions
    drawn = {name: cores.draw(rng, np.empty(task.shape, task.dtype), fill) for name in "xy"}
    for x in drawn.values() if task.shape[0] > 1 else ():
        x[task.shape[0] // 2] = -0.0
    return drawn


def reference(task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks a computed z: it must equal NumPy's sum at every element.

    A single addition is correctly rounded in IEEE arithmetic, so all correct results are equal.
    """
    truth = arrays["x"] + arrays["y"]
    return accuracy.equal_to(truth, f"correctly rounded sum, {truth.dtype}")


def arguments(task: Task, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of every kernel: both inputs, the output, their length."""
    return arrays["x"], arrays["y"], arrays["z"], np.uint64(task.shape[0])


VECTOR_ADD = Operation(
    name="vector_add",
    kernels="vector_add",
    dimensions=("n",),
    operands=OPERANDS,
    dtypes=DTYPES,
    scalars={},
    ladder=ladder("vector_add", DTYPES, numpy_add, cupy_add, cublas_geam, geometry=OverVector),
    metric="bytes",
    flops=lambda task: task.shape[0],
    bytes=lambda task: 3 * task.shape[0] * task.element.itemsize,
    draw=draw,
    reference=reference,
    arguments=arguments,
    geometry=OverVector,
)
