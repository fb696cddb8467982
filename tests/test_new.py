"""New kernels from rungs, and the course."""

import doctest
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tasks import needs_compilers
from test_grade import isolated
from test_kernels_compiled import compiled

from hpcmm import backends
from hpcmm.cli import new
from hpcmm.cli.main import main, parser
from hpcmm.experiment import own_kernels
from hpcmm.grading import rubric
from hpcmm.model import HpcmmError, Task
from hpcmm.operations import OPERATIONS, heads

TESTS = Path(__file__).parent
SOLUTIONS, PAGE = TESTS / "solutions", TESTS.parent / "docs" / "teachers.md"
NOT_COMPILED = new.COURSE / "22_fault_names.cu"  # that it does not compile is its fault
COPIED = [pytest.param(*each, id=f"{each[0].name}-{each[1].name}") for each in new.rungs()]
NOT_COPIED = {
    "split_k", "skinny", "stream_k_fma", "split_k_dmma", "stream_k_dmma", "persistent_dmma", "stream_k", "persistent",
    "multicast", "split_k_wgmma", "tf32", "three_fp16", "ozaki_14", "ozaki_15", "few_rows_wgmma", "fitted_wgmma",
    "short_k_wgmma", "short_k_mma", "stream_k_wgmma", "int8_transposed", "amx_blocked", "amx", "int8_slices",
    "int8_residues", "fixed_parts_fma", "undivided_dmma", "undivided_wgmma", "undivided_few_rows", "strassen_1",
    "strassen_2", "strassen_3", "direct_mma", "int8_direct",
}  # fmt: skip


def test_a_full_disk_is_an_error_that_leaves_no_part_of_a_file(tmp_path, monkeypatch, limited_files):
    monkeypatch.chdir(tmp_path)
    arguments = parser().parse_args(["new", "mine", "--like", "serial"])
    with pytest.raises(HpcmmError, match=r"^mine\.c: cannot be written: File too large$"), limited_files(100):
        arguments.run(arguments)
    assert not list(tmp_path.iterdir())


def test_rungs_with_a_head_that_describes_the_launch_can_be_copied():
    ladder = [variant for variant in OPERATIONS["matmul"].ladder if not variant.path]  # other tests add files
    compiled = {variant.name for variant in ladder if variant.compiled}
    found = {variant.name for operation, variant in new.rungs() if operation.name == "matmul" and not variant.path}
    assert found == compiled - NOT_COPIED


@pytest.mark.parametrize(("operation", "variant"), COPIED)
def test_a_copy_of_a_rung_has_its_record(operation, variant, tmp_path):
    path = tmp_path / f"mine.{'cu' if variant.device == 'cuda' else 'c'}"
    path.write_text(new.text_of("mine", operation, variant))
    own = own_kernels.read(path)
    assert operation.name in own.operations
    copy = own.variant
    for dtype in copy.dtypes:
        assert dtype in operation.dtypes_of(variant)
        if variant.device == "cuda":
            assert copy.geometry_of(dtype) == variant.geometry_of(dtype)
    kept = ("architecture", "tiles", "options", "pitched", "guard_rows", "cooperative", "exact", "capacity", "change")
    assert [getattr(copy, key) for key in kept] == [getattr(variant, key) for key in kept]
    assert all(copy.arithmetic.get(each) == variant.arithmetic.get(each) for each in copy.dtypes)
    text = path.read_text()
    assert not re.search(rf'#include "{operation.kernels}/\w+[.]cu"', text), "the copy has the whole source"


