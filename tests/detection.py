"""The table of errors that the verification of a product finds: ``python tests/detection.py`` prints it.

Errors are planted in ``ROWS`` rows of right square products. Sums of columns and sampled rows, which find more, do not
count.
"""

import sys

import numpy as np
import yaml

from hpcmm.model.measurement import Point
from hpcmm.operations import sums, task_of
from hpcmm.operations import truth as truths
from hpcmm.operations.accuracy import compare
from hpcmm.operations.matmul import MATMUL

ROWS, BLOCK = 128, 128
DRAWS = 100
SIZES, TYPES = (4096, 16384), ("bfloat16", "float16", "float32", "float64")


class Product:
    """Some rows of a right product of matrices of one size, and its judge."""

    def __init__(self, dtype: str, size: int, seed: int = 1):
        task = task_of(Point("matmul", "cublas", (ROWS, size, size), dtype, 1, {"alpha": 1.5, "beta": 0.5}))
        self.arrays = MATMUL.draw(np.random.default_rng(seed), task)
        self.results, self.size = task.element.results, size
        self.real = np.float64 if dtype == "float64" else np.float32
        self.a, self.b = (task.element.numbers(self.arrays[name]).astype(self.real) for name in "AB")
        self.old = self.results.numbers(self.arrays["C"]).astype(self.real)
        self.right = self.real(1.5) * (self.a @ self.b) + self.real(0.5) * self.old
        self.judge = truths.Judge(task, self.arrays)
        rows = self.judge.truth.elements(np.arange(ROWS)) if dtype != "float64" else None
        self.expected = rows  # float64 has no wider type in which a library multiplies

    def found(self, numbers: np.ndarray, rows: np.ndarray) -> tuple[bool, bool]:
        """Whether the sums of some rows find an error, and whether the comparison of their elements does."""
        stored = self.results.stored(numbers)
        signs, (totals, norms), kind = self.judge.signs[0], self.judge.totals[0], truths.kind_of(self.results)
        allowed = self.judge.truth.allowed_in_sums(norms[rows], sums.row_norms(stored, kind), len(signs))
        by_sums = compare(sums.row_sums(stored, signs, kind), totals[rows], allowed, allowed).first is not None
        if self.expected is None:
            return by_sums, False
        return by_sums, compare(self.results.numbers(stored), *(x[rows] for x in self.expected)).first is not None


def element(rng, product, x):
    i, j = rng.integers(ROWS), rng.integers(product.size)
    return np.s_[i : i + 1, j : j + 1]


def row(rng, product, x):
    i = rng.integers(ROWS)
    return np.s_[i : i + 1, :]


def block(width):
    def place(rng, product, x):
        i, j = (width * rng.integers(length // width) for length in x.shape)
        return np.s_[i : i + width, j : j + width]

    return place


def last_columns(rng, product, x):
    return np.s_[:, -8:]


def times_ten(rng, product, x, at):
    x[at] *= 10


def unwritten(rng, product, x, at):
    x[at] = product.old[at]


def zero(rng, product, x, at):
    x[at] = 0


def lost_term(rng, product, x, at):
    term = rng.integers(product.size)
    x[at] -= product.real(1.5) * product.a[at[0], term : term + 1] * product.b[term, at[1]]


def half_of_the_terms(rng, product, x, at):
    half = product.size // 2
    x[at] -= product.real(1.5) * (product.a[at[0], half:] @ product.b[half:, at[1]])


def exchanged(rng, product, x, at):
    i, j = rng.choice(ROWS, 2, replace=False)
    x[[i, j]] = x[[j, i]]


ERRORS = {
    "one element is 10 times as large": (element, times_ten),
    "one element is not written": (element, unwritten),
    "one element lacks one of its terms": (element, lost_term),
    "a row is zero": (row, zero),
    "a row is not written": (row, unwritten),
    "two rows are exchanged": (row, exchanged),
    "a block of 8 × 8 is not written": (block(8), unwritten),
    "a block of 64 × 64 is not written": (block(64), unwritten),
    "a block of 128 × 128 is not written": (block(128), unwritten),
    "a block of 128 × 128 lacks half of its terms": (block(128), half_of_the_terms),
    "the last 8 columns are not written": (last_columns, unwritten),
}


def shares(product: Product, error: str, draws: int = DRAWS) -> list[int]:
    """Return the percentage of planted errors that the sums of rows find, and that all elements show."""
    place, spoil = ERRORS[error]
    found = []
    for draw in range(draws):
        rng, x = np.random.default_rng(draw), product.right.copy()
        spoil(rng, product, x, place(rng, product, x))
        rows = np.flatnonzero((x != product.right).any(axis=1))
        found.append(product.found(x[rows], rows))
    return [round(100 * float(np.mean(each))) for each in zip(*found, strict=True)]


def cell(product: Product, error: str) -> str:
    by_sums, everywhere = shares(product, error)
    return f"{by_sums}" if product.expected is None else f"{by_sums} / {everywhere}"


if __name__ == "__main__":
    sizes = list(map(int, sys.argv[1:])) or SIZES
    rows = {error: [] for error in ERRORS}
    for dtype in TYPES:
        for size in sizes:
            product = Product(dtype, size)
            assert product.found(product.right, np.arange(ROWS)) == (False, False)
            for error in ERRORS:
                rows[error].append(cell(product, error))
                print(dtype, size, error, rows[error][-1], file=sys.stderr, flush=True)
    header = ["Error", *(f"{dtype}, {size}" for dtype in TYPES for size in sizes)]
    print(yaml.safe_dump([header, *([error, *cells] for error, cells in rows.items())], width=200, allow_unicode=True))
