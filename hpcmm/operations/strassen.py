"""The launches of Strassen's algorithm in Winograd's form: additions of quarters, and products by another rung."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpcmm.model import Geometry, Task
from hpcmm.model.launch import Launch, Workspace
from hpcmm.operations.blocks import rounded_up

PRODUCTS = 7
# Row and column of the quarters that are factors themselves, by the number of the product
QUARTERS = {"A": {0: (0, 0), 1: (0, 1), 3: (1, 1)}, "B": {0: (0, 0), 1: (1, 0), 2: (1, 1)}}
MULTIPLE = 64  # of which the sides of the smallest factors are multiples
COLUMNS = 32  # of B in a block that finds the largest elements


@dataclass(frozen=True)
class Strassen(Geometry):
    """Seven products of quarters, made in the same way or by another rung, with kernels before and after them."""

    levels: int  # how often matrices are divided into quarters
    rung: str = "best"  # the variant that computes the smallest products
    scaled: bool = True  # whether rows of A and columns of B are scaled; those of products are
    block: int = 256  # threads of a block

    def macros(self, task: Task) -> dict[str, int]:
        return {"BLOCK": self.block, "BFLOAT16": int(task.dtype == "bfloat16")}

    def quarter(self, task: Task) -> tuple[int, int, int]:
        """Return m, n and k of a product of quarters: rounded up, so that each level has even sides."""
        multiple = MULTIPLE << (self.levels - 1)
        return tuple(rounded_up(max(1, -(-size // 2)), multiple) for size in task.shape)

    def product(self, task: Task) -> Task:
        """Return the task of a product of quarters, and of the build that runs it."""
        return self.quartered(task).picked

    def decide(self, backend: Any, task: Task) -> None:
        product = self.quartered(task)
        (product.variant.picks or product.geometry).decide(backend, product)

    def quartered(self, task: Task) -> Task:
        scalars = {"alpha": 1.0, "beta": 0.0}
        variant = task.variant
        if self.levels == 1:
            variant = task.operation.variant(self.rung)
        else:
            variant = replace(variant, geometry=replace(self, levels=self.levels - 1, scaled=False))
        return replace(task, variant=variant, shape=self.quarter(task), scalars=scalars)

    def workspace(self, task: Task) -> dict[str, Workspace]:
        (m, n, _), (rows, columns, terms) = task.shape, self.quarter(task)
        name, inner = task.element.storage.name, self.product(task).workspace
        return {
            "exponents_a": Workspace((m if self.scaled else 1,), "int32"),
            "exponents_b": Workspace((n if self.scaled else 1,), "int32"),
            "factors_a": Workspace((PRODUCTS * rows, terms), name),
            "factors_b": Workspace((PRODUCTS * terms, columns), name),
            "products": Workspace((PRODUCTS * rows, columns), name),
            **{f"product_{each}": needed for each, needed in inner.items()},
        }

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = task.operation.arguments(task, arrays)
        if not (m and n):
            return []
        rows, columns, terms = self.quarter(task)
        names = ("exponents_a", "exponents_b", "factors_a", "factors_b", "products")
        exponents_a, exponents_b, factors_a, factors_b, products = (arrays[name] for name in names)
        height, across, depth, scaled = map(np.int32, (rows, columns, terms, self.scaled))
        block, width = (self.block,), 16 // task.element.itemsize

        def over(of_rows: int, of_columns: int) -> tuple[int]:
            return (-(-of_rows * of_columns // width // self.block),)

        lines_of_b = -(-task.shape[1] // COLUMNS)
        scaling = [
            Launch((-(-task.shape[0] * 32 // self.block),), block, (m, k, a, lda, exponents_a), function="scale_rows"),
            Launch((lines_of_b,), (COLUMNS, 32), (n, k, b, ldb, exponents_b), function="scale_columns"),
        ]
        of_a = m, k, a, lda, scaled, exponents_a, height, depth, factors_a
        of_b = k, n, b, ldb, scaled, exponents_b, depth, across, factors_b
        of_c = m, n, alpha, products, height, across, scaled, exponents_a, exponents_b, beta, c, ldc
        before = [
            Launch(over(rows, terms), block, of_a, function="sums_a"),
            Launch(over(terms, columns), block, of_b, function="sums_b"),
        ]
        after = Launch(over(rows, columns), block, of_c)
        return [*(scaling if self.scaled else ()), *before, *self.products(task, arrays), after]

    def products(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        rows, columns, terms = self.quarter(task)
        product = self.product(task)
        inner = {name: arrays[f"product_{name}"] for name in product.workspace}

        def factor(name: str, number: int, height: int, width: int) -> Any:
            """Return a factor; a quarter that need not be scaled is where it was."""
            if self.scaled or number not in QUARTERS[name]:
                return arrays[f"factors_{name.lower()}"][number * height : (number + 1) * height]
            row, column = QUARTERS[name][number]
            return arrays[name][row * height : (row + 1) * height, column * width : (column + 1) * width]

        found = []
        for number in range(PRODUCTS):
            operands = {
                "A": factor("A", number, rows, terms),
                "B": factor("B", number, terms, columns),
                "C": arrays["products"][number * rows : (number + 1) * rows],
            }
            launches = product.geometry.launches(product, operands | inner)
            found += [replace(launch, task=launch.task or product) for launch in launches]
        return found
