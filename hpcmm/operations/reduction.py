"""The sum, the minimum and the maximum of a vector of n elements: one ladder of kernels for all three."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from hpcmm.model import Launch, Operand, Operation, Variant, Verdict
from hpcmm.operations import accuracy
from hpcmm.operations.algorithms import REDUCTIONS

B128 = (128,)  # the block of 004 and of Harris
TWO = {"PER_THREAD": 2}

LADDER = (  # the order here is the order of the rungs
    Variant("serial", "cpu", "one loop on one thread", source="004"),
    Variant("openmp", "cpu", "a stretch a thread, their results combined in order"),
    Variant("numpy", "cpu", "NumPy's reduction", baseline=True, deterministic=False),
    Variant(
        "divergent", "cuda", "interleaved addressing by a modulo: warps diverge", source="004 kernel 1", block=B128
    ),
    Variant("strided", "cuda", "interleaved addressing by a stride: bank conflicts", source="004 kernel 2", block=B128),
    Variant(
        "sequential", "cuda", "the lower half of the threads takes in the upper half", source="004 kernel 3", block=B128
    ),
    Variant("first_add", "cuda", "first combination while loading", source="004 kernel 4", block=B128, constants=TWO),
    Variant("last_warp", "cuda", "the last warp written out", source="004 kernel 5", block=B128, constants=TWO),
    Variant("unrolled", "cuda", "all steps written out", source="Harris kernel 6", block=B128, constants=TWO),
    Variant(
        "several_per_thread",
        "cuda",
        "a limited grid strides over the input",
        source="Harris kernel 7",
        block=B128,
        constants={"PER_THREAD": 8, "MAX_BLOCKS": 2112},
    ),
    Variant(
        "shuffle",
        "cuda",
        "the lanes of a warp exchange registers",
        block=B128,
        constants={"PER_THREAD": 8, "MAX_BLOCKS": 2112},
    ),
    Variant(
        "one_launch",
        "cuda",
        "16 bytes a load; the last block combines the results of all, in fixed order",
        block=(256,),
        constants={"PER_THREAD": 16, "MAX_BLOCKS": 1056},
        one_launch=True,
    ),
    Variant("cub", "cuda", "CUB's device-wide reduction", baseline=True),
)

OPERANDS = (Operand("x", ("n",), "rows", "in"), Operand("result", (), "combined", "out"))
IDENTITIES = {"sum": 0, "minimum": np.inf, "maximum": -np.inf}


def identity(combination: str, dtype: str) -> np.generic:
    """What changes no result, and is the result of no elements; a type without infinity has a last number.

    >>> float(identity("minimum", "float32")), int(identity("maximum", "int32"))
    (inf, -2147483648)
    """
    value = IDENTITIES[combination]
    if dtype.startswith("int"):
        value = np.clip(value, np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.dtype(dtype).type(value)


def flops(shape: tuple[int, ...], parameters: Mapping[str, float]) -> int:
    """One combination an element, less one."""
    return max(shape[0] - 1, 0)


def nbytes(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]) -> int:
    """Compulsory traffic: every element once, the result once."""
    return (shape[0] + 1) * np.dtype(dtype).itemsize


def draw_terms(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]):
    """Whole numbers 1..8 with a random sign: no partial sum of theirs is rounded, in any order.

    So the result is checked for equality, which finds each element that was lost or taken twice; a
    rounding bound would hide them from about 2^12 elements on. In float32, sums stay below 2^24 for
    certain up to 2^21 elements; beyond, a partial sum of random signs would have to stray by hundreds
    of standard deviations to reach it (2^30 elements: 2^24 is 101 of them).
    """
    x = np.frombuffer(rng.bytes(shape[0]), np.int8) >> 4  # -8..7
    x += x >= 0  # no zero, which could be lost unseen
    return {"x": x.astype(dtype)}


def draw_around(
    sign: int, rng: np.random.Generator, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]
):
    """Numbers on one side of zero, of which a random one is nearest to it by far: the extreme.

    So a zero from anywhere gives a wrong result, and so does the loss of the extreme. That of any other
    element cannot; the same kernels find it in a sum.
    """
    if dtype == "int32":
        x = rng.integers(2**29, 2**30, shape, dtype=np.int32)
    else:
        x = rng.random(shape, dtype)
        x += 1
    if len(x):
        i = rng.integers(len(x))
        x[i] = x[i] / 4
    x *= sign
    return {"x": x}


def reference(
    combination: str, ufunc: np.ufunc, arrays: Mapping[str, np.ndarray], parameters: Mapping[str, float]
) -> Callable[[np.ndarray], Verdict]:
    """Return the judge of a computed result: it must equal NumPy's in float64, which these inputs leave exact."""
    x = arrays["x"]
    truth = np.array(ufunc.reduce(x, dtype=np.float64, initial=identity(combination, str(x.dtype))))
    name = f"exact {combination}, float64"
    return lambda got: accuracy.judge(np.asarray(got, np.float64), truth, np.zeros(()), 0.0, name)


