"""Trends over many modelled runs: a planted change is found, where it was planted, and no other."""

import json
import math
import re
from datetime import datetime, timedelta

import numpy as np
import pytest
import simulated_runs
import timings
from timings import FAIL, measurement, product

from hpcmm import store
from hpcmm.analysis import compare, history
from hpcmm.cli.main import main
from hpcmm.model.measurement import Sample
from hpcmm.report import history as shown

SIZES = range(64, 64 + 22)


def timed(rng, point, seconds, contender=""):
    """A contender whose three visits scatter by 0.3 %, and repetitions by 0.2 %."""
    samples = []
    for visit in range(3):
        state = 0.003 * rng.standard_normal()
        for i in range(4):
            time = seconds * math.exp(state + 0.002 * rng.standard_normal())
            samples.append(Sample(4 * visit + i, 0, False, {"kernel": time}, visit=visit))
    return measurement(point, contender, samples=samples)


def night(folder, number, seed, factors=None, wrong=(), sizes=SIZES, **provenance):
    """Write the file of one night; ``factors`` has the time of a size over its usual time."""
    rng = np.random.default_rng([seed, number])
    drift = math.exp(0.004 * rng.standard_normal())  # a state of the machine that all points share
    rows = []
    for n in sizes:
        seconds = 1e-4 * n / 64 * drift
        own = timed(rng, product(n=n), seconds * (factors or {}).get(n, 1.0))
        rows.append(measurement(product(n=n), verdict=FAIL) if n in wrong else own)
        rows.append(timed(rng, product(n=n), seconds / 2, "cublas"))
    utc = (datetime(2026, 1, 1, 3) + timedelta(days=number)).isoformat()
    path = folder / f"{number % 7}{number}.h5"  # not in the order of the dates
    return timings.write(path, {"size": rows}, {"utc": utc, "revision": f"r{number}", "host": "node1", **provenance})


def nights(folder, seed, count=7, since=99, factors=None, **how):
    return [night(folder, i, seed, factors if i >= since else None, **how) for i in range(count)]


def followed(paths, scope="kernel"):
    return history.history({str(path): store.read(path) for path in paths}, scope)


def steps(found):
    return [(trend.point["n"], step.run, step.change.verdict) for trend in found.trends for step in trend.steps]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["AR(1)", "blocks of all points"])
def test_states_that_last_for_several_runs_are_no_changes(kind, monkeypatch):
    monkeypatch.setattr(simulated_runs, "POINTS", 110)
    rng = np.random.default_rng(21)
    found = simulated_runs.followed(rng, 0.01 * simulated_runs.lasting(rng, kind, 16, 6))
    assert sum(map(bool, found)) <= 3  # the level allows 0.75 on average

    changed = simulated_runs.followed(rng, 0.002 * simulated_runs.lasting(rng, kind, 16, 6), 1.05, since=8)
    assert np.mean([each == [(8, "slower")] for each in changed[60:]]) > 0.8  # the points of 100 us and more


def test_unchanged_runs_have_no_change_and_a_page_that_explains_no_figure(tmp_path):
    found, page = followed(nights(tmp_path, 0, count=4)), tmp_path / "pages" / "history.html"
    assert steps(found) == []
    shown.build(found, page)
    assert "No point changed" in page.read_text() and "The line in a figure" not in page.read_text()


def test_planted_changes_are_found_where_they_were_planted(tmp_path, capsys):
    """A bad night is two changes, a broken point is one, and the newest change comes first."""
    lasting = {70: 1.08, 75: 0.9}
    for i in range(7):
        night(tmp_path, i, 5, {66: 1.2} if i == 3 else lasting if i > 3 else None, wrong=(80,) if i > 4 else ())
    found = followed(sorted(tmp_path.iterdir()))
    broken = (80, 5, "broken")
    assert sorted(steps(found)) == [(66, 3, "slower"), (66, 4, "faster"), (70, 4, "slower"), (75, 4, "faster"), broken]
    assert [run.revision for run in found.runs] == [f"r{i}" for i in range(7)]
    (slower,) = (trend.steps[0] for trend in found.trends if trend.point["n"] == 70)
    assert slower.change.low < 1 / 1.08 < slower.change.high
    assert slower.after / slower.before == pytest.approx(1.08, rel=0.02)

    assert main(["history", str(tmp_path)]) == 0  # a folder
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines() if re.match("2026-.* (slower|faster|broken) ", line)]
    assert [line[0] for line in lines] == ["2026-01-06", *["2026-01-05"] * 3, "2026-01-04"]
    assert lines[0][2] == "broken" and [line[-1] for line in lines] == ["r5", "r4", "r4", "r4", "r3"]
    assert "22 points over 7 runs: 4 changed" in text


