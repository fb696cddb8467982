"""``hpcmm bench``: right and wrong kernels of each kind, what it prints, and the files that it writes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import yaml
from conftest import kill
from tasks import needs_gxx
from timings import page_of

from hpcmm import backends, store
from hpcmm.bench import verdicts
from hpcmm.cli import bench as bench_command
from hpcmm.cli import selection
from hpcmm.cli.bench import SECONDS_BETWEEN_LOOKS, TIMING
from hpcmm.cli.main import parser
from hpcmm.experiment import extensions, plan
from hpcmm.experiment.config import read_config
from hpcmm.experiment.durations import point_seconds
from hpcmm.jobs import trial
from hpcmm.operations import OPERATIONS
from hpcmm.report import bench as benched

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "kernels"
PAGE = (ROOT / "docs" / "kernel-writers.md").read_text()
TRANSCRIPTS = re.findall(r"```text\n(\$ .*?)```", PAGE, re.DOTALL)

HEAD = ["kernel", "size", "type", "time", "rate", "over numpy", "over serial"]
NAMES = {"by_rows.c", "serial", "numpy"}


NO_HEAD = """void matmul(int n, const float *A, const float *B, float *C)
{
    for (int i = 0; i < n * n; ++i)
        for (int k = C[i] = 0; k < n; ++k) C[i] += A[i / n * n + k] * B[k * n + i % n];
}
"""


@pytest.fixture
def inside(command, forgotten):
    """Run the command in this process, which forgets the kernels afterwards."""
    before = dict(OPERATIONS)

    def run(*arguments, cwd: Path = EXAMPLES) -> subprocess.CompletedProcess:
        done = command("bench", *arguments, folder=cwd)
        OPERATIONS.update(before)
        extensions.LOADED.clear()
        return done

    return run


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(EXAMPLES, tmp_path, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)


# --- the page for kernel writers -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_transcript_of_a_cpu_kernel_is_what_the_command_prints(inside, tmp_path, monkeypatch):
    monkeypatch.setitem(TIMING, "visits", 2)
    transcript = next(each for each in TRANSCRIPTS if "on-host" not in each)
    command, _, printed = transcript.partition("\n")
    done = inside(*command.split()[3:], "--output", tmp_path / "timings.h5", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, printed):
        verdict, table, *_ = text.split("\n\n")  # then a note, on a noisy machine
        assert re.fullmatch(
            r"by_rows.c: PASS at 28 points to 64x64x64, largest error 0.\d+ of the rounding bound", verdict
        )
        head, _, *lines = table.splitlines()
        titles = [each.partition(" with ")[0] for each in re.split(r"\s{2,}", head)]  # without the BLAS of NumPy
        assert titles[: len(HEAD)] == HEAD  # then the limit, if that of the processor is known
        assert {tuple(line.split()[:3]) for line in lines} == {(name, "64", "float32") for name in NAMES}
    columns = store.read(tmp_path / "timings.h5")
    rows = columns["measurements"]
    assert {*rows["contender"]} == NAMES and rows["passed"].all() and {*columns["samples"]["visit"]} == {0, 1}
    assert "by_rows.c" in page_of(tmp_path / "page.html")


@pytest.mark.slow
@needs_gxx
def test_the_transcript_of_cuda_kernels_on_the_host_is_what_the_command_prints(inside):
    transcripts = "".join(each for each in TRANSCRIPTS if "on-host" in each)
    assert transcripts.count("$ ") == 3
    for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", transcripts, re.MULTILINE):
        done = inside(*command.split()[2:])
        assert (done.stdout, done.returncode) == (printed, int("FAIL" in printed)), done.stderr


# --- kernels for the CPU -------------------------------------------------------------------------------------------


def test_a_machine_that_starts_no_ranks_is_no_fault_of_a_kernel(inside, monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nothing.so")
    done = inside("by_rows.c", "--sizes", 64)
    assert done.returncode == 1 and "FAIL" not in done.stdout
    reason = "the process that measures kernels cannot start: RuntimeError: cannot load MPI library"
    assert done.stderr.endswith(f"hpcmm: error: {reason}\n") and "Traceback" not in done.stderr


@pytest.mark.slow
def test_wrong_kernels_fail_with_their_place_and_right_ones_are_still_timed(inside, folder):
    good, loop = (folder / "by_rows.c").read_text(), "for (int i = 0; i < m; ++i) {"
    for name, old, new in (
        ("ragged.c", "k - p < STEP ? k - p : STEP", "k - p < STEP ? 0 : STEP"),
        ("beta.c", "beta == 0 ? 0 :", ""),
        ("crash.c", loop, f"{loop} if (n == 70) *(volatile int *)0 = 1;"),
        ("text.c", "REAL *c =", "REAL *d ="),
    ):
        assert old in good
        (folder / name).write_text(good.replace(old, new).replace(", options", ""))
    text = (folder / "panels.py").read_text()
    (folder / "late.py").write_text(text.replace("range(0, A", "range(1, A"))
    (folder / "import.py").write_text(text.replace("PANEL =", "np.row_stack_of_old\nPANEL ="))
    (folder / "call.py").write_text(text.replace("    if beta", "    np.row_stack_of_old\n    if beta"))
    names = ("by_rows.c", "ragged.c", "beta.c", "text.c", "panels.py", "late.py", "import.py", "call.py")
    (folder / "no_head.c").write_text(NO_HEAD)
    done = inside(*names, "--sizes", 24, "--json", "--against", "no_head.c", cwd=folder)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    verdicts = {each["kernel"]: each for each in found["kernels"]}
    assert {name for name, each in verdicts.items() if each["passed"]} == {"by_rows.c", "panels.py"}
    place = r"{} float32, alpha 1.5, beta 0.5: 0:0: \S+ - \S+ = \S+"
    assert re.match(place.format("1x1x1"), verdicts["ragged.c"]["where"])
    assert re.match(place.format("1x1x1"), verdicts["late.py"]["where"])
    assert re.search(r"beta 0: 0:0: nan - ", verdicts["beta.c"]["where"])
    assert re.search(r"text.c:1\d:.*error: .c. undeclared", verdicts["text.c"]["where"])
    why = f"AttributeError: module 'numpy' has no attribute 'row_stack_of_old' (numpy {np.__version__})"
    assert verdicts["import.py"]["where"] == why and verdicts["call.py"]["where"] == f"1x1x1 float32: {why}"
    assert {each["kernel"] for each in found["points"]} == {"by_rows.c", "panels.py", "no_head.c", "numpy"}
    for own in [each for each in found["points"] if each["own"]]:
        assert own["shape"] == [24, 24, 24] and own["seconds"] > 0
        ends = own["ratio_low"], own["ratio_high"]  # one visit of slow points has no interval
        assert ends == (None, None) or ends[0] < own["ratio"] < ends[1]
    done = inside("crash.c", cwd=folder)
    assert done.returncode == 1 and "crash.c: FAIL 10x70x40 float32: ended by SIGSEGV" in done.stdout


@pytest.mark.slow
def test_a_kernel_without_an_end_is_named_and_the_others_are_verified(inside, folder, monkeypatch):
    monkeypatch.setattr(trial, "PATIENCE_SECONDS", 1)
    monkeypatch.setattr("hpcmm.bench.hints.on_cpu", pytest.fail)  # it would not end either
    monkeypatch.setitem(bench_command.VERIFYING, "max_seconds", 0.05)
    good, loop = (folder / "by_rows.c").read_text(), "for (int i = 0; i < m; ++i) {"
    assert loop in good
    text = good.replace(loop, f"{loop} while (m == 10 && ((const volatile REAL *)A)[0] < 9) (void)usleep(1000);")
    (folder / "endless.c").write_text(text.replace("void matmul(", "int usleep(unsigned);\nvoid matmul(", 1))
    done = inside("endless.c", "by_rows.c", "--sizes", 24, cwd=folder)
    first, second, *table = done.stdout.splitlines()
    assert re.fullmatch(r"endless.c: FAIL 10x70x40 float32: .* did not end within \d+ s", first)
    assert second.startswith("by_rows.c: PASS at 28 points") and any(row.startswith("by_rows.c  24") for row in table)
    assert done.returncode == 1


def test_a_kernel_without_an_end_is_given_up_before_long(forgotten):
    chosen = selection.choose(parser().parse_args(["bench", str(EXAMPLES / "tiled.cu")]))
    sweeps = selection.verifying_sweeps(chosen)
    planned = plan.make(selection.config_of(chosen, chosen.kernels, bench_command.VERIFYING, sweeps))
    longest = max(point_seconds(point, planned.measuring) for batch in planned.to_measure for point in batch.points)
    assert longest + trial.PATIENCE_SECONDS < 40


@pytest.mark.slow
def test_all_combinations_are_tried_and_shown_if_the_page_cannot_be_written(inside, folder, monkeypatch):
    monkeypatch.setattr("hpcmm.report.build", Mock(side_effect=store.StoreError("the disk is full")))
    text = (folder / "by_rows.c").read_text()
    (folder / "by_rows.c").write_text(text.replace("= alpha *", "= (STEP == 3 ? 3 : 1) * alpha *"))
    options = ["--tune", "STEP=2,3", "--sizes", 16, "--dtype", "float64", "--html", "page.html"]
    done = inside("by_rows.c", *options, cwd=folder)
    assert done.returncode == 1 and "the disk is full" in done.stderr
    assert "by_rows.c STEP=3: FAIL 1x1x1 float64" in done.stdout
    assert re.search(r"^best at 16 float64: by_rows.c STEP=2, \S+ \S+$", done.stdout, re.MULTILINE)


# --- CUDA kernels on the host --------------------------------------------------------------------------------------

MISTAKES = [  # what is replaced by what, what is said of it, and the line that it names
    ("row < m && start", "row <= m && start", "read of 4 bytes out of bounds, at byte 20 of the 4 of A,", "a[y][x] ="),
    ("if (row < m && column", "if (row < m - 1 && column", r"1x1x1 .*: ascending order: 0:0: -?[\d.]+ - ", ""),
    ("__syncthreads();\n        for", ";\n        for", "read of shared memory that nothing has written,", "sum +="),
    ("p < TILE", "p <= TILE", "index 16 out of bounds", "sum +="),
    ("        __syncthreads();\n    }", "        if (x) __syncthreads();\n    }", "race|divergent", ""),
    ("REAL sum = 0;", "REAL sum = 0; ((REAL *)A)[0] = 3;", "wrote to its input A at 0:0", ""),
    ("REAL sum = 0;", "REAL sum = none;", "error: .none. was not declared", ""),
]


@needs_gxx
def test_mistakes_of_a_cuda_kernel_are_found_without_a_gpu(inside, folder):
    good = (folder / "tiled.cu").read_text().replace("[16, 32]", "[16]")
    for i, (old, new, *_) in enumerate(MISTAKES):
        assert good.count(old) >= 1, old
        (folder / f"{i}.cu").write_text(good.replace(old, new, 1))
    done = inside("--on-host", "--json", *(f"{i}.cu" for i in range(len(MISTAKES))), cwd=folder)
    assert done.returncode == 1, done.stderr
    for each, (_, _, message, code) in zip(json.loads(done.stdout)["kernels"], MISTAKES, strict=True):
        assert not each["passed"] and re.search(message, each["where"]), each
        line = good.count("\n", 0, good.index(code)) + 1
        assert not code or f" in line {line}" in each["where"], each


SUM = """// hpcmm:
//   block: 32
//   one_launch: true
//   max_blocks: 1

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *r, REAL identity)
{
    if (threadIdx.x == 0)
        for (size_t i = *r = 0; i < n; ++i) *r += x[i];
}
"""


@needs_gxx
def test_a_sum_is_right_as_a_sum_only(inside, folder):
    (folder / "sum.cu").write_text(SUM)
    done = inside("--on-host", "sum.cu", "--dtype", "int32", "float64", cwd=folder)
    assert done.stdout.startswith("sum.cu: PASS at "), done.stdout + done.stderr
    done = inside("--on-host", "sum.cu", "--operation", "maximum", cwd=folder)
    assert done.returncode == 1 and "sum.cu: FAIL" in done.stdout


@needs_gxx
def test_bits_that_depend_on_the_order_of_threads_are_reported_unless_they_may(inside, folder):
    text = (Path(__file__).with_name("kernels") / "added.cu").read_text()
    (folder / "added.cu").write_text(text)
    (folder / "may.cu").write_text(text.replace("//   rows", "//   deterministic: false\n//   rows"))
    done = inside("--on-host", "added.cu", cwd=folder)
    assert done.returncode == 1 and "the bits of the result depend on the order of threads" in done.stdout
    done = inside("--on-host", "may.cu", cwd=folder)
    assert done.stdout.startswith("may.cu: PASS at 84 points"), done.stdout + done.stderr


@needs_gxx
def test_a_saved_file_is_run_again_until_ctrl_c(folder):
    command = [sys.executable, "-m", "hpcmm", "bench", "--watch", "--on-host", "racy.cu", "--shapes", "5x7x33"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
    ) as job:
        try:
            assert job.stdout.readline().startswith("racy.cu: FAIL 5x7x33 float32")
            assert job.stderr.readline() == "waiting for a change of racy.cu; end with Ctrl-C\n"
            (folder / "racy.cu").unlink()  # as an editor may, before it writes the file
            time.sleep(3 * SECONDS_BETWEEN_LOOKS)
            (folder / "new.cu").write_text((folder / "tiled.cu").read_text())
            (folder / "new.cu").rename(folder / "racy.cu")  # at once: it is changed a single time
            assert job.stdout.readline().startswith("racy.cu: PASS at 12 points")
            assert job.stderr.readline() == "waiting for a change of racy.cu; end with Ctrl-C\n"
            time.sleep(SECONDS_BETWEEN_LOOKS)  # a signal while a line is printed would print it twice
            os.killpg(job.pid, signal.SIGINT)  # as a terminal does
            assert (*job.communicate(timeout=60), job.returncode) == ("", "", 130)
        finally:
            kill(job)


# --- what this machine lacks ---------------------------------------------------------------------------------------


@needs_gxx
@pytest.mark.skipif(not backends.missing("cuda"), reason="this machine has a GPU")
def test_without_a_gpu_cuda_kernels_are_verified_on_the_cpu_and_others_are_not_tested(inside):
    done = inside("tiled.cu", "--sizes", 16)
    assert done.returncode == 0 and "verified on the CPU, as by --on-host" in done.stderr
    assert "tiled.cu: PASS" in done.stdout and "(on the host, not timed)" in done.stdout
    done = inside("triton_tile.py")
    assert done.returncode == 3 and "triton_tile.py: not tested: needs " in done.stdout


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mine.c", ()),
        pytest.param("mine.cu", ("--on-host",), marks=needs_gxx),
        pytest.param("mine.cu", (), marks=pytest.mark.gpu),
    ],
)
def test_a_header_that_this_machine_lacks_is_no_mistake_of_the_kernel(inside, folder, name, options):
    (folder / "near.h").write_text("#include <of/no/package.h>\n")
    add = "void add(const float *a, const float *b, float *c, int n) { for (int i = n; i--;) c[i] = a[i] + b[i]; }"
    (folder / name).write_text(f'#include "near.h"\n{"__global__ " if name.endswith("u") else ""}{add}\n')
    done = inside(name, *options, cwd=folder)
    assert (done.returncode, f"{name}: not tested: needs the header of/no/package.h" in done.stdout) == (3, True)


def test_a_kernel_of_triton_without_a_launch_says_so(inside, folder):
    (folder / "alone.py").write_text("import triton\n@triton.jit\ndef add_kernel(x, y, z, n):\n    pass\n")
    done = inside("alone.py", cwd=folder)
    assert done.returncode == 3 and "alone.py: not tested: no function launches its kernels of Triton" in done.stdout


# --- the workflow --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "variants", "dtype"),
    [
        pytest.param("cpu", ["./by_rows.c STEP=3", "panels.py"], "float64", marks=pytest.mark.slow),
        pytest.param("cuda", ["tiled.cu", "triton_tile.py"], "float32", marks=pytest.mark.gpu),
    ],
)
@pytest.mark.usefixtures("forgotten")
def test_a_kernel_of_a_config_runs_on_two_ranks_and_in_a_product_of_them(folder, mpi_output, device, variants, dtype):
    if backends.missing(device):
        pytest.skip(backends.missing(device))
    for package in ("triton", "torch") if "triton_tile.py" in variants else ():
        pytest.importorskip(package)
    measuring = {"visits": 1, "warmups": 0, "min_repetitions": 1, "max_repetitions": 2, "max_seconds": 0.05}
    sweep = {"operation": "matmul", "device": device, "variants": variants, "algorithms": ["scatter", "ring"]}
    sweep |= {"sizes": [33], "dtypes": [dtype], "ranks": [2]} | ({"tiles": [16]} if device == "cuda" else {})
    config = {"backends": device, "share_gpu": True, "measuring": measuring, "sweeps": {"a": sweep}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    planned = plan.make(read_config(folder / "config.yaml"))
    planned.write(folder / "plan.json")
    (batch,) = planned.to_measure
    mpi_output(2, "-m", "hpcmm.jobs.measure", "--results", folder, "--batch", batch.name)
    rows = store.read(batch.file(folder))["measurements"]
    assert rows["passed"].all() and {*rows["ranks"]} == {2}
    found = {*zip(rows["contender"], rows["contender_algorithm"], strict=True)}
    assert found >= {(name.removeprefix("./"), each) for name in variants for each in ("scatter", "ring")}


@pytest.mark.parametrize(("spread", "noisy"), [(0.3, True), (0.01, False), (None, False)])
def test_a_machine_that_is_too_noisy_is_stated(spread, noisy):
    row = {
        "kernel": "a.c", "size": "64", "dtype": "float32", "seconds": 1e-3, "rate": "", "own": True, "spread": spread,
        "library": "cublas 13.1", "tuned_library": "cublaslt of cuBLAS 13.1", "ratio": 0.5, "tuned_ratio": 0.25,
    }  # fmt: skip
    row |= dict.fromkeys(("fraction", "registers", "local_bytes", "occupancy"))
    text = benched.table({"points": [row]}, "", False)
    assert re.search(r"over cublas 13.1 +over tuned cublaslt of cuBLAS 13.1 *\n.*\n.* 0.500× +0.250×", text)
    assert ("visits scatter by 30 % (median); an idle machine gives narrower intervals" in text) is noisy


@pytest.mark.parametrize(
    ("of_size", "asked", "sizes", "text"),
    [
        (lambda n: 1e-12 * n, [], 4096, ""),
        (lambda n: 2e-5 + 1e-13 * n, [], 4096, ""),  # a launch
        (lambda n: 3e-7 * n, [], 128, "timed at 128, because 4096 would take about 5.7 h a call; --sizes sets others"),
        (lambda n: 1e-3 + 1e-12 * n, [], 4096, ""),  # a trial shows that it is fast
        (lambda n: 3e-7 * n, [256, 2048, 8], [256, 2048, 8], "2048 takes about 43 min a call"),
        (lambda n: 3e-7 * n, [256], [256], ""),
    ],
    ids=("fast", "launches", "slow", "slow start", "given sizes", "given size"),
)
def test_sizes_are_those_that_the_speed_of_a_kernel_allows(monkeypatch, of_size, asked, sizes, text):
    variant = OPERATIONS["matmul"].variant("naive")
    shapes = [(n,) * 3 for n in asked] or [(4096,) * 3]
    chosen = selection.Chosen(
        OPERATIONS["matmul"], {"mine": variant}, "", "", ["float32"], shapes, shapes[: len(asked)], {}, {}
    )
    tried = []

    def columns(shape) -> dict:
        tried.append(shape)
        rows = {"contender": [variant.name, "cublas"], "operation": ["matmul"] * 2}
        rows |= {x: [n, n] for x, n in zip("mnk", shape, strict=True)}
        times = [of_size(float(np.prod(shape))), 99.0, 99.0]
        samples = {"measurement": [0, 1, 0], "kernel": times, "call": [False, False, True]}
        return {"measurements": rows, "samples": samples}

    monkeypatch.setattr(trial, "measure", lambda config: columns(config["sweeps"]["trial"]["shapes"][0]))
    first = verdicts.slowest_call([variant], columns((64, 64, 64)), bench_command.LAUNCH_SECONDS)
    found, said = bench_command.at_own_speed(chosen, ["mine"], first)
    assert said == text
    assert [shape[0] for shape in found.shapes] == (sizes if asked else [sizes])
    assert all(of_size(float(np.prod(shape))) <= bench_command.LONGEST_SECONDS for shape in tried)
    assert len(tried) <= 3
