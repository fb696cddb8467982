"""Kernels of several launches, which the host code of the file makes, on the host and on a GPU."""

import json

import pytest
from test_kernels_compiled import nvrtc

from hpcmm.bench import adoption
from hpcmm.experiment import own_kernels
from hpcmm.operations import OPERATIONS

SUM = """// hpcmm:
//   operation: sum
//   host: total(n=n)
//   dtypes: [float32]

__global__ void parts(const float *x, float *sums, int n)
{
    extern __shared__ float s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step)
            s[threadIdx.x] += s[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = s[0];
}

__global__ void last(const float *sums, float *result, int count)
{
    __shared__ float s[128];
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += 128)
        sum += sums[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step)
            s[threadIdx.x] += s[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *result = s[0];
}
"""
TRANSPOSED = """// hpcmm:
//   operation: matmul
//   host: main(M=m, N=n, K=k)
//   dtypes: [float32]
//   scalars: none

__global__ void transpose(const float *in, float *out, int rows, int cols)
{
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < rows && c < cols)
        out[c * rows + r] = in[r * cols + c];
}

__global__ void product(const float *A, const float *Bt, float *C, int m, int n, int k)
{
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r >= m || c >= n)
        return;
    float sum = 0;
    for (int i = 0; i < k; ++i)
        sum += A[r * k + i] * Bt[c * k + i];
    C[r * n + c] = sum;
}
"""
HOSTS = {
    "sum.cu": """
float total(const float *h_x, int n)
{
    const int threads = 256;
    int blocks = (n + threads - 1) / threads;
    float *d_x, *sums, *d_out, out;
    cudaMalloc(&d_x, n * sizeof(float));
    CHECK(cudaMalloc((void **)&sums, blocks * sizeof(float)));
    cudaMalloc(&d_out, sizeof(float));
    parts<<<blocks, threads, threads * sizeof(float)>>>(d_x, sums, n);
    last<<<1, 128>>>(sums, d_out, blocks);
    cudaMemcpy(&out, d_out, sizeof(float), cudaMemcpyDeviceToHost);
    return out;
}
""",
    "transposed.cu": """
int main()
{
    int M = 512, N = 256, K = 128;
    thrust::device_vector<float> A(M * K), B(K * N), C(M * N);
    thrust::device_vector<float> Bt(N * K);
    dim3 threads(16, 16), blocks(ceil(N / 16.0), (K + threads.y - 1) / threads.y);
    transpose<<<blocks, threads>>>(thrust::raw_pointer_cast(B.data()), thrust::raw_pointer_cast(&Bt[0]), K, N);
    dim3 grid((N + 15) / 16, (M + 15) / 16);
    product<<<grid, threads>>>(thrust::raw_pointer_cast(A.data()), thrust::raw_pointer_cast(&Bt[0]),
                               thrust::raw_pointer_cast(C.data()), M, N, K);
}
""",
}
KERNELS = {"sum.cu": SUM + HOSTS["sum.cu"], "transposed.cu": TRANSPOSED + HOSTS["transposed.cu"]}
CHANGES = {
    "sum.cu": [
        *("i < n ?", "i < n - 1 ?"),
        *("(n + threads - 1) / threads", "n / threads"),
        *("blocks * sizeof(float)", "blocks / 2 * sizeof(float)"),
    ],
    "transposed.cu": [
        *("c * rows + r", "c * rows + r / 2 * 2"),
        *("Bt[c * k + i]", "Bt[i * k + c]"),
        *("Bt(N * K)", "Bt(N * K - 1)"),
    ],
}
FOUND = {
    "sum.cu": "sum.cu: taken as the launches of total(n=n): parts, then last\n",
    "transposed.cu": "transposed.cu: taken as the launches of main(M=m, N=n, K=k): transpose, then product\n",
}


IN_PLACE = (
    ("const float *sums, float *result", "float *sums"),
    ("*result = s[0]", "sums[0] = s[0]"),
    ("(sums, d_out, blocks)", "(sums, blocks)"),
)


