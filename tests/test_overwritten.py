"""Kernels that overwrite an input get a copy of it before each run, on the host and on a GPU."""

import json
from pathlib import Path

import numpy as np
import pytest
from tasks import needs_gxx

from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.experiment import own_kernels
from hpcmm.model import Task
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS

FOLDER = Path(__file__).with_name("kernels")
KERNELS = {name: (FOLDER / name).read_text() for name in ("in_place.c", "tree.c", "blocks.cu", "in_place.cu")}


@pytest.mark.parametrize("name", [pytest.param(x, marks=needs_gxx if ".cu" in x else ()) for x in KERNELS])
@pytest.mark.parametrize("change", [("", ""), ("< n", "< n - 1")], ids=("right", "wrong"))
def test_the_copy_is_verified_and_the_line_says_so(tmp_path, command, forgotten, name, change):
    (tmp_path / name).write_text(KERNELS[name].replace(*change) if change[0] else KERNELS[name])
    done = command("bench", name, *(["--on-host"] if ".cu" in name else ["--sizes", "1000"]), "--json", folder=tmp_path)
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["passed"] == (not change[0]), kernel
    what = "in place: the result replaces y" if "place" in name else "overwrites x" if "cu" in name else "replaces x"
    assert what in kernel["contract"]
    assert "untimed" in kernel["contract"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["blocks.cu", "in_place.cu"])
def test_a_gpu_gets_a_copy_before_each_timed_run(tmp_path, command, forgotten, name):
    (tmp_path / name).write_text(KERNELS[name])
    done = command("bench", name, "--sizes", "100000", "--json", folder=tmp_path)
    found = json.loads(done.stdout)
    assert [each["passed"] for each in found["kernels"]] == [True], done
    assert found["points"], done


@pytest.mark.parametrize("name", ["in_place.c", "tree.c"])
def test_each_run_starts_from_the_inputs(tmp_path, forgotten, name):
    (tmp_path / name).write_text(KERNELS[name])
    kernel = own_kernels.read(tmp_path / name)
    task = Task(OPERATIONS[kernel.operations[0]], kernel.variant, (1000,), "float32", {})
    inputs = task.operation.draw(np.random.default_rng(1), task)
    output = task.operation.output
    arrays = {**inputs, output.name: np.zeros(task.shape_of(output), np.float32)}
    before = {each: array.copy() for each, array in inputs.items()}
    run, judge = CpuBackend(2).prepare(task, arrays), task.operation.reference(task, inputs)
    for _ in range(3):
        run.whole()
        assert judge(arrays[output.name]).passed
    assert all(np.array_equal(arrays[each], array) for each, array in before.items())
    run()  # without the copies
    run.after()
    assert not judge(arrays[output.name]).passed


def test_only_an_input_is_overwritten(tmp_path):
    (tmp_path / "mine.c").write_text(KERNELS["tree.c"].replace("overwrites: x", "overwrites: y"))
    with pytest.raises(own_kernels.KernelFileError, match="'y' is not allowed; allowed: inputs of sum: x"):
        own_kernels.read(tmp_path / "mine.c")


def test_a_kernel_on_a_copy_computes_no_part_of_an_all_reduce(tmp_path):
    (tmp_path / "tree.c").write_text(KERNELS["tree.c"])
    variant = own_kernels.read(tmp_path / "tree.c").variant
    assert ALGORITHMS["scatter"].takes(variant) and not ALGORITHMS["all_reduce"].takes(variant)
