"""The rungs with Strassen's algorithm: their kernels on the host, products by NumPy, and their error bound."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcmm import kernels
from hpcmm.backends.emulated.launch import ORDERS, on_device, poison
from hpcmm.model import Geometry, Task, Variant
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.launch import Launch
from hpcmm.operations import OPERATIONS
from hpcmm.operations.truth import strassen_bound

MATMUL = OPERATIONS["matmul"]
TYPES = ("float32", "float64", "bfloat16")


class OnHost(Geometry):
    """A launch that gets the operands of a product."""

    def launches(self, task, arrays):
        return [Launch((1,), (1,), tuple(arrays[name] for name in "ABC"), function="product")]


HOST = Variant("on_host", "cuda", "NumPy's product", dtypes=TYPES, geometry=OnHost())
OPERATION = dataclasses.replace(MATMUL, ladder=(*MATMUL.ladder, HOST))


def task_of(rung: str, dtype: str, shape, beta: float) -> Task:
    variant = MATMUL.variant(rung)
    geometry = dataclasses.replace(variant.geometry, rung="on_host")
    scalars = {"alpha": 1.5, "beta": beta}
    return Task(OPERATION, dataclasses.replace(variant, geometry=geometry), shape, dtype, scalars, multiprocessors=132)


def multiply(build, task: Task, a, b, c, order="random"):
    """Run a rung with NumPy's products, which are rounded to the type, on stored elements; return C."""
    element = task.element
    arrays = {"A": on_device(a), "B": on_device(b), "C": on_device(c)}
    arrays |= {name: poison(each.shape, each.dtype) for name, each in task.workspace.items()}
    for launch in task.geometry.launches(task, arrays):
        if launch.function == "product":
            x, y, product = launch.arguments
            product[...] = element.stored(element.numbers(x) @ element.numbers(y))
        else:
            options = tuple(f"-D{key}={value}" for key, value in task.macros.items())
            build(kernels.source(MATMUL, task.variant).read_text(), launch.function or "matmul", options)(launch, order)
    assert arrays["A"].tobytes() == a.tobytes() and arrays["B"].tobytes() == b.tobytes()
    return arrays["C"]


def drawn(rng, shape, dtype, kind):
    """Return random A and B: uniform, positive, or graded by rows of A and columns of B over 60 binades."""
    m, n, k = shape
    a, b = rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))
    if kind == "positive":
        a, b = abs(a), abs(b)
    if kind == "graded":
        a *= 2.0 ** rng.integers(-30, 30, (m, 1))
        b *= 2.0 ** rng.integers(-30, 30, (1, n))
    return DTYPES[dtype].stored(a), DTYPES[dtype].stored(b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "kind", "dtype"),
    [
        *(("strassen_1", "uniform", "float32"), ("strassen_1", "positive", "bfloat16")),
        *(("strassen_1", "graded", "float64"), ("strassen_3", "graded", "float32")),
    ],
)
def test_errors_are_within_the_proved_bound(build, rung, dtype, kind):
    rng = np.random.default_rng(3)
    element, levels = DTYPES[dtype], int(rung[-1])
    for shape, beta in (((130, 77, 201), 0.5), ((64, 300, 33), 0.0), ((257, 129, 16), 0.5)):
        a, b = drawn(rng, shape, dtype, kind)
        c = element.stored(rng.uniform(-1, 1, shape[:2]) if beta else np.full(shape[:2], np.nan))
        got = element.numbers(multiply(build, task_of(rung, dtype, shape, beta), a, b, c)).astype(np.longdouble)
        a, b, c = (element.numbers(each).astype(np.longdouble) for each in (a, b, c))
        start = beta * c if beta else 0.0
        truth = 1.5 * (a @ b) + start
        largest, u = abs(a).max(axis=1)[:, None] * abs(b).max(axis=0), element.unit_roundoff
        error, ends = abs(got - truth), 3 * u * (abs(truth) + abs(start))
        assert (error <= 1.5 * strassen_bound(shape[2], levels, element.sums.unit_roundoff, u) * largest + ends).all()
        assert (error <= 4**levels * u * shape[2] * largest + ends).all()  # and far below it


@pytest.mark.parametrize("rung", ["strassen_1", "strassen_2"])
@given(shape=st.tuples(*[st.integers(0, 140)] * 3), order=st.sampled_from(ORDERS), beta=st.sampled_from((0.0, 0.5)))
@settings(max_examples=12, deadline=None)
def test_integers_have_exact_products_at_any_shape(build, rung, shape, order, beta):
    m, n, k = shape
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((m, k), (k, n)))
    c = rng.integers(-8, 9, (m, n)).astype(np.float32)
    old = c if beta else np.full_like(c, np.nan)
    got = multiply(build, task_of(rung, "float32", shape, beta), a, b, old, order)
    np.testing.assert_array_equal(got, 1.5 * (a @ b) + (beta * c if beta else 0))
