"""Draw problems on rank 0, distribute each over its number of ranks, and verify the results independently.

Started as ``distributed.py DEVICE SHARE RANKS EXAMPLES [BREAK]``; on ``cuda`` the ranks share what GPUs there
are if SHARE is 1, or have one each. RANKS are numbers of ranks to spread over, as 1,2,3. Every algorithm goes
over every transport that works here, by one of its schedules; the fixed cases contain all of them. The first
wrong result ends all ranks with exit status 1. BREAK = arrival: the last row of an arrival never comes.
BREAK = order: no rank waits for arrivals.
"""

import math
import sys
from collections import defaultdict

import numpy as np
from hypothesis import strategies as st
from mpi4py import MPI
from ranks import WORLD, backend, drawn, first, run_together, run_twice

from hpcmm.model import ALONE, Task
from hpcmm.operations import OPERATIONS
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.reduction import SUM
from hpcmm.parallel import ALGORITHMS, algorithms_of, schedules, staged
from hpcmm.parallel.product import Scheduled
from hpcmm.parallel.transports.base import Transport
from hpcmm.parallel.transports.choice import candidates, trial
from hpcmm.parallel.transports.pinned import Pinned

DEVICE, EXAMPLES = sys.argv[1], int(sys.argv[4])
RANKS = [int(ranks) for ranks in sys.argv[3].split(",")]
BACKEND = backend(DEVICE, share=sys.argv[2] == "1")
TAKEN: list[int] = []  # elements of each array on the device
VARIANTS = {"cpu": ["numpy", "serial", "packed"], "cuda": ["cublas", "tiled_padded", "asynchronous"]}[DEVICE]
TYPES = ("float32", "float64", "bfloat16", "float16")
# By default, cuBLAS may round parts of a sum to a 16-bit type: 10 x 12 x 2 in bfloat16 has 1.48 times the bound of one
# rounding, and 0.95 times with CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
SIXTEEN = {"cpu": "numpy", "cuda": "mma_tiled"}[DEVICE]
PAIRS = [(name, dtype) for name in VARIANTS for dtype in TYPES[:2]] + [(SIXTEEN, dtype) for dtype in TYPES[2:]]
REDUCTION = {"cpu": "serial", "cuda": "one_launch"}[DEVICE]
# those that distribute one product
PRODUCTS = [each.name for each in algorithms_of(MATMUL)[1:] if not each.variants and each.name != ALONE]
COMMS: dict[int, MPI.Comm] = {}  # of the first ranks, by their number
ALL_OF = (61, 53, 67)  # the shape for which every schedule is tried
KNOWN: dict[tuple[int, type], set[str]] = defaultdict(set)  # its schedules, by number of ranks and algorithm
FOLLOWED: dict[tuple[int, type], set[str]] = defaultdict(set)
OPEN: dict[tuple[int, str], Transport] = {}

schedules.PANEL_COLUMNS, schedules.TILE, schedules.ALIGNMENT = 8, 64, 4  # several panels of small matrices
size = st.one_of(st.integers(1, 8), st.integers(1, 90))


def open_all() -> list[tuple[int, str]]:
    """Open each transport that works, over the first ranks."""
    works = []
    for ranks in RANKS:
        comm, found = first(ranks), []
        if comm != MPI.COMM_NULL:
            COMMS[ranks] = comm
            kinds = [*candidates(BACKEND), *([Pinned] if DEVICE == "cpu" else [])]
            for kind in kinds if ranks > 1 else [Transport]:
                missing = kind.missing(comm, BACKEND)
                if missing:
                    if comm.rank == 0:
                        print(f"{ranks} ranks, {kind.name}: {missing}", flush=True)
                    continue
                OPEN[ranks, kind.name] = kind(comm, BACKEND)
                if ranks > 1:
                    trial(OPEN[ranks, kind.name])
                found.append((ranks, kind.name))
        works += WORLD.bcast(found, root=0)
    return works


def counting(right):
    def allocate(shape, dtype):
        TAKEN.append(math.prod(shape))
        return right(shape, dtype)

    return allocate


BACKEND.empty, BACKEND.shared_empty = counting(BACKEND.empty), counting(BACKEND.shared_empty)


def prepared(spread, task: Task, seed: int):
    """The product by a schedule that the seed chooses among the schedules of all ranks."""
    if not isinstance(spread, Scheduled):
        return spread.prepare(task)
    schedules = list(spread.schedules())
    assert spread.comm.allgather(schedules) == [schedules] * spread.comm.size
    chosen, kind = schedules[seed % len(schedules)], (spread.comm.size, type(spread))
    if spread.shape == ALL_OF:
        KNOWN[kind].update(schedules)
        FOLLOWED[kind].add(chosen)
    return spread.prepare_schedule(spread.schedules()[chosen], task)


