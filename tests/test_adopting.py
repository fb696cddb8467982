"""Kernels of any signature: their arguments, launch and contract are found, and wrong kernels still fail."""

import json
import re
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tasks import needs_gxx
from test_kernels_compiled import nvrtc

from hpcmm.backends.cpu import searches
from hpcmm.bench import adoption, on_host
from hpcmm.bench.adoption import NotAdopted, adopt, choosing, launches, trials
from hpcmm.experiment import calls, functions, own_kernels, plan
from hpcmm.experiment.config import read_config
from hpcmm.experiment.functions import Source
from hpcmm.kernels import modules
from hpcmm.model import DeviceError
from hpcmm.system.reader import ConfigError

pytestmark = needs_gxx
EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"
# Kernels as their authors wrote them
ADOPTED = Path(__file__).with_name("adopted")
STYLES = SimpleNamespace(**{path.stem: path.read_text() for path in ADOPTED.iterdir()})
CASES = yaml.safe_load(ADOPTED.with_suffix(".yaml").read_text())


def text_of(text: str | list | dict) -> str:
    """The text of a case, with its changes."""
    if isinstance(text, str):
        return text_of(CASES["texts"][text]) if text in CASES["texts"] else vars(STYLES).get(text, text)
    if isinstance(text, list):
        return "".join(map(text_of, text))
    whole = text_of(text["of"])
    whole = whole.partition(text["before"])[0] if "before" in text else whole
    for old, new in text.get("change", ()):
        assert old in whole
        whole = whole.replace(old, new)
    return whole


def adopted(folder, text: str, name: str = "mine.cu", kernel: str = "") -> dict:
    path = folder / name
    path.write_text(text)
    return adopt(path, kernel).head


@pytest.mark.parametrize("style", CASES["heads"])
def test_arguments_launch_and_contract_are_found(tmp_path, style):
    (path,) = ADOPTED.glob(f"{style}.*")
    name = {"by_rows": "mine.cuh", "tiled": "mine.hip", "in_c": "mine.cpp"}.get(style, f"mine{path.suffix}")
    head = adopted(tmp_path, path.read_text(), name)
    wanted = CASES["heads"][style]
    assert {key: head.get(key) for key in wanted} == wanted


@pytest.fixture
def benched(command, forgotten, monkeypatch, request):
    """Run ``hpcmm bench`` on the text of a file; the search for overflows of an index takes as long as all else.

    Those of kernels for the CPU are in ``test_verdicts.py``.
    """
    if "index of" not in request.node.name:
        monkeypatch.setattr(on_host, "overflow", lambda kernel, task: "")
        monkeypatch.setattr(searches, "overflow", lambda task: searches.Search())

    def run(folder: Path, text: str, *options, name: str = "mine.cu"):
        (folder / name).write_text(text)
        return command("bench", name, *(options or ("--on-host",)), folder=folder)

    return run


def test_a_copy_with_its_head_needs_no_trial(tmp_path, benched, monkeypatch):
    done = benched(tmp_path, STYLES.by_rows, "--adopt", "copy.cu", name="mine.cuh")
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
    done = benched(tmp_path, f"// hpcmm:\n//   operation: sum\n//   block: 64\n\n{before}{body}{after}")
    assert adoption.copy_of(path, "")[1].startswith(taken) and "mine.cu: PASS" in done.stdout


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


@pytest.mark.parametrize("case", CASES["refused"], ids=itemgetter("says"))
def test_a_message_says_what_is_missing(tmp_path, case):
    text = text_of(case)
    with pytest.raises(NotAdopted, match=case["says"]):
        adopted(tmp_path, text, "mine.cu" if "double" not in text else "mine.c")


def test_the_search_stops_at_a_kernel_without_an_end(tmp_path, benched, monkeypatch):
    late = pytest.raises(NotAdopted, match="multiply, in a trial with small arrays: it took longer than 1 s")
    with monkeypatch.context() as patched, late:
        patched.setattr(trials, "SECONDS", 1)
        adopted(tmp_path, STYLES.of_rows.replace("for (int i", "while (rowsA) {}\n    for (int i"), "mine.c")
    done = benched(tmp_path, STYLES.add.replace("if (i < n)", "while (true);\nif (i < n)"))
    assert "an empty loop without an end in line 5 by thread (0, 0, 0)" in done.stdout


def test_a_trial_that_waits_is_no_kernel_without_an_end(tmp_path, monkeypatch):
    """As one that overwrote a lock in an array that is too short: here, each trial as a sum of vectors."""
    monkeypatch.setattr(trials, "IDLE", 0.5)
    loop = "    for (int i = 0; i < N; i++) row"
    text = STYLES.of_globals.replace(loop, f"    if (N == 961) pause();\n{loop}")
    assert adopted(tmp_path, f"#include <unistd.h>\n{text}", "mine.c")["operation"] == "matmul"