@pytest.mark.parametrize("mistake", [("", ""), ("sums[0] = s[0]", "sums[1] = s[0]")], ids=["right", "wrong"])
def test_a_result_may_be_in_the_workspace(tmp_path, command, forgotten, mistake):
    text = with_host("sum.cu")
    for change in (*IN_PLACE, mistake):
        assert change[0] in text
        text = text.replace(*change) if change[0] else text
    (tmp_path / "sum.cu").write_text(text)
    done = command("bench", "sum.cu", "--on-host", folder=tmp_path)
    assert "sum.cu: PASS" in done.stdout  # of the first kernel alone, if the last one is wrong
    assert (": parts, then last" in done.stdout) == (not mistake[0]), done


BY_DEVICE = (  # a number of blocks that depends on the GPU, and an array that another function allocates
    (
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    s[threadIdx.x] = i < n ? x[i] : 0;",
        """float own = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        own += x[i];
    s[threadIdx.x] = own;""",
    ),
    ("int blocks = (n + threads - 1) / threads;", "int blocks = properties.multiProcessorCount * 8;"),
    ("    CHECK(cudaMalloc((void **)&sums, blocks * sizeof(float)));\n", ""),
)


def test_a_number_of_blocks_may_depend_on_the_gpu(tmp_path):
    text = with_host("sum.cu")
    for change in BY_DEVICE:
        assert change[0] in text
        text = text.replace(*change)
    (tmp_path / "sum.cu").write_text(text)
    head = adoption.adopt(tmp_path / "sum.cu").head
    assert head == {"operation": "sum", "dtypes": ["float32"], "host": "total(n=n)"}


def with_host(name: str) -> str:
    return KERNELS[name].partition("\n\n")[2]


@pytest.mark.parametrize("name", KERNELS)
def test_launches_of_the_host_code_are_found(tmp_path, command, forgotten, name):
    (tmp_path / name).write_text(with_host(name))
    done = command("bench", name, "--on-host", folder=tmp_path)
    assert FOUND[name] in done.stdout and f"{name}: PASS" in done.stdout, done


def test_a_last_pass_that_is_too_short_limits_the_length(tmp_path):
    (tmp_path / "sum.cu").write_text(with_host("sum.cu").replace("i += 128", "i += 4096"))
    assert adoption.adopt(tmp_path / "sum.cu").head["most"] == {"n": 2**14}


def test_a_chain_without_bounds_checks_takes_multiples(tmp_path):
    text = with_host("sum.cu").replace("s[threadIdx.x] = i < n ? x[i] : 0", "s[threadIdx.x] = x[i]")
    (tmp_path / "sum.cu").write_text(text)
    assert adoption.adopt(tmp_path / "sum.cu").head["multiples"] == {"n": 256}


WRONG_CHAINS = {
    "length": ("d_out, blocks)", "d_out, n)", "each alone is right, but not with these sizes", "FAIL 2 float32"),
    "grid": ("int blocks = (n + threads - 1) / threads", "int blocks = n / 512", "but not with these sizes", "FAIL 1 "),
    "kernel": (
        "__syncthreads();\n    for (int step = 128",
        "for (int step = 128",
        "parts alone is wrong, too",
        "FAIL 1 float32",
    ),
    "its own length": ("sum += sums[i]", "sum = sums[i]", "parts, then last", "FAIL 65536 float32"),
}


@pytest.mark.parametrize("mistake", WRONG_CHAINS)
def test_a_wrong_chain_of_launches_fails_as_a_whole(tmp_path, command, forgotten, mistake):
    before, after, *said = WRONG_CHAINS[mistake]
    text = with_host("sum.cu")
    assert before in text
    text = text.replace(before, after)
    if mistake == "its own length":
        text = text.replace("const float *h_x, int n)\n{", "const float *h_x)\n{\n    const int n = 1 << 16;")
    (tmp_path / "sum.cu").write_text(text)
    done = command("bench", "sum.cu", "--on-host", folder=tmp_path)
    assert all(each in done.stdout for each in said) and done.returncode == 1, done


