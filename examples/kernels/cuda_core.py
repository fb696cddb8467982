# Matrix product with cuda.core: CUDA C++ from a string, compiled and launched by Python. Needs cuda.core and a GPU.
#
# hpcmm:
#   device: cuda
#   dtypes: [float32]
#   change: one thread per element, by cuda.core
import functools

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SIDE = 16
SOURCE = """
extern "C" __global__ void product(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb,
                                   float beta, float *C, int ldc)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n)
        return;
    float sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[(size_t)row * lda + p] * B[(size_t)p * ldb + column];
    float &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
"""


@functools.cache
def compiled():
    """Return the device and the kernel; the first call compiles."""
    device = Device()
    device.set_current()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    return device, Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("product")


def matmul(A, B, C, alpha, beta, stream):
    """Launch the kernel on CuPy's arrays and stream, without copies."""
    device, kernel = compiled()
    queue = Stream.from_handle(stream.ptr) if stream.ptr else device.default_stream
    (m, n), k = C.shape, A.shape[1]
    config = LaunchConfig(grid=(-(-n // SIDE), -(-m // SIDE)), block=(SIDE, SIDE))
    a, b, c = ((each.data.ptr, np.int32(each.strides[0] // each.itemsize)) for each in (A, B, C))
    sizes = (np.int32(each) for each in (m, n, k))
    launch(queue, config, kernel, *sizes, np.float32(alpha), *a, *b, np.float32(beta), *c)
