"""Kernels that prepare A and B for products in another arithmetic, run on the host against NumPy."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tasks import tabled, task

from hpcmm import kernels
from hpcmm.backends.emulated.launch import ORDERS, on_device, poison
from hpcmm.operations.matmul import MATMUL

LEAST_EXPONENT = -126  # in numpy.frexp, of numbers below the smallest normal float32
sizes = st.integers(1, 70)


# small blocks and its narrowest tile in few stages, so that the host runs each loop several times
RUNG = MATMUL.variant("three_fp16")
TILE = [RUNG.geometry.choices[-1].columns, 3]
RUNG = dataclasses.replace(RUNG, geometry=tabled(RUNG.name, TILE, constants={"SPLIT_PARTS": 2, "SPLIT_BLOCK": 64}))


SOURCES = {"split": kernels.FOLDER / "matmul" / "fp16_parts.cuh", "": kernels.source(MATMUL, RUNG)}  # by function
OPTIONS = tuple(f"-D{key}={value}" for key, value in task(MATMUL, (64,) * 3, variant=RUNG).macros.items())


def launched(build, inputs: dict, scalars: dict, order: str, aligned: bool, whole: bool = True) -> dict:
    """The arrays of the rung after its launches, without the last one if not ``whole``."""
    (m, k), n = inputs["A"].shape, inputs["B"].shape[1]
    product = task(MATMUL, (m, n, k), "float32", scalars, RUNG, multiprocessors=3)
    arrays = {}
    for name, x in inputs.items():
        pitch = -(-x.shape[1] // 4) * 4 + (4 if aligned else 1)
        padded = on_device(np.full((len(x), pitch), np.nan, np.float32))
        arrays[name] = padded[:, : x.shape[1]]
        arrays[name][...] = x
    arrays |= {name: poison(each.shape, each.dtype) for name, each in product.workspace.items()}
    for launch in product.geometry.launches(product, arrays):
        if launch.function or whole:
            kernel = build(SOURCES[launch.function].read_text(), launch.function or "matmul", OPTIONS)
            kernel(launch, order, dynamic_bytes=launch.shared_bytes)
    return arrays


def prepared(build, a: np.ndarray, b: np.ndarray, order: str, aligned: bool) -> dict[str, np.ndarray]:
    """The workspace of the rung before its product."""
    inputs = {"A": a, "B": b, "C": np.zeros((len(a), b.shape[1]), np.float32)}
    return launched(build, inputs, {"alpha": 1.0, "beta": 0.0}, order, aligned, whole=False)


def graded(rng: np.random.Generator, shape: tuple[int, int], binades: float) -> np.ndarray:
    """Numbers of both signs over so many binades, and some zeros."""
    x = rng.choice([-1, 1], shape) * rng.uniform(1, 2, shape) * 2.0 ** rng.uniform(-binades, binades, shape)
    x[rng.random(shape) < 0.1] = 0
    return x.astype(np.float32)


def scaled_by(largest: float) -> int:
    """The exponent that brings a number into [2^14, 2^15)."""
    return 15 - (max(int(np.frexp(largest)[1]), LEAST_EXPONENT) if largest else LEAST_EXPONENT)


def parts(x: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The high and low parts of scaled numbers."""
    scaled = np.ldexp(x.astype(np.float64), exponents)
    high = scaled.astype(np.float16)
    return high, (scaled - high).astype(np.float16)


def blocks(high: np.ndarray, low: np.ndarray, terms: int = 32) -> np.ndarray:
    """High and low parts in turns along the first dimension, padded with zeros to whole blocks of terms."""
    padding = ((0, -len(high) % terms), (0, 0))
    pair = [np.pad(each, padding).reshape(-1, terms, high.shape[1]) for each in (high, low)]
    return np.concatenate(pair, 1).reshape(-1, high.shape[1])