def test_json_has_all_points_and_no_constant_of_javascript(tmp_path, capsys):
    nights(tmp_path, 8, count=4, since=2, factors={64: 1.5}, wrong=(65,))
    page = tmp_path / "pages" / "history.html"
    assert main(["history", str(tmp_path), "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [run["utc"][:10] for run in found["runs"]] == [f"2026-01-0{i}" for i in range(1, 5)]
    by_size = {trend["n"]: trend for trend in found["trends"]}
    assert len(by_size) == 22
    (change,) = by_size[64]["changes"]
    assert (change["run"], change["verdict"]) == (2, "slower") and change["low"] < 1 / 1.5 < change["high"]
    assert by_size[65]["results"] == ["FAIL"] * 4 and by_size[65]["seconds"] == [None] * 4
    assert page.read_text().count('class="chart"') == page.read_text().count("The line in a figure") == 1


@pytest.mark.slow
def test_other_machines_are_other_trends_and_a_changed_library_has_no_controls(tmp_path):
    cpus = [{"model": "A", "cores": 2, "blas": "1"}, {"model": "B", "cores": 2, "blas": "1"}]
    paths = [night(tmp_path, i, 9, {n: 1 + i % 2 for n in SIZES}, sizes=(64, 65), cpu=cpus[i % 2]) for i in range(6)]
    found = followed(paths)
    assert steps(found) == []
    trends = {(trend.point["machine"], trend.runs) for trend in found.trends}
    assert trends == {("A, 2 cores", (0, 2, 4)), ("B, 2 cores", (1, 3, 5))}
    other = night(tmp_path, 8, 9, mpi={"library": "M 2"}, cpu=cpus[0] | {"blas": "2"})
    columns = [store.read(path) for path in (paths[0], paths[2], other)]
    # naive and cublas run on a GPU, so that the BLAS of the CPU is no library of theirs
    assert len({compare.libraries_of(each) for each in columns}) == 1
    assert history._runs(["a", "b"], columns[::2])[1].differences == ()


def test_a_point_that_a_later_file_took_over_is_one_run(tmp_path):
    paths = nights(tmp_path, 10, count=3, sizes=(64, 65))
    columns = [store.read(path) for path in paths]
    timings.merge(paths[:2], tmp_path / "both.h5")
    files = {"a": columns[0], "b": columns[1], "both": store.read(tmp_path / "both.h5"), "c": columns[2]}
    assert {trend.runs for trend in history.history(files).trends} == {(0, 1, 3)}


@pytest.mark.slow
def test_one_visit_of_each_run_is_enough_with_controls(monkeypatch):
    monkeypatch.setattr(simulated_runs, "VISITS", 1)
    states = np.zeros((2 * simulated_runs.POINTS, 10))
    found = simulated_runs.followed(np.random.default_rng(11), states, 1.1, since=5)
    assert np.mean([each == [(5, "slower")] for each in found[120:180]]) > 0.9  # the points of 1 ms


@pytest.mark.slow
def test_without_controls_nothing_changes(tmp_path, capsys):
    paths = nights(tmp_path, 3, sizes=range(64, 74), since=4, factors={66: 3.0})
    found = followed(paths)
    assert steps(found) == []
    assert any("10 baselines beside variants; more than 20 are needed" in note for note in found.noise)


def test_files_without_a_history_are_refused(tmp_path, capsys):
    path = night(tmp_path, 1, 1)
    assert main(["history", str(path)]) == 1
    assert "a history needs two or more timings files" in capsys.readouterr().err
    (tmp_path / "run" / "results").mkdir(parents=True)
    other = {"other": [timed(np.random.default_rng(), product(n=9), 1)]}
    timings.write(tmp_path / "run" / "results" / "timings.h5", other)
    assert main(["history", str(path), str(tmp_path / "run")]) == 1  # a folder of a run stands for its file
    assert "no point is in two of these files" in capsys.readouterr().err
