"""Reference products in higher precision, and the errors that rounding may cause."""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hpcmm.model import Task, Verdict
from hpcmm.model.dtypes import DType
from hpcmm.operations import accuracy, sums
from hpcmm.operations.wide import Wide

NARROW = 64  # rows or columns of a product whose terms are added up one by one in higher precision
SAMPLED_ROWS = 16  # rows that are checked componentwise if the product is too large to check all
ROUNDINGS = 6  # in a sum of k terms, as a random walk; the largest observed value is 2.1, for any k
STORED = 5  # roundings of stored results in a sum with signs; the largest observed value is 2.1
GROWTH = 4  # of the walk for each level of Strassen's algorithm, twice the growth of the standard deviation
SIGNS = 4  # per element of a row or column: in one sum alone, the parts of an error may cancel
PANEL = 2048  # columns of B that are converted to higher precision at a time
EXTENDED = 4  # a reference in extended precision costs as much as several in float64


def strassen_bound(terms: int, levels: int, u: float, stored: float) -> float:
    """Return the bound of ``docs/bounds.md`` for a sum of products by Winograd's form of Strassen's algorithm."""
    if levels == 0:
        return terms * (accuracy.gamma(terms + 2, u) + stored)
    half = -(-terms // 2)
    return (18 * strassen_bound(half, levels - 1, u, stored) + 89 * half * stored) * (1 + 100 * stored)


def scalars(task: Task) -> tuple[np.generic, np.generic]:
    """Return alpha and beta in the type of the kernels' parameters."""
    real = np.dtype(task.element.sums.name).type
    return real(task.scalars["alpha"]), real(task.scalars["beta"])


class Expected(NamedTuple):
    """Elements of a product, the error allowed in each, and the sum of the magnitudes of its terms."""

    numbers: np.ndarray
    allowed: np.ndarray
    magnitudes: np.ndarray


class Truth:
    """Reference product in higher precision, and the errors that rounding may cause; see ``docs/bounds.md``."""

    def __init__(self, task: Task, arrays: Mapping[str, np.ndarray]):
        self.a, self.b, self.c = arrays["A"], arrays["B"], arrays["C"]  # as they are stored
        self.element, self.results = task.element, task.element.results
        self.kind, self.kind_of_c = kind_of(self.element), kind_of(self.results)
        self.alpha, self.beta = map(float, scalars(task))
        self.wide = np.dtype(task.element.truth).type
        k, narrow, exact = self.a.shape[1], task.arithmetic.narrow, self.element.exact
        accumulator = self.results if narrow else self.element.sums
        u = 0.0 if exact else accumulator.unit_roundoff
        inputs = (1 + task.arithmetic.input_roundoff) ** 2 - 1  # products of two rounded inputs
        # of many narrow sums only the random walk has a bound
        self.gamma = (math.inf if narrow and (k + 2) * u >= 1 else accuracy.gamma(k + 2, u)) + inputs
        self.walk = ROUNDINGS * (u * math.sqrt(k + 3) + inputs)
        if self.element.accumulator and not narrow:
            self.walk += u * k / 2
        self.stored = 0.0 if exact or accumulator is self.results else self.results.unit_roundoff
        self.levels = task.arithmetic.strassen
        if self.levels:
            rounded = self.results.unit_roundoff
            self.gamma = strassen_bound(k, self.levels, u, rounded) / max(1, k)
            self.walk = GROWTH**self.levels * (self.walk + ROUNDINGS * self.stored)
        # Error relative to M that is never exceeded, including the rounding of the stored result
        self.bound = self.gamma + self.stored
        # kernels may flush subnormal numbers to zero, and a narrower stored type rounds them
        self.underflow = 0.0
        if not exact:
            tiny = accumulator.smallest_subnormal if narrow else float(np.finfo(accumulator.name).tiny)
            self.underflow = (k + 2) * tiny
        if self.stored:
            self.underflow += self.results.smallest_subnormal

    def elements(self, rows) -> Expected:
        """Return some rows of C."""
        wide, n, numbers = self.wide, self.b.shape[1], self.element.numbers
        stored = self.a if len(rows) == len(self.a) else self.a[rows]
        if len(rows) <= NARROW:
            few = numbers(stored).astype(np.float64)
            drawn = sums.products(few, self.b, self.kind)
        elif n <= NARROW:
            few = numbers(self.b.T).astype(np.float64)
            drawn = (x.T for x in sums.products(few, stored.T, self.kind))
        else:
            a = numbers(stored).astype(np.float64)
            drawn = np.empty((len(rows), n), wide), *np.empty((2, len(rows), n))
            for first in range(0, n, PANEL):
                panel = slice(first, first + PANEL)
                b = numbers(self.b[:, panel]).astype(np.float64)
                drawn[0][:, panel] = a @ b if wide is np.float64 else accuracy.exact_product(a, b)
                drawn[1][:, panel], drawn[2][:, panel] = self.sizes(a, b)
        product, *sizes = drawn
        if self.levels and min(len(rows), n) <= NARROW:
            sizes = self.sizes(numbers(stored).astype(np.float64), numbers(self.b).astype(np.float64))
        return self.expected(product, *sizes, self.results.numbers(self.c[rows]).astype(wide) if self.beta else None)

    def sizes(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Return the sums of magnitudes and of squares of the terms, or their bounds with Strassen's algorithm."""
        if not self.levels:
            return abs(a) @ abs(b), (a * a) @ (b * b)
        largest = abs(a).max(axis=1)[:, None] * abs(b).max(axis=0) if len(b) else a @ b
        return len(b) * largest, len(b) * (largest * largest)

    def expected(self, product, magnitudes, squares, start) -> Expected:
        """Return elements of C from those of A B, of \\|A\\| \\|B\\|, of the products of squares, and of the old C.

        The arrays are NumPy's, or those of a device that take NumPy's functions.
        """
        alpha, beta = self.alpha, self.beta
        right, magnitudes, squares = alpha * product, abs(alpha) * magnitudes, alpha**2 * squares
        if beta:
            right = right + beta * start
            magnitudes, squares = magnitudes + abs(beta * start), squares + (beta * start) ** 2
        allowed = np.minimum(self.gamma * magnitudes, self.walk * np.sqrt(squares + right * right))
        allowed = allowed + self.underflow
        if self.stored:  # half a unit in the last place of the largest right result
            largest = abs(right) + allowed
            power_of_two = largest / (2 * np.frexp(largest)[0])
            allowed = allowed + self.stored * power_of_two
        return Expected(right, allowed, magnitudes)

    def row_sums(self, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums of each row of C with each column of ``signs``, and the root of the sum of P over the row."""
        kind = self.kind
        totals = self.alpha * sums.row_sums(self.a, sums.row_sums(self.b, signs, kind), kind)
        if self.levels:
            a, b = (self.element.numbers(matrix) for matrix in (self.a, self.b))
            of_b = np.linalg.norm(abs(b).max(axis=0, initial=0).astype(np.float64))
            norms = math.sqrt(len(b)) * abs(self.alpha) * abs(a).max(axis=1, initial=0).astype(np.float64) * of_b
        else:
            norms = abs(self.alpha) * sums.row_norms(self.a, kind, sums.row_norms(self.b, kind))
        if self.beta:
            totals += self.beta * sums.row_sums(self.c, signs, self.kind_of_c)
            norms = np.hypot(norms, abs(self.beta) * sums.row_norms(self.c, self.kind_of_c))
        return totals, norms

    def allowed_in_sums(self, norms: np.ndarray, result_norms: np.ndarray, n: int) -> np.ndarray:
        """Return the error allowed in each sum with signs of a row of n elements; see ``docs/bounds.md``."""
        with np.errstate(invalid="ignore"):  # of an infinite norm: all comparisons with NaN fail
            walk = (1 + 3 / math.sqrt(max(1, n))) * self.walk * np.hypot(norms, result_norms)
            return (walk + STORED * self.stored * result_norms + n * self.underflow)[:, None]


def kind_of(element: DType) -> str:
    """Return the kind of arrays of a type for ``sums``."""
    return element.stem if element.ml_dtype else element.storage.name


class Judge:
    """The check of a computed C (m x n); it keeps the inputs.

    Up to ``accuracy.COMPONENTWISE_LIMIT`` terms, every element of a product is compared with a reference on the host.
    Of larger products, every element is compared with a float64 product by the library of a ``device``, if this is a
    wider type, and if it takes less than some ``seconds``. Otherwise ``SAMPLED_ROWS`` random rows are compared.
    Freivalds' random products with signs, C s and s' C, also check each row and each column. An error that is small
    relative to its row is large relative to its column if many rows have it. The verdict's reference contains the seed
    of the signs and rows.
    """

    def __init__(self, task: Task, arrays: Mapping[str, np.ndarray], device: Any = None, seconds: float = math.inf):
        self.results = task.element.results
        self.truth = Truth(task, arrays)
        self.transposed = Truth(task, {"A": arrays["B"].T, "B": arrays["A"].T, "C": arrays["C"].T})
        (m, k), n, wide = self.truth.a.shape, self.truth.b.shape[1], np.dtype(self.truth.wide)
        seed = int(np.random.default_rng().integers(2**32))
        rng = np.random.default_rng(seed)
        rows, self.name = np.arange(m), f"{wide.name}, signs of seed {seed}"
        self.how = "componentwise"
        if m * n * k * (1 if wide == np.float64 else EXTENDED) > accuracy.COMPONENTWISE_LIMIT:
            rows = np.sort(rng.choice(m, min(m, SAMPLED_ROWS), replace=False))
            self.how = f"Freivalds and {len(rows)} rows componentwise"
            self.name = self.name.replace("of", "and rows of")
        self.rows = rows
        self.signs = [rng.choice(np.array([-1, 1], wide), (length, SIGNS)) for length in (n, m)]
        sides = zip((self.truth, self.transposed), self.signs, strict=True)
        self.totals = [side.row_sums(signs) for side, signs in sides]
        self.wide = None
        if device and len(rows) < m and wide == np.float64:
            self.wide = Wide(device, self.truth, self.signs, self.totals, seconds)

    @functools.cached_property
    def expected(self) -> Expected:
        return self.truth.elements(self.rows)

    def __call__(self, got: np.ndarray) -> Verdict:
        how, rows, compared = self.compare_elements(got)
        where, error = "", compared.error
        if found := self.first_wrong(got, rows, compared.first, *(total.first for total in self.compare_sums(got))):
            index, mine, expected, magnitude = found
            where = accuracy.describe(index, mine, expected)
            error = float(np.maximum(error, accuracy.compared(mine, expected, expected, magnitude).error))
        rms = math.sqrt(compared.squares / max(1, len(rows) * got.shape[1]))
        return Verdict(not where, error, self.truth.bound, f"{how}, {self.name}", where, rms)

    def compare_elements(self, got: np.ndarray) -> tuple[str, np.ndarray, accuracy.Compared]:
        """Compare all elements of a result or some rows; return how, these rows, and the comparison."""
        if self.wide and (compared := self.wide.compare(got)):
            return "componentwise, product of the library", np.arange(len(got)), compared
        some = got if len(self.rows) == len(got) else got[self.rows]
        return self.how, self.rows, accuracy.compare(self.results.numbers(some), *self.expected)

    def first_wrong(
        self, got: np.ndarray, rows: np.ndarray, element: int | None, row: int | None, column: int | None
    ) -> tuple[tuple[int, int], Any, Any, Any] | None:
        """Return index, number, reference and magnitude of a wrong element; None if all comparisons found none.

        It is the first one if all elements were compared and one is wrong. Otherwise it is the worst of the first row
        that an element or a sum shows to be wrong, or of the first such column. The arguments are flat indices: of an
        element of ``rows``, and of sums with signs.
        """
        n = got.shape[1]
        wrong_rows = [int(rows[at // n]) for at in (element,) if at is not None]
        wrong_rows += [at // SIGNS for at in (row,) if at is not None]
        if element is not None and len(rows) == len(got):
            i, j = divmod(element, n)
        elif wrong_rows:
            i, j = min(wrong_rows), None
        elif column is not None:
            i, j = None, column // SIGNS
        else:
            return None
        side, line = (self.transposed, got[:, j]) if i is None else (self.truth, got[i])
        mine = self.results.numbers(np.ascontiguousarray(line))
        expected, _, magnitudes = (each[0] for each in side.elements([j if i is None else i]))
        if i is None or j is None:
            worst = int(np.argmax(np.nan_to_num(np.abs(mine - expected), nan=np.inf)))
            i, j = (worst, j) if i is None else (i, worst)
        at = i if side is self.transposed else j
        return (i, j), mine[at], expected[at], magnitudes[at]

    def compare_sums(self, got: np.ndarray) -> list[accuracy.Compared]:
        found = []
        for x, signs, (totals, norms) in zip((got, got.T), self.signs, self.totals, strict=True):
            kind = kind_of(self.results)
            allowed = self.truth.allowed_in_sums(norms, sums.row_norms(x, kind), len(signs))
            found.append(accuracy.compare(sums.row_sums(x, signs, kind), totals, allowed, allowed))
        return found
