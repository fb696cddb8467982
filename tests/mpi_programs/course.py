"""The solution of the course with MPI is right under MPI itself.

mpiexec -n 3 python course.py SOLUTION
"""

import importlib.util
import sys

import numpy as np
from mpi4py import MPI

found = importlib.util.spec_from_file_location("solution", sys.argv[1])
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
rng, rank = np.random.default_rng(1), MPI.COMM_WORLD.rank
for m, n, k, beta in ((7, 5, 6, 0.5), (2, 3, 4, 0.0), (1, 1, 1, -0.5)):
    a, b, c = (rng.random(shape) for shape in ((m, k), (k, n), (m, n)))
    wanted = 1.5 * (a @ b) + beta * c
    module.matmul(1.5, *((a, b) if rank == 0 else (None, None)), beta, c if rank == 0 else None)
    assert rank > 0 or np.allclose(c, wanted)
if rank == 0:
    print("right")
