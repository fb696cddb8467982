"""Comparison of two files: changes are found, noise is not, other devices and caches are refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import timings
from hypothesis import example, given, settings
from hypothesis import strategies as st
from timings import FAIL, call_samples, kernel_samples, measurement, merged

from hpcmm import store
from hpcmm.analysis import compare
from hpcmm.measurement import Point
from hpcmm.report import tables

MATMUL = {"alpha": 1.5, "beta": 0.5}
NOISE = [1 + 0.001 * i for i in range(12)]


def product(variant="naive", n=64, dtype="float32", ranks=1, tile=0, pinned=None, **scalars):
    return Point("matmul", variant, (n, n, n), dtype, ranks, {**MATMUL, **scalars}, tile=tile, pinned=pinned)


def timed(point, seconds, noise=NOISE):
    return measurement(point, samples=kernel_samples([seconds * factor for factor in noise]))


def written(path, *rows, sweep="size", **provenance):
    return timings.write(path, {sweep: rows}, provenance)


def compared(tmp_path, before, after, **how):
    for name in ("a", "b"):
        (tmp_path / name).mkdir(exist_ok=True)
    columns = [
        store.read(written(tmp_path / name / f"{name}.h5", *rows)) for name, rows in (("a", before), ("b", after))
    ]
    return compare.compare(*columns, **how)


# --- the test ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (5, 4), (6, 6), (3, 7)])
def test_the_distribution_of_u_counts_all_arrangements(n, m):
    counts = np.zeros(n * m + 1)
    for places in itertools.combinations(range(n + m), n):
        counts[sum(place - i for i, place in enumerate(places))] += 1
    assert compare._below(n, m) == pytest.approx(np.cumsum(counts) / counts.sum())


def test_small_samples_approach_the_normal_distribution_of_large_ones():
    exact, normal = compare._below(30, 30), compare._below(31, 31)
    for share in (0.001, 0.01, 0.1):
        at = [np.searchsorted(each, share) / len(each) for each in (exact, normal)]
        assert at[0] == pytest.approx(at[1], abs=0.01)

    # mean and variance of u have known formulas
    chances, u = np.diff(normal, prepend=0.0), np.arange(31 * 31 + 1)
    mean = (chances * u).sum()
    assert mean == pytest.approx(31 * 31 / 2, rel=1e-3)
    assert (chances * (u - mean) ** 2).sum() == pytest.approx(31 * 31 * (31 + 31 + 1) / 12, rel=2e-3)


def two_sided(first, second) -> float:
    """The Mann-Whitney test by enumerating all arrangements of the ranks."""
    n, m = len(first), len(second)
    wins = sum((a > b) + (a == b) / 2 for a, b in itertools.product(first, second))
    least = math.ceil(min(wins, n * m - wins))
    places = list(itertools.combinations(range(n + m), n))
    return min(1.0, 2 * sum(sum(each) - n * (n - 1) // 2 <= least for each in places) / len(places))


distinct = st.lists(st.floats(1.0, 2.0), min_size=6, max_size=6, unique=True)


@settings(max_examples=20)
@given(distinct, distinct)
def test_the_interval_inverts_the_test(first, second):
    found = compare.change(first, second)
    if found.verdict == "same":
        return  # within the margin; or equal samples
    quotients = sorted(a / b for a, b in itertools.product(first, second))
    assert found.ratio == pytest.approx(math.sqrt(quotients[17] * quotients[18]))
    assert found.p == pytest.approx(two_sided(first, second))
    for below, above in itertools.pairwise([0.4, *quotients, 2.1]):
        if above - below > 1e-9:
            factor = (below + above) / 2
            kept = two_sided(first, [factor * each for each in second]) > compare.ALPHA
            assert kept is (found.low < factor < found.high)


@pytest.mark.parametrize(
    ("factor", "spread", "verdict"),
    [
        *((1.005, 0.001, "same"), (1.015, 0.001, "slower"), (1.008, 0.02, "ambiguous"), (1.008, 0.008, "ambiguous")),
        *((1.0095, 0.001, "same"), (1.0105, 0.001, "slower")),  # one beyond 1 %, the other not
    ],
)
def test_a_change_needs_an_interval_without_1_and_a_ratio_beyond_the_margin(factor, spread, verdict):
    before = [1.0 + spread * i / 11 for i in range(12)]
    after = [factor * (each + 1e-6) for each in before]
    there, back = compare.change(before, after), compare.change(after, before)
    assert (there.verdict, back.verdict) == (verdict, {"slower": "faster"}.get(verdict, verdict))
    if spread == 0.008:  # 1 is outside, and 1.01 inside
        assert there.high < 1 and there.low < 1 / 1.01


def noisy(rng, count, spread, factor=1.0):
    """Skewed times with some outliers, like measured times."""
    times = factor * np.exp(spread * rng.standard_normal(count)) + factor * spread * rng.exponential(size=count)
    return times * np.where(rng.random(count) < 0.03, 1.5, 1.0)


@pytest.mark.parametrize("count", [10, 30])
@pytest.mark.parametrize("spread", [0.002, 0.01, 0.05])
def test_noise_is_not_a_change(count, spread):
    rng = np.random.default_rng([count, int(1e4 * spread)])
    alarms = 0
    for _ in range(1000):
        found = compare.change(noisy(rng, count, spread), noisy(rng, count, spread))
        alarms += found.verdict in ("faster", "slower")
    assert alarms < 10


@pytest.mark.parametrize("factor", [1.03, 1 / 1.03])
def test_a_change_of_three_percent_is_found(factor):
    rng = np.random.default_rng(3)
    expected = "slower" if factor > 1 else "faster"
    verdicts = [compare.change(noisy(rng, 20, 0.005), noisy(rng, 20, 0.005, factor)).verdict for _ in range(300)]
    assert verdicts.count(expected) > 290


times = st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=20)


@given(times)
def test_a_sample_is_the_same_as_itself(sample):
    found = compare.change(sample, sample)
    assert (found.verdict, found.ratio, found.p) == ("same", 1.0, 1.0)


@given(times, times)
@example([1.0001] * 3 + [1.02] * 3, [1.0] * 6)  # the quotients in the middle lie on either side of what matters
def test_swapping_the_samples_inverts_the_verdict(one, other):
    there, back = compare.change(one, other), compare.change(other, one)
    turned = {"faster": "slower", "slower": "faster"}
    assert back.verdict == turned.get(there.verdict, there.verdict)
    assert back.p == pytest.approx(there.p)
    if there.low == there.low:
        assert back.low == pytest.approx(1 / there.high) and back.high == pytest.approx(1 / there.low)
        assert there.low <= there.ratio <= there.high or there.ratio == pytest.approx(there.low)


def test_a_change_within_the_margin_is_none():
    before = [1.0 + 0.0001 * i for i in range(20)] + [2.0, 3.0, 4.0]
    after = [seconds * 1.005 for seconds in before[:20]] + [9.0, 9.1, 9.2]
    found = compare.change(before, after)
    assert found.high < 1 and found.verdict in ("same", "ambiguous")


def test_five_repetitions_are_ambiguous():
    found = compare.change([1.0, 1.1, 1.2, 1.3, 1.4], [9.0, 9.1, 9.2, 9.3, 9.4])
    assert found.verdict == "ambiguous" and found.low != found.low
    assert found.ratio == pytest.approx(1.2 / 9.2, rel=0.05)


# --- points ------------------------------------------------------------------------------------------------------


def test_points_are_matched_by_their_parameters(tmp_path):
    before = [timed(product(tile=t, n=n), 1.0) for t, n in ((8, 64), (16, 64), (8, 128))]
    before += [timed(product("serial", dtype="float64"), 1.0), timed(product("tiled_padded", tile=8), 1.0)]
    after = [timed(product(tile=t, n=n), s) for t, n, s in ((8, 64, 2.0), (16, 64, 0.5), (8, 128, 1.0))]
    after += [timed(product("serial", dtype="float64", ranks=2), 1.0)]
    found = compared(tmp_path, before, after)
    verdicts = {(row["label"], row["n"]): row["verdict"] for _, row in found.rows.iterrows()}
    assert verdicts == {("naive 8", 64): "slower", ("naive 16", 64): "faster", ("naive 8", 128): "same"}
    assert (found.missing, found.added) == (2, 1)
    assert found.line == "3 points in both: 1 slower, 1 faster, 1 same; 2 only before, 1 only after"
    slow = found.rows[found.rows["verdict"] == "slower"].iloc[0]
    assert slow["ratio"] == pytest.approx(0.5) and slow["before"] == pytest.approx(1.0055, rel=1e-4)


def test_the_slowest_rank_counts_and_scopes_are_separate(tmp_path):
    def rows(kernel, total):
        calls = [[{"kernel": 1.0, "total": total * factor}] * 2 for factor in NOISE]
        samples = (*kernel_samples([(0.1, kernel * factor) for factor in NOISE]), *call_samples(calls))
        return [measurement(product(ranks=2), samples=samples)]

    assert list(compared(tmp_path, rows(1.0, 5.0), rows(2.0, 5.0)).rows["verdict"]) == ["slower"]
    assert list(compared(tmp_path, rows(1.0, 5.0), rows(2.0, 5.0), scope="call").rows["verdict"]) == ["same"]


def test_an_algorithm_timed_end_to_end_is_compared_end_to_end(tmp_path):
    point = Point("matmul", "cublas", (64,) * 3, "float32", 2, MATMUL, "staged")

    def rows(total):
        calls = [[{"kernel": 1.0, "total": total * factor}] * 2 for factor in NOISE]
        return [measurement(point, samples=call_samples(calls), algorithm="staged")]

    for total, verdict in ((5.0, "same"), (6.0, "slower")):
        (row,) = compared(tmp_path, rows(5.0), rows(total)).rows.to_dict("records")
        assert (row["verdict"], row["label"]) == (verdict, "cublas staged, end to end")


def test_wrong_results_are_not_compared_by_time(tmp_path):
    points = [product(n=n) for n in (64, 128, 256)]
    before = [timed(points[0], 1.0), measurement(points[1], verdict=FAIL), measurement(points[2], verdict=FAIL)]
    after = [measurement(points[0], verdict=FAIL), timed(points[1], 1.0), measurement(points[2], verdict=FAIL)]
    found = compared(tmp_path, before, after)
    assert list(found.rows.sort_values("n")["verdict"]) == ["broken", "mended", "FAIL"]
    assert list(found.regressions(0.05)["n"]) == [64]
    first = tables.comparison_table(found.rows).rows[0][0]
    assert (first.text, first.note, first.kind) == ("broken", FAIL.where, "fail")


@pytest.mark.parametrize(("factor", "count"), [(1.04, 0), (1.06, 1), (0.5, 0)])
def test_a_regression_exceeds_the_given_share(tmp_path, factor, count):
    found = compared(tmp_path, [timed(product(), 1.0)], [timed(product(), factor)])
    assert len(found.regressions(0.05)) == count


def test_a_renamed_variant_is_compared_with_itself(tmp_path):
    after = store.read(written(tmp_path / "b.h5", timed(product("large_thread_tile"), 2.0)))
    before = store.read(written(tmp_path / "a.h5", timed(product("large_thread_tile"), 1.0)))
    names = {name: np.full(1, "oblong", object) for name in ("variant", "contender")}
    store.write_groups(tmp_path / "a.h5", before | {"measurements": before["measurements"] | names})
    (row,) = compare.compare(store.read(tmp_path / "a.h5"), after).rows.to_dict("records")
    assert (row["label"], row["verdict"], row["ratio"]) == ("large_thread_tile", "slower", pytest.approx(0.5, rel=0.01))


def test_files_without_common_points_are_refused(tmp_path):
    with pytest.raises(compare.ComparisonError, match="no point in common"):
        compared(tmp_path, [timed(product(), 1.0)], [timed(product(n=128), 1.0)])
    empty = tmp_path / "empty.h5"
    store.merge([], empty)
    with pytest.raises(compare.ComparisonError, match="a file has no measured point"):
        compare.compare(store.read(empty), store.read(empty))


KIND = {
    "gpus": [{"name": "H200", "uuid": "a", "driver": "580"}],
    "cpu": {"model": "T", "threads_per_rank": 8},
    "measuring": {"cache": "cold"},
}


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"gpus": [{"name": "A100", "uuid": "b"}]}, "GPU: H200, then A100"),
        ({"measuring": {"cache": "hot"}}, "caches: cold, then hot"),
        ({"cpu": {"model": "U", "threads_per_rank": 8}}, "CPU: T, then U"),
        ({"cpu": {"model": "T", "threads_per_rank": 4}}, "CPU threads per rank (ranks: 1): 8, then 4"),
    ],
)
def test_other_devices_or_caches_are_refused(tmp_path, other, difference):
    (tmp_path / "b").mkdir()
    point = product("serial")
    files = [
        store.read(written(tmp_path / "a.h5", timed(point, 1.0), **KIND)),
        store.read(written(tmp_path / "b" / "b.h5", timed(point, 1.0), **KIND | other)),
    ]
    with pytest.raises(compare.ComparisonError, match="differ in device or caches") as error:
        compare.compare(*files)
    assert difference in str(error.value) and "--anyway" in str(error.value)
    assert difference in compare.compare(*files, anyway=True).differences


def test_points_are_compared_on_the_same_machine(tmp_path):
    seconds = {"H200": 1.0, "A100": 2.0}
    files = []
    for name, gpus in (("a", ("H200", "A100")), ("b", ("A100", "H200"))):
        (tmp_path / name).mkdir()
        runs = [(KIND | {"gpus": [{"name": gpu}]}, {"size": [timed(product(), seconds[gpu])]}) for gpu in gpus]
        files.append(merged(tmp_path / name, *runs))
    assert compare.compare(*files).line == "2 points in both: 2 same; 0 only before, 0 only after"


def test_pageable_memory_is_not_compared_with_the_default(tmp_path):
    before = [timed(product(pinned=each), seconds) for each, seconds in ((False, 2.0), (True, 1.0))]
    with pytest.raises(compare.ComparisonError, match="no point in common"):
        compared(tmp_path, before, [timed(product(), 1.0)])


def test_other_software_is_listed_and_compared(tmp_path):
    (tmp_path / "b").mkdir()
    newer = KIND | {"gpus": [{"name": "H200", "uuid": "a", "driver": "590"}]}
    files = [
        store.read(written(tmp_path / "a.h5", timed(product(), 1.0), **KIND)),
        store.read(written(tmp_path / "b" / "b.h5", timed(product(), 1.0), **newer)),
    ]
    assert compare.compare(*files).differences == ("driver: 580, then 590",)


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    (tmp_path / "b").mkdir()
    before = written(tmp_path / "a.h5", timed(product(), 1.0), timed(product(n=128), 1.0), host="<script>")
    after = written(tmp_path / "b" / "b.h5", timed(product(), 1.2), timed(product(n=128), 1.0))
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
    (tmp_path / "b").mkdir()
    paths = written(tmp_path / "a.h5", *before), written(tmp_path / "b" / "b.h5", *after)
    out = command("compare", *paths).stdout
    assert "30 points in both: 1 broken, 27 slower, 1 ambiguous, 1 faster" in out
    rows = [line.split() for line in out.splitlines() if " size " in line]
    assert [int(row[row.index("size") + 2]) for row in rows] == [500, *range(27, 9, -1), 28]
    assert "these are the 20 largest of 29 changes" in out
    assert "999" in command("compare", *paths, "--all").stdout


@pytest.mark.parametrize(("share", "status"), [("5%", 3), ("0.05", 3), ("19%", 3), ("21%", 0)])
def test_the_exit_status_reports_regressions(command, files, share, status):
    assert command("compare", *files, "--fail-on-regression", share).returncode == status


def test_a_file_is_the_same_as_itself(command, files):
    done = command("compare", files[0], files[0], "--fail-on-regression", "0%")
    assert done.returncode == 0 and "2 points in both: 2 same" in done.stdout


def test_the_command_reports_errors_in_one_line(command, files, tmp_path):
    assert (
        command("compare", files[0], tmp_path / "none.h5").stderr
        == f"hpcmm: error: {tmp_path / 'none.h5'}: no such file\n"
    )
    done = command("compare", *files, "--fail-on-regression", "much")
    assert done.returncode == 2 and "'much' is not allowed; allowed: a share such as 5% or 0.05" in done.stderr


def test_the_page_has_the_same_table(command, files, tmp_path):
    done = command("compare", *files, "--html", tmp_path / "out" / "compare.html")
    assert done.returncode == 0
    html = (tmp_path / "out" / "compare.html").read_text("utf-8")
    assert "<strong>" not in html and ">slower<" in html and ">same<" in html
    assert 'data-defined="verdict"' in html and 'id="verdict"' in html
