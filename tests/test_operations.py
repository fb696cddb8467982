"""The records of functions behind each operation: sizes, inputs, truths, bounds and launches."""

import itertools
import os
import re
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks import task

from hpcmm.bench.errors import of_kind
from hpcmm.model import Task, Variant, Verdict
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations import OPERATIONS, accuracy, reduction, sums, truth
from hpcmm.operations.links import LINKS
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.memory import COPY
from hpcmm.operations.reduction import MAXIMUM, MINIMUM, SUM, Passes, identity
from hpcmm.operations.tabled import CACHED_BYTES, MIN_SAVED_STEPS, MIN_STEPS, NEAR, stream_k
from hpcmm.operations.vector_add import VECTOR_ADD

SHAPE = (24, 40, 50)
sizes = st.integers(1, 10_000)


def drawn(asked: Task, seed: int = 3) -> tuple:
    """The inputs of a task, and the judge of its results."""
    arrays = asked.operation.draw(np.random.default_rng(seed), asked)
    return arrays, asked.operation.reference(asked, arrays)


def product_of(arrays, alpha: float = 1.5, beta: float = 0.5, real=np.longdouble) -> np.ndarray:
    a, b, c = (arrays[name].astype(real) for name in "ABC")
    return alpha * (np.einsum("ip,pj->ij", a, b) if real == np.longdouble else a @ b) + beta * c


# --- accuracy ----------------------------------------------------------------------------------------------------


@given(
    st.tuples(*[st.integers(1, 6)] * 3),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(-200, 200), min_size=12, max_size=12),
)
def test_exact_product_is_far_more_precise_than_float64(shape, seed, exponents):
    m, n, k = shape
    rng = np.random.default_rng(seed)
    a = np.ldexp(rng.uniform(-1, 1, (m, k)), np.array(exponents[:m])[:, None])
    b = np.ldexp(rng.uniform(-1, 1, (k, n)), np.array(exponents[6 : 6 + n]))
    got = accuracy.exact_product(a, b)
    for i in range(m):
        for j in range(n):
            exact = sum(Fraction(a[i, p]) * Fraction(b[p, j]) for p in range(k))
            scale = Fraction(abs(a[i]).max()) * Fraction(abs(b[:, j]).max())
            mantissa, exponent = np.frexp(got[i, j])  # a Fraction takes no longdouble: give it two float64 parts
            high = float(mantissa)
            result = (Fraction(high) + Fraction(float(mantissa - high))) * Fraction(2) ** int(exponent)
            assert abs(result - exact) <= scale * k / 2**62


def test_exact_product_of_graded_rows_is_exact_relative_to_the_sum_of_magnitudes():
    rng = np.random.default_rng(4)
    a, b = (np.exp(4 * rng.standard_normal(size)) * rng.choice([-1, 1], size) for size in ((5, 600), (600, 6)))
    got = accuracy.exact_product(a, b)
    for i in range(5):
        for j in range(6):
            terms = [Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True)]
            high = float(got[i, j])
            result = Fraction(high) + Fraction(float(got[i, j] - high))
            assert abs(result - sum(terms)) <= sum(map(abs, terms)) / 2**60


def test_exact_product_of_long_rows_and_of_zeros():
    rng = np.random.default_rng(0)
    a = rng.integers(-(2**20), 2**20, (2, 3000))
    b = rng.integers(-(2**20), 2**20, (3000, 3))
    a[1] = 0
    np.testing.assert_array_equal(accuracy.exact_product(a.astype(float), b.astype(float)), a @ b)
    a, b = 1 - rng.random((1, 3000)) / 1000, 1 - rng.random((3000, 1)) / 1000  # whose slices have all their bits
    got = accuracy.exact_product(a, b)[0, 0]
    exact = sum(Fraction(x) * Fraction(y) for x, y in zip(a[0], b[:, 0], strict=True))
    assert abs(Fraction(float(got)) + Fraction(float(got - np.longdouble(float(got)))) - exact) <= exact / 2**62


def test_gamma_bounds_a_sum_of_roundings():
    assert accuracy.gamma(1, 2.0**-53) == pytest.approx(2.0**-53, rel=1e-12, abs=0)
    assert accuracy.gamma(2**20, 2.0**-24) == pytest.approx(1 / 15)
    with pytest.raises(ValueError, match="no rounding bound for 16777216 terms with a unit roundoff of 5"):
        accuracy.gamma(2**24, 2.0**-24)


def test_the_error_is_the_largest_ratio_to_the_bound():
    truth, allowed = np.array([1.0, 2.0, 3.0]), np.array([0.1, 1.0, 0.0])
    verdict = accuracy.judge(np.array([1.02, 2.5, 3.0]), truth, allowed, 1e-3, "by hand")
    assert verdict == Verdict(True, pytest.approx(0.5e-3), 1e-3, "by hand")
    # where no error is allowed, it is shown as it is
    wrong = accuracy.judge(np.array([1.02, 2.5, 3.25]), truth, allowed, 1e-3, "by hand")
    assert wrong == Verdict(False, 0.25, 1e-3, "by hand", "2: 3.25 - 3 = 0.25")
    assert accuracy.judge(np.zeros(0), np.zeros(0), np.zeros(0), 1e-3, "none") == Verdict(True, 0.0, 1e-3, "none")


