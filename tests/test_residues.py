"""float64 products made of int8 ones: every kernel but the product itself, on the host, against Python's integers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tasks import task

from hpcmm import kernels
from hpcmm.backends.emulated.launch import COMPILER, compile_kernel, on_device, poison
from hpcmm.operations import residues
from hpcmm.operations.matmul import MATMUL

RUNGS = [variant for variant in MATMUL.ladder if isinstance(variant.geometry, residues.Residues)]
HEADER = kernels.FOLDER / "matmul" / "residues.cuh"
FUNCTIONS = ("scale_rows", "scale_columns", "split_rows", "split_columns", "recombine")
NOT_FINITE = 2**31 - 1
ROW = np.arange(128)  # of a layer of B, by the place in a row of C that the product writes its result to
ROW = ROW // 16 * 16 + ROW % 4 // 2 * 8 + ROW % 16 // 4 * 2 + ROW % 2
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ on this machine")


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Compile the functions of a text for the host, with the macros of a rung."""
    folder, built = tmp_path_factory.mktemp("residues"), {}

    def build(variant, text=""):
        text = text or HEADER.read_text()
        if (variant.name, text) not in built:
            source = folder / f"{len(built)}.cu"
            source.write_text(text)
            macros = task(MATMUL, (1, 1, 1), "float64", variant=variant).macros
            options = tuple(f"-D{key}={value}" for key, value in macros.items() if key in text)
            built[variant.name, text] = {name: compile_kernel(source, name, options, folder) for name in FUNCTIONS}
        return built[variant.name, text]

    return build


def multiply(variant, a, b, c, alpha=1.0, beta=0.0, *, functions, order="random"):
    """Run a rung, with the product of the layers by NumPy; return C and the workspace."""
    (m, k), n = a.shape, b.shape[1]
    product = task(MATMUL, (m, n, k), "float64", {"alpha": alpha, "beta": beta}, variant)
    workspace = {name: poison(each.shape, each.dtype) for name, each in product.geometry.workspace(product).items()}
    arrays = {"A": on_device(a), "B": on_device(b), "C": on_device(c), **workspace}
    for launch in product.geometry.launches(product, arrays, 132):
        if launch.function:
            functions[launch.function](launch, order)
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


@pytest.mark.parametrize("variant", RUNGS, ids=lambda each: each.name)
@given(rng=matrices, m=st.integers(1, 9), n=st.integers(1, 40), k=st.integers(0, 140), spread=st.integers(0, 40))
@settings(max_examples=12, deadline=None)
def test_integers_and_products_are_those_of_python(build, variant, rng, m, n, k, spread):
    functions, moduli = build(variant), variant.geometry.moduli
    a, b = (rng.standard_normal(size) * 2.0 ** rng.integers(-spread, spread + 1, size) for size in ((m, k), (k, n)))
    c = rng.standard_normal((m, n))
    alpha, beta = 1.5, -0.25
    got, workspace = multiply(variant, a, b, c, alpha, beta, functions=functions)
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


def test_any():
    pass
