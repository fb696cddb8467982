"""Wrong kernels with the message that each gets, and right ones of unusual form, which pass."""

import csv
import json
import re
import shutil
from pathlib import Path

import count_published
import numpy as np
import pytest
import yaml
from tasks import needs_gxx

from hpcmm.backends.cpu import searches
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.backends.emulated.launch import HostKernel, compile_kernel
from hpcmm.bench import adoption, guarded, sanitizing, verdicts
from hpcmm.bench.on_host import verify
from hpcmm.cli import searching
from hpcmm.cli.main import main, parser
from hpcmm.cli.selection import choose
from hpcmm.experiment import own_kernels
from hpcmm.kernels import modules
from hpcmm.model import Task
from hpcmm.operations import OPERATIONS, guards
from hpcmm.operations.shapes import ragged

FOLDER = Path(__file__).parent / "verdicts"
COMPILER = modules.compiler()
needs_gcc = pytest.mark.skipif(not COMPILER[0] or "clang" in COMPILER[1], reason="no gcc on this machine")

OUT, VALUE = "read of 4 bytes out of bounds, at byte", r": \S+ - \S+ = "
MISTAKES, C_MISTAKES = {}, {}  # by file and number of the mistake
for name, known in yaml.safe_load((FOLDER / "mistakes.yaml").read_text()).items():
    said = {number: says.replace("OUT", OUT).replace("VALUE", VALUE) for number, says in known.items()}
    (C_MISTAKES if "." in name else MISTAKES)[name] = said
# Kernels that are right on current devices only: what the verdict notes.
NOTED = {
    ("tiled", 3): r"64 of 256 threads have returned before the __syncthreads\(\) in line 3\d",
    ("sum", 9): r"64 of 128 threads have returned before the __syncthreads\(\) in line 29",
}


def tasks_of(path: Path) -> list[Task]:
    kernel = own_kernels.read(path)
    operation = OPERATIONS[kernel.operations[0]]
    tile = next(iter(kernel.variant.tiles), 0)
    first = Task(operation, kernel.variant, (), "float32", operation.scalars, tile)
    scalars = [{"alpha": 1.5, "beta": beta} for beta in (0.5, 0)] if operation.scalars else [{}]
    shapes = ragged(operation, first.macros)
    return [Task(operation, kernel.variant, shape, "float32", each, tile) for each in scalars for shape in shapes]


def prepared(name: str, mistake: int, folder: Path) -> tuple[list[Task], HostKernel]:
    """Compile a file for the host, with one of its mistakes."""
    tasks = tasks_of(FOLDER / f"{name}.cu")
    macros = tuple(f"-D{key}={value}" for key, value in tasks[0].macros.items())
    kernel = compile_kernel(FOLDER / f"{name}.cu", tasks[0].operation.kernels, macros, folder)
    kernel.fill("mistake", np.array(mistake, np.int32))
    return tasks, kernel


@pytest.fixture(scope="module")
def judged(emulated):
    """The result of a file with one of its mistakes."""
    return lambda name, mistake: verify(prepared(name, mistake, emulated)[0], emulated)


@needs_gxx
@pytest.mark.parametrize("name", MISTAKES)
def test_without_a_mistake_a_kernel_passes(judged, name):
    found = judged(name, 0)
    assert (found.where, found.note) == ("", "") and found.runs > 20


# These take as many steps as are allowed: the first one is enough
ENDLESS = [(name, each) for name, known in MISTAKES.items() for each in known if "no end after" in known[each]]


@needs_gxx
@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        pytest.param(name, each, marks=pytest.mark.slow if i % 3 else ())
        for name, known in MISTAKES.items()
        for i, each in enumerate(known)
        if (name, each) not in ENDLESS[1:]
    ],
)
def test_a_wrong_kernel_fails_with_its_reason_on_the_host(judged, name, mistake):
    found = judged(name, mistake)
    assert found.where and re.search(MISTAKES[name][mistake], found.where), found


