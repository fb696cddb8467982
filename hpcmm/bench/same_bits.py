"""Whether the bits of a result depend on the run, the number of rows, the ranks, the tile or the device."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hpcmm import backends
from hpcmm.bench.inputs import computing, draw_inputs
from hpcmm.model import ONE_CALL, Task, Variant, Verdict
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DType
from hpcmm.model.launch import Run
from hpcmm.model.measurement import Point
from hpcmm.operations import cores, task_of
from hpcmm.parallel import algorithm_of

NAMED = 5  # maximum number of repetitions that a verdict lists
RUNS = 4
# numbers of rows whose results are compared with the first rows of the whole: those of a batch, and of a rank
ROWS = (1, 2, 3, 8, 16, 37, 64, 100, 128, 256, 1000, 2048)
SUMS = 5  # vectors whose sums are compared
LARGEST_POWER = 8  # of the factors 2^p of numbers whose sums are rounded


def why_uncompared(variant: Variant, algorithm: str) -> str:
    """Return the reason why the bits of repetitions may differ; empty if they must be equal."""
    if not variant.deterministic:
        return f"{variant.name} does not promise the same bits in every run"
    if algorithm not in ONE_CALL and not (variant.leaf_bytes or variant.invariant):
        return f"{algorithm} does not fix the order of partial sums over ranks"
    return ""


class Bits:
    """The checksums of a contender's results on this rank, to find rare races; or why they are ``skipped``."""

    def __init__(self, skipped: str = ""):
        self.skipped = skipped
        self.expected: int | None = None
        self.compared = 0
        self.changed: list[int] = []

    def look(self, checksum: Callable[[], int]) -> None:
        """Keep the checksum of the verified result, which is the first, and compare each later one with it."""
        if self.skipped:
            return
        found = checksum()
        if self.expected is None:
            self.expected = found
            return
        if found != self.expected:
            self.changed.append(self.compared)
        self.compared += 1

    def judge(self, comm, verdict: Verdict) -> Verdict:
        """Return a verdict that fails if the bits changed on any rank. Collective."""
        changed = sorted(set().union(*comm.allgather(self.changed)))
        if not verdict.passed or not changed:
            return verdict
        which = ", ".join(map(str, changed[:NAMED])) + (", ..." if len(changed) > NAMED else "")
        where = f"bits differ from the verified result in {len(changed)} of {self.compared} repetitions: {which}"
        return dataclasses.replace(verdict, passed=False, where=where)


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of two results in ulps (0: signs of zero, inf: NaN), and the first index or -1."""

    ulps: float = 0.0
    first: int = -1

    def __or__(self, other: "Difference") -> "Difference":
        """Return both together: the index is that of the first difference that was found."""
        return Difference(max(self.ulps, other.ulps), self.first if self.first >= 0 else other.first)


def difference(found: np.ndarray, expected: np.ndarray, element: DType) -> Difference:
    bits = np.dtype(f"i{found.dtype.itemsize}")
    one, other = (np.ascontiguousarray(x).reshape(-1).view(bits) for x in (found, expected))
    changed = np.flatnonzero(one != other)
    if not changed.size:
        return Difference()
    pairs = [x[changed].astype(np.int64) for x in (one, other)]
    if not element.is_integer:  # sign and magnitude; numbers in their order have consecutive integers
        least = np.iinfo(bits).min
        if any(np.isnan(element.numbers(x.reshape(-1)[changed])).any() for x in (found, expected)):
            return Difference(math.inf, int(changed[0]))
        pairs = [np.where(x < 0, least - x, x) for x in pairs]
    distance = (np.maximum(*pairs) - np.minimum(*pairs)).view(np.uint64)
    return Difference(float(distance.max()), int(changed[0]))


def rounded(task: Task, inputs: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return inputs whose sums are rounded in any order; those of a reduction are whole numbers otherwise."""
    if not reduces(task) or task.element.is_integer:
        return inputs
    tiny = np.finfo(task.dtype).smallest_subnormal

    def fill(stream: np.random.Generator, x: np.ndarray) -> None:
        powers = stream.integers(-LARGEST_POWER, LARGEST_POWER, x.shape)
        x[...] = np.ldexp(stream.standard_normal(x.shape, x.dtype), powers)
        denormal = stream.random(x.shape, np.float32) < 0.1
        x[denormal] = stream.integers(-9, 9, np.count_nonzero(denormal)) * tiny

    rng = np.random.default_rng(seed)
    return {name: cores.draw(rng, x, fill) for name, x in inputs.items()}


def multiplies(task: Task) -> bool:
    return task.operation.metric == "flops" and len(task.operation.dimensions) == 3


def reduces(task: Task) -> bool:
    return any(operand.distribution == "combined" for operand in task.operation.operands)


def result_on(backend: Any, task: Task, inputs: Mapping[str, np.ndarray]) -> Callable[[], np.ndarray]:
    return functools.partial(computing(backend, task), inputs)


Compute = Callable[[Task, Mapping[str, np.ndarray]], Callable[[], np.ndarray]]  # as ``result_on`` a device