def test_a_new_kernel_says_what_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "first", "--like", "tiled_padded"]) == 0
    assert main(["new", "second", "--like", "vector_add/vectorized"]) == 0
    assert main(["new", "third.c", "--like", "packed"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrote")] == [
        f"wrote first.cu: matmul, starts as tiled_padded ({OPERATIONS['matmul'].variant('tiled_padded').change})",
        "wrote second.cu: vector_add, starts as vectorized (16 bytes per load)",
        "wrote third.c: matmul, starts as packed (packed panels, register tiles and cache blocks, SIMD "
        "chosen at run time, all threads)",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.cu", "second.cu", "third.c"]
    (tmp_path / "first.cu").write_text("mine")
    capsys.readouterr()
    assert main(["new", "first", "--like", "naive"]) == 1
    assert "exists already: first.cu" in capsys.readouterr().err
    assert (tmp_path / "first.cu").read_text() == "mine"


def test_a_course_is_not_written_over_another(tmp_path):
    new.write_course(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(HpcmmError, match=r"exists already: .*01_serial\.c"):
        new.write_course(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_course_has_a_file_a_solution_and_a_line_for_each_exercise():
    asked = rubric.read(new.COURSE / "rubric.yaml")
    files = {each.file for each in asked.exercises}
    of_course, solved = ({path.name for path in each.iterdir() if path.is_file()} for each in (new.COURSE, SOLUTIONS))
    assert of_course - {"README.md", "rubric.yaml"} == files == solved
    listed = re.findall(r"^\| `(\w+\.\w+)`", (new.COURSE / "README.md").read_text(), re.MULTILINE)
    assert listed == [each.file for each in asked.exercises]
    for each in files:
        skeleton, solution = (heads.head_of((at / each).read_text(), at / each) for at in (new.COURSE, SOLUTIONS))
        assert skeleton == solution
        assert "TODO" in (new.COURSE / each).read_text()


@pytest.mark.parametrize(
    "path",
    [path for path in (*sorted(new.COURSE.glob("*.cu")), *sorted(SOLUTIONS.glob("*.cu"))) if path != NOT_COMPILED],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_skeletons_and_solutions_compile_for_a_gpu_without_warnings_and_spills(path):
    own = own_kernels.read(path)
    operation = OPERATIONS[own.operations[0]]
    dtype = own.variant.dtypes[-1]
    constants = Task(operation, own.variant, (), dtype, operation.scalars, max(own.variant.tiles, default=0)).macros
    found = compiled(path.read_text(), "sm_80", tuple(f"-D{name}={value}" for name, value in constants.items()))
    assert found["spill_stores"] == found["stack"] == 0


# What differs between runs: ratios and what depends on them, shapes and numbers of a wrong result.
CHANGING = (
    (r"[\d.e+]+x (\w+)", r"# x \1"),
    (r"^      (wrong result|read of|write of|race in|the bits) .*", "      reason"),
    (r"(02_vectorized: PASS) \d+", r"\1 #"),
    (r"^(anna:) \d+", r"\1 #"),
)


def masked(text: str) -> str:
    for pattern, mask in CHANGING:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return text


@pytest.mark.slow
@pytest.mark.skipif(not backends.missing("cuda"), reason="the transcripts are of a machine without a GPU")
@needs_compilers
@isolated
def test_the_transcripts_for_teachers(tmp_path, monkeypatch, capsys):
    """The output of each command equals the page: solutions pass, skeletons compile and fail."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copytree(SOLUTIONS, tmp_path / "submissions" / "anna")
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    steps = [step for block in blocks for step in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]
    assert len(steps) >= 4
    for command, wanted in steps:
        program, *arguments = shlex.split(command)
        if program == "cp":
            shutil.copytree(arguments[1], arguments[2])
            continue
        if program == "cat":
            Path(arguments[0]).write_text(wanted)
            continue
        assert program == "hpcmm"
        main(arguments)
        found = capsys.readouterr()
        got = masked(found.out + found.err)
        assert doctest.OutputChecker().check_output(masked(wanted), got, doctest.ELLIPSIS), f"{command}\n{got}"
    points = {each["name"]: each for each in json.loads(Path("grades.json").read_text())["submissions"]}
    assert points["anna"]["passed"] == len(points["anna"]["exercises"]) == len([*SOLUTIONS.glob("*.*")])
    assert points["berta"]["passed"] == 0
    uncompiled = [each["file"] for each in points["berta"]["exercises"] if "compile" in each["why"]]
    assert uncompiled == [NOT_COMPILED.name]
