"""Draw cases on rank 0, run each on its number of ranks, and verify the results.

Started on up to 5 ranks as ``scatter.py DEVICE EXAMPLES [BREAK]``; on ``cuda`` they share what GPUs there
are. The first wrong result ends all ranks with exit status 1. Only rank 0 draws, so that all ranks
work on the same case whatever hypothesis decides. BREAK = gather: the last row never comes back.
BREAK = restore: a kernel alone works on what the run before it left.
BREAK = sum, minimum or maximum: that one alone, and the last of several ranks does nothing.
"""

import sys
from pathlib import Path

from hypothesis import strategies as st
from mpi4py import MPI
from ranks import WORLD, backend, drawn, first, run_together, run_twice

from hpcmm.experiment import own_kernels
from hpcmm.model import Task
from hpcmm.model.launch import Run
from hpcmm.operations import OPERATIONS
from hpcmm.parallel.collectives import BlockRows
from hpcmm.parallel.scatter import Scatter

DEVICE = sys.argv[1]
BACKEND = backend(DEVICE)
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
REDUCTIONS = ("sum", "minimum", "maximum")
OWN = own_kernels.read(Path(__file__).with_name("in_place.c")).variant  # works on a copy of an input

size = st.integers(1, 70)
cases = st.tuples(
    st.sampled_from(EVERY), st.tuples(size, size, size), st.integers(1, WORLD.size), st.integers(0, 2**32 - 1)
)


def run(case) -> None:
    """Every rank's part in one case; rank 0 checks."""
    (name, variant, dtype), shape, ranks, seed = case
    comm = first(ranks)
    if comm == MPI.COMM_NULL:
        return
    operation = OPERATIONS[name]
    shape = shape[: len(operation.dimensions)]
    chosen = OWN if variant == OWN.name else operation.variant(variant)
    task = Task(operation, chosen, shape, dtype, operation.scalars, 8 if chosen.tiles else 0)
    inputs, check = drawn(case, comm, task, seed)
    scatter = Scatter(comm, BACKEND, task, inputs, pinned=seed % 2 == 0)
    seconds = run_twice(scatter, scatter.prepare(task), check)
    expected = {"scatter", "kernel", "gather", "total"} | ({"broadcast"} if name == "matmul" else set())
    expected |= {"upload", "download"} if DEVICE == "cuda" else set()
    expected |= {"pitch"} if chosen.pitched or chosen.guard_rows or chosen is OWN else set()
    assert set(seconds) == expected, f"{case}: phases"
    comm.Free()


def break_gather() -> None:
    gather = BlockRows.gather

    def all_but_the_last_row(self, part, whole):
        kept = None if whole is None else whole[-1].copy()
        gather(self, part, whole)
        if whole is not None:
            whole[-1] = kept

    BlockRows.gather = all_but_the_last_row


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
    elif broken == "gather":
        break_gather()
    elif broken == "restore":
        Scatter.restore = lambda self: None
    if WORLD.rank == 0:
        for i, each in enumerate(EVERY):  # uneven rows, and in turns one row or one row a rank; all on five ranks
            for rows in (7, (1, 5)[i % 2]) if DEVICE == "cpu" else (7,):  # every kernel is compiled by every rank
                run(WORLD.bcast((each, (rows, 3, 9), 5, rows)))
        if DEVICE == "cpu":
            run(WORLD.bcast((("vector_add", OWN.name, "float32"), (2,), 5, 1)))  # three ranks have nothing to copy
        run_together(run, cases, examples)
        print(f"{len(EVERY)} variants and dtypes, {examples} drawn cases: right")
    else:
        while (case := WORLD.bcast(None)) is not None:
            run(case)


if __name__ == "__main__":
    main(int(sys.argv[2]), *sys.argv[3:])