@settings(deadline=None, max_examples=25)
@given(m=sizes, n=sizes, k=sizes, binades=st.sampled_from([1, 12, 60]), seed=st.integers(0, 2**32 - 1))
@example(m=3, n=5, k=1, binades=1, seed=0)
@example(m=2, n=64, k=32, binades=12, seed=0)
@example(m=1, n=33, k=65, binades=60, seed=0)
def test_fp16_parts_of_float32(build, m, n, k, binades, seed):
    rng = np.random.default_rng(seed)
    a, b = graded(rng, (m, k), binades), graded(rng, (k, n), binades)
    got = prepared(build, a, b, ORDERS[seed % len(ORDERS)], aligned=seed % 2 == 0)
    for x, stored, inverse in (
        (a.T, got["parts_a"].T, got["inverse_a"]),
        (b, got["parts_b"][:, :n], got["inverse_b"][:n]),
    ):
        largest = abs(x).max(0, initial=0)
        exponents = np.array([scaled_by(each) for each in largest])
        high, low = parts(x, exponents)
        np.testing.assert_array_equal(stored, blocks(high, low))
        np.testing.assert_array_equal(inverse.astype(np.float64).prod(1), np.ldexp(1.0, -exponents))
        # what the parts keep: one bit less than float32, or 2^-40 of the largest element of the row or column
        lost = abs(x - np.ldexp(high.astype(np.float64) + low, -exponents))
        assert np.all(lost <= np.maximum(2.0**-23 * abs(x), 2.0**-39 * largest))
    assert not got["parts_b"][:, n:].any()


def product_of(got: dict[str, np.ndarray], n: int) -> np.ndarray:
    """The three products of parts, exact but for float64, with the scaling undone."""
    m, terms = got["parts_a"].shape
    of_a = got["parts_a"].astype(np.float64).reshape(m, terms // 64, 2, 32)
    of_b = got["parts_b"][:, :n].astype(np.float64).reshape(terms // 64, 2, 32, n)
    high_a, low_a = (of_a[:, :, part].reshape(m, -1) for part in (0, 1))
    high_b, low_b = (of_b[:, part].reshape(-1, n) for part in (0, 1))
    inverse_a, inverse_b = got["inverse_a"].astype(np.float64).prod(1), got["inverse_b"][:n].astype(np.float64).prod(1)
    with np.errstate(invalid="ignore"):
        return (low_a @ high_b + high_a @ low_b + high_a @ high_b) * inverse_a[:, None] * inverse_b


@settings(deadline=None, max_examples=15)
@given(shape=st.tuples(sizes, sizes, sizes), seed=st.integers(0, 2**32 - 1))
def test_products_of_parts_are_as_exact_as_float32(build, shape, seed):
    m, n, k = shape
    rng = np.random.default_rng(seed)
    a, b = graded(rng, (m, k), 4), graded(rng, (k, n), 4)
    got = prepared(build, a, b, "ascending", True)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    error = abs(product_of(got, n) - wide_a @ wide_b)
    # 2^-23 of each factor is lost, and the product of the low parts is left out
    assert np.all(error <= (2 * 2.0**-23 + 2.0**-22) * 1.01 * (abs(wide_a) @ abs(wide_b)))


def test_an_infinity_or_nan_makes_nan_of_its_row_or_column(build):
    a, b = np.ones((4, 40), np.float32), np.ones((40, 9), np.float32)
    a[1, 3], a[2, 39], b[5, 7] = np.inf, np.nan, -np.inf
    got = product_of(prepared(build, a, b, "ascending", True), 9)
    expected = np.full((4, 9), 40.0)
    expected[[1, 2]] = expected[:, 7] = np.nan
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("order", ORDERS)
def test_products_on_the_host(build, order):
    """Tiles inside C and at its ends, more tiles than blocks, sums of several chunks, few terms and none, views."""
    for shape, alpha, beta, aligned in (
        ((130, 72, 200), 1.5, 0.5, True),
        ((128, 136, 33), -2.0, 0.0, False),
        ((5, 66, 16), 1.0, 1.0, True),
        ((3, 2, 0), 1.0, 2.0, True),
        ((140, 10, 36), 1.5, 0.5, False),
    ):
        product = task(MATMUL, shape, "float32", {"alpha": alpha, "beta": beta}, RUNG)
        inputs = MATMUL.draw(np.random.default_rng(shape), product)
        got = launched(build, inputs, {"alpha": alpha, "beta": beta}, order, aligned)["C"]
        a, b = inputs["A"].astype(np.float64), inputs["B"].astype(np.float64)
        c = inputs["C"].astype(np.float64) if beta else np.zeros(got.shape)
        size = abs(alpha) * (abs(a) @ abs(b)) + abs(beta * c)
        relative = (shape[2] + 2) * 2.0**-24 + ((1 + product.arithmetic.input_roundoff) ** 2 - 1)
        assert np.all(abs(got - (alpha * (a @ b) + beta * c)) <= 1.01 * relative * size)
