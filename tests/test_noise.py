"""The spread between visits: its statistics against known values, and what they call changed of what did not."""

import math

import numpy as np
import pytest
import simulated_runs
import timings
from timings import derived, measurement, product, took

from hpcmm import analysis
from hpcmm.analysis import noise, visits
from hpcmm.analysis.evidence import Evidence
from hpcmm.model.measurement import Sample


def test_special_functions_have_known_values():
    euler = 0.57721566490153286
    assert noise.digamma(np.array([1.0, 0.5, 10.0])) == pytest.approx(
        [-euler, -euler - 2 * math.log(2), sum(1 / i for i in range(1, 10)) - euler], abs=1e-9
    )
    assert noise.trigamma(np.array([1.0, 0.5])) == pytest.approx([math.pi**2 / 6, math.pi**2 / 2], abs=1e-9)
    y = np.array([0.01, 0.5, 1.6, 30.0])
    assert noise.trigamma(noise.inverse_trigamma(y)) == pytest.approx(y, rel=1e-6)


@pytest.mark.parametrize(
    ("share", "freedom", "value"),  # a table of Student's t
    [(0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 10, 2.228), (0.005, 4, 5.598), (0.01, 60, 2.660), (0.05, 1e9, 1.960)],
)
def test_critical_values_follow_students_t(share, freedom, value):
    assert noise.critical(share, freedom) == pytest.approx(value, rel=3e-4)
    assert noise.outside(value, freedom) == pytest.approx(share, rel=3e-3)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 30])
def test_the_spread_of_a_median_equals_the_spread_of_many_medians(count):
    medians = np.median(np.random.default_rng(count).standard_normal((100_000, count)), axis=1)
    assert noise.median_spread(np.array([count]))[0] == pytest.approx(medians.std(), rel=0.015)


def test_the_prior_finds_the_spread_that_variances_were_drawn_with():
    rng = np.random.default_rng(1)
    spread, visits, points = 0.01, 3, 4000
    own = spread**2 * 8 / rng.chisquare(8, points)  # a scaled inverse chi square with 8 degrees of freedom
    variances = own * rng.chisquare(visits - 1, points) / (visits - 1)
    prior = noise.Prior.of(np.zeros(points), variances, np.full(points, visits - 1.0))
    assert np.sqrt(np.median(prior.variances)) == pytest.approx(spread, rel=0.1)
    assert 4 < np.median(prior.freedoms) < 30

    few = noise.Prior.of(np.zeros(noise.FEWEST - 1), np.ones(noise.FEWEST - 1), np.ones(noise.FEWEST - 1))
    assert not few.known
    variance, freedom = few.moderated(np.zeros(2), np.array([4.0, np.nan]), np.array([2, 0]))
    assert (variance[0], *freedom) == (4.0, 2, 0)


def test_short_kernels_have_a_prior_of_their_own():
    rng = np.random.default_rng(1)
    times = np.log(np.repeat([1e-5, 1e-3], 200)) + 0.1 * rng.standard_normal(400)
    variances = np.repeat([0.03**2, 0.002**2], 200) * rng.chisquare(2, 400) / 2
    prior = noise.Prior.of(times, variances, np.full(400, 2.0))
    found, _ = prior.at(np.log([1e-6, 1e-5, 1e-3, 1.0]))
    assert np.sqrt(found) == pytest.approx([0.03, 0.03, 0.002, 0.002], rel=0.35)


