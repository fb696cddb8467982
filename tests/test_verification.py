"""Bounds of the verification of products: right results are far below them, and planted errors above."""

import itertools

import detection
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_operations import seed_judges

from hpcmm.backends import open_backend
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.model.measurement import Point
from hpcmm.operations import accuracy, task_of, truth, wide
from hpcmm.operations.matmul import MATMUL
from hpcmm.report import definitions


def problem(shape, dtype, seed=1, variant="cublas", **scalars):
    task = task_of(Point("matmul", variant, shape, dtype, 1, scalars or {"alpha": 1.5, "beta": 0.5}))
    return task, MATMUL.draw(np.random.default_rng(seed), task)


def numbers_of(task, arrays, real):
    a, b = (task.element.numbers(arrays[name]).astype(real) for name in "AB")
    return a, b, task.element.results.numbers(arrays["C"]).astype(real)


def finished(task, product, c):
    """Return alpha A B + beta C, rounded to the type of the result."""
    real, (alpha, beta) = product.dtype.type, (task.scalars[name] for name in ("alpha", "beta"))
    return task.element.results.stored(real(alpha) * product + (real(beta) * c if beta else 0))


def sequential(a, b):
    """A product whose terms are added one after the other: the longest walk of roundings."""
    total = np.zeros((len(a), b.shape[1]), a.dtype)
    for column, row in zip(a.T, b, strict=True):
        total += np.outer(column, row)
    return total


def truncated(x):
    """Numbers in float64, truncated to float32."""
    near = x.astype(np.float32)
    return np.where(abs(near.astype(float)) > abs(x), np.nextafter(near, np.float32(0)), near)


