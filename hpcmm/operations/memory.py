"""The levels of memory: their latency, by pointer chasing, and their bandwidth, by reads, a copy and a scaled copy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpcmm.model import Geometry, Operand, Operation, Task, Verdict
from hpcmm.model.launch import Launch, Workspace
from hpcmm.operations import accuracy, cores
from hpcmm.operations.heads import ladder
from hpcmm.operations.vector_add import OverVector

LANES = 32
# Maximum number of elements of a chain that are first read into a cache: pointers of 8 bytes, 256 KiB and 32 MiB
L1_WARMED, L2_WARMED = 2**15, 2**22


@dataclass(frozen=True)
class Chase(Geometry):
    """One block that follows the elements from the first one."""

    block: int = LANES  # threads per block; one warp follows the elements, and all threads read them once before
    capacity: int = 0  # elements of an array in the source that holds them; 0 for none
    constant_memory: bool = False  # whether that array is in constant memory
    # Whether an earlier launch of more blocks writes the elements as pointers, which leaves them in the L2 cache
    pointers: bool = False

    def macros(self, task: Task) -> dict[str, int]:
        capacity = {"CAPACITY": self.capacity} if self.capacity else {}
        warmed = {"L1_WARMED": L1_WARMED, "L2_WARMED": L2_WARMED} if self.pointers else {}
        return {"BLOCK": self.block, **capacity, **warmed}

    def in_constant_memory(self, task: Task) -> dict[str, str]:
        return {"elements": "x"} if self.constant_memory else {}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        n = task.shape[0] if task.shape[0] <= L2_WARMED else 0
        return {"pointers": Workspace((n,), "uint64")} if self.pointers else {}

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        arguments = task.operation.arguments(task, arrays)
        if not self.pointers:
            return [Launch((1,), (self.block,), arguments)]
        arguments = *arguments, arrays["pointers"]
        grids = [1] if task.shape[0] > L2_WARMED else [max(2, task.sms), 1]
        return [Launch((blocks,), (self.block,), arguments) for blocks in grids]


@dataclass(frozen=True)
class Reads(Geometry):
    """Blocks that read the elements in passes: ``per_sm`` blocks of ``block`` threads per SM."""

    block: int = 512
    per_sm: int = 4
    per_thread: int = 0  # elements that a thread holds in registers; 0 if it holds none
    capacity: int = 0  # elements of an array in the source that holds them; 0 for none
    constant_memory: bool = False  # whether that array is in constant memory
    stride: int = 0  # distance of the elements that neighbouring threads read; 0 if the source has no such constant

    def macros(self, task: Task) -> dict[str, int]:
        given = {"PER_THREAD": self.per_thread, "CAPACITY": self.capacity, "STRIDE": self.stride}
        return {"BLOCK": self.block, **{name: value for name, value in given.items() if value}}

    def in_constant_memory(self, task: Task) -> dict[str, str]:
        return {"elements": "x"} if self.constant_memory else {}

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        return [Launch((self.per_sm * task.sms,), (self.block,), task.operation.arguments(task, arrays))]


# A block of `cached` and `uncached` has eight loads of 16 bytes per thread in flight. It reads shorter vectors one
# element at a time, which is slow.
PIECE_BYTES = 8 * 16 * Reads.block


def copy_of_library(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], None]:
    """Bind NumPy's or CuPy's copy, or their product with a number."""
    x, y = arrays["x"], arrays["y"]
    if not task.operation.scalars:

        def copy() -> None:
            y[...] = x

        return copy
    factor = np.dtype(task.dtype).type(task.scalars["scale"])
    return lambda: np.multiply(x, factor, out=y)


# --- latency: the element after k steps through a cycle of n elements ------------------------------------------------


def draw_cycle(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw a random cycle through all elements: each one is the byte offset of the next one."""
    order = rng.permutation(np.arange(task.shape[0], dtype=task.dtype))
    x = np.empty_like(order)
    x[order] = 4 * np.roll(order, -1)
    return {"x": x}


