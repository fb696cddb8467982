"""Comparison of two files: changes are found, noise is not, other devices and caches are refused."""

import dataclasses
import itertools
import math
import statistics

import numpy as np
import pytest
import timings
from hypothesis import given
from hypothesis import strategies as st
from timings import FAIL, call_samples, kernel_samples, measurement, merged, product, visit_samples

from hpcmm import store
from hpcmm.analysis import compare, evidence
from hpcmm.model import UNCHECKED, HpcmmError
from hpcmm.report import tables

NOISE = [1 + 0.001 * i for i in range(12)]
CONTROLS = range(1000, 1040)


def timed(point, seconds, noise=NOISE):
    return measurement(point, samples=kernel_samples([seconds * factor for factor in noise]))


def written(path, *rows, sweep="size", **provenance):
    return timings.write(path, {sweep: rows}, provenance)


def controls(seed=0, level=1.0, spread=0.001, sizes=CONTROLS):
    """Baselines beside variants: the same code in every file."""
    factors = level * np.exp(spread * np.random.default_rng(seed).standard_normal(len(sizes)))
    return [
        measurement(product(n=n), "cublas", samples=kernel_samples([(n % 40 + 20) / 40 * factor * x for x in NOISE]))
        for n, factor in zip(sizes, factors, strict=True)
    ]


def compared(before, after, beside=None, **how):
    """Compare two files that have 40 baselines beside variants, or those of ``beside``."""
    beside = (controls(1), controls(2)) if beside is None else beside
    files = [[*rows, *own] for rows, own in zip((before, after), beside, strict=True)]
    return compare.compare(*(timings.columns({"size": rows}) for rows in files), **how)


# --- the test ----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(p):
    """A point is called if every set of points with it is (Marcus, Peritz and Gabriel, Biometrika 63, 1976)."""
    subsets = [each for size in range(1, len(p) + 1) for each in itertools.combinations(range(len(p)), size)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in subsets if i in s) for i in range(len(p))]
    assert compare.adjusted(np.array(p)) == pytest.approx(expected)


@pytest.mark.parametrize(("count", "freedom"), [(25, np.inf), (25, 4), (300, 3)])
def test_an_unchanged_point_exceeds_the_critical_value_as_often_as_the_level_says(count, freedom):
    rng = np.random.default_rng(count)
    exceeded = []
    for _ in range(200):
        values = rng.standard_normal((count + 400,)) if np.isinf(freedom) else rng.standard_t(freedom, count + 400)
        chance = evidence.Chance(0.8 * values[:count], np.ones(count))
        exceeded.append((np.abs(0.8 * values[count:]) > chance.critical(evidence.ALPHA)).mean())
        assert chance.outside(chance.critical(0.003)) == pytest.approx(0.003, rel=0.02)
    assert np.mean(exceeded) <= 1.2 * evidence.ALPHA


def test_many_normal_controls_give_the_normal_distribution_and_few_a_wider_one():
    values = np.array([statistics.NormalDist().inv_cdf((i + 0.5) / 2000) for i in range(2000)])
    many = evidence.Chance(values, np.ones(len(values)))
    assert many.critical(0.005) == pytest.approx(2.807, rel=0.03)
    assert evidence.Chance(values[::100], np.ones(20)).critical(0.005) > 1.2 * many.critical(0.005)
    # values of one problem count as one
    assert evidence.Chance(values[::10], np.full(200, 0.1)).critical(0.005) > 1.2 * many.critical(0.005)


@pytest.mark.parametrize(("factor", "level"), [(1.004, 1.3), (0.996, 1.0), (1.05, 1.3), (0.95, 1.3)])
def test_the_level_that_all_baselines_share_is_removed(factor, level):
    before, after = [timed(product(), 1.0)], [timed(product(), factor * level)]
    found = compared(before, after, (controls(1, spread=0.0005), controls(2, level, 0.0005)))
    (row,) = found.rows.to_dict("records")
    assert row["verdict"] == ("same" if abs(factor - 1) < 0.01 else "slower" if factor > 1 else "faster")
    assert row["ratio"] == pytest.approx(1 / factor, rel=0.001)
    assert any("all take 30 % more time" in note for note in found.noise) is (level == 1.3)