@pytest.mark.parametrize("part", [1, 5, 12, 10**6])
def test_parts_of_a_result_give_the_verdict_of_the_whole(monkeypatch, part):
    monkeypatch.setattr(accuracy, "rows_of_part", lambda columns: max(1, part // columns))
    truth, allowed = np.arange(28.0).reshape(7, 4), np.full((7, 4), 0.1)
    got = truth + 0.02 * np.random.default_rng(1).uniform(-1, 1, truth.shape)
    verdict = accuracy.judge(got, truth, allowed, 1e-3, "by hand")
    relative = abs(got - truth) / 0.1 * 1e-3
    assert verdict.passed and verdict.error == pytest.approx(relative.max())
    assert verdict.rms == pytest.approx(np.sqrt(np.mean(relative**2)))
    got[4, 2] = np.nan
    got[6, 1] += 1
    assert accuracy.judge(got, truth, allowed, 1e-3, "by hand").where.startswith("4:2: nan - 18")
    got[2, 3] = 0
    assert accuracy.judge(got, truth, allowed, 1e-3, "by hand").where == "2:3: 0 - 11 = -11"


# --- the judge of a product --------------------------------------------------------------------------------------


SAME_SEED = itertools.repeat(7)


def seed_judges(monkeypatch, seeds: Iterator[int] = SAME_SEED) -> None:
    """Have judges, which draw their signs and rows without a seed, draw the same in each run of a test."""
    draw = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda *seed: draw(*(seed or (next(seeds),))))


@pytest.fixture(params=["componentwise", "Freivalds"])
def method(request, monkeypatch):
    """Both ways of judging."""
    if request.param == "Freivalds":
        monkeypatch.setattr(accuracy, "COMPONENTWISE_LIMIT", 0)
    seed_judges(monkeypatch)
    return request.param


@pytest.fixture(params=["float32", "float64"])
def problem(request, method):
    """Inputs, the correctly rounded product of them, and the judge."""
    arrays, judge = drawn(task(MATMUL, SHAPE, request.param))
    return arrays, product_of(arrays).astype(request.param), judge


def place(verdict) -> tuple[int, int]:
    """Where a verdict says that the error is, after a look at its arithmetic."""
    match = re.fullmatch(r"(\d+):(\d+): (\S+) - (\S+) = (\S+)", verdict.where)
    assert match, verdict.where
    got, expected, difference = map(float, match.groups()[2:])
    if np.isfinite(got):
        assert got - expected == pytest.approx(difference, rel=1e-5, abs=1e-7)
    return int(match[1]), int(match[2])


def test_the_correctly_rounded_product_passes(problem, method):
    _, right, judge = problem
    verdict = judge(right)
    assert verdict.passed and verdict.error <= verdict.bound and not verdict.where
    wide = "float64" if right.dtype == "float32" else np.dtype(np.longdouble).name
    named = {"componentwise": "componentwise", "Freivalds": "Freivalds and 16 rows componentwise"}
    drawn = {"componentwise": "signs", "Freivalds": "signs and rows"}
    assert re.fullmatch(rf"{named[method]}, {wide}, {drawn[method]} of seed \d+", verdict.reference)


def test_a_product_computed_in_its_own_precision_passes_with_its_error(problem, method):
    arrays, right, judge = problem
    real = right.dtype.type
    got = product_of(arrays, real(1.5), real(0.5), real)
    verdict = judge(got)
    assert verdict.passed and got.dtype == real
    if method == "componentwise":
        magnitude = product_of({name: abs(x) for name, x in arrays.items()})
        error = float((abs(got - product_of(arrays)) / magnitude).max())
        assert verdict.error == pytest.approx(error, rel=1e-3, abs=0)


def lose_a_term(c, a, b):
    c -= (1.5 * np.outer(a[:, -1], b[-1])).astype(c.dtype)


def swap_rows(c, a, b):
    c[[4, 9]] = c[[9, 4]]


def put(place, value):
    def spoil(c, a, b):
        c[place] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "at"),
    [
        *[(lose_a_term, (0,)), (swap_rows, (4,)), (put(17, 0.0), (17,)), (put(17, np.nan), (17,))],
        *((put((5, 11), wrong), (5, 11)) for wrong in (np.nan, np.inf, -np.inf)),
    ],
    ids=["lost term", "swapped rows", "row of 0", "row of NaN", "NaN", "infinity", "-infinity"],
)
def test_a_wrong_product_is_found_at_its_place(problem, spoil, at):
    arrays, right, judge = problem
    spoil(right, arrays["A"], arrays["B"])
    verdict = judge(right)
    assert not verdict.passed and place(verdict)[: len(at)] == at


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16_to_float32"])
@pytest.mark.parametrize(("alpha", "beta"), [(-1.5, 0.5), (2.0**-7, -5.0)])
def test_one_element_is_wrong_beyond_the_bound_and_right_below(dtype, alpha, beta, method, monkeypatch):
    monkeypatch.setattr(truth, "SAMPLED_ROWS", 1)
    arrays, judge = drawn(task(MATMUL, SHAPE, dtype, {"alpha": alpha, "beta": beta}))
    a, b, c = (arrays[name].astype(np.longdouble) for name in "ABC")
    right = product_of(arrays, alpha, beta)
    result = dtype.removeprefix("float16_to_")
    u = np.finfo(result).eps / 2

    squares = (alpha * a) ** 2 @ b**2 + (beta * c) ** 2
    walk = 6 * u * 53**0.5 + (25 * u if result != dtype else 0)  # sums of tensor cores may be truncated

    def verdict(row: int, share: float):
        magnitude = (abs(alpha) * abs(a[row]) @ abs(b) + abs(beta) * abs(c[row]))[39]
        bound = min(52 * u / (1 - 52 * u) * magnitude, walk * (squares + right**2)[row, 39] ** 0.5)
        if method != "componentwise":
            lines = [x.sum() ** 0.5 for x in ((squares + right**2)[row], (squares + right**2)[:, 39])]
            bound = min((1 + 3 / n**0.5) * walk * norm for n, norm in zip((40, 24), lines, strict=True))
        got = right.copy()
        got[row, 39] += share * bound
        return judge(got.astype(result))

    assert verdict(22, 0.0).bound == pytest.approx(52 * u / (1 - 52 * u), rel=1e-9, abs=0)
    rows = (22, 23)  # one is not sampled
    assert any(verdict(row, 0.95).passed for row in rows)
    for row in rows:
        assert not verdict(row, 1.05).passed and place(verdict(row, 1.05)) == (row, 39)


def test_two_swapped_elements_are_found(method, problem, monkeypatch):
    """Their row has the same sum, but not with signs."""
    monkeypatch.setattr(truth, "SAMPLED_ROWS", 1)
    arrays, right, _ = problem
    judge = MATMUL.reference(task(MATMUL, SHAPE, str(right.dtype)), arrays)
    for row in (22, 23):
        wrong = right.copy()
        wrong[row, [3, 11]] = right[row, [11, 3]]
        assert not judge(wrong).passed and place(judge(wrong))[0] == row


