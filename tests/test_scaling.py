"""What more ranks gain, and what is predicted of them, against arithmetic done here by hand."""

import dataclasses
import itertools
import math
import re

import pytest
import timings
from timings import analysed, call_samples, kernel_samples, measurement, took, total

from hpcmm import analysis
from hpcmm.analysis import scaling
from hpcmm.model import TEXTBOOK, Verdict
from hpcmm.model.measurement import Point
from hpcmm.parallel import cost
from hpcmm.report import formats, headlines
from hpcmm.system.text import percent

EXCHANGES = {"exchanges": {"transport": "mpi", "bytes": [1000, 100_000], "seconds": [1e-3, 1e-1]}}


def product(ranks, shape=(64, 64, 64), variant="naive", algorithm=TEXTBOOK):
    return Point("matmul", variant, shape, "float32", ranks, {"alpha": 1.0, "beta": 0.0}, algorithm)


def beside(point, own, textbook):
    """Measurements of an algorithm and of the textbook's beside it."""
    return [took(point, own), took(point, textbook, algorithm=TEXTBOOK)]


def predicted(sweeps, provenance=None):
    return scaling.predictions(*analysed((provenance or {}, sweeps)))


def test_scaling_keeps_the_size_or_the_work_of_each_rank():
    times = ((1, 64, 64, 1.0), (1, 128, 128, 8.0), (4, 128, 128, 4.0), (4, 256, 64, 2.0))
    rows = [took(product(ranks, (m, n, n)), seconds) for ranks, m, n, seconds in times]
    found = scaling.speedups(timings.derived(*rows))
    more = found[found["ranks"] == 4].set_index(["kind", "m"])["speedup"].to_dict()
    # four times the work of 64 in two seconds
    assert more == {("strong", 128): 2.0, ("weak", 256): 2.0}
    assert (found["efficiency"] == found["speedup"] / found["ranks"]).all()


def test_an_end_to_end_time_is_relative_to_the_fastest_of_the_newest_run():
    def whole(ranks, variant, kernel, call, algorithm=TEXTBOOK):
        samples = kernel_samples([[kernel] * ranks] * 6) if kernel else ()
        samples += call_samples([[{"total": call}] * ranks] * 6)
        return measurement(product(ranks, variant=variant, algorithm=algorithm), samples=samples)

    machine = {"cpu": {"model": "Model T", "cores": 2}}
    before = [whole(1, "naive", 1.0, 2.0), whole(2, "naive", 1.0, 2.0)]
    after = [whole(1, "naive", 3.0, 8.0), whole(1, "cublas", 4.0, 6.0), whole(2, "naive", 2.0, 4.0)]
    after.append(whole(2, "cublas", 0.0, 5.0, "staged"))  # an algorithm that is timed end to end only
    runs = [(machine | {"utc": f"2026-0{i}-01"}, {"size": rows}) for i, rows in enumerate((before, after), 1)]
    _, frame = analysed(*runs)
    found = scaling.speedups(frame)
    more = found[(found["kind"] == "strong") & (found["ranks"] == 2)].set_index("label")
    assert list(more.index) == ["naive", "cublas staged"]
    gains = more[["speedup", "efficiency", "call_speedup", "call_efficiency"]]
    assert gains.loc["naive"].tolist() == [3 / 2, 3 / 2 / 2, 6 / 4, 6 / 4 / 2]
    assert gains.loc["cublas staged"].tolist() == pytest.approx([math.nan, math.nan, 6 / 5, 6 / 5 / 2], nan_ok=True)


def test_one_rank_beside_another_algorithm_is_a_base_too():
    rows = [took(product(2, algorithm="ring"), 3.0), *beside(product(1, algorithm="cublasmp"), 6.0, 4.0)]
    found = scaling.speedups(timings.derived(*rows))
    assert found[["algorithm", "ranks", "speedup"]].to_numpy().tolist() == [["ring", 2, pytest.approx(4 / 3)]]


