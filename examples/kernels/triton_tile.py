# Matrix product in Triton, in full float32. Needs triton, torch and a GPU.
#
# hpcmm:
#   device: cuda
#   dtypes: [float32]
#   change: tiles in Triton
import torch
import triton
import triton.language as tl

ROWS, COLUMNS, DEPTH = 64, 64, 32


@triton.jit
def product(A, B, C, m, n, k, lda, ldb, ldc, alpha, beta,
            ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    terms = tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):
        p = start + terms
        a = tl.load(A + rows * lda + p[None, :], (rows < m) & (p[None, :] < k), 0.0)
        b = tl.load(B + p[:, None] * ldb + columns, (p[:, None] < k) & (columns < n), 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    inside = (rows < m) & (columns < n)
    total *= alpha
    if beta != 0:
        total += beta * tl.load(C + rows * ldc + columns, inside, 0.0)
    tl.store(C + rows * ldc + columns, total, inside)


def matmul(A, B, C, alpha, beta, stream):
    """Launch the kernel on CuPy's arrays and stream, without copies."""
    (m, k), n = A.shape, B.shape[1]
    a, b, c = (torch.from_dlpack(each) for each in (A, B, C))
    # ExternalStream(0) would be a new stream, which does not wait for the default one
    queue = torch.cuda.ExternalStream(stream.ptr) if stream.ptr else torch.cuda.default_stream()
    with torch.cuda.stream(queue):
        product[triton.cdiv(n, COLUMNS), triton.cdiv(m, ROWS)](
            a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), alpha, beta, ROWS, COLUMNS, DEPTH
        )