def on_tensor_cores(a, b, terms):
    """A product whose sums of some terms are exact, and truncated when they are added to the accumulator."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for first in range(0, a.shape[1], terms):
        part = slice(first, first + terms)
        total = truncated(total + a[:, part].astype(float) @ b[part].astype(float))
    return total


def check_half_of_walk(judge, stored):
    """Check that a product passes, with errors of elements and of sums below half of what holds in all likelihood.

    What rounding never exceeds is no part of the bound of an element here: a right result may reach it.
    """
    assert judge(stored).passed
    found = judge.truth
    found.gamma, found.stored, before = np.inf, 0.0, found.stored
    expected = found.elements(np.arange(len(stored)))
    found.stored = before
    got = judge.results.numbers(stored)
    error = np.maximum(0, abs(got - expected.numbers) - before * abs(expected.numbers))
    assert max((error / expected.allowed).max(), *(each.share for each in judge.compare_sums(stored))) < 0.5


SCALARS = st.sampled_from([(1.5, 0.5), (1.0, 0.0), (-2.0, 3.0), (2.0**-7, -5.0)])
SHAPES = (1, 1, 1), (17, 1, 3), (1, 33, 3000), (97, 31, 129), (300, 5, 7), (3, 500, 2), (40, 30, 2049)
GRADED = {
    "uniform": lambda x, rng: x,
    "positive": lambda x, rng: abs(x),
    "elements": lambda x, rng: x * 10.0 ** rng.uniform(-4, 4, x.shape),
    "terms": lambda x, rng: x * 10.0 ** rng.uniform(-4, 4, (1, x.shape[1])),
    "one large term": lambda x, rng: np.where(np.arange(x.shape[1]) == 0, 1.0, 1e-3 * x),
}


@given(
    dtype=st.sampled_from(["float32", "float64"]),
    shape=st.sampled_from(SHAPES),
    scalars=SCALARS,
    kind=st.sampled_from(list(GRADED)),
    order=st.sampled_from([sequential, np.matmul]),
    seed=st.integers(0, 999),
)
def test_right_products_of_any_data_are_below_half_of_the_walk(dtype, shape, scalars, kind, order, seed):
    task, arrays = problem(shape, dtype, seed, alpha=scalars[0], beta=scalars[1])
    rng = np.random.default_rng(seed)
    arrays["A"] = GRADED[kind](arrays["A"], rng).astype(dtype)
    arrays["B"] = GRADED[kind](arrays["B"].T, rng).T.astype(dtype)
    a, b, c = numbers_of(task, arrays, dtype)
    check_half_of_walk(truth.Judge(task, arrays), finished(task, order(a, b), c))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("terms", "k"), [(1, 1000), (4, 4096), (8, 8192), (16, 16384)])
def test_right_products_in_16_bits_are_below_half_of_the_walk_also_if_truncated(dtype, terms, k):
    task, arrays = problem((48, 40, k), dtype)
    a, b, c = numbers_of(task, arrays, np.float32)
    got = finished(task, sequential(a, b) if terms == 1 else on_tensor_cores(a, b, terms), c)
    check_half_of_walk(truth.Judge(task, arrays), got)


@pytest.mark.parametrize("k", [3, 100, 10000])
def test_products_of_inputs_truncated_to_tf32_are_below_half_of_their_walk(k):
    task, arrays = problem((48, 40, k), "float32", variant="cublas_tf32")
    a, b, c = numbers_of(task, arrays, np.float32)
    a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    judge, got = truth.Judge(task, arrays), finished(task, a @ b, c)
    check_half_of_walk(judge, got)
    plain = problem((48, 40, k), "float32")[0]
    assert not truth.Judge(plain, arrays)(got).passed
    if k == 10000:  # less than the errors of all terms together, at most 7
        got[5, 7] += 2
        assert not judge(got).passed


@pytest.fixture
def large(monkeypatch):
    """Products that are too large to compare all elements on the host: here, of any size."""
    seed_judges(monkeypatch)
    monkeypatch.setattr(accuracy, "COMPONENTWISE_LIMIT", 0)
    monkeypatch.setattr(truth, "SAMPLED_ROWS", 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_wrong_rows_and_blocks_of_long_products_in_16_bits_are_found(large, dtype):
    """In sums that allowed the unit roundoff of the stored type for each term, none was: here, k is large beside n."""
    task, arrays = problem((200, 256, 16384), dtype)
    a, b, c = numbers_of(task, arrays, np.float32)
    right = np.float32(1.5) * (a @ b) + np.float32(0.5) * c
    judge, stored = truth.Judge(task, arrays), task.element.results.stored
    assert judge(stored(right)).passed

    def wrong(at, value):
        got = right.copy()
        got[at] = value
        return judge(stored(got))

    free = [i for i in range(200) if i not in judge.rows][:2]  # rows that are not sampled
    assert not wrong(free[0], 0).passed
    assert not wrong(free[0], c[free[0]]).passed
    assert not wrong(free, right[free[::-1]]).passed
    at = np.s_[free[0] : free[0] + 64, 64:128]
    assert not wrong(at, c[at]).passed
    assert not wrong(at, right[at] / 2).passed
    assert not wrong((free[0], 3), np.inf).passed


@pytest.mark.parametrize("errors", [[[1, 1], [1, 1]], [[1, -1], [-1, 1]]], ids=["alike", "opposite"])
def test_errors_that_cancel_in_the_sums_of_some_signs_are_found_by_others(large, monkeypatch, errors):
    """Errors of one size cancel in the sums of both rows and both columns for a quarter of the signs."""
    task, arrays = problem((300, 200, 8), "float32")
    a, b, c = numbers_of(task, arrays, np.float64)
    got = finished(task, a @ b, c)
    got[np.ix_([7, 250], [3, 190])] += 0.01 * np.array(errors)
    seed_judges(monkeypatch, itertools.count())
    judges = [truth.Judge(task, arrays) for _ in range(40)]
    assert len({int(row) for judge in judges for row in judge.rows}) > 30, "sampled anywhere"
    assert sum(judge(got).passed for judge in judges) <= 1


def test_the_first_of_several_wrong_rows_is_named(large, monkeypatch):
    """Whichever are among the sampled ones."""
    monkeypatch.setattr(truth, "SAMPLED_ROWS", 150)
    task, arrays = problem((300, 200, 8), "float32")
    a, b, c = numbers_of(task, arrays, np.float64)
    got, judge = finished(task, a @ b, c), truth.Judge(task, arrays)
    free, sampled = next(i for i in range(300) if i not in judge.rows), int(judge.rows[-1])
    got[[free, sampled], 5] += 1
    assert free < sampled and judge(got).where.startswith(f"{free}:5: ")


def test_an_error_of_few_roundings_of_a_row_in_16_bits_is_found(large):
    task, arrays = problem((300, 200, 8), "bfloat16")
    a, b, c = numbers_of(task, arrays, np.float64)
    judge, right = truth.Judge(task, arrays), 1.5 * (a @ b) + 0.5 * c
    row = (judge.rows[0] + 1) % 300  # is not sampled
    right[row, 5] += 40 * 2.0**-8 * np.linalg.norm(right[row])
    assert not judge(task.element.results.stored(right)).passed


def test_a_reference_has_all_columns_of_the_last_panel(monkeypatch):
    monkeypatch.setattr(truth, "PANEL", 8)
    task, arrays = problem((70, 73, 5), "float32", alpha=1.0, beta=0.0)
    a, b, _ = numbers_of(task, arrays, np.float64)
    np.testing.assert_allclose(truth.Truth(task, arrays).elements(np.arange(70)).numbers, a @ b, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("size", "error"), [(512, 6.8e-4), (1024, 6.5e-4)])
def test_the_largest_error_of_bfloat16_is_relative_to_the_magnitudes(size, error):
    task, arrays = problem((size, size, size), "bfloat16")
    a, b, c = numbers_of(task, arrays, np.float64)
    got = finished(task, a @ b, c)
    verdict = truth.Judge(task, arrays)(got)
    magnitude = 1.5 * (abs(a) @ abs(b)) + 0.5 * abs(c)
    relative = abs(task.element.results.numbers(got) - (1.5 * (a @ b) + 0.5 * c)) / magnitude
    assert verdict.passed and verdict.error <= verdict.bound
    assert verdict.error == pytest.approx(relative.max(), rel=1e-6) == pytest.approx(error, rel=0.1)
    assert verdict.rms == pytest.approx(np.sqrt(np.mean(relative**2)), rel=1e-6)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return open_backend(request.param, 1, 0, True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "float8_e4m3"])
@pytest.mark.parametrize("shape", [(70, 45, 300), (16, 16, 1), (2, 100, 40), (33, 1, 64)])
def test_one_wrong_element_of_a_large_product_is_found_with_its_place(large, monkeypatch, device, dtype, shape):
    monkeypatch.setattr(wide, "BLOCK", 16)
    for beta in (0, 2):
        task, arrays = problem(shape, dtype, alpha=3, beta=beta)
        a, b, c = numbers_of(task, arrays, np.float64)
        right = 3 * (a @ b) + (beta * c if beta else 0)
        judge, results = truth.Judge(task, arrays, device), task.element.results
        assert judge(results.stored(right)).passed
        for i, j in itertools.product({0, shape[0] // 2, shape[0] - 1}, {0, shape[1] - 1}):
            got = right.copy()
            got[i, j] = 10 * got[i, j] + 1
            verdict = judge(results.stored(got))
            assert not verdict.passed and verdict.where.startswith(f"{i}:{j}: ")
            assert verdict.reference.startswith("componentwise, product of the library, float64, signs")
        got[0, 0] = np.inf if not task.element.is_integer else -1e9
        with np.errstate(invalid="ignore", over="ignore"):
            assert not judge(results.stored(got)).passed


def test_a_comparison_of_all_elements_has_the_error_and_the_mean_of_one_on_the_host(monkeypatch, device):
    monkeypatch.setattr(wide, "BLOCK", 32)
    task, arrays = problem((70, 45, 300), "bfloat16")
    a, b, c = numbers_of(task, arrays, np.float64)
    got = finished(task, a @ b, c)
    here = truth.Judge(task, arrays)(got)
    monkeypatch.setattr(accuracy, "COMPONENTWISE_LIMIT", 0)
    there = truth.Judge(task, arrays, device)(got)
    assert (there.error, there.rms) == pytest.approx((here.error, here.rms), rel=1e-9)


class Other(CpuBackend):
    """A device whose library, memory or speed is not as it should be."""

    free = 1 << 40
    factor = 1.0

    def upload(self, array):
        return array * array.dtype.type(self.factor) if array.dtype == np.float32 and array.ndim == 2 else array

    def free_bytes(self):
        return self.free


@pytest.mark.parametrize(
    ("fault", "seconds"), [({"factor": 1.0 + 2**-9}, np.inf), ({"free": 10_000}, np.inf), ({}, 0.0)]
)
def test_a_product_of_a_library_that_is_wrong_large_or_slow_is_not_used(large, monkeypatch, fault, seconds):
    monkeypatch.setattr(wide, "BLOCK", 16)
    device = Other(1)
    vars(device).update(fault)
    task, arrays = problem((40, 30, 50), "float32")
    a, b, c = numbers_of(task, arrays, np.float64)
    judge = truth.Judge(task, arrays, device, seconds)
    right = finished(task, a @ b, c).astype(np.float32)
    for _ in range(2):
        verdict = judge(right)
        assert verdict.passed and verdict.reference.startswith("Freivalds and 1 rows componentwise, float64, ")


def test_float64_has_no_wider_type_in_which_a_library_multiplies(large):
    task, arrays = problem((40, 30, 50), "float64")
    judge, (a, b, c) = truth.Judge(task, arrays, CpuBackend(1)), numbers_of(task, arrays, np.float64)
    assert judge(finished(task, a @ b, c)).reference.startswith("Freivalds and 1 rows componentwise")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", detection.TYPES)
def test_the_table_of_detection_is_what_planted_errors_show(monkeypatch, dtype):
    seed_judges(monkeypatch)
    header, *rows = definitions.of("detection").table
    product = detection.Product(dtype, 4096)
    assert product.found(product.right, np.arange(detection.ROWS)) == (False, False)
    assert [row[0] for row in rows] == list(detection.ERRORS)
    for error, *cells in rows:
        said = [int(each) for each in cells[header.index(f"{dtype}, 4096") - 1].split(" / ")]
        assert detection.shares(product, error, 9)[: len(said)] == pytest.approx(said, abs=25), error