def test_one_of_several_kernels_is_chosen_by_name(tmp_path):
    assert adopted(tmp_path, STYLES.copy + STYLES.add, kernel="duplicate")["operation"] == "copy"
    with pytest.raises(NotAdopted, match="has no function 'none'; its kernels are: move, duplicate, add"):
        adopted(tmp_path, STYLES.copy + STYLES.add, kernel="none")
    with pytest.raises(NotAdopted, match="f writes to none of its arrays: x, y"):
        adopted(tmp_path, STYLES.add + "__global__ void f(float *x, float *y) {}", kernel="f")


def test_a_constant_that_names_threads_is_tried_as_a_block():
    source = Source("const int THREADS_PER_BLOCK = 96;\n__global__ void f(float *x) {}")
    tried = launches.blocks(source, source.functions["f"], "", 4)
    assert next(tried) == ((96,), 0)


@pytest.mark.parametrize(
    "style", [pytest.param(each, marks=pytest.mark.slow if i % 8 else ()) for i, each in enumerate(CASES["verdicts"])]
)
def test_a_file_of_each_style_has_a_verdict_or_says_what_is_missing(tmp_path, benched, style):
    case = CASES["verdicts"][style]
    done = benched(tmp_path, text_of(case), name=case.get("file", "mine.cu"))
    printed = re.sub(r"PASS at \d+ points", "PASS", done.stdout + done.stderr)
    assert [each for each in case["says"] if each not in printed] == [], done
    assert (done.returncode == 1) == (": FAIL" in printed), done


@pytest.mark.parametrize("case", CASES["functions"].values(), ids=CASES["functions"])
def test_a_function_is_adopted_or_judged_by_its_names(tmp_path, case):
    path, head = tmp_path / case.get("file", "mine.c"), case.get("head", {})
    path.write_text(text_of(case))
    found = adopt(path)
    assert {key: found.head.get(key) for key in head} == head
    assert bool(found.notes) == case.get("wrong", False), found


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text(), reason="this CPU has no AVX2")
def test_a_function_with_avx_gets_its_option_and_its_multiples(tmp_path):
    head = adopted(tmp_path, STYLES.with_avx, "mine.c")
    assert (head["options"], head["multiples"]) == (["-march=native"], {"m": 1, "n": 8, "k": 1})


def test_a_function_of_a_program_is_the_product_and_its_races_are_searched(tmp_path, benched):
    check = "double checksum(const double *c, int n) { double s = 0; for (int i = 0; i < n; i++) s += c[i]; return s; }"
    text = STYLES.of_rows.replace("double **", "double *").replace("C[i][j]", "C[i * colsB + j]")
    text = text.replace("A[i][k] * B[k][j]", "A[i * colsA + k] * B[k * colsB + j]")
    printed = benched(tmp_path, f"#include <vector>\n{check}{text}", "--sizes", "8", name="mine.cpp").stdout
    assert "taken as multiply(A, B, C, rowsA=m, colsA=k, colsB=n)" in printed
    assert "mine.c: PASS" in printed and "not searched for races" not in printed


def test_headers_that_this_machine_lacks_are_left_out(tmp_path):
    text = "#include <of_no_package/at_all.h>\n#include <stdlib.h>\n" + STYLES.in_c
    (tmp_path / "mine.c").write_text(text)
    kept = calls.with_headers(text, tmp_path / "mine.c", False)
    assert kept.splitlines()[:2] == ["", "#include <stdlib.h>"]


def test_a_file_is_parsed_again_once_its_header_is_there(tmp_path):
    text, path = '#include "own.h"\n__global__ void f(real_t *x, int n) { x[n - 1] = 0; }', tmp_path / "mine.cu"
    alone = functions.parsed(text, path)
    assert alone is functions.parsed(text, path) and alone.undeclared == ["real_t"]
    (tmp_path / "own.h").write_text("typedef float real_t;\n")
    assert functions.parsed(text, path).undeclared == []


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
    assert choosing.decoded(path).startswith("// größer\n")
    path.write_bytes(b"\xef\xbb\xbf" + STYLES.add.encode())
    assert choosing.decoded(path) == STYLES.add


@pytest.mark.parametrize("case", CASES["compiled"], ids=itemgetter("call"))
def test_the_compiler_of_the_gpu_takes_the_adapted_source(tmp_path, case):
    kernels = case.get("kernels", "matmul")
    head = {"call": case["call"], "adds": kernels == "reduction"}
    adapted = calls.adapted(tmp_path / "mine.cu", text_of(case), head, kernels, "cuda").read_text()
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
    text = STYLES.add.replace("if (i < n)", 'printf("%d\\n", i);\n    if (i < n)')
    done = benched(tmp_path, text, "--on-host", "--json")
    assert json.loads(done.stdout)["kernels"][0]["passed"], done