def compare_alone(task: Task, inputs: Mapping[str, np.ndarray], results: Compute) -> Iterator[tuple[str, Difference]]:
    """Yield differences between results of one rank, each with that of ``quantities.BITS`` which it answers."""
    compared = functools.partial(difference, element=task.element.results)
    compute = results(task, inputs)
    whole = compute()
    for _ in range(RUNS - 1):
        yield "run", compared(compute(), whole)
    for m in rows_of(task):
        less = dataclasses.replace(task, shape=(m, *task.shape[1:]))
        yield "rows", compared(results(less, inputs)(), whole[:m])
    if task.variant.tiles and task.tile != task.variant.tiles[0]:
        first = dataclasses.replace(task, tile=task.variant.tiles[0])
        yield "tile", compared(whole, results(first, inputs)())
    if other := same_order(task):
        host = backends.open_backend(other.device, threads=1, local_rank=0, share_gpu=False)
        yield "device", compared(whole, result_on(host, dataclasses.replace(task, variant=other), inputs)())


def together(pairs: Iterable[tuple[str, Difference]]) -> dict[str, Difference]:
    """Return the differences of each question, also of several inputs: a sum may be the same by chance."""
    found: dict[str, Difference] = {}
    for question, of in pairs:
        found[question] = found.get(question, Difference()) | of
    return found


def columns_of(found: Mapping[str, Difference]) -> dict[str, float]:
    parts = ((f"{of}_{question}", getattr(each, of)) for question, each in found.items() for of in ("ulps", "first"))
    return {name: float(value) for name, value in parts}


def seeds_of(task: Task, seed: int) -> range:
    return range(seed, seed + (SUMS if reduces(task) else 1))


class SameBits:
    def __init__(self, comm, backend, point: Point, seed: int, connections=None):
        self.comm, self.backend, self.point, self.connections = comm, backend, point, connections
        self.problem = task_of(point)
        self.seed = seed
        self.drawn: dict[int, dict[str, np.ndarray] | None] = {}

    def inputs(self, seed: int) -> dict[str, np.ndarray] | None:
        if seed not in self.drawn:
            root = self.comm.rank == 0
            drawn = draw_inputs(self.backend, self.problem, True, seed) if root else None
            self.drawn[seed] = rounded(self.problem, drawn, seed) if root else None
        return self.drawn[seed]

    def differences(self, task: Task, algorithm: str) -> dict[str, Difference]:
        """Return the difference for each of ``quantities.BITS`` that applies; empty on other ranks. Collective."""
        results = functools.partial(result_on, self.backend)
        drawn = map(self.inputs, seeds_of(task, self.seed))
        if self.comm.size > 1:
            return together(pair for inputs in drawn for pair in self.over_ranks(task, algorithm, inputs))
        return together(pair for inputs in drawn for pair in compare_alone(task, inputs, results))

    def over_ranks(
        self, task: Task, algorithm: str, inputs: Mapping[str, np.ndarray] | None
    ) -> Iterator[tuple[str, Difference]]:
        """Compare the result on all ranks with that of other runs, and with that of rank 0 alone."""
        record = algorithm_of(task.operation, algorithm)
        if record.part:
            return
        transport = self.connections.of(record)[0] if self.connections else None
        place = self.comm, self.backend, self.problem, inputs, self.point.page_locked, transport
        distribution = record.of(task.element, task.variant.invariant).distribution(*place)
        try:
            run = Run.of(distribution.prepare(task))
            distribution.save_inputs()
            results = []
            for _ in range(RUNS):
                distribution.poison()
                distribution.call(run)
                results += [np.array(result) for result in distribution.result.values()]
        finally:
            distribution.close()
        if self.comm.rank == 0:
            compared = functools.partial(difference, element=task.element.results)
            yield from (("run", compared(each, results[0])) for each in results[1:])
            yield "ranks", compared(results[0], result_on(self.backend, task, inputs)())


def rows_of(task: Task) -> list[int]:
    if not multiplies(task):
        return []
    m, *others = task.shape
    variant, names = task.variant, task.operation.dimensions

    def takes(rows: int) -> bool:
        sizes = dict(zip(names, (rows, *others), strict=True))
        refused = variant.contract and variant.contract.refuses(sizes, task.scalars)
        return not refused and not (variant.exact and task.tile and rows % task.tile)

    return [rows for rows in ROWS if rows < m and takes(rows)]


def same_order(task: Task) -> Variant | None:
    """Return the rung in host memory that states the same tree of combinations as a variant of an accelerator."""
    bytes_of_leaf = task.variant.leaf_bytes if DEVICES[task.variant.device].accelerator else 0
    on_host = (each for each in task.operation.ladder if not DEVICES[each.device].accelerator)
    return next((each for each in on_host if bytes_of_leaf and each.leaf_bytes == bytes_of_leaf), None)


def broken(variant: Variant, algorithm: str, found: Mapping[str, Difference], fixed: bool) -> str:
    """Return which promise of a record the differences break; ``fixed`` is whether runs must be the same."""
    kept = {
        "run": fixed,
        "rows": variant.invariant,
        "ranks": variant.invariant or (bool(variant.leaf_bytes) and algorithm == "all_reduce"),
        "device": True,
    }
    for question, difference in found.items():
        if kept.get(question) and difference.first >= 0:
            at = f"first at element {difference.first}, up to {difference.ulps:g} ulps"
            return f"bits depend on the {question}, against the record of {variant.name}: {at}"
    return ""
