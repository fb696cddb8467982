"""Grading: cheats, the processes of submissions, rubrics, grades and their page."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from hpcmm import backends, kernels
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.backends.emulated import launch
from hpcmm.cli.main import main
from hpcmm.grading import device, exercise, native, rubric, session, sources
from hpcmm.model import Task
from hpcmm.operations import MATMUL, OPERATIONS, SUM, guards, with_kernels
from hpcmm.reader import ConfigError

TESTS = Path(__file__).parent
CHEATS, SOLUTIONS = TESTS / "cheats", TESTS / "solutions"
FILES = sorted(path for suffix in ("c", "cu") for path in CHEATS.rglob(f"*.{suffix}") if path.name != "timer.c")
UNLISTED = [path for path in FILES if path.parent.name == "unlisted"]
ENTRY = {"operation": "matmul", "points": 6, "shapes": 3, "most": 40}

needs_cplusplus = pytest.mark.skipif(
    bool(backends.missing("cuda")) and not launch.COMPILER, reason="neither a GPU nor g++ on this machine"
)

# Cheats that only the filter of system calls finds
UNFILTERED = ("cores.c",)


def cheats(paths):
    """Return the cheats as parameters. Without a filter of system calls, those that only it finds are skipped."""
    for path in paths:
        needed = path.name in UNFILTERED and not session.filtered()
        skipped = pytest.mark.skipif(needed, reason="this system accepts no filter of system calls")
        yield pytest.param(path, id=name(path), marks=skipped)


def name(path: Path) -> str:
    return str(path.relative_to(CHEATS))


def exercise_of(file: str, **more) -> rubric.Exercise:
    entry = {**ENTRY, "file": file, "seconds": 20, **more}
    (found,) = rubric.checked({"exercises": {"one": entry}, "memory_mb": 1024}).exercises
    return found


def graded(path: Path, **more) -> exercise.Grade:
    with session.unreadable():
        return exercise.grade(path, exercise_of(path.name, **more), np.random.default_rng())


def expected(path: Path) -> str:
    return re.match(r"/[/*] expected: (.*?)(?: \*/|$)", path.read_text(), re.MULTILINE)[1]


def limit(path: Path) -> dict[str, float]:
    """A short limit for a cheat that never ends."""
    return {"seconds": 1} if "longer than 1 s" in expected(path) else {}


def copied(path: Path, folder: Path) -> Path:
    """Copy a file beside the header that it includes."""
    for source in (path, CHEATS / "product.h"):
        shutil.copy(source, folder)
    return folder / path.name


# ---- cheats ----


@needs_cplusplus
@pytest.mark.parametrize("path", [*cheats(path for path in FILES if path not in UNLISTED)])
def test_no_cheat_passes(path):
    grade = graded(path, **limit(path))
    assert (grade.passed, grade.points) == (False, 0)
    assert re.search(expected(path), grade.why)


@pytest.mark.parametrize("path", UNLISTED, ids=name)
def test_a_cheat_that_calls_the_system_is_refused(path, tmp_path):
    grade = graded(copied(path, tmp_path))
    assert (grade.passed, grade.points) == (False, 0)
    assert re.search(r"calls \w+.*; allowed: memory and mathematical functions, POSIX threads, OpenMP", grade.why)


@pytest.mark.parametrize("path", [*cheats(UNLISTED)])
def test_the_process_of_a_cheat_holds_without_the_list_of_functions(path, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "FUNCTIONS", re.compile(".*", re.DOTALL))
    grade = graded(copied(path, tmp_path), **limit(path))
    assert (grade.passed, grade.points) == (False, 0)
    assert re.search(expected(path), grade.why)


@pytest.mark.parametrize("cheat", ["found_in_memory.c", "unlisted/fork.c", "unlisted/helper.c", "unlisted/chain.c"])
def test_no_process_of_a_cheat_outlives_its_session_without_the_filter(cheat, tmp_path, monkeypatch):
    """Neither one in another session of Unix, nor one whose parent ended."""
    adopt = session.adopt_orphans
    # A list of all processes may miss a chain of short ones. This process adopts them and does not wait for them, so
    # they remain visible after their end.
    monkeypatch.setattr(session, "adopt_orphans", lambda _: adopt(True))
    monkeypatch.setattr(session, "filtered", lambda: False)
    monkeypatch.setattr(sources, "FUNCTIONS", re.compile(".*", re.DOTALL))
    others = children()
    try:
        grade = graded(copied(CHEATS / cheat, tmp_path))
        left = children() - others
    finally:
        while found := children() - others:
            for each in found:
                os.kill(each, signal.SIGKILL)
                os.waitpid(each, os.WNOHANG)
        adopt(False)
    assert left == set()
    assert (grade.passed, grade.points) == (False, 0)
    assert re.search("starts or reaches another process", grade.why)


def children() -> set[int]:
    return {each.pid for each in psutil.Process().children()}


@needs_cplusplus
@pytest.mark.parametrize("suffix", ["c", "cu"])
def test_no_process_of_a_compiler_outlives_its_time_limit(suffix, tmp_path):
    """The driver of gcc starts others, and an end of the driver does not end them."""
    macros = "#define A0\n" + "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(20))
    path = tmp_path / f"endless.{suffix}"
    path.write_text(f"{macros}{'__global__ ' * (suffix == 'cu')}void matmul(int m) {{ A20 }}\n")
    assert "took longer than 1 s to compile" in graded(path, seconds=1).why
    until = time.monotonic() + 10
    while left := [each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(each.info["cmdline"])]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


# Forbids this process and its children to add filters of system calls, as where Linux has none, and grades
WITHOUT_FILTERS = """
import ctypes, errno, os, sys
from hpcmm.cli.main import main
from hpcmm.grading import native
prctl = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
ctypes.CDLL(None).prctl(native.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
rules = [(native.LOAD, 0, 0, native.NUMBER), (native.EQUAL, 0, 3, prctl), (native.LOAD, 0, 0, native.FIRST_ARGUMENT)]
rules += [(native.EQUAL, 0, 1, native.PR_SET_SECCOMP), (native.RETURN, 0, 0, native.ERROR | errno.EINVAL)]
native.forbid(rules)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(not session.filtered(), reason="this system accepts no filter of system calls")
def test_a_result_states_that_the_filter_is_missing(tmp_path, asked, capsys):
    outputs = [tmp_path / "grades.json", tmp_path / "grades.html"]
    arguments = ["grade", str(SOLUTIONS), "--rubric", str(asked)]
    arguments += ["--json", str(outputs[0]), "--html", str(outputs[1])]
    done = subprocess.run([sys.executable, "-c", WITHOUT_FILTERS, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stated = "without the filter of system calls"
    assert all(stated in text for text in (done.stdout, *(each.read_text() for each in outputs)))
    assert main(arguments) == 0
    assert not any(stated in text for text in (capsys.readouterr().out, *(each.read_text() for each in outputs)))


def test_a_process_that_should_have_the_filter_runs_no_kernel_without_it(tmp_path, monkeypatch):
    """The system may refuse the filter although it accepted it before."""
    refusing = session.NATIVE.read_text().replace(
        "PR_SET_SECCOMP, BY_FILTER = 22, 2", "PR_SET_SECCOMP, BY_FILTER = 22, 9"
    )
    (tmp_path / "native.py").write_text(refusing)
    monkeypatch.setattr(session, "NATIVE", tmp_path / "native.py")
    monkeypatch.setattr(session, "filtered", lambda: True)
    assert graded(SOLUTIONS / "1_serial.c").why == "the process ended before the kernel returned: exit status 1"


def test_a_spoiled_timer_gives_no_speed():
    speed = {"against": "serial", "shape": [32, 32, 32], "repetitions": 3, "steps": [{"ratio": 0.5, "points": 4}]}
    grade = graded(CHEATS / "timer.c", shapes=1, speed=speed)
    assert grade.passed, grade.why
    assert (grade.points, grade.of) == (6, 10)
    assert grade.ratio < 0.5


def test_the_cheats_are_refused_for_their_reason(tmp_path):
    """The product of the cheats passes without what makes it a cheat."""
    lines = (CHEATS / "before_c.c").read_text().replace("    C[-1] = 0;\n", "")
    (tmp_path / "right.c").write_text(lines)
    shutil.copy(CHEATS / "product.h", tmp_path)
    grade = graded(tmp_path / "right.c", dtypes=["float32", "float64"])
    assert grade.passed, grade.why
    assert (grade.points, grade.error <= grade.bound) == (6, True)


@pytest.mark.parametrize(("operation", "rung"), [("matmul", "packed"), ("matmul", "pthread"), ("sum", "openmp")])
def test_a_rung_of_the_ladder_is_a_right_solution(operation, rung):
    source = kernels.source(OPERATIONS[operation], OPERATIONS[operation].variant(rung))
    grade = graded(source, operation=operation)
    assert grade.passed, grade.why


@pytest.mark.parametrize(
    ("include", "why"),
    [
        ('#include "/etc/passwd"', "includes"),
        ('#include "../other/solution.c"', "includes"),
        ("#include </etc/passwd>", "includes"),
        ('#include "matmul/products/packed.c"', "includes"),
        ("#include <matmul/products/packed.c>", "a kernel of this package"),
        ('#inc\\\nlude "evict.c"', "a kernel of this package"),
        ('/* */ #include "evict.c"', "a kernel of this package"),
        ('%:include "evict.c"', "a kernel of this package"),
        ("#define FILE <stdio.h>\n#include FILE", "includes"),
        ('#include "linked.h"', "a link"),
        ('#include "own.h"', "a kernel of this package"),
        ("#include <stddef.h>", ""),
        ('#include "ptx.cuh"', ""),
    ],
)
def test_what_a_source_may_include(tmp_path, include, why):
    (tmp_path / "own.h").write_text('#include "evict.c"\n')
    (tmp_path / "linked.h").symlink_to("/etc/passwd")
    (tmp_path / "a.c").write_text(f"{include}\n")
    if not why:
        sources.check_includes(tmp_path / "a.c")
        return
    with pytest.raises(session.Refused, match=why):
        sources.check_includes(tmp_path / "a.c")


@pytest.mark.parametrize(
    "content", [None, "link", "folder", "int x;", "/* hpcmm:\n     dtypes: [float64] */ void matmul();"]
)
def test_a_file_that_is_none(tmp_path, content):
    path = tmp_path / "a.c"
    if content == "link":
        path.symlink_to(CHEATS / "product.h")
    elif content == "folder":
        path.mkdir()
    elif content:
        path.write_text(content)
    grade = graded(path)
    assert not grade.passed
    assert grade.why.split(";")[0] in (
        "a.c is missing",
        "is not a file of its own",
        "a.c: operation: the file has none of the functions matmul, reduction, vector_add, copy",
        "its head leaves out the element type float32",
    )


def test_launches_without_an_end_are_refused(tmp_path):
    text = (SOLUTIONS / "7_reduction.cu").read_text()
    (tmp_path / "a.cu").write_text(text.replace("block: 128", "block: 1"))
    assert "block: a block of one element never reduces" in graded(tmp_path / "a.cu", operation="sum").why


def test_another_operation_than_the_rubrics_is_refused(tmp_path):
    (tmp_path / "a.c").write_text("/* hpcmm:\n     operation: vector_add */\nvoid vector_add(void) {}\n")
    assert graded(tmp_path / "a.c").why == "computes vector_add; the exercise is matmul"


# ---- processes and their memory ----


def test_the_structures_of_a_launch_are_those_of_the_emulation():
    for mine, theirs in ((native.Launch, launch.CLaunch), (native.Array, launch.CArray)):
        assert ctypes.sizeof(mine) == ctypes.sizeof(theirs)
        assert [each[0] for each in mine._fields_] == [each[0] for each in theirs._fields_]


BUSY = """
#include <pthread.h>
static void *work(void *unused)
{
    for (volatile long i = 0;; ++i)
        ;
    return unused;
}
void matmul(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
}
"""


def test_a_process_is_stopped_between_requests(tmp_path):
    """A thread that a kernel leaves behind cannot work while the clock does not run."""
    (tmp_path / "busy.c").write_text(BUSY)
    library = sources.compiled(tmp_path / "busy.c", {}, tmp_path, 60)
    with session.native(library, "matmul", 4096, 60, 1 << 30, 1) as own:
        assert own.ask([{"arguments": []}]).content == ""
        process = psutil.Process(own.process.pid)
        before = process.cpu_times()
        time.sleep(0.3)
        assert process.status() == psutil.STATUS_STOPPED
        assert process.num_threads() == 2
        assert process.cpu_times() == before
        assert own.ask([]).content == ""


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
    for what in ({"file": str(SOLUTIONS / "1_serial.c")}, {"variant": "serial"}, {"variant": "numpy"}):
        whole = np.zeros(guards.most_bytes(task), np.uint8)
        own = device.Device({"device": "cpu", "threads": 1, "operation": "matmul", **what}, whole)
        places, inputs = guards.layout(task, rng), MATMUL.draw(rng, task)
        guards.fill(whole, places, task, inputs, rng)
        before = whole.copy()
        request = {
            "place": [[each.name, each.begin, each.region, each.shape, each.dtype] for each in places],
            **{"shape": task.shape, "dtype": task.dtype, "scalars": task.scalars, "tile": 0},
        }
        for each in (request, "run"):
            own.answer(each)
        assert (before == whole).all() == copies
        own.answer("fetch")
        assert guards.trespass(before, whole, places, task) == ""
        assert MATMUL.reference(task, inputs)(places[-1].of(whole)).passed


def test_an_error_of_a_device_is_a_reply():
    with session.trusted({"device": "cpu", "threads": 1, "operation": "matmul", "variant": "serial"}, 4096, 60) as own:
        assert "not enough values to unpack" in own.ask({"place": [["A"]]}).content or own.ask("run").content


# ---- rubrics ----

WRONG = """
title: ''
seconds: 0
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
    path.write_text(WRONG.replace("seconds: 0", "seconds: 5").replace("title: ''", "title: x"))
    with pytest.raises(ConfigError) as caught:
        rubric.read(path)
    found = "\n".join(caught.value.problems)
    for each in (
        "exercises.one.speed.against: 'nobody' is not allowed; allowed: naive_unrolled",
        "exercises.one.speed.shape: [1] is not allowed; allowed: one number for each of m, n, k",
        "exercises.two.operation: 'product' is not allowed; allowed: matmul",
        "exercises.three.file: '../three.c' is not allowed; allowed: the name of a file with .c or .cu",
        "exercises.four.points: -1 is not allowed; allowed: at least 0",
        "exercises.four.dtypes: [] is not allowed; allowed: at least 1 entry",
        "exercises.five: unknown key 'bonus'; allowed: file, operation",
    ):
        assert each.replace("naive_unrolled", "") in found
    assert all(each.startswith(f"{path}: ") for each in caught.value.problems)


def test_errors_at_the_top_of_a_rubric():
    with pytest.raises(ConfigError) as caught:
        rubric.checked({"title": "", "seconds": 0, "points": 3, "exercises": {}})
    assert len(caught.value.problems) == 4


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
    path.write_text(json.dumps({"title": "C & <D>", "exercises": {"one": {**ENTRY, "file": "1_serial.c"}}}))
    return path


def test_one_submission_and_the_exit_status(tmp_path, asked, capsys):
    assert main(["grade", str(SOLUTIONS), "--rubric", str(asked)]) == 0
    assert capsys.readouterr().out.startswith(
        "solutions\n  one: PASS 6 of 6\nsolutions: 6 of 6 points, 1 of 1 exercises correct\n"
    )
    (tmp_path / "empty").mkdir()
    assert main(["grade", str(tmp_path / "empty"), "--rubric", str(asked)]) == 1
    assert "neither it nor a folder in it has a file of the rubric: 1_serial.c" in capsys.readouterr().err
    assert main(["grade", str(tmp_path / "nowhere"), "--rubric", str(asked)]) == 1


def test_many_submissions_as_json_and_as_a_page(tmp_path, asked, capsys):
    folder = tmp_path / "all"
    for each in ("anna", "<b>berta</b>", "\x1b[2Jcarl", ".git"):
        (folder / each).mkdir(parents=True)
    shutil.copy(SOLUTIONS / "1_serial.c", folder / "anna")
    (folder / "<b>berta<" / "b>").mkdir(parents=True, exist_ok=True)
    (folder / "anna" / "grades.json").write_text("{}")
    (folder / "dora").mkdir()
    (folder / "dora" / "1_serial.c").write_text("void matmul(void) { first();\n    second(; <i> }\n")
    json_file, page = tmp_path / "grades.json", tmp_path / "grades.html"
    arguments = ["grade", str(folder), "--rubric", str(asked), "--json", str(json_file), "--html", str(page)]
    assert main(arguments) == 3
    assert "\x1b" not in capsys.readouterr().out
    result = json.loads(json_file.read_text())
    assert {each["name"]: each["points"] for each in result["submissions"]}["anna"] == 6
    assert [each["points"] for each in result["submissions"]].count(0) == 3
    text = page.read_text()
    assert "<b>berta" not in text and "&lt;b&gt;berta" in text
    assert "C &amp; &lt;D&gt;" in text and "1_serial.c is missing" in text
    assert not re.search(r"(src|href)=[\"']?http", text)
    (error,) = re.findall(r"<pre tabindex=\"0\">(.*?)</pre>", text, re.DOTALL)
    assert re.search(r"\n +2 \| +second\(; &lt;i&gt; \}\n", error)  # with the indentation of its marks
    assert re.search(r"<strong>FAIL</strong> <small>does not compile:</small>", text)


def test_all_operations_have_a_rung_to_be_compared_with():
    for operation in with_kernels().values():
        exercise_of(
            "a.c",
            operation=operation.name,
            speed={"against": "serial", "shape": [8] * len(operation.dimensions), "steps": [{"ratio": 1, "points": 1}]},
        )
