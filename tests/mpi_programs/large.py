"""Multiply by a float32 matrix whose every sum is known: ``large.py ALGORITHM TERMS COLUMNS``."""

import sys

import numpy as np
from mpi4py import MPI

from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.model import Task
from hpcmm.operations.matmul import MATMUL
from hpcmm.parallel import ALGORITHMS
from hpcmm.parallel.transports.choice import Connections

algorithm, terms, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
comm, backend = MPI.COMM_WORLD, CpuBackend(threads=1)
product = Task(MATMUL, MATMUL.variant("numpy"), (3, columns, terms), "float32", {"alpha": 1.0, "beta": 0.0})
inputs = expected = None
if comm.rank == 0:
    # B is 1 where row + column is a multiple of 512 and 0 elsewhere; sums of ones are exact below 2^24
    inputs = {
        "A": np.ones((3, terms), np.float32),
        "B": np.zeros((terms, columns), np.float32),
        "C": np.zeros((3, columns), np.float32),
    }
    for column in range(columns):
        inputs["B"][-column % 512 :: 512, column] = 1
    expected = [len(range(-column % 512, terms, 512)) for column in range(columns)]
transport, _ = Connections(comm, backend).of(ALGORITHMS[algorithm])
spread = ALGORITHMS[algorithm].distribution(comm, backend, product, inputs, transport=transport)
spread.poison()
spread.call(spread.prepare(product))
if comm.rank == 0:
    assert (spread.result["C"] == expected).all(), "wrong sums"
    print(f"{terms * columns} elements: right")
spread.close()