def arguments(
    combination: str, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float], arrays: Mapping
) -> tuple:
    """The arguments of every kernel: input, its length, where the result goes, the result of no elements."""
    return arrays["x"], np.uint64(shape[0]), arrays["result"], identity(combination, dtype)


def pass_lengths(variant: Variant, n: int) -> list[int]:
    """Blocks of each pass, which are the partial results that it leaves; the last pass has one.

    A variant that combines its blocks' results itself has a single pass. An empty input has one block too.
    """
    elements = variant.block[0] * variant.constants.get("PER_THREAD", 1)
    lengths = []
    while not lengths or n > 1:
        n = max(1, -(-n // elements))
        n = min(n, variant.constants.get("MAX_BLOCKS", n))
        lengths.append(n)
        if variant.one_launch:
            break
    return lengths


def scratch(variant: Variant, shape: tuple[int, ...]) -> dict[str, int]:
    """Elements of each array of partial results; the last pass writes the result itself."""
    if variant.baseline or variant.device == "cpu":
        return {}
    return {f"partial{i}": length for i, length in enumerate(pass_lengths(variant, shape[0])[:-1])}


def launches(
    combination: str,
    variant: Variant,
    shape: tuple[int, ...],
    dtype: str,
    parameters: Mapping[str, float],
    arrays: Mapping,
    multiprocessors: int,
) -> list[Launch]:
    """Several passes of one kernel: there is no barrier across blocks but the end of a launch."""
    passes, source, n = [], arrays["x"], shape[0]
    lengths = pass_lengths(variant, n)
    for i, blocks in enumerate(lengths):
        target = arrays["result"] if i == len(lengths) - 1 else arrays[f"partial{i}"]
        passes.append(Launch((blocks,), variant.block, (source, np.uint64(n), target, identity(combination, dtype))))
        source, n = target, blocks
    return passes


def reduction(combination: str, ufunc: np.ufunc, combine: str, draw: Callable[..., dict]) -> Operation:
    """Return the record of one reduction.

    Parameters
    ----------
    combination : {"sum", "minimum", "maximum"}
        Its name too.
    ufunc : ufunc
        NumPy's function of two elements, which gives the truth.
    combine : str
        The same in CUDA, an expression of ``a`` and ``b``.
    draw : callable
        Draws inputs of which every order of combinations has the same result, exactly.
    """
    return Operation(
        name=combination,
        kernels="reduction",
        dimensions=("n",),
        operands=OPERANDS,
        dtypes=("int32", "float32", "float64"),
        parameters={},
        ladder=LADDER,
        metric="bytes",
        flops=flops,
        bytes=nbytes,
        draw=draw,
        reference=partial(reference, combination, ufunc),
        arguments=partial(arguments, combination),
        launches=partial(launches, combination),
        scratch=scratch,
        macros={"COMBINE(a, b)": combine},
        combination=combination,
        algorithms=REDUCTIONS,
    )


SUM = reduction("sum", np.add, "((a) + (b))", draw_terms)
MINIMUM = reduction("minimum", np.minimum, "min(a, b)", partial(draw_around, 1))
MAXIMUM = reduction("maximum", np.maximum, "max(a, b)", partial(draw_around, -1))
