"""Kernels of several launches, which the host code of the file makes, on the host and on a GPU."""

import json
from pathlib import Path

import pytest
from tasks import needs_gxx
from test_kernels_compiled import nvrtc

from hpcmm.bench import adoption
from hpcmm.experiment import own_kernels
from hpcmm.operations import OPERATIONS

pytestmark = needs_gxx

TEXTS = {path.stem: path.read_text() for path in Path(__file__).with_name("listed").iterdir()}
NAMES = ("sum", "transposed")
LOOPS = {  # with a mistake
    "halves": ("(left + 1) / 2", "left / 2"),
    "pairs": ("from = 1 - from)", "from = from)"),
    "lock": ("(lock, 0, sizeof", "(lock, 1, sizeof"),
}


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def headless(name: str) -> str:
    """A file without its head."""
    return TEXTS[name].partition("\n\n")[2]


@pytest.fixture
def benched(tmp_path, command, forgotten):
    """Run ``hpcmm bench`` on a text: ``benched(text, *options)``."""

    def run(text: str, *options):
        (tmp_path / "mine.cu").write_text(text)
        return command("bench", "mine.cu", *(options or ("--on-host",)), folder=tmp_path)

    return run


@pytest.fixture
def adopted(tmp_path):
    """What is found in a text: ``adopted(text)``."""

    def adopt(text: str) -> adoption.Adopted:
        (tmp_path / "mine.cu").write_text(text)
        return adoption.adopt(tmp_path / "mine.cu")

    return adopt


IN_PLACE = (
    ("const float *sums, float *result", "float *sums"),
    ("*result = s[0]", "sums[0] = s[0]"),
    ("(sums, d_out, blocks)", "(sums, blocks)"),
)


@pytest.mark.parametrize("mistake", [(), (("sums[0] = s[0]", "sums[1] = s[0]"),)], ids=["right", "wrong"])
def test_a_result_may_be_in_the_workspace(benched, mistake):
    done = benched(changed(headless("sum"), *IN_PLACE, *mistake))
    assert "mine.cu: PASS" in done.stdout  # of the first kernel alone, if the last one is wrong
    assert (": parts, then last" in done.stdout) == (not mistake), done


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


BY_TURNS = (  # of each thread: as many as elements, they would exceed integers
    *BY_DEVICE[:1],
    ("h_x, int n)", "h_x, int n, int turns)"),
    ("int blocks = (n + threads - 1) / threads;", "int blocks = (n - 1) / (threads * turns) + 1;"),
)


@pytest.mark.parametrize(
    ("changes", "head"),
    [
        (BY_TURNS, {"host": "total(n=n, turns=512)", "most": None}),
        (BY_DEVICE, {"operation": "sum", "dtypes": ["float32"], "host": "total(n=n)"}),
        ([("i += 128", "i += 4096")], {"most": {"n": 2**14}}),
        ([("s[threadIdx.x] = i < n ? x[i] : 0", "s[threadIdx.x] = x[i]")], {"multiples": {"n": 256}}),
    ],
    ids=["turns by a parameter", "blocks by the GPU", "a last pass that is too short", "no bounds checks"],
)
def test_the_contract_of_a_chain_of_launches_is_found(adopted, changes, head):
    found = adopted(changed(headless("sum"), *changes)).head
    assert found == head if changes is BY_DEVICE else {key: found.get(key) for key in head} == head


@pytest.mark.parametrize(
    ("name", "taken"),
    [("sum", "total(n=n): parts, then last\n"), ("transposed", "main(M=m, N=n, K=k): transpose, then product\n")],
)
def test_launches_of_the_host_code_are_found(benched, name, taken):
    done = benched(headless(name))
    assert f"mine.cu: taken as the launches of {taken}" in done.stdout and "mine.cu: PASS" in done.stdout, done


# its length is a constant
ITS_LENGTH = ("const float *h_x, int n)\n{", "const float *h_x)\n{\n    const int n = 1 << 16;")
WRONG_CHAINS = {
    "length": ([("d_out, blocks)", "d_out, n)")], "each alone is right, but not with these sizes", "FAIL 2 float32"),
    "grid": (
        [("int blocks = (n + threads - 1) / threads", "int blocks = n / 512")],
        "but not with these sizes",
        "FAIL 1 ",
    ),
    "kernel": (
        [("__syncthreads();\n    for (int step = 128", "for (int step = 128")],
        "parts alone is wrong, too",
        "FAIL 1 float32",
    ),
    "its own length": ([("sum += sums[i]", "sum = sums[i]"), ITS_LENGTH], "parts, then last", "FAIL 65536 float32"),
}


