"""Hints at the mistake of a kernel, from the pattern of its wrong results."""

from __future__ import annotations

import ctypes
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hpcmm import kernels
from hpcmm.backends.cpu.device import as_argument
from hpcmm.bench.adoption import trials
from hpcmm.kernels import modules
from hpcmm.model import Task
from hpcmm.model.devices import DEVICES
from hpcmm.operations import heads, overwritten

SECONDS = 10  # of a run
WHOLE, RAGGED, SQUARE = 64, (33, 21, 45), (37, 37, 37)
# A hint of matrices by rows, for those by columns: the operation gets their transposes
BY_COLUMNS = {"this is A' B: A": "this is A B': B", "this is A B': B": "this is A' B: A", "along m": "along n"}
BY_COLUMNS |= {"along n": "along m", "rows": "columns", "columns": "rows", "row": "column", "column": "row"}
BY_COLUMNS |= {"by columns": "by rows"}
UNWRITTEN = "no element of C is written: check the grid, and a return before the store"
Run = Callable[[Task, Mapping[str, np.ndarray]], "np.ndarray | None"]  # None for a run that ends with an error


def of_vector(task: Task, run: Run) -> str:
    """Return what is likely wrong with a kernel on vectors: its first value, or what it takes only."""
    macros, contract = task.macros, task.variant.contract
    sign = {"maximum": 1, "minimum": -1}.get(task.operation.name)
    taken = macros.get("BLOCK", WHOLE) * macros.get("PER_THREAD", 1)
    short = task.shape[0] <= taken  # in longer vectors, the first block may have the largest element by chance
    if sign and short and all(tried(task, task.shape, run, seed, sign).right for seed in (1, 2)):
        what, first = ("positive", "-INFINITY") if sign > 0 else ("negative", "INFINITY")
        return f"right where all elements are {what}: start from {first}, or from an element"
    if len(task.shape) != 1 or taken < 2 or (contract and contract.multiples):
        return ""

    def right(n: int) -> bool:
        return all(tried(task, (n,), run, seed).right for seed in (1, 2))  # of two draws, one may be right by chance

    def added(n: int) -> float | None:
        """Return the sum of ones."""
        whole = dataclasses.replace(task, shape=(n,))
        return run(whole, {"x": np.ones(n, task.dtype)}) if task.operation.name == "sum" else None

    if not right(taken):
        total = added(taken)
        known = total is not None and np.isfinite(total) and total != taken
        return f"the sum of {taken} ones is {float(total):g}" if known else ""
    if right(taken - 1):
        longer = tried(task, (2 * taken,), run)
        if longer.right or longer.result is None:
            return ""
        if task.operation.kernels != "reduction":
            return "right with one block only: the index lacks blockIdx.x, or the grid lacks blocks"
        if (added(2 * taken) or 0) > 2 * taken:
            return "right with one block only: blocks take the same elements; step by gridDim.x * blockDim.x"
        return "right with one block only: each block writes its own result, result[blockIdx.x]"
    for each in (2**i for i in range(taken.bit_length() - 1)):  # the least one: half of a multiple is none
        if right(each) and right(taken + each) and right(taken - each):
            taken = each
            break
    stated = f", or state multiples: {{n: {taken}}}" if task.variant.adapted else ""
    return f"right at multiples of {taken}: {mend(task, 'n')}{stated}"


def mend(task: Task, sizes: str) -> str:
    """Return what makes a kernel that is right at multiples right at any size."""
    grid = " ".join(map(str, getattr(task.geometry, "grid", ())))
    return f"compare with {sizes}" if "/" not in grid or re.search(r"ceil|\+", grid) else "round the grid up"


def of_product(task: Task, run: Run) -> str:
    """Return what is likely wrong with a kernel whose C, which ``run`` returns, is wrong; empty if nothing fits.

    Of a kernel of matrices by columns, the hint is in its terms, but multiples are those of a head.
    """
    hint, path = of_rows(task, run), task.variant.path
    if not path or "multiples" in hint or heads.head_of(heads.text_of(path), path)[0].get("layout") != "columns":
        return hint
    return re.sub("|".join(rf"{each}(?![\w'])" for each in BY_COLUMNS), lambda x: BY_COLUMNS[x[0]], hint)


