"""Reference products in higher precision, and the errors that rounding may cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.dtypes import DType
from hpcmm.model import Task, Verdict
from hpcmm.operations import accuracy, sums

NARROW = 64  # rows or columns of a product whose terms are added up one by one in higher precision
SAMPLED_ROWS = 16  # rows that are checked componentwise if the product is too large to check all
ROUNDINGS = 8  # in a long sum with signs, at most; the largest observed value is 1.2, for any k. See Truth.row_sums.
SIGNS = 4  # per element of a row or column: in one sum alone, the parts of an error may cancel
PANEL = 2048  # columns of B that are converted to higher precision at a time


def scalars(task: Task) -> tuple[np.generic, np.generic]:
    """Return alpha and beta in the type of the kernels' parameters."""
    real = np.dtype(task.element.sums.name).type
    return real(task.scalars["alpha"]), real(task.scalars["beta"])


class Truth:
    """Reference product in higher precision, and the errors that rounding may cause in the precision of the inputs."""

    def __init__(self, task: Task, arrays: Mapping[str, np.ndarray]):
        self.a, self.b, self.c = arrays["A"], arrays["B"], arrays["C"]  # as they are stored
        self.element, self.results = task.element, task.element.results
        self.kind, self.kind_of_c = kind_of(self.element), kind_of(self.results)
        self.alpha, self.beta = map(float, scalars(task))
        self.wide = np.dtype(task.element.truth).type
        k = self.a.shape[1]
        # products of two rounded inputs
        self.inputs = (1 + task.input_roundoff) ** 2 - 1
        accumulator, exact = self.element.sums, self.element.exact
        self.bound = 0.0 if exact else accuracy.gamma(k + 2, accumulator.unit_roundoff) + self.inputs
        # sums in a wider type are rounded once more when they are stored
        self.stored = self.results.unit_roundoff if accumulator is not self.results else 0.0
        self.roundoff = 0.0 if exact else self.results.unit_roundoff
        # kernels may flush subnormal numbers to zero, and a narrower stored type rounds them
        self.underflow = 0.0 if exact else (k + 2) * float(np.finfo(accumulator.name).tiny)
        if self.stored:
            self.underflow += self.results.smallest_subnormal

    def elements(self, rows) -> tuple[np.ndarray, np.ndarray]:
        """Return the elements of some rows of C and the error allowed in each.

        With few rows or columns, neither A nor B is converted as a whole; otherwise B is, in panels.

        The componentwise bound is ``gamma_{k+2} (|alpha| |A| |B| + |beta| |C|)`` (Higham, 3.13), plus a unit roundoff
        of the result if sums are stored in a narrower type. If inputs are rounded before they are multiplied, the
        relative error of a product of two of them is added to gamma. If products of the type are exact, no error is
        allowed.
        """
        alpha, beta, wide, n = self.alpha, self.beta, self.wide, self.b.shape[1]
        numbers = self.element.numbers
        stored = self.a if len(rows) == len(self.a) else self.a[rows]
        if len(rows) <= NARROW:
            few = numbers(stored).astype(np.float64)
            product, magnitudes = sums.products(few, self.b, self.kind)
        elif n <= NARROW:
            few = numbers(self.b.T).astype(np.float64)
            product, magnitudes = (x.T for x in sums.products(few, stored.T, self.kind))
        else:
            a = numbers(stored).astype(np.float64)
            product, magnitudes = np.empty((len(rows), n), wide), np.empty((len(rows), n))
            for first in range(0, n, PANEL):
                panel = slice(first, first + PANEL)
                b = numbers(self.b[:, panel]).astype(np.float64)
                product[:, panel] = a @ b if wide is np.float64 else accuracy.exact_product(a, b)
                magnitudes[:, panel] = np.abs(a) @ np.abs(b)
        truth, allowed = alpha * product, abs(alpha) * magnitudes
        if beta:
            start = self.results.numbers(self.c[rows]).astype(wide)
            truth += beta * start
            allowed = allowed + abs(beta) * np.abs(start)
        return truth, self.bound * allowed + self.stored * np.abs(truth) + self.underflow

    def row_sums(self, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums of each row of C with each column of ``signs``, and the error allowed in each.

        This error does not grow with k.

        An element has the error ``sum_t d_t S_t`` of its partial sums S_t, with relative errors d_t uniform in
        [-u, u]. Terms of random sign make S_t a random walk. The standard deviation of the error is then at most
        u ||a_i|| ||b_j|| / sqrt(6), in the order with the largest errors, one term after the other (Higham and Mary,
        *SIAM J. Sci. Comput.* 42, 2020). Signs that are independent of the errors make the error of a row of n
        elements a random walk too. In units of u (|alpha| ||a_i|| ||B||_F + |beta| ||c_i||) it exceeds
        (sqrt(2 L) + 0.7 L / sqrt(n)) / sqrt(6) with a probability of exp(-L); the second term is the long tail of a
        product of two normal variables. L = 41 stands for one of 10^6 sums in 10^12 products and gives 3.7 and
        12 / sqrt(n). ``ROUNDINGS`` (1 + 3 / sqrt(n)) is twice that.

        Rounded inputs add the sum of their errors, which is at most their relative error times the same norms, and
        1 + 3 / sqrt(n) for the signs.
        """
        kind = self.kind
        totals = self.alpha * sums.row_sums(self.a, sums.row_sums(self.b, signs, kind), kind)
        norms = abs(self.alpha) * sums.row_norms(self.a, kind) * np.linalg.norm(sums.row_norms(self.b, kind))
        if self.beta:
            totals += self.beta * sums.row_sums(self.c, signs, self.kind_of_c)
            norms += abs(self.beta) * sums.row_norms(self.c, self.kind_of_c)
        relative = ROUNDINGS * self.roundoff + self.inputs
        allowed = relative * (1 + 3 / math.sqrt(max(1, len(signs)))) * norms + len(signs) * self.underflow
        return totals, allowed[:, None]


def kind_of(element: DType) -> str:
    """Return the kind of arrays of a type for ``sums``."""
    return element.name if element.ml_dtype else element.storage.name


def reference(task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks a computed C (m x n); it keeps the inputs.

    Up to ``accuracy.COMPONENTWISE_LIMIT`` multiply-adds, every element of a product is checked against its rounding
    error bound; of larger products, ``SAMPLED_ROWS`` random rows are checked. This bound grows with k: from k = 8192
    on, a lost term passes in float32. Freivalds' random products with signs, C s and s' C, therefore also check each
    row and each column. An error that is small relative to its row is large relative to its column if many rows have
    it. The verdict's reference contains the seed of the signs and rows.
    """
    results = task.element.results
    truth = Truth(task, arrays)
    transposed = Truth(task, {"A": arrays["B"].T, "B": arrays["A"].T, "C": arrays["C"].T})
    (m, k), n, wide = truth.a.shape, truth.b.shape[1], np.dtype(truth.wide)
    products = 2 if wide == np.float64 else 7
    seed = int(np.random.default_rng().integers(2**32))
    rng = np.random.default_rng(seed)
    if everything := products * m * n * k <= accuracy.COMPONENTWISE_LIMIT:
        rows, name = np.arange(m), f"componentwise, {wide.name}, signs of seed {seed}"
    else:
        rows = np.sort(rng.choice(m, min(m, SAMPLED_ROWS), replace=False))
        name = f"Freivalds and {len(rows)} rows componentwise, {wide.name}, signs and rows of seed {seed}"
    right, left = (rng.choice(np.array([-1, 1], wide), (length, SIGNS)) for length in (n, m))
    elements, allowed = truth.elements(rows)
    row_totals, column_totals = truth.row_sums(right), transposed.row_sums(left)

    def judge(got: np.ndarray) -> Verdict:
        kind = kind_of(results)
        numbers = results.numbers(got if everything else got[rows])
        sampled = accuracy.judge(numbers, elements, allowed, truth.bound, name)
        summed = accuracy.judge(sums.row_sums(got, right, kind), *row_totals, truth.bound, name)
        down = accuracy.judge(sums.row_sums(got.T, left, kind), *column_totals, truth.bound, name)
        verdicts = (sampled, summed, down)
        if all(verdict.passed for verdict in verdicts) or (everything and not sampled.passed):
            return sampled
        got = results.numbers(got)
        # the worst element of the first wrong row, or of the first wrong column where no row is found wrong
        found = [(rows, sampled), (np.arange(m), summed)]
        if wrong := [int(index[first_index(verdict)]) for index, verdict in found if not verdict.passed]:
            row = min(wrong)
            (expected,), _ = truth.elements([row])
            column = worst(got[row], expected)
            where = accuracy.describe((row, column), got[row, column], expected[column])
        else:
            column = first_index(down)
            (expected,), _ = transposed.elements([column])
            row = worst(got[:, column], expected)
            where = accuracy.describe((row, column), got[row, column], expected[row])
        error = float(np.max([verdict.error for verdict in verdicts]))
        return Verdict(False, error, truth.bound, name, where, sampled.rms)

    return judge


def first_index(verdict: Verdict) -> int:
    """Return the first number of the index at which a verdict found an error."""
    return int(verdict.where.split(":")[0])


def worst(got: np.ndarray, expected: np.ndarray) -> int:
    """Return the index of the element with the largest error, or of one that is NaN."""
    return int(np.argmax(np.nan_to_num(np.abs(got - expected), nan=np.inf)))
