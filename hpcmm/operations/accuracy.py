"""Truths in higher precision than the results they judge, and the errors that rounding may cause.

Notation and bounds: N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., 3.1
and 3.5. The higher precision is float64 for float32; for float64 it is a product of exact slices
(Ozaki, Ogita, Oishi, Rump, Numer. Algorithms 59, 2012) or extended precision.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hpcmm.model import Verdict

# Multiply-adds that a componentwise reference may cost; larger products are judged by Freivalds.
COMPONENTWISE_LIMIT = 2**34
SLICES = 3
ROWS = 256  # of a matrix, that one thread works on at a time


def gamma(terms: int, u: float) -> float:
    """Return the relative error bound of a sum of ``terms`` products with unit roundoff u: ``n u / (1 - n u)``."""
    if terms * u >= 1:
        raise ValueError(f"no rounding bound for {terms} terms with a unit roundoff of {u:.3g}")
    return terms * u / (1 - terms * u)


def in_threads(work: Callable[[slice], Any], length: int, step: int) -> list[Any]:
    """Do ``work`` on each slice of ``step`` out of ``length``, on all cores: NumPy releases the interpreter's lock."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return list(threads.map(work, (slice(i, min(i + step, length)) for i in range(0, length, step))))


def row_sums(x: np.ndarray, weights: np.ndarray, of: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
    """The sum of each row of ``of(x)`` times ``weights``, in their precision; one for each column of them."""
    parts = in_threads(lambda rows: of(x[rows]).astype(weights.dtype) @ weights, len(x), ROWS)
    return np.concatenate(parts)


def row_norms(x: np.ndarray) -> np.ndarray:
    """The 2-norm of each row."""
    return np.sqrt(row_sums(x, np.ones(x.shape[1]), np.square))


def exact_slices(x: np.ndarray, axis: int, bits: int) -> list[np.ndarray]:
    """Split ``x`` into float64 slices of ``bits`` bits on one grid along ``axis``; they sum to ``x``."""
    largest = np.abs(x).max(axis=axis, keepdims=True)
    unit = np.ldexp(1.0, np.frexp(largest)[1])
    rest, parts = x.copy(), []
    for _ in range(SLICES):
        unit = unit * 2.0**-bits
        parts.append(np.rint(rest / unit) * unit)
        rest -= parts[-1]
    return parts


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B of float64 matrices, with an error far below float64 rounding, in extended precision.

    Each slice has so few bits that every product of slices is exact in float64 whatever the order
    of its sum, so BLAS may do the work.
    """
    bits = (53 - int(np.ceil(np.log2(max(2, a.shape[1]))))) // 2
    left, right = exact_slices(a, 1, bits), exact_slices(b, 0, bits)
    pairs = [(i, j) for i in range(SLICES) for j in range(SLICES) if i + j < SLICES]
    total = np.zeros((a.shape[0], b.shape[1]), np.longdouble)
    for i, j in sorted(pairs, key=sum, reverse=True):
        total += left[i] @ right[j]
    return total


def describe(index: tuple[int, ...], got, expected) -> str:
    """Where an element is wrong and by how much: ``"0:640: 0 - 1.5 = -1.5"``."""
    place = ":".join(map(str, index)) + ": " if index else ""
    return f"{place}{float(got):.9g} - {float(expected):.9g} = {float(got) - float(expected):.6g}"


def judge(got: np.ndarray, truth: np.ndarray, allowed: np.ndarray, bound: float, reference: str) -> Verdict:
    """Compare elementwise; ``allowed`` is the absolute error that ``bound`` permits at each element.

    Where none is permitted, the error is reported as it is.
    """
    difference = np.abs(got - truth)
    right = difference <= allowed  # a NaN is never right
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(allowed == 0, difference, difference / allowed * bound)
    error = float(np.max(relative)) if relative.size else 0.0
    if right.all():
        return Verdict(True, error, bound, reference)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmin(right)), got.shape))
    return Verdict(False, error, bound, reference, describe(index, got[index], truth[index]))
