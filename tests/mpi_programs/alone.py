"""Each rank draws, computes and verifies a problem of its own; a wrong result of one rank is found.

mpiexec -n 3 python alone.py
"""

import numpy as np
from ranks import WORLD as COMM
from ranks import backend

from hpcmm.bench.measure import Problem, measure_point
from hpcmm.model.measurement import Measuring, Point
from hpcmm.parallel.transports.choice import Connections

BACKEND = backend("cpu")
LIMITS = Measuring(1, 2, 2, 1.0, 1.0, "hot", seed=1)
POINTS = [
    Point("matmul", "numpy", (30, 20, 10), "float64", COMM.size, {"alpha": 1.5, "beta": 0.5}, "alone"),
    Point("vector_add", "numpy", (1001,), "float32", COMM.size, {}, "alone"),
    Point("sum", "serial", (1001,), "int32", COMM.size, {}, "alone"),
    Point("links", "memcpy", (1001,), "float32", COMM.size, {}, "neighbours_mpi"),
]
connections = Connections(COMM, BACKEND)
for point in POINTS:
    problem = Problem(COMM, BACKEND, point, 1, connections)
    part = -(-point.shape[0] // COMM.size) if point.algorithm != "alone" else point.shape[0]
    first = next(iter(problem.inputs.values()))
    assert abs(len(first) - part) <= 1, "each rank has its part only"
    assert len(set(COMM.allgather(float(np.sum(first, dtype=float))))) == COMM.size, "the ranks drew the same numbers"
    (measured,) = measure_point(problem, point, LIMITS, beside=False)
    assert measured.verdict.passed, (point.name, measured.verdict)
    assert len(measured.samples) == (2 * COMM.size if COMM.rank == 0 else 0)
    (spread,) = problem.placed.values()
    sound = spread.call

    def call(run, spread=spread, sound=sound):
        seconds = sound(run)
        (result,) = spread.result.values()
        if COMM.rank == COMM.size - 1:
            result[...] += 1
        return seconds

    spread.call = call
    (measured,) = measure_point(problem, point, LIMITS, beside=False)
    assert not measured.verdict.passed and f"rank {COMM.size - 1}: " in measured.verdict.where, measured.verdict
    problem.close()
connections.close()
if COMM.rank == 0:
    print(f"{len(POINTS)} problems of each rank alone: right, and wrong ones found")
