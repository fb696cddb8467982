"""Output of the CUDA toolkit's programs. The files in tests/tools are of a run on an H200, shortened."""

import dataclasses
import re
from collections import Counter
from pathlib import Path

import pytest
import timings

from hpcmm import analysis, backends, store
from hpcmm.bench import disassembly, profiling, sanitizing, tools
from hpcmm.cli.main import main
from hpcmm.model import DeviceError, Task, Verdict
from hpcmm.model.measurement import Point, Profile
from hpcmm.operations import MATMUL
from hpcmm.report import bench as benched

OUTPUTS = Path(__file__).with_name("tools")
EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"
LISTING = (OUTPUTS / "tiled.sass").read_text()


# --- compute-sanitizer ---------------------------------------------------------------------------------------------


def report(name: str) -> sanitizing.Report:
    return sanitizing.read(name.partition("-")[2], (OUTPUTS / f"{name}.txt").read_text())


def test_an_access_out_of_bounds_has_its_line_its_thread_and_its_point():
    assert report("beyond-memcheck") == sanitizing.Report(
        "memcheck",
        "3 errors",
        "Invalid __global__ read of size 4 bytes, in beyond.cu:25, by thread (0,1,0) in block (0,0,0), "
        "Access to 0x7fb37d800604 is out of bounds, "
        "and is 1 bytes after the nearest allocation at 0x7fb37d800600 of size 4 bytes",
        "beyond.cu",
        25,
        "beyond.cu 1x1x1 float32 tile 16",
    )


def test_a_race_has_both_lines_and_the_first_point_in_which_it_was_seen():
    found = report("racy-racecheck")
    assert found.what == (
        "Error: Race reported between Write access in racy.cu:17 and Read access in racy.cu:20 [256 hazards]"
    )
    assert (found.line, found.point) == (17, "racy.cu 1x17x33 float32 tile 16")
    source = (EXAMPLES / "racy.cu").read_text().splitlines()
    assert source[16].strip().startswith("b[y][x] =") and source[19].strip().startswith("sum +=")


def test_a_divergent_barrier_has_its_line():
    found = report("divergent-synccheck")
    assert found.what.startswith("Barrier error detected. Divergent thread(s) in warp, in divergent.cu:21, by thread")
    assert (found.file, found.line, found.summary) == ("divergent.cu", 21, "128 errors")


def test_a_right_kernel_has_nothing_to_report():
    assert report("tiled-memcheck") == sanitizing.Report("memcheck", "0 errors")


@pytest.mark.parametrize("output", ["", "point: a\n", "========= COMPUTE-SANITIZER\nFatal: no device\n"])
def test_output_without_a_sum_is_no_verdict(output):
    what = sanitizing.read("memcheck", output).what
    assert what.startswith("did not finish") and output.strip().rpartition("\n")[2] in what


def test_the_lines_of_sanitizers():
    lines = [
        benched.sanitizer_line({"kernel": f"{name.partition('-')[0]}.cu", **dataclasses.asdict(report(name))})
        for name in ("tiled-memcheck", "racy-racecheck")
    ]
    assert lines[0] == "tiled.cu: memcheck: PASS, 0 errors"
    assert lines[1].endswith(
        "[256 hazards], at 1x17x33 float32 tile 16 (32 hazards displayed (16 errors, 16 warnings))"
    )


# --- nvdisasm ------------------------------------------------------------------------------------------------------


def test_instructions_are_counted_by_class_without_the_padding():
    (name, found), *others = disassembly.mixes(LISTING).items()
    assert name == "matmul" and not others
    code = LISTING.partition("/*07a0*/")[0]  # the endless loop after EXIT
    assert found.whole.total() == len(re.findall(r"^ +/\*\w+\*/", code, re.MULTILINE))
    opcodes = re.findall(r"/\*\w+\*/ +(?:@\S+ )?(\w+)", code)
    assert found.whole["float32"] == sum(each in ("FFMA", "FMUL", "FSETP") for each in opcodes)
    assert found.whole["global load"] == opcodes.count("LDG") == 3
    assert found.whole["shared store"] == opcodes.count("STS") == 2
    assert found.whole["other"] == 0


def test_the_inner_loop_is_that_of_the_products():
    """Its 16 products per tile are unrolled; the loop of one element of C has two loads and two stores."""
    loop = disassembly.mixes(LISTING)["matmul"].loop
    assert (loop["float32"], loop["global load"], loop["shared store"]) == (16, 2, 2)
    assert loop["global store"] == 0


def test_the_innermost_of_nested_loops_counts():
    lines = ["f:", ".text.f:", ".L_x_0:", "/*0000*/ IADD3 R1, R1, 1 ;", ".L_x_1:", "/*0010*/ FFMA R2, R2, R2, R2 ;"]
    lines += ["/*0020*/ @P0 BRA `(.L_x_1) ;", "/*0030*/ @!UP1 BRA `(.L_x_0) ;", "/*0040*/ EXIT ;"]
    found = disassembly.mixes("\n".join(lines))["f"]
    assert found.whole == Counter({"control": 3, "integer": 1, "float32": 1})
    assert found.loop == Counter({"float32": 1, "control": 1})


