# Matrix product in Numba-CUDA: one thread per element of C. Needs numba-cuda, NumPy before 2.5, and a GPU.
#
# hpcmm:
#   device: cuda
#   dtypes: [float32]
#   change: one thread per element, in Numba
from numba import cuda

TILE = 16


@cuda.jit
def product(A, B, C, alpha, beta):
    column, row = cuda.grid(2)
    if row < C.shape[0] and column < C.shape[1]:
        total = A.dtype.type(0)
        for p in range(A.shape[1]):
            total += A[row, p] * B[p, column]
        if beta == 0:
            C[row, column] = alpha * total
        else:
            C[row, column] = alpha * total + beta * C[row, column]


def matmul(A, B, C, alpha, beta, stream):
    """Launch the kernel on CuPy's arrays and stream, without copies."""
    m, n = C.shape
    grid = (-(-n // TILE), -(-m // TILE))
    queue = cuda.external_stream(stream.ptr) if stream.ptr else cuda.default_stream()
    of_type = C.dtype.type
    product[grid, (TILE, TILE), queue](*(cuda.as_cuda_array(each) for each in (A, B, C)), of_type(alpha), of_type(beta))
