"""The same sum and product on several numbers of ranks, compared bit by bit with rank 0 alone.

mpiexec -n 8 python same_bits.py DEVICE SHARE RANKS [arrival]; on ``cuda`` the ranks share what GPUs there are if SHARE
is 1, or have one each. RANKS are numbers of ranks, as 1,2,3. With ``arrival``, parts of a sum are combined in the order
of their arrival.
"""

import sys

from mpi4py import MPI
from ranks import WORLD, backend, first

from hpcmm.bench.same_bits import SameBits, broken
from hpcmm.model import TEXTBOOK
from hpcmm.model.measurement import Point
from hpcmm.operations import task_of
from hpcmm.operations.matmul import MATMUL
from hpcmm.parallel import algorithm_of, all_reduce
from hpcmm.parallel.transports.choice import Connections

DEVICE, RANKS = sys.argv[1], [int(ranks) for ranks in sys.argv[3].split(",")]
BACKEND = backend(DEVICE, share=sys.argv[2] == "1")
ARRIVAL = sys.argv[4:] == ["arrival"]
SCALARS = {"alpha": 1.5, "beta": 0.5}
SUM, PRODUCT, OTHER = {"cpu": ("tree", "packed", "openmp"), "cuda": ("invariant", "best_invariant", "best")}[DEVICE]
SHAPES = {"cpu": [(61, 53, 1067)], "cuda": [(61, 53, 1067), (1000, 704, 4099), (1024, 2048, 4096)]}[DEVICE]
SUMS = [("sum", SUM, (n,), dtype, {}, "all_reduce") for n in (5, 300_001) for dtype in ("float32", "float64")]
PRODUCTS = [
    ("matmul", PRODUCT, shape, dtype, SCALARS, algorithm)
    for shape in SHAPES
    for dtype in MATMUL.dtypes_of(MATMUL.variant(PRODUCT))
    for algorithm in (TEXTBOOK, "staged", "resident", "ring", "summa")
    if algorithm_of(MATMUL, algorithm).takes_type(dtype)
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
for ranks in RANKS:
    comm = first(ranks)
    if comm == MPI.COMM_NULL:
        continue
    connections = Connections(comm, BACKEND)
    for operation, variant, shape, dtype, scalars, algorithm in SUMS if ARRIVAL else [*SUMS, *PRODUCTS]:
        point = Point(operation, variant, shape, dtype, ranks, scalars, algorithm)
        found = SameBits(comm, BACKEND, point, 1, connections).differences(task_of(point), algorithm)
        if comm.rank == 0:
            compared += "ranks" in found
            for question, each in found.items():
                assert each.first < 0, f"{point.name} on {ranks} ranks: depends on the {question}: {each}"
            assert not broken(task_of(point).variant, algorithm, found, True)
    connections.close()
    comm.Free()
# the comparison finds what does depend on the ranks: panels of SUMMA, which each rank adds up in an order of its own
point = Point("matmul", OTHER, (61, 53, 1067), "float32", WORLD.size, SCALARS, "summa")
connections = Connections(WORLD, BACKEND)
found = SameBits(WORLD, BACKEND, point, 1, connections).differences(task_of(point), point.algorithm)
connections.close()
if WORLD.rank == 0:
    assert WORLD.size == 1 or (found["ranks"].first >= 0 and found["ranks"].ulps >= 1), found
    print(f"{compared} results on several ranks have the bits of one rank")
