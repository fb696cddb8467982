"""y = x between ranks: each rank's part of y is another rank's part of x. The algorithm determines the ranks.

The textbook algorithm moves nothing between the ranks: each copies its own part. Exchanges are compared with the
memory bandwidth of this copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpcmm.model import Operand, Operation, Task, Variant, Verdict
from hpcmm.operations import accuracy, cores
from hpcmm.operations.memory import copy_of_library

LADDER = (
    Variant("memcpy", "cpu", "NumPy's copy", library=copy_of_library, provider="numpy"),
    Variant("device_copy", "cuda", "CuPy's copy on the device", library=copy_of_library, provider="cupy"),
)

OPERANDS = (Operand("x", ("n",), "rows", "in"), Operand("y", ("n",), "rows", "out"))


def flops(task: Task) -> int:
    """Return 0: nothing is computed."""
    return 0


def nbytes(task: Task) -> int:
    """Return the compulsory traffic: x and y once each."""
    return 2 * task.shape[0] * task.element.itemsize


def draw(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw integers from 0 to 2^23 - 1, which every type holds exactly: parts of different ranks differ."""

    def fill(stream: np.random.Generator, x: np.ndarray) -> None:
        x[...] = stream.integers(0, 2**23, x.shape, np.int32)

    return {"x": cores.draw(rng, np.empty(task.shape, task.dtype), fill)}


def reference(task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks y: it must equal x at every element."""
    return accuracy.equal_to(arrays["x"], "equal to what was sent")


def arguments(task: Task, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return x, y and their length."""
    return arrays["x"], arrays["y"], np.uint64(task.shape[0])


LINKS = Operation(
    name="links",
    kernels="links",
    dimensions=("n",),
    operands=OPERANDS,
    dtypes=("int32", "float32", "float64"),
    scalars={},
    ladder=LADDER,
    metric="bytes",
    flops=flops,
    bytes=nbytes,
    draw=draw,
    reference=reference,
    arguments=arguments,
)