def test_code_without_a_loop():
    found = disassembly.mixes(".text.f:\n/*0000*/ DFMA R2, R2, R2, R2 ;\n/*0010*/ EXIT ;\n")["f"]
    assert found.whole == Counter({"float64": 1, "control": 1}) and not found.loop


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("HGMMA.64x128x8.F32.TF32", "tensor"), ("DMMA.8x8x4", "tensor"), ("UTMALDG.2D", "asynchronous copy"),
        ("LDGSTS.E.BYPASS.128", "asynchronous copy"), ("LDSM.16.M88.4", "shared load"), ("LDL.128", "local memory"),
        ("ATOMS.ADD", "shared store"), ("RED.E.ADD.F32", "global store"), ("F2FP.BF16.F32.PACK_AB", "conversion"),
        ("UIADD3.X", "integer"), ("IMAD.MOV.U32", "move"), ("BAR.SYNC.DEFER_BLOCKING", "control"), ("NONE", "other"),
    ],
)  # fmt: skip
def test_classes_of_instructions(name, kind):
    assert disassembly.class_of(name) == kind


def test_the_table_of_instructions():
    found = disassembly.mixes(LISTING)["matmul"]
    rows = [{"kernel": "tiled.cu TILE=16 float32", "whole": dict(found.whole), "loop": dict(found.loop)}]
    head, _, *lines = benched.instruction_table(rows).strip().splitlines()
    assert head.split("  ")[0] == "instructions" and "inner loop" in head
    assert lines[-1].split() == ["all", str(found.whole.total()), str(found.loop.total())]


# --- Nsight Compute ------------------------------------------------------------------------------------------------


def test_the_counters_of_kernels_are_shown_and_missing_ones_are_explained(tmp_path):
    """The answer of Nsight Compute for naive and bank_conflict, through the file to the text."""
    answer = profiling.kernels((Path(__file__).with_name("nsight_compute.csv")).read_text())
    right = Verdict(True, 1e-8, 1e-7, "componentwise, float64")
    points = [
        Point("matmul", name, (1024,) * 3, "float32", 1, dict(MATMUL.scalars)) for name in ("naive", "bank_conflict")
    ]
    found = [Profile(point, right, "matmul", 1, answer[i].counters) for point, i in zip(points, (0, 6), strict=True)]
    store.write_profiles(tmp_path / "a.h5", "matmul", {}, found)
    columns = store.read(tmp_path / "a.h5")
    head, _, *lines = benched.profile_table(columns).strip().splitlines()
    assert head.split() == ["counter", "naive", "bank_conflict"]
    rows = {each[0]: each[1:] for each in (re.split(r"\s{2,}", line.strip()) for line in lines)}
    assert rows["Achieved occupancy"][0] == "94 % (of 100 %)"
    assert rows["Conflict factor of shared loads"] == ["4.50"]
    assert [each["kernel"] for each in benched.profiles(columns)] == ["naive", "bank_conflict"]
    assert benched.profiles(columns)[0]["achieved_occupancy"] == pytest.approx(0.9359)
    timings.merge([timings.write(tmp_path / "b.h5", {"bench": [timings.measurement(points[0])]})], tmp_path / "c.h5",
                unprofiled=[{"operation": "matmul", "reason": "not permitted"}])  # fmt: skip
    columns = store.read(tmp_path / "c.h5")
    assert benched.profiles(columns) == [] and benched.profile_table(columns) == ""
    assert list(analysis.unprofiled(columns).values()) == ["not permitted"]


# --- programs that are not installed -------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [sanitizing, profiling, disassembly], ids=lambda module: module.PROGRAM)
def test_a_program_that_is_missing_is_named_before_anything_runs(module, monkeypatch, capsys, forgotten):
    option = {"compute-sanitizer": ["--sanitize"], "ncu": ["--profile"], "nvdisasm": ["--sass", "-"]}[module.PROGRAM]
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tools, "PLACES", ())
    assert main(["bench", str(EXAMPLES / "tiled.cu"), *option]) == 1
    output, errors = capsys.readouterr()
    assert errors == f"hpcmm: error: {option[0]}: {module.NOT_INSTALLED}\n" and not output


def test_a_file_that_is_no_machine_code(tmp_path):
    if tools.find(disassembly.PROGRAM) is None:
        pytest.skip(disassembly.NOT_INSTALLED)
    (tmp_path / "a.cubin").write_text("none")
    with pytest.raises(DeviceError, match=r"a\.cubin"):
        disassembly.disassemble(tmp_path / "a.cubin")


@pytest.mark.parametrize("option", ["--sanitize", "--profile", "--sass=-"])
def test_these_options_are_for_cuda_sources_on_a_gpu(option, capsys, forgotten):
    for more, message in (
        ([str(EXAMPLES / "by_rows.c")], "by_rows.c is not a CUDA source"),
        ([str(EXAMPLES / "tiled.cu"), "--on-host"], "not with --on-host"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["bench", *more, option])
        assert end.value.code == 2 and message in " ".join(capsys.readouterr().err.split())


# --- on a GPU ------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_the_machine_code_of_a_rung_is_that_which_runs(gpu):
    """Both compilations agree on the number of registers; the listing has the products of the kernel."""
    if tools.find(disassembly.PROGRAM) is None:
        pytest.skip(disassembly.NOT_INSTALLED)
    task = Task(MATMUL, MATMUL.variant("naive"), (64, 64, 64), "float32", MATMUL.scalars, tile=16)
    listing = disassembly.disassemble(backends.machine_code(task))
    assert disassembly.mixes(listing)["matmul"].loop["float32"] >= 1


# --- the page for kernel writers -----------------------------------------------------------------------------------


def test_the_finding_on_the_page_is_that_of_the_real_output():
    page = (EXAMPLES.parents[1] / "docs" / "transcripts" / "sanitize.txt").read_text()
    line = benched.sanitizer_line({"kernel": "racy.cu", **dataclasses.asdict(report("racy-racecheck"))})
    assert line.split(" (")[0] in page  # how many hazards are displayed differs from run to run
