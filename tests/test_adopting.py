"""Kernels of any signature: their arguments, launch and contract are found, and wrong kernels still fail."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_kernels_compiled import nvrtc

from hpcmm.bench import adoption, on_host
from hpcmm.bench.adoption import NotAdopted, adopt, launches, search
from hpcmm.experiment import calls, own_kernels, plan
from hpcmm.experiment.config import read_config
from hpcmm.experiment.functions import Source
from hpcmm.kernels import modules
from hpcmm.model import DeviceError
from hpcmm.system.reader import ConfigError

EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"
# Kernels as their authors wrote them
ADOPTED = Path(__file__).with_name("adopted")
STYLES = SimpleNamespace(**{path.stem: path.read_text() for path in ADOPTED.iterdir()})


def adopted(folder, text: str, name: str = "mine.cu", kernel: str = "") -> dict:
    path = folder / name
    path.write_text(text)
    return adopt(path, kernel).head


HEADS = {  # by the name of the file in the folder ``adopted``
    "by_rows": {
        "call": "mine(out=C, B, A, rows=m, inner=k, cols=n)",
        "grid": ["ceil(m / 8)", "ceil(n / 8)"],
        "scalars": "none",
    },
    "tiled": {"call": "tiled<16, hpcmm_real>(A, B, C, width=n)", "square": True, "multiples": dict.fromkeys("mnk", 16)},
    "scaled": {"call": "scaled(M=m, N=n, K=k, alpha, a=A, b=B, beta, c=C)", "reads": True},
    "sum": {"operation": "sum", "dtypes": ["int32"], "block": 128, "per_thread": 2},
    "atomic": {"operation": "sum", "call": "add_all(x, n, sum=result)", "one_launch": True, "adds": True},
    "add": {"operation": "vector_add", "call": "add(c=z, a=x, b=y, n)"},
    "by_columns": {"layout": "columns", "adds": True, "scalars": "none", "dtypes": ["float64"]},
    "of_structures": {"multiples": {"m": 16, "n": 16, "k": 1}, "scalars": "none"},
    "of_constants": {"operation": "vector_add", "call": "add(N=n, a=x, b=y, c=z)", "block": 1},
    "of_arrays": {"call": "multiply(N=n, A=A, B=B, C=C)", "square": True},
    "of_macro": {"call": "product(N=n, A, B, C)", "square": True},
    "of_rows": {"call": "multiply(A, B, C, rowsA=m, colsA=k, colsB=n)", "scalars": "none"},
    "in_c": {"operation": "sum", "call": "sum(values=x, count=n)"},
    "of_strides": {
        "call": "gemm(m, n, k, alpha, A, incRowA=lda, incColA=1, B, incRowB=ldb, incColB=1, beta, C, "
        "incRowC=ldc, incColC=1)"
    },
    "in_blocks": {"dtypes": ["int32"], "adds": True, "square": True, "multiples": dict.fromkeys("mnk", 32)},
    "for_hip": {"operation": "vector_add", "block": 192},
    "of_samples": {"operation": "sum", "block": 256, "call": "reduce<hpcmm_real, 256, false>(in=x, out=result, n)"},
    "coarse": {"operation": "sum", "block": 1024, "per_thread": 4, "multiples": {"n": 4096}},
}


@pytest.mark.parametrize("style", HEADS)
def test_arguments_launch_and_contract_are_found(tmp_path, style):
    (path,) = ADOPTED.glob(f"{style}.*")
    name = {"by_rows": "mine.cuh", "tiled": "mine.hip", "in_c": "mine.cpp"}.get(style, f"mine{path.suffix}")
    head = adopted(tmp_path, path.read_text(), name)
    assert {key: head.get(key) for key in HEADS[style]} == HEADS[style]


@pytest.fixture
def benched(command, forgotten, monkeypatch, request):
    """Run ``hpcmm bench`` on a file; the search for overflows of an index takes as long as all else."""
    if "index of" not in request.node.name:
        monkeypatch.setattr(on_host, "overflow", lambda kernel, task: "")
    return lambda path, *options: command("bench", path.name, *(options or ("--on-host",)), folder=path.parent)


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        (STYLES.by_rows, "mine.cuh", "mine.cu: PASS at 42 points to 64x64x64 (C = A B, packed rows)"),
        (STYLES.tiled, "mine.cu", "multiples of 16, square, C = A B, packed rows)"),
        (STYLES.atomic, "mine.cu", "mine.cu: PASS at 27 points to "),
        # the last row and column are not written: no contract excuses a kernel that compares with its sizes
        (STYLES.by_rows.replace("i < rows &&", "i < rows - 1 &&"), "mine.cu", "mine.cu: FAIL"),
        (STYLES.sum.replace("h; h /= 2", "h > 1; h /= 2"), "mine.cu", "mine.cu: FAIL 2 int32: ascending order: "),
    ],
)
def test_the_verdict_says_what_was_verified(tmp_path, benched, text, name, line):
    (tmp_path / name).write_text(text)
    done = benched(tmp_path / name)
    assert line in done.stdout + done.stderr
    assert done.returncode == ("FAIL" in line)


def test_a_copy_with_its_head_needs_no_trial(tmp_path, benched, monkeypatch):
    (tmp_path / "mine.cuh").write_text(STYLES.by_rows)
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
def test_a_kernel_of_the_operations_signature_needs_no_c_linkage(tmp_path, benched, before, after):
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
    path.write_text(before + body + after)
    taken = "mine.cu: taken as reduction(x, n, partial=result, identity)"
    assert adoption.copy_of(path, "")[1].startswith(taken)
    path.write_text("// hpcmm:\n//   operation: sum\n//   block: 64\n\n" + before + body + after)
    assert adoption.copy_of(path, "")[1].startswith(taken) and "mine.cu: PASS" in benched(path).stdout


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
        ("int n;", "has no __global__ function: it is no kernel file"),
        ("int main() { return 0; }", "its only function is main: move the loops into one"),
        ("__global__ void f(float *x, float *y) {}", "f writes to none of its arrays: x, y"),
        (
            re.sub(r"double \*\*([ABC])", r"double \1[][10]", STYLES.of_rows),
            "rows of the arrays of multiply have a fixed length, 10: make it a parameter",
        ),
        (
            STYLES.copy.replace("duplicate", "blur").replace("from[i]", "from[i] + from[n - 1 - i]"),
            "blur gave neither a copy nor a sum, minimum or maximum in trials",
        ),
        ("__global__ void f(float *x, int n) { x[threadIdx.x] += x[n]; }", "f writes to x, its only array"),
        (
            "__global__ void f(float *x, float y[3][3], float *z, char *c) { z[0] = 1; }",
            "none of its kernels has the arguments of",
        ),
        (
            STYLES.add + "int main() { dim3 block(64, 32); add<<<1, block>>>(a, b, c, n); }",
            "the launch of add has blocks of 64 x 32 threads; allowed: 1024 at most",
        ),
        (STYLES.copy + STYLES.add, "has several kernels: duplicate, add; choose one by --kernel NAME"),
        (STYLES.add.replace("float", "short"), "none of its kernels has the arguments of"),
        (
            STYLES.sum.replace("int *", "half *"),
            "total is for float16; sum has int32, float32, float64: change its type",
        ),
    ],
)
def test_a_message_says_what_is_missing(tmp_path, text, message):
    with pytest.raises(NotAdopted, match=message):
        adopted(tmp_path, text, "mine.cu" if "double" not in text else "mine.c")


def test_the_search_stops_at_a_kernel_without_an_end(tmp_path, benched, monkeypatch):
    late = pytest.raises(NotAdopted, match="multiply, in a trial with small arrays: it took longer than 1 s")
    with monkeypatch.context() as patched, late:
        patched.setattr(search, "SECONDS", 1)
        adopted(tmp_path, STYLES.of_rows.replace("for (int i", "while (rowsA) {}\n    for (int i"), "mine.c")
    (tmp_path / "mine.cu").write_text(STYLES.add.replace("if (i < n)", "while (true);\nif (i < n)"))
    assert "an empty loop without an end in line 5 by thread (0, 0, 0)" in benched(tmp_path / "mine.cu").stdout


def test_one_of_several_kernels_is_chosen_by_name(tmp_path):
    assert adopted(tmp_path, STYLES.copy + STYLES.add, kernel="duplicate")["operation"] == "copy"
    with pytest.raises(NotAdopted, match="has no function 'none'; its kernels are: move, duplicate, add"):
        adopted(tmp_path, STYLES.copy + STYLES.add, kernel="none")


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

OF_TF32 = (
    "#define TYPE float\n#define OUT float\n#define KIND wmma::precision::tf32\n#define DEPTH 8\n"
    + STYLES.of_tensor_units
)
OF_HALF = "#include <cuda_fp16.h>\n" + STYLES.of_tensor_units.replace("KIND", "half").replace("DEPTH", "16")
# Its launch has two libraries: one starts the result
ATOMIC_OF_TEMPLATE = (
    STYLES.sum.replace("__global__", "template <int B> __global__").replace("128", "B").replace("256", "2 * B")
)
INSTANCES = """
template <int B, bool EXACT> __global__ void total(const float *x, float *out, int n)
{
    __shared__ float s[B];
    int i = blockIdx.x * B + threadIdx.x;
    s[threadIdx.x] = EXACT || i < n ? x[i] : 0;
    for (int h = B / 2; h > 0; h /= 2) {
        __syncthreads();
        if (threadIdx.x < h) s[threadIdx.x] += s[threadIdx.x + h];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void total(const float *x, float *out, int n)
{
    if (n % 64 == 0) total<64, true><<<n / 64, 64>>>(x, out, n);
    else total<64, false><<<n / 64 + 1, 64>>>(x, out, n);
}
"""
OF_LAST_BLOCK = """
__device__ unsigned done = 0;
__global__ void total(const float *x, float *out, int n)
{
    __shared__ float s[64];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += 64 * gridDim.x) sum += x[i];
    s[threadIdx.x] = sum;
    for (int h = 32; h > 0; h /= 2) {
        __syncthreads();
        if (threadIdx.x < h) s[threadIdx.x] += s[threadIdx.x + h];
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&done, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        for (int i = 1; i < gridDim.x; ++i) s[0] += out[blockIdx.x ? i - (i <= blockIdx.x) : i];
        out[0] = s[0];
        done = 0;
    }
}
void sum(const float *x, float *out, int n) { total<<<8, 64>>>(x, out, n); }
"""
OF_REFERENCES = """
typedef float *Matrix;
void product(Matrix A, const float *B, float *&C, int m, int &n, const int &k)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            C[i * n + j] = 0;
            for (int p = 0; p < k; ++p) C[i * n + j] += A[i * k + p] * B[p * n + j];
        }
}
"""
TILES_OF_6 = """
void product(const float *A, const float *B, float *C, int m, int n, int k)
{
    for (int i = 0; i < m; i += 16)
        for (int j = 0; j < n; j += 6)
            for (int y = i; y < i + 16; ++y)
                for (int x = j; x < j + 6; ++x) {
                    float sum = 0;
                    for (int p = 0; p < k; ++p) sum += A[y * k + p] * B[p * n + x];
                    C[y * n + x] = sum;
                }
}
"""
ATOMIC_OF_TEMPLATE = ATOMIC_OF_TEMPLATE.replace("h = 64", "h = B / 2").replace(
    "out[blockIdx.x] = s[0]", "atomicAdd(out, s[0])"
)
ATOMIC_OF_TEMPLATE += "int main() { dim3 threads(WIDTH); total<WIDTH><<<8, threads>>>(a, b, 9); }\n#define WIDTH 64\n"
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
    return re.sub("|".join(parts), lambda x: parts[x[0]], STYLES.by_mma)


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
ROUNDED = STYLES.by_rows.replace("A[i * inner + p] * B", "__half2float(__float2half(A[i * inner + p])) * B")
FROM_OUTSIDE = (
    STYLES.by_rows.replace("#define WIDTH 8\n", "").replace("blockDim.x", "TILE_X").replace("blockDim.y", "TILE_Y")
)


MINIMUM = """__global__ void least(const float *in, float *out, int n)
{{
    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    float own = {0};
    if (i < n) own = min(own, in[i]);
    if (i + 128 < n) own = min(own, in[i + 128]);
    s[t] = own;
    for (int h = 64; h; h /= 2) {{ __syncthreads(); if (t < h) s[t] = min(s[t], s[t + h]); }}
    if (t == 0) out[blockIdx.x] = s[0];
}}
"""
ROWS_OF_CONSTANT = """#define N 16
__global__ void add(float A[N][N], const float B[N][N], float C[N][N])
{{
    int i = {0}threadIdx.x, j = {1}threadIdx.y;
    {2} C[i][j] = A[i][j] + B[i][j];
}}
"""
OF_POINTERS = re.sub(r"\b([ABC])\.", r"\1->", re.sub("Matrix ([ABC])", r"Matrix *\1", STYLES.of_structures))
OF_POINTERS = OF_POINTERS.replace("(Matrix, Matrix, Matrix)", "(Matrix *, Matrix *, Matrix *)")
OWN = "int main() {{ const int {0}; tiled<16><<<dim3({1}, {1}), dim3(16, 16)>>>(a, b, c, N); }}"
OWN_OF_FLAGS = "int main() {{ int n = {0}; multiply<<<dim3({1}, {1}), dim3(16, 16)>>>(a, b, c, 0, n, false, 0); }}"
ONE_BLOCK = "int main() {{ const int n = {0}; add<<<(n + 255) / 256, 256>>>(c, a, b, n); }}"
TREE = """__global__ void total(float *in, float *out, int n)
{
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s && i + s < n) in[i] += in[i + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = in[i];
}
int main() { total<<<n / 128, 128>>>(in, out, n); }
"""
COLUMNS = """__global__ void gemm(int m, int n, int k, float *A, int lda, float *B, int ldb, float *C, int ldc)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < m && j < n) {
        float sum = 0;
        for (int p = 0; p < k; ++p) sum += A[i + p * lda] * B[p + j * ldb];
        C[i + j * ldc] = sum;
    }
}
int main() { gemm<<<dim3((m + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(m, n, k, a, m, b, k, c, m); }
"""
MATRIX_KERNEL = """__global__ void {}(float *A, float *B, float *C, int N)
{{
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < N && j < N) {{ float s = 0; {} }}
}}
"""
MATRICES = (
    MATRIX_KERNEL.format("add", "C[i * N + j] = A[i * N + j] + B[i * N + j];")
    + MATRIX_KERNEL.format("subtract", "C[i * N + j] = A[i * N + j] - B[i * N + j];")
    + MATRIX_KERNEL.format(
        "multiply", "for (int k = 0; k < N; ++k) s += A[i * N + k] * B[k * N + j]; C[i * N + j] = s;"
    )
)
OF_COLUMNS = """#define AT(i, j, ld) ((j) * (ld) + (i))
__global__ void product(int m, int n, int k, const float *A, const float *B, float *C)
{
    int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    if (i < m && j < n) {
        float sum = 0;
        for (int p = 0; p < k; ++p)
            sum += A[AT(i, p, m)] * B[AT(p, j, k)];
        C[AT(i, j, m)] = sum;
    }
}
"""
VERDICTS = {  # the text, and what the verdict says
    "no length": (STYLES.no_length, "mine.cu: PASS at 15 points to 4352 (multiples of 256), exact"),
    "first value": (STYLES.initial, "taken as fold(x, y=result, n, init=identity)", "mine.cu: PASS"),
    "no check": (STYLES.exact_add, "block 96", "(multiples of 96), exact"),
    "headers": (STYLES.headers + STYLES.add, "mine.cu: PASS at 27 points"),
    # one block of more warps than the kernel means is right at one tile, but two of them overlap
    "four warps": (
        re.sub(
            r"int i = .*;\n.*return;",
            "int w = threadIdx.x / 32, i = blockIdx.y * 32 + w / 2 * 16, j = blockIdx.x * 32 + w % 2 * 16;",
            OF_HALF.replace("TYPE", "half").replace("OUT", "half"),
        ).partition("int main")[0],
        "block [128]",
        "PASS",
        "(multiples of 32 x 32 x 16, C = A B",
    ),
    "TF32": (OF_TF32, "PASS at 42 points", "(multiples of 16 x 16 x 8, C = A B, packed rows, TF32)"),
    "float16": (
        OF_HALF.replace("TYPE", "half").replace("OUT", "half"),
        "block [32]",
        "(multiples of 16 x 16 x 16, C = A B, packed rows, narrow sums)",
    ),
    "sums of float16 to float32": (  # C of float32 has no roundings of float16
        STYLES.lost_term.replace("half *C", "float *C")
        .replace("[float16]", "[float16_to_float32]")
        .replace("//   arithmetic: narrow sums\n", "")
        .replace("K > 60", "false"),
        "mine.cu: FAIL",
    ),
    "CUB": (STYLES.sum_by_cub, "PASS at 27 points"),
    "one block and one length": (STYLES.one_block, "block 96", "PASS at 3 points to 96 (n = 96)"),
    "float4 behind a check": (STYLES.wide_add, "(multiples of 4)"),
    "few lanes in the block of the file": (
        STYLES.few_lanes,
        "block 128",
        "FAIL 1 float32",
        "but only lanes 0 to 3 take part in the shuffle",
    ),
    "shuffle without a mask": (
        STYLES.few_lanes.replace("__shfl_down_sync(~0u, ", "__shfl_down("),
        "write __shfl_down_sync(0xffffffff",
    ),
    "rounded inputs": ("#include <cuda_fp16.h>\n" + ROUNDED, "(C = A B, packed rows, FP16 inputs)"),
    "copy of integers": (STYLES.copy_of_integers, "operation or type: twice", "duplicate.cu: PASS"),
    "C twice": (
        STYLES.scaled.replace("c[e] = alpha", "c[e] += alpha")
        + "int main() { scaled<<<4, 128>>>(9, 9, 9, 2, a, b, 3, c); }",
        "FAIL",
        " float64, ",
        "C is added once more, beside beta C",
    ),
    "pipeline": (STYLES.pipelined, "(multiples of 16, square, C = A B, packed rows)"),
    "template that adds": (
        ATOMIC_OF_TEMPLATE,
        "mine.cu: taken as total<64>(in=x, out=result, size=n), block 64",
        "PASS",
    ),
    "lost term of narrow sums": (STYLES.lost_term, "mine.cu: FAIL", "the last of the k products is left out"),
    "narrow sums": (STYLES.lost_term.replace("K > 60", "false"), "mine.cu: PASS"),
    "condition of a turn": (  # which is no bounds check
        STYLES.tiled.replace(
            "        a[threadIdx.y]", "        if (s < width) __syncthreads();\n        a[threadIdx.y]"
        ),
        "PASS",
        "(multiples of 16, square, C = A B, packed rows)",
    ),
    "products of elements": (
        STYLES.add.replace("a[i] + b[i]", "a[i] * b[i]"),
        "FAIL add computes the products of elements",
    ),
    "addition of float16": (
        STYLES.add.replace("float", "half"),
        "not tested: add is for float16; vector_add has int32",
    ),
    "inline PTX": (
        STYLES.add.replace("if (i", 'asm volatile("cp.async.bulk.commit_group;"); if (i'),
        "not tested: needs a GPU: inline PTX (cp.async.bulk.commit_group) in line 5; give call, block and grid",
    ),
    "mma": (by_mma(TO_FLOAT), "PASS at 42 points", "(multiples of 16 x 8 x 16, C = A B, packed rows)"),
    "mma of float16": (by_mma(TO_HALF), "PASS", "(multiples of 16 x 8 x 16, C = A B, packed rows, narrow sums)"),
    "mma with a fragment exchanged": (by_mma(TO_FLOAT).replace("{%8, %9}, {%0", "{%9, %8}, {%0"), "mine.cu: FAIL"),
    "no wait for copies": (
        by_mma(TO_FLOAT).replace('asm volatile("cp.async.wait_group %0;" ::"n"(0));', ""),
        "FAIL",
        "read of shared memory that nothing has written",
    ),
    "length of a root": (
        STYLES.add.replace("i < n", "i < n * n"),
        "add(c=z, a=x, b=y, n=sqrt(n))",
        "PASS at 24 points to 4225 (square)",
    ),
    "one length": (  # one block and one length; the other kernel is verified at all of its own
        STYLES.sum
        + "__global__ void one(int *in, int *out)\n{\n    __shared__ int s[128];\n    unsigned t = threadIdx.x;\n"
        "    s[t] = in[t] + in[t + 128];\n    for (int h = 64; h; h /= 2) {\n"
        "        __syncthreads();\n        if (t < h) s[t] += s[t + h];\n    }\n    if (t == 0) *out = s[0];\n}\n",
        "total.cu: PASS at 27 points",
        "one.cu: PASS at 3 points to 256 (n = 256)",
    ),
    "race without a length": (  # lanes in lockstep
        STYLES.no_length.replace("__syncthreads();\n    }", "}")
        .replace("blockIdx.x *", "2 * blockIdx.x *")
        .replace("+ t];", "+ t] + in[(2 * blockIdx.x + 1) * blockDim.x + t];"),
        "mine.cu: FAIL 512 int32",
        "race in shared memory",
    ),
    "shared float16": (  # shared memory of a class
        "#include <cuda_fp16.h>\n"
        + STYLES.tiled.replace("<int BS, typename T>", "<int BS>").replace("T ", "half ")
        + "int main() { tiled<8><<<dim3(8, 8), dim3(8, 8)>>>(a, b, c, 64); }\n",
        "PASS",
        "(multiples of 8, square, C = A B, packed rows, narrow sums)",
    ),
    "dot": (STYLES.dot, "not tested: dot computes the dot product of two vectors, which is no operation here"),
    "beside a dot": (
        STYLES.add + STYLES.dot + STYLES.add.replace("add", "less").replace("+ b[i]", "- b[i]"),
        "mine.cu: not measured, of another operation or type: dot, less",
        "add.cu: PASS",
    ),
    "constants from outside": (FROM_OUTSIDE, "block [16, 16], constants TILE_X = 16, TILE_Y = 16", "mine.cu: PASS"),
    "header not found": ('#include "types.h"\nvoid f(real *a, real *b, int n) {}', "not tested: types.h not found"),
    "header of a type not found": (
        '#include "types.h"\n' + STYLES.add.replace("if (i", "if (value_of(i)"),
        "not tested: ",
        "types.h not found",
    ),
    "sum of matrices": (
        STYLES.of_matrices,
        "grid [ceil(root / 32), ceil(root / 4)], block [32, 4]",
        "PASS",
        "to 4225 (square)",
    ),
    "copy of tiles": (STYLES.of_tiles, "block [16, 4]", "PASS", "(multiples of 256, square), exact"),
    "transpose": (
        STYLES.of_tiles.replace("out[(y + j) * width + x]", "out[x * width + y + j]"),
        "computes the transpose",
    ),
    "flags": (
        STYLES.with_flags,
        "multiply(A, B, C, bias=0, n, add=0, unused=0)",
        "other operation or type: clean",
        "mine.cu: PASS",
    ),
    "several": (  # each kernel of a file has its verdict, under its name
        STYLES.add + STYLES.add.replace("add", "wrong_add").replace("+ b[i]", "- b[i]"),
        "add.cu: PASS",
        "wrong_add.cu: FAIL",
    ),
    "multiples": (  # what lies past the end enters the sum
        re.sub(r"s\[t\] = .*0\);", "if (i < size) s[t] = in[i] + in[i + 128];", STYLES.sum),
        "mine.cu: FAIL 1 int32",
        "right at multiples of 256: compare with n, or state multiples: {n: 256}",
    ),
    "tail": (STYLES.with_tail, "mine.cu: PASS at 27 points"),
    # the last elements are computed wrongly, so multiples are no contract of this file
    "wrong tail": (STYLES.with_tail.replace("c[n - 1", "c[n"), "mine.cu: FAIL", "right at multiples of 4"),
    "own multiple": (
        STYLES.tiled + OWN.format("N = 1024", "N / 16"),
        "only at multiples of 16: found by trials, as it has no check for other sizes",
        "mine.cu: PASS",
    ),
    "own grid": (
        STYLES.with_flags + OWN_OF_FLAGS.format("atoi(text)", "n / 16"),
        "grid [n / 16, n / 16], block [16, 16]; the grid is that of its own launch, which has too few blocks",
        "mine.cu: FAIL",
        "no element of C is written",
    ),
    "own grid in sizes of the block": (
        STYLES.with_flags
        + OWN_OF_FLAGS.format("atoi(text)", "n / block.x").replace("multiply<", "dim3 block(16, 16); multiply<"),
        "grid [n / 16, n / 16], block [16, 16]; the grid is that of its own launch, which has too few blocks",
        "mine.cu: FAIL",
        "no element of C is written",
    ),
    "half of the grid": (
        STYLES.with_flags + OWN_OF_FLAGS.format("atoi(text)", "(n + 31) / 32"),
        "the grid is that of its own launch, which has too few blocks",
        "mine.cu: FAIL",
        "elements of C are not written",
    ),
    "own constant grid": (STYLES.with_flags + OWN_OF_FLAGS.format("512", "n / 16"), "mine.cu: PASS"),
    "exchanged sizes": (
        STYLES.with_flags.replace("int n, bool add, int unused", "int rows, int n")
        .replace("if (i >= n || j >= n)", "if (i >= n || j >= rows)")
        .replace("if (add) C[i * n + j] += sum;\n    else ", ""),
        "mine.cu: FAIL",
        "right only if m = n = k",
    ),
    "count of each thread": (
        STYLES.add.replace("if (i < n)", "for (; i < n * gridDim.x * blockDim.x; i += gridDim.x * blockDim.x)"),
        "n=n / (gridDim.x * blockDim.x))",
        "mine.cu: PASS",
        "(multiples of 256)",
    ),
    "element type from outside": (STYLES.sum.replace("int *", "real *").replace("int s[", "real s["), "mine.cu: PASS"),
    "constant of lower case": (
        STYLES.add.replace("blockDim.x", "block_size_x"),
        "constants block_size_x = 256",
        "mine.cu: PASS",
    ),
    "misspelt constant": (
        "#define TILE_SIZE 256\n" + STYLES.add.replace("blockDim.x", "TILE_SIZ"),
        "mine.cu: FAIL",
        "TILE_SIZ",
    ),
    "another mistake than constants": (
        FROM_OUTSIDE.replace("out[", "__synchthreads();\n        out["),
        "not tested: ",
        "__synchthreads",
    ),
    "template of Python": (
        RAW_KERNEL.replace(", int N)", ")").replace("< N", "< %(N)s").replace("* N", "* %(N)s"),
        "product(N=n, A, B, C)",
        "mine.cu: PASS",
    ),
    "one block of a product": (
        STYLES.of_macro.replace("blockIdx.x * blockDim.x + ", "").replace("blockIdx.y * blockDim.y + ", ""),
        "grid [1, 1]",
        "PASS",
        "m = 16, n = 16, k = 16",
    ),
    "grid that is compared with the length": (
        STYLES.add.replace("if (i < n)", "if (gridDim.x * blockDim.x < n) return;\n    if (i < n)"),
        "mine.cu: taken as add(c=z, a=x, b=y, n), block 256\n",
        "mine.cu: PASS",
    ),
    "index of 32 bits": (STYLES.by_rows, "PASS at 42 points", "bound; an index overflows 32 bits"),
    "index of 64 bits": (STYLES.by_rows.replace("int i =", "size_t i ="), "PASS at 42 points", "bound (on the host"),
    "one block of at most its threads": (
        STYLES.add.replace("blockIdx.x * blockDim.x + ", "") + ONE_BLOCK.format(200),
        "mine.cu: PASS",
        "(n from 1 to 256)",
    ),
    "one block of more than its threads": (
        STYLES.add.replace("blockIdx.x * blockDim.x + ", "") + ONE_BLOCK.format(2000),
        "mine.cu: FAIL",
    ),
    "one thread": (
        STYLES.of_macro.replace(
            "int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;",
            "for (int i = 0; i < N; ++i) for (int j = 0; j < N; ++j) {",
        )
        .replace("if (i >= N || j >= N) return;", "")
        .replace("= sum;", "= sum; }"),
        "grid [1, 1], block [1]",
        "PASS at 24 points",
    ),
    "device function from outside": (
        STYLES.sum.replace("out[blockIdx.x] = s[0]", "out[blockIdx.x] = blockSum(s[0])"),
        "mine.cu: FAIL",
        "blockSum",
    ),
    "sum of blocks without atomics": (
        STYLES.sum.replace("out[blockIdx.x] =", "*out +="),
        "FAIL",
        "race in global memory: block 1 changes an element that block 0 wrote, without atomics, in line",
    ),
    "minimum by atomics": (
        "__global__ void least(int *in, int *out, int n)\n{\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) atomicMin(out, in[i]);\n}\n",
        "mine.cu: PASS at 27 points",
    ),
    "minimum of infinities": (MINIMUM.format("INFINITY"), "mine.cu: PASS at 27 points"),
    "minimum from zero": (MINIMUM.format("0"), "mine.cu: FAIL", "right where all elements are negative: start from"),
    "minimum of magnitudes": (
        MINIMUM.format("INFINITY")
        .replace("in[", "+in[")
        .replace("+in[i]", "fabsf(in[i])")
        .replace("+in[i + 128]", "fabsf(in[i + 128])"),
        "least computes the minimum of the absolute values",
    ),
    "copy of one block": (
        STYLES.copy.replace("duplicate", "copy_all").replace("blockIdx.x * blockDim.x + ", ""),
        "copy_all(to=y, from=x, n)",
        "FAIL",
        "right with one block only: the index lacks blockIdx.x",
    ),
    "rows of a constant length": (
        ROWS_OF_CONSTANT.format("blockIdx.x * blockDim.x + ", "blockIdx.y * blockDim.y + ", "if (i < N && j < N)"),
        "taken as add(N=sqrt(n), A=x, B=y, C=z)",
        "mine.cu: PASS at 24 points",
    ),
    "one block of a constant length": (
        ROWS_OF_CONSTANT.format("", "", ""),
        "mine.cu: PASS at 3 points to 256 (n = 256",
    ),
    "pointers to structures": (OF_POINTERS, "mine.cu: PASS"),
    "last pass by one block": (
        MINIMUM.format("INFINITY").replace("blockIdx.x * 256 + t", "t").replace("out[blockIdx.x]", "*out")
        + "int main() { least<<<1, 128>>>(in, out, blocks); }",
        "mine.cu: PASS at 15 points to 128 (n from 1 to 128)",
    ),
    "unrolled": (
        STYLES.sum.replace("for (int h = 64; h; h /= 2) { __syncthreads(); if (t < h) s[t] += s[t + h]; }", "")
        .replace(
            "if (t ==",
            "".join(f"__syncthreads(); if (t < {h}) s[t] += s[t + {h}]; " for h in (64, 32, 16, 8))
            + "__syncthreads(); if (t < 4) s[t] += s[t + 4]; __syncthreads(); if (t ==",
            1,
        )
        .replace("= s[0]", "= s[0] + s[1] + s[2] + s[3]"),
        "mine.cu: taken as total(in=x, out=result, size=n)",
        "mine.cu: PASS",
    ),
    "namespaces in one line": (f"namespace cuda::mine {{\n{STYLES.copy}}}", "mine.cu: PASS"),
    "grid of branches": (
        STYLES.by_rows.partition("#include")[0] + "int main() { int x; if (rows % WIDTH) x = rows / WIDTH + 1;\n"
        "else x = rows / WIDTH; mine<<<dim3(x, cols / WIDTH + 1), dim3(WIDTH, WIDTH)>>>(a, b, c, rows, inner, cols); }",
        "grid [ceil(m / 8), ceil(n / 8)]",
        "mine.cu: PASS",
    ),
    "an operation by number": (
        STYLES.sum.replace("unsigned int size", "unsigned int size, int op").replace(
            "if (t == 0)", "if (op == 0 && t == 0)"
        ),
        "taken as total(in=x, out=result, size=n, op=0)",
        "mine.cu: PASS",
    ),
    "one variable for all sizes": (
        STYLES.by_rows.partition("#include")[0].replace("= sum;", "+= sum;")
        + "int main() { mine<<<dim3(n / WIDTH, n / WIDTH), dim3(WIDTH, WIDTH)>>>(a, b, c, n, n, n); }",
        "grid [m / 8, n / 8]",
        "right at multiples of 8 x 8 x 1: round the grid up",
    ),
    "sum in an integer": (
        STYLES.by_rows.replace("float sum", "int sum"),
        "mine.cu: FAIL",
        "its type is an integer and drops fractions",
    ),
    "two results": (
        STYLES.sum.replace("if (t == 0) out", "if (t == 0) in[i] = out"),
        "mine.cu: PASS",
        "overwrites x, which is copied before each run, untimed",
    ),
    "in place": (
        STYLES.add.replace("float *c, const float *a, const float *b", "float *c, const float *a").replace(
            "a[i] + b[i]", "a[i] + c[i]"
        ),
        "taken as add(c=y, a=x, n)",
        "in place: the result replaces y",
    ),
    "in place by pointers": (
        STYLES.add.replace("const float *a, const float *b", "const float *a").replace(
            "c[i] = a[i] + b[i]", "*(c + i) = *(a + i) + *(c + i)"
        ),
        "in place: the result replaces y",
    ),
    "in place by a pointer of its own": (
        STYLES.add.replace("const float *a, const float *b", "const float *a").replace(
            "c[i] = a[i] + b[i];", "{ float *p = c + i; *p += a[i]; }"
        ),
        "not tested: add computes y = x + y in place: state call and overwrites: y in a head",
    ),
    "in place, wrong": (
        STYLES.add.replace("float *c, const float *a, const float *b", "float *c, const float *a").replace(
            "a[i] + b[i]", "a[i] + 2 * c[i]"
        ),
        "mine.cu: FAIL",
    ),
    "a function of two elements in place": (
        STYLES.add.replace("float *c, const float *a, const float *b", "float *c, const float *a")
        .replace("a[i] + b[i]", "a[i] > 0 ? c[i] : 0")
        .replace("void add", "void backward"),
        "not tested: backward gave neither",
    ),
    "times a number": (
        STYLES.add.replace("const float *b", "const float *b, float f").replace("a[i] + b[i]", "f * a[i] + b[i]"),
        "taken as add(c=z, a=x, b=y, f=1, n)",
        "f = 1 only",
        "mine.cu: PASS",
    ),
    "a product among others": (
        MATRICES,
        "taken as multiply(",
        "multiply.cu: PASS",
        "of another operation or type: subtract, add; --kernel NAME",
    ),
    "an atomic reference": (
        "#include <cuda/atomic>\n__global__ void total(const float *x, float *result, int n)\n{\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    cuda::atomic_ref<float, cuda::thread_scope_device> sum(*result);\n"
        "    if (i < n) sum.fetch_add(x[i], cuda::memory_order_relaxed);\n}\n",
        "mine.cu: PASS",
    ),
    "a call that a missing header declares": (
        '#include "mine.h"\n' + STYLES.tiled.replace("C[", "note(0); C[", 1),
        "not tested: ",
        "mine.h not found, which may declare it",
    ),
    "columns on a GPU": (COLUMNS, "grid [ceil(n / 16), ceil(m / 16)]", "mine.cu: PASS at 42 points"),
    "columns on a GPU, the last row": (
        COLUMNS.replace("i < m &&", "i < m - (m > 4) &&"),
        "rows from 32 on are not written: too few blocks along m",
    ),
    "columns on a GPU, wrong": (
        COLUMNS.replace("p < k", "p < k - (k > 1)"),
        "mine.cu: FAIL",
        "the last of the k products is left out",
    ),
    "a block of any length": (
        STYLES.add.replace(
            "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)",
            "for (int i = threadIdx.x; i < n; i += blockDim.x)",
        )
        + "int main() { add<<<1, 64>>>(c, a, b, n); }",
        "block 64",
        "mine.cu: PASS",
    ),
    "four elements a thread in place": (
        STYLES.add.replace("float *c, const float *a, const float *b", "float *c, const float *a")
        .replace("threadIdx.x;", "threadIdx.x; i *= 4; for (int end = i + 4; i < end; ++i)")
        .replace("c[i] = a[i] + b[i]", "c[i] += a[i]"),
        "PASS",
        "in place",
    ),
    "line after a constant": (
        "#define N 1024\n" + STYLES.add.replace(", int n", "").replace("i < n", "i <= N"),
        "out of bounds, at byte",
        "in line 6 by thread",
    ),
    "a tree in the input": (TREE, "taken as total(in=x, out=result, n), block 128", "PASS", "overwrites x"),
    "a tree of one block": (
        TREE.replace(" float *out,", "").replace("    if (t == 0) out[blockIdx.x] = in[i];\n", ""),
        "not tested: each block of total leaves its result in its own part of in",
    ),
    "half of a tree": (
        STYLES.sum.replace("h = 64", "h = 32"),
        "no trial was right: a wrong result of sum",
        "FAIL",
        "the sum of 128 ones is 64",
    ),
    "instances, and a launcher of the same name": (
        INSTANCES,
        "total<64, 0>(x, out=result, n), block 64",
        "mine.cu: PASS",
    ),
    "result of the last block": (
        OF_LAST_BLOCK,
        "total(x, out=parts, n) on [ceil(n / 64)] x 64",
        "mine.cu: PASS",
    ),
    "size of the block as a parameter": (
        STYLES.sum.replace("unsigned int size)", "int blockSize, unsigned int size)").replace(
            "* 256", "* 2 * blockSize"
        ),
        "total(in=x, out=result, blockSize=blockDim.x, size=n), block 128",
        "mine.cu: PASS",
    ),
    "blocks that take many elements, and a start that is not ordered": (
        STYLES.sum.replace(
            "s[t] = (i", "if (i == 0) *out = 0;\n    s[t] = 0;\n    for (int j = 0; j < 256; ++j) s[t] += (i"
        )
        .replace("i < size", "i + j * 256 < size")
        .replace("in[i]", "in[i + j * 256]")
        .replace("i + 128 <", "i + j * 256 + 128 <")
        .replace("in[i + 128", "in[i + j * 256 + 128")
        .replace("* 256 + t;", "* 65536 + t;")
        .replace("out[blockIdx.x] = s[0]", "atomicAdd(out, s[0])"),
        "block 128",
        "FAIL",
        "descending order",
    ),
    "words in a comment": (
        STYLES.add.replace("    if (", "    // threadIdx.y, gridDim.x, float4, s += a[i] * b[i]\n    if ("),
        "add(c=z, a=x, b=y, n), block 256",
        "mine.cu: PASS",
    ),
    "one product of a batch": (
        STYLES.by_rows.partition("#include")[0].replace("(float", "(int batch, float", 1),
        "batch=1",
        "PASS at 42 points",
    ),
    "constant that the host sets": (
        "__constant__ float scale;\n" + STYLES.sum.replace("int *", "float *").replace("= s[0]", "= s[0] * scale"),
        "not tested: total reads scale, which host code sets",
    ),
    "elements of other blocks": (
        STYLES.sum.replace("s[t] = (i", "s[t] = 0;\n    for (; i < size; i += 128) s[t] += (i")
        .replace(" + (i + 128 < size ? in[i + 128] : 0)", "")
        .replace("* 256", "* 128"),
        "right with one block only: blocks take the same elements; step by gridDim.x * blockDim.x",
    ),
    "by columns, without the last column": (
        OF_COLUMNS.replace("j < n)", "j < n - 1)"),
        "columns from 32 on are not written: too few blocks along n",
    ),
    "by columns, but for B": (OF_COLUMNS.replace("AT(p, j, k)", "AT(j, p, n)"), "product computes A B': "),
    "a result for each warp": (
        "__global__ void warp_sums(const float *x, float *sums, int n)\n{\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    float v = i < n ? x[i] : 0;\n"
        "    for (int d = 16; d > 0; d /= 2)\n        v += __shfl_down_sync(0xffffffff, v, d);\n"
        "    if (i % 32 == 0 && i < n)\n        sums[i / 32] = v;\n}\n"
        "int main() { warp_sums<<<(n + 255) / 256, 256>>>(x, sums, n); }\n",
        "block 32",
        "mine.cu: PASS",
    ),
    "a result for each block, of a warp alone": (
        "__global__ void sums(const float *x, float *sums, int n)\n{\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    float v = i < n ? x[i] : 0;\n"
        "    for (int d = 16; d > 0; d /= 2)\n        v += __shfl_down_sync(0xffffffff, v, d);\n"
        "    if (threadIdx.x == 0)\n        sums[blockIdx.x] = v;\n}\n"
        "int main() { sums<<<(n + 255) / 256, 256>>>(x, y, n); }\n",
        "mine.cu: FAIL",
    ),
    "integers that are equal by chance": (
        STYLES.checked_store.replace("float", "int")
        .replace("TILE 16", "TILE 32")
        .replace("if (row < M && col < N)", ""),
        "PASS",
        "(multiples of 32 x 32 x 32,",
    ),
    "an instruction of AMD": (
        STYLES.by_rows.replace("int i =", "int lane = __lane_id(), i ="),
        "not tested: needs an AMD GPU: CUDA has no __lane_id",
    ),
    "a store alone is checked": (STYLES.checked_store, "PASS", "(multiples of 16 x 16 x 16,"),
    "a store alone is checked, tiles rounded up": (
        STYLES.checked_store.replace("K / TILE", "(K + TILE - 1) / TILE"),
        "FAIL",
        "or state multiples: {m: 16, n: 16, k: 16}",
    ),
    "namespaces": (
        '#include "utils.h"\nusing namespace utils;\nnamespace mine { namespace {\n'
        + re.sub(r"__shared__ (\w+ \w+)\[[^]]*\]", r"extern __shared__ \1[]", STYLES.sum)
        + "}}",
        "PASS",
    ),
    "arrays are filled before": (
        """__global__ void fill(float *a, float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] = i;
}
"""
        + STYLES.add,
        "taken as add(c=z, a=x, b=y, n)",
        "PASS",
    ),
    "sums of columns": (
        """__global__ void sum_columns(const float *x, float *sums, int n)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int i = 0; j < n && i < n; ++i) sum += x[i * n + j];
    if (j < n) sums[j] = sum;
}
""",
        "not tested: sum_columns reads a matrix, as n is a factor in its index",
    ),
    "rows of 128": (
        """__global__ void add(const float *x, const float *y, float *z)
{
    int i = (blockIdx.y * blockDim.y + threadIdx.y) * 128 + blockIdx.x * blockDim.x + threadIdx.x;
    z[i] = x[i] + y[i];
}
""",
        "PASS at 3 points to 16384 (n = 16384, square)",
    ),
    "multiples of a vector": (
        STYLES.add.replace("add(", "scale(").replace("a[i] + b[i]", "a[i] * b[0]"),
        "scale computes the multiples of elements",
    ),
    "one block": (
        STYLES.sum.replace("out[blockIdx.x]", "out[0]"),
        "right with one block only: each block writes its own result, result[blockIdx.x]",
    ),
}


@pytest.mark.parametrize(
    "style", [pytest.param(each, marks=pytest.mark.slow if i % 8 else ()) for i, each in enumerate(VERDICTS)]
)
def test_a_file_of_each_style_has_a_verdict_or_says_what_is_missing(tmp_path, benched, style):
    text, *said = VERDICTS[style]
    path = tmp_path / ("mine.py" if "of Python" in style else "mine.c" if style == "header not found" else "mine.cu")
    path.write_text(text)
    done = benched(path)
    assert [each for each in said if each not in done.stdout + done.stderr] == [], done


OMP = STYLES.of_rows.replace("for (int k = 0;", "for (k = 0;").replace(
    "    for (int i", "    int k;\n    #pragma omp parallel for num_threads(4)\n    for (int i"
)
OF_TENS = """void product(int n, const double *A, const double *B, double *C)
{
    for (int i = 0; i < n; i += 10)
        for (int j = 0; j < n; ++j)
            for (int e = i; e < i + 10; ++e) {
                C[e * n + j] = 0;
                for (int k = 0; k < n; ++k) C[e * n + j] += A[e * n + k] * B[k * n + j];
            }
}
"""
OF_BLOCKS = """void product(int n, int block_size, const float *A, const float *B, float *C)
{
    for (int i = 0; i < n; i += block_size)
        for (int e = i; e < END; ++e)
            for (int j = 0; j < n; ++j) {
                C[e * n + j] = 0;
                for (int k = 0; k < n; ++k) C[e * n + j] += A[e * n + k] * B[k * n + j];
            }
}
"""
OF_16 = {"call": "product(n, block_size=16, A, B, C)"}
THREADS = OF_BLOCKS.replace("block_size,", "numThreads,").replace(
    "int i = 0; i < n; i += block_size", "int i = 0; i < 1; ++i"
)
MEAN = """
template <typename T> double mean(std::vector<T> const &x) { return sum(x) / x.size(); }
"""
MAKING = """#include <stdlib.h>
float *product(const float *A, const float *B, int m, int n, int k)
{
    float *C = (float *)malloc(m * n * sizeof(float));
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            C[i * n + j] = 0;
            for (int e = 0; e < k; ++e) C[i * n + j] += A[i * k + e] * B[e * n + j];
        }
    return C;
}
"""
NEW_SUM = """#include <stdlib.h>
double *add(double *a, double *b, int n)
{
    double *c = calloc(n, sizeof *c);
    for (int i = 0; i < n; ++i) c[i] = a[i] + b[i];
    return c;
}
"""
MAKING_ROWS = (
    STYLES.of_rows.replace("void", "double **")
    .replace(", double **C", "")
    .replace(
        "{\n",
        "{\n    double **C = new double *[rowsA];\n    for (int i = 0; i < rowsA; ++i) C[i] = new double[colsB];\n",
        1,
    )
)
MAKING_ROWS = MAKING_ROWS.rstrip().removesuffix("}") + "    return C;\n}\n"
HALVED = """#include <stdlib.h>
float *halved(const float *x, int n)
{
    float *y = malloc(n * sizeof *y);
    for (int i = 0; i < n; ++i) y[i] = x[i] / 2;
    return y;
}
"""
IN_C_SUM = """float total(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i];
    return sum;
}
"""
COPY_WAYS = """void copy_kernel(int *a, int *b, int count, int direction)
{
    for (int i = 0; i < count; ++i)
        if (direction == 0) b[i] = a[i]; else a[i] = b[i];
}
"""
ADDING = STYLES.of_rows.replace("C[i][j] = 0;", "")
OF_VECTORS = "#include <vector>\nusing namespace std;\n" + STYLES.of_rows.replace(
    "double **", "vector<vector<double>> &"
)
RETURNED = (
    OF_VECTORS.replace("void", "using Matrix = vector<vector<double>>;\nMatrix", 1)
    .replace("vector<vector<double>> &C, int rowsA, int colsA, int colsB)\n{", "int rowsA)\n{ Matrix C(rowsA, A[0]);")
    .replace("colsA", "rowsA")
    .replace("colsB", "rowsA")
    .replace("        }\n}", "        }\n    return C;\n}")
)
THREADED = (
    "#include <thread>\n"
    + OF_VECTORS
    + """
