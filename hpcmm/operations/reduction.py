"""The sum of a vector of n elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.model import Launch, Operand, Operation, Variant, Verdict
from hpcmm.operations import accuracy

B128 = (128,)  # the block of 004 and of Harris
TWO = {"PER_THREAD": 2}

LADDER = (  # the order here is the order of the rungs
    Variant("serial", "cpu", "one loop on one thread", source="004"),
    Variant("openmp", "cpu", "parallel for with a reduction clause"),
    Variant("numpy", "cpu", "NumPy's sum", baseline=True),
    Variant(
        "divergent", "cuda", "interleaved addressing by a modulo: warps diverge", source="004 kernel 1", block=B128
    ),
    Variant("strided", "cuda", "interleaved addressing by a stride: bank conflicts", source="004 kernel 2", block=B128),
    Variant("sequential", "cuda", "the lower half adds the upper half", source="004 kernel 3", block=B128),
    Variant("first_add", "cuda", "first addition while loading", source="004 kernel 4", block=B128, constants=TWO),
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
        "warps add up by exchanging registers",
        block=B128,
        constants={"PER_THREAD": 8, "MAX_BLOCKS": 2112},
    ),
    Variant(
        "one_launch",
        "cuda",
        "16 bytes a load; the last block adds up the sums of all, in fixed order",
        block=(256,),
        constants={"PER_THREAD": 16, "MAX_BLOCKS": 1056},
        one_launch=True,
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
    x = np.frombuffer(rng.bytes(shape[0]), np.int8) >> 4  # -8..7
    x += x >= 0  # no zero, which could be lost unseen
    return {"x": x.astype(dtype)}


def reference(arrays: Mapping[str, np.ndarray], parameters: Mapping[str, float]) -> Callable[[np.ndarray], Verdict]:
    """Return the judge of a computed total: it must equal the sum in float64, which whole numbers leave exact."""
    truth = np.array(arrays["x"].sum(dtype=np.float64))
    return lambda got: accuracy.judge(np.asarray(got, np.float64), truth, np.zeros(()), 0.0, "exact sum, float64")


def arguments(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float], arrays: Mapping) -> tuple:
    """The arguments of every C reduction: input, its length, where the total goes."""
    return arrays["x"], np.uint64(shape[0]), arrays["total"]


def pass_lengths(variant: Variant, n: int) -> list[int]:
    """Blocks of each pass, which are the partial sums that it leaves; the last pass has one.

    A variant that adds up its blocks' sums itself has a single pass. An empty input has one block too.
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