def test_a_measured_change_is_called_from_the_least_on_that_is_stated():
    beside = controls(1, spread=0.02), controls(2, spread=0.02)
    before = [timed(product(n=n), 0.5) for n in (64, 128)]
    found = compared(before, [timed(product(n=n), 0.505) for n in (64, 128)], beside)
    assert set(found.rows["verdict"]) == {"ambiguous"}
    least, ratio = found.rows["least"].iloc[0], found.rows["ratio"].iloc[0]
    assert f"{100 * least:.2g} %" in found.noise[-1] and 0.03 < least < 0.3
    verdicts = []
    for part in (0.99, 1.01):
        seconds = 0.505 * ratio * math.exp(part * math.log1p(least))
        again = compared(before, [timed(product(n=n), seconds) for n in (64, 128)], beside)
        verdicts += list(again.rows["verdict"])
    assert verdicts == ["ambiguous", "ambiguous", "slower", "slower"]


@pytest.mark.parametrize("count", [0, 1, 20])
def test_without_enough_baselines_no_point_has_a_verdict(count):
    beside = [controls(seed, sizes=range(1000, 1000 + count)) for seed in (1, 2)]
    found = compared([timed(product(), 1.0)], [timed(product(), 2.0)], beside)
    (row,) = found.rows.to_dict("records")
    assert (row["verdict"], row["ratio"]) == ("not judged", pytest.approx(0.5))
    assert math.isnan(row["low"]) and math.isnan(row["p"]) and not found.judged
    assert found.changed.empty and found.regressions(0.0).empty
    assert any(f"{count} baseline" in note and "more than 20 are needed" in note for note in found.noise)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["scatter", "ring"], ids=["a CPU", "a ring of GPUs"])
@pytest.mark.parametrize(("likely", "visits"), [(0.3, 3), (0, 3), (0, 1)], ids=["states", "calm", "one visit"])
def test_points_may_have_states_that_no_baseline_has(likely, visits, algorithm):
    """A process may be half as fast, as with other pages. Visits show that; with one each, no point is judged."""
    variant, library, ranks = ("serial", "numpy", 1) if algorithm == "scatter" else ("naive", "cublas", 2)
    sizes, sides = range(100, 140), []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        beside, own = [], []
        for n in sizes:
            samples = visit_samples(np.exp(0.01 * rng.standard_normal(3)))
            beside.append(measurement(product(variant, n), library, samples=samples))
            times = np.exp(0.01 * rng.standard_normal(visits)) * np.where(rng.random(visits) < likely, 2.0, 1.0)
            times *= 1.4 if seed and n == sizes[0] else 1.0
            point = product(variant, n, ranks=ranks, algorithm=algorithm)
            own.append(measurement(point, samples=visit_samples(times)))
        alone = measurement(product(library, 50), samples=visit_samples([1.0 + seed] * visits))
        sides.append([*own, *beside, dataclasses.replace(alone, baseline=True)])
    found = compared(*sides, beside=((), ()))
    verdicts = found.rows.loc[found.rows["baseline"] == 0, "verdict"]
    if visits == 1:
        assert set(verdicts) == {"not judged"}
        assert any("have one visit, so that none is" in each for each in found.noise)
        if variant == "serial":  # on a CPU the library alone has states, too
            assert set(found.rows["verdict"]) == {"not judged"} and not found.judged
        return
    called = found.rows.loc[verdicts[verdicts.isin(["faster", "slower"])].index, "n"]
    assert set(called) == (set() if likely else {sizes[0]})


def test_baselines_of_another_library_show_no_level():
    """A library that became faster is no reason to call all variants slower."""
    files = []
    for i, driver in enumerate(("580", "590")):
        rows = [timed(product(n=n), 1.0 + 0.001 * n * i) for n in range(10, 20)] + controls(i, level=(1.0, 0.8)[i])
        files.append(of_kind(*rows, gpus=[{"name": "H200", "driver": driver}]))
    assert set(compare.compare(*files).rows["verdict"]) == {"ambiguous"}


def test_a_gate_calls_no_point_that_chance_explains_among_many():
    """One of 400 points differs by 3.4 standard errors, one by more than ten."""
    rng = np.random.default_rng(5)
    sizes = range(1000, 1400)
    before = [timed(product(n=n), 1.0) for n in range(100, 500)]
    spread = 0.02 * rng.standard_normal(400)
    after = [timed(product(n=n), math.exp(each)) for n, each in zip(range(100, 500), spread, strict=True)]
    after[3] = timed(product(n=103), math.exp(3.4 * 0.02))
    beside = controls(1, spread=0.0, sizes=sizes), controls(2, spread=0.02, sizes=sizes)
    found = compared(before, after, beside)
    assert 103 in set(found.changed["n"]) and found.regressions(0.0).empty
    after[7] = timed(product(n=107), 1.25)
    found = compared(before, after, beside)
    assert list(found.regressions(0.0)["n"]) == [107] and found.gate > found.rows["least"].median()


# --- points ------------------------------------------------------------------------------------------------------


