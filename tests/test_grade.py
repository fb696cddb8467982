"""Grading: cheats, the processes of submissions, rubrics, grades and their page."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import cheats
import numpy as np
import psutil
import pytest
from cheats import CHEATS, FOLDER
from tasks import UMASK

from hpcmm import backends, kernels
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.backends.emulated import launch
from hpcmm.cli.checks import programs
from hpcmm.cli.main import main
from hpcmm.grading import device, exercise, rubric, runners, sandbox, session
from hpcmm.grading.sandbox import NotGraded
from hpcmm.model import Task
from hpcmm.operations import MATMUL, OPERATIONS, SUM, guards, with_kernels
from hpcmm.system.reader import ConfigError

SOLUTIONS = Path(__file__).parent / "solutions"
ENTRY = {"operation": "matmul", "points": 6, "shapes": 3, "most": 40}
SERIAL = {"device": "cpu", "threads": 1, "operation": "matmul", "variant": "serial"}  # a rung in a process

needs_cplusplus = pytest.mark.skipif(
    bool(backends.missing("cuda")) and not launch.COMPILER, reason="neither a GPU nor g++ on this machine"
)
# As root with CI=true, a machine without isolation is a failure of these tests.
required = os.environ.get("CI") == "true" and os.getuid() == 0
isolated = pytest.mark.skipif(bool(sandbox.fault()) and not required, reason=f"no isolation: {sandbox.fault()}")


def exercise_of(file: str, **more) -> rubric.Exercise:
    entry = {**ENTRY, "file": file, "seconds": 60, **more}
    (found,) = rubric.checked({"exercises": {"one": entry}, "memory_mb": 1024}).exercises
    return found


def graded(path: Path, **more) -> exercise.Grade:
    return exercise.grade(path, exercise_of(path.name, **more), np.random.default_rng(), sandbox.chosen(trust=False))


def refused(path: Path, why: str) -> exercise.Grade:
    """Grade a cheat, which must get no point, for a reason."""
    grade = graded(path, seconds=1 if "longer than 1 s" in why else 60)
    assert (grade.passed, grade.points) == (False, 0)
    assert re.search(why, grade.why), grade.why
    assert "root:" not in grade.why  # the content of /etc/passwd
    return grade


@pytest.fixture
def submitted(tmp_path, monkeypatch):
    """Write a submission beside a file of the teacher, which no submission may change; leave nothing behind."""
    monkeypatch.setenv("HPCMM_SECRET", "secret")
    (tmp_path / "teacher").mkdir()
    victim, folder = tmp_path / "teacher" / "grades.json", tmp_path / "submission"
    victim.write_text("the grades")
    folder.mkdir()

    def write(file: str, text: str, quote: str = '"') -> Path:
        for word, path in (("VICTIM", victim), ("PACKAGE", sandbox.PACKAGE)):
            text = text.replace(word, f"{quote}{path}{quote}")
        (folder / file).write_text(text)
        return folder / file

    before = left_behind(tmp_path)
    yield write
    assert victim.read_text() == "the grades"
    assert victim.stat().st_mode & 0o777 == 0o666 & ~UMASK
    assert [*victim.parent.iterdir()] == [victim]
    until = time.monotonic() + 60
    while (left := left_behind(tmp_path) - before) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def left_behind(folder: Path) -> set:
    """Return what a submission can leave: processes of the grader, shared memory, files beside the package."""
    processes = {each.pid for each in psutil.Process().children(recursive=True)}
    shared = Path("/proc/sysvipc/shm")
    keys = {line.split()[0] for line in shared.read_text().splitlines()} if shared.exists() else set()
    places = (sandbox.PACKAGE, sandbox.PACKAGE.parent, Path("/"), folder)
    strays = {str(path) for place in places for path in place.glob("sitecustomize.py")}
    named = {str(path) for path in Path("/dev/shm").glob("hpcmm-left")}
    return processes | named | strays | (keys & {str(0x5EED)})  # other programs have segments, too


# ---- cheats ----


OF_MECHANISM = {name: [each for each in CHEATS if CHEATS[each].mechanism == CHEATS[name].mechanism] for name in CHEATS}
SOME = [  # two of each mechanism; the others are slow tests
    pytest.param(name, marks=() if name in same[:2] else pytest.mark.slow) for name, same in OF_MECHANISM.items()
]


@isolated
@pytest.mark.parametrize("name", SOME)
def test_no_cheat_passes(name, submitted, record_property):
    cheat = CHEATS[name]
    if cheat.file.endswith(".cu") and (name.startswith("empty kernel") or not launch.COMPILER):
        if not backends.missing("cuda"):
            pytest.skip("with a GPU, nothing is launched on the host")
        if not launch.COMPILER:
            pytest.skip("neither a GPU nor g++ on this machine")
    submitted("product.h", cheats.PRODUCT)
    grade = refused(submitted(cheat.file, cheat.text, '"' if name.startswith("attack") else ""), cheat.why)
    record_property("cheat", [cheat.mechanism, grade.why])


@isolated
def test_a_python_file_passes(submitted):
    text = "# hpcmm:\n#   device: cpu\ndef matmul(alpha, A, B, beta, C, stream):\n"
    text += "    C[...] = alpha * (A @ B) + (beta * C if beta else 0)\n"
    grade = graded(submitted("a.py", text), dtypes=["float32", "float64"])
    assert grade.passed, grade.why
    assert "raised NameError" in graded(submitted("b.py", text.replace("beta else", "x else"))).why
    assert "cannot be loaded" in graded(submitted("c.py", f"{text}1 / 0\n")).why
    assert "has device: cuda" in graded(submitted("d.py", text.replace("#   device: cpu", "#"))).why


@isolated
def test_links_and_pipes_in_a_submission_are_not_read(submitted):
    path = submitted("a.c", f'#include "x.h"\n{cheats.PRODUCT}{cheats.KERNEL}{{ PRODUCT; }}\n')
    header = path.with_name("x.h")
    header.symlink_to("/etc/passwd")
    refused(path, "No such file")
    header.unlink()
    os.mkfifo(header)
    refused(path, "longer than 1 s")
    header.unlink()
    header.write_text("")
    assert graded(path).passed


@isolated
def test_the_mechanisms_of_the_cheats_are_those_of_the_page():
    page = (Path(__file__).parents[1] / "docs" / "teachers.md").read_text()
    shown = set(re.findall(r"^\| ([^|]*) \| [^|]* \|$", page, re.MULTILINE))
    assert shown >= {each.mechanism for each in CHEATS.values()}


@isolated
@needs_cplusplus
@pytest.mark.parametrize("suffix", ["c", "cu"])
def test_no_process_of_a_compiler_outlives_its_time_limit(suffix, tmp_path):
    """The driver of gcc starts others, and an end of the driver does not end them."""
    macros = "#define A0\n" + "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(20))
    path = tmp_path / f"endless.{suffix}"
    path.write_text(f"{macros}{'__global__ ' * (suffix == 'cu')}void matmul(int m) {{ A20 }}\n")
    assert "took longer than 1 s to compile" in graded(path, seconds=1).why
    until = time.monotonic() + 60
    while left := [each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(each.info["cmdline"])]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


# ---- isolation ----


def test_without_isolation_nothing_is_graded_unless_it_is_trusted(tmp_path, asked, capsys, monkeypatch):
    """As on a machine that forbids user namespaces."""
    monkeypatch.setattr(sandbox, "fault", lambda: "bwrap: No permissions to create new namespace")
    outputs = [tmp_path / "grades.json", tmp_path / "grades.html"]
    arguments = ["grade", str(SOLUTIONS), "--rubric", str(asked), "--json", str(outputs[0]), "--html", str(outputs[1])]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert all(each in error for each in ("cannot be isolated", "No permissions", "--trust", "bubblewrap")), error
    assert not any(each.exists() for each in outputs)
    assert main([*arguments, "--trust"]) == 0
    texts = [capsys.readouterr().out, *(each.read_text() for each in outputs)]
    assert all("without isolation" in text for text in texts)


@isolated
def test_a_result_in_isolation_states_no_doubt(tmp_path, asked, capsys):
    assert main(["grade", str(SOLUTIONS), "--rubric", str(asked), "--json", str(tmp_path / "a.json"), "--trust"]) == 0
    assert "without isolation" not in capsys.readouterr().out
    assert json.loads((tmp_path / "a.json").read_text())["unisolated"] == ""


@pytest.mark.parametrize("bwrap", ["", "#!/bin/sh\necho 'bwrap: no permission' >&2; exit 1\n"])
def test_isolation_is_tried(bwrap, tmp_path, monkeypatch):
    sandbox.fault.cache_clear()
    monkeypatch.setattr(sandbox, "program", lambda: str(tmp_path / "bwrap") if bwrap else "")
    (tmp_path / "bwrap").write_text(bwrap)
    (tmp_path / "bwrap").chmod(0o755)
    try:
        assert sandbox.fault() == ("bwrap: no permission" if bwrap else "bubblewrap is missing")
        (check,) = programs.check_isolation()
        assert check.state == "warning" and "install bubblewrap" in check.advice
        with pytest.raises(NotGraded, match="cannot be isolated"):
            sandbox.chosen(trust=False)
        assert sandbox.chosen(trust=True).program == ""
    finally:
        sandbox.fault.cache_clear()


@isolated
def test_packages_are_found_in_isolation_wherever_the_process_finds_them(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "of_the_teacher.py").write_text("")
    program = (
        "import subprocess, sys; from hpcmm.grading import sandbox; isolation = sandbox.chosen(trust=False); "
        "command = isolation.wrap([sys.executable, '-c', 'import of_the_teacher, numpy'], sandbox.of_package()); "
        "sys.exit(subprocess.run(command, env=isolation.environment()).returncode)"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "elsewhere")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@isolated
def test_the_yardstick_is_isolated(monkeypatch):
    monkeypatch.setenv("HPCMM_SECRET", "secret")
    isolation = sandbox.chosen(trust=False)
    with session.device(isolation, SERIAL, 4096, 60) as own:
        inside = Path(f"/proc/{own.process.pid}")
        root = inside / "root"
        assert "secret" not in (inside / "environ").read_text()
        assert not (root / "etc" / "passwd").exists()
        assert not (root / str(Path(__file__))[1:]).exists()
        for name in ("user", "pid", "net", "ipc", "mnt"):
            assert (inside / "ns" / name).readlink() != Path(f"/proc/self/ns/{name}").readlink()
    assert not inside.exists()


def test_a_process_without_submitted_code_may_compute_after_its_reply(monkeypatch):
    """Threads of CUDA do."""
    with session.device(sandbox.Sandbox(""), SERIAL, 1 << 16, 60) as process:
        monkeypatch.setattr(process, "stopped_at", process.stopped_at - 0.01)
        process.check_clock()
        monkeypatch.setattr(process, "stopped_cpu_seconds", session.STOPPED_CPU_SECONDS)
        monkeypatch.setattr(process, "stopped_at", process.stopped_at - 0.01)
        with pytest.raises(session.Refused, match=r"computed for 0\.01\d* s of CPU time while its clock was stopped"):
            process.check_clock()
        monkeypatch.setattr(process, "stopped_at", process.stopped_at - session.STOPPED_CPU_SECONDS / 2)
        monkeypatch.setattr(process, "_signal", lambda number: None)
        monkeypatch.setattr(process, "_reply", lambda begin: session.Reply("", 1.0))
        assert process.ask({}).seconds == pytest.approx(1 + session.STOPPED_CPU_SECONDS / 2, abs=1e-4)


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_time_of_a_kernel_on_a_gpu_is_that_between_events(where, monkeypatch):
    """The wait for a reply from another process can take longer than the kernel."""
    variant, tile = ("serial", 0) if where == "cpu" else ("naive", 16)
    setup = SERIAL | {"device": where, "variant": variant}
    task = Task(MATMUL, MATMUL.variant(variant), (20, 30, 10), "float32", MATMUL.scalars, tile)
    rng, waited = np.random.default_rng(1), []
    inputs = MATMUL.draw(rng, task)
    with session.device(sandbox.Sandbox(""), setup, guards.most_bytes(task), 60) as process:
        ask = process.ask
        monkeypatch.setattr(process, "ask", lambda request: (waited.append(ask(request)), waited[-1])[1])
        error, bound, seconds = exercise.judged(runners.OnDevice(process), task, inputs, rng)
        assert error <= bound
        assert seconds == waited[1].seconds if where == "cpu" else 0 < seconds < waited[1].seconds
        monkeypatch.setattr(process, "ask", lambda request: session.Reply("no memory" * (request == ["run"]), 1.0))
        with pytest.raises(session.Refused, match=r"^no memory"):
            exercise.judged(runners.OnDevice(process), task, inputs, rng)


@isolated
def test_json_is_written_after_each_exercise(tmp_path, asked, monkeypatch):
    """An interrupt loses one exercise."""
    target = tmp_path / "grades.json"
    rules = json.loads(asked.read_text())
    rules["exercises"]["two"] = {**ENTRY, "file": "02_vectorized.c"}
    asked.write_text(json.dumps(rules))
    grade = exercise.grade

    def interrupted(path, *rest):
        if path.name == "02_vectorized.c":
            raise KeyboardInterrupt
        return grade(path, *rest)

    monkeypatch.setattr(exercise, "grade", interrupted)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        raise SystemExit(main(["grade", str(SOLUTIONS), "--rubric", str(asked), "--json", str(target)]))
    (one,) = json.loads(target.read_text())["submissions"]
    assert [each["exercise"] for each in one["exercises"]] == ["one"]


@isolated
def test_a_spoiled_timer_gives_no_speed():
    speed = {"against": "serial", "shape": [32, 32, 32], "repetitions": 3, "steps": [{"ratio": 0.5, "points": 4}]}
    grade = graded(FOLDER / "timer.c", shapes=1, speed=speed)
    assert grade.passed, grade.why
    assert (grade.points, grade.of) == (6, 10)
    assert grade.ratio < 0.5


@isolated
def test_the_cheats_are_refused_for_their_reason(submitted):
    """The product of the cheats passes without what makes it a cheat, with headers, assembly and code at its load."""
    right = f"{cheats.HEADERS}{cheats.PRODUCT}__attribute__((constructor)) static void first(void) {{ }}\n"
    right += f'{cheats.KERNEL}{{ __asm__ volatile("nop"); PRODUCT; }}\n'
    grade = graded(submitted("right.c", right), dtypes=["float32", "float64"])
    assert grade.passed, grade.why
    assert (grade.points, grade.error <= grade.bound) == (6, True)


@isolated
@pytest.mark.parametrize(("operation", "rung"), [("matmul", "packed"), ("matmul", "pthread"), ("sum", "openmp")])
def test_a_rung_of_the_ladder_is_a_right_solution(operation, rung):
    source = kernels.source(OPERATIONS[operation], OPERATIONS[operation].variant(rung))
    grade = graded(source, operation=operation)
    assert grade.passed, grade.why


@isolated
@pytest.mark.parametrize(
    "content", [None, "link", "folder", "pipe", "int x;", "/* hpcmm:\n     dtypes: [float64] */ void matmul();"]
)
def test_a_file_that_is_none(tmp_path, content):
    path = tmp_path / "a.c"
    if content == "link":
        path.symlink_to(FOLDER / "product.h")
    elif content == "folder":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    elif content:
        path.write_text(content)
    grade = graded(path)
    assert not grade.passed and grade.why.split(";")[0] in (
        "not handed in",
        "is a link, a folder or a pipe",
        "a.c: operation: the file has none of the functions matmul, reduction, vector_add, copy",
        "its head leaves out the element type float32",
    )


@isolated
def test_launches_without_an_end_are_refused(tmp_path):
    text = (SOLUTIONS / "17_sequential.cu").read_text()
    (tmp_path / "a.cu").write_text(text.replace("block: 128", "block: 1"))
    assert "block: a block of one element never reduces" in graded(tmp_path / "a.cu", operation="sum").why


@isolated
def test_another_operation_than_the_rubrics_is_refused(tmp_path):
    (tmp_path / "a.c").write_text("/* hpcmm:\n     operation: vector_add */\nvoid vector_add(void) {}\n")
    assert graded(tmp_path / "a.c").why == "computes vector_add; the exercise is matmul"


# ---- processes and their memory ----


@pytest.mark.parametrize(("operation", "shape"), [(MATMUL, (5, 7, 3)), (SUM, (9,))])
def test_every_byte_outside_the_results_is_watched(operation, shape):
    rng = np.random.default_rng(1)
    task = Task(operation, operation.ladder[0], shape, "float32", operation.scalars)
    places = guards.layout(task, rng)
    whole = np.zeros(guards.most_bytes(task), np.uint8)
    assert places[-1].end <= whole.size
    guards.fill(whole, places, task, operation.draw(rng, task), rng)
    results = {place.name for place in places} & {each.name for each in operation.operands if each.role != "in"}
    allowed = np.zeros(whole.size, bool)
    for place in places:
        if place.name in results:
            marks = np.zeros(whole.size, np.uint8)
            place.of(marks).view("u4")[...] = 0xFFFFFFFF
            allowed |= marks > 0
    for byte in rng.permutation(places[-1].end)[:300]:
        after = whole.copy()
        after[byte] ^= 1
        assert bool(guards.trespass(whole, after, places, task)) is not bool(allowed[byte])


@pytest.mark.parametrize("copies", [False, True], ids=["in place", "copied to the device"])
def test_the_program_for_devices_runs_files_and_rungs(monkeypatch, copies):
    """Its copies to and from a device, which the CPU does not need, are those of a GPU."""
    monkeypatch.setattr(CpuBackend, "in_host_memory", not copies)
    rng = np.random.default_rng(2)
    task = Task(MATMUL, MATMUL.variant("serial"), (20, 30, 10), "float32", MATMUL.scalars)
    for what in ({"file": str(SOLUTIONS / "01_serial.c")}, {"variant": "serial"}, {"variant": "numpy"}):
        whole = np.zeros(guards.most_bytes(task), np.uint8)
        own = device.Device({"device": "cpu", "threads": 1, "operation": "matmul", **what}, whole)
        places, inputs = guards.layout(task, rng), MATMUL.draw(rng, task)
        guards.fill(whole, places, task, inputs, rng)
        before = whole.copy()
        request = {
            "place": [[each.name, each.begin, each.region, each.shape, each.dtype] for each in places],
            **{"shape": task.shape, "dtype": task.dtype, "scalars": task.scalars, "tile": 0},
        }
        assert own(request) == ""
        assert (own("run") != "") == copies  # the seconds
        assert (before == whole).all() == copies
        own("fetch")
        assert guards.trespass(before, whole, places, task) == ""
        assert MATMUL.reference(task, inputs)(places[-1].of(whole)).passed


@isolated
def test_an_error_of_a_device_is_a_reply():
    with session.device(sandbox.chosen(trust=False), SERIAL, 4096, 60) as own:
        assert own.ask([{"place": [["A"]]}]).content == "'shape'"


# ---- rubrics ----

WRONG = """
exercises:
  one: {operation: matmul, points: 1, speed: {against: nobody, shape: [1], steps: [{ratio: 1, points: 1}]}}
  two: {operation: product, points: 1}
  three: {file: ../three.c, operation: matmul, points: 1}
  four: {operation: sum, points: -1, dtypes: []}
  five: {operation: matmul, points: 1, file: six.cu, dtypes: [int8], bonus: 1}
  six: {operation: matmul, points: 1}