def latency_reference(task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks the last element of a chain: it must be the element after k steps."""
    x, at = arrays["x"], 0
    for _ in range(task.shape[1] % task.shape[0]):  # a whole cycle leads back
        at = int(x[at // 4])
    return accuracy.equal_to(at, "the cycle, step by step")


def element_arguments(task: Task, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of every kernel: elements, their number, the number of steps or passes, the result."""
    n, k = task.shape
    return arrays["x"], np.uint32(n), np.uint32(k), arrays["result"]


LATENCY = Operation(
    name="latency",
    kernels="latency",
    dimensions=("n", "k"),
    operands=(Operand("x", ("n",), "replicated", "in"), Operand("result", (), "combined", "out")),
    dtypes=("int32",),
    scalars={},
    ladder=ladder("latency", ("int32",), geometry=Chase),
    metric="bytes",
    flops=lambda task: 0,
    bytes=lambda task: task.shape[1] * task.element.itemsize,
    draw=draw_cycle,
    reference=latency_reference,
    arguments=element_arguments,
    combination="maximum",  # every rank follows the same cycle
    cached=True,
    geometry=Chase,
)


def chased_bytes(variant: str, n: int) -> int:
    """Return the bytes of the chain of a latency rung: 8 per element for pointers, else those of the elements."""
    geometry = LATENCY.variant(variant).geometry
    return n * (8 if geometry and geometry.pointers and n <= L2_WARMED else 4)


# --- bandwidth: the sum of n elements, k times -----------------------------------------------------------------------


def draw_elements(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw integers of any sign: the sum is modulo 2^32, so that a lost or repeated element changes it."""
    return {"x": cores.draw(rng, np.empty(task.shape[:1], task.dtype), cores.integers(-(2**31), 2**31))}


def bandwidth_reference(task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks the sum of all passes modulo 2^32."""
    total = int(arrays["x"].sum(dtype=np.int64)) * task.shape[1]
    return accuracy.equal_to((total + 2**31) % 2**32 - 2**31, "exact sum, modulo 2^32")


def reads(task: Task) -> int:
    return task.shape[0] * task.shape[1]


BANDWIDTH = Operation(
    name="bandwidth",
    kernels="bandwidth",
    dimensions=("n", "k"),
    operands=(Operand("x", ("n",), "rows", "in"), Operand("result", (), "combined", "out")),
    dtypes=("int32",),
    scalars={},
    ladder=ladder("bandwidth", ("int32",), geometry=Reads),
    metric="bytes",
    flops=reads,
    bytes=lambda task: reads(task) * task.element.itemsize,
    cached=True,
    draw=draw_elements,
    reference=bandwidth_reference,
    arguments=element_arguments,
    geometry=Reads,
)


# --- copy and scale: y = x and y = scale x ---------------------------------------------------------------------------


def draw_vector(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw numbers uniform in [-1, 1), and two that a copy must keep: -0, and of copies a subnormal number."""
    x = cores.draw(rng, np.empty(task.shape, task.dtype), cores.uniform)
    if len(x) > 2:
        x[len(x) // 2] = -0.0
        if not task.operation.scalars:  # of products, kernels may flush it to zero
            x[len(x) // 3] = -np.finfo(x.dtype).smallest_subnormal
    return {"x": x}


def copy_reference(task: Task, arrays: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], Verdict]:
    """Return a function that checks y: it must equal x, or the correctly rounded product, at every element."""
    truth = arrays["x"] * np.dtype(task.dtype).type(task.scalars.get("scale", 1))
    name = f"correctly rounded product, {truth.dtype}" if task.operation.scalars else "equal to x"
    return accuracy.equal_to(truth, name)


def copy_arguments(task: Task, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of every kernel: input, output, their length, the factor."""
    factor = np.dtype(task.dtype).type(task.scalars.get("scale", 1))
    return arrays["x"], arrays["y"], np.uint64(task.shape[0]), factor


def applying(expression: str) -> dict[str, dict[str, str]]:
    """Return the macros for what a kernel writes in place of an element."""
    return {device: {"APPLY(x)": expression} for device in ("cpu", "cuda")}


COPY = Operation(
    name="copy",
    kernels="copy",
    dimensions=("n",),
    operands=(Operand("x", ("n",), "rows", "in"), Operand("y", ("n",), "rows", "out")),
    dtypes=("float32", "float64"),
    scalars={},
    ladder=ladder("copy", ("float32", "float64"), copy_of_library, geometry=OverVector),
    metric="bytes",
    flops=lambda task: task.shape[0] if task.operation.scalars else 0,
    bytes=lambda task: 2 * task.shape[0] * task.element.itemsize,
    draw=draw_vector,
    reference=copy_reference,
    arguments=copy_arguments,
    macros=applying("(x)"),
    geometry=OverVector,
)
SCALE = replace(COPY, name="scale", scalars={"scale": 0.4}, macros=applying("(scale * (x))"))  # 0.4 as in BabelStream