def run(case) -> None:
    """Every rank's part in one case; rank 0 judges."""
    name, algorithm, (variant, dtype), shape, (ranks, transport), scalars, seed = case
    if ranks <= WORLD.rank:
        return
    comm, operation = COMMS[ranks], OPERATIONS[name]
    tile = 8 if operation.variant(variant).tiles else 0
    task = Task(operation, operation.variant(variant), shape, dtype, scalars, tile)
    inputs, check = drawn(case, comm, task, seed)
    TAKEN.clear()
    staged.SHARED_MEMORY = "/proc" if seed % 4 == 1 else "/dev/shm"  # the first has no space at all
    record = ALGORITHMS[algorithm].of(task.element, task.variant.invariant)
    spread = record.distribution(comm, BACKEND, task, inputs, transport=OPEN[ranks, transport])
    expected = record.need(operation, shape, ranks, comm.rank).device
    assert sum(TAKEN) == expected, f"{case}: {sum(TAKEN)} elements of device memory, not {expected}"
    run_twice(spread, prepared(spread, task, seed), check, alone="kernel" in record.measures)
    spread.close()


def break_arrival() -> None:
    def without_the_last_row(right):
        def start(self, arrivals, departures, after):
            ticket = right(self, arrivals, departures, after)
            self.backend.synchronize()
            self.wait(ticket)
            for each in arrivals:
                each.target[-1:].fill(np.nan)
            return ticket

        return start

    kind = candidates(BACKEND)[0]
    kind.start = without_the_last_row(kind.start)


def main() -> None:
    works = open_all()
    if sys.argv[5:] == ["arrival"]:
        break_arrival()
    elif sys.argv[5:] == ["order"]:
        candidates(BACKEND)[0].wait = lambda self, ticket: None
    scalars = [{"alpha": alpha, "beta": beta} for alpha, beta in ((1.5, 0.5), (1.0, 0.0), (-1.0, 1.0), (0.25, -2.0))]
    cases = st.tuples(
        st.just("matmul"), st.sampled_from(PRODUCTS), st.sampled_from(PAIRS), st.tuples(size, size, size),
        st.sampled_from(works), st.sampled_from(scalars), st.integers(0, 2**32 - 1),
    )  # fmt: skip

    if WORLD.rank == 0:
        fixed = 0  # is the seed too
        for algorithm in PRODUCTS:
            for on in works:
                # more ranks than rows and uneven blocks, or more ranks than terms, and than columns, in turns
                shape = ((3, 40, 50), (40, 50, 2), (61, 53, 67), (50, 1, 40))[(fixed + fixed // 4) % 4]
                dtype = TYPES[(fixed + fixed // 8) % len(TYPES)]
                rung = VARIANTS[0] if dtype in TYPES[:2] else SIXTEEN
                run(WORLD.bcast(("matmul", algorithm, (rung, dtype), shape, on, scalars[0], fixed)))
                fixed += 1
        for ranks in RANKS:  # each schedule, with uneven blocks, and with more ranks than terms or rows
            carriers = [on for on in works if on[0] == ranks]
            most = {"resident": 3 * len(schedules.divisions(ranks)), "staged": 12}
            for seed in range(max(most.values())):
                for turn, shape in enumerate((ALL_OF, (3, 40, 2))):
                    on = carriers[(seed // 3 + turn) % len(carriers)]
                    for algorithm in PRODUCTS:
                        if seed < most.get(algorithm, 2) and not (turn and seed % 3):
                            dtype = TYPES[seed % 2]
                            run(WORLD.bcast(("matmul", algorithm, (VARIANTS[0], dtype), shape, on, scalars[0], seed)))
                            fixed += 1
        assert FOLLOWED == KNOWN, (FOLLOWED, KNOWN)
        for name in ("sum", "minimum", "maximum"):
            for on in works:
                length, dtype = (1, 2, 1003)[fixed % 3], SUM.dtypes[fixed // 3 % 3]
                run(WORLD.bcast((name, "all_reduce", (REDUCTION, dtype), (length,), on, {}, fixed)))
                fixed += 1
        run_together(run, cases, EXAMPLES)
        names = ", ".join(sorted({name for _, name in works if name}))
        print(f"{fixed} fixed and {EXAMPLES} drawn cases over {names}: right", flush=True)
    else:
        while (case := WORLD.bcast(None)) is not None:
            run(case)
    for transport in OPEN.values():
        transport.close()


if __name__ == "__main__":
    main()
