"""A kernel that never ends: the job ends, names the kernel and what it did, and records both."""

import re
import subprocess
import sys
import time

import pytest

from hpcmm import backends
from hpcmm.bench.journal import so_far
from hpcmm.experiment import plan

ON_CPU = """#include <unistd.h>
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C,
            int ldc)
{
    while (m > 8)
        usleep(1000);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            REAL sum = 0;
            for (int p = 0; p < k; ++p)
                sum += A[i * lda + p] * B[p * ldb + j];
            C[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * C[i * ldc + j]);
        }
}
"""
ON_GPU = """extern "C" __global__ void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B,
                                  int ldb, REAL beta, REAL *C, int ldc)
{
    for (long long start = clock64(); m > 8 && clock64() - start < 60000000000;)
        ;  // half a minute: no process stays if the watchdog fails
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || column >= n)
        return;
    REAL sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[row * lda + p] * B[p * ldb + column];
    C[row * ldc + column] = alpha * sum + (beta == 0 ? 0 : beta * C[row * ldc + column]);
}
"""
LAUNCH = r" \(matmul, grid \(1, 1\), block \(16, 16\), 0 bytes of dynamic shared memory\)"


@pytest.mark.parametrize(
    ("device", "name", "text", "launch"),
    [("cpu", "loops.c", ON_CPU, ""), pytest.param("cuda", "loops.cu", ON_GPU, LAUNCH, marks=pytest.mark.gpu)],
    ids=["cpu", "cuda"],
)
def test_a_kernel_that_never_ends_is_named_and_ends_the_job(forgotten, tmp_path, device, name, text, launch):
    (tmp_path / name).write_text(text)
    sweep = {
        "operation": "matmul",
        "variants": [str(tmp_path / name)],
        "sizes": [8, 16],
        "dtypes": ["float32"],
        "ranks": [1],
    }
    config = {"backends": device, "measuring": {"visits": 1, "max_seconds": 0.01}, "sweeps": {"one": sweep}}
    planned = plan.make(config, backends.this_machine())
    planned.write(tmp_path / "plan.json")
    (batch,) = planned.batches
    output = tmp_path / "raw" / f"{batch.name}.h5"
    command = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.measure", "--results", tmp_path]
    command += ["--batch", batch.name, "--patience", "8"]  # enough for a point on a busy machine
    began = time.monotonic()
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=600)
    assert done.returncode != 0 and time.monotonic() - began < 300
    hung = rf"first call of {re.escape(name)}{launch}"
    assert re.search(
        rf"hpcmm: error: rank 0 of 1 .* stuck in one/.*: {re.escape(name)} 16x16x16 .*: {hung} for", done.stderr
    )
    finished, failed, _ = so_far(output, batch)
    assert set(finished["measurements"]["variant"]) == {name} and set(finished["measurements"]["m"]) == {8}
    assert [bool(re.fullmatch(rf"{hung} did not end within \d+ s", reason)) for reason in failed.values()] == [True]
