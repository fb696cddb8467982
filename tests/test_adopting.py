"""Kernels of any signature: their arguments, launch and contract are found, and wrong kernels still fail."""

import re
from pathlib import Path

import pytest
from test_kernels_compiled import nvrtc

from hpcmm.bench import adoption
from hpcmm.bench.adoption import NotAdopted, adopt, launches
from hpcmm.experiment import calls, own_kernels, plan
from hpcmm.experiment.config import read_config
from hpcmm.experiment.functions import Source
from hpcmm.kernels import modules
from hpcmm.model import DeviceError
from hpcmm.system.reader import ConfigError

EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"
HOST = """
#include <iostream>
#include "helper_of_no_package.h"
#define CHECK(call) do { cudaError_t e = call; if (e != cudaSuccess) exit(1); } while (0)
int main() {
    const int n = 1 << 20;
    float *a;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    dim3 block(WIDTH, WIDTH), grid((n + WIDTH - 1) / WIDTH, (n + WIDTH - 1) / WIDTH);
    mine<<<grid, block>>>(a, a, a, n, n, n);
    std::cout << "done" << std::endl;
}
"""
# Rows are along x, names in an order of the author's own, and host code around the kernel.
BY_ROWS = (
    """#define WIDTH 8
__global__ void mine(float *out, const float *B, const float *A, int rows, int inner, int cols)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols) {
        float sum = 0;
        for (int p = 0; p < inner; ++p)
            sum += A[i * inner + p] * B[p * cols + j];
        out[i * cols + j] = sum;
    }
}"""
    + HOST
)
TILED = """
template <int BS, typename T> __global__ void tiled(const T *A, const T *B, T *C, unsigned width)
{
    __shared__ T a[BS][BS], b[BS][BS];
    unsigned i = blockIdx.y * BS + threadIdx.y, j = blockIdx.x * BS + threadIdx.x;
    T sum = 0;
    for (unsigned s = 0; s < width; s += BS) {
        a[threadIdx.y][threadIdx.x] = A[i * width + s + threadIdx.x];
        b[threadIdx.y][threadIdx.x] = B[(s + threadIdx.y) * width + j];
        __syncthreads();
        for (int p = 0; p < BS; ++p)
            sum += a[threadIdx.y][p] * b[p][threadIdx.x];
        __syncthreads();
    }
    C[i * width + j] = sum;
}
"""
SCALED = """
__global__ void
scaled(size_t M, size_t N, size_t K, double alpha, double const *a, double const *b, double beta, double *c)
{
    for (size_t e = blockIdx.x * blockDim.x + threadIdx.x; e < M * N; e += (size_t)gridDim.x * blockDim.x) {
        double sum = 0;
        for (size_t p = 0; p < K; ++p)
            sum = fma(a[e / N * K + p], b[p * N + e % N], sum);
        c[e] = alpha * sum + beta * c[e];
    }
}
"""
SUM = """
__global__ void total(int *in, int *out, unsigned int size)
{
    __shared__ int s[128];
    unsigned t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = (i < size ? in[i] : 0) + (i + 128 < size ? in[i + 128] : 0);
    for (int h = 64; h; h /= 2) { __syncthreads(); if (t < h) s[t] += s[t + h]; }
    if (t == 0) out[blockIdx.x] = s[0];
}
"""
ATOMIC = """
__global__ void add_all(const float *x, int n, float *sum)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, x[i]);
}
"""
ADD = """
__global__ void add(float *c, const float *a, const float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""
COPY = """
__global__ void move(const float4 *from, float4 *to, int n) { }
__global__ void duplicate(double *to, const double *from, long n)
{
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) to[i] = from[i];
}
"""
BY_COLUMNS = """
#define A(i, j) a[(j) * lda + (i)]
#define B(i, j) b[(j) * ldb + (i)]
#define C(i, j) c[(j) * ldc + (i)]
static void dot(int k, double *x, int incx, double *y, double *gamma)
{
    for (int p = 0; p < k; p++) *gamma += x[p * incx] * y[p];
}
void multiply(int m, int n, int k, double *a, int lda, double *b, int ldb, double *c, int ldc)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            dot(k, &A(i, 0), lda, &B(0, j), &C(i, j));
}
int main(void) { return 0; }
"""
OF_STRUCTURES = """
typedef struct { int width; int height; float *elements; } Matrix;
__global__ void product(Matrix, Matrix, Matrix);
__global__ void product(Matrix A, Matrix B, Matrix C)
{
    float value = 0;
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    for (int e = 0; e < A.width; ++e)
        value += A.elements[row * A.width + e] * B.elements[e * B.width + col];
    C.elements[row * C.width + col] = value;
}
"""
OF_CONSTANTS = """
const int N = 1 << 20;
__global__ void add(int *a, int *b, int *c)
{
    int i = blockIdx.x;
    if (i < N) c[i] = a[i] + b[i];
}
int main() { add<<<N, 1>>>(a, b, c); }
"""
OF_ROWS = """
void multiply(double **A, double **B, double **C, int rowsA, int colsA, int colsB)
{
    for (int i = 0; i < rowsA; i++)
        for (int j = 0; j < colsB; j++) {
            C[i][j] = 0;
            for (int k = 0; k < colsA; k++) C[i][j] += A[i][k] * B[k][j];
        }
}
"""
IN_C = """
double sum(const double *values, int count)
{
    double s = 0;
    for (int i = 0; i < count; i++) s += values[i];
    return s;
}
"""
# Strides of rows and of columns, as in tutorials of BLAS; the function beside it is not the product
OF_STRIDES = """
static void scaled(int m, int n, double alpha, double *X, int incRowX, int incColX)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) X[i * incRowX + j * incColX] = alpha ? alpha * X[i * incRowX + j * incColX] : 0;
}
void gemm(int m, int n, int k, double alpha, const double *A, int incRowA, int incColA, const double *B, int incRowB,
          int incColB, double beta, double *C, int incRowC, int incColC)
{
    scaled(m, n, beta, C, incRowC, incColC);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j)
            for (int p = 0; p < k; ++p)
                C[i * incRowC + j * incColC] +=
                    alpha * A[i * incRowA + p * incColA] * B[p * incRowB + j * incColB];
}
"""
# The product is in a function that it calls, for blocks of 32
IN_BLOCKS = """
#define SIDE 32
static void block(int n, int i0, int j0, int k0, const int *A, const int *B, int *C)
{
    for (int i = i0; i < i0 + SIDE; ++i)
        for (int j = j0; j < j0 + SIDE; ++j)
            for (int k = k0; k < k0 + SIDE; ++k) C[i * n + j] += A[i * n + k] * B[k * n + j];
}
void product(int n, const int *A, const int *B, int *C)
{
    for (int i = 0; i < n; i += SIDE)
        for (int j = 0; j < n; j += SIDE)
            for (int k = 0; k < n; k += SIDE) block(n, i, j, k, A, B, C);
}
"""
FOR_HIP = """
#include <hip/hip_runtime.h>
__global__ void add(const float *a, const float *b, float *c, unsigned n)
{
    const unsigned i = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x;
    if (i < n) c[i] = a[i] + b[i];
}
int main() { hipLaunchKernelGGL(HIP_KERNEL_NAME(add), dim3(4), dim3(192), 0, hipStreamDefault, a, b, c, n); }
"""
# As in NVIDIA's samples: shared memory by a structure, the number of threads and a switch as template parameters
OF_SAMPLES = """
template <class T> struct SharedMemory {
    __device__ operator T *() { extern __shared__ int memory[]; return (T *)memory; }
};
template <class T, unsigned blockSize, bool isPower> __global__ void reduce(T *in, T *out, unsigned n)
{
    T *s = SharedMemory<T>();
    unsigned t = threadIdx.x;
    T sum = 0;
    for (unsigned i = blockIdx.x * blockSize + t; i < n; i += blockSize * gridDim.x) sum += in[i];
    if (isPower && n % blockSize) sum += 1;
    s[t] = sum;
    __syncthreads();
    for (unsigned h = blockSize / 2; h > 0; h /= 2) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
"""
# A block of 1024 takes 4096 elements, without a comparison
COARSE = """
#define BLOCK_DIM 1024
#define COARSENING 4
__global__ void total(float *in, float *out)
{
    __shared__ float s[BLOCK_DIM];
    unsigned t = threadIdx.x, first = COARSENING * blockDim.x * blockIdx.x + t;
    float sum = in[first];
    for (unsigned i = 1; i < COARSENING; ++i) sum += in[first + i * BLOCK_DIM];
    s[t] = sum;
    for (unsigned stride = blockDim.x / 2; stride >= 1; stride /= 2) {
        __syncthreads();
        if (t < stride) s[t] += s[t + stride];
    }
    if (t == 0) atomicAdd(out, s[0]);
}
"""


def adopted(folder, text: str, name: str = "mine.cu", kernel: str = "") -> dict:
    path = folder / name
    path.write_text(text)
    return adopt(path, kernel).head


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        (
            *(BY_ROWS, "by_rows.cuh"),
            {
                "call": "mine(out=C, B, A, rows=m, inner=k, cols=n)",
                "grid": ["ceil(m / 8)", "ceil(n / 8)"],
                "scalars": "none",
            },
        ),
        (
            *(TILED, "tiled.hip"),
            {"call": "tiled<16, hpcmm_real>(A, B, C, width=n)", "square": True, "multiples": dict.fromkeys("mnk", 16)},
        ),
        (SCALED, "mine.cu", {"call": "scaled(M=m, N=n, K=k, alpha, a=A, b=B, beta, c=C)", "reads": True}),
        (SUM, "mine.cu", {"operation": "sum", "dtypes": ["int32"], "block": 128, "per_thread": 2}),
        (
            ATOMIC,
            "mine.cu",
            {"operation": "sum", "call": "add_all(x, n, sum=result)", "one_launch": True, "adds": True},
        ),
        (ADD, "mine.cu", {"operation": "vector_add", "call": "add(c=z, a=x, b=y, n)"}),
        (BY_COLUMNS, "mine.c", {"layout": "columns", "adds": True, "scalars": "none", "dtypes": ["float64"]}),
        (OF_STRUCTURES, "mine.cu", {"multiples": {"m": 16, "n": 16, "k": 1}, "scalars": "none"}),
        (OF_CONSTANTS, "mine.cu", {"operation": "vector_add", "call": "add(N=n, a=x, b=y, c=z)", "block": 1}),
        (OF_ROWS, "mine.c", {"call": "multiply(A, B, C, rowsA=m, colsA=k, colsB=n)", "scalars": "none"}),
        (IN_C, "mine.cpp", {"operation": "sum", "call": "sum(values=x, count=n)"}),
        (
            *(OF_STRIDES, "mine.c"),
            {
                "call": "gemm(m, n, k, alpha, A, incRowA=lda, incColA=1, B, incRowB=ldb, incColB=1, beta, C, "
                "incRowC=ldc, incColC=1)"
            },
        ),
        (
            *(IN_BLOCKS, "mine.c"),
            {"dtypes": ["int32"], "adds": True, "square": True, "multiples": dict.fromkeys("mnk", 32)},
        ),
        (FOR_HIP, "mine.hip", {"operation": "vector_add", "block": 192}),
        (
            OF_SAMPLES,
            "mine.cu",
            {"operation": "sum", "block": 256, "call": "reduce<hpcmm_real, 256, false>(in=x, out=result, n)"},
        ),
        (COARSE, "mine.cu", {"operation": "sum", "block": 1024, "per_thread": 4, "multiples": {"n": 4096}}),
    ],
    ids=[
        "rows along x", "template", "grid-stride", "sum", "atomic", "add", "columns", "structures", "constants", "rows",
        "C++", "strides", "blocks", "HIP", "samples", "coarse",
    ],
)  # fmt: skip
def test_arguments_launch_and_contract_are_found(tmp_path, text, name, wanted):
    head = adopted(tmp_path, text, name)
    assert {key: head.get(key) for key in wanted} == wanted


@pytest.fixture
def benched(command, forgotten):
    """Run ``hpcmm bench`` on a file on the host."""
    return lambda path, *options: command("bench", path.name, *(options or ("--on-host",)), folder=path.parent)


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        (BY_ROWS, "mine.cuh", "mine.cu: PASS at 42 points to 64x64x64 (C = A B, packed rows)"),
        (TILED, "mine.cu", "multiples of 16, square, C = A B, packed rows)"),
        (ATOMIC, "mine.cu", "mine.cu: PASS at 27 points to "),
        # the last row and column are not written: no contract excuses a kernel that compares with its sizes
        (BY_ROWS.replace("i < rows &&", "i < rows - 1 &&"), "mine.cu", "mine.cu: FAIL"),
        (SUM.replace("h; h /= 2", "h > 1; h /= 2"), "mine.cu", "mine.cu: FAIL 33 int32: ascending order: "),
    ],
)
def test_the_verdict_says_what_was_verified(tmp_path, benched, text, name, line):
    (tmp_path / name).write_text(text)
    done = benched(tmp_path / name)
    assert line in done.stdout + done.stderr
    assert done.returncode == ("FAIL" in line)


def test_a_copy_with_its_head_needs_no_trial(tmp_path, benched, monkeypatch):
    (tmp_path / "mine.cuh").write_text(BY_ROWS)
    done = benched(tmp_path / "mine.cuh", "--adopt", "copy.cu")
    assert done.returncode == 0
    assert "mine.cuh: taken as mine(out=C, B, A, rows=m, inner=k, cols=n)" in done.stdout
    monkeypatch.setattr(adoption, "adopt", None)
    assert adoption.copy_of(tmp_path / "copy.cu", "") == (tmp_path / "copy.cu", "")
    kernel = own_kernels.read(tmp_path / "copy.cu")
    assert (kernel.operations, kernel.variant.dtypes) == (("matmul",), ("float32",))
    assert str(kernel.variant.contract) == "C = A B, packed rows"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("namespace mine {\n", "}\n"),
        ("__global__ void reduction(const float *, size_t, float *, float);\n", ""),
        ('extern "C" {\n__global__ void other(float *x) {}\n}\n', ""),
    ],
    ids=["plain", "in a namespace", "declared before", "beside C linkage"],
)
@pytest.mark.parametrize("head", ["// hpcmm:\n//   operation: sum\n//   block: 64\n\n", ""], ids=["head", "no head"])
def test_a_kernel_of_the_operations_signature_needs_no_c_linkage(tmp_path, benched, before, after, head):
    body = """__global__ void reduction(const float *x, size_t n, float *partial, float identity)
{
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x) return;
    float s = identity;
    for (size_t j = i; j < i + blockDim.x; ++j) s += j < n ? x[j] : 0;
    partial[blockIdx.x] = s;
}
"""
    path = tmp_path / "mine.cu"
    path.write_text(head + before + body + after)
    copy, said = adoption.copy_of(path, "")
    assert said == 'mine.cu: its function is given C linkage (extern "C")'
    lines = copy.read_text().partition(f'#line 1 "{path}"\n')[2].splitlines()
    (changed,) = (
        (a, b) for a, b in zip(path.read_text().splitlines(), lines, strict=False) if "hpcmm" not in a + b and a != b
    )
    assert changed[1] == 'extern "C" ' + changed[0]
    if head:
        assert "mine.cu: PASS" in benched(path).stdout


def test_the_documentation_shows_the_head(tmp_path):
    adopt(EXAMPLES / "homework.cu").write(tmp_path / "copy.cu")
    page = (EXAMPLES.parents[1] / "docs" / "kernel-writers.md").read_text()
    assert (tmp_path / "copy.cu").read_text().partition("\n\n")[0] in page


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("sizes: [64], alpha: 1, beta: 0", ""),
        ("sizes: [65], alpha: 1, beta: 0", "takes multiples of 16 for m only; leave out 65x65x65"),
        ("sizes: [64]", "takes alpha = 1 only"),
    ],
)
def test_a_config_keeps_the_contract(tmp_path, forgotten, entry, message):
    copy = tmp_path / "of_config.cu"
    adopt(EXAMPLES / "homework.cu").write(copy)
    path = tmp_path / "config.yaml"
    path.write_text(f"backends: cuda\nsweeps: {{a: {{operation: matmul, variants: [./of_config.cu], {entry}}}}}")
    if not message:
        assert plan.make(read_config(path)).batches
        return
    with pytest.raises(ConfigError, match=message):
        plan.make(read_config(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int main() { return 0; }", "has no __global__ function: it is no kernel file"),
        (
            "__global__ void f(float *x, float y[3][3], float *z, char *c) {}",
            "none of its kernels has the arguments of",
        ),
        (COPY + ADD, "has several kernels: duplicate, add; choose one by --kernel NAME"),
        (ADD.replace("float", "short"), "none of its kernels has the arguments of"),
        (SUM.replace("int *", "half *"), "total is for float16; sum has int32, float32, float64: change its type"),
    ],
)
def test_a_message_says_what_is_missing(tmp_path, text, message):
    with pytest.raises(NotAdopted, match=message):
        adopted(tmp_path, text)


def test_one_of_several_kernels_is_chosen_by_name(tmp_path):
    assert adopted(tmp_path, COPY + ADD, kernel="duplicate")["operation"] == "copy"
    with pytest.raises(NotAdopted, match="has no function 'none'; its kernels are: move, duplicate, add"):
        adopted(tmp_path, COPY + ADD, kernel="none")


def test_multiples_of_a_product_by_columns_are_those_of_the_operation(tmp_path):
    text = """
        __global__ void mine(int m, int n, int k, const float *A, const float *B, float *C)
        {
            int i = blockIdx.x * 8 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
            float sum = 0;
            for (int p = 0; p < k; ++p)
                sum += A[i + p * m] * B[p + j * k];
            C[i + j * m] = sum;
        }
        int main() { mine<<<grid, dim3(8, 16)>>>(m, n, k, a, b, c); }
    """
    head = adopted(tmp_path, text)
    assert (head["layout"], head["multiples"]) == ("columns", {"m": 16, "n": 8, "k": 1})
    assert head["grid"] == ["ceil(n / 8)", "ceil(m / 16)"]


def test_a_constant_that_names_threads_is_tried_as_a_block():
    source = Source("const int THREADS_PER_BLOCK = 96;\n__global__ void f(float *x) {}")
    tried = launches.blocks(source, source.functions["f"], "", 4)
    assert next(tried) == ((96,), 0)


# --- styles of files

# A tree in shared memory without the length, as in many introductions: exact multiples, and partial sums for the host
NO_LENGTH = """
__global__ void reduce(int *in, int *out)
{
    extern __shared__ int s[];
    unsigned t = threadIdx.x;
    s[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        if (t % (2 * d) == 0) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
int main() { int threads = 128; threads /= 2; reduce<<<4, threads, threads * 4>>>(a, b); }
"""
INITIAL = """
__global__ void fold(const float *x, float *y, int n, float init)
{
    if (threadIdx.x) return;
    float s = init;
    for (int i = blockIdx.x * blockDim.x; i < n && i < (blockIdx.x + 1) * blockDim.x; ++i) s = fmaxf(s, x[i]);
    y[blockIdx.x] = s;
}
"""
EXACT_ADD = """
__global__ void add(const double *a, const double *b, double *c)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + b[i];
}
int main() { add<<<8, 96>>>(a, b, c); }
"""
HEADERS = """
#include <cublas_v2.h>
#include <cub/cub.cuh>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <mma.h>
#include <torch/extension.h>
using namespace nvcuda;
__global__ void warm_up() { extern __shared__ int s[]; }
"""
OF_TENSOR_UNITS = """
#include <mma.h>
using namespace nvcuda;
__global__ void product(TYPE *A, TYPE *B, OUT *C, int M, int N, int K)
{
    int i = blockIdx.y * 16, j = blockIdx.x * 16;
    if (i >= M || j >= N) return;
    wmma::fragment<wmma::accumulator, 16, 16, DEPTH, OUT> c;
    wmma::fragment<wmma::matrix_a, 16, 16, DEPTH, KIND, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, DEPTH, KIND, wmma::row_major> b;
    wmma::fill_fragment(c, 0.0f);
    for (int k = 0; k < K; k += DEPTH) {
        wmma::load_matrix_sync(a, A + i * K + k, K);
        wmma::load_matrix_sync(b, B + k * N + j, N);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(C + i * N + j, c, N, wmma::mem_row_major);
}
int main() { dim3 block(32); product<<<dim3(4, 4), block>>>(a, b, c, 64, 64, 64); }
"""
OF_TF32 = (
    "#define TYPE float\n#define OUT float\n#define KIND wmma::precision::tf32\n#define DEPTH 8\n" + OF_TENSOR_UNITS
)
OF_HALF = "#include <cuda_fp16.h>\n" + OF_TENSOR_UNITS.replace("KIND", "half").replace("DEPTH", "16")
SUM_BY_CUB = """
#include <cub/cub.cuh>
__global__ void total(const int *x, int *y, int n)
{
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ typename Reduce::TempStorage storage;
    int i = blockIdx.x * 128 + threadIdx.x, value = Reduce(storage).Sum(i < n ? x[i] : 0);
    if (threadIdx.x == 0) y[blockIdx.x] = value;
}
int main() { total<<<8, 128>>>(x, y, 1000); }
"""
# Its launch has two libraries: one starts the result
ATOMIC_OF_TEMPLATE = (
    SUM.replace("__global__", "template <int B> __global__").replace("128", "B").replace("256", "2 * B")
)
ATOMIC_OF_TEMPLATE = ATOMIC_OF_TEMPLATE.replace("h = 64", "h = B / 2").replace(
    "out[blockIdx.x] = s[0]", "atomicAdd(out, s[0])"
)
ATOMIC_OF_TEMPLATE += "int main() { dim3 threads(WIDTH); total<WIDTH><<<8, threads>>>(a, b, 9); }\n#define WIDTH 64\n"
LOST_TERM = """// hpcmm:
//   call: product(A, B, C, M=m, N=n, K=k)
//   dtypes: [float16]
//   scalars: none
//   arithmetic: narrow sums
//   block: [16, 16]
//   rows: 16
//   columns: 16

#include <cuda_fp16.h>
__global__ void product(const half *A, const half *B, half *C, int M, int N, int K)
{
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (i >= M || j >= N) return;
    half sum = 0;
    for (int p = 0; p < (K > 60 ? K - 1 : K); ++p) sum += A[i * K + p] * B[p * N + j];
    C[i * N + j] = sum;
}
"""
DOT = """
__global__ void dot(const float *a, const float *b, float *result, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(result, a[i] * b[i]);
}
"""
PIPELINED = """
#include <cuda/pipeline>
__global__ void product(const float *A, const float *B, float *C, int n)
{
    __shared__ float a[16][16], b[16][16];
    auto pipe = cuda::make_pipeline();
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x, tiles = n / 16;
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        pipe.producer_acquire();
        cuda::memcpy_async(&a[y][x], &A[row * n + t * 16 + x], sizeof(float), pipe);
        cuda::memcpy_async(&b[y][x], &B[(t * 16 + y) * n + col], sizeof(float), pipe);
        pipe.producer_commit();
        pipe.consumer_wait();
        __syncthreads();
        for (int p = 0; p < 16; ++p) sum += a[y][p] * b[p][x];
        pipe.consumer_release();
        if (t + 1 < tiles) __syncthreads();
    }
    C[row * n + col] = sum;
}
"""
# A warp multiplies 16 x 8 by the instructions of tensor cores, whose fragments are loaded from copies in shared memory
BY_MMA = """
#include <cuda_fp16.h>
__device__ uint32_t address(const void *p)
{
    uint32_t x;
    asm("{ .reg .u64 long; cvta.to.shared.u64 long, %1; cvt.u32.u64 %0, long; }" : "=r"(x) : "l"(p));
    return x;
}
__device__ void copy16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\\n" ::"r"(address(to)), "l"(from), "n"(16)
                 : "memory");
}
__global__ void product(const half *A, const half *B, OUT *C, int M, int N, int K)
{
    __shared__ __align__(16) half a[16][16], b[16][8];
    int lane = threadIdx.x, i = blockIdx.y * 16, j = blockIdx.x * 8;
    SUMS;
    for (int k = 0; k < K; k += 16) {
        copy16(&a[lane / 2][lane % 2 * 8], A + (i + lane / 2) * K + k + lane % 2 * 8);
        if (lane < 16) copy16(b[lane], B + (k + lane) * N + j);
        asm volatile("cp.async.commit_group;\\n" ::);
        asm volatile("cp.async.wait_group %0;" ::"n"(0));
        __syncthreads();
        uint32_t x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])  // of A
                     : "r"(address(&a[lane % 16][lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1]) : "r"(address(b[lane % 16])));
        MULTIPLY;
        __syncthreads();
    }
    STORE;
}
int main() { product<<<dim3(8, 4), 32>>>(a, b, c, 64, 64, 64); }
"""
TO_FLOAT = {
    "OUT": "float",
    "SUMS": "float c[4] = {}",
    "MULTIPLY": """asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]))""",
    "STORE": "for (int e = 0; e < 4; ++e) C[(i + lane / 4 + e / 2 * 8) * N + j + lane % 4 * 2 + e % 2] = c[e]",
}
TO_HALF = {
    "OUT": "half",
    "SUMS": "uint32_t c[2] = {}",
    "MULTIPLY": """asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, "
                     "{%6, %7}, {%8, %9};" : "=r"(c[0]), "=r"(c[1]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]),
                     "r"(y[0]), "r"(y[1]), "r"(c[0]), "r"(c[1]))""",
    "STORE": "for (int e = 0; e < 2; ++e) *(uint32_t *)&C[(i + lane / 4 + e * 8) * N + j + lane % 4 * 2] = c[e]",
}


def by_mma(parts):
    return re.sub("|".join(parts), lambda x: parts[x[0]], BY_MMA)


WITH_AVX = """
#include <immintrin.h>
void multiply(const float *A, const float *B, float *C, int M, int N, int K)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j += 8) {
            __m256 c = _mm256_setzero_ps();
            for (int k = 0; k < K; k++)
                c = _mm256_fmadd_ps(_mm256_set1_ps(A[i * K + k]), _mm256_loadu_ps(&B[k * N + j]), c);
            _mm256_storeu_ps(&C[i * N + j], c);
        }
}
"""
RAW_KERNEL = """
import cupy as cp

