"""The sum of a vector of n elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.model import Launch, Operand, Operation, Variant, Verdict
from hpcmm.operations import accuracy

LADDER = (  # the order here is the order of the rungs
    Variant("serial", "cpu", "one loop on one thread", source="004"),
    Variant("openmp", "cpu", "parallel for with a reduction clause"),
    Variant("numpy", "cpu", "NumPy's sum", baseline=True),
    Variant(
        "divergent",
        "cuda",
        "interleaved addressing: threads picked by a modulo, warps diverge",
        source="004 kernel 1",
        block=(128,),
    ),
    Variant(
        "sequential",
        "cuda",
        "sequential addressing: the lower half of the threads adds the upper half",
        source="004 kernel 3",
        block=(128,),
    ),
    Variant("cub", "cuda", "CUB's device-wide reduction", baseline=True),
)

OPERANDS = (Operand("x", ("n",), "rows", "in"), Operand("total", (), "combined", "out"))


def flops(shape: tuple[int, ...], parameters: Mapping[str, float]) -> int:
    """One addition an element, less one."""
    return max(shape[0] - 1, 0)


def nbytes(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]) -> int:
    """Compulsory traffic: every element once, the result once."""
    return (shape[0] + 1) * np.dtype(dtype).itemsize


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]):
    """Whole numbers 1..8 with a random sign: no partial sum of theirs is rounded, in any order.

    So the result is checked for equality, which finds each element that was lost or taken twice; a
    rounding bound would hide them from about 2^12 elements on. In float32, sums stay below 2^24 for
    certain up to 2^21 elements; beyond, a partial sum of random signs would have to stray by hundreds
    of standard deviations to reach it (2^30 elements: 2^24 is 101 of them).
    """
    x = rng.integers(1, 9, shape, dtype=np.int8)
    x *= 1 - 2 * rng.integers(0, 2, shape, dtype=np.int8)
    return {"x": x.astype(dtype)}


def reference(arrays: Mapping[str, np.ndarray], parameters: Mapping[str, float]) -> Callable[[np.ndarray], Verdict]:
    """Return the judge of a computed total: it must equal the sum in 64-bit integers."""
    truth = np.array(arrays["x"].astype(np.int64).sum())
    return lambda got: accuracy.judge(np.asarray(got, np.float64), truth, np.zeros(()), 0.0, "exact sum, int64")


def arguments(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float], arrays: Mapping) -> tuple:
    """The arguments of every C reduction: input, its length, where the total goes."""
    return arrays["x"], np.uint64(shape[0]), arrays["total"]


def pass_lengths(variant: Variant, n: int) -> list[int]:
    """Partial sums that are left after each pass; the last is 1 (an empty input has one pass too)."""
    lengths = []
    while not lengths or n > 1:
        n = max(1, -(-n // (variant.block[0] * variant.per_thread)))
        lengths.append(n)
    return lengths


def scratch(variant: Variant, shape: tuple[int, ...]) -> dict[str, int]:
    """Elements of each array of partial sums; the last pass writes the total itself."""
    if variant.baseline or variant.device == "cpu":
        return {}
    return {f"partial{i}": length for i, length in enumerate(pass_lengths(variant, shape[0])[:-1])}


def launches(
    variant: Variant, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float], arrays: Mapping
) -> list[Launch]:
    """Several passes of one kernel: there is no barrier across blocks but the end of a launch."""
    passes, source, n = [], arrays["x"], shape[0]
    lengths = pass_lengths(variant, n)
    for i, blocks in enumerate(lengths):
        target = arrays["total"] if i == len(lengths) - 1 else arrays[f"partial{i}"]
        passes.append(Launch((blocks,), variant.block, (source, np.uint64(n), target)))
        source, n = target, blocks
    return passes


REDUCTION = Operation(
    name="reduction",
    dimensions=("n",),
    operands=OPERANDS,
    dtypes=("int32", "float32", "float64"),
    parameters={},
    ladder=LADDER,
    metric="bytes",
    flops=flops,
    bytes=nbytes,
    draw=draw,
    reference=reference,
    arguments=arguments,
    launches=launches,
    scratch=scratch,
)
