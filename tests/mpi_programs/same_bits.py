"""The same sum and product on 1, 2, 3, 4, 7 and 8 ranks, compared bit by bit with rank 0 alone.

mpiexec -n 8 python same_bits.py [arrival]; with ``arrival``, parts of a sum are combined in the order of their arrival.
"""

import sys

from mpi4py import MPI

from hpcmm.backends import open_backend
from hpcmm.bench.same_bits import SameBits, broken
from hpcmm.model import TEXTBOOK
from hpcmm.model.measurement import Point
from hpcmm.operations import task_of
from hpcmm.parallel import all_reduce
from hpcmm.parallel.transports.choice import Connections

WORLD = MPI.COMM_WORLD
BACKEND = open_backend("cpu", threads=1, local_rank=WORLD.rank, share_gpu=False)
BACKEND.caches = {3: 1 << 16}
ARRIVAL = sys.argv[1:] == ["arrival"]
SCALARS = {"alpha": 1.5, "beta": 0.5}
SUMS = [("sum", "tree", (n,), dtype, {}, "all_reduce") for n in (5, 300_001) for dtype in ("float32", "float64")]
PRODUCTS = [
    ("matmul", "packed", (61, 53, 1067), dtype, SCALARS, algorithm)
    for dtype in ("float32", "float64")
    for algorithm in (TEXTBOOK, "staged", "resident", "ring", "summa")
]


def in_order_of_arrival(nodes, combine, neutral):
    """The planted fault: as if the parts of the last ranks had come first."""
    result = neutral
    for _, value in reversed(nodes):
        result = combine(result, value)
    return result


if ARRIVAL:
    all_reduce.of_tree = in_order_of_arrival
compared = 0
for ranks in (1, 2, 3, 4, 7, 8):
    comm = WORLD.Split(0 if WORLD.rank < ranks else MPI.UNDEFINED, WORLD.rank)
    if comm == MPI.COMM_NULL:
        continue
    connections = Connections(comm, BACKEND)
    for operation, variant, shape, dtype, scalars, algorithm in SUMS if ARRIVAL else [*SUMS, *PRODUCTS]:
        point = Point(operation, variant, shape, dtype, ranks, scalars, algorithm)
        task, same_bits = task_of(point), SameBits(comm, BACKEND, point, 1, connections)
        found = same_bits.differences(task, algorithm)
        if comm.rank == 0:
            compared += "ranks" in found
            for question, each in found.items():
                assert each.first < 0, f"{point.name} on {ranks} ranks: depends on the {question}: {each}"
            assert not broken(task.variant, algorithm, found, True)
    connections.close()
    comm.Free()
# the comparison finds what does depend on the ranks: panels of SUMMA, which each rank adds up in an order of its own
point = Point("matmul", "openmp", (61, 53, 1067), "float32", WORLD.size, SCALARS, "summa")
connections = Connections(WORLD, BACKEND)
found = SameBits(WORLD, BACKEND, point, 1, connections).differences(task_of(point), point.algorithm)
connections.close()
if WORLD.rank == 0:
    assert found["ranks"].first >= 0 and found["ranks"].ulps >= 1, found
    print(f"{compared} results on several ranks have the bits of one rank")
