"""A kernel that never ends: the job ends, names the kernel and what it did, and records both."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcmm import backends
from hpcmm.bench.journal import so_far
from hpcmm.experiment import plan

FOLDER = Path(__file__).with_name("kernels")
LAUNCH = r" \(matmul, grid \(1, 1\), block \(16, 16\), 0 bytes of dynamic shared memory\)"


@pytest.mark.parametrize(
    ("device", "name", "launch"),
    [("cpu", "endless.c", ""), pytest.param("cuda", "endless.cu", LAUNCH, marks=pytest.mark.gpu)],
    ids=["cpu", "cuda"],
)
def test_a_kernel_that_never_ends_is_named_and_ends_the_job(forgotten, tmp_path, device, name, launch):
    sweep = {"operation": "matmul", "variants": [str(FOLDER / name)], "sizes": [8, 16], "dtypes": ["float32"]}
    config = {"backends": device, "measuring": {"visits": 1, "max_seconds": 0.01}, "sweeps": {"one": sweep}}
    planned = plan.make(config, backends.this_machine())
    planned.write(tmp_path / "plan.json")
    (batch,) = planned.batches
    output = tmp_path / "raw" / f"{batch.name}.h5"
    command = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.measure", "--results", tmp_path]
    command += ["--batch", batch.name, "--patience", "8"]  # enough for a point on a busy machine
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=600)
    assert done.returncode != 0
    hung = rf"first call of {re.escape(name)}{launch}"
    assert re.search(
        rf"hpcmm: error: rank 0 of 1 .* stuck in one/.*: {re.escape(name)} 16x16x16 .*: {hung} for", done.stderr
    )
    finished, failed, _ = so_far(output, batch)
    assert set(finished["measurements"]["variant"]) == {name} and set(finished["measurements"]["m"]) == {8}
    assert [bool(re.fullmatch(rf"{hung} did not end within \d+ s", reason)) for reason in failed.values()] == [True]