void product(vector<vector<double>> &A, vector<vector<double>> &B, vector<vector<double>> &C)
{
    thread one(multiply, ref(A), ref(B), ref(C), A.size(), B.size(), B[0].size());
    one.join();
}
"""
)
OF_ROWS = "typedef struct { int rows, columns; double **data; } Matrix;\n" + re.sub(
    r"([ABC])\[", r"\1->data[", STYLES.of_rows.replace("double **", "Matrix *")
)
OF_ROWS = OF_ROWS.replace(", int rowsA, int colsA, int colsB", "").replace("colsB", "B->columns")
OF_ROWS = OF_ROWS.replace("rowsA", "A->rows").replace("colsA", "A->columns")
SUM_OF_VECTOR = """#include <vector>
template <typename T> T sum(std::vector<T> const &x) { T s = 0; for (T each : x) s += each; return s; }
"""


@pytest.mark.parametrize(
    ("text", "name", "keys", "right"),
    [
        (STYLES.of_rows.replace("double **A, double **B", "const double **A, const double **B"), "mine.cc", {}, True),
        (OMP, "mine.c", {}, True),  # its race is for the search
        (STYLES.by_columns, "mine.C", {"layout": "columns"}, True),
        (STYLES.by_columns.replace("p < k", "p < k - 1"), "mine.C", {"layout": "columns"}, False),
        (OF_TENS, "mine.c", {"multiples": dict.fromkeys("mnk", 10)}, False),
        (TILES_OF_6, "mine.c", {"multiples": {"m": 16, "n": 6, "k": 1}}, False),
        (OF_REFERENCES, "mine.cpp", {"call": "product(A, B, C, m, n, k)"}, True),
        (STYLES.of_rows.replace("A[i][k]", "A[k][i]").replace("B[k][j]", "B[i][j]"), "mine.c", {}, False),
        (ADDING.replace("k < colsA", "k < colsA - 1"), "mine.c", {"adds": True}, False),
        (OF_VECTORS, "mine.cpp", {"call": "multiply(A, B, C, rowsA=m, colsA=k, colsB=n)"}, True),
        (OF_VECTORS.replace("k < colsA", "k < colsA - 1"), "mine.cpp", {"scalars": "none"}, False),
        (RETURNED, "mine.cpp", {"call": "multiply(A, B, rowsA=n)", "square": True}, True),
        (SUM_OF_VECTOR, "mine.cpp", {"operation": "sum", "call": "sum<hpcmm_real>(x)"}, True),
        (SUM_OF_VECTOR + MEAN, "mine.cpp", {"operation": "sum", "call": "sum<hpcmm_real>(x)"}, True),
        (MAKING, "mine.c", {"call": "product(A, B, m, n, k)", "scalars": "none"}, True),
        (MAKING.replace("e < k", "e < k - 1"), "mine.c", {"call": "product(A, B, m, n, k)"}, False),
        (NEW_SUM, "mine.c", {"call": "add(a=x, b=y, n)"}, True),
        (NEW_SUM.replace("i < n", "i < n - 1"), "mine.c", {"call": "add(a=x, b=y, n)"}, False),
        (MAKING_ROWS, "mine.cpp", {"call": "multiply(A, B, rowsA=m, colsA=k, colsB=n)"}, True),
        (HALVED + IN_C_SUM, "mine.c", {"call": "total(x, n)"}, True),
        (COPY_WAYS, "mine.c", {"call": "copy_kernel(a=x, b=y, count=n, direction=0)", "overwrites": None}, True),
        (COPY_WAYS.replace("i < count", "i < count - 1"), "mine.c", {"overwrites": None}, False),
        (OF_BLOCKS.replace("END", "(i + block_size < n ? i + block_size : n)"), "mine.c", OF_16, True),
        (THREADS.replace("END", "n"), "mine.c", {"call": "product(n, numThreads=threads, A, B, C)"}, True),
        (OF_BLOCKS.replace("END", "i + block_size"), "mine.c", OF_16 | {"multiples": dict.fromkeys("mnk", 16)}, False),
        (THREADED, "mine.cpp", {"call": "product(A, B, C)"}, True),
        (OF_ROWS, "mine.c", {"dtypes": ["float64"], "scalars": "none"}, True),
        (OF_TENS.replace("double", "f64").replace("int n", "u64 n"), "mine.c", {"dtypes": ["float64"]}, False),
    ],
    ids=(
        *("constant rows", "race", "C of C++", "wrong by columns", "multiples of 10", "tiles", "references"),
        "wrong",
        "wrong and adds",
        *(
            "vectors",
            "wrong with vectors",
            "vector returned",
            "sum of a vector",
            "sum in a mean",
            "new array",
            "wrong new array",
            "new vector",
            "wrong new vector",
            "new rows",
            "sum beside a new array",
            "copy either way",
            "wrong copy either way",
            "blocks",
            "a number of threads",
            "whole blocks",
            "thread",
            "structures of rows",
            "short names of types",
        ),
    ),
)
def test_a_function_of_the_cpu_is_adopted_or_judged_by_its_names(tmp_path, text, name, keys, right):
    (tmp_path / name).write_text(text)
    found = adopt(tmp_path / name)
    assert {key: found.head.get(key) for key in keys} == keys
    assert (found.notes == ()) == right, found


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text(), reason="this CPU has no AVX2")
def test_a_function_with_avx_gets_its_option_and_its_multiples(tmp_path):
    head = adopted(tmp_path, STYLES.with_avx, "mine.c")
    assert (head["options"], head["multiples"]) == (["-march=native"], {"m": 1, "n": 8, "k": 1})
    head = adopted(tmp_path, STYLES.of_globals, "mine.c")
    assert (head["call"], head["multiples"]) == ("multiply(N=n, A=A, B=B, C=C)", dict.fromkeys("mnk", 4))


def test_a_function_of_a_program_is_the_product_and_its_races_are_searched(tmp_path, benched):
    check = "double checksum(const double *c, int n) { double s = 0; for (int i = 0; i < n; i++) s += c[i]; return s; }"
    (tmp_path / "mine.cpp").write_text(
        "#include <vector>\n"
        + check
        + STYLES.of_rows.replace("double **", "double *")
        .replace("C[i][j]", "C[i * colsB + j]")
        .replace("A[i][k] * B[k][j]", "A[i * colsA + k] * B[k * colsB + j]")
    )
    printed = benched(tmp_path / "mine.cpp", "--sizes", "8").stdout
    assert "taken as multiply(A, B, C, rowsA=m, colsA=k, colsB=n)" in printed
    assert "mine.c: PASS" in printed and "not searched for races" not in printed


def test_headers_that_this_machine_lacks_are_left_out(tmp_path):
    text = "#include <of_no_package/at_all.h>\n#include <stdlib.h>\n" + STYLES.in_c
    (tmp_path / "mine.c").write_text(text)
    kept = calls.with_headers(text, tmp_path / "mine.c", False)
    assert kept.splitlines()[:2] == ["", "#include <stdlib.h>"]


def test_the_number_of_threads_is_no_scalar(tmp_path):
    text = STYLES.of_rows.replace("int colsB)", "int colsB, int num_threads)")
    assert adopted(tmp_path, text, "mine.c")["call"].endswith("colsB=n, num_threads=threads)")


def test_an_unknown_instruction_names_options(tmp_path):
    source = tmp_path / "mine.c"
    source.write_text(STYLES.with_avx)
    with pytest.raises(DeviceError, match=r"add options: \[-mavx2, -mfma\]"):
        modules.compile_module(source, {}, ())


def test_usual_values_stand_for_template_parameters_that_no_launch_gives():
    names = ("BM", "BN", "BK", "WM", "WN", "WNITER", "TM", "TN", "NUM_THREADS")
    source = Source(f"template <{', '.join(f'const int {each}' for each in names)}> __global__ void f(float *x) {{}}")
    assert "<128, 128, 16, 64, 64, 4, 8, 4, 128>" in launches.templates(source, source.functions["f"])


def test_any_encoding_is_read(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_bytes("// größer\r\n".encode("latin-1") + STYLES.add.encode())
    assert adoption.decoded(path).startswith("// größer\n")
    path.write_bytes(b"\xef\xbb\xbf" + STYLES.add.encode())
    assert adoption.decoded(path) == STYLES.add


@pytest.mark.parametrize(
    ("text", "call", "kernels"),
    [
        (STYLES.by_rows, "mine(C, B, A, m, k, n)", "matmul"),
        (STYLES.tiled, "tiled<16, hpcmm_real>(A, B, C, n)", "matmul"),
        (
            STYLES.of_structures,
            "product(Matrix{k, m, (float *)A}, Matrix{n, k, (float *)B}, Matrix{n, m, C})",
            "matmul",
        ),
        (STYLES.atomic, "add_all(x, n, result)", "reduction"),
        (
            OF_POINTERS,
            "product(A=Matrix{k, m, (float *)A}, B=Matrix{n, k, (float *)B}, C=Matrix{n, m, (float *)C})",
            "matmul",
        ),
        (ROWS_OF_CONSTANT.format("", "", ""), "add(N=sqrt(n), A=x, B=y, C=z)", "vector_add"),
        (STYLES.of_constants, "add(N=n, a=x, b=y, c=z)", "vector_add"),
        (STYLES.add.replace("int i", "int32_t i").replace("int n", "uint64_t n"), "add(z, x, y, n)", "vector_add"),
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
    source = Source(STYLES.by_rows)
    kept = calls.needed(tmp_path / "mine.cu", source, [calls.Call(source.functions["mine"], "", [], [])], True)
    assert "main" not in kept and "iostream" not in kept and "#define WIDTH 8" in kept
    assert kept.count("\n") == STYLES.by_rows.count("\n")


def test_what_a_kernel_prints_is_not_among_the_results(tmp_path, benched):
    (tmp_path / "mine.cu").write_text(STYLES.add.replace("if (i < n)", 'printf("%d\\n", i);\n    if (i < n)'))
    done = benched(tmp_path / "mine.cu", "--on-host", "--json")
    assert json.loads(done.stdout)["kernels"][0]["passed"], done
