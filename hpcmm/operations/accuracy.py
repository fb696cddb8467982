"""References in higher precision than the results, and bounds of the errors that rounding may cause.

Notation and bounds: N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., 3.1
and 3.5. The higher precision is float64 for float32; for float64 it is a product of exact slices
(Ozaki, Ogita, Oishi, Rump, Numer. Algorithms 59, 2012) or extended precision.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hpcmm.model import Verdict, untimed
from hpcmm.operations.cores import in_threads, rows_of_part

# Maximum number of terms m n k of a product whose elements are all compared on the host
COMPONENTWISE_LIMIT = 2**33
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


@untimed
def describe(index: tuple[int, ...], got, expected) -> str:
    """Return the index of a wrong element and its difference: ``"0:640: 0 - 1.5 = -1.5"``."""
    place = ":".join(map(str, index)) + ": " if index else ""
    return f"{place}{float(got):.9g} - {float(expected):.9g} = {float(got) - float(expected):.6g}"


def equal_to(truth: np.ndarray | float, reference: str) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks a result: it must equal ``truth`` at every element, zeros with their signs."""
    truth = np.asarray(truth)

    def compare(got: np.ndarray) -> Verdict:
        if np.array_equal(got, truth):
            signs = np.argwhere(np.signbit(got) != np.signbit(truth))
            where = describe(first := tuple(map(int, signs[0])), got[first], truth[first]) if len(signs) else ""
            return Verdict(not where, 0.0, 0.0, reference, where, rms=0.0)
        # in float64, because a difference of two int32 may overflow
        return judge(np.asarray(got, np.float64), truth.astype(np.float64), np.zeros(()), 0.0, reference)

    return compare


class Compared(NamedTuple):
    # Largest error relative to the magnitude of the element; the error itself where the magnitude is zero. NaN if an
    # element is not a number.
    error: float = 0.0
    share: float = 0.0  # largest error over the allowed one; the error itself where none is allowed
    squares: float = 0.0  # sum of the squares of the relative errors
    first: int | None = None  # flat index of the first wrong element


def compared(got, truth, allowed, magnitudes) -> Compared:
    """Compare a block of elements; the arrays are NumPy's, or those of a device that take NumPy's functions."""
    if not got.size:
        return Compared()
    # subtract in the precision of the truth; float64 suffices for the rest, and is faster
    with np.errstate(invalid="ignore", over="ignore"):
        difference, limit, size = (x.astype(np.float64) for x in (abs(got - truth), allowed, magnitudes))
        relative, share = difference / (size + (size == 0)), difference / (limit + (limit == 0))
        wrong = ~((difference <= limit) & (difference < np.inf))  # True for NaN
    first = int(wrong.argmax()) if bool(wrong.any()) else None
    return Compared(float(relative.max()), float(share.max()), float((relative * relative).sum()), first)


def together(parts: Sequence[Compared], first: int | None) -> Compared:
    """Return the comparison of all parts of a result; NaN stays NaN."""
    error, share, squares, _ = zip(*(parts or [Compared()]), strict=True)
    return Compared(float(np.max(error)), float(np.max(share)), float(np.sum(squares)), first)


def compare(got: np.ndarray, truth: np.ndarray, allowed: np.ndarray, magnitudes: np.ndarray) -> Compared:
    got, truth, allowed, magnitudes = map(np.atleast_1d, np.broadcast_arrays(got, truth, allowed, magnitudes))
    row = math.prod(got.shape[1:])
    step = rows_of_part(row)
    parts = in_threads(lambda i: compared(got[i], truth[i], allowed[i], magnitudes[i]), len(got), step)
    wrong = (number * step * row + part.first for number, part in enumerate(parts) if part.first is not None)
    return together(parts, next(wrong, None))


def judge(got: np.ndarray, truth: np.ndarray, allowed: np.ndarray, bound: float, reference: str) -> Verdict:
    """Compare elementwise with absolute errors ``allowed``.

    The verdict's errors are relative to the magnitude for which ``bound`` permits the allowed error. Where it is zero,
    the absolute error is reported.
    """
    found = compare(got, truth, allowed, allowed / bound if bound else allowed)
    where, size = "", max(1, got.size)
    if found.first is not None:
        index = tuple(int(i) for i in np.unravel_index(found.first, got.shape))
        where = describe(index, got[index], np.broadcast_to(truth, got.shape)[index])
    return Verdict(found.first is None, found.error, bound, reference, where, math.sqrt(found.squares / size))