"""


def test_all_errors_of_a_rubric_are_reported_at_once(tmp_path):
    path = tmp_path / "rubric.yaml"
    path.write_text(WRONG)
    with pytest.raises(ConfigError) as caught:
        rubric.read(path)
    found = "\n".join(caught.value.problems)
    for each in (
        "exercises.one.speed.against: 'nobody' is not allowed; allowed: naive_unrolled",
        "exercises.one.speed.shape: [1] is not allowed; allowed: one number for each of m, n, k",
        "exercises.two.operation: 'product' is not allowed; allowed: matmul",
        "exercises.three.file: '../three.c' is not allowed; allowed: the name of a file with .c, .cu, .py",
        "exercises.four.points: -1 is not allowed; allowed: at least 0",
        "exercises.four.dtypes: [] is not allowed; allowed: at least 1 entry",
        "exercises.five: unknown key 'bonus'; allowed: file, operation",
    ):
        assert each.replace("naive_unrolled", "") in found
    assert all(each.startswith(f"{path}: ") for each in caught.value.problems)


def test_the_highest_step_that_is_reached_counts():
    steps = [{"ratio": 1, "points": 5}, {"ratio": 0.5, "points": 2}]
    found = exercise_of("a.c", speed={"against": "library", "shape": [8, 8, 8], "steps": steps})
    assert found.speed.against.baseline
    assert [found.speed.points(ratio) for ratio in (0.49, 0.5, 0.99, 1, 7, float("nan"))] == [0, 2, 2, 5, 5, 0]
    assert found.of == 11


# ---- the command ----


@pytest.fixture
def asked(tmp_path) -> Path:
    """A rubric of one exercise in C."""
    path = tmp_path / "rubric.yaml"
    path.write_text(json.dumps({"title": "C & <D>", "exercises": {"one": {**ENTRY, "file": "01_serial.c"}}}))
    return path


@isolated
def test_one_submission_and_the_exit_status(tmp_path, asked, capsys):
    assert main(["grade", str(SOLUTIONS), "--rubric", str(asked)]) == 0
    text = "solutions\n  one: PASS 6 of 6\nsolutions: 6 of 6 points, 1 of 1 exercises correct\n"
    assert capsys.readouterr().out.startswith(text)
    (tmp_path / "empty").mkdir()
    assert main(["grade", str(tmp_path / "empty"), "--rubric", str(asked)]) == 1
    assert "neither it nor a folder in it has a file of the rubric, such as 01_serial.c" in capsys.readouterr().err
    assert main(["grade", str(tmp_path / "nowhere"), "--rubric", str(asked)]) == 1


@isolated
def test_a_seed_draws_the_same_shapes_and_a_long_message_is_whole_in_the_files(tmp_path, asked, capsys):
    folder = tmp_path / "anna"
    folder.mkdir()
    wrong = "void matmul(int m, int n, int k) { }\n"

    def grade(text: str, *options: str) -> tuple[str, str]:
        (folder / "01_serial.c").write_text(text)
        assert main(["grade", str(folder), "--rubric", str(asked), "--json", str(tmp_path / "g.json"), *options]) == 3
        (found,) = json.loads((tmp_path / "g.json").read_text())["submissions"]
        return found["exercises"][0]["why"], capsys.readouterr().out

    first, again, other = (grade(wrong, "--seed", each)[0] for each in ("1", "1", "2"))
    assert first == again != other
    why, output = grade("".join(f"unknown{i} x{i};\n" for i in range(200)) + wrong)
    assert "unknown199" in why and "unknown199" not in output and re.search(r"\.\.\. \d+ more lines: --html", output)
    with pytest.raises(SystemExit):
        main(["grade", str(folder), "--rubric", str(asked), "--seed", "-1"])


@isolated
def test_many_submissions_as_json_and_as_a_page(tmp_path, asked, capsys):
    folder = tmp_path / "all"
    for each in ("anna", "<b>berta</b>", "\x1b[2Jcarl", ".git"):
        (folder / each).mkdir(parents=True)
    shutil.copy(SOLUTIONS / "01_serial.c", folder / "anna")
    (folder / "<b>berta<" / "b>").mkdir(parents=True, exist_ok=True)
    (folder / "anna" / "grades.json").write_text("{}")
    (folder / "dora").mkdir()
    (folder / "dora" / "01_serial.c").write_text("void matmul(void) { first();\n    second(; <i> }\n")
    json_file, page = tmp_path / "grades.json", tmp_path / "grades.html"
    book, sheets = tmp_path / "grades.csv", tmp_path / "sheets"
    arguments = ["grade", str(folder), "--rubric", str(asked), "--json", str(json_file), "--html", str(page)]
    assert main([*arguments, "--csv", str(book), "--sheets", str(sheets), "--seed", "7"]) == 3
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "  one: not handed in, 0 of 6\n" in output
    assert all(f"{path}\n" in output for path in (json_file, page, book, sheets))
    result = json.loads(json_file.read_text())
    assert {each["name"]: each["points"] for each in result["submissions"]}["anna"] == 6
    assert [each["points"] for each in result["submissions"]].count(0) == 3
    text = page.read_text()
    assert "<b>berta" not in text and "&lt;b&gt;berta" in text
    assert "C &amp; &lt;D&gt;" in text and "not handed in" in text
    assert result["seed"] == 7
    with book.open(newline="") as file:
        rows = {row["submission"]: row for row in csv.DictReader(file)}
    assert rows["anna"] == {"submission": "anna", "one": "6", "points": "6", "of": "6", "not handed in": ""}
    assert (rows["dora"]["points"], rows["dora"]["not handed in"]) == ("0", "")
    assert [row["not handed in"] for row in rows.values()].count("one") == 2
    assert len(list(sheets.iterdir())) == 4
    alone = (sheets / "dora.html").read_text()
    assert "second(; &lt;i&gt;" in alone and "anna" not in alone
    assert not re.search(r"(src|href)=[\"']?http", text)
    (error,) = re.findall(r"<pre tabindex=\"0\">(.*?)</pre>", text, re.DOTALL)
    assert re.search(r"\n +2 \| +second\(; &lt;i&gt; \}\n", error)  # with the indentation of its marks
    assert re.search(r"<strong>FAIL</strong> <small>does not compile:</small>", text)


def test_all_operations_have_a_rung_to_be_compared_with():
    for operation in with_kernels().values():
        speed = {"against": "serial", "shape": [8] * len(operation.dimensions), "steps": [{"ratio": 1, "points": 1}]}
        exercise_of("a.c", operation=operation.name, speed=speed)