@pytest.mark.parametrize("mistake", WRONG_CHAINS)
def test_a_wrong_chain_of_launches_fails_as_a_whole(benched, mistake):
    changes, *said = WRONG_CHAINS[mistake]
    done = benched(changed(headless("sum"), *changes))
    assert all(each in done.stdout for each in said) and done.returncode == 1, done


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_launches_are_followed(benched, name):
    done = benched(TEXTS[name])
    assert "taken as the launches of" in done.stdout and "mine.cu: PASS" in done.stdout, done
    done = benched(changed(TEXTS[name], LOOPS[name]))
    assert done.returncode and "PASS" not in done.stdout, done


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_a_wrong_loop_around_a_right_kernel_is_named(adopted, wrong):
    loop = TEXTS["loop_host"].replace("sums, left)", "sums, left - 1)" if wrong else "sums, left)")
    found = adopted(headless("sum").partition("__global__ void last")[0] + loop)
    assert found.head["call"] == "parts(x, sums=result, n)"
    assert found.notes == ("its launches in total gave a wrong result in trials",) * wrong


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sum", ()),
        ("sum", ("i < n ?", "i < n - 1 ?")),
        ("sum", ("(n + threads - 1) / threads", "n / threads")),
        ("sum", ("blocks * sizeof(float)", "blocks / 2 * sizeof(float)")),
        ("transposed", ()),
        ("transposed", ("c * rows + r", "c * rows + r / 2 * 2")),
        ("transposed", ("Bt[c * k + i]", "Bt[i * k + c]")),
        ("transposed", ("Bt(N * K)", "Bt(N * K - 1)")),
    ],
)
def test_launches_of_a_head_run_in_order_and_a_mistake_in_any_of_them_is_found(benched, name, change):
    text = changed(TEXTS[name], change) if change else TEXTS[name]
    (kernel,) = json.loads(benched(text, "--on-host", "--json").stdout)["kernels"]
    assert kernel["passed"] == (not change), kernel


@pytest.mark.parametrize("name", [*LOOPS, *NAMES])
def test_the_compiler_of_the_gpu_takes_all_launches(tmp_path, adopted, forgotten, name):
    """Launches that a head states, and launches that host code makes in loops."""
    (tmp_path / "copy.cu").write_text(TEXTS[name])
    if name in LOOPS:
        adopted(TEXTS[name]).write(tmp_path / "copy.cu")
    kernel = own_kernels.read(tmp_path / "copy.cu")
    options = ["-DREAL=float", "-DACCUMULATOR=float", "--gpu-architecture=sm_90"]
    works, log, code = nvrtc().compile(kernel.variant.adapted.read_text(), options, "CUBIN")
    symbols = ("hpcmm_result", "hpcmm_fill") if name in LOOPS else ("hpcmm_launch_0",)
    assert works, log
    assert all(each.encode() in code for each in (*symbols, OPERATIONS[kernel.operations[0]].kernels))


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*NAMES, *(f"{name} without head" for name in NAMES), *LOOPS])
def test_launches_in_order_are_timed_on_a_gpu(benched, name):
    text = headless(name.split()[0]) if " " in name else TEXTS[name]
    found = json.loads(benched(text, "--sizes", "5000" if name in LOOPS else "1000", "--json").stdout)
    assert [each["passed"] for each in found["kernels"]] == [True], found
    assert found["points"]


STARTED = (
    ("(n=n)", "(n=n, start=identity)"),
    ("x, float *sums, int n)", "x, float *sums, int n, float start)"),
    ("*h_x, int n)", "*h_x, int n, float start)"),
    (": 0;", ": start;"),
    ("sums, n)", "sums, n, start)"),
)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (TEXTS["by_columns"], ("layout: columns", "layout: rows")),
        (TEXTS["by_columns"], ("b=beta", "b=alpha")),
        (TEXTS["by_columns"], ("EDGE: 8", "TILES: 8")),
        (changed(TEXTS["sum"], *STARTED), ("start=identity", "start=1")),
    ],
    ids=["layout", "scalars", "constants", "identity"],
)
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_a_head_says_what_the_host_code_takes(benched, text, mistake, right):
    done = benched(text if right else changed(text, mistake))
    assert ("PASS" in done.stdout) == right == (done.returncode == 0), done


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
    (tmp_path / "sum.cu").write_text(changed(TEXTS["sum"], change))
    with pytest.raises(own_kernels.KernelFileError, match=message):
        own_kernels.read(tmp_path / "sum.cu")