def of_rows(task: Task, run: Run) -> str:
    """Return the hint at the mistake of a product, as if its matrices were stored by rows."""
    contract = task.variant.contract
    sizes = dict(zip(task.operation.dimensions, RAGGED, strict=True))
    if max(task.shape) == 1 and not (contract and contract.refuses(sizes, task.scalars)):  # one element shows little
        larger = tried(task, RAGGED, run)
        task = task if larger.right or larger.result is None else larger.task
    inputs = task.operation.draw(np.random.default_rng(task.shape), task)
    got = run(task, inputs)
    if got is not None and not task.element.is_integer and np.isnan(task.element.results.numbers(got)).all():
        again = run(task, inputs | {"C": np.zeros_like(inputs["C"])})
        if again is not None and not again.any():
            return UNWRITTEN
    first = "" if got is None else of_result(task, inputs, got)
    if first and min(task.shape) > 1 and np.any(got):  # else other mistakes look alike
        return first
    tile = max([WHOLE, *(task.macros.get(name, 0) for name in ("ROWS", "COLUMNS"))])
    shapes = {"whole": (tile,) * 3, "ragged": RAGGED, "square": SQUARE}
    outcomes, guess = dict.fromkeys(shapes, False), ""
    for name, shape in shapes.items():
        if contract and contract.refuses(dict(zip(task.operation.dimensions, shape, strict=True)), task.scalars):
            if name == "whole" or contract.multiples:
                return guess or first
            continue
        found = tried(task, shape, run)
        outcomes[name] = found.right
        if found.result is not None and not found.right:
            guess = guess or of_result(found.task, found.inputs, found.result)
    if outcomes["square"] and not outcomes["ragged"] and not (contract and contract.square):
        return "right only if m = n = k: sizes, or leading dimensions, are exchanged"
    if outcomes["whole"] and not outcomes["ragged"] and not outcomes["square"]:
        square = bool(contract and contract.square)
        tries = [(*trials.LEAST, tile)] * 3
        multiples = trials.least_multiples(lambda x: tried(task, x, run).right, (tile,) * 3, square, tries)
        stated = ", ".join(f"{name}: {value}" for name, value in multiples.items())
        stated = "" if task.variant.function else f", or state multiples: {{{stated}}}"
        several = " x ".join(map(str, multiples.values()))
        return f"right at multiples of {several}: {mend(task, 'm, n and k')}{stated}"
    if max(task.shape) == 1 and any(outcomes.values()):
        first = ""  # one wrong element shows no pattern
    return guess or first or ("" if got is None else of_place(task, got, inputs))


