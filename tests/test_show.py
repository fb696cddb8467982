"""``hpcmm show``: the answer of a timings file and its tables, on terminals of any width and encoding."""

import dataclasses
import os
import subprocess
import sys

import pytest
import timings
from test_main import ASCII
from timings import FAIL, timed

from hpcmm import analysis
from hpcmm.analysis import scaling
from hpcmm.analysis.why import Known
from hpcmm.cli.arguments import COMMANDS
from hpcmm.cli.main import main
from hpcmm.report import answer, opening, page
from hpcmm.system import streams

GPU = {"gpus": [{"name": "NVIDIA H100", "uuid": "a"}]}


def product(name, seconds, dtype="float32", n=512, verdict=timings.PASS, scatter=0.001):
    """A point and its baseline, ``cublas`` in 1 ms, over nine visits."""
    point, spread = timings.product(name, n, dtype), [1 + scatter * (i - 4) for i in range(9)]
    beside = timed(point, 1e-3, "cublas", spread[::-1])
    return [timed(point, seconds, spread=spread, verdict=verdict), beside]


def written(folder, rows, omitted=()):
    path = timings.write(folder / "timings.h5", {"size": [each for pair in rows for each in pair]}, GPU)
    if omitted:
        timings.merge([path], folder / "merged.h5", list(omitted))
        return folder / "merged.h5"
    return path


