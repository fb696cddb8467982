"""An operation with two dimensions: y = A x, a matrix times a vector."""

from pathlib import Path

import numpy as np

from hpcmm.model import Operand, Operation, Variant
from hpcmm.operations import accuracy


def draw(rng, task):
    m, n = task.shape
    return {"A": rng.random((m, n), task.dtype) - 0.5, "x": rng.random(n, task.dtype) - 0.5}


def reference(task, arrays):
    """Hold each element to gamma_n |A| |x| around a product in extended precision."""
    a, x = (arrays[name].astype(np.longdouble) for name in ("A", "x"))
    bound = accuracy.gamma(task.shape[1], task.element.unit_roundoff)
    truth, allowed = a @ x, bound * (np.abs(a) @ np.abs(x))
    return lambda got: accuracy.judge(got, truth, allowed, bound, "componentwise, extended precision")


def arguments(task, arrays):
    return (*map(np.int32, task.shape), arrays["A"], arrays["x"], arrays["y"])


def numpy_matvec(backend, task, arrays):
    return lambda: np.matmul(arrays["A"], arrays["x"], out=arrays["y"])


MATVEC = Operation(
    name="matvec",
    kernels="matvec",
    dimensions=("m", "n"),
    operands=(
        Operand("A", ("m", "n"), "rows", "in"),
        Operand("x", ("n",), "replicated", "in"),
        Operand("y", ("m",), "rows", "out"),
    ),
    dtypes=("float32", "float64"),
    scalars={},
    ladder=(
        Variant("by_rows", "cpu", "a dot product a row", path=Path(__file__).with_name("matvec.c")),
        Variant("numpy", "cpu", "NumPy's BLAS", library=numpy_matvec, deterministic=False),
    ),
    metric="bytes",
    flops=lambda task: 2 * task.shape[0] * task.shape[1],
    bytes=lambda task: (task.shape[0] * task.shape[1] + sum(task.shape)) * task.element.itemsize,
    draw=draw,
    reference=reference,
    arguments=arguments,
)
OPERATIONS = (MATVEC,)