@pytest.mark.parametrize("shape", [(24, 40, 50), (8, 16, 20000)])
def test_a_product_of_inputs_in_tf32_is_within_its_own_bound_and_not_within_that_of_float32(shape, method):
    arrays, _ = drawn(task(MATMUL, shape))
    a, b = ((arrays[name].view(np.uint32) & 0xFFFFE000).view(np.float32).astype(float) for name in "AB")  # 10 bits
    got = (1.5 * (a @ b) + 0.5 * arrays["C"]).astype(np.float32)
    names = "cublas_tf32", "tensor_core", "cublas"
    judges = {name: MATMUL.reference(task(MATMUL, shape, variant=name), arrays) for name in names}
    verdicts = {name: judge(got) for name, judge in judges.items()}
    assert [verdict.passed for verdict in verdicts.values()] == [True, False, False]
    assert verdicts["cublas_tf32"].bound - verdicts["cublas"].bound == pytest.approx(2**-9 + 2**-20, rel=1e-12)
    lost = got - np.outer(1.5 * arrays["A"][:, 7], arrays["B"][7]) * (1 if shape[2] == 50 else 100)
    assert not judges["cublas_tf32"](lost).passed


def test_a_term_lost_from_a_long_sum_is_found_with_any_signs(monkeypatch):
    """Its errors are multiples of one row, so the signs that cancel in one row of C do in each.

    One column of signs would not find it with two of these seeds.
    """
    seed_judges(monkeypatch, itertools.count())
    long = task(MATMUL, (8, 16, 20000))
    arrays, _ = drawn(long)
    right = product_of(arrays, real=float).astype(np.float32)
    lost = np.float32(1.5) * np.outer(arrays["A"][:, -1], arrays["B"][-1])
    assert np.all(np.abs(lost) < accuracy.gamma(20002, 2.0**-24) * np.abs(arrays["A"]) @ np.abs(arrays["B"]))
    for _ in range(20):
        judge = MATMUL.reference(long, arrays)
        assert judge(right).passed and not judge(right - lost).passed


@pytest.mark.parametrize("width", [1, 128, 1024])
def test_an_unwritten_element_is_found_in_a_row_that_is_not_sampled(width, method, monkeypatch):
    monkeypatch.setattr(truth, "SAMPLED_ROWS", 1)
    arrays, judge = drawn(task(MATMUL, (2, 1024, 4096)))
    right = product_of(arrays, real=float).astype(np.float32)
    assert judge(right).passed
    for row in (0, 1):  # one of them is not sampled
        wrong = right.copy()
        wrong[row, :width] = arrays["C"][row, :width]
        verdict = judge(wrong)
        assert not verdict.passed and place(verdict)[0] == row and place(verdict)[1] < width


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (500, 1, 3), (100, 1, 1000), (30, 40, 300), (4, 3, 100_000)])
def test_no_right_product_is_near_the_bound_of_sums_with_signs(shape, dtype, method, monkeypatch):
    """Summed one term after the other, in the order with the largest errors, with a fourth of the bound."""
    monkeypatch.setattr(truth, "ROUNDINGS", truth.ROUNDINGS / 4)
    arrays, judge = drawn(task(MATMUL, shape, dtype))
    real = np.dtype(dtype).type
    got = np.zeros(shape[:2], dtype)
    for column, row in zip(arrays["A"].T, arrays["B"], strict=True):
        got += np.outer(column, row)
    assert judge(real(1.5) * got + real(0.5) * arrays["C"]).passed


def laid_out(numbers: np.ndarray, layout: str) -> np.ndarray:
    """The same matrix in another layout of memory, among elements that no sum may contain."""
    rows, columns = numbers.shape
    if layout == "rows":
        return numbers.copy()
    if layout == "columns":
        return numbers.T.copy().T
    wide = np.full((2 * rows + 1, 2 * columns + 3), 77, numbers.dtype)
    view = wide[:rows, 1 : columns + 1] if layout == "padded" else wide[1::2, 1 : 2 * columns + 1 : 2]
    view[...] = numbers
    return view