def on_cpu(task: Task) -> str:
    output = task.operation.output

    def run(other: Task, inputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
        source, python = kernels.source(other.operation, other.variant), other.variant.function
        module = None if python else modules.compile_module(source, other.macros, other.variant.options)
        arrays = {name: array.copy() for name, array in inputs.items()}
        empty = np.full(other.shape_of(output), other.element.results.poison, other.storage(output))
        arrays.setdefault(output.name, empty)

        own = overwritten.copied(other, arrays, np.empty)
        overwritten.copy(own.before)

        def inside() -> np.ndarray:
            if python:
                python(stream=None, **own.arrays, **other.scalars)
            else:
                function = getattr(modules.open_module(module, source), other.operation.kernels)
                function.restype = None
                given = other.operation.arguments(other, own.arrays)
                function(*map(as_argument, given), ctypes.c_int(2))
            overwritten.copy(own.after)
            return arrays[output.name]

        found = trials.guarded(inside, SECONDS)
        return None if isinstance(found, str) else found

    return (of_product if task.operation.kernels == "matmul" else of_vector)(task, run)


class Tried(NamedTuple):
    """A run at another shape: its task, inputs and result, and whether this is right."""

    task: Task
    inputs: Mapping[str, np.ndarray]
    result: np.ndarray | None
    right: bool


def tried(task: Task, shape: Sequence[int], run: Run, seed: int = 1, sign: int = 0) -> Tried:
    """Run a task at another shape; with a ``sign`` all elements of x have it."""
    task = dataclasses.replace(task, shape=tuple(shape))
    inputs = task.operation.draw(np.random.default_rng(seed), task)
    inputs |= {"x": sign * np.abs(inputs["x"])} if sign else {}
    result = run(task, inputs)
    right = result is not None and bool(task.operation.reference(task, inputs)(result).passed)
    return Tried(task, inputs, result, right)


def of_result(task: Task, inputs: Mapping[str, np.ndarray], got: np.ndarray) -> str:
    element = task.element
    a, b, c = (element.numbers(inputs[name]).astype(np.float64) for name in "ABC")
    alpha, beta = task.scalars["alpha"], task.scalars["beta"]
    m, n, k = task.shape
    result = element.results.numbers(got).astype(np.float64)
    product = a @ b
    if not result.any() and not beta:
        dropped = "" if element.is_integer else ", or its type is an integer and drops fractions"
        return f"all of C is 0: the sum is not added up{dropped}"
    if beta == 0 and np.isnan(result).all():
        return "C is read although beta is 0: it may be NaN, write alpha A B alone then"
    old = np.zeros_like(c) if beta == 0 else c

    def same(x: np.ndarray) -> bool:
        near = max(1e-3, 4 * element.results.unit_roundoff)
        return x.shape == result.shape and np.allclose(result, x, near, near * np.sqrt(k))

    right = alpha * product + beta * old
    guesses: dict[str, np.ndarray] = {}
    if beta:
        guesses["beta C is not added"] = alpha * product
        guesses["beta is added, not beta C"] = alpha * product + beta
        guesses["C is added without beta"] = alpha * product + old
        guesses["A B is missing: only beta C is written"] = beta * old
        guesses["C is added once more, beside beta C"] = alpha * product + (1 + beta) * old
        guesses["beta is applied twice"] = alpha * product + beta**2 * old
    if alpha != 1:
        guesses["alpha is missing"] = product + beta * old
        guesses["alpha is applied twice"] = alpha**2 * product + beta * old
        guesses["alpha is applied to beta C, too"] = alpha * (product + beta * old)
    guesses["A B is subtracted"] = -alpha * product + beta * old
    if m == n == k:
        guesses["this is A' B: A is read by columns"] = alpha * (a.T @ b) + beta * old
        guesses["this is A B': B is read by columns"] = alpha * (a @ b.T) + beta * old
        guesses["this is B A: A and B are exchanged"] = alpha * (b @ a) + beta * old
    if m == n and m > 1:
        guesses["A B is transposed: rows and columns are exchanged"] = alpha * product.T + beta * old
    if k > 1:
        for what, part in (("first", slice(1, None)), ("last", slice(None, -1))):
            guesses[f"the {what} of the k products is left out"] = alpha * (a[:, part] @ b[part]) + beta * old
    for hint, guess in guesses.items():
        if same(guess) and not np.allclose(guess, right, 1e-3, 1e-3):
            return hint
    off = np.median(result - right)
    constant = result.size > 1 and abs(off) > 1e-2 and same(right + off)
    return f"each element is off by {off:.3g}: the sum does not start from 0" if constant else ""


def of_place(task: Task, got: np.ndarray, inputs: Mapping[str, np.ndarray]) -> str:
    """Return where a C is wrong, if that shows something about its kernel."""
    element = task.element
    a, b, c = (element.numbers(inputs[name]).astype(np.float64) for name in "ABC")
    m, n, k = task.shape
    result = element.results.numbers(got).astype(np.float64)
    right = task.scalars["alpha"] * (a @ b) + (task.scalars["beta"] * c if task.scalars["beta"] else 0)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(result - right) <= 1e-3 * np.abs(right) + 1e-3 * np.sqrt(k))
    if not wrong.any():
        return ""
    if got.tobytes() == inputs["C"].tobytes():
        return UNWRITTEN
    rows, columns = wrong.any(axis=1), wrong.any(axis=0)
    start = np.ascontiguousarray(inputs["C"])
    got = np.ascontiguousarray(got)
    left = (got.view(np.uint8).reshape(m, n, -1) == start.view(np.uint8).reshape(m, n, -1)).all(axis=2)
    if (left | ~wrong).all():
        for what, size, lines, whole in (
            ("rows", "m", rows, wrong[rows]),
            ("columns", "n", columns, wrong[:, columns]),
        ):
            first = int(np.argmax(lines))
            if whole.all() and lines[first:].all():
                few = "too few blocks" if DEVICES[task.variant.device].accelerator else "a loop that ends too early"
                return f"{what} from {first} on are not written: {few} along {size}, or a wrong check"
        return f"{int(wrong.sum())} of {wrong.size} elements of C are not written"
    if np.isnan(result[wrong]).all():
        return "NaN: memory is read that nothing has written, or outside the arrays"
    for what, at, size in (("row", rows, m), ("column", columns, n)):
        if size == 1 or at.sum() != 1:
            continue
        return f"only {what} {int(np.argmax(at))} of {size} is wrong"
    return ""
