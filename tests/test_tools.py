"""Output of the CUDA toolkit's programs. The files in tests/tools are of a run on an H200, shortened."""

import dataclasses
import re
from pathlib import Path

import pytest
import timings

from hpcmm import analysis, store
from hpcmm.bench import profiling, sanitizing, tools
from hpcmm.cli.main import main
from hpcmm.model.measurement import Profile
from hpcmm.report import bench as benched

OUTPUTS = Path(__file__).with_name("tools")
EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"


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
    race = "Race reported between Write access in racy.cu:17 and Read access in racy.cu:20 [256 hazards]"
    assert found.what == f"Error: {race}"
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
    text = "[256 hazards], at 1x17x33 float32 tile 16 (32 hazards displayed (16 errors, 16 warnings))"
    assert lines[1].endswith(text)


def test_the_counters_of_kernels_are_shown_and_missing_ones_are_explained(tmp_path):
    """The answer of Nsight Compute for naive and bank_conflict, through the file to the text."""
    answer = profiling.kernels((Path(__file__).with_name("nsight_compute.csv")).read_text())
    points = [timings.product(name, 1024) for name in ("naive", "bank_conflict")]
    counted = zip(points, answer[::6], strict=True)
    found = [Profile(point, timings.PASS, "matmul", 1, kernel.counters) for point, kernel in counted]
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


@pytest.mark.parametrize("module", [sanitizing, profiling], ids=lambda module: module.PROGRAM)
def test_a_program_that_is_missing_is_named_before_anything_runs(module, monkeypatch, capsys, forgotten):
    option = {"compute-sanitizer": ["--sanitize"], "ncu": ["--profile"]}[module.PROGRAM]
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tools, "PLACES", ())
    assert main(["bench", str(EXAMPLES / "tiled.cu"), *option]) == 1
    output, errors = capsys.readouterr()
    assert errors == f"hpcmm: error: {option[0]}: {module.NOT_INSTALLED}\n" and not output


def test_the_finding_on_the_page_is_that_of_the_real_output():
    page = (EXAMPLES.parents[1] / "docs" / "transcripts" / "sanitize.txt").read_text()
    line = benched.sanitizer_line({"kernel": "racy.cu", **dataclasses.asdict(report("racy-racecheck"))})
    assert line.split(" (")[0] in page  # how many hazards are displayed differs from run to run