@given(
    kind=st.sampled_from(["int8", "int32", "float8_e4m3", "float16", "bfloat16", "float32", "float64"]),
    shape=st.tuples(st.integers(1, 20), st.integers(1, 200), st.integers(1, 200)),
    layout=st.sampled_from(["rows", "columns", "padded", "strided"]),
    cores=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_of_integers_are_exact_in_any_layout(kind, shape, layout, cores, seed):
    rng = np.random.default_rng(seed)
    count, rows, columns = shape
    x = rng.integers(-100, 101, (rows, columns)).astype(float)
    if kind == "float8_e4m3":
        x = np.sign(x) * (abs(x) // 10)  # with up to four bits
    stored = laid_out(DTYPES[kind].stored(x), layout)
    down, along = (rng.integers(-9, 10, (length, 3)) for length in (columns, rows))
    a = rng.integers(-9, 10, (count, rows)).astype(float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums.cores, "count", lambda: cores)
        np.testing.assert_array_equal(sums.row_sums(stored, down, kind), x @ down)
        np.testing.assert_array_equal(sums.row_sums(stored.T, along, kind), x.T @ along)
        np.testing.assert_array_equal(sums.row_norms(stored, kind), np.sqrt((x.astype(sums.type_of(kind)) ** 2).sum(1)))
        norms = np.sqrt(x**2 @ down[:, 0] ** 2)
        np.testing.assert_allclose(sums.row_norms(stored, kind, down[:, 0]), norms, rtol=1e-14)
        product, magnitudes, squares = sums.products(a, stored, kind)
    np.testing.assert_array_equal(product, a @ x)
    np.testing.assert_array_equal(squares, a**2 @ x**2)
    np.testing.assert_array_equal(magnitudes, np.abs(a) @ np.abs(x))
    assert product.dtype == sums.type_of(kind)


@given(bits=st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=50))
def test_every_narrow_number_is_converted_exactly(bits):
    bits = np.array([bits], np.uint16)
    for kind, stored in (("float16", bits.view(np.float16)), ("bfloat16", bits), ("float8_e4m3", bits.astype("u1"))):
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            numbers = DTYPES[kind].numbers(stored).astype(float)
        for index, number in enumerate(numbers[0]):
            got = sums.row_sums(stored[:, index : index + 1], np.ones((1, 1)), kind)
            np.testing.assert_array_equal(got, [[number]])


def test_sums_of_float64_have_far_more_bits():
    """The terms of each sum cancel to a number that float64 arithmetic would lose."""
    x = np.array([[1.0, 2.0**-60, -1.0], [2.0**30, 2.0**-30, -(2.0**30)]])
    right = np.array([[2.0**-60], [2.0**-30]])
    np.testing.assert_array_equal(sums.row_sums(x, np.ones((3, 1)), "float64"), right)
    np.testing.assert_array_equal(sums.row_sums(np.asfortranarray(x), np.ones((3, 1)), "float64"), right)
    np.testing.assert_array_equal(sums.products(x, np.ones((3, 1)), "float64")[0], right)


@given(
    dtype=st.sampled_from(["float64", "float32", "bfloat16", "int8", "float8_e4m3"]),
    shape=st.tuples(*[st.integers(1, 12)] * 3),
    some=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_elements_are_right_with_few_rows_few_columns_and_many_of_both(dtype, shape, some, seed):
    """The three have a way each; here, few are up to four."""
    product = task(MATMUL, shape, dtype, {"alpha": 2, "beta": 3})
    arrays = MATMUL.draw(np.random.default_rng(seed), product)
    rows = np.arange(shape[0])[:: 2 if some else 1]
    a, b = (DTYPES[dtype].numbers(arrays[name]).astype(np.longdouble) for name in "AB")
    c = product.element.results.numbers(arrays["C"]).astype(np.longdouble)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truth, "NARROW", 4)
        found = truth.Truth(product, arrays)
        elements, allowed, magnitudes = found.elements(rows)
    truth_of_rows = (2 * np.einsum("ip,pj->ij", a, b) + 3 * c)[rows]
    size = 2 * np.einsum("ip,pj->ij", abs(a), abs(b))[rows] + 3 * abs(c[rows])
    squares = 4 * np.einsum("ip,pj->ij", a**2, b**2)[rows] + (3 * c[rows]) ** 2
    np.testing.assert_array_less(abs(elements - truth_of_rows), 1e-12 * size + 1e-300)
    np.testing.assert_allclose(magnitudes.astype(float), size.astype(float))
    right = np.minimum(found.gamma * size, found.walk * np.sqrt(squares + truth_of_rows**2))
    largest = (abs(elements) + right + found.underflow).astype(float)  # half of its unit in the last place is allowed
    right = right + found.stored * np.exp2(np.floor(np.log2(largest, where=largest > 0, out=np.zeros_like(largest))))
    np.testing.assert_allclose(allowed.astype(float), right.astype(float), atol=1e-30)


def test_errors_in_one_column_of_long_sums_are_found(monkeypatch):
    """Neither is found by the sums of rows, in which it is as small as what rounding may cause."""
    seed_judges(monkeypatch)
    monkeypatch.setattr(truth, "SAMPLED_ROWS", 1)
    monkeypatch.setattr(accuracy, "COMPONENTWISE_LIMIT", 0)
    (m, n, k), different, parameters = (1024, 1024, 16384), 64, {"alpha": 1.5, "beta": 0.125}
    product = task(MATMUL, (m, n, k), "float32", parameters)
    arrays = MATMUL.draw(np.random.default_rng(3), product)
    arrays["B"][:] = np.tile(arrays["B"][:different], (k // different, 1))  # repeated rows make the product cheap
    folded = arrays["A"].astype(float).reshape(m, -1, different).sum(axis=1)
    right = (1.5 * (folded @ arrays["B"][:different].astype(float)) + 0.125 * arrays["C"]).astype(np.float32)
    judge = MATMUL.reference(product, arrays)
    assert judge(right).passed
    found = truth.Truth(product, arrays)
    allowed = found.allowed_in_sums(found.row_sums(np.ones((n, 1)))[1], sums.row_norms(right, "float32"), n)
    term = int(np.argmin(abs(abs(arrays["B"][:different, 700]) - 0.08)))
    for lost in (0.125 * arrays["C"][:, 700], 1.5 * arrays["A"][:, term] * arrays["B"][term, 700]):
        assert np.all(abs(lost) < allowed[:, 0])
        wrong = right.copy()
        wrong[:, 700] -= lost
        verdict = judge(wrong)
        assert not verdict.passed and place(verdict)[1] == 700


def test_the_seed_of_the_signs_is_drawn_anew_for_each_judge():
    product = product_of(drawn(task(MATMUL, SHAPE))[0], real=np.float32)
    judges = [drawn(task(MATMUL, SHAPE))[1] for _ in range(3)]
    assert len({judge(product).reference for judge in judges}) == 3


def test_the_old_c_is_not_read_where_beta_is_zero(method):
    arrays, judge = drawn(task(MATMUL, SHAPE, "float32", {"alpha": -2.0, "beta": 0.0}))
    assert np.isnan(arrays["C"]).all()
    product = -2 * arrays["A"] @ arrays["B"]
    assert judge(product).passed and not judge(product + arrays["C"]).passed


# --- sizes -------------------------------------------------------------------------------------------------------


@given(m=sizes, n=sizes, k=sizes)
def test_work_and_traffic_of_a_product(m, n, k):
    assert MATMUL.flops(task(MATMUL, (m, n, k))) == m * n * (k + k)  # k products and k sums an element
    assert MATMUL.bytes(task(MATMUL, (m, n, k))) == 4 * (m * k + k * n + 2 * m * n)
    assert MATMUL.bytes(task(MATMUL, (m, n, k), "float64", {"alpha": 1.5, "beta": 0.0})) == 8 * (m * k + k * n + m * n)


@given(n=sizes)
def test_work_and_traffic_of_sums(n):
    assert SUM.flops(task(SUM, (n,))) == n - 1
    assert [SUM.bytes(task(SUM, (n,), dtype)) for dtype in SUM.dtypes] == [4 * n + 4, 4 * n + 4, 8 * n + 8]
    assert VECTOR_ADD.flops(task(VECTOR_ADD, (n,))) == n
    assert [VECTOR_ADD.bytes(task(VECTOR_ADD, (n,), dtype)) for dtype in VECTOR_ADD.dtypes] == [12 * n, 12 * n, 24 * n]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_inputs_have_the_declared_shape_and_dtype_and_depend_on_the_seed_alone(operation):
    shape = (6, 4, 5)[: len(operation.dimensions)]
    length = dict(zip(operation.dimensions, shape, strict=True))
    for dtype in operation.dtypes:
        asked = task(operation, shape, dtype)
        first, again, other = (operation.draw(np.random.default_rng(seed), asked) for seed in (1, 1, 2))
        declared = {each.name: each for each in operation.operands if each.role != "out"}
        assert first.keys() == declared.keys()
        for name, array in first.items():
            assert array.shape == tuple(length[d] for d in declared[name].dimensions)
            narrow = ("float8_e4m3", "float16_to_float32", "bfloat16_to_float32")
            wider = {"int8": np.int32, **dict.fromkeys(narrow, np.float32)}
            stored = wider if declared[name].role == "inout" else {}
            assert array.dtype == stored.get(dtype, DTYPES[dtype].storage)
            np.testing.assert_array_equal(array, again[name])
            assert not np.array_equal(array, other[name])


@pytest.mark.parametrize("dtype", MATMUL.dtypes)
def test_inputs_are_the_same_for_any_number_of_threads(monkeypatch, dtype):
    drawn = []
    for count in (1, 3, 16):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, count=count: range(count))
        arrays = MATMUL.draw(np.random.default_rng(1), task(MATMUL, (700, 300, 520), dtype))
        rng = np.random.default_rng(2)
        graded = [of_kind("graded", arrays[name].copy(), rng) for name in "AB" if DTYPES[dtype].truth == "longdouble"]
        drawn.append([*arrays.values(), *graded])
    for first, *others in zip(*drawn, strict=True):
        for other in others:
            np.testing.assert_array_equal(first, other)


@given(
    shape=st.tuples(*[st.integers(1, 40)] * 3),
    seed=st.integers(0, 2**32 - 1),
    scalars=st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
    wrong=st.tuples(*[st.integers(0, 39)] * 2),
)
def test_an_int8_product_is_verified_exactly(shape, seed, scalars, wrong):
    alpha, beta = scalars
    product = task(MATMUL, shape, "int8", {"alpha": float(alpha), "beta": float(beta)})
    inputs = MATMUL.draw(np.random.default_rng(seed), product)
    a, b, c = (inputs[name].astype(object) for name in "ABC")
    assert min(map(min, a.tolist())) >= -128 and (beta or (c == -(2**31)).all())
    result = (alpha * (a @ b) + (beta * c if beta else 0)).astype(np.int32)
    row, column = wrong[0] % shape[0], wrong[1] % shape[1]
    other = result.copy()
    other[row, column] += 1
    check_exact(product, inputs, result, [other], (row, column))


@pytest.mark.parametrize("k", [2, 33, 300])
def test_an_int32_product_of_narrower_numbers_is_found(k):
    inputs, judge = drawn(task(MATMUL, (20, 30, k), "int32", {"alpha": 1.0, "beta": 0.0}))
    a, b = inputs["A"].astype(np.int64), inputs["B"].astype(np.int64)
    assert judge((a @ b).astype(np.int32)).passed and abs(a @ b).max() < 2**31
    for narrow in (np.int8, np.int16, np.float16):
        with np.errstate(over="ignore", invalid="ignore"):
            narrow_a, narrow_b = (x.astype(narrow).astype(np.int64) for x in (a, b))
        assert not any(judge(each.astype(np.int32)).passed for each in (narrow_a @ b, a @ narrow_b))
    in_float32 = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.int32)
    assert not judge(in_float32).passed


def check_exact(product: Task, inputs, right: np.ndarray, wrong: list[np.ndarray], place: tuple[int, int]) -> None:
    """The right result passes with every bit, and each wrong one fails at its place, whatever the way of judging."""
    for large in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if large:  # random sums and rows instead of each element
                patch.setattr(accuracy, "COMPONENTWISE_LIMIT", 0)
            judge = MATMUL.reference(product, inputs)
        verdict = judge(right)
        assert verdict.passed and verdict.error == verdict.bound == 0
        for other in wrong:
            verdict = judge(other)
            assert not verdict.passed and verdict.where.startswith("{}:{}: ".format(*place))


OF_E4M3 = {0x38: 1, 0x40: 2, 0x44: 3, 0x48: 4, 0xB8: -1, 0xC0: -2, 0xC4: -3, 0xC8: -4}  # numbers by their bits


@given(
    shape=st.tuples(*[st.integers(1, 40)] * 3),
    seed=st.integers(0, 2**32 - 1),
    scalars=st.tuples(*[st.integers(-64, 64).map(lambda i: i / 16)] * 2),
    wrong=st.tuples(*[st.integers(0, 39)] * 3),
)
def test_a_float8_product_is_verified_exactly(shape, seed, scalars, wrong):
    alpha, beta = scalars
    product = task(MATMUL, shape, "float8_e4m3", {"alpha": alpha, "beta": beta})
    inputs = MATMUL.draw(np.random.default_rng(seed), product)
    a, b = (np.vectorize(OF_E4M3.__getitem__)(inputs[name]) for name in "AB")
    assert np.isnan(inputs["C"]).all() if beta == 0 else set(abs(inputs["C"].ravel())) <= {1, 2, 3, 4}
    result = (alpha * (a @ b) + (beta * inputs["C"] if beta else 0)).astype(np.float32)
    row, column, term = (place % length for place, length in zip(wrong, shape, strict=True))
    lost = result.copy()
    lost[row, column] -= alpha * a[row, term] * b[term, column]
    rounded = result.copy()  # by one place; for 0, sums in float64 would lose it
    rounded[row, column] += np.spacing(np.float32(max(1, abs(rounded[row, column]))))
    check_exact(product, inputs, result, [rounded, *([lost] if alpha else [])], (row, column))


def truncated(x: np.ndarray, bits: int) -> np.ndarray:
    """Numbers whose significands are cut off after some bits."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.trunc(np.ldexp(fraction, bits)), exponent - bits)


@pytest.mark.parametrize(("bits", "right"), [(14, True), (8, False), (4, False)])
def test_float8_products_are_exact_with_fourteen_bits_and_an_accumulator_of_fewer_fails(bits, right):
    """Tensor cores of Hopper have about 14; half as many would be a gross error."""
    shape = m, n, k = 64, 32, 16384
    inputs, judge = drawn(task(MATMUL, shape, "float8_e4m3"), 5)
    a, b = (np.vectorize(OF_E4M3.__getitem__)(inputs[name]) for name in "AB")
    sums = np.zeros((m, n))
    for term in range(0, k, 32):
        sums = truncated(sums + a[:, term : term + 32] @ b[term : term + 32], bits)
    assert abs(np.cumsum(a[:8, :, None] * b[None, :, 0, None], axis=1)).max() < 2**13, "partial sums of any length"
    assert judge((1.5 * sums + 0.5 * inputs["C"]).astype(np.float32)).passed == right


# --- sums --------------------------------------------------------------------------------------------------------


NARROWER = {"float32": ("float16",), "float64": ("float16", "float32"), "int32": ("int16", "float32")}


@pytest.mark.parametrize("dtype", SUM.dtypes)
@given(n=st.integers(0, 20_000), seed=st.integers(0, 2**32 - 1), shuffled=st.booleans())
def test_inputs_of_a_sum_are_never_rounded_in_any_order(dtype, n, seed, shuffled):
    rng = np.random.default_rng(seed)
    x = SUM.draw(rng, task(SUM, (n,), dtype))["x"]
    x = rng.permutation(x) if shuffled else np.sort(x)
    np.testing.assert_array_equal(np.cumsum(x, dtype=dtype), np.cumsum(x.astype(np.int64)))
    assert x.all()  # so that each lost element shows
    assert (abs(x) > 8).sum() <= reduction.LONG and (not n or abs(x).max() > 8)


@pytest.mark.parametrize(("dtype", "narrow"), [(each, narrow) for each in SUM.dtypes for narrow in NARROWER[each]])
@pytest.mark.parametrize("n", [2, 100, 10_000])
def test_a_sum_in_a_narrower_type_is_found(dtype, narrow, n):
    found = 0
    for seed in range(20):
        arrays, judge = drawn(task(SUM, (n,), dtype), seed)
        with np.errstate(all="ignore"):  # all terms, or their total, or partial sums of 32 threads
            parts = [arrays["x"].astype(narrow).sum(dtype=narrow), arrays["x"].sum(dtype=dtype).astype(narrow)]
            parts.append(np.array([arrays["x"][i::32].astype(narrow).sum(dtype=narrow) for i in range(32)]).sum())
        found += sum(not judge(each.astype(dtype)).passed for each in parts)
    assert found > 40


@pytest.mark.parametrize(("wrong", "where"), [(-7.5, "1: -7.5 - -7 = -0.5"), (np.nan, "1: nan - -7 = nan")])
def test_a_result_that_must_be_equal_passes_with_infinities_and_fails_with_the_element(wrong, where):
    expected = np.array([np.inf, -7, 0])
    compare = accuracy.equal_to(expected, "by hand")
    right = compare(expected.copy())
    assert (right.passed, right.error, right.bound, right.reference) == (True, 0.0, 0.0, "by hand")
    verdict = accuracy.equal_to(np.array([1.0, -7, 0]), "by hand")(np.array([1.0, wrong, 0]))
    assert not verdict.passed and verdict.where == where
    assert accuracy.equal_to(-(2**31), "by hand")(np.array(2**31 - 1, np.int32)).error == 2**32 - 1, "no overflow"


@pytest.mark.parametrize("dtype", SUM.dtypes)
def test_a_sum_must_be_equal(dtype):
    arrays, judge = drawn(task(SUM, (100_000,), dtype))
    right = arrays["x"].sum(dtype=dtype)
    assert judge(right).passed and judge(right).error == judge(right).bound == 0
    verdict = judge((right + 1).astype(dtype))
    assert not verdict.passed and verdict.error == 1
    assert verdict.where == f"{right + 1:.9g} - {right:.9g} = 1"
    assert dtype == "int32" or not judge(np.array(np.nan, dtype)).passed


@given(n=st.integers(0, 5000), block=st.integers(2, 64), per_thread=st.integers(1, 8))
def test_the_launches_of_a_sum_lead_from_the_input_to_the_total(n, block, per_thread):
    passes = Passes(per_thread, block=block)
    summing = task(SUM, (n,), "float64", variant=Variant("any", "cuda", "", geometry=passes))
    lengths = passes.blocks(summing)
    assert lengths[-1] == 1
    workspace = passes.workspace(summing)
    assert [each.shape for each in workspace.values()] == [(length,) for length in lengths[:-1]]

    x = np.arange(1, n + 1)
    arrays = {"x": x, "result": np.zeros(1, int)}
    arrays |= {name: np.zeros(each.shape, int) for name, each in workspace.items()}
    for launch in passes.launches(summing, arrays):
        assert launch.block == (block,)
        source, length, target, identity_of_type = launch.arguments
        assert identity_of_type == 0 and identity_of_type.dtype == np.float64
        assert length == len(source)
        assert launch.grid == (len(target),)
        stretch = block * per_thread  # what one block sums
        for i in range(len(target)):
            target[i] = source[i * stretch : (i + 1) * stretch].sum()
    assert arrays["result"] == n * (n + 1) // 2
    np.testing.assert_array_equal(x, np.arange(1, n + 1))


@given(n=st.integers(0, 10_000), limit=st.integers(1, 40), one_launch=st.booleans())
def test_a_limited_grid_and_a_single_launch(n, limit, one_launch):
    lengths = Passes(4, limit, block=8, one_launch=one_launch).blocks(task(SUM, (n,)))
    assert lengths[0] == max(1, min(limit, -(-n // 32)))
    assert len(lengths) == 1 if one_launch else lengths[-1] == 1


@pytest.mark.parametrize("sms", [46, 78, 132, 170])
def test_a_limited_grid_has_as_many_blocks_per_sm_on_every_gpu(sms):
    x = np.broadcast_to(np.float32(1), (1 << 24,))
    per_sm = {"several_per_thread": 16, "shuffle": 16, "one_launch": 8, "flagged": 4, "cooperative": 4}
    for name, blocks in per_sm.items():
        summing = task(SUM, x.shape, variant=name, multiprocessors=sms)
        arrays = {"x": x, "result": np.zeros(1)}
        arrays |= {key: each.placeholder for key, each in summing.workspace.items()}
        first, *_ = summing.geometry.launches(summing, arrays)
        assert first.grid == (blocks * sms,) == (summing.macros["MAX_BLOCKS"],)


@pytest.mark.parametrize(("n", "blocks", "threads"), [(1 << 25, 264, 512), ((1 << 25) - 1, 528, 256), (8193, 3, 256)])
def test_long_vectors_get_half_as_many_blocks_of_twice_the_threads(n, blocks, threads):
    summing = task(SUM, (n,), "float32", variant=SUM.variant("flagged"))
    x = np.broadcast_to(np.float32(1), (n,))
    (launch,) = summing.geometry.launches(summing, {"x": x, "result": np.zeros(1)})
    assert (launch.grid, launch.block) == ((blocks,), (threads,))
    assert summing.macros["BLOCK"] == threads and summing.macros["MAX_BLOCKS"] >= blocks


# --- extremes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SUM.dtypes)
@pytest.mark.parametrize("operation", [MINIMUM, MAXIMUM], ids=lambda operation: operation.name)
@given(n=st.integers(1, 2000), seed=st.integers(0, 2**32 - 1))
def test_only_the_extreme_element_passes(operation, dtype, n, seed):
    arrays, judge = drawn(task(operation, (n,), dtype), seed)
    ordered = sorted(arrays["x"].tolist(), reverse=operation is MAXIMUM)
    verdict = judge(np.array(ordered[0], dtype))
    assert verdict.passed and verdict.error == verdict.bound == 0
    for wrong in (*ordered[1:2], 0, *(identity(each, dtype) for each in ("minimum", "maximum"))):
        assert not judge(np.array(wrong, dtype)).passed
    assert dtype == "int32" or not judge(np.array(np.nan, dtype)).passed
    assert min(ordered) * max(ordered) > 0  # all on one side of zero
    assert all(2 * abs(ordered[0]) <= abs(each) for each in ordered[1:])  # and one nearest to it by far


def test_the_extreme_may_be_anywhere():
    for operation, where in ((MINIMUM, np.argmin), (MAXIMUM, np.argmax)):
        places = [int(where(drawn(task(operation, (8,)), seed)[0]["x"])) for seed in range(200)]
        assert set(places) == set(range(8))
        assert min(places.count(end) for end in (0, 7)) > 50  # loops often leave out an end


@pytest.mark.parametrize("dtype", SUM.dtypes)
def test_the_identity_changes_nothing(dtype):
    numbers = np.array([-(2**31), -1, 0, 1, 2**31 - 1], np.float64).astype(dtype)
    for combination, function in (("sum", np.add), ("minimum", np.minimum), ("maximum", np.maximum)):
        value = identity(combination, dtype)
        assert value.dtype == dtype
        np.testing.assert_array_equal(function(numbers, value), numbers)


@pytest.mark.parametrize(("dtype", "narrow"), [("int32", "float32"), ("float32", "float16"), ("float64", "float32")])
def test_exchanged_vectors_show_a_narrower_type_and_a_wrong_reduction(dtype, narrow):
    arrays, judge = drawn(task(LINKS, (1000,), dtype))
    x = arrays["x"]
    assert judge(x.copy()).passed
    narrowed = x.astype(narrow)
    assert (narrowed.astype(np.float64) != x).mean() > 0.9
    assert not judge(narrowed.astype(np.float64).clip(-(2**31), 2**31 - 1).astype(dtype)).passed
    assert not judge(np.maximum(x, 0)).passed


# --- sums of vectors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_truncated_sum_of_vectors_is_found(dtype):
    arrays, judge = drawn(task(VECTOR_ADD, (1000,), dtype))
    exact = arrays["x"].astype(np.longdouble) + arrays["y"]
    near = exact.astype(dtype)
    truncated = np.where(abs(near) > abs(exact), np.nextafter(near, np.zeros(1, dtype)), near)
    assert (truncated != near).mean() > 0.2
    assert not judge(truncated).passed


@pytest.mark.parametrize("dtype", VECTOR_ADD.dtypes)
def test_a_sum_of_vectors_must_be_equal(dtype):
    arrays, judge = drawn(task(VECTOR_ADD, (1000,), dtype))
    right = np.array([a + b for a, b in zip(arrays["x"].tolist(), arrays["y"].tolist(), strict=True)], dtype)
    verdict = judge(right)
    assert verdict.passed and verdict.error == verdict.bound == 0
    least = np.iinfo(dtype).min if dtype == "int32" else np.nan  # what outputs are filled with first
    a_little_off = right[3] + 1 if dtype == "int32" else np.nextafter(right[3], right.dtype.type(np.inf))
    for wrong in (least, a_little_off, arrays["x"][3]):
        spoilt = right.copy()
        spoilt[3] = wrong
        assert not judge(spoilt).passed and judge(spoilt).where.startswith("3: ")
    unsigned = judge(abs(right) * np.where(right < 0, -1, 1).astype(dtype))  # +0 instead of -0
    assert unsigned.passed == (dtype == "int32") and unsigned.where == ("" if unsigned.passed else "500: 0 - -0 = 0")


def test_a_copy_keeps_every_bit():
    arrays, judge = drawn(task(COPY, (1000,)))
    x = arrays["x"]
    assert judge(x.copy()).passed
    assert not judge(np.where(abs(x) < np.finfo("float32").tiny, np.float32(0), x)).passed, "flushed"
    assert not judge(x + np.float32(0)).passed, "-0 + 0 = 0"


def test_no_sum_of_vectors_overflows_or_equals_the_fill_value():
    arrays, _ = drawn(task(VECTOR_ADD, (100_000,), "int32"))
    sums = arrays["x"].astype(np.int64) + arrays["y"]
    assert abs(sums).max() < 2**31
    assert (abs(sums) > 2**30).any()


@given(n=st.integers(0, 3_000_000))
def test_the_launch_of_a_sum_of_vectors_covers_it(n):
    for variant in VECTOR_ADD.ladder:
        if variant.device == "cuda" and not variant.library:
            adding = task(VECTOR_ADD, (n,), variant=variant)
            launches = variant.geometry.launches(adding, dict.fromkeys("xyz"))
            blocks = [launch.grid[0] for launch in launches]
            stretch = adding.macros["BLOCK"] * adding.macros["PER_THREAD"]
            most = adding.macros["MAX_BLOCKS"] or n + 1
            assert blocks == ([min(most, -(-n // stretch))] if n else [])


# --- launches of a product ---------------------------------------------------------------------------------------


@given(m=st.integers(1, 300), n=st.integers(1, 300), tile=st.sampled_from([8, 16, 32]))
def test_the_launch_of_a_product_covers_c_and_no_block_is_idle(m, n, tile):
    product = task(MATMUL, (m, n, 7), variant="tiled_padded", tile=tile)
    arrays = {"A": np.empty((m, 7)), "B": np.empty((7, n)), "C": np.empty((m, n))}
    (launch,) = product.geometry.launches(product, arrays)
    assert launch.block == (tile, tile)
    for blocks, length in zip(launch.grid, (n, m), strict=True):
        assert (blocks - 1) * tile < length <= blocks * tile


@pytest.mark.parametrize(
    ("tiles", "steps", "blocks"),
    [
        (264, 1000, 264),  # none is idle
        (256, 64, 256),  # 8 blocks idle for 64 steps: all 132 would save less than 4 steps each
        (256, 128, 132),
        (64, 256, 132),  # some of the tiles in two parts, and some in three
        (16, 16, 128),  # parts of two steps
        (130, 300, 132),
        (131, 300, 131),  # one block idle for 300 steps
    ],
)
def test_tiles_are_divided_where_blocks_would_be_idle(tiles, steps, blocks):
    assert stream_k(tiles, steps, 132) == blocks


@given(tiles=st.integers(1, 3000), steps=st.integers(0, 600), most=st.integers(1, 200))
def test_blocks_have_a_tile_each_or_none_is_idle_for_long(tiles, steps, most):
    blocks = stream_k(tiles, steps, most)
    undivided = -(-tiles // most) * steps  # steps of the block that has the most
    if blocks == tiles:
        assert undivided <= tiles * steps / most + MIN_SAVED_STEPS or blocks < most
    else:
        assert min(tiles, most) < blocks <= most or blocks == most < tiles
        assert tiles * steps >= MIN_STEPS * blocks


def test_a_grid_that_divides_tiles_is_no_larger_than_the_gpu():
    arrays = {"A": np.empty((128, 8192)), "B": np.empty((8192, 8192)), "C": np.empty((128, 8192))}
    for sms in (114, 132, 144):
        product = task(MATMUL, (128, 8192, 8192), variant="stream_k", multiprocessors=sms)
        (launch,) = product.geometry.launches(product, arrays)
        assert launch.grid == (sms,) and product.macros["MAX_BLOCKS"] == sms


def test_a_variant_refuses_unsuited_gpus():
    for architecture, capability in (("", ""), ("", "75"), ("sm_80", "80"), ("sm_80", "120"), ("sm_90a", "90")):
        assert Variant("any", "cuda", "", architecture=architecture).why_not_run(capability) == ""
    for architecture, capability, reason in (
        ("sm_80", "75", "8.0 or later; this one has 7.5"),
        ("sm_90a", "80", "9.0; this one has 8.0"),
        ("sm_90a", "120", "9.0; this one has 12.0"),
    ):
        said = Variant("any", "cuda", "", architecture=architecture).why_not_run(capability)
        assert said == f"any needs a GPU of compute capability {reason}"


@pytest.mark.parametrize("variant", ["cublas", "cublaslt"])
def test_a_type_refuses_gpus_that_do_not_have_it(variant):
    variant = MATMUL.variant(variant)
    reason = "float8_e4m3 needs a GPU of compute capability 8.9 or later; this one has 8.0"
    assert MATMUL.why_not_run(variant, "float8_e4m3", "80") == reason
    for dtype, capability in (("float8_e4m3", "89"), ("float8_e4m3", "90"), ("int8", "80"), ("float8_e4m3", "")):
        assert MATMUL.why_not_run(variant, dtype, capability) == ""


@pytest.mark.parametrize(
    ("name", "dtype"), [("persistent", "bfloat16"), ("split_k_wgmma", "bfloat16"), ("tf32", "float32")]
)
@given(m=st.integers(1, 9000), n=st.integers(1, 9000), k=st.integers(1, 9000))
def test_blocks_without_clusters_that_share_a_tile_of_a_are_launched_close_together(name, dtype, m, n, k):
    asked = task(MATMUL, (m, n, k), dtype, variant=name)
    columns, rows = asked.geometry.over_c(asked)
    macros = asked.macros
    order = {}  # as in ``swizzled_rows.cuh``
    for first in range(0, rows, macros["GROUP_ROWS"]):
        for column, row in itertools.product(range(columns), range(first, min(rows, first + macros["GROUP_ROWS"]))):
            order[row, column] = len(order)
    apart = [order[row, column + 1] - order[row, column] for row, column in order if column + 1 < columns]
    large = name == "persistent" and (m + n) * k * asked.element.itemsize > CACHED_BYTES
    assert macros.get("PARTS", 1) > 1 or max(apart, default=0) <= NEAR * (2 if large else 1)
    assert sorted(order.values()) == list(range(rows * columns))