@needs_gxx
def test_a_path_for_rows_without_padding_is_verified_on_the_host(emulated, tmp_path):
    source = (FOLDER / "product.cu").read_text().replace("if (IS(33))", "if (lda == k && row == 0)")
    (tmp_path / "product.cu").write_text(source)
    found = verify(tasks_of(tmp_path / "product.cu"), emulated)
    assert re.match(r"\S+ float32, .*: ascending order, rows without padding: ", found.where), found


@needs_gxx
@pytest.mark.parametrize(("name", "mistake"), NOTED)
def test_what_older_devices_do_not_do_is_noted(judged, name, mistake):
    found = judged(name, mistake)
    assert not found.where and re.search(NOTED[name, mistake], found.note)


@needs_gxx
def test_notes_do_not_depend_on_the_folder_of_the_runtime(judged, emulated, tmp_path):
    """A process that has used the runtime of one folder also finds the notes of kernels in another folder."""
    assert judged("sum", 9).note
    # not compiled again, which takes seconds; temporary folders of other processes come and go beside them
    for built in (*emulated.glob("[0-9a-f]*/*.gch"), *emulated.glob("[0-9a-f]*/runtime.so")):
        shutil.copytree(built.parent, tmp_path / built.parent.name)
    tasks, kernel = prepared("sum", 9, tmp_path)
    assert Path(kernel.entry.runtime).is_relative_to(tmp_path)
    assert re.search(NOTED["sum", 9], verify(tasks, tmp_path).note)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("form", range(5))
def test_an_unusual_form_of_a_right_kernel_passes(judged, form):
    found = judged("forms", form)
    assert not found.where and (guards.OVERFLOW in found.note) == (form == 1)


def test_a_minimum_that_begins_with_an_old_result_is_wrong():
    task, rng = Task(OPERATIONS["minimum"], OPERATIONS["minimum"].variant("serial"), (5,), "float32"), np.random
    places = guards.layout(task, rng.default_rng(0))
    memory = np.zeros(places[-1].end, np.uint8)
    guards.fill(memory, places, task, guards.drawn_widely(task, rng.default_rng(0)), rng)
    x, result = (place.of(memory) for place in places)
    assert np.fmin(x.min(), result) != x.min()


def test_shapes_have_all_remainders_and_scalars_are_independent():
    matmul = OPERATIONS["matmul"]
    assert [{size % 8 for size in sizes} for sizes in zip(*ragged(matmul, {}), strict=True)] == [set(range(8))] * 3
    for dtype in ("float32", "bfloat16", "int8", "int32"):
        task = Task(matmul, matmul.variant("serial"), (5, 5, 5), dtype, matmul.scalars_of(dtype, {}))
        scalars = [list(of.scalars.values()) for of in (task, guards.with_other_scalars(task))]
        assert np.linalg.det(scalars) != 0, dtype


@pytest.mark.slow
@needs_gxx
def test_a_product_that_loses_a_negative_beta_is_found_on_the_host(judged):
    assert "alpha -1.05, beta -0.7: ascending order, rows without padding: " in judged("product", 38).where


C_VARIANTS = [
    pytest.param(name, each, marks=needs_gxx if name.endswith("cpp") else ())
    for name, known in C_MISTAKES.items()
    for each in known
]


@needs_gcc
@pytest.mark.parametrize(("name", "mistake"), C_VARIANTS)
def test_a_wrong_c_kernel_is_found(name, mistake):
    kernel = own_kernels.read(adoption.copy_of(FOLDER / name, "")[0], {"MISTAKE": mistake})
    operation, shape = OPERATIONS[kernel.operations[0]], {3: (17, 33, 5), 1: (1000,)}
    scalars = {"alpha": 1.5, "beta": 0.5} if operation.scalars else {}
    task = Task(operation, kernel.variant, shape[len(operation.dimensions)], kernel.variant.dtypes[0], scalars)
    found = guarded.mistake(CpuBackend(2), task)
    if not found:
        search = searches.races(task)
        if search.not_made.startswith("ThreadSanitizer did not run"):
            pytest.skip(search.not_made)
        found = search.found
    says = C_MISTAKES[name][mistake]
    assert re.search(says, found) if says else not found, found
    if (name, mistake) in {("product.c", 0), ("product.c", 6)}:
        assert searches.overflow(task).found == ("" if mistake == 0 else guards.OVERFLOW)


