"""Sum, minimum and maximum of a vector of n elements, with one ladder of kernels for all three."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from hpcmm.model import Geometry, Operand, Operation, Task, Verdict, dtypes
from hpcmm.model.launch import Launch, Workspace
from hpcmm.operations import accuracy, cores
from hpcmm.operations.heads import ladder

START = "start_reduction"  # a function of a kernel's file
LONG = 8  # terms of a sum with almost all bits of its type


@dataclass(frozen=True)
class Passes(Geometry):
    """Launches of one kernel, each over the partial results of the previous one, until one result is left.

    Only the end of a launch synchronizes all blocks.
    """

    per_thread: int = 1  # minimum number of elements per thread
    max_blocks: int = 0  # limit of the grid; 0 for none
    block: int = 128  # threads per block; 128 as in 004 and in Harris
    one_launch: bool = False  # whether the blocks combine their results in a single launch
    per_sm: int = 0  # limit of the grid in blocks per SM; 0 for none
    long: int = 0
    shared_bytes: int = 0  # dynamic shared memory of a block
    # Whether blocks add to the result. A launch of the function ``START`` of the source sets it first.
    adds: bool = False
    constants: Mapping[str, int] = field(default_factory=dict, hash=False)  # further macros of the source

    def __post_init__(self):
        if self.block * self.per_thread < 2 and not self.one_launch:
            raise ValueError("a block of one element never reduces the number of results; allowed: 2 elements or more")

    def sizes(self, task: Task) -> tuple[int, int]:
        """Return the threads of a block and the limit of the grid; 0 for no limit."""
        factor = 2 if self.long and task.shape and task.shape[0] >= self.long else 1
        most = self.per_sm * task.sms if self.per_sm else self.max_blocks
        return self.block * factor, most // factor

    def macros(self, task: Task) -> dict[str, int]:
        block, most = self.sizes(task)
        return {"BLOCK": block, "PER_THREAD": self.per_thread, "MAX_BLOCKS": most, **self.constants}

    def blocks(self, task: Task) -> list[int]:
        """Return the number of blocks of each launch; an empty input has one block too."""
        (n,), counts = task.shape, []
        block, most = self.sizes(task)
        while not counts or n > 1:
            n = max(1, -(-n // (block * self.per_thread)))
            n = min(n, most or n)
            counts.append(n)
            if self.one_launch:
                break
        return counts

    def workspace(self, task: Task) -> dict[str, Workspace]:
        counts = self.blocks(task)[:-1]
        return {f"partial{i}": Workspace((count,), task.dtype) for i, count in enumerate(counts)}

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        x, n, result, neutral = task.operation.arguments(task, arrays)
        launches = [Launch((1,), (1,), (x, n, result, neutral), 0, START)] if self.adds else []
        counts = self.blocks(task)
        block, _ = self.sizes(task)
        for i, count in enumerate(counts):
            target = result if i == len(counts) - 1 else arrays[f"partial{i}"]
            launches.append(Launch((count,), (block,), (x, n, target, neutral), self.shared_bytes))
            x, n = target, np.uint64(count)
        return launches


def numpy_reduction(backend: Any, task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[], None]:
    reduce = UFUNCS[task.operation.combination].reduce
    initial = identity(task.operation.combination, task.dtype)
    return lambda: reduce(arrays["x"], dtype=task.dtype, out=arrays["result"], initial=initial)


def cub(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], None]:
    """Bind CUB's device-wide reduction; an empty input, which has no minimum in CUB, gives the neutral element."""
    x, result = arrays["x"], arrays["result"]
    if x.size == 0:
        neutral = identity(task.operation.combination, task.dtype)
        return lambda: result.fill(neutral)
    return backend.reduction(task.operation.combination, x, result)


DTYPES = ("int32", "float32", "float64")

IDENTITIES = {"sum": 0, "minimum": np.inf, "maximum": -np.inf}
UFUNCS = {"sum": np.add, "minimum": np.minimum, "maximum": np.maximum}


