"""All elements of a product beside a product in float64 by the library of a device, block by block."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpcmm.model.dtypes import DType
from hpcmm.operations import accuracy

BLOCK = 2048  # rows and columns of a block
ROUNDOFF = 2.0**-53
ROUNDINGS = 24  # four times those of an element: a sum of few elements with signs has a longer tail


class Wide:
    """The comparison of all elements of results with a float64 product by the library of a device.

    This product must itself have the sums with signs of the reference, which no library computed. If it has other sums,
    or takes longer than ``seconds``, it is not used again. ``totals`` are the sums of the rows and of the columns of C
    with ``signs``, and the norms of their terms, as ``Truth.row_sums`` returns them. ``truth.expected`` also computes
    on arrays of the device.
    """

    def __init__(self, device: Any, truth: Any, signs: Sequence[np.ndarray], totals: Sequence[tuple], seconds: float):
        self.device, self.truth, self.signs, self.totals, self.seconds = device, truth, signs, totals, seconds
        self.usable = True

    def compare(self, got: np.ndarray) -> accuracy.Compared | None:
        """Compare all elements; None if the product cannot be used."""
        if not self.usable or self.device.free_bytes() < self.memory_bytes():
            return None
        found = self._compare(got)
        self.device.release(before_next=True)
        self.usable = found is not None
        return found

    def memory_bytes(self) -> int:
        """Return an upper bound of the device memory that a comparison takes."""
        b, size = self.truth.b, 8 * BLOCK  # bytes of BLOCK numbers in float64
        return b.nbytes + 6 * size * len(b) + 16 * size * BLOCK  # A and B of a block, three each; and its elements

    def _compare(self, got: np.ndarray) -> accuracy.Compared | None:
        truth, upload, begin = self.truth, self.device.upload, time.perf_counter()
        numbers, numbers_of_c = (numbers_on(self.device, kind) for kind in (truth.element, truth.results))
        (m, n), stored_b = got.shape, upload(truth.b)
        right, left = (upload(sign.astype(np.float64)) for sign in self.signs)
        sums = [upload(np.zeros((length, each.shape[1]))) for length, each in zip((m, n), (right, left), strict=True)]
        squares = [upload(np.zeros(length)) for length in (m, n)]
        parts, wrong, blocks = [], [], -(-m // BLOCK) * -(-n // BLOCK)
        for top in range(0, m, BLOCK):
            rows = slice(top, top + BLOCK)
            a, mine, start = numbers(upload(truth.a[rows])), upload(got[rows]), None
            if truth.beta:
                start = upload(truth.c[rows])
            for first in range(0, n, BLOCK):
                columns = slice(first, first + BLOCK)
                b = numbers(stored_b[:, columns])
                expected = truth.expected(
                    a @ b, *truth.sizes(a, b), None if start is None else numbers_of_c(start[:, columns])
                )
                parts.append(accuracy.compared(numbers_of_c(mine[:, columns]), *expected))
                if (at := parts[-1].first) is not None:
                    i, j = divmod(at, expected.numbers.shape[1])
                    wrong.append((top + i) * n + first + j)
                sums[0][rows] += expected.numbers @ right[columns]
                sums[1][columns] += expected.numbers.T @ left[rows]
                squares[0][rows] += (expected.numbers * expected.numbers).sum(axis=1)
                squares[1][columns] += (expected.numbers * expected.numbers).sum(axis=0)
                spent = time.perf_counter() - begin
                if len(parts) == 1:
                    least = spent  # includes loading the library
                elif least + (spent - least) / (len(parts) - 1) * (blocks - 1) > self.seconds:
                    return None
        if not all(map(self._has, sums, squares, self.totals)):
            return None
        return accuracy.together(parts, min(wrong, default=None))

    def _has(self, sums: Any, squares: Any, totals: tuple[np.ndarray, np.ndarray]) -> bool:
        """Compare sums of the product with random signs to those of the reference, within float64 rounding."""
        m, n = self.truth.c.shape
        expected, norms = totals
        sums, squares = self._fetched(sums), self._fetched(squares)
        walk = ROUNDINGS * ROUNDOFF * math.sqrt(len(self.truth.b) + m + n)
        allowed = walk * np.hypot(norms, np.sqrt(squares))
        return accuracy.compare(sums, expected, allowed[:, None], allowed[:, None]).first is None

    def _fetched(self, array: Any) -> np.ndarray:
        found = np.empty(array.shape)
        self.device.copy(array, found)
        return found


def numbers_on(device: Any, element: DType) -> Callable[[Any], Any]:
    """Return a function that converts stored elements on a device to float64, by a table of all of them if need be."""
    if not element.ml_dtype:
        return lambda stored: stored.astype(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        every = np.arange(1 << 8 * element.itemsize).astype(element.storage)
        table = device.upload(element.numbers(every).astype(np.float64))
    return lambda stored: table[stored]