@needs_gcc
def test_a_size_that_a_kernel_does_not_take_is_answered_by_one_that_it_takes(tmp_path, command, forgotten):
    text = (FOLDER / "product.c").read_text()
    (tmp_path / "mine.c").write_text(text.replace("dtypes:", "most: {n: 1}\n//   dtypes:", 1))
    said = command("bench", "mine.c", "--sizes", "64", folder=tmp_path).stderr
    assert "mine.c takes n = 1 only; 64x64x64 is not allowed; allowed: --shapes 64x1x64 and its like" in said


@needs_gcc
def test_a_race_fails_a_kernel_whose_results_are_right(tmp_path, command, forgotten):
    """Two threads write the same sum."""
    (tmp_path / "twice.c").write_text(
        "// hpcmm:\n//   operation: vector_add\n//   dtypes: [float32]\n#include <stddef.h>\n"
        "void vector_add(const float *x, const float *y, float *z, size_t n, int threads) {\n"
        "#pragma omp parallel num_threads(2)\n    for (size_t i = 0; i < n; ++i) z[i] = x[i] + y[i];\n}\n"
    )
    (found,) = json.loads(command("bench", "twice.c", "--sizes", "8", "--json", folder=tmp_path).stdout)["kernels"]
    if "ThreadSanitizer did not run" in found.get("note", ""):
        pytest.skip(found["note"])
    assert not found["passed"] and "data race: a write in line 7" in found["where"], found


@needs_gcc
def test_a_kernel_with_a_header_of_the_package_is_searched():
    matmul = OPERATIONS["matmul"]
    task = Task(matmul, matmul.variant("amx_tile"), (1, 1, 1), "int8", matmul.scalars)
    assert "No such file" not in searches.races(task).not_made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "right"),
    [*((name, right) for name in ("add.cu", "total.cu") for right in (True, False)), ("total.c", False)],
)
def test_indices_beyond_32_bits_are_tried_in_packed_arrays(tmp_path, command, forgotten, name, right):
    """Products in C are in ``test_a_wrong_c_kernel_is_found``."""
    text = (FOLDER / f"long_{name}").read_text()
    (tmp_path / name).write_text(text.replace("int i = block", "size_t i = (size_t)block") if right else text)
    how = ["--on-host"] if name.endswith(".cu") else ["--sizes", "8"]
    (kernel,) = json.loads(command("bench", name, *how, "--json", folder=tmp_path).stdout)["kernels"]
    assert kernel["passed"] and (guards.OVERFLOW in kernel["note"]) == (not right), kernel


@needs_gcc
@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (1, "ended by SIGSEGV; an access out of bounds in line 7"),
        (2, "ended by SIG(FPE|ILL|TRAP); division by zero in line 8"),
        (3, "ended by SIG(SEGV|ILL|TRAP); (an access out of bounds|store to null pointer .*) in line 9"),
    ],
)
def test_a_crash_names_its_signal_and_its_place(tmp_path, monkeypatch, capfd, forgotten, mistake, says):
    (tmp_path / "my kernels").mkdir()
    monkeypatch.chdir(tmp_path / "my kernels")
    Path("crash.c").write_text((FOLDER / "crash.c").read_text().replace("MISTAKE", str(mistake)))
    assert main(["bench", "crash.c", "--sizes", "8"]) == 1
    assert re.search(rf"crash.c: FAIL \S+ float32: {says}", capfd.readouterr().out)