def test_points_are_matched_by_their_parameters():
    before = [timed(product(tile=t, n=n), 1.0) for t, n in ((8, 64), (16, 64), (8, 128))]
    before += [timed(product("serial", dtype="float64"), 1.0), timed(product("tiled_padded", tile=8), 1.0)]
    after = [timed(product(tile=t, n=n), s) for t, n, s in ((8, 64, 2.0), (16, 64, 0.5), (8, 128, 1.0))]
    after += [timed(product("serial", dtype="float64", ranks=2), 1.0)]
    found = compared(before, after)
    verdicts = {(row["label"], row["n"]): row["verdict"] for _, row in found.rows.iterrows()}
    assert verdicts == {("naive 8", 64): "slower", ("naive 16", 64): "faster", ("naive 8", 128): "same"}
    assert (found.missing, found.added) == (2, 1)
    assert found.line == "3 points in both: 1 slower, 1 faster, 1 same; 2 only before, 1 only after"
    slow = found.rows[found.rows["verdict"] == "slower"].iloc[0]
    assert slow["ratio"] == pytest.approx(0.5, rel=0.01) and slow["before"] == pytest.approx(1.0055, rel=1e-4)


def test_an_algorithm_timed_end_to_end_is_compared_end_to_end():
    point = product("cublas", 64, "float32", 2, "staged")

    def rows(total):
        calls = [[{"kernel": 1.0, "total": total * factor}] * 2 for factor in NOISE]
        return [measurement(point, samples=call_samples(calls), algorithm="staged")]

    for total, verdict in ((5.0, "same"), (6.0, "slower")):
        samples = rows(1.0)[0].samples
        beside = [measurement(product(n=n), "cublas", samples=samples, algorithm="staged") for n in CONTROLS]
        (row,) = compared(rows(5.0), rows(total), (beside, beside)).rows.to_dict("records")
        assert (row["verdict"], row["label"]) == (verdict, "cublas staged, end to end")


def test_wrong_results_are_not_compared_by_time():
    points = [product(n=n) for n in (64, 128, 256)]
    before = [timed(points[0], 1.0), measurement(points[1], verdict=FAIL), measurement(points[2], verdict=FAIL)]
    after = [measurement(points[0], verdict=FAIL), timed(points[1], 1.0), measurement(points[2], verdict=FAIL)]
    found = compared(before, after)
    assert list(found.rows.sort_values("n")["verdict"]) == ["broken", "mended", "FAIL"]
    assert list(found.regressions(0.05)["n"]) == [64]
    first = tables.comparison_table(found.rows).rows[0][0]
    assert (first.text, first.note, first.kind) == ("broken", FAIL.where, "fail")


def test_points_that_a_file_did_not_measure_are_neither_wrong_nor_mended():
    points = [product(n=n) for n in (64, 128, 256)]
    missing = dataclasses.replace(FAIL, reference=UNCHECKED, where="not measured: no AMX")
    lost = [measurement(each, verdict=missing) for each in points]
    found = compared([timed(points[0], 1.0), *lost[1:]], [*lost[:2], timed(points[2], 1.0)])
    assert list(found.rows.sort_values("n")["verdict"]) == ["no longer measured", "not measured", "not measured"]
    assert list(found.changed["n"]) == list(found.regressions(0.05)["n"]) == [64]
    assert not found.judged, "no time has a verdict"
    first = tables.comparison_table(found.rows).rows[0][0]
    assert (first.text, first.note, first.kind) == ("no longer measured", "no AMX", "fail")


def test_files_without_common_points_are_refused():
    with pytest.raises(HpcmmError, match="no point in common"):
        compared([timed(product(), 1.0)], [timed(product(n=128), 1.0)])
    with pytest.raises(HpcmmError, match="a file has no measured point"):
        compare.compare(store.joined([]), store.joined([]))


KIND = {
    "gpus": [{"name": "H200", "uuid": "a", "driver": "580"}],
    "cpu": {"model": "T", "threads_per_rank": 8},
    "measuring": {"cache": "cold"},
}


def of_kind(*rows, **other):
    """Return the columns of a file with the provenance KIND, with some entries replaced."""
    return timings.columns({"size": rows}, KIND | other)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"gpus": [{"name": "A100", "uuid": "b"}]}, "GPU: H200, then A100"),
        ({"measuring": {"cache": "hot"}}, "caches: cold, then hot"),
        ({"cpu": {"model": "U", "threads_per_rank": 8}}, "CPU: T, then U"),
        ({"cpu": {"model": "T", "threads_per_rank": 4}}, "CPU threads per rank (ranks: 1): 8, then 4"),
    ],
)
def test_other_devices_or_caches_are_refused(other, difference):
    files = [of_kind(timed(product("serial"), 1.0), **each) for each in ({}, other)]
    with pytest.raises(HpcmmError, match="differ in device or caches") as error:
        compare.compare(*files)
    assert difference in str(error.value) and "--anyway" in str(error.value)
    assert difference in compare.compare(*files, anyway=True).differences


