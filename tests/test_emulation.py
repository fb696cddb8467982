"""The products that cuBLAS emulates, and cuBLAS beside variables of the shell that would change it."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from tasks import task
from test_clock import measured

from hpcmm.model.dtypes import ARITHMETICS
from hpcmm.model.measurement import Point
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.matmul_ladder import emulation_bytes

EMULATED = MATMUL.variant("cublas_emulated")


def test_it_is_shown_for_comparison_under_the_name_of_its_arithmetic():
    assert EMULATED.context and not EMULATED.baseline and MATMUL.baseline("cuda", "float64").name == "cublas"
    assert set(EMULATED.arithmetic) == set(EMULATED.dtypes) and set(EMULATED.arithmetic.values()) <= set(ARITHMETICS)


class Device:
    """A GPU whose cuBLAS emulates float64 only."""

    def __init__(self, capability):
        self.capability = capability

    def why_not_emulated(self, dtype):
        return "" if dtype == "float64" else f"no {dtype}"


def test_what_the_library_does_not_emulate_is_not_measured_with_the_reason():
    assert MATMUL.why_not_run_on(Device("90"), EMULATED, "float64") == ""
    assert MATMUL.why_not_run_on(Device("90"), EMULATED, "float32") == "no float32"
    assert MATMUL.why_not_run_on(Device("75"), EMULATED, "float64").startswith("cublas_emulated needs a GPU of compute")
    assert MATMUL.why_not_run_on(Device("90"), MATMUL.variant("cublas"), "float32") == ""


@pytest.mark.parametrize(("bits", "passed"), [(55, True), (31, False)])
def test_fixed_point_products_are_judged_by_the_bound_of_float64(bits, passed):
    """Rows of A and columns of B are rounded to so many bits after their largest element."""
    product = task(MATMUL, (24, 40, 64), "float64", variant=EMULATED)
    arrays = MATMUL.draw(np.random.default_rng(3), product)
    assert product.arithmetic.input_roundoff == 0

    def rounded(x: np.ndarray, axis: int) -> np.ndarray:
        unit = 2.0 ** (np.ceil(np.log2(abs(x).max(axis, keepdims=True))) - bits)
        return (np.rint(x / unit) * unit).astype(np.longdouble)

    a, b = rounded(arrays["A"], 1), rounded(arrays["B"], 0)
    verdict = MATMUL.reference(product, arrays)((1.5 * (a @ b) + 0.5 * arrays["C"]).astype(float))
    assert verdict.passed == passed, verdict
    native = MATMUL.reference(task(MATMUL, (24, 40, 64), "float64", variant="cublas"), arrays)
    assert verdict.bound == native(arrays["C"]).bound


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (1, 3000, 20000), (130, 1, 1)], ids=str)
def test_the_workspace_holds_all_slices_and_their_sums(shape):
    """79 bits and a sign are ten slices of 8 bits."""
    m, n, k = shape
    nbytes = emulation_bytes("float64", shape)
    assert nbytes >= 10 * (m + n) * k + min(40 * m * n, 2**32) + 2**27
    padded = [math.ceil(size / step) * step for size, step in zip(shape, (1024, 1024, 128), strict=True)]
    slices, sums = 10 * (padded[0] + padded[1]) * padded[2], 2**32 * math.ceil(k / 8192)
    assert nbytes <= 1.3 * (slices + sums + 4 * (m + n) * (k / 64 + 1) + 4 * m * n) + 2**27


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(200, 300, 100), (1, 257, 33), (1024, 1024, 1024)], ids=str)
@pytest.mark.parametrize("dtype", EMULATED.dtypes)
def test_emulated_products_pass_beside_the_baseline_cuda(gpu, dtype, shape):
    if reason := MATMUL.why_not_run_on(gpu, EMULATED, dtype):
        pytest.skip(reason)
    own, baseline = measured(gpu, Point("matmul", "cublas_emulated", shape, dtype, 1, MATMUL.scalars))
    contenders = [(each.contender, each.baseline) for each in (own, baseline)]
    assert contenders == [("cublas_emulated", False), ("cublas", True)]
    assert own.verdict.passed and baseline.verdict.passed, own.verdict
    assert own.verdict.bound == baseline.verdict.bound


@pytest.mark.gpu
def test_an_emulated_product_is_not_reported_as_native_cuda(gpu):
    if reason := MATMUL.why_not_run_on(gpu, EMULATED, "float64"):
        pytest.skip(reason)
    rng = np.random.default_rng(1)
    arrays = {name: gpu.empty((256, 256), "float64") for name in "ABC"}
    for array in arrays.values():
        gpu.copy(rng.uniform(-1, 1, (256, 256)), array)
    run = gpu.prepare(task(MATMUL, (256,) * 3, "float64", variant=EMULATED), arrays)
    run()
    gpu.synchronize()
    assert run.complaint() == ""


BITS = """
import hashlib, json, os, sys
from hpcmm.system import surroundings
if sys.argv[1] == "enter":
    surroundings.enter()
import numpy as np
from hpcmm import backends
from hpcmm.model import Task
from hpcmm.operations.matmul import MATMUL
gpu = backends.open_backend("cuda", 1, 0, True)
found = {}
for dtype in ("float32", "float64"):
    task = Task(MATMUL, MATMUL.variant("cublas"), (1024,) * 3, dtype, MATMUL.scalars)
    inputs = MATMUL.draw(np.random.default_rng(1), task)
    arrays = {name: gpu.empty(x.shape, dtype) for name, x in inputs.items()}
    for name, x in inputs.items():
        gpu.copy(x, arrays[name])
    gpu.prepare(task, arrays)()
    gpu.synchronize()
    result = np.empty_like(inputs["C"])
    gpu.copy(arrays["C"], result)
    found[dtype] = hashlib.sha256(result).hexdigest()
print(json.dumps(found))
"""
SHELL = {"CUBLAS_EMULATION_STRATEGY": "eager", "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT": "31"}
SHELL |= dict.fromkeys(("CUBLAS_EMULATE_DOUBLE_PRECISION", "CUBLAS_EMULATE_SINGLE_PRECISION"), "1")
SHELL |= {"NVIDIA_TF32_OVERRIDE": "1", "CUBLAS_WORKSPACE_CONFIG": ":16:8", "CUPY_TF32": "1"}


@pytest.mark.gpu
def test_variables_of_the_shell_do_not_change_the_bits_of_cublas_cuda(gpu):
    plain = {name: value for name, value in os.environ.items() if name not in SHELL}
    found = {}
    for how, environment in (("without", plain), ("enter", plain | SHELL), ("not", plain | SHELL)):
        command = [sys.executable, "-c", BITS, how]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found[how] = json.loads(done.stdout)
    assert found["enter"] == found["without"]
    if found["not"] == found["without"]:
        pytest.skip("the variables change nothing in this cuBLAS")