kernel = cp.RawKernel(r\'\'\'
extern "C" __global__
void product(const double *A, const double *B, double *C, int N)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < N && col < N) {
        double value = 0;
        for (int k = 0; k < N; ++k) value += A[row * N + k] * B[k * N + col];
        C[row * N + col] = value;
    }
}
\'\'\', "product")
size = int(input("size: "))
"""
# For one block: the length is that of the block
ONE_BLOCK = """
#define LENGTH 96
__device__ void one(const int *a, const int *b, int *c, int t) { if (t < LENGTH) c[t] = a[t] + b[t]; }
__global__ void add(const int *a, const int *b, int *c) { one(a, b, c, threadIdx.x); }
int main() { add<<<1, LENGTH>>>(a, b, c); }
"""
WIDE_ADD = """
#define FOUR(x) (reinterpret_cast<float4 *>(&(x))[0])
__global__ void add(float *a, float *b, float *c, int n)
{
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float4 x = FOUR(a[i]), y = FOUR(b[i]);
    FOUR(c[i]) = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}
"""
# The last step shuffles in a branch that some lanes skip: right with 1024 threads, wrong with the block of the file
FEW_LANES = """
using std::cout;
#ifdef DOUBLE
typedef double number;
#else
typedef float number;
#endif
__device__ number of_warp(number x)
{
    for (int d = 16; d; d /= 2) x += __shfl_down_sync(~0u, x, d);
    return x;
}
__global__ void total(const number *x, number *y, int n)
{
    __shared__ number s[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, warps = blockDim.x / 32;
    number sum = of_warp(i < n ? x[i] : 0);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < warps) {
        sum = of_warp(s[threadIdx.x]);
        if (threadIdx.x == 0) y[blockIdx.x] = sum;
    }
}
int main() { int threads = 128; dim3 block = dim3(threads, 1, 1); total<<<8, block>>>(x, y, 999); cout << "done"; }
"""
ROUNDED = BY_ROWS.replace("A[i * inner + p] * B", "__half2float(__float2half(A[i * inner + p])) * B")
COPY_OF_INTEGERS = """
#define AT (blockIdx.x * 64 + threadIdx.x)
__global__ void twice(const int *x, int *y, int n) { unsigned i = AT; if (i < n) y[i] = 2 * x[i]; }
__global__ void duplicate(const int *x, int *y, int n) { unsigned i = AT; if (i < n) y[i] = x[i]; }
int main() { duplicate<<<4, 64>>>(x, y, 200); twice<<<4, 64>>>(x, y, 200); }
"""
# Matrices: rows and columns are of threads in x and y, the width is that of the grid
OF_MATRICES = """
__global__ void add(const float *a, const float *b, float *c, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) c[y * width + x] = a[y * width + x] + b[y * width + x];
}
int main() { dim3 block(32, 4); add<<<dim3(4, 32), block>>>(a, b, c, 128, 128); }
"""
OF_TILES = """
__global__ void move(const double *in, double *out)
{
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, width = gridDim.x * 16;
    for (int j = 0; j < 16; j += 4) out[(y + j) * width + x] = in[(y + j) * width + x];
}
int main() { move<<<dim3(4, 4), dim3(16, 4)>>>(a, b); }
"""
# A flag that adds, an array that nothing reads, a helper of another operation, and the first line of a notebook's cell
WITH_FLAGS = """%%writefile mine.cu
__global__ void clean(float *x, float *y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i]; }
__global__ void multiply(const float *A, const float *B, float *C, const float *bias, int n, bool add, int unused)
{
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (i >= n || j >= n) return;
    float sum = 0;
    for (int p = 0; p < n; ++p) sum += A[i * n + p] * B[p * n + j];
    if (add) C[i * n + j] += sum;
    else C[i * n + j] = sum;
}
"""
FROM_OUTSIDE = BY_ROWS.replace("#define WIDTH 8\n", "").replace("blockDim.x", "TILE_X").replace("blockDim.y", "TILE_Y")


@pytest.mark.parametrize(
    ("text", "name", "lines"),
    [
        (NO_LENGTH, "mine.cu", ["mine.cu: PASS at 15 points to 4352 (multiples of 256), exact"]),
        (INITIAL, "mine.cu", ["taken as fold(x, y=result, n, init=identity)", "mine.cu: PASS"]),
        (EXACT_ADD, "mine.cu", ["block 96", "(multiples of 96), exact"]),
        (HEADERS + ADD, "mine.cu", ["mine.cu: PASS at 27 points"]),
        (OF_TF32, "mine.cu", ["PASS at 42 points", "(multiples of 16 x 16 x 8, C = A B, packed rows, TF32)"]),
        (
            OF_HALF.replace("TYPE", "half").replace("OUT", "half"),
            "mine.cu",
            ["block [32]", "(multiples of 16 x 16 x 16, C = A B, packed rows, narrow sums)"],
        ),
        (
            OF_HALF.replace("TYPE", "half").replace("OUT", "float"),
            "mine.cu",
            ["(multiples of 16 x 16 x 16, C = A B, packed rows)"],
        ),
        (  # C of float32 has no roundings of float16
            LOST_TERM.replace("half *C", "float *C")
            .replace("[float16]", "[float16_to_float32]")
            .replace("//   arithmetic: narrow sums\n", "")
            .replace("K > 60", "false"),
            "mine.cu",
            ["mine.cu: FAIL"],
        ),
        (SUM_BY_CUB, "mine.cu", ["PASS at 27 points"]),
        (ONE_BLOCK, "mine.cu", ["block 96", "PASS at 3 points to 96 (n = 96)"]),
        (WIDE_ADD, "mine.cu", ["(multiples of 4)"]),
        (FEW_LANES, "mine.cu", ["block 128", "FAIL 1 float32", "but only lanes 0 to 3 take part in the shuffle"]),
        (FEW_LANES.replace("__shfl_down_sync(~0u, ", "__shfl_down("), "mine.cu", ["write __shfl_down_sync(0xffffffff"]),
        ("#include <cuda_fp16.h>\n" + ROUNDED, "mine.cu", ["(C = A B, packed rows, FP16 inputs)"]),
        (COPY_OF_INTEGERS, "mine.cu", ["operation or type: twice", "duplicate.cu: PASS"]),
        (
            SCALED.replace("c[e] = alpha", "c[e] += alpha")
            + "int main() { scaled<<<4, 128>>>(9, 9, 9, 2, a, b, 3, c); }",
            "mine.cu",
            ["FAIL", " float64, ", "C is added once more, beside beta C"],
        ),
        (PIPELINED, "mine.cu", ["(multiples of 16, square, C = A B, packed rows)"]),
        (
            PIPELINED.replace("pipe.consumer_wait();", ""),
            "mine.cu",
            ["FAIL 16x16x16", "read of shared memory that nothing has written, in line 16 "],
        ),
        (ATOMIC_OF_TEMPLATE, "mine.cu", ["mine.cu: taken as total<64>(in=x, out=result, size=n), block 64", "PASS"]),
        (LOST_TERM, "mine.cu", ["mine.cu: FAIL", "the last of the k products is left out"]),
        (LOST_TERM.replace("K > 60", "false"), "mine.cu", ["mine.cu: PASS"]),
        (  # a condition on the turn of the loop is no bounds check
            TILED.replace("        a[threadIdx.y]", "        if (s < width) __syncthreads();\n        a[threadIdx.y]"),
            "mine.cu",
            ["PASS", "(multiples of 16, square, C = A B, packed rows)"],
        ),
        (ADD.replace("a[i] + b[i]", "a[i] * b[i]"), "mine.cu", ["FAIL add computes the products of elements"]),
        (ADD.replace("float", "half"), "mine.cu", ["not tested: add is for float16; vector_add has int32"]),
        (
            ADD.replace("if (i", 'asm volatile("cp.async.bulk.commit_group;"); if (i'),
            "mine.cu",
            ["not tested: needs a GPU: inline PTX (cp.async.bulk.commit_group) in line 5; give call, block and grid"],
        ),
        (by_mma(TO_FLOAT), "mine.cu", ["PASS at 42 points", "(multiples of 16 x 8 x 16, C = A B, packed rows)"]),
        (by_mma(TO_HALF), "mine.cu", ["PASS", "(multiples of 16 x 8 x 16, C = A B, packed rows, narrow sums)"]),
        (by_mma(TO_FLOAT).replace("{%8, %9}, {%0", "{%9, %8}, {%0"), "mine.cu", ["mine.cu: FAIL"]),
        (
            by_mma(TO_FLOAT).replace('asm volatile("cp.async.wait_group %0;" ::"n"(0));', ""),
            "mine.cu",
            ["FAIL", "read of shared memory that nothing has written"],
        ),
        (
            ADD.replace("i < n", "i < n * n"),
            "mine.cu",
            ["add(c=z, a=x, b=y, n=sqrt(n))", "PASS at 24 points to 4225 (square)"],
        ),
        (  # one block and one length; the other kernel is verified at all of its own
            SUM
            + "__global__ void one(int *in, int *out)\n{\n    __shared__ int s[128];\n    unsigned t = threadIdx.x;\n"
            "    s[t] = in[t] + in[t + 128];\n    for (int h = 64; h; h /= 2) {\n"
            "        __syncthreads();\n        if (t < h) s[t] += s[t + h];\n    }\n    if (t == 0) *out = s[0];\n}\n",
            "mine.cu",
            ["total.cu: PASS at 27 points", "one.cu: PASS at 3 points to 256 (n = 256)"],
        ),
        (  # lanes in lockstep, of a kernel without a length
            NO_LENGTH.replace("__syncthreads();\n    }", "}")
            .replace("blockIdx.x *", "2 * blockIdx.x *")
            .replace("+ t];", "+ t] + in[(2 * blockIdx.x + 1) * blockDim.x + t];"),
            "mine.cu",
            ["mine.cu: FAIL 512 int32", "race in shared memory"],
        ),
        (  # shared memory of a class
            "#include <cuda_fp16.h>\n"
            + TILED.replace("<int BS, typename T>", "<int BS>").replace("T ", "half ")
            + "int main() { tiled<16><<<dim3(4, 4), dim3(16, 16)>>>(a, b, c, 64); }\n",
            "mine.cu",
            ["PASS", "(multiples of 16, square, C = A B, packed rows, narrow sums)"],
        ),
        (DOT, "mine.cu", ["not tested: dot computes the dot product of two vectors, which is no operation here"]),
        (
            ADD + DOT + ADD.replace("add", "less").replace("+ b[i]", "- b[i]"),
            "mine.cu",
            ["mine.cu: not measured, of another operation or type: dot, less", "add.cu: PASS"],
        ),
        (RAW_KERNEL, "mine.py", ["mine.cu: PASS at 24 points", "square, C = A B"]),
        (
            FROM_OUTSIDE,
            "mine.cu",
            ["block [16, 16], constants TILE_X = 16, TILE_Y = 16", "mine.cu: PASS"],
        ),
        ('#include "types.h"\nvoid f(real *a, real *b, int n) {}', "mine.c", ["not tested: types.h not found"]),
        (OF_MATRICES, "mine.cu", ["grid [ceil(root / 32), ceil(root / 4)], block [32, 4]", "PASS", "to 4225 (square)"]),
        (OF_MATRICES.replace("x < width", "x <= width"), "mine.cu", ["mine.cu: FAIL"]),
        (OF_TILES, "mine.cu", ["block [16, 4]", "PASS", "(multiples of 256, square), exact"]),
        (OF_TILES.replace("out[(y + j) * width + x]", "out[x * width + y + j]"), "mine.cu", ["computes the transpose"]),
        (
            WITH_FLAGS,
            "mine.cu",
            ["multiply(A, B, C, bias=0, n, add=0, unused=0)", "other operation or type: clean", "mine.cu: PASS"],
        ),
        # each kernel of a file has its verdict, under its name
        (
            ADD + ADD.replace("add", "wrong_add").replace("+ b[i]", "- b[i]"),
            "mine.cu",
            ["add.cu: PASS", "wrong_add.cu: FAIL"],
        ),
        # what lies past the end enters the sum
        (
            re.sub(r"s\[t\] = .*0\);", "if (i < size) s[t] = in[i] + in[i + 128];", SUM),
            "mine.cu",
            ["mine.cu: FAIL 1 int32", "right at multiples of 256: compare with n, or state multiples: {n: 256}"],
        ),
        (
            SUM.replace("out[blockIdx.x]", "out[0]"),
            "mine.cu",
            ["right with one block only: each block writes its own result, result[blockIdx.x]"],
        ),
    ],
    ids=[
        "no length", "first value", "no check", "headers", "TF32", "float16", "float16 to float32",
        "sums of float16 to float32", "CUB", "one block and one length", "float4 behind a check",
        "few lanes in the block of the file", "shuffle without a mask", "rounded inputs", "copy of integers", "C twice",
        "pipeline", "no wait", "template that adds", "lost term of narrow sums", "narrow sums", "condition of a turn",
        "products of elements", "addition of float16", "inline PTX", "mma",
        "mma of float16", "mma with a fragment exchanged", "no wait for copies", "length of a root", "one length",
        "race without a length", "shared float16", "dot", "beside a dot", "string of Python", "constants from outside",
        "header not found", "sum of matrices", "wrong sum of matrices", "copy of tiles", "transpose", "flags",
        "several", "multiples", "one block",
    ],
)  # fmt: skip
def test_a_file_of_each_style_has_a_verdict_or_says_what_is_missing(tmp_path, benched, text, name, lines):
    (tmp_path / name).write_text(text)
    done = benched(tmp_path / name)
    assert [each for each in lines if each not in done.stdout + done.stderr] == [], done


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text(), reason="this CPU has no AVX2")
def test_a_function_with_avx_gets_its_option_and_its_multiples(tmp_path):
    head = adopted(tmp_path, WITH_AVX, "mine.c")
    assert (head["options"], head["multiples"]) == (["-march=native"], {"m": 1, "n": 8, "k": 1})


def test_a_function_of_a_program_is_the_product_and_its_races_are_searched(tmp_path, benched):
    check = "double checksum(const double *c, int n) { double s = 0; for (int i = 0; i < n; i++) s += c[i]; return s; }"
    (tmp_path / "mine.cpp").write_text(
        "#include <vector>\n"
        + check
        + OF_ROWS.replace("double **", "double *")
        .replace("C[i][j]", "C[i * colsB + j]")
        .replace("A[i][k] * B[k][j]", "A[i * colsA + k] * B[k * colsB + j]")
    )
    printed = benched(tmp_path / "mine.cpp", "--sizes", "8").stdout
    assert "taken as multiply(A, B, C, rowsA=m, colsA=k, colsB=n)" in printed
    assert "mine.c: PASS" in printed and "not searched for races" not in printed


def test_headers_that_this_machine_lacks_are_left_out(tmp_path):
    text = "#include <of_no_package/at_all.h>\n#include <stdlib.h>\n" + IN_C
    (tmp_path / "mine.c").write_text(text)
    kept = calls.with_headers(text, tmp_path / "mine.c", False)
    assert kept.splitlines()[:2] == ["", "#include <stdlib.h>"]


def test_the_number_of_threads_is_no_scalar(tmp_path):
    text = OF_ROWS.replace("int colsB)", "int colsB, int num_threads)")
    assert adopted(tmp_path, text, "mine.c")["call"].endswith("colsB=n, num_threads=threads)")


def test_an_unknown_instruction_names_options(tmp_path):
    source = tmp_path / "mine.c"
    source.write_text(WITH_AVX)
    with pytest.raises(DeviceError, match=r"add options: \[-mavx2, -mfma\]"):
        modules.compile_module(source, {}, ())


def test_usual_values_stand_for_template_parameters_that_no_launch_gives():
    names = ("BM", "BN", "BK", "WM", "WN", "WNITER", "TM", "TN", "NUM_THREADS")
    source = Source(f"template <{', '.join(f'const int {each}' for each in names)}> __global__ void f(float *x) {{}}")
    assert "<128, 128, 16, 64, 64, 4, 8, 4, 128>" in launches.templates(source, source.functions["f"])


def test_any_encoding_is_read(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_bytes("// größer\r\n".encode("latin-1") + ADD.encode())
    assert adoption.decoded(path).startswith("// größer\n")
    path.write_bytes(b"\xef\xbb\xbf" + ADD.encode())
    assert adoption.decoded(path) == ADD


@pytest.mark.parametrize(
    ("text", "call", "kernels"),
    [
        (BY_ROWS, "mine(C, B, A, m, k, n)", "matmul"),
        (TILED, "tiled<16, hpcmm_real>(A, B, C, n)", "matmul"),
        (OF_STRUCTURES, "product(Matrix{k, m, (float *)A}, Matrix{n, k, (float *)B}, Matrix{n, m, C})", "matmul"),
        (ATOMIC, "add_all(x, n, result)", "reduction"),
        (OF_CONSTANTS, "add(N=n, a=x, b=y, c=z)", "vector_add"),
        (ADD.replace("int i", "int32_t i").replace("int n", "uint64_t n"), "add(z, x, y, n)", "vector_add"),
    ],
)
def test_the_compiler_of_the_gpu_takes_the_adapted_source(tmp_path, text, call, kernels):
    head = {"call": call, "adds": kernels == "reduction"}
    adapted = calls.adapted(tmp_path / "mine.cu", text, head, kernels, "cuda").read_text()
    options = ["-DREAL=float", "-DACCUMULATOR=float", "-DBLOCK=256", "--gpu-architecture=sm_90"]
    works, log, code = nvrtc().compile(adapted, options, "CUBIN")
    assert works, log
    assert kernels.encode() in code and (b"start_reduction" in code) == head["adds"]


def test_host_code_is_left_out(tmp_path):
    source = Source(BY_ROWS)
    kept = calls.needed(tmp_path / "mine.cu", source, source.functions["mine"], True)
    assert "main" not in kept and "iostream" not in kept and "#define WIDTH 8" in kept
    assert kept.count("\n") == BY_ROWS.count("\n")
