"""z = x + y, elementwise, of vectors of n elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hpcmm.model import Launch, Operand, Operation, Variant, Verdict
from hpcmm.operations import accuracy
from hpcmm.operations.algorithms import SCATTER

B256 = (256,)  # the block of 004

LADDER = (  # the order here is the order of the rungs
    Variant("serial", "cpu", "one loop on one thread", source="004 unit 1"),
    Variant("openmp", "cpu", "parallel for"),
    Variant("numpy", "cpu", "NumPy's add", baseline=True),
    Variant("one_per_thread", "cuda", "one thread adds one element", source="004 unit 1", block=B256),
    Variant(
        "grid_stride",
        "cuda",
        "a limited grid strides over the vectors",
        block=B256,
        constants={"PER_THREAD": 4, "MAX_BLOCKS": 1056},
    ),
    Variant("vectorized", "cuda", "16 bytes a load", block=B256, constants={"PER_THREAD": 4}),
    Variant("cupy", "cuda", "CuPy's elementwise add", baseline=True),
)

OPERANDS = (
    Operand("x", ("n",), "rows", "in"),
    Operand("y", ("n",), "rows", "in"),
    Operand("z", ("n",), "rows", "out"),
)


def flops(shape: tuple[int, ...], parameters: Mapping[str, float]) -> int:
    """One addition an element."""
    return shape[0]


def nbytes(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]) -> int:
    """Compulsory traffic: x, y and z once each."""
    return 3 * shape[0] * np.dtype(dtype).itemsize


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float]):
    """Uniform x and y in [-1, 1), whose sums are rounded; whole numbers so small that no sum overflows.

    Nor is a sum of those the least int32, which stands for "no result" where there is no NaN.
    """
    if dtype == "int32":
        return {name: rng.integers(1 - 2**30, 2**30, shape, dtype=np.int32) for name in "xy"}
    return {name: 2 * rng.random(shape, dtype) - 1 for name in "xy"}


def reference(arrays: Mapping[str, np.ndarray], parameters: Mapping[str, float]) -> Callable[[np.ndarray], Verdict]:
    """Return the judge of a computed z: it must equal NumPy's sum at every element.

    A single addition is correctly rounded in IEEE arithmetic, so any two right results are equal.
    """
    truth = arrays["x"] + arrays["y"]
    name = f"correctly rounded sum, {truth.dtype}"

    def judge(got: np.ndarray) -> Verdict:
        if np.array_equal(got, truth):
            return Verdict(True, 0.0, 0.0, name)
        # in float64, as a difference of two int32 may overflow
        return accuracy.judge(got.astype(np.float64), truth.astype(np.float64), np.zeros(()), 0.0, name)

    return judge


def arguments(shape: tuple[int, ...], dtype: str, parameters: Mapping[str, float], arrays: Mapping) -> tuple:
    """The arguments of every kernel: both inputs, the output, their length."""
    return arrays["x"], arrays["y"], arrays["z"], np.uint64(shape[0])


def launches(
    variant: Variant,
    shape: tuple[int, ...],
    dtype: str,
    parameters: Mapping[str, float],
    arrays: Mapping,
    multiprocessors: int,
) -> list[Launch]:
    """One launch of blocks that cover z, or of as many as the variant allows; none for an empty z."""
    elements = variant.block[0] * variant.constants.get("PER_THREAD", 1)
    blocks = -(-shape[0] // elements)
    blocks = min(blocks, variant.constants.get("MAX_BLOCKS", blocks))
    return [Launch((blocks,), variant.block, arguments(shape, dtype, parameters, arrays))] if blocks else []


VECTOR_ADD = Operation(
    name="vector_add",
    kernels="vector_add",
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
    scratch=lambda variant, shape: {},
    algorithms=(SCATTER,),
)
