# Matrix product in Python: NumPy multiplies panels of A by panels of B.
#
# hpcmm:
#   device: cpu
#   change: panels multiplied by NumPy
"""A Python rung is a function with the name of an operation.

It receives the operands and scalars of the operation by name, and the stream; on the CPU there is none. The operands
are arrays of the device: NumPy's on the CPU, CuPy's on a GPU. It writes the result in place.
"""

import numpy as np

PANEL = 256


def matmul(A, B, C, alpha, beta, stream):
    """C = alpha A B + beta C, by panels of columns of A; with beta = 0, C is not read."""
    if beta == 0:
        C.fill(0)
    else:
        C *= C.dtype.type(beta)
    for start in range(0, A.shape[1], PANEL):
        panel = slice(start, start + PANEL)
        C += C.dtype.type(alpha) * np.matmul(A[:, panel], B[panel])