@pytest.fixture
def said(tmp_path, capsys, monkeypatch):
    """Run the command on a file; return its lines."""

    def run(rows, *arguments, columns=100, omitted=()):
        monkeypatch.setattr(streams, "width", lambda: columns)
        path = written(tmp_path, rows, omitted)
        assert main(["show", str(path), *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def test_the_answer_has_the_fastest_rung_of_each_type_its_ratio_and_whether_to_believe_it(said):
    rows = [product("naive", 4e-3), product("large_thread_tile", 8e-4), product("large_thread_tile", 2e-3, "float64")]
    reason = {"sweep": "size", "variant": "openmp", "ranks": 1, "reason": "no CPU", "points": 0}
    lines = said(rows, columns=500, omitted=[reason])
    assert len(lines) == 5
    single, double, noise, counts, sweeps = lines
    assert single.startswith("float32 at 512 on the NVIDIA H100: large_thread_tile 336 GFLOP/s, 1.25× cublas")
    assert double.startswith("float64 at 512 on the NVIDIA H100: large_thread_tile 134 GFLOP/s, 0.500× cublas")
    low, high = map(float, single[single.index("(") + 1 : single.index(")")].split(" to "))
    assert low < 1.25 < high and high - low < 0.1
    assert single.endswith("), tuned cublaslt not measured"), "a headline has both libraries"
    assert noise.startswith("Quiet enough to believe")
    assert counts == "3 points: 3 PASS. 1 variant of sweeps not measured: no CPU."
    assert sweeps.endswith("Sweeps: size")


def test_many_types_share_the_last_line_with_both_libraries_and_the_gpu():
    types = ("float32", "float64", "float16", "bfloat16", "int8")
    rows = {"size": [each for dtype in types for each in product("naive", 8e-4, dtype)]}
    lines = answer.answer(*timings.analysed((GPU, rows)))
    end = "1.25× cublas, tuned cublaslt not measured"
    line = f"bfloat16 at 512: naive 336 GFLOP/s, {end}; int8 at 512: naive 336 GOP/s, {end}"
    assert lines[3].replace(" on the NVIDIA H100", "") == line


def test_the_answer_is_of_the_machine_with_which_the_page_begins_and_judges_it_alone():
    """The other one is faster, noisy, and has fewer points."""
    fast = product("naive", 1e-4, scatter=0.1)
    slow = [*product("naive", 8e-4), *product("large_thread_tile", 9e-4)]
    machines = [({"gpus": [{"name": name}]}, {"size": own}) for name, own in (("Fast", fast), ("Slow", slow))]
    columns, frame = timings.analysed(*machines)
    first, noise, counts = answer.answer(columns, frame)
    assert first.startswith("float32 at 512 on the Slow: naive 336 GFLOP/s")
    assert noise.startswith("Quiet enough to believe: ")
    assert "are about the machine with Slow. The report also has 1 other machine." in counts
    panel, *_ = opening.panels(frame, [], scaling.speedups(frame), Known.of(columns, frame))
    slow, fast = panel.headlines
    assert (slow.row["machine"], slow.value) == ("Slow", "336 GFLOP/s") and "is too noisy" in fast.text
    fast, slow = (each.partition("visits of one job ") for each in page.noises(analysis.points(frame)))
    assert fast[0].startswith("machine with Fast, GPU: ") and fast[2].startswith("29 %")
    assert slow[0].startswith("machine with Slow, GPU: ") and slow[2].startswith("0.27 %")


def test_a_noisy_machine_is_said_to_be(said):
    lines = said([product("naive", 4e-3, scatter=0.1)], columns=500)
    assert lines[1].startswith("Too noisy to believe") and "measure again" in lines[1]
    own, beside = product("openmp", 4e-3, scatter=0.1)
    lines = said([product("naive", 4e-3), [own, dataclasses.replace(beside, contender="numpy")]], columns=500)
    assert lines[1].startswith("Too noisy to believe on the CPU, quiet enough on the GPU: ")


def test_wrong_points_are_counted_and_shown(said):
    rows = [product("naive", 4e-3, verdict=FAIL), product("large_thread_tile", 8e-4)]
    assert "1 PASS, 1 FAIL (naive)." in said(rows, columns=500)[2]
    table = "\n".join(said(rows, "--only", "wrong"))
    assert "0:640" in table and "large_thread_tile" not in table


@pytest.mark.parametrize(("only", "name"), [("slower", "naive"), ("faster", "large_thread_tile")])
def test_only_takes_significant_differences(said, only, name):
    rows = [product("naive", 4e-3), product("large_thread_tile", 8e-4), product("tiled_padded", 1e-3)]
    text = "\n".join(said(rows, "size", "--only", only))
    assert {each for each in ("naive", "large_thread_tile", "tiled_padded") if each in text} == {name}
    assert said(rows[2:], "--only", only) == ["no such points"]


def test_a_ratio_to_the_textbook_is_not_said_to_be_to_the_library(said):
    point = timings.product("cublas", 512, ranks=2, algorithm="ring")
    rows = [timed(point, 1e-3, algorithm=each) for each in ("ring", "scatter")]
    caption, *lines = said([rows], "size", columns=500)
    assert "; ring: relative to scatter with the same rung;" in caption and "1.00×" in lines[-2]


def test_a_table_that_a_sweep_does_not_have_is_an_error(tmp_path, capsys):
    assert main(["show", str(written(tmp_path, [product("naive", 4e-3)])), "size.energy"]) == 1
    assert capsys.readouterr().err.endswith("sweep 'size' has no points for table 'energy'\n")


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("arguments", [("size",), ("size.ladder",)])
def test_a_table_is_not_wider_than_the_terminal(said, columns, arguments):
    rows = [product("naive", 4e-3), product("large_thread_tile", 8e-4)]
    lines = said(rows, *arguments, columns=columns)
    assert max(map(len, lines[1:])) <= columns  # the first one is text, which the stream folds
    assert sum(line.lstrip().startswith("naive") or " naive " in line for line in lines) >= 1


@pytest.mark.parametrize("columns", [60, 100])
def test_a_long_reason_is_folded_in_its_column(said, columns):
    verdict = dataclasses.replace(FAIL, where="0:640: " + "a long reason " * 12)
    lines = said([product("naive", 4e-3, verdict=verdict), product("tiled_padded", 4e-3)], "size", columns=columns)
    assert max(map(len, lines[1:])) <= columns
    assert " ".join(lines).count("reason") == 12


def test_a_terminal_without_utf_8_gets_similar_characters(tmp_path):
    path = written(tmp_path, [product("large_thread_tile", 8e-4)])
    command = [sys.executable, "-m", "hpcmm", "show", path]
    done = subprocess.run(command, env=os.environ | ASCII, capture_output=True, timeout=300)
    assert b"1.25x cublas" in done.stdout and b"\\x" not in done.stdout and done.stderr == b""


def test_a_misspelt_sweep_or_table_is_named(tmp_path, capsys):
    path = written(tmp_path, [product("naive", 4e-3)])
    for name, meant in (("sise", "size"), ("size.lader", "ladder")):
        assert main(["show", str(path), name]) == 1
        assert capsys.readouterr().err.splitlines()[-1].endswith(f"did you mean '{meant}'?")


def test_a_sweep_alone_is_one_of_the_own_results(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    written(tmp_path / "results", [product("naive", 4e-3)])
    for name in ("size", "size.ladder"):
        assert main(["show", name]) == 0
        assert "naive" in capsys.readouterr().out
    (tmp_path / "results/report.html").touch()
    assert main(["show", "results/report.html"]) == 0


def test_the_command_has_the_choices_of_the_report():
    assert set(COMMANDS["show"]["arguments"]["--only"]["choices"]) == set(answer.ONLY)


def test_a_folder_stands_for_its_timings_file_and_without_one_for_the_results(tmp_path, capsys, monkeypatch):
    written(tmp_path, [product("naive", 4e-3)]).rename(tmp_path / "moved.h5")
    (tmp_path / "results").mkdir()
    (tmp_path / "moved.h5").rename(tmp_path / "results" / "timings.h5")
    monkeypatch.chdir(tmp_path)
    answers = set()
    for arguments in ([], ["."], ["results"], ["results/timings.h5"]):
        assert main(["show", *arguments]) == 0
        answers.add(capsys.readouterr().out)
    assert len(answers) == 1
    assert main(["report", "--results", "results/timings.h5"]) == 0 and (tmp_path / "results" / "report.html").exists()
    capsys.readouterr()
    (tmp_path / "empty").mkdir()
    for command in (["show", "empty"], ["compare", "empty", "."], ["check", "empty"]):
        assert main(command) == 1
        assert "empty: no timings.h5 in this folder" in capsys.readouterr().err
