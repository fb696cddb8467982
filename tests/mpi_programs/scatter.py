"""Draw cases on rank 0, run each on its number of ranks, and compare the results with sums computed here.

Started on 5 ranks as ``scatter.py DEVICE EXAMPLES [BREAK]``; on ``cuda`` they share what GPUs there
are. The first wrong result ends all ranks with exit status 1. Only rank 0 draws, so that all ranks
work on the same case whatever hypothesis decides. BREAK = gather: the last row never comes back.
BREAK = restore: a kernel alone works on what the run before it left.
BREAK = sum, minimum or maximum: that one alone, and the last of several ranks does nothing.
"""

import math
import sys

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mpi4py import MPI

from hpcmm.backends import open_backend
from hpcmm.model import Task
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.launch import Run
from hpcmm.operations import OPERATIONS
from hpcmm.operations.truth import strassen_bound
from hpcmm.parallel import world
from hpcmm.parallel.collectives import BlockRows
from hpcmm.parallel.scatter import Scatter

WORLD = MPI.COMM_WORLD
DEVICE = sys.argv[1]
BACKEND = open_backend(DEVICE, threads=1, local_rank=world.local_rank(WORLD), share_gpu=True)
if DEVICE == "cpu":
    BACKEND.caches = {3: 1 << 16}  # a small flush buffer: no result depends on it, and reading takes time
EVERY = [
    (operation.name, variant.name, dtype)
    for operation in OPERATIONS.values()
    for variant in operation.ladder
    if operation.name not in ("latency", "bandwidth")  # on one rank
    and variant.device == DEVICE
    and not (variant.exact or variant.context)
    for dtype in operation.dtypes_of(variant)
    if not operation.why_not_run_on(BACKEND, variant, dtype)
    and not (variant.library and dtype in ("int8", "float8_e4m3"))  # of 8-bit types, cuBLAS takes only some sizes
]
UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
REDUCTIONS = {"sum": math.fsum, "minimum": min, "maximum": max}

size = st.integers(1, 70)
cases = st.tuples(st.sampled_from(EVERY), st.tuples(size, size, size), st.integers(1, 5), st.integers(0, 2**32 - 1))


