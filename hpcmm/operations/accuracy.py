"""References in higher precision than the results, and bounds of the errors that rounding may cause.

Notation and bounds: N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., 3.1
and 3.5. The higher precision is float64 for float32; for float64 it is a product of exact slices
(Ozaki, Ogita, Oishi, Rump, Numer. Algorithms 59, 2012) or extended precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hpcmm.model import Verdict
from hpcmm.operations.cores import in_threads, rows_of_part

# Maximum cost of a componentwise reference in multiply-adds; larger products are checked by Freivalds' method.
COMPONENTWISE_LIMIT = 2**34
GUARD_BITS = 8  # bits of the sum of the slices' products, beyond those of float64


def gamma(terms: int, u: float) -> float:
    """Return the relative error bound of a sum of n = ``terms`` products with unit roundoff u: ``n u / (1 - n u)``."""
    if terms * u >= 1:
        raise ValueError(f"no rounding bound for {terms} terms with a unit roundoff of {u:.3g}")
    return terms * u / (1 - terms * u)


def exact_slices(x: np.ndarray, axis: int, bits: int, count: int) -> list[np.ndarray]:
    """Split ``x`` into ``count`` float64 slices of ``bits`` bits on a common grid along ``axis``.

    They sum to ``x``, except for a remainder below the last bit of the last slice.
    """
    largest = np.abs(x).max(axis=axis, keepdims=True)
    unit = np.ldexp(1.0, np.frexp(largest)[1])
    rest, parts = x.copy(), []
    for _ in range(count):
        unit = unit * 2.0**-bits
        parts.append(np.rint(rest / unit) * unit)
        rest -= parts[-1]
    return parts


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return A B of float64 matrices in extended precision, with an error far below float64 rounding.

    Slices have so few bits that their products are exact in float64 for any order of summation, so BLAS can compute
    them. The number of slices suffices for every element, also for the one whose sum of magnitudes is the smallest
    relative to its row of A and its column of B.
    """
    terms = max(2, a.shape[1])
    bits = (53 - int(np.ceil(np.log2(terms)))) // 2
    magnitudes = np.abs(a) @ np.abs(b)
    largest = np.abs(a).max(axis=1, keepdims=True, initial=0) * np.abs(b).max(axis=0, keepdims=True, initial=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.max(np.sqrt(terms) * largest / magnitudes, initial=1 / terms, where=magnitudes > 0)
    count = int(np.ceil((53 + GUARD_BITS + np.log2(spread)) / bits))
    left, right = exact_slices(a, 1, bits, count), exact_slices(b, 0, bits, count)
    pairs = [(i, j) for i in range(count) for j in range(count) if i + j < count]
    total = np.zeros((a.shape[0], b.shape[1]), np.longdouble)
    for i, j in sorted(pairs, key=sum, reverse=True):
        total += left[i] @ right[j]
    return total


def describe(index: tuple[int, ...], got, expected) -> str:
    """Return the index of a wrong element and its difference: ``"0:640: 0 - 1.5 = -1.5"``."""
    place = ":".join(map(str, index)) + ": " if index else ""
    return f"{place}{float(got):.9g} - {float(expected):.9g} = {float(got) - float(expected):.6g}"


def equal_to(truth: np.ndarray | float, reference: str) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks a result: it must equal ``truth`` at every element."""
    truth = np.asarray(truth)

    def compare(got: np.ndarray) -> Verdict:
        if np.array_equal(got, truth):
            return Verdict(True, 0.0, 0.0, reference, rms=0.0)
        # in float64, because a difference of two int32 may overflow
        return judge(np.asarray(got, np.float64), truth.astype(np.float64), np.zeros(()), 0.0, reference)

    return compare


def judge(got: np.ndarray, truth: np.ndarray, allowed: np.ndarray, bound: float, reference: str) -> Verdict:
    """Compare elementwise; ``allowed`` is the absolute error that ``bound`` permits at each element.

    Where ``allowed`` is zero, the absolute error is reported.
    """
    shape = got.shape
    got, truth, allowed = map(np.atleast_1d, np.broadcast_arrays(got, truth, allowed))
    row = math.prod(got.shape[1:])

    def compare(rows: slice) -> tuple[float, float, int]:
        """Return the largest error of some rows, the sum of squares, and the first wrong element or ``got.size``."""
        # subtract in the precision of the truth; float64 suffices for the rest, and is faster
        difference, limit = (each.astype(np.float64) for each in (np.abs(got[rows] - truth[rows]), allowed[rows]))
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(limit == 0, difference, difference / limit * bound)
        right = difference <= limit  # False for NaN
        first = got.size if right.all() else rows.start * row + int(np.argmin(right))
        return np.max(relative, initial=0.0), np.sum(np.square(relative)), first

    compared = in_threads(compare, len(got), rows_of_part(row))
    errors, squares, wrong = zip(*compared, strict=True) if compared else ((0.0,), (0.0,), (0,))
    error, rms, first = float(np.max(errors)), math.sqrt(np.sum(squares) / max(1, got.size)), min(wrong)
    if first == got.size:
        return Verdict(True, error, bound, reference, rms=rms)
    index = tuple(int(i) for i in np.unravel_index(first, shape))
    at = index or (0,)
    return Verdict(False, error, bound, reference, describe(index, got[at], truth[at]), rms)