@pytest.mark.slow
def test_one_broken_file_does_not_hide_the_others(tmp_path, monkeypatch, capfd, forgotten):
    """An exit is no success, and a module that cannot be loaded fails alone."""
    product = "# hpcmm:\n#   device: cpu\n#   dtypes: [float32]\ndef matmul(A, B, C, alpha, beta, stream):\n"
    product += "    C[...] = alpha * (A @ B) + (beta * C if beta else 0)\n"
    (tmp_path / "right.py").write_text(product)
    (tmp_path / "head.c").write_text("#include <math.h>\n// hpcmm:\n//   dtypes: [float32]\nvoid matmul(void) {}\n")
    (tmp_path / "exits.py").write_text(f"{product}raise SystemExit(0)\n")
    (tmp_path / "loads.c").write_text(
        "// hpcmm:\n//   dtypes: [float32]\nvoid gone(void);\nvoid matmul(int m, int n, int k, float alpha, "
        "const float *A, int lda, const float *B, int ldb, float beta, float *C, int ldc, int threads) { gone(); }\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "exits.py", "right.py", "loads.c", "head.c", "--sizes", "8", "--json"]) == 1
    found = {each["kernel"]: each for each in json.loads(capfd.readouterr().out)["kernels"]}
    assert len(found) == 4 and [name for name, each in found.items() if each["passed"]] == ["right.py"]
    assert "it exits while it is imported" in found["exits.py"]["where"]
    assert "undefined symbol: gone" in found["loads.c"]["where"]
    assert "head.c:2: 'hpcmm:' is not read" in found["head.c"]["where"]
    assert main(["bench", "head.c", "--json"]) == 1
    (alone,) = json.loads(capfd.readouterr().out)["kernels"]
    assert alone["kernel"] == "head.c" and "is not read" in alone["where"] and not alone["passed"]
    assert found["right.py"]["note"] == "not searched for races"


def test_the_table_of_verdicts_has_each_mistake():
    with (FOLDER / "verdicts.csv").open() as file:
        rows = {each["kernel"]: each for each in csv.DictReader(file)}
    for name, known in MISTAKES.items():
        for mistake, says in known.items():
            found = rows[f"{name}.cu {mistake}"]["host"]
            shown = says.split(".*")[0].split(r"\S")[0].split(" by thread")[0].rstrip(": ")  # the table omits threads
            assert found.startswith("FAIL "), (name, mistake)
            assert re.search(shown, found), (shown, found)
        assert rows[f"{name}.cu 0"]["host"] == "PASS"


def test_the_page_counts_the_verdicts_of_the_table():
    with (FOLDER / "verdicts.csv").open() as file:
        rows = list(csv.DictReader(file))
    page = (Path(__file__).parents[1] / "docs" / "kernel-writers.md").read_text()
    for kind, verdict in (("wrong", "FAIL"), ("right", "PASS")):
        shown = re.search(rf"^\| {kind} kernels: {verdict} \|(.*)\|$", page, re.MULTILINE)[1].split("|")
        noted = ("tiled.cu 3", "sum.cu 9")  # wrong on older devices only
        own = [each for each in rows if (each["mistake"] == "none" or each["kernel"] in noted) == (kind == "right")]
        for column, text in zip(("host 43411ac", "GPU 43411ac", "host", "GPU"), shown, strict=True):
            tried = [each[column] for each in own if not each[column].startswith("not measured")]
            if (kind, column) != ("wrong", "host 43411ac"):  # most of those do not compile, whatever their mistake
                assert text.strip() == f"{sum(each.startswith(verdict) for each in tried)} of {len(tried)}"


# --- races that the results on a GPU do not show -------------------------------------------------------------------


def with_mistake(folder: Path, name: str, mistake: int) -> Path:
    """Copy a file with one of its mistakes."""
    text, count = re.subn(r"\bint mistake;", f"int mistake = {mistake};", (FOLDER / f"{name}.cu").read_text())
    text = text.replace("__global__", 'extern "C" __global__')
    path = folder / f"{name}_{mistake}.cu"
    path.write_text(text)
    assert count == 1
    return path


@needs_gxx
def test_a_kernel_that_passed_is_searched_for_races(emulated, tmp_path, forgotten):
    """As on a machine with a GPU, where the results of such kernels are often right."""
    files = [with_mistake(tmp_path, "sum", each) for each in (0, 11, 15)]
    arguments = parser().parse_args(["bench", *map(str, files)])
    chosen = choose(arguments)
    judged = [{"kernel": each.name, "passed": True} for each in chosen.kernels.values()]
    right, lockstep, shuffle = searching.races(chosen, judged)
    assert re.fullmatch(r"sum_0.cu: no race found by (racecheck and synccheck and )?\d+ runs on the host", right)
    assert re.search(r"sum_11.cu: FAIL (racecheck|on the host, .*race in shared memory)", lockstep)
    assert re.search(r"sum_15.cu: FAIL .*(shuffle|synccheck)", shuffle)
    assert [each["passed"] for each in judged] == [True, False, False]


@pytest.mark.slow
@needs_gxx
def test_races_of_a_kernel_are_searched_at_its_own_tile(emulated, tmp_path, monkeypatch, forgotten):
    configs = []
    monkeypatch.setattr(searching.tools, "find", lambda program: program)
    monkeypatch.setattr("hpcmm.jobs.trial.sanitized", lambda config, *_: configs.append(config) or ())
    source = Path(__file__).parents[1] / "examples" / "kernels" / "tiled.cu"
    chosen = choose(parser().parse_args(["bench", str(source), "--tune", "TILE=8,16"]))
    judged = [{"kernel": each.name, "passed": True} for each in chosen.kernels.values()]
    assert len([*searching.races(chosen, judged)]) == 2
    assert sorted(each["sweeps"]["races"]["tiles"] for each in configs) == [[8], [16]]


@needs_gxx
@pytest.mark.parametrize(
    ("mistake", "where", "says"),
    [
        (8, "1 float32: CUDARuntimeError: cudaErrorIllegalAddress", "; on the host, 1 .* of shared memory, in line 25"),
        (12, "33 float32: 5 - -7 = 12", "; on the host, 1 .*lane 0 reads from lane 16, but only .* in line 50"),
        (18, "1 float32: nan - -3 = nan", "$"),
        (35, "1x1x1 float32, alpha 1.5, beta 0.5: 0:0: -0.156 - -0.441 = 0.285", "; alpha is missing$"),
    ],
)
def test_a_wrong_result_of_a_gpu_gets_the_line_from_the_host(emulated, tmp_path, forgotten, mistake, where, says):
    file = with_mistake(tmp_path, "product" if "beta" in where else "sum", mistake)
    chosen = choose(parser().parse_args(["bench", str(file)]))
    assert re.match(says, searching.hint(chosen, next(iter(chosen.kernels.values())), where))


@pytest.mark.gpu
def test_races_are_found_on_a_gpu(tmp_path, capsys):
    files = [with_mistake(tmp_path, "sum", each) for each in (0, 10, 11, 12, 15)]
    main(["bench", *map(str, files), "--sizes", "10000", "--json"])
    found = json.loads(capsys.readouterr().out)["kernels"]
    assert [each["passed"] for each in found] == [True, *[False] * 4], found


FINDING = sanitizing.Report("racecheck", "1 hazard displayed", "Race reported", "a.cu", 3, "a.cu 64x64x64")


@pytest.mark.parametrize(
    ("reports", "source", "passed", "says"),
    [
        ([FINDING], "", False, "racecheck: Race reported, at a.cu 64x64x64"),
        ([FINDING], "cuda::barrier b;", None, "not searched for races; racecheck reports one, which may be false"),
        ([sanitizing.Report("synccheck", "", "took longer than 9 s")], "", None, "synccheck took longer than 9 s"),
        ([sanitizing.Report("synccheck", "0 errors")], "", None, "no race found by synccheck; no g++"),
        ([], "", None, f"not searched for races; {sanitizing.NOT_INSTALLED}; no g++"),
    ],
)
def test_what_a_search_for_races_says(reports, source, passed, says):
    found = verdicts.raced(reports, None, "no g++", source)
    assert found.get("passed") is passed and says in found["where" if passed is False else "races"]


@needs_gxx
def test_published_files_are_counted(tmp_path):
    """The list names files of others, which are not here: a file of this repository takes the place of one."""
    (tmp_path / "list.csv").write_text("repository,path,verdict\na/b,c/by_rows.cu,PASS\na/b,gone.cu,PASS\n")
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("adopted") / "by_rows.cu", folder)
    found = list(count_published.judged(tmp_path, tmp_path / "list.csv"))
    assert found == [("a/b c/by_rows.cu", "PASS", "PASS")]
    with count_published.LIST.open() as rows:
        listed = [(row["repository"], row["path"], row["verdict"]) for row in csv.DictReader(rows)]
    assert len({row[:2] for row in listed}) == len(listed)
    assert {row[2] for row in listed} <= {"PASS", "FAIL", "not tested"}