HALVES = """
__global__ void halve(float *x, int n, int kept)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kept && i + kept < n)
        x[i] += x[i + kept];
}

float total(const float *h_x, int n)
{
    float *x, sum;
    cudaMalloc(&x, n * sizeof(float));
    cudaMemcpy(x, h_x, n * sizeof(float), cudaMemcpyHostToDevice);
    int left = n;
    while (left > 1) {
        int kept = (left + 1) / 2;
        halve<<<(kept + 255) / 256, 256>>>(x, left, kept);
        left = kept;
    }
    cudaMemcpy(&sum, x, sizeof(float), cudaMemcpyDeviceToHost);
    return sum;
}
"""
PAIRS = """
#include <algorithm>
#define BLOCK 128
#define CHECK(call) do { cudaError_t status = (call); if (status != cudaSuccess) exit(1); } while (0)

template <int STEPS>
__global__ void pairs(const float *in, float *out, int n, int step)
{
    __shared__ float s[BLOCK];
    float sum = 0;
    for (int i = 0; i < STEPS; ++i) {
        int place = (blockIdx.x * STEPS + i) * BLOCK + threadIdx.x;
        sum += place < n ? in[place * step] : 0;
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < BLOCK; ++i)
            sum += s[i];
        out[blockIdx.x * step] = sum;
    }
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

static void reduced(const float *in, float *out, int count, dim3 block = BLOCK)
{
    switch (count > 1000) {
    case 1:
        pairs<4><<<ceil_div(count, 4 * BLOCK), block>>>(in, out, count, 1);
        break;
    default:
        pairs<1><<<ceil_div(count, BLOCK), block>>>(in, out, count, 1);
    }
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? atoi(argv[1]) : 1 << 20;
    float *d[2], total;
    for (int i = 0; i < 2; ++i)
        CHECK(cudaMalloc((void **)&d[i], n * sizeof(float)));
    CHECK(cudaMemcpy(d[0], host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    int from = 0;
    for (int count = n; count > 1; from = 1 - from) {
        reduced(d[from], d[1 - from], count);
        count = ceil_div(count, count > 1000 ? 4 * BLOCK : BLOCK);
    }
    CHECK(cudaMemcpy(&total, d[from], sizeof(float), cudaMemcpyDeviceToHost));
}
"""
LAST_BLOCK = """
__device__ float low(float a, float b) { return a < b ? a : b; }

__global__ void start(float *result) { *result = 3e38f; }

__global__ void lowest(const float *x, float *result, unsigned *lock, long n)
{
    float own = 3e38f;
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        own = low(own, x[i]);
    __shared__ float s[64];
    s[threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 64; ++i)
            own = low(own, s[i]);
        while (atomicCAS(lock, 0, 1) != 0);
        __threadfence();
        *result = low(*(volatile float *)result, own);
        __threadfence();
        atomicExch(lock, 0);
    }
}

void minimum_of(const float *x, float *d_result, long n)
{
    unsigned *lock;
    cudaMalloc(&lock, sizeof(unsigned));
    cudaMemset(lock, 0, sizeof(unsigned));
    start<<<1, 1>>>(d_result);
    lowest<<<16, 64>>>(x, d_result, lock, n);
}
"""
LOOPS = {  # with a mistake
    "halves": (HALVES, ("(left + 1) / 2", "left / 2")),
    "pairs": (PAIRS, ("from = 1 - from)", "from = from)")),
    "lock": (LAST_BLOCK, ("(lock, 0, sizeof", "(lock, 1, sizeof")),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_launches_are_followed(tmp_path, command, forgotten, name):
    text, mistake = LOOPS[name]
    (tmp_path / f"{name}.cu").write_text(text)
    done = command("bench", f"{name}.cu", "--on-host", folder=tmp_path)
    assert "taken as the launches of" in done.stdout and f"{name}.cu: PASS" in done.stdout, done
    assert mistake[0] in text
    (tmp_path / f"{name}.cu").write_text(text.replace(*mistake))
    done = command("bench", f"{name}.cu", "--on-host", folder=tmp_path)
    assert done.returncode and "PASS" not in done.stdout, done


LOOP = (
    SUM.partition("\n\n")[2].partition("__global__ void last")[0]
    + """
float total(float *d_x, int n)
{
    float *sums, result;
    cudaMalloc(&sums, (n + 255) / 256 * sizeof(float));
    for (int left = n; left > 1; left = (left + 255) / 256) {
        parts<<<(left + 255) / 256, 256, 1024>>>(d_x, sums, left);
        std::swap(d_x, sums);
    }
    cudaMemcpy(&result, d_x, sizeof(float), cudaMemcpyDeviceToHost);
    return result;
}
"""
)


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_a_wrong_loop_around_a_right_kernel_is_named(tmp_path, wrong):
    (tmp_path / "sum.cu").write_text(LOOP.replace("sums, left)", "sums, left - 1)" if wrong else "sums, left)"))
    found = adoption.adopt(tmp_path / "sum.cu")
    assert found.head["call"] == "parts(x, sums=result, n)"
    assert found.notes == ("its launches in total gave a wrong result in trials",) * wrong


@pytest.mark.parametrize("name", KERNELS)
def test_launches_of_a_head_run_in_order(tmp_path, command, forgotten, name):
    (tmp_path / name).write_text(KERNELS[name])
    (kernel,) = json.loads(command("bench", name, "--on-host", "--json", folder=tmp_path).stdout)["kernels"]
    assert kernel["passed"], kernel


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("at", [0, 2, 4], ids=["first", "second", "short"])
def test_a_mistake_in_any_launch_is_found(tmp_path, command, forgotten, name, at):
    before, after = CHANGES[name][at : at + 2]
    assert before in KERNELS[name]
    (tmp_path / name).write_text(KERNELS[name].replace(before, after))
    (kernel,) = json.loads(command("bench", name, "--on-host", "--json", folder=tmp_path).stdout)["kernels"]
    assert not kernel["passed"]


@pytest.mark.parametrize("name", LOOPS)
def test_the_compiler_of_the_gpu_takes_the_launches_of_host_code(tmp_path, forgotten, name):
    (tmp_path / f"{name}.cu").write_text(LOOPS[name][0])
    found = adoption.adopt(tmp_path / f"{name}.cu")
    found.write(tmp_path / "copy.cu")
    works, log, code = compiled(own_kernels.read(tmp_path / "copy.cu"))
    assert works, log
    assert all(each.encode() in code for each in ("reduction", "hpcmm_result", "hpcmm_fill"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_launches_are_timed_on_a_gpu(tmp_path, command, forgotten, name):
    (tmp_path / f"{name}.cu").write_text(LOOPS[name][0])
    found = json.loads(command("bench", f"{name}.cu", "--sizes", "5000", "--json", folder=tmp_path).stdout)
    assert [each["passed"] for each in found["kernels"]] == [True], found
    assert found["points"]


def compiled(kernel: own_kernels.OwnKernel) -> tuple[bool, str, bytes]:
    options = ["-DREAL=float", "-DACCUMULATOR=float", "--gpu-architecture=sm_90"]
    return nvrtc().compile(kernel.variant.adapted.read_text(), options, "CUBIN")


@pytest.mark.gpu
@pytest.mark.parametrize("stated", [True, False], ids=["head", "host code"])
@pytest.mark.parametrize("name", KERNELS)
def test_launches_in_order_are_timed_on_a_gpu(tmp_path, command, forgotten, name, stated):
    (tmp_path / name).write_text(KERNELS[name] if stated else with_host(name))
    found = json.loads(command("bench", name, "--sizes", "1000", "--json", folder=tmp_path).stdout)
    assert [each["passed"] for each in found["kernels"]] == [True], found
    assert found["points"]


@pytest.mark.parametrize("name", KERNELS)
def test_the_compiler_of_the_gpu_takes_all_launches(tmp_path, forgotten, name):
    (tmp_path / name).write_text(KERNELS[name])
    kernel = own_kernels.read(tmp_path / name)
    works, log, code = compiled(kernel)
    assert works, log
    operation = OPERATIONS[kernel.operations[0]]
    assert all(each.encode() in code for each in ("hpcmm_launch_0", operation.kernels))


BY_COLUMNS = (  # with all that a call of one launch may have
    TRANSPOSED.replace("main(M=m, N=n, K=k)\n", "multiply(M=m, N=n, K=k, a=alpha, b=beta)\n//   layout: columns\n")
    .replace("  dtypes: [float32]\n//   scalars: none", "  constants: {EDGE: 8}")
    .replace("float *", "REAL *")
    .replace("float sum", "ACCUMULATOR sum")
    .replace("int k)", "int k, ACCUMULATOR alpha, ACCUMULATOR beta)")
    .replace("* 16", "* EDGE")
    .replace("r * cols + c", "c * rows + r")
    .replace("c * rows + r]", "r * cols + c]", 1)
    .replace("A[r * k + i]", "A[i * m + r]")
    .replace("Bt[c * k + i]", "Bt[i * n + c]")
    .replace("C[r * n + c] = sum", "C[c * m + r] = alpha * sum + (beta != 0 ? beta * C[c * m + r] : 0)")
    + """
void multiply(const REAL *A, const REAL *B, REAL *C, int M, int N, int K, float a, float b)
{
    REAL *Bt;
    cudaMalloc(&Bt, N * K * sizeof(REAL));
    dim3 block(EDGE, EDGE);
    transpose<<<dim3((N + EDGE - 1) / EDGE, (K + EDGE - 1) / EDGE), block>>>(B, Bt, K, N);
    product<<<dim3((N + EDGE - 1) / EDGE, (M + EDGE - 1) / EDGE), block>>>(A, Bt, C, M, N, K, a, b);
}
"""
)
STARTED = SUM.replace("(n=n)", "(n=n, start=identity)").replace("int n)", "int n, float start)", 1).replace(
    ": 0;", ": start;"
) + HOSTS["sum.cu"].replace("int n)", "int n, float start)").replace("sums, n)", "sums, n, start)")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (BY_COLUMNS, ("layout: columns", "layout: rows")),
        (BY_COLUMNS, ("b=beta", "b=alpha")),
        (BY_COLUMNS, ("EDGE: 8", "TILES: 8")),
        (STARTED, ("start=identity", "start=1")),
    ],
    ids=["layout", "scalars", "constants", "identity"],
)
def test_a_head_says_what_the_host_code_takes(tmp_path, command, forgotten, text, mistake):
    assert mistake[0] in text
    for name, each in (("right", text), ("wrong", text.replace(*mistake))):
        (tmp_path / f"{name}.cu").write_text(each)
        done = command("bench", f"{name}.cu", "--on-host", folder=tmp_path)
        assert ("PASS" in done.stdout) == (name == "right") == (done.returncode == 0), done


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("(n=n)", "(n=m)"), "m; allowed: a function of the file with launches, such as .* over n, identity"),
        (("host: total", "host: lost"), "no function lost with launches"),
        (("//   dtypes", "//   block: 64\n//   dtypes"), "block: not a key of sum on the GPU; allowed: host"),
        (("//   dtypes", "//   call: last(x, result, n)\n//   dtypes"), "call: not allowed together with host"),
        (("host: total(n=n)", "launches: []"), "launches: no key; write a function .* host: total"),
    ],
)
def test_what_a_head_gets_wrong_is_named(tmp_path, change, message):
    assert change[0] in KERNELS["sum.cu"]
    (tmp_path / "sum.cu").write_text(KERNELS["sum.cu"].replace(*change))
    with pytest.raises(own_kernels.KernelFileError, match=message):
        own_kernels.read(tmp_path / "sum.cu")
