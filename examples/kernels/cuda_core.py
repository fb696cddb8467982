# Matrix product with cuda.core: CUDA C++ from a string, compiled and launched by Python. Needs cuda.core and a GPU.
#
# hpcmm:
#   device: cuda
#   dtypes: [float32]
#   description: one thread per element, by cuda.core
import functools

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SIDE = 16
SOURCE = """
extern "C" __global__ void product(int m, int n, int k, float alpha, const float *A, const float *B, float beta,
                                   float *C)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n)
        return;
    float sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[(size_t)row * k + p] * B[(size_t)p * n + column];
    float &c = C[(size_t)row * n + column];
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
    """Launch the kernel on CuPy's arrays, whose rows have no pitch, and its stream."""
    device, kernel = compiled()
    (m, k), n = A.shape, B.shape[1]
    queue = Stream.from_handle(stream.ptr) if stream.ptr else device.default_stream
    config = LaunchConfig(grid=(-(-n // SIDE), -(-m // SIDE)), block=(SIDE, SIDE))
    (m, n, k), (alpha, beta) = map(np.int32, (m, n, k)), map(np.float32, (alpha, beta))
    launch(queue, config, kernel, m, n, k, alpha, A.data.ptr, B.data.ptr, beta, C.data.ptr)