def test_a_speedup_is_relative_to_the_same_arithmetic():
    times = {("naive", 1): 6.0, ("naive", 2): 4.0, ("tensor_core", 1): 3.0, ("tensor_core", 2): 2.0, ("cublas", 1): 5.0}
    rows = [took(product(ranks, variant=variant), seconds) for (variant, ranks), seconds in times.items()]
    found = scaling.speedups(timings.derived(*rows))
    more = found[found["ranks"] == 2].set_index("variant")["speedup"].to_dict()
    assert more == {"naive": 5 / 4, "tensor_core": 3 / 2}  # three TF32 products are other arithmetic than cuBLAS's


def test_nothing_is_scaled_from_one_machine_to_another():
    one, other = ({"cpu": {"model": "Model T", "cores": cores}} for cores in (2, 4))
    for machine, expected in ((one, [1.0, 4.0]), (other, [])):
        _, frame = analysed((one, {"size": [took(product(1), 8.0)]}), (machine, {"size": [took(product(2), 2.0)]}))
        found = scaling.speedups(frame)
        assert list(found[found["kind"] == "strong"].sort_values("ranks")["speedup"]) == expected


def test_each_type_and_each_variant_has_lines_of_its_own():
    times = {("numpy", "float32"): 1.0, ("numpy", "float64"): 3.0, ("packed", "float32"): 5.0}
    rows = []
    for (variant, dtype), seconds in times.items():
        point = dataclasses.replace(product(2, variant=variant, algorithm="ring"), dtype=dtype)
        rows += beside(point, seconds, seconds)
    found = predicted({"spread": rows})
    there = found[found["ranks"] == 2].set_index(["variant", "dtype"])["predicted_seconds"]
    assert there.to_dict() == pytest.approx(times)  # two steps, each half the time of the textbook algorithm


def test_the_largest_product_is_predicted_from_the_most_ranks_that_it_was_measured_on():
    rows = []
    for ranks, n in ((2, 100), (2, 200), (4, 100), (4, 50)):
        rows += beside(product(ranks, (n, n, n), "numpy", "ring"), 1.0, 1.0)
    found = predicted({"spread": rows}, EXCHANGES)
    (last,) = found.loc[found["ranks"] == 16, ["n", "measured_ranks"]].to_numpy().tolist()
    assert last == [200, 2]