def identity(combination: str, dtype: str) -> np.generic:
    """Return the neutral element, the result of an empty input; integer types have limits instead of infinities.

    >>> float(identity("minimum", "float32")), int(identity("maximum", "int32"))
    (inf, -2147483648)
    """
    value = IDENTITIES[combination]
    if dtype.startswith("int"):
        value = np.clip(value, np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.dtype(dtype).type(value)


def no_result(dtype: str, combination: str) -> float:
    """Return the poison that fills outputs before a run; a reduction over ranks does not hide it.

    It is NaN, or the smallest integer. For a minimum or maximum it is the value that wins against any other, because
    NaN may lose.
    """
    opposite = {"minimum": "maximum", "maximum": "minimum"}.get(combination)
    return identity(opposite, dtype) if opposite else dtypes.DTYPES[dtype].poison


def draw_terms(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw integers 1..8 with a random sign, and ``LONG`` of almost all bits of the type, but not zero.

    Partial sums are exact in any order, and not in a narrower type; see ``docs/bounds.md``.
    """

    def fill(stream: np.random.Generator, x: np.ndarray) -> None:
        terms = np.frombuffer(stream.bytes(len(x)), np.int8) >> 4  # -8..7
        terms += terms >= 0  # no zero: its loss would go unnoticed
        x[...] = terms

    x = cores.draw(rng, np.empty(task.shape, task.dtype), fill)
    bits = np.iinfo(x.dtype).bits - 1 if task.element.is_integer else np.finfo(x.dtype).nmant + 1
    most = 2 ** (bits - 1) // LONG
    numbers = rng.integers(most // 2, most, min(LONG, len(x))) | 1  # odd: no bit of the last place is free
    x[rng.integers(len(x), size=len(numbers))] = numbers * rng.choice((-1, 1), len(numbers))
    return {"x": x}


def draw_one_sided(sign: int, rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw numbers on one side of zero; a random one, the extreme, is by far the nearest to zero.

    A stray zero or the loss of the extreme gives a wrong result. The loss of another element does not; the sum, with
    the same kernels, finds that.
    """

    def fill(stream: np.random.Generator, x: np.ndarray) -> None:
        if task.element.is_integer:
            x[...] = stream.integers(2**29, 2**30, x.shape, x.dtype)
        else:
            stream.random(dtype=x.dtype, out=x)
            x += 1
        x *= sign

    x = cores.draw(rng, np.empty(task.shape, task.dtype), fill)
    if len(x):
        i = rng.choice((0, rng.integers(len(x)), len(x) - 1))  # loops often leave out an end
        x[i] = x[i] / 4
    return {"x": x}


def reference(task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], Verdict]:
    combination, x = task.operation.combination, arrays["x"]
    combine = partial(UFUNCS[combination].reduce, dtype=np.float64, initial=identity(combination, str(x.dtype)))
    truth = combine(cores.in_threads(lambda part: combine(x[part]), len(x), cores.STREAM))
    return accuracy.equal_to(truth, f"exact {combination}, float64")


def arguments(task: Task, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of every kernel: input, its length, output, neutral element."""
    neutral = identity(task.operation.combination, task.dtype)
    return arrays["x"], np.uint64(task.shape[0]), arrays["result"], neutral


def combine_macros(cuda: str, c: str, operator: str) -> dict[str, dict[str, str]]:
    """Return the macros of a combination: an expression of a and b in CUDA and in C, and OpenMP's operator."""
    return {"cuda": {"COMBINE(a, b)": cuda}, "cpu": {"COMBINE(a, b)": c, "OPERATOR": operator}}


LESSER = combine_macros("min(a, b)", "((b) < (a) ? (b) : (a))", "min")
GREATER = combine_macros("max(a, b)", "((a) < (b) ? (b) : (a))", "max")

# The drawn inputs have an exact result in any order of combination
SUM = Operation(
    name="sum",
    kernels="reduction",
    dimensions=("n",),
    operands=(Operand("x", ("n",), "rows", "in"), Operand("result", (), "combined", "out")),
    dtypes=DTYPES,
    scalars={},
    ladder=ladder("reduction", DTYPES, numpy_reduction, cub, geometry=Passes),
    metric="bytes",
    flops=lambda task: max(task.shape[0] - 1, 0),
    bytes=lambda task: (task.shape[0] + 1) * task.element.itemsize,  # the result once
    draw=draw_terms,
    reference=reference,
    arguments=arguments,
    macros=combine_macros("((a) + (b))", "((a) + (b))", "+"),
    geometry=Passes,
)
MINIMUM = replace(SUM, name="minimum", combination="minimum", macros=LESSER, draw=partial(draw_one_sided, 1))
MAXIMUM = replace(SUM, name="maximum", combination="maximum", macros=GREATER, draw=partial(draw_one_sided, -1))
