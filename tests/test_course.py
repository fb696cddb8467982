"""The course: what the emulation counts, and right and wrong solutions of every exercise."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks import needs_compilers
from test_grade import isolated

from hpcmm import backends
from hpcmm.backends.emulated import launch
from hpcmm.cli import new
from hpcmm.grading import counts, exercise, ranks, rubric, sandbox
from hpcmm.model.launch import Launch
from hpcmm.operations import OPERATIONS
from hpcmm.system import files
from hpcmm.system.reader import ConfigError

SOLUTIONS = Path(__file__).parent / "solutions"
COURSE = rubric.read(new.COURSE / "rubric.yaml")
EXERCISES = {each.name: each for each in COURSE.exercises}

GATHER = Path(__file__).with_name("gather.cu").read_text()
SIZE, TURNS = 512, 3


def expected(at: np.ndarray, size: int, shared: bool) -> dict[str, int]:
    """Count the accesses of one instruction per turn, by sets of bytes, words and banks."""
    found = {"warps": 0, "lanes": 0, "parts": 0, "least": 0}
    for turn in at:
        nth = [turn[first : first + 32] for first in range(0, len(turn), 32)]
        for warp in nth:
            found["warps"] += bool((warp >= 0).any())
            found["lanes"] += int((warp >= 0).sum())
            if not shared:
                used = {int(i) * size + byte for i in warp if i >= 0 for byte in range(size)}
                found["parts"] += len({byte // 32 for byte in used})
                found["least"] += -(-len(used) // 32)
                continue
            step = 32 if size <= 4 else 128 // size
            for first in range(0, 32, step):
                part = [int(i) for i in warp[first : first + step] if i >= 0]
                words = {(i * size + byte) // 4 for i in part for byte in range(size)}
                found["parts"] += max((sum(word % 32 == bank for word in words) for bank in range(32)), default=0)
                found["least"] += bool(part)
    return found


@needs_compilers
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["signed char", "short", "float", "double"]),
    st.sampled_from([(32, 1), (16, 2), (40, 1), (8, 8), (100, 1), (128, 1)]),
    st.sampled_from([1, 2, 3, 16, 17, 32, 33]),
    st.integers(0, 2**31),
)
def test_sectors_and_wavefronts_are_those_of_sets_of_words(kind, block, stride, seed):
    """Lanes that a branch leaves out, partial warps, strides and broadcasts, whatever the order of the threads."""
    source = files.cache() / "gather.cu"
    source.write_text(GATHER)
    dtype = np.dtype({"signed char": "i1", "short": "i2", "float": "f4", "double": "f8"}[kind])
    constants = [f"-DT={kind}", f"-DSIZE={SIZE}", f"-DTURNS={TURNS}"]
    kernel = launch.compile_kernel(source, "gather", constants, files.cache())
    kernel.counted = True
    rng, threads = np.random.default_rng(seed), block[0] * block[1]
    at = np.arange(threads) * stride % SIZE + np.zeros((TURNS, 1), int)
    at[1] = rng.integers(-1, SIZE, threads)
    at[2, rng.random(threads) < 0.5] = -1
    at = at.astype("i4")
    x, y = launch.on_device(np.zeros(SIZE, dtype)), launch.on_device(np.zeros(threads, dtype))
    kernel(Launch((1,), block, (x, launch.on_device(at), y)), launch.ORDERS[seed % 3])
    found = counts.read(kernel.counts(), 1)
    assert (found.launches, found.barriers, found.mmas) == (1, 1, 0)
    for shared in (False, True):
        wanted = expected(at, dtype.itemsize, shared)
        same = [each for each in found.accesses if each.shared == shared and each.kind == counts.READ]
        assert any({key: getattr(each, key) for key in wanted} == wanted for each in same), (wanted, same)
    again = counts.read(kernel.counts(), 1)
    assert not again.accesses and not again.barriers


def of_exercise(path: Path, name: str, shapes: int = 2) -> exercise.Grade:
    """Grade a file by an exercise of the course, on fewer shapes and without its speed."""
    asked = dataclasses.replace(EXERCISES[name], shapes=shapes, speed=None)
    return exercise.grade(path, asked, np.random.default_rng(), sandbox.chosen(trust=False))


@isolated
@needs_compilers
@pytest.mark.skipif(bool(backends.missing("cuda")), reason="without a GPU, test_new.py grades all of both")
@pytest.mark.parametrize("name", EXERCISES)
def test_a_right_solution_has_full_marks_and_the_skeleton_none(name):
    file = EXERCISES[name].file
    grade = of_exercise(SOLUTIONS / file, name)
    assert grade.passed, grade.why
    assert grade.points == grade.of == EXERCISES[name].points
    grade = of_exercise(new.COURSE / file, name, shapes=4)
    assert (grade.passed, grade.points) == (False, 0)


WRONG = [
    (name, why, changes)
    for name, cases in yaml.safe_load(Path(__file__).with_name("wrong_solutions.yaml").read_text()).items()
    for why, *changes in cases
]


@isolated
@needs_compilers
@pytest.mark.parametrize(
    ("name", "why", "changes"),
    [
        pytest.param(*each, id=f"{each[0]}-{i}", marks=pytest.mark.slow if each[0] == WRONG[i - 1][0] else ())
        for i, each in enumerate(WRONG)
    ],
)
def test_a_wrong_solution_is_refused_with_what_leads_to_the_right_one(name, changes, why, tmp_path):
    path = tmp_path / EXERCISES[name].file
    text = (SOLUTIONS / path.name).read_text()
    comment, end, text = text.partition("*/\n" if path.suffix == ".c" else "\n\n")
    for old, fresh in changes:
        assert old in text
        text = text.replace(old, fresh, 1)
    path.write_text(comment + end + text)
    found_by_chance = re.search("wrong|bounds|race|nothing", why)  # a count is the same for any shapes
    grade = of_exercise(path, name, shapes=6 if found_by_chance else 2)
    assert not grade.passed
    on_gpu = "" if backends.missing("cuda") else "|wrong result|wrote outside|illegal memory access"
    assert re.search(f"{why}{on_gpu}", grade.why), grade.why


@pytest.mark.slow
@isolated
@needs_compilers
def test_a_compiler_that_protects_stacks_by_default_is_no_obstacle(monkeypatch):
    """The thread of a right solution has an array."""
    monkeypatch.setattr(launch, "FLAGS", ("-fstack-protector-all", *launch.FLAGS))
    grade = of_exercise(SOLUTIONS / "11_registers.cu", "11_registers")
    assert grade.passed, grade.why


RUNGS = [
    ("05_coalescing", "matmul", "naive_unrolled"), ("06_ragged", "matmul", "tiled_remainder"),
    ("09_tiled", "matmul", "tiled_padded"), ("10_padded", "matmul", "conflict_free"),
    ("11_registers", "matmul", "register_1d"), ("23_fault_corner", "matmul", "corner_turned"),
    ("26_fault_lockstep", "sum", "unrolled"),
]  # fmt: skip


@pytest.mark.slow
@isolated
@needs_compilers
@pytest.mark.parametrize(("name", "operation", "rung"), RUNGS)
def test_a_rung_with_the_property_has_full_marks(name, operation, rung, tmp_path):
    """Other ways than that of the hints: the property counts, not how it is reached."""
    variant = OPERATIONS[operation].variant(rung)
    tile = 32 if name in ("10_padded", "23_fault_corner") else 16
    text = new.text_of("mine", OPERATIONS[operation], variant).replace("tiles: [8, 16, 32]", f"tiles: [{tile}]")
    path = tmp_path / EXERCISES[name].file
    path.write_text(text)
    grade = of_exercise(path, name)
    assert grade.passed, grade.why


@isolated
@needs_compilers
@pytest.mark.parametrize("name", ["09_tiled", "26_fault_lockstep"])
def test_what_a_gpu_may_pass_is_found_by_the_emulation(name, monkeypatch, tmp_path):
    """A race that a GPU does not show: the run that is counted finds it, with its line."""
    monkeypatch.setattr(exercise.Solution, "check", lambda *_: (0.0, 0.0))
    path = tmp_path / EXERCISES[name].file
    text = (SOLUTIONS / path.name).read_text()
    for barrier, fresh in (
        ("        __syncthreads();\n    }\n    if (row", "    }\n    if (row"),
        ("__syncwarp();", ""),
    ):
        text = text.replace(barrier, fresh)
    path.write_text(text)
    grade = of_exercise(path, name)
    assert not grade.passed and re.search("race in shared memory: .* in line", grade.why), grade.why


def test_the_solution_with_mpi_is_right_under_mpi_itself(mpiexec):
    program = Path(__file__).parent / "mpi_programs" / "course.py"
    done = mpiexec(3, str(program), str(SOLUTIONS / EXERCISES["20_block_rows"].file))
    assert done.stdout.split() == ["right"], done.stderr


ONES = np.ones(6)
MISUSES = [
    (lambda c: c.Bcast(np.empty(3 + c.rank)), "message truncated|never written"),
    (lambda c: c.Bcast(np.empty(3, "f4" if c.rank else "f8")), "float64 is received as float32"),
    (lambda c: c.Scatter(np.ones(7), np.empty(2)), "7 elements are not a multiple of 3 ranks; use Scatterv"),
    (lambda c: c.Scatterv([ONES, [1, 2]], np.empty(1)), "2 counts for 3 ranks"),
    (lambda c: c.Scatterv([ONES, [4, 4, 4]], np.empty(4)), "exceed the 6 elements"),
    (lambda c: c.Bcast(ONES.reshape(3, 2).T), "not contiguous"),
    (lambda c: c.Bcast([1.0]), "a buffer is a NumPy array"),
    (lambda c: c.rank or c.Barrier(), "waits in Barrier for ever: .*returned"),
    (lambda c: c.Recv(np.empty(1), source=(c.rank + 1) % 3), "waits in Recv from rank . for ever"),
    (lambda c: c.Bcast(np.empty(1), root=c.rank), "ranks call different functions"),
    (lambda c: c.Gather(ONES, np.empty(6) if c.rank == 0 else None), "message truncated"),
    (lambda c: c.scatter([1, 2]), "needs a list of 3 objects"),
    (lambda c: c.Reduce(ONES, None), "no Comm.Reduce; it has Barrier, Bcast, .*Scatterv"),
    (lambda c: 1 / c.rank, "rank 0 raised ZeroDivisionError"),
]


@pytest.mark.parametrize("call", range(len(MISUSES)))
def test_a_misuse_of_mpi_is_an_error(call, monkeypatch):
    misuse, why = MISUSES[call]
    monkeypatch.setattr(ranks, "SECONDS", 0.3)
    error, _ = ranks.run(lambda: misuse(ranks.Communicator()), 3, {}, {})
    assert re.search(why, error), error


def test_messages_arrive_and_are_counted():
    def work():
        comm, parts = ranks.Communicator(), [3, 0, 2]
        own = np.full(parts[comm.rank], -1.0)
        comm.Scatterv([np.arange(5.0), parts, [2, 0, 0], ranks.Type("DOUBLE")] if comm.rank == 0 else None, own)
        assert own.tolist() == [[2, 3, 4], [], [0, 1]][comm.rank]
        all_of_them = np.zeros(5)
        comm.Gatherv(own, [all_of_them, (parts, [2, 0, 0])] if comm.rank == 0 else None)
        assert comm.rank or all_of_them.tolist() == [0, 1, 2, 3, 4]
        assert comm.bcast({"a": np.ones(4)} if comm.rank == 0 else None)["a"].sum() == 4
        assert comm.scatter([10, 11, 12] if comm.rank == 0 else None) == 10 + comm.rank
        assert comm.gather(comm.rank) == ([0, 1, 2] if comm.rank == 0 else None)
        comm.Send(np.full(2, float(comm.rank)), dest=(comm.rank + 1) % 3, tag=7)
        got = np.empty(2)
        comm.Recv(got, source=(comm.rank - 1) % 3)
        assert (got == (comm.rank - 1) % 3).all()
        comm.Barrier()

    error, sent = ranks.run(work, 3, {}, {})
    assert error == ""
    assert sent == 2 + 2 + 2 * 4 + 3 * 2


@pytest.mark.parametrize(("entry", "why"), yaml.safe_load(Path(__file__).with_name("wrong_rubrics.yaml").read_text()))
def test_errors_of_a_rubric(entry, why):
    with pytest.raises(ConfigError) as caught:
        rubric.checked({"exercises": {"one": {"points": 1, **entry}}})
    assert re.search(why, "\n".join(caught.value.problems)), caught.value.problems


def test_every_exercise_has_a_hint_and_a_wrong_solution():
    assert {name for name, _, _ in WRONG} == {*EXERCISES}
    for each in COURSE.exercises:
        text = (new.COURSE / each.file).read_text()
        assert "Task:" in text and "Hints:" in text
        assert each.hint or each.sheet


def test_the_page_says_how_many_points_are_reached_without_a_gpu():
    of = sum(each.of for each in COURSE.exercises)
    without = sum(each.of if not each.device.accelerator else each.points for each in COURSE.exercises)
    text = " ".join((new.COURSE / "README.md").read_text().split())
    assert f"{without:g} of the {of:g} points can be reached. The other {of - without:g} are for speed" in text
