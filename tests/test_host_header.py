"""The emulation on the host: it runs what a GPU runs, and reports faults in every order of the threads."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from hpcmm.backends.emulated.launch import ORDERS, KernelError, on_device, poison
from hpcmm.model.launch import Launch

pytestmark = pytest.mark.slow  # tests of the emulation itself

BODIES = yaml.safe_load(Path(__file__).with_name("bodies.yaml").read_text())


def run_body(build, body: str, order: str, blocks: int = 1, cluster: int = 0) -> tuple[list[int], str]:
    """Run the body of a kernel; return its result and the messages of the run."""
    of_cluster = f"__cluster_dims__({cluster}, 1, 1) " if cluster else ""
    text = f'#include "ptx.cuh"\nextern "C" __global__ void {of_cluster}planted(int n, const int *in, int *out)\n{{\n'
    text += f"    const int t = threadIdx.x, lane = t % warpSize, rank = blockIdx.x;\n    {body}\n}}\n"
    given, out = on_device(np.arange(64, dtype=np.int32)), poison((64 * (cluster or 1),), "int32")
    kernel = build(text, "planted")
    kernel(Launch((cluster or blocks,), (64,), (np.int32(64), given, out)), order, dynamic_bytes=256)
    return out.tolist(), kernel.note


@pytest.mark.parametrize("name", BODIES["working"])
def test_the_host_header_supports_these_features(build, name):
    case = BODIES["working"][name]
    cluster = case.get("cluster", 0)
    expected = [eval(str(case["out"]), {"i": i}) for i in range(64 * (cluster or 1))]
    assert [run_body(build, case["body"], order, cluster=cluster)[0] for order in ORDERS] == [expected] * 3


@pytest.mark.parametrize("name", BODIES["broken"])
def test_the_host_header_reports_faults(build, name):
    case = BODIES["broken"][name]
    for order in ORDERS[: 1 if name.startswith("no end") else None]:  # what has no end takes long
        with pytest.raises(KernelError, match=f"{order} order: .*({case['said']})"):
            run_body(build, case["body"], order, 2, case.get("cluster", 0))
        assert run_body(build, "out[t] = t;", order)[0] == list(range(64)), "the next launch starts afresh"


@pytest.mark.parametrize("name", BODIES["noted"])
def test_the_host_header_notes_what_is_undefined(build, name):
    case = BODIES["noted"][name]
    for order in ORDERS:
        assert re.search(case["said"], run_body(build, case["body"], order)[1])
        assert run_body(build, "out[t] = t;", order) == (list(range(64)), "")


def test_blocks_that_wait_for_one_that_cannot_start_hang(build):
    """As many blocks run together as a cluster may have: 16. In ascending order the last one starts last."""
    body = "if (blockIdx.x == gridDim.x - 1) st_relaxed_gpu_global((unsigned *)out + t, 7u);"
    body += "while (ld_relaxed_gpu_global((unsigned *)out + t) != 7u);"
    for order in ORDERS:
        assert run_body(build, body, order, blocks=16)[0] == [7] * 64
    assert run_body(build, body, "descending", blocks=17)[0] == [7] * 64
    with pytest.raises(KernelError, match="waits for ever for a store by another block in line 5"):
        run_body(build, body, "ascending", blocks=17)


@pytest.mark.parametrize("count", [2, 40])
def test_races_are_found_in_the_last_of_many_arrays(build, count):
    names = [f"x{i}" for i in range(count)]
    parameters = ", ".join(f"int *{name}" for name in names)
    text = f'extern "C" __global__ void many({parameters})\n{{\n    *{names[-1]} = *{names[-1]} + *x0;\n}}\n'
    arrays = [on_device(np.zeros(4, np.int32)) for _ in names]
    with pytest.raises(KernelError, match="race in global memory"):
        build(text, "many")(Launch((2,), (1,), tuple(arrays)), "ascending")
