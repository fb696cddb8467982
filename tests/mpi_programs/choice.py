"""Let all ranks choose between schedules whose seconds are made up: each must take the same, for the slowest rank.

A schedule that is the fastest but for one rank must not be taken, whichever rank that is.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.model import Task
from hpcmm.operations.matmul import MATMUL
from hpcmm.parallel import ALGORITHMS, product, schedules
from hpcmm.parallel.transports.mpi import Mpi

COMM, BACKEND = MPI.COMM_WORLD, CpuBackend(threads=1)
PRODUCT = Task(MATMUL, MATMUL.variant("numpy"), (41, 37, 43), "float64", {"alpha": 1.5, "beta": 0.5})
schedules.PANEL_COLUMNS, schedules.TILE, schedules.ALIGNMENT = 4, 16, 4


def spread(algorithm: str):
    inputs = MATMUL.draw(np.random.default_rng(0), PRODUCT) if COMM.rank == 0 else None
    transport = Mpi(COMM, BACKEND)
    distribution = ALGORITHMS[algorithm].distribution
    return inputs, distribution(COMM, BACKEND, PRODUCT, inputs, transport=transport)


def choose(algorithm: str, seconds: Callable[[str], float]) -> str:
    """What all ranks choose if this rank takes ``seconds`` of a schedule's name for it."""
    _, tuned = spread(algorithm)
    names = {name: name for name in tuned.schedules()}
    tuned.schedules = lambda: names
    tuned.prepare_schedule = lambda name, *_: name
    tuned.time_once = seconds
    tuned.prepare(PRODUCT)
    choices = COMM.allgather(tuned.schedule)
    assert choices == choices[:1] * COMM.size, choices
    return tuned.schedule


def check(algorithm: str) -> None:
    inputs, tuned = spread(algorithm)
    names = list(tuned.schedules())
    assert len(names) > 1

    product.TUNING_SECONDS = math.inf
    for best, slow in itertools.product(names, range(COMM.size)):
        others = 3.0 if COMM.rank == slow else 1.0
        got = choose(algorithm, lambda name, best=best, others=others: 2.0 if name == best else others)
        assert got == best, (algorithm, best, slow, got)

    product.TUNING_SECONDS = 2.0  # is over after the first, whatever the second would take
    assert choose(algorithm, {names[0]: 5.0}.get) == names[0]

    run = tuned.prepare(PRODUCT)  # with their true seconds
    assert set(COMM.allgather(tuned.schedule)) <= set(names)
    assert len(set(COMM.allgather(tuned.schedule))) == 1
    tuned.poison()
    tuned.call(run)
    if COMM.rank == 0:
        truth = 1.5 * inputs["A"] @ inputs["B"] + 0.5 * inputs["C"]
        np.testing.assert_allclose(tuned.result["C"], truth, rtol=1e-12, atol=1e-13)
        print(f"{algorithm}: {len(names)} schedules: right", flush=True)


if __name__ == "__main__":
    for each in ("staged", "resident", "ring", "summa"):
        check(each)
