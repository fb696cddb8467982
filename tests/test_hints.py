"""Hints at the mistake of a wrong product: each mistake gives its own hint, and a right product none."""

import dataclasses

import numpy as np
import pytest

from hpcmm.bench import hints
from hpcmm.model import Task
from hpcmm.operations import OPERATIONS

MATMUL = OPERATIONS["matmul"]


def task(shape: tuple[int, ...], alpha: float = 1.5, beta: float = 0.5) -> Task:
    return Task(MATMUL, MATMUL.variant("naive"), shape, "float32", {"alpha": alpha, "beta": beta}, 16)


def right(found: Task, x: dict[str, np.ndarray]) -> np.ndarray:
    old = found.scalars["beta"] * x["C"] if found.scalars["beta"] else 0
    return (found.scalars["alpha"] * (x["A"] @ x["B"]) + old).astype(np.float32)


def hint(kernel, shape=(17, 9, 5), **scalars) -> str:
    return hints.of_product(task(shape, **scalars), lambda found, x: kernel(x, found.scalars, right(found, x)))


def unwritten(x, scalars, c):
    c[8:] = x["C"][8:]
    return c


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        (lambda x, s, c: c, ""),
        (lambda x, s, c: s["alpha"] * (x["A"] @ x["B"]), "beta C is not added"),
        (lambda x, s, c: s["alpha"] * (x["A"] @ x["B"]) + x["C"], "C is added without beta"),
        (lambda x, s, c: x["A"] @ x["B"] + s["beta"] * x["C"], "alpha is missing"),
        (lambda x, s, c: s["alpha"] ** 2 * (x["A"] @ x["B"]) + s["beta"] * x["C"], "alpha is applied twice"),
        (lambda x, s, c: s["alpha"] * (x["A"][:, 1:] @ x["B"][1:]) + s["beta"] * x["C"], "the first of the k products"),
        (lambda x, s, c: c + 1.5, "each element is off by 1.5: the sum does not start from 0"),
        (lambda x, s, c: x["C"].copy(), "no element of C is written"),
        (unwritten, "rows from 8 on are not written: too few blocks along m"),
        (lambda x, s, c: np.where(np.arange(c.shape[1]) == 8, c + 1, c), "only column 8 of 9 is wrong"),
        (lambda x, s, c: c * np.nan, "NaN: memory is read"),
        (lambda x, s, c: c if all(n % 8 == 0 for n in c.shape) else None, "right at multiples of 8 x 8 x 1"),
        (lambda x, s, c: c if len({*c.shape, *x["A"].shape}) == 1 else None, "right only if m = n = k"),
    ],
)
def test_a_mistake_gives_its_hint(kernel, wanted):
    found = hint(kernel)
    assert wanted in found and bool(wanted) == bool(found)


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        (lambda a, b, c: a @ b, ""),
        (lambda a, b, c: a[:, 1:] @ b[1:], "the first of the k products is left out"),
        (lambda a, b, c: -a @ b, "A B is subtracted"),
        (lambda a, b, c: 0 * c, "all of C is 0: the sum is not added up"),
        (lambda a, b, c: np.concatenate([(a @ b)[:8], c[8:]]), "rows from 8 on are not written"),
    ],
)
def test_a_product_of_integers_has_hints_too(kernel, wanted):
    found = dataclasses.replace(task((17, 9, 5), alpha=1, beta=0), dtype="int32")
    hint = hints.of_product(found, lambda _, x: kernel(*(x[name] for name in "ABC")))
    assert wanted in hint and bool(wanted) == bool(hint) and "fractions" not in hint


def test_c_that_is_read_although_beta_is_0():
    assert "C is read although beta is 0" in hint(lambda x, s, c: c + 0 * x["C"], beta=0)
    assert "no element of C is written" in hint(lambda x, s, c: x["C"].copy(), beta=0)


def test_one_wrong_element_shows_no_pattern():
    def without_the_last_row(x, s, c):
        c[-1] = s["beta"] * x["C"][-1] if len(c) % 3 == 1 else c[-1]
        return c

    assert hint(without_the_last_row, (1, 1, 1)) == ""


def test_matrices_in_another_order():
    for product, wanted in (
        (lambda a, b: a.T @ b, "this is A' B"),
        (lambda a, b: a @ b.T, "this is A B'"),
        (lambda a, b: b @ a, "this is B A"),
        (lambda a, b: (a @ b).T, "A B is transposed"),
    ):
        found = hint(lambda x, s, c, of=product: s["alpha"] * of(x["A"], x["B"]) + s["beta"] * x["C"], (6, 6, 6))
        assert wanted in found


def test_a_contract_is_not_questioned():
    from hpcmm.model.contract import Contract

    variant = dataclasses.replace(MATMUL.variant("naive"), contract=Contract(multiples={"m": 8}))
    found = dataclasses.replace(task((8, 8, 8)), variant=variant)
    assert hints.of_product(found, lambda other, x: None) == ""