def inputs_of(operation: str, dtype: str, shape, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    if operation in REDUCTIONS:  # any order of summing is exact; extremes lie on either side of zero, or on both
        return {"x": rng.integers(-9, 10, shape).astype(dtype) + np.dtype(dtype).type(rng.integers(-1, 2) * 20)}
    if operation == "vector_add":
        return {name: (1e6 * rng.standard_normal(shape)).astype(dtype) for name in "xy"}
    if operation in ("links", "copy", "scale"):
        return {"x": rng.integers(0, 2**23, shape).astype(dtype)}
    m, n, k = shape
    sizes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    if DTYPES[dtype].is_integer:
        types = {"A": dtype, "B": dtype, "C": np.int32}
        return {name: rng.integers(-128, 128, each, types[name]) for name, each in sizes.items()}
    types = {"A": DTYPES[dtype], "B": DTYPES[dtype], "C": DTYPES[dtype].results}
    return {name: types[name].stored(rng.uniform(-1, 1, each)) for name, each in sizes.items()}


def check(task: Task, inputs: dict[str, np.ndarray], result: np.ndarray) -> None:
    operation, dtype = task.operation.name, task.dtype
    if operation in REDUCTIONS:
        assert result == REDUCTIONS[operation](inputs["x"]), operation
        return
    if operation == "vector_add":
        sums = [a + b for a, b in zip(inputs["x"].tolist(), inputs["y"].tolist(), strict=True)]  # in int or double
        sums = np.array(sums).astype(dtype)  # for float, double is ample
        assert (result == sums).all(), f"wrong rows: {np.flatnonzero(result != sums)}"
        return
    if operation == "links":
        assert (result == inputs["x"]).all(), f"wrong rows: {np.flatnonzero(result != inputs['x'])}"
        return
    if operation in ("copy", "scale"):
        factor = np.dtype(dtype).type(OPERATIONS[operation].scalars.get("scale", 1))
        truth = (inputs["x"] * np.longdouble(factor)).astype(dtype)
        assert (result == truth).all(), f"wrong elements: {np.flatnonzero(result != truth)}"
        return
    element = DTYPES[dtype]
    if element.is_integer:  # alpha and beta, 1.5 and 0.5, become 1 and 0
        truth = inputs["A"].astype(np.int64) @ inputs["B"].astype(np.int64)
        assert (result == truth).all(), f"wrong rows: {np.flatnonzero((result != truth).any(axis=1))}"
        return
    types = {"A": element, "B": element, "C": element.results}
    a, b, c = (each.numbers(inputs[name]).astype(np.longdouble) for name, each in types.items())
    truth = 1.5 * np.einsum("ip,pj->ij", a, b) + 0.5 * c
    size = 1.5 * np.einsum("ip,pj->ij", abs(a), abs(b)) + 0.5 * abs(c)
    roundings = (a.shape[1] + 2) * UNIT_ROUNDOFF[element.accumulator or dtype]
    allowed = roundings / (1 - roundings) * size
    allowed += ((1 + task.input_roundoff) ** 2 - 1) * size  # TF32 rounds the inputs
    if task.divisions:  # an error of Strassen's algorithm is relative to a whole row of A and column of B
        u = [UNIT_ROUNDOFF[each] for each in (element.accumulator or dtype, dtype)]
        largest = abs(a).max(axis=1)[:, None] * abs(b).max(axis=0)
        allowed += 1.5 * strassen_bound(a.shape[1], task.divisions, *u) * largest
    if element.accumulator:  # and the sum is rounded once more
        allowed += UNIT_ROUNDOFF[element.results.name] * abs(truth) + 2.0**-25
    right = abs(element.results.numbers(result) - truth) <= allowed
    assert right.all(), f"wrong rows: {np.flatnonzero(~right.all(axis=1))}"


def run(case) -> None:
    """Every rank's part in one case; rank 0 checks."""
    (name, variant, dtype), shape, ranks, seed = case
    comm = WORLD.Split(0 if WORLD.rank < ranks else MPI.UNDEFINED, WORLD.rank)
    if comm == MPI.COMM_NULL:
        return
    operation = OPERATIONS[name]
    shape = shape[: len(operation.dimensions)]
    inputs = inputs_of(name, dtype, shape, seed) if comm.rank == 0 else None
    before = {key: array.copy() for key, array in (inputs or {}).items()}
    tile = 8 if operation.variant(variant).tiles else 0
    task = Task(operation, operation.variant(variant), shape, dtype, operation.scalars, tile)
    scatter = Scatter(comm, BACKEND, task, inputs, pinned=seed % 2 == 0)
    kernel = scatter.prepare(task)

    def result() -> np.ndarray:
        (each,) = scatter.result.values()
        return each

    try:
        for _ in range(2):  # the second call must start from what the first one did
            scatter.poison()
            seconds = scatter.call(kernel)
            if comm.rank == 0:
                check(task, inputs, result())
        scatter.save_inputs()
        for _ in range(2):  # as must the kernel alone
            scatter.poison()
            scatter.kernel(kernel, cold=True)
        scatter.fetch()
        if comm.rank == 0:
            check(task, inputs, result())
            assert all(before[key].tobytes() == inputs[key].tobytes() for key in before), "inputs were written"
        expected = {"scatter", "kernel", "gather", "total"} | ({"broadcast"} if name == "matmul" else set())
        expected |= {"upload", "download"} if DEVICE == "cuda" else set()
        expected |= {"pitch"} if operation.variant(variant).pitched else set()
        assert set(seconds) == expected, "phases"
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from error
    finally:
        comm.Free()


def break_gather() -> None:
    gather = BlockRows.gather

    def all_but_the_last_row(self, part, whole):
        kept = None if whole is None else whole[-1].copy()
        gather(self, part, whole)
        if whole is not None:
            whole[-1] = kept

    BlockRows.gather = all_but_the_last_row


def break_restore() -> None:
    Scatter.restore = lambda self: None


def break_last_rank(operation: str) -> None:
    EVERY[:] = [each for each in EVERY if each[0] == operation]
    prepare = Scatter.prepare

    def nothing_on_the_last_rank(self, task):
        run = prepare(self, task)
        return Run(lambda: None) if 0 < self.comm.rank == self.comm.size - 1 else run

    Scatter.prepare = nothing_on_the_last_rank


def main(examples: int, broken: str = "") -> None:
    if broken in REDUCTIONS:
        break_last_rank(broken)
    elif broken:
        {"gather": break_gather, "restore": break_restore}[broken]()

    # no time limits, and no search for a smaller case: an error anywhere ends all ranks at once
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def drawn(case):
        run(WORLD.bcast(case))

    if WORLD.rank == 0:
        for each in EVERY:  # one row, uneven rows, one row a rank; all on five ranks
            for rows in (1, 7, 5) if DEVICE == "cpu" else (7,):  # every kernel is compiled by every rank
                run(WORLD.bcast((each, (rows, 3, 9), 5, rows)))
        drawn()
        WORLD.bcast(None)
        print(f"{len(EVERY)} variants and dtypes, {examples} drawn cases: right")
    else:
        while (case := WORLD.bcast(None)) is not None:
            run(case)


if __name__ == "__main__":
    main(int(sys.argv[2]), *sys.argv[3:])
