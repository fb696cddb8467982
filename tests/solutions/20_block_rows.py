# 20. Block rows on several processes.
#
# Task: C = alpha A B + beta C with MPI. Each rank has all of B and a block of rows of A and C. Rank 0 has the matrices;
# on the other ranks A, B and C are None. Rank 0 ends with the result in C.
# Hints: with m rows and p ranks, the first m % p ranks have one row more. Broadcast the shape first (bcast), then B
# (Bcast); distribute the rows of A with Scatterv, and collect those of C with Gatherv. Counts are in elements, not in
# rows. A rank may have no row. If beta is 0, C may hold NaN and must not be read; else its rows are needed, too. On a
# cluster, call it on every rank: mpiexec -n 4 python ... The grader runs the ranks as threads of one process.
#
# hpcmm:
#   device: cpu
#   operation: matmul

import numpy as np
from mpi4py import MPI


def matmul(alpha, A, B, beta, C, stream=None):
    comm = MPI.COMM_WORLD
    shape = comm.bcast((*A.shape, B.shape[1], A.dtype) if comm.rank == 0 else None)
    m, k, n, dtype = shape
    rows = [m // comm.size + (rank < m % comm.size) for rank in range(comm.size)]
    if comm.rank > 0:
        B = np.empty((k, n), dtype)
    comm.Bcast(B)
    own_a = np.empty((rows[comm.rank], k), dtype)
    comm.Scatterv([A, [each * k for each in rows]] if comm.rank == 0 else None, own_a)
    own_c = np.empty((rows[comm.rank], n), dtype)
    if beta != 0:
        comm.Scatterv([C, [each * n for each in rows]] if comm.rank == 0 else None, own_c)
        own_c *= beta
    else:
        own_c[...] = 0
    own_c += alpha * (own_a @ B)
    comm.Gatherv(own_c, [C, [each * n for each in rows]] if comm.rank == 0 else None)