def test_a_state_that_is_on_or_off_is_not_taken_for_a_small_spread():
    rng = np.random.default_rng(1)
    states = np.where(rng.random((200, 3)) < 0.5, -0.03, 0.03) + 1e-4 * rng.standard_normal((200, 3))
    prior = noise.Prior.of(rng.standard_normal(200), states.var(axis=1, ddof=1), np.full(200, 2.0))
    assert np.sqrt(np.median(prior.variances)) > 0.03
    variance, freedom = prior.moderated(np.zeros(1), np.array([1e-10]), np.array([2]))
    assert variance[0] == prior.at(np.zeros(1))[0][0] and freedom[0] > 2


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 0.01])
@pytest.mark.parametrize("kind", simulated_runs.KINDS)
def test_of_a_thousand_unchanged_points_about_five_are_called_changed(kind, between):
    """With 1,980 points, the count of a level of 5 in 1,000 has a mean of 9.9 and a standard deviation of 3.1."""
    rng = np.random.default_rng(12)
    found = [simulated_runs.compared(rng, kind, between) for _ in range(6)]
    assert sum(simulated_runs.called(each).sum() for each in found) <= 9.9 + 2 * 3.2
    assert sum(simulated_runs.gated(each).any() for each in found) <= 2  # 3 of 6 have a chance of 0.2 % at 5 %


@pytest.mark.parametrize("kind", ["normal", "rare"])
def test_a_state_that_few_points_have_in_a_job_is_no_change(kind):
    rng = np.random.default_rng(1703001)
    found = [simulated_runs.compared(rng, kind, 0.01, shape="rare") for _ in range(6)]
    assert sum(simulated_runs.called(each).sum() for each in found) <= 9.9 + 2 * 3.2  # without its own tail, over 60
    assert sum(simulated_runs.gated(each).any() for each in found) <= 2


@pytest.mark.parametrize(("place", "change"), [(0, 1.2), (1, 1.04), (2, 1.02)])
def test_a_change_is_found(place, change):
    found = simulated_runs.compared(np.random.default_rng(3), "normal", 0.0, change)
    verdicts = [each.verdict for each in found[60 * place : 60 * (place + 1)]]
    assert verdicts.count("slower") >= 48


def test_the_error_of_a_mean_of_several_files_is_that_of_independent_visits():
    rng, same = np.random.default_rng(1), {}
    runs = [simulated_runs.visited(simulated_runs.repetitions(rng, simulated_runs.times(rng), "normal"))] * 5
    found = Evidence([simulated_runs.frame()] * 5, runs, [0] * 5)
    for count in (1, 4):
        _, same[count] = found.differences(np.array([[0]]), np.array([found.offsets[1 : 1 + count]]), "unknown")
    assert same[4] / same[1] == pytest.approx(math.sqrt((1 + 1 / 4) / (1 + 1)))


def test_a_machine_whose_jobs_differ_is_called_noisy_and_nothing_changed():
    found = simulated_runs.compared(np.random.default_rng(1), "normal", 0.3)
    assert simulated_runs.called(found).sum() <= 6  # of 330


def test_repetitions_that_alternate_between_two_states_have_one_time():
    """The state of a repetition depends on its number modulo 4; a visit begins anywhere in this cycle."""
    high, low = math.log(9.5e-6), math.log(8.7e-6)
    cycle = [high, high, low, low]
    for count in range(4, 13):
        rows = np.array([[cycle[(first + i) % 4] for i in range(count)] for first in range(4)])
        medians, times = np.median(rows, axis=1), visits.middles(rows)
        assert np.ptp(times) <= np.ptp(medians)
        if count % 2 == 0:
            assert times == pytest.approx([(high + low) / 2] * 4)
    assert np.ptp(np.median(rows[:, :6], axis=1)) == pytest.approx(high - low)


def test_an_outlier_among_four_repetitions_hardly_counts():
    assert visits.middles(np.array([[1.0, 1.01, 1.02, 50.0]])) == pytest.approx([1.0175], abs=0.01)


def visited(point, medians, contender=""):
    samples = [
        Sample(3 * visit + i, 0, False, {"kernel": seconds * factor}, visit=visit)
        for visit, seconds in enumerate(medians)
        for i, factor in enumerate((0.999, 1.0, 1.5))
    ]
    return measurement(point, contender, samples=samples)


def pair(point, own, library):
    return visited(point, own), visited(point, library, "cublas")