def test_points_are_compared_on_the_same_machine():
    seconds = {"H200": 1.0, "A100": 2.0}
    files = []
    for gpus in (("H200", "A100"), ("A100", "H200")):
        runs = [(KIND | {"gpus": [{"name": gpu}]}, {"size": [timed(product(), seconds[gpu])]}) for gpu in gpus]
        files.append(merged(*runs))
    assert compare.compare(*files).line == "2 points in both: 2 same; 0 only before, 0 only after"


def test_pageable_memory_is_not_compared_with_the_default():
    before = [timed(product(pinned=each), seconds) for each, seconds in ((False, 2.0), (True, 1.0))]
    with pytest.raises(HpcmmError, match="no point in common"):
        compared(before, [timed(product(), 1.0)])


def test_other_software_is_listed_and_compared():
    newer = {"gpus": [{"name": "H200", "uuid": "a", "driver": "590"}]}
    files = [of_kind(timed(product(), 1.0), **each) for each in ({}, newer)]
    assert compare.compare(*files).differences == ("driver: 580, then 590",)


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    rows = [[timed(product(), each), timed(product(n=128), 1.0), *controls(i)] for i, each in enumerate((1.0, 1.2))]
    before = written(tmp_path / "a.h5", *rows[0], host="<script>")
    after = written(tmp_path / "b.h5", *rows[1])
    return before, after


def test_the_command_lists_changes(command, files):
    done = command("compare", *files)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 points in both: 1 slower, 1 same; 0 only before, 0 only after" in done.stdout
    assert "slower" in done.stdout and "128" not in done.stdout
    assert "128" in command("compare", *files, "--all").stdout


def test_the_command_lists_the_largest_changes_and_no_ambiguous_point(command, tmp_path):
    factors = {n: 1.2 + 0.01 * n for n in range(1, 28)} | {28: 0.2}
    before = [timed(product(n=n), 1.0) for n in (*factors, 500)] + [timed(product(n=999), 1.0, [0.8, 1.3] * 6)]
    after = [timed(product(n=n), factor) for n, factor in factors.items()]
    after += [measurement(product(n=500), verdict=FAIL), timed(product(n=999), 1.0, [0.9, 1.3] * 6)]
    beside = controls(1, spread=0.02), controls(2, spread=0.02)
    paths = (written(tmp_path / "a.h5", *before, *beside[0]), written(tmp_path / "b.h5", *after, *beside[1]))
    out = command("compare", *paths).stdout
    assert "30 points in both: 1 broken, 27 slower, 1 ambiguous, 1 faster" in out
    rows = [line.split() for line in out.splitlines() if " naive " in line]
    assert [int(row[row.index("size") + 2]) for row in rows] == [500, *range(27, 9, -1), 28]
    assert "these are the 20 largest of 29 changes" in out
    assert "999" in command("compare", *paths, "--all").stdout


def test_a_gate_without_controls_has_a_status_of_its_own(command, tmp_path):
    path = written(tmp_path / "a.h5", timed(product(), 1.0))
    other = written(tmp_path / "b.h5", timed(product(), 3.0))
    done = command("compare", path, other, "--fail-on-regression", "5%")
    assert (done.returncode, done.stderr) == (4, "") and "0 baselines beside variants" in done.stdout
    assert command("history", path, other).stdout.endswith("1 point over 2 runs: none judged\n")
    for name in ("compare", "history"):
        assert command(name, path, other, "--html", tmp_path / "page.html").returncode == 0
        assert "No point has a verdict, so whether one changed is unknown." in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("share", "status"), [("5%", 3), ("0.05", 3), ("19%", 3), ("21%", 0)])
def test_the_exit_status_reports_regressions(command, files, share, status):
    assert command("compare", *files, "--fail-on-regression", share).returncode == status


def test_the_page_has_the_same_table(command, files, tmp_path):
    done = command("compare", *files, "--html", tmp_path / "out" / "compare.html")
    assert done.returncode == 0
    html = (tmp_path / "out" / "compare.html").read_text("utf-8")
    assert "<strong>" not in html and ">slower<" in html and ">same<" in html
    assert 'data-defined="verdict"' in html and 'id="verdict"' in html