def test_an_all_reduce_is_predicted_from_the_shortest_vector_less_its_local_part():
    rows = []
    for n, beyond, passed in ((10, 2.0, False), (1000, 9.0, True), (4001, 7.0, True)):  # the shortest right one
        verdict = Verdict(passed, 1e-7, 1e-6, "exact", "")
        point, local = total("openmp", n, "float32", 4, "all_reduce"), 1.0 + -(-n // 4) * 1e-3
        rows += [took(point, local + beyond, verdict=verdict), took(point, local, algorithm=TEXTBOOK)]
        rows.append(took(total("openmp", n, "float32", 4), local))  # not predicted: the model knows no such call
    found = predicted({"combined": rows})
    measured = found[found["seconds"].notna()]
    assert measured["seconds"].tolist() == pytest.approx([1.0 + 0.250 + 9.0, 1.0 + 1.001 + 7.0])
    assert measured["predicted_seconds"].tolist() == pytest.approx([1.0 + 0.250 + 9.0, 1.0 + 1.001 + 9.0])
    (most,) = found.loc[found["ranks"] == 32, "predicted_seconds"]  # 5 doublings instead of 2
    assert most == pytest.approx(1.0 + 0.126 + 5 / 2 * 9.0)
    assert set(found["algorithm"]) == {"all_reduce"}
    assert set(found["work"]) == {4 * 1000 + 4, 4 * 4001 + 4}  # bytes


def test_variants_of_a_reduction_combine_in_the_same_time():
    rows = []
    for variant, beyond in (("openmp", 2.0), ("serial", 9.0), ("numpy", 4.0)):
        rows += beside(total(variant, 1000, "float32", 2, "all_reduce"), 1.0 + beyond, 1.0)
    found = predicted({"combined": rows})
    assert found.loc[found["ranks"] == 2, "predicted_seconds"].tolist() == pytest.approx([5.0] * 3)  # 4 is the median


def test_more_ranks_are_held_against_the_same_problem_on_fewer():
    """Four ranks take a tenth longer than the measured time of two predicts, whose model is a quarter too fast."""
    rows = []
    for ranks, n, seconds in ((1, 128, 9.0), (2, 128, 4.0), (4, 128, 2.2), (2, 256, 30.0), (8, 256, 7.5)):
        point = product(ranks, (n, n, n), "numpy", "ring")
        rows.append(measurement(point, samples=kernel_samples([[part * seconds] * ranks for part in (0.9, 1, 1.1)])))
        rows.append(took(point, 3.0 * (n / 128) ** 3 * 2 / ranks, algorithm=TEXTBOOK))
    columns, frame = analysed(({}, {"spread": rows}))
    found = scaling.held_out(scaling.models_of(columns, frame)).sort_values("n")
    names = ["n", "measured_ranks", "ranks", "seconds"]
    assert found[names].to_numpy().tolist() == [[128, 2, 4, 2.2], [256, 2, 8, 7.5]]
    assert found["predicted_seconds"].tolist() == pytest.approx([2.0, 7.5])  # half, and a quarter
    predicted = scaling.predictions(columns, frame)
    assert predicted["held_out"].tolist() == pytest.approx([(0.2 / 2.2) / 2] * len(predicted))  # median of two
    assert predicted["noise"].tolist() == pytest.approx([2**0.5 * 0.05] * len(predicted))  # of two points
    (most,) = predicted.loc[predicted["ranks"] == 64, "predicted_seconds"]
    assert most == pytest.approx(7.5 / 8)


def test_a_rate_that_falls_with_the_size_is_no_latency():
    rows = [took(product(2, (8, 8, 8), "serial"), 1e-5)]
    for n, rate in ((1000, 0.8e12), (2000, 1e12)):
        rows += beside(product(2, (n, n, n), "numpy", "ring"), n**3 / rate, n**3 / rate)
    found = predicted({"spread": rows})
    four = found[(found["ranks"] == 4) & (found["n"] == 2000)]["predicted_seconds"]
    assert four.tolist() == pytest.approx([2000**3 / 1e12 / 2], rel=0.02)  # not a latency of 0.3 ms


@pytest.mark.parametrize("exchanges", [None, [], {"transport": "", "bytes": [], "seconds": []}])
def test_one_rank_predicts_only_itself(exchanges):
    rows = beside(product(1, variant="numpy", algorithm="ring"), 2.0, 2.0)
    found = predicted({"spread": rows}, {"exchanges": exchanges})
    assert found[["ranks", "seconds", "predicted_seconds"]].to_numpy().tolist() == [[1, 2.0, 2.0]]


def test_the_textbook_is_predicted_beside_another_algorithm_on_several_ranks():
    def textbook(ranks, n, variant="numpy"):
        # a millionth of a second for each byte that leaves rank 0 or arrives there, and for a thousand operations
        away = (n - n // ranks) * n * 4e-6
        phases = {"scatter": 2 * away, "broadcast": (ranks - 1) * n * n * 4e-6, "gather": away}
        phases["kernel"] = 2 * n**3 / ranks * 1e-9
        call = phases | {"total": sum(phases.values())}
        samples = kernel_samples([[phases["kernel"]] * ranks] * 6) + call_samples([[call] * ranks] * 6)
        return measurement(product(ranks, (n, n, n), variant), samples=samples)

    ring = [took(product(ranks, variant="numpy", algorithm="ring"), 1.0) for ranks in (1, 2, 4)]
    sweeps = {
        "spread": [*ring, *(textbook(ranks, n) for ranks in (1, 2, 4) for n in (64, 128)), textbook(2, 64, "packed")],
        "alone": [textbook(2, 64)],
        "one": [ring[0], textbook(1, 64)],
    }
    found = predicted(sweeps)
    found = found[found["algorithm"] == TEXTBOOK]
    assert set(found["sweep"] + " " + found["variant"]) == {"spread numpy"}
    measured = found[found["seconds"].notna()]
    points = sorted(zip(measured["ranks"], measured["n"], strict=True))
    assert points == list(itertools.product((1, 2, 4), (64, 128)))
    assert measured["predicted_seconds"].tolist() == pytest.approx(measured["seconds"].tolist())
    # what eight would do: seven times B, seven of eight rows of A and C, and an eighth of the work
    (eight,) = found.loc[found["ranks"] == 8, "predicted_seconds"]
    assert eight == pytest.approx(128**2 * 4e-6 * (7 + 3 * 7 / 8) + 2 * 128**3 / 8 * 1e-9)


def test_copies_from_pageable_memory_do_not_predict_page_locked_ones():
    def calls(point, seconds):
        phases = {"upload": seconds, "kernel": 1.0, "download": seconds, "total": 2 * seconds + 1.0}
        return measurement(point, samples=call_samples([[phases]] * 6), algorithm=TEXTBOOK)

    staged = product(1, variant="naive", algorithm="staged")
    samples = call_samples([[{"total": 3.0}]] * 6)
    sweeps = {"spread": [measurement(staged, samples=samples), calls(staged, 2.0)], "transfer": []}
    for pinned, seconds in ((True, 2.0), (False, 20.0)):
        point = dataclasses.replace(product(1, variant="naive"), pinned=pinned)
        sweeps["transfer"].append(calls(point, seconds))
    found = predicted(sweeps)
    assert found["predicted_seconds"].tolist() == pytest.approx([5.0])  # one panel: up, product, down


def test_a_speedup_is_of_medians_over_the_visits_of_all_sweeps_with_both_intervals():
    times = {"a": (8.0, 5.0), "b": (8.8, 5.5), "c": (8.4, 6.0)}
    sweeps = {name: [took(product(1), one), took(product(2), two)] for name, (one, two) in times.items()}
    _, frame = analysed(({}, sweeps))
    found = scaling.speedups(frame)
    more = found[(found["ranks"] == 2) & (found["kind"] == "strong")]
    assert list(more["speedup"]) == pytest.approx([8.4 / 5.5] * 3)
    one, two = (frame[frame["ranks"] == ranks].iloc[0] for ranks in (1, 2))
    ends = [one["pooled_low"] / two["pooled_high"] / 2, one["pooled_high"] / two["pooled_low"] / 2]
    assert more[["efficiency_low", "efficiency_high"]].iloc[0].tolist() == pytest.approx(ends)
    assert ends[0] < 8.4 / 5.5 / 2 < ends[1]


def test_a_kernel_is_relative_to_one_rank_on_every_card_at_once():
    """The base is in another sweep. One card alone, in 8 s, is faster than both at once: a card in 8.5, one in 10."""

    def on_two(shape, *seconds):
        return measurement(product(2, shape), samples=kernel_samples([seconds] * 3))

    small, large = (64, 64, 64), (256, 64, 64)
    sweeps = {
        "distributed": [took(product(1), 8.0), took(product(2, algorithm="ring"), 5.0), on_two(small, 4.2, 5.0)],
        "cards": [on_two((128, 64, 64), 8.5, 10.0)],
        "larger": [took(product(1, large), 40.0), took(product(2, large, algorithm="ring"), 18.0)],
    }
    found = scaling.speedups(analysis.measurements(timings.columns(sweeps)))
    more = found[(found["ranks"] == 2) & (found["kind"] == "strong") & (found["sweep"] == "distributed")]
    more = more.set_index("algorithm")
    mean = 2 / (1 / 8.5 + 1 / 10)  # of the rates
    assert more.loc["ring", "efficiency"] == pytest.approx(mean / 5 / 2)
    assert more.loc["ring", "efficiency_of_slowest"] == pytest.approx(10 / 5 / 2)
    assert more["base_ranks"].to_dict() == {"ring": 2, TEXTBOOK: 1}
    assert more.loc[TEXTBOOK, "efficiency"] == pytest.approx(8 / 5 / 2)  # it exchanges nothing, so it could be its base
    assert formats.base(more.loc["ring"]).endswith("one rank on each of 2 devices at once (100 % of the slowest)")
    prefix, headline = headlines.most_ranks(found)  # the larger product is relative to one card alone
    assert (prefix, headline["sweep"], headline["base_ranks"]) == ("", "distributed", 2)


def test_an_efficiency_relative_to_one_card_names_it():
    rows = [took(product(1), 8.0), took(product(2, algorithm="ring"), 5.0)]
    # of another arithmetic, and of another number of ranks
    rows += [took(product(2, (128, 64, 64), "tensor_core"), 1.0), took(product(4, (256, 64, 64)), 1.0)]
    found = scaling.speedups(timings.derived(*rows, gpus=[{"uuid": "GPU-12345678-90ab", "name": "T"}]))
    (row,) = found[found["algorithm"] == "ring"].to_dict("records")
    assert (row["base_ranks"], row["efficiency"]) == (1, pytest.approx(0.8))
    assert formats.base(row) == "relative to one rank alone, on GPU-12345678"


def test_copies_have_the_rates_of_the_textbook_on_the_predicted_number_of_ranks():
    """Copies take all the time. Four ranks share a memory that is as fast as three devices upload."""
    rows, shape = [], (256, 256, 256)
    for ranks, slower in ((2, 1.0), (4, 4 / 3)):
        phases = {name: slower * 1e-6 * cost.moved(name, shape, 4, ranks) for name in ("upload", "download")}
        call = call_samples([[phases | {"kernel": 1e-9, "total": sum(phases.values())}] * ranks] * 6)
        point = product(ranks, shape, "naive", "staged")
        share = slower * 1e-6 * 4 * 256 * 256 / ranks  # A, B, C and the result
        rows.append(measurement(point, samples=call_samples([[{"total": 4 * share}] * ranks] * 6)))
        rows.append(measurement(point, samples=call + kernel_samples([[1e-9] * ranks] * 6), algorithm=TEXTBOOK))
    found = scaling.held_out(scaling.models_of(*analysed(({}, {"spread": rows}))))
    (row,) = found[found["algorithm"] == "staged"].to_dict("records")
    assert (row["measured_ranks"], row["ranks"], row["noise"]) == (2, 4, 0)
    assert row["predicted_seconds"] == pytest.approx(row["seconds"])


def test_the_published_points_on_four_gpus_are_predicted_from_two_as_the_documentation_states():
    columns, frame = timings.published_run()
    timed = frame[frame["first_run"].isna()]  # without sweeps of bits, which time little
    found = scaling.held_out(scaling.models_of(columns, timed))
    page = (timings.ROOT / "docs" / "algorithms.md").read_text()
    errors_and_noise = r"(\d+ \| [\d.]+ % \| [\d.]+ %) \| ([\d.]+ %)"
    rows = re.findall(rf"^\| `(\w+)`(?:, end to end)?(, noise above 15 %)? \| {errors_and_noise} \|$", page, re.M)
    found = found.assign(error=(found["predicted_seconds"] / found["seconds"] - 1).abs(), noisy=found["noise"] > 0.15)
    stated = {(name, bool(noisy)): (errors, noise) for name, noisy, errors, noise in rows}
    for key, own in found.groupby(["algorithm", "noisy"]):
        error, noise = own["error"], percent(own["noise"].median())
        assert stated.pop(key) == (f"{len(error)} | {percent(error.median())} | {percent(error.max())}", noise)
    assert not stated
    quiet = found[~found["noisy"] & (found["operation"] == "matmul")].groupby("algorithm")["error"]
    assert quiet.median().max() <= 0.035 and quiet.max().max() <= 0.15
