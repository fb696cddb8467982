"""float64 products made of int8 ones: every kernel but the product itself, on the host, against Python's integers."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks import task

from hpcmm import kernels
from hpcmm.backends.emulated.launch import ORDERS, HostKernel, on_device, poison
from hpcmm.model import Variant
from hpcmm.operations import residues
from hpcmm.operations.matmul import MATMUL

RUNGS = [variant for variant in MATMUL.ladder if isinstance(variant.geometry, residues.Residues)]
HEADER = kernels.FOLDER / "matmul" / "residues.cuh"
ROW = np.arange(128)  # of a layer of B, by the place in a row of C that the product writes its result to
ROW = ROW // 16 * 16 + ROW % 4 // 2 * 8 + ROW % 16 // 4 * 2 + ROW % 2


def functions_of(build, variant: Variant, text: str = HEADER.read_text()) -> Callable[[str], HostKernel]:
    """Return what compiles a function of a text for the host, by its name, with the macros of a rung."""
    macros = task(MATMUL, (1, 1, 1), variant.dtypes[0], variant=variant).macros
    return functools.partial(build, text, options=tuple(f"-D{key}={value}" for key, value in macros.items()))


def multiply(variant, matrices, scalars=(1.0, 0.0), *, functions, order="random"):
    """Run a rung, with the product of the layers by NumPy; return C and the workspace."""
    a, b, c = matrices
    (m, k), n = a.shape, b.shape[1]
    product = task(MATMUL, (m, n, k), "float64", dict(zip(("alpha", "beta"), scalars, strict=True)), variant)
    workspace = {name: poison(each.shape, each.dtype) for name, each in product.geometry.workspace(product).items()}
    arrays = {"A": on_device(a), "B": on_device(b), "C": on_device(c), **workspace}
    for launch in product.geometry.launches(product, arrays):
        if launch.function:
            functions(launch.function)(launch, order)
            continue
        count = variant.geometry.count
        of_a, of_b, of_c = (layers_of(arrays[f"layers_{x}"], count) for x in "abc")
        rows = np.arange(of_c.shape[2]) // 128 * 128 + np.tile(ROW, of_c.shape[2] // 128)
        for layer, modulus in enumerate(variant.geometry.moduli):
            x, y = (each[layer].view(np.int8).astype(np.int64) for each in (of_a, of_b))
            of_c[layer, :m] = x @ y[rows].T % modulus
    for name, x in (("A", a), ("B", b)):
        assert arrays[name].tobytes() == x.tobytes()
    return arrays["C"], workspace


def layers_of(whole: np.ndarray, count: int) -> np.ndarray:
    """Return the layers of an array, one modulus after the other."""
    rows, columns = whole.shape
    return whole.reshape(count, rows // count, columns)


def integer(x: float, scale: int) -> int:
    """x 2^scale, rounded to an integer, ties to even."""
    return round(Fraction(x) * Fraction(2) ** scale)


matrices = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@pytest.mark.slow
@pytest.mark.parametrize("variant", RUNGS, ids=lambda each: each.name)
@given(matrices, st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(0, 140)), st.integers(0, 40))
@settings(max_examples=3, deadline=None)
def test_integers_and_products_are_those_of_python(build, variant, rng, shape, spread):
    (m, n, k), functions, moduli = shape, functions_of(build, variant), variant.geometry.moduli
    a, b = (rng.standard_normal(size) * 2.0 ** rng.integers(-spread, spread + 1, size) for size in ((m, k), (k, n)))
    c = rng.standard_normal((m, n))
    alpha, beta = 1.5, -0.25
    got, workspace = multiply(variant, (a, b, c), (alpha, beta), functions=functions)
    half = math.prod(moduli) // 2
    scaled = []
    for name, vectors in (("scales_a", a), ("scales_b", b.T)):
        for scale, vector in zip(workspace[name].tolist(), vectors.tolist(), strict=True):
            norm = sum(Fraction(x) ** 2 for x in vector) * Fraction(4) ** scale
            assert norm <= half and (not norm or 4 * norm > half * 0.99)  # as large as can be
            scaled.append([integer(x, scale) for x in vector])
    rows, columns = scaled[:m], scaled[m:]
    place = np.arange(128) % 4 * 32 + np.arange(128) // 4  # of an element of k, by its place in a group
    of_a = layers_of(workspace["layers_a"].view(np.int8), len(moduli))
    for layer, modulus in enumerate(moduli):
        for i, row in enumerate(rows):
            for p in range(of_a.shape[2]):
                term = p // 128 * 128 + place[p % 128]
                assert (int(of_a[layer, i, p]) - (row[term] if term < k else 0)) % modulus == 0
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            whole = sum(x * y for x, y in zip(row, column, strict=True))
            unit = Fraction(2) ** (-int(workspace["scales_a"][i]) - int(workspace["scales_b"][j]))
            exact = whole * unit
            truth = Fraction(alpha) * exact + Fraction(beta) * Fraction(c[i, j])
            roundings = 4 * Fraction(2) ** -53 * (abs(alpha * exact) + abs(Fraction(beta) * Fraction(c[i, j])))
            # the sum of the low parts of the weights is rounded: 2^-76 of the largest product of integers
            assert abs(Fraction(got[i, j]) - truth) <= roundings + half * Fraction(2) ** -76 * unit


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_the_bits_do_not_depend_on_the_order_of_threads(build, order):
    rng, (variant, _) = np.random.default_rng(3), RUNGS
    matrices = [rng.uniform(-1, 1, size) for size in ((3, 130), (130, 5), (3, 5))]
    functions = functions_of(build, variant)
    expected, got = (multiply(variant, matrices, functions=functions, order=each)[0] for each in ("random", order))
    assert expected.tobytes() == got.tobytes()


def test_rows_and_columns_with_infinity_or_nan_are_nan_and_no_others(build):
    (variant, _), rng = RUNGS, np.random.default_rng(5)
    a, b, c = (rng.uniform(-1, 1, size) for size in ((4, 33), (33, 6), (4, 6)))
    a[1, 32], a[2, 0], b[7, 3] = np.inf, np.nan, -np.inf
    got, _ = multiply(variant, (a, b, c), functions=functions_of(build, variant))
    expected = np.zeros((4, 6), bool)
    expected[[1, 2]], expected[:, 3] = True, True
    np.testing.assert_array_equal(np.isnan(got), expected)
    right = np.nan_to_num(a, posinf=0) @ np.nan_to_num(b, neginf=0)
    np.testing.assert_allclose(got[~expected], right[~expected], rtol=0, atol=1e-13)


@pytest.mark.parametrize(("of_a", "of_b"), [(1000, -1000), (-1060, 900), (-1070, -1070), (1020, 1020), (0, -1074)])
def test_the_whole_range_of_exponents(build, of_a, of_b):
    """Also subnormal elements, whose scaling is no float64 number, and products that overflow or underflow."""
    (variant, _), rng = RUNGS, np.random.default_rng(6)
    a, b = (np.ldexp(rng.uniform(0.5, 1, size), of) for size, of in (((2, 9), of_a), ((9, 3), of_b)))
    got, _ = multiply(variant, (a, b, np.full((2, 3), np.nan)), functions=functions_of(build, variant))
    exact = [[sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)) for column in b.T] for row in a]
    for row, expected in zip(got, exact, strict=True):
        for x, truth in zip(row, expected, strict=True):
            if truth > Fraction(2) ** 1024:
                assert x == np.inf
            else:
                assert abs(Fraction(x) - truth) <= truth / 2**51 + Fraction(2) ** -1074


@pytest.mark.parametrize("variant", RUNGS, ids=lambda each: each.name)
def test_constants_are_those_of_the_chinese_remainder_theorem(variant):
    moduli, macros = variant.geometry.moduli, task(MATMUL, (1, 1, 1), "float64", variant=variant).macros
    product = math.prod(moduli)
    assert all(math.gcd(p, q) == 1 for p, q in itertools.combinations(moduli, 2)) and max(moduli) <= 256
    for weight, p in zip(residues.weights(moduli), moduli, strict=True):
        assert [weight % q for q in moduli] == [int(p == q) for q in moduli]
    highs = [float.fromhex(each) for each in macros["WEIGHTS_HIGH"].split(",")]
    assert all(float(int(high) * 256 * len(moduli)) == high * 256 * len(moduli) for high in highs)
    grid = math.gcd(*map(int, highs))
    assert sum(map(int, highs)) * 256 <= grid * 2**53  # so that every sum of them times residues is exact
    assert float(macros["LIMIT"].removesuffix("f")) < product / 2


@pytest.mark.parametrize("variant", RUNGS, ids=lambda each: each.name)
@given(sums=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1) | st.just([-(2**31), 2**31 - 1, 0, -1]))
def test_the_remainder_in_the_epilogue_is_a_byte(variant, sums):
    """The arithmetic of the product's epilogue, with Python's integers; also next to multiples of the modulus."""
    macros = task(MATMUL, (1, 1, 1), "float64", variant=variant).macros
    for p, reciprocal in zip(variant.geometry.moduli, map(int, macros["RECIPROCALS"].split(",")), strict=True):
        assert reciprocal < 2**31
        for each in sums:
            for x in (each, each - each % p, each - each % p - 1):
                if -(2**31) <= x < 2**31:
                    remainder = x - (x * reciprocal >> 32 >> 6) * p
                    assert 0 <= remainder <= 255 and (remainder - x) % p == 0


def compiled(build, variant: Variant) -> Callable[[str], HostKernel]:
    """Return what compiles a function of the source of a rung."""
    return functions_of(build, variant, kernels.source(MATMUL, variant).read_text())


@pytest.mark.parametrize("order", ORDERS)
def test_the_products_of_residues_on_the_host(build, order):
    """The kernel with tensor cores and TMA, for two moduli: every element of each layer."""
    variant = dataclasses.replace(RUNGS[0], geometry=residues.Residues(2))
    product = task(MATMUL, (70, 130, 200), "float64", {"alpha": 1.0, "beta": 0.0}, variant, multiprocessors=3)
    rng, sizes = np.random.default_rng(8), {"A": (70, 200), "B": (200, 130), "C": (70, 130)}
    arrays = {name: on_device(np.zeros(size)) for name, size in sizes.items()}
    for name, each in product.geometry.workspace(product).items():
        arrays[name] = on_device(rng.integers(0, 256, each.shape, each.dtype))
    (launch,) = (each for each in product.geometry.launches(product, arrays) if not each.function)
    compiled(build, variant)("matmul")(launch, order, dynamic_bytes=launch.shared_bytes)
    of_a, of_b, of_c = (layers_of(arrays[f"layers_{x}"], 2) for x in "abc")
    rows = np.arange(256) // 128 * 128 + np.tile(ROW, 2)
    for layer, modulus in enumerate(variant.geometry.moduli):
        truth = of_a[layer].view(np.int8).astype(int) @ of_b[layer].view(np.int8).astype(int)[rows].T
        assert ((of_c[layer, :70] - truth) % modulus == 0).all()