def test_a_time_is_the_median_of_the_medians_of_its_visits():
    (row,) = derived(visited(product(), [1.0, 1.1, 1.3])).to_dict("records")
    assert row["seconds"] == pytest.approx(1.1) and row["visits"] == 3 and row["repetitions"] == 9
    logs = np.log([1.0, 1.1, 1.3])
    width = 4.3027 * 0.6698 * logs.std(ddof=1)  # three visits, without others to compare with
    assert row["seconds_low"] == pytest.approx(1.1 * math.exp(-width), rel=1e-3)
    assert row["seconds_high"] == pytest.approx(1.1 * math.exp(width), rel=1e-3)
    assert row["spread"] == pytest.approx(logs.std(ddof=1))


def test_a_ratio_divides_by_all_visits_of_the_baseline_in_the_run():
    times = {
        ("naive", 64): ((2.0, 2.0, 2.0), (1.0, 1.0, 4.0)), ("naive", 128): ((1.0,) * 3, (9.0,) * 3),
        ("large_thread_tile", 64): ((1.0,) * 3, (3.0,) * 3),
    }  # fmt: skip
    rows = [row for point, of in times.items() for row in pair(product(*point), *of)]
    points = analysis.points(derived(*rows))
    ratio = points.set_index(["variant", "n"])["ratio"].to_dict()
    assert ratio == pytest.approx({("naive", 64): 3 / 2, ("large_thread_tile", 64): 3.0, ("naive", 128): 9.0})
    assert (points["ratio_low"] < points["ratio"]).all() and (points["ratio"] < points["ratio_high"]).all()


def test_both_errors_are_in_the_interval_of_a_ratio():
    def width(own, library):
        row = analysis.points(derived(*pair(product(), own, library))).iloc[0]
        return math.log(row["ratio_high"] / row["ratio_low"])

    steady, wide = (0.999, 1.0, 1.001), (0.9, 1.0, 1.1)
    assert width(steady, steady) < width(wide, steady)
    assert width(steady, steady) < width(steady, wide)


def test_repetitions_of_one_visit_give_no_interval():
    times = [float(i) for i in (7, 3, 9, 1, 5, 8, 2, 6, 4)]
    own, _ = derived(took(product(), times), took(product(), times, "cublas")).to_dict("records")
    assert (own["seconds"], own["ratio"], own["visits"]) == (5.0, 1.0, 1)
    unknown = [
        f"{name}_{end}" for name in ("seconds", "ratio", "flops_per_second", "pooled") for end in ("low", "high")
    ]
    assert all(math.isnan(own[name]) for name in (*unknown, "spread", "spread_of_jobs"))


def jobs_of(seed, visits, between, within, points=80, shared=False):
    """Measurements of a file of several jobs, and the true seconds of each size; logarithms are normal.

    ``visits`` is the number of visits in each job. Jobs differ by ``between``, and visits of one job by ``within``.
    With ``shared``, a variant and its baseline share both, and differ by a tenth of ``within`` only.
    """
    rng = np.random.default_rng(seed)
    true = dict(zip(range(64, 64 + points), np.exp(rng.uniform(-8, -4, points)), strict=True))
    runs = []
    for number, count in enumerate(visits):
        rows = []
        for n, seconds in true.items():
            states = [between * rng.standard_normal() + within * rng.standard_normal(count) for _ in range(2)]
            if shared:
                states[1] = states[0] + within / 10 * rng.standard_normal(count)
            rows += pair(product(n=n), *(seconds * np.exp(state) for state in states))
        place = {"job": f"job {number}", "source_sha256": "one", "utc": f"2026-01-0{number + 1}T00:00:00+00:00"}
        runs.append((place, {f"sweep{number}": rows}))
    return timings.analysed(*runs)[1], true


def widths(rows, name):
    return np.log(rows[f"{name}_high"] / rows[f"{name}_low"]) / 2


