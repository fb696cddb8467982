"""The geometry of a float64 product that is made of int8 products, and its constants (Ozaki scheme II).

Method: Ozaki, Uchino and Imamura, "Ozaki Scheme II: A GEMM-oriented emulation of floating-point matrix multiplication
using an integer modular technique", 2025. Integers of a row of A and a column of B are scaled to Euclidean norms of at
most the square root of P / 2, where P is the product of the moduli. The elements of A B are then at most P / 2 by the
Cauchy-Schwarz inequality, and the Chinese remainder theorem gives them from their residues.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcmm.model import Task
from hpcmm.model.launch import Boxes, Launch, Workspace
from hpcmm.operations.blocks import OverC, Staged, rounded_up

# The largest numbers up to 256 without a common divisor, as long as their residues fit in int8
MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197)
DIGIT_BITS = 15  # of the digits whose residues are added up; their sums are exact in float32
RECIPROCAL_BITS = 38
MARGIN = 2.0**-9  # of the squares of norms, for the rounding errors of the norms
GROUP = 128  # elements in a group, as GROUP of the source
WARPS = 8  # of a block of the kernels before and after the products
COLUMNS = 32  # of B in a block of the kernels before the products


def centered(number: int, modulus: int) -> int:
    """Return the residue of a number with the smallest magnitude.

    >>> centered(200, 256), centered(100, 256)
    (-56, 100)
    """
    return (number + modulus // 2) % modulus - modulus // 2


def weights(moduli: tuple[int, ...]) -> list[int]:
    """Return the number of each modulus that is 1 modulo it, 0 modulo the others, and below their product.

    >>> weights((3, 5))
    [10, 6]
    """
    product = math.prod(moduli)
    return [product // p * pow(product // p, -1, p) for p in moduli]


def high_and_low(number: int, moduli: tuple[int, ...]) -> tuple[float, float]:
    """Return a number below the product of moduli as the sum of two float64 numbers.

    The first has so few bits that the sum of its products with all residues is exact in float64. The second one is
    rounded.
    """
    largest = math.prod(moduli) * 256 * len(moduli)
    grid = 1 << max(0, largest.bit_length() - 53)
    high = number // grid * grid
    assert int(float(high)) == high
    return float(high), float(number - high)


def tables(count: int) -> dict[str, int | str]:
    """Return the macros of a source that multiplies residues modulo the first ``count`` of ``MODULI``."""
    moduli = MODULI[:count]
    product = math.prod(moduli)
    pairs = [high_and_low(weight, moduli) for weight in weights(moduli)]
    high, low = high_and_low(product, moduli)
    values = {
        "MODULI": moduli,
        "RECIPROCALS": [round(2**RECIPROCAL_BITS / p) for p in moduli],
        "NEGATIVE_MODULI": [f"-{p}.f" for p in moduli],
        "INVERSE_MODULI": [f"1.f/{p}" for p in moduli],
        **{f"POWERS_{i}": [f"{centered(1 << DIGIT_BITS * i, p)}.f" for p in moduli] for i in (1, 2, 3)},
        "WEIGHTS_HIGH": [pair[0].hex() for pair in pairs],
        "WEIGHTS_LOW": [pair[1].hex() for pair in pairs],
    }
    return {
        **{"LAYERS": count, "DIGIT_BITS": DIGIT_BITS},
        **{name: ",".join(map(str, each)) for name, each in values.items()},
        **{"PRODUCT_HIGH": high.hex(), "PRODUCT_LOW": low.hex()},
        "LIMIT": f"{np.float32(product / 2 * (1 - MARGIN))!s}f",
    }


@dataclass(frozen=True)
class Residues(OverC):
    """Persistent blocks that multiply residues modulo each of ``count`` moduli, with kernels before and after them."""

    count: int
    rows: int = 128
    columns: int = 256
    depth: int = 128
    stages: int = 4
    group_rows: int = 8
    threads: int = 384

    @property
    def moduli(self) -> tuple[int, ...]:
        return MODULI[: self.count]

    def macros(self, task: Task) -> dict[str, int | str]:
        return {
            **{"ROWS": self.rows, "COLUMNS": self.columns, "DEPTH": self.depth, "BLOCK": self.threads},
            **{"STAGES": self.stages, "GROUP_ROWS": self.group_rows},
            **tables(self.count),
        }

    def covered(self, task: Task) -> tuple[int, int]:
        return self.rows, self.columns

    def phase(self, task: Task) -> Staged | None:
        return Staged(self.rows, self.columns, self.depth)

    def padded(self, task: Task) -> tuple[int, int, int]:
        """Return the rows of a layer of C, its columns, and the terms: rounded up to whole tiles and groups."""
        m, n, k = task.shape
        return rounded_up(m, self.rows), rounded_up(n, GROUP), rounded_up(max(k, 1), GROUP)

    def workspace(self, task: Task) -> dict[str, Workspace]:
        m, n, _ = task.shape
        rows, columns, depth = self.padded(task)
        return {
            "scales_a": Workspace((m,), "int32"),
            "scales_b": Workspace((n,), "int32"),
            "layers_a": Workspace((self.count * m, depth), "uint8"),
            "layers_b": Workspace((self.count * columns, depth), "uint8"),
            "layers_c": Workspace((self.count * rows, columns), "uint8"),
        }

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = task.operation.arguments(task, arrays)
        if not (m and n):
            return []
        scales_a, scales_b, *layers = (arrays[name] for name in self.workspace(task))
        layers_a, layers_b, layers_c = layers
        padded = self.padded(task)
        rows, columns, depth = map(np.int32, padded)
        tiles = padded[0] // self.rows * -(-padded[1] // self.columns)
        groups, groups_of_terms = padded[1] // GROUP, padded[2] // GROUP
        warps, columns_of_b = (32, WARPS), -(-task.shape[1] // COLUMNS)
        boxes = (
            Boxes(layers_a, self.rows, self.depth, "uint8"),
            Boxes(layers_b, self.columns, self.depth, "uint8"),
            Boxes(layers_c, 64, self.depth, "uint8"),
        )
        ring = self.stages * ((self.rows + self.columns) * self.depth + 16) + self.rows * self.columns
        splitting = n, k, columns, depth, b, ldb, scales_b, layers_b
        combining = n, rows, columns, alpha, layers_c, scales_a, scales_b, beta, c, ldc
        return [
            Launch((task.shape[0],), warps, (m, k, depth, a, lda, scales_a, layers_a), function="split_rows"),
            Launch((columns_of_b,), (COLUMNS, COLUMNS), (n, k, b, ldb, scales_b), function="scale_columns"),
            Launch((padded[1] // COLUMNS, groups_of_terms), warps, splitting, function="split_columns"),
            Launch((min(self.count * tiles, task.sms),), (self.threads,), (m, columns, depth, *boxes), ring),
            Launch((task.shape[0], -(-groups // WARPS)), warps, combining, function="recombine"),
        ]