@pytest.mark.parametrize("between", [0.0, 0.03])
def test_intervals_of_visits_of_one_job_contain_the_time(between):
    """Also with one visit. The true times and spreads are those of the simulation."""
    frame, true = jobs_of(1, (3, 1, 1), between, 0.01)
    rows = frame[frame["baseline"] == 0]
    errors = np.abs(np.log(rows["seconds"] / rows["n"].map(true)))
    for count in (1, 3):
        some = (rows["visits"] == count).to_numpy()
        assert 0.9 <= (errors < widths(rows, "seconds"))[some].mean() <= 0.999
    assert rows["spread_of_jobs"].median() == pytest.approx(between, rel=0.35, abs=0.006)
    ends = [rows[rows["sweep"] == name].set_index("n") for name in ("sweep0", "sweep1")]
    apart = (ends[0]["seconds_low"] > ends[1]["seconds_high"]) | (ends[1]["seconds_low"] > ends[0]["seconds_high"])
    assert apart.mean() <= 0.05


def test_one_visit_has_the_spread_of_the_visits_of_other_points():
    """All are of one job, so how much jobs differ is not known."""
    rng = np.random.default_rng(2)
    rows = [visited(product(n=n), np.exp(0.02 * rng.standard_normal(3))) for n in range(64, 164)]
    rows.append(visited(product(n=32), [1.0]))
    row = derived(*rows).query("n == 32").iloc[0]
    assert row["spread"] == pytest.approx(0.02, rel=0.25) and math.isnan(row["spread_of_jobs"])
    assert math.log(row["seconds_high"] / row["seconds"]) == pytest.approx(1.96 * 0.02, rel=0.3)


def test_one_visit_has_the_spread_of_the_same_model_of_gpu_if_the_file_knows_it():
    rng = np.random.default_rng(7)

    def run(gpu, spread, points):
        rows = [visited(product(n=n), np.exp(spread * rng.standard_normal(3))) for n in range(64, 64 + points)]
        return {"gpus": [{"name": gpu}]}, {"size": [*rows, visited(product(n=32), [1.0])]}

    runs = run("Quiet GPU", 0.002, 200), run("Noisy GPU", 0.03, 60), run("Rare GPU", 0.0, 0)
    rows = analysis.measurements(timings.merged(*runs)).query("n == 32").set_index("gpu")["spread"]
    assert rows["Quiet GPU"] == pytest.approx(0.002, rel=0.3) and rows["Noisy GPU"] == pytest.approx(0.03, rel=0.3)
    assert 0.001 < rows["Rare GPU"] < 0.03


def test_a_state_that_a_variant_and_its_baseline_share_is_not_in_the_interval_of_their_ratio():
    frame, _ = jobs_of(3, (3, 1, 1), 0.05, 0.01, shared=True)
    rows = frame[frame["baseline"] == 0]
    assert (widths(rows, "ratio") < widths(rows, "seconds") / 5).all()
    assert ((rows["ratio_low"] < 1) & (rows["ratio_high"] > 1)).mean() >= 0.9


def test_times_of_a_baseline_in_one_process_are_one_visit():
    """It is measured beside each variant."""
    names = ("naive", "tiled_padded", "large_thread_tile")
    rows = [row for name in names for row in pair(product(name), (1.0, 1.1), (2.0, 2.1))]
    assert set(derived(*rows)["pooled_visits"]) == {2}


def test_a_point_of_several_sweeps_has_the_visits_of_all():
    sweeps = {name: [took(product(), seconds)] for name, seconds in (("one", 1.0), ("two", 1.1), ("three", 1.2))}
    _, frame = timings.analysed(({}, sweeps))
    assert sorted(frame["seconds"]) == [1.0, 1.1, 1.2]
    assert list(frame["pooled_seconds"]) == pytest.approx([1.1] * 3) and set(frame["pooled_visits"]) == {3}
    assert (frame["pooled_low"] < 1.0).all() and (frame["pooled_high"] > 1.2).all()
