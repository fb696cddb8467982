"""A slow device is named and no other; quiet machines have none; what cannot be compared is said."""

import dataclasses
import itertools
import json
import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import timings
import yaml
from tasks import machine
from timings import FAIL, measurement

from hpcmm import store
from hpcmm.analysis import check, detection, health, peers
from hpcmm.backends.cuda import presence
from hpcmm.cli import check as command
from hpcmm.cli.main import main
from hpcmm.experiment import plan
from hpcmm.experiment.config import validated
from hpcmm.model import ALONE, HpcmmError, contender_name
from hpcmm.model.measurement import Point, Sample
from hpcmm.model.quantities import PHASES
from hpcmm.report import check as shown

PROGRAM = Path(__file__).parent / "mpi_programs" / "check.py"


def run(
    path,
    seed,
    ranks=4,
    slow=None,
    link=None,
    visits=3,
    wrong=(),
    algorithms=("neighbours_nccl",),
    least=0.001,
    most=0.01,
    order=None,
    utc="2026-11-22T09:30:00+00:00",
    gpu="",
):
    """Write the file of a modelled check.

    ``slow`` maps a rank to its time over that of its peers, and ``link`` a receiving rank. Visits share a state of 2 %.
    Each rank scatters by ``least`` to ``most`` between visits, and healthy devices differ by 0.3 %. ``order`` has the
    devices of the ranks.
    """
    rng = np.random.default_rng(seed)
    sweeps = {}
    for name, operation, variant, algorithm in (
        ("gpu_product", "matmul", "cublas", "scatter"),
        ("gpu_memory", "vector_add", "cupy", "scatter"),
        *(("gpu_links", "links", "device_copy", algorithm) for algorithm in algorithms),
    ):
        rows = sweeps.setdefault(name, [])
        for size in (256, 512, 1024, 2048):
            shape, dtype = ((size,) * 3 if operation == "matmul" else (size,)), "float32"
            scalars = {"alpha": 1.5, "beta": 0.5} if operation == "matmul" else {}
            point = Point(operation, variant, shape, dtype, ranks, scalars, algorithm=algorithm)
            devices = 0.003 * rng.standard_normal(ranks)
            scatter, samples = math.exp(rng.uniform(math.log(least), math.log(most))), []
            for visit in range(visits):
                state = 0.02 * rng.standard_normal()
                for rank in range(ranks):
                    factor = ((link if operation == "links" else slow) or {}).get(rank, 1.0)
                    log = state + devices[rank] + scatter * rng.standard_normal()
                    for i in range(3):
                        seconds = size * 1e-6 * factor * math.exp(log + 0.001 * rng.standard_normal())
                        samples.append(Sample(3 * visit + i, rank, False, {"kernel": seconds}, visit=visit))
            if (name, size) in wrong:
                rows.append(measurement(point, verdict=FAIL))
            else:
                rows.append(measurement(point, samples=samples, algorithm=algorithm))
    places = order or range(ranks)
    placed = [{"node": f"node{place // 2}", "device": f"GPU-{place}"} for place in places]
    measured = {"utc": utc, "cpu": {"model": "A CPU", "cores": 8}, "ranks": placed, "gpus": [{"name": gpu}] * bool(gpu)}
    return timings.write(path / "timings.h5", sweeps, measured)


def checked(path, reference=None):
    return check.check(store.read(path), reference)


def named(found):
    return {each.subject.name for each in found.slow.itertuples() if not each.source}


def subjects(ranks, of_node=1):
    return [health.Subject(rank, f"node{rank // of_node}", rank % of_node, "") for rank in range(ranks)]


def modelled(seed, ranks, slow=None, reference=None, links=0, hidden=0.0):
    """Compare modelled devices in ten measurements, and in some of links.

    Visits share a state of 2 %. Each rank scatters by 0.1 to 2 % between visits. Healthy devices differ by 0.3 to 1 %.
    ``slow`` maps a rank to its factor. Links of all ranks are 14 times as slow as they should be, and their times
    scatter by ``hidden``.
    """
    rng, measured = np.random.default_rng(seed), []
    for i in range(10 + links):
        devices = math.exp(rng.uniform(math.log(0.003), math.log(0.01))) * rng.standard_normal((ranks, 1))
        scatter = math.exp(rng.uniform(math.log(0.001), math.log(0.02))) * rng.standard_normal((ranks, 3))
        logs = rng.uniform(-9, -2) + 0.02 * rng.standard_normal(3) + devices + scatter
        if i >= 10:
            logs += math.log(14) + hidden * (rng.standard_normal(3) + rng.standard_normal((ranks, 3)))
        else:
            for rank, factor in (slow or {}).items():
                logs[rank] += math.log(factor)
        measured.append(peers.Times(f"measurement {i}", logs))
    return detection.compared(subjects(ranks), measured, (), reference)


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_device_that_is_very_slow_hides_no_other(ranks):
    for seed in range(5):
        assert named(modelled(seed, ranks, {1: 1000.0})) == {"node1 slot 0"}
        if ranks > 4:
            assert named(modelled(seed, ranks, {1: 1000.0, 6: 1.3})) == {"node1 slot 0", "node6 slot 0"}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8, 9, 12, 31])
def test_the_robust_deviation_of_few_normal_values_is_right_on_average(count):
    values = np.random.default_rng(count).standard_normal((40_000, count))
    assert np.sqrt(peers.robust_variance(values)[0]).mean() == pytest.approx(1, abs=0.02)


SHAPES = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "skewed": lambda rng, count: rng.exponential(size=count) - 1,  # the slow end is the long one
}


def gpus(seed, ranks, shape="normal", fault="", factor=1.05, visits=3, scatter=(0.001, 0.005)):
    """Compare modelled GPUs in the measurements of ``hpcmm check``; ``fault`` is the sweep in which rank 1 is slow.

    Cards differ by 0.3 %, in types at the limit of the power by 1.3 %, and a little from size to size. Visits share a
    state of 2 %, and each rank scatters by ``scatter`` between them.
    """
    rng, measured = np.random.default_rng(seed), []

    def sweep(name, labels, sizes, card, **known):
        for label in labels:
            cards = card * SHAPES[shape](rng, ranks)
            for size in range(sizes):
                own = cards + 0.3 * card * SHAPES[shape](rng, ranks)
                within = math.exp(rng.uniform(*np.log(scatter)))
                logs = rng.uniform(-9, -3) + 0.02 * rng.standard_normal(visits) + own[:, None]
                logs = logs + within * rng.standard_normal((ranks, visits))
                logs[1] += math.log(factor) * (fault == name)
                each = peers.Times(f"{name}: {label} {size}", logs, group=f"{name}: {label}", accelerated=True)
                measured.append(dataclasses.replace(each, **known))

    sweep("product", ["float32"], 2, 0.003, steady=True)
    sweep("product", ["float64", "bfloat16"], 2, 0.013)
    sweep("memory", ["float32"], 3, 0.003, steady=True)
    sweep("links", ["upload", "download"], 3, 0.003, steady=True)
    for distance in range(1, min(ranks, 8)):
        sources = tuple((rank + distance) % ranks for rank in range(ranks))
        sweep("links", [f"distance_{distance}"], 3, 0.003, steady=True, sources=sources)
    return detection.compared(subjects(ranks, 8), measured, detect=dict.fromkeys(("product", "memory", "links"), 0.05))


def test_one_unsteady_device_hardly_widens_the_spread_of_others_and_visits_bound_it_from_below():
    rng = np.random.default_rng(3)
    one, alike = rng.normal(0, 1e-3, (6, 5)), rng.normal(0, 0.02, (6, 5))
    one[5] += rng.normal(0, 0.2, 5)
    alike -= np.median(alike, axis=1)[:, None]  # devices do not differ, but their visits scatter
    for times, least, most in ((one, 5e-4, 2e-3), (alike, 5e-3, 2e-2)):
        variance, _, within = peers.Times("", times).spread(shared=True, prior=(1e-6, 4.0))
        assert (variance >= within).all() and least < variance[0] ** 0.5 < most


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "shape"), [(2, "normal"), (8, "skewed")])
def test_five_percent_are_found_in_95_of_100_checks_and_no_quiet_gpu_is_named(ranks, shape):
    """25 quiet and 25 faulty checks of each kind of machine."""
    quiet = [gpus(seed, ranks, shape) for seed in range(25)]
    assert [each for each in quiet if len(each.slow)] == []
    assert sum(each.passed for each in quiet) >= 22  # the others need more visits
    faults = [("product", "memory", "links")[seed % 3] for seed in range(25)]
    found = [gpus(100 + seed, ranks, shape, fault, visits=6) for seed, fault in enumerate(faults)]
    named = [fault for each, fault in zip(found, faults, strict=True)
             if {(one.rank, one.sweep) for one in each.slow.itertuples()} == {(1, fault)}]  # fmt: skip
    assert len(named) >= 24


@pytest.mark.parametrize(
    ("ranks", "most", "shape"),
    [*((64, 0.032, shape) for shape in SHAPES), pytest.param(256, 0.028, "normal", marks=pytest.mark.slow)],
)
def test_many_devices_show_smaller_slowdowns_and_skewed_ones_name_nobody(ranks, most, shape):
    found = gpus(1, ranks, shape)
    assert found.slow.empty
    least = found.findings.loc[found.findings["sweep"] == "memory", "least"].min()
    if shape == "normal":
        assert found.verdict == "passed" and least < most
    else:  # a long tail hides smaller slowdowns
        assert most < least and (found.verdict == "passed") is (max(found.detectable.values()) <= 0.05)
        links = gpus(3, ranks, shape, "links").slow  # one device is behind in all of them
        assert {(each.rank, each.sweep) for each in links.itertuples()} == {(1, "links")}
    if ranks == 256:
        slow = gpus(2, ranks, shape, "memory", factor=1.05).slow
        assert set(slow["rank"]) == {1}


def test_a_check_that_could_miss_the_slowdown_is_inconclusive_and_more_visits_help():
    few, more = (gpus(5, 4, visits=visits, scatter=(0.04, 0.06)) for visits in (3, 200))
    assert few.verdict == "inconclusive" and not few.passed and few.slow.empty
    pattern = r"a slowdown of 5.0 % may be missed, one of [\d.]+ % would be named; " + detection.SCATTER
    assert re.fullmatch(pattern, few.blind["memory"])
    assert few.line.endswith("no device is slower than its peers") and "inconclusive (" in few.line
    assert more.verdict == "passed" and max(more.detectable.values()) <= 0.05 + 1e-9
    assert gpus(5, 4, fault="memory", factor=3, scatter=(0.04, 0.06)).verdict == "slow"


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_quiet_machines_have_no_slow_device(ranks):
    found = [modelled(seed, ranks) for seed in range(20)]
    assert all(each.slow.empty for each in found)
    assert all(each.passed and "no device is slow" in each.line for each in found)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_check_states_from_which_slowdown_on_it_names_a_device(ranks):
    found = modelled(1, ranks, {1: 1.3}, links=9, hidden=0.6)
    judged = found.findings[found.findings["against"] == "peers"]
    assert set(judged["slow"]) == {True, False} or ranks == 2
    for each in judged.itertuples():
        factor = math.log1p(each.slowdown) / math.log1p(each.least)
        assert factor > 0.95 if each.slow else factor < 1
    (note,) = [each for each in found.notes if "at least this many times as long as its peers" in each]
    factors = [float(each) for each in re.findall(r"measurement \d+ (\d[\d.]*)", note)]
    assert len(factors) >= 10 and 1.01 <= min(factors) < 1.6
    hidden = modelled(1, ranks, links=9, hidden=30.0)
    assert "times scatter too much for a comparison with its peers: measurement 10, " in " ".join(hidden.notes)


@pytest.mark.parametrize(("scatter", "names"), [(1e-4, {"node1 slot 0"}), (0.8, set()), (math.nan, set())])
def test_a_single_visit_is_judged_by_its_repetitions(scatter, names):
    """On a loaded machine they scatter, or one of them takes all the time of the point and shows no spread."""
    rng = np.random.default_rng(3)
    measured = []
    for i in range(8):
        logs = np.log([[1.0], [1.0 + 2 * (i < 3)]]) + 0.01 * rng.standard_normal((2, 1))
        measured.append(peers.Times(f"measurement {i}", logs, scatter=(scatter, scatter)))
    found = detection.compared(subjects(2), measured)
    assert named(found) == names
    assert any("8 measurements have one repetition" in note for note in found.notes) is math.isnan(scatter)
    assert ("nothing to compare with" in found.line) is math.isnan(scatter)


@pytest.mark.parametrize("ranks", [2, 4])
def test_links_that_are_slow_on_all_devices_show_against_a_reference_only(ranks):
    reference = modelled(1, 4, links=9).reference()
    found = modelled(2, ranks, links=9)
    assert found.slow.empty and any("a slowdown of all devices is not found" in note for note in found.notes)
    found = modelled(2, ranks, links=9, reference=reference | {"seconds": dict.fromkeys(reference["seconds"], 1e-6)})
    assert "no device is slower" not in found.line and len(named(found)) == ranks


def test_a_reference_of_several_devices_says_how_two_may_differ():
    reference = modelled(11, 8).reference()
    assert json.loads(json.dumps(reference))["spreads"].keys() == reference["seconds"].keys()
    assumed, shown = modelled(12, 2, {1: 1.15}), modelled(12, 2, {1: 1.15}, reference | {"seconds": {}})
    assert assumed.slow.empty and any("a spread of 5.0 % is assumed" in each for each in assumed.notes)
    assert named(shown) == {"node1 slot 0"} and not any("assumed" in each for each in shown.notes)
    for seed in range(20):
        assert modelled(seed, 2, reference=reference | {"seconds": {}}).slow.empty


def test_a_slow_link_is_named_by_both_ends(tmp_path, capsys):
    path = run(tmp_path, 3, link={3: 1.5})
    found = checked(path)
    assert named(found) == set()
    slow = {(each.source.name, each.subject.name) for each in found.slow.itertuples()}
    assert slow == {("node0 slot 0 GPU-0", "node1 slot 1 GPU-3")}
    assert main(["check", str(path)]) == command.SLOW
    assert "slow links: node0 slot 0 GPU-0 to node1 slot 1 GPU-3" in capsys.readouterr().out


def test_the_links_of_a_node_are_one_matrix(tmp_path):
    """One pair of four GPUs is slow in one direction."""
    path = run(tmp_path, 12, link={1: 1.6}, algorithms=("neighbours_peer", "distance_2_peer", "distance_3_peer"))
    found = checked(path)
    assert {(each.source.rank, each.rank) for each in found.slow.itertuples()} == {(2, 1), (3, 1), (0, 1)}
    assert named(found) == set()
    links = {}
    for each in found.findings.itertuples():
        if each.source:
            links.setdefault(shown.chart_of(each.measurement), set()).add((each.source.rank, each.rank))
    pairs = {(source, to) for source in range(4) for to in range(4) if source != to}
    assert len(links) == 4 and all(each == pairs for each in links.values())  # of four sizes
    assert main(["check", str(path), "--html", str(tmp_path / "check.html")]) == command.SLOW
    assert (tmp_path / "check.html").read_text().count('class="chart"') == 1 + 4


@pytest.mark.slow
def test_ranks_that_wait_for_each_other_are_not_compared(tmp_path):
    """The healthy rank waits for the slow one, and measures a longer time."""
    path = run(tmp_path, 13, link={0: 1.6}, algorithms=("all_to_all_nccl", "all_reduce_nccl"))
    found = checked(path)
    assert found.passed
    waiting = found.findings[found.findings["measurement"].str.startswith("gpu_links")]
    assert len(waiting) == 2 * 4 * 4 and waiting["p"].isna().all() and waiting["source"].isna().all()
    (tmp_path / "good").mkdir()
    good = run(tmp_path / "good", 14, algorithms=("all_to_all_nccl", "all_reduce_nccl"))
    assert not checked(path, checked(good).reference()).passed


@pytest.mark.slow
def test_a_single_device_has_no_peer_but_may_have_a_reference(tmp_path, capsys):
    good = run(tmp_path, 4, ranks=4, gpu="H100")
    assert len(checked(good).reference()["seconds"]) == 12
    for name, factor in (("same", 1.0), ("slow", 1.4)):
        (tmp_path / name).mkdir()
        alone = run(tmp_path / name, 5, ranks=1, slow={0: factor}, gpu="H200")
        assert main(["check", str(alone)]) == command.INCONCLUSIVE
        *lines, last = capsys.readouterr().out.splitlines()
        assert "gpu_memory: no peer and no reference" in lines
        assert any("has no peer in this run, and there is no reference" in line for line in lines)
        blind = "inconclusive (gpu_product, gpu_memory, gpu_links): nothing to compare with"
        assert last == f"1 device, 12 measurements: {blind}"
        code = main(["check", str(alone), "--reference", str(good), "--json", "--detect", "30%"])
        found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert code == (0 if factor == 1.0 else command.SLOW) and found["passed"] is (factor == 1.0)
        assert "the reference differs: GPU: H100, then H200 here" in found["notes"]
        slow = [each for each in found["findings"] if each["slow"]]
        assert all(each["against"] == "reference" and each["node"] == "node0" for each in slow)


def test_wrong_results_fail_the_check(tmp_path, capsys):
    path = run(tmp_path, 8, wrong=[("gpu_product", 512)])
    assert main(["check", str(path)]) == command.SLOW
    out = capsys.readouterr().out
    assert "gpu_product: cublas 512x512x512 float32: FAIL" in out and "1 fault" in out


def test_what_was_measured_before_the_end_of_a_job_is_judged(tmp_path, capsys):
    """Of the three planned points of a sweep one is there, with a single visit."""
    path = run(tmp_path, 15, slow={2: 1.5})
    groups = {name: dict(columns) for name, columns in store.read(path).items()}
    measurements, samples = groups["measurements"], groups["samples"]
    rows = (samples["measurement"] < 8) | (samples["measurement"] == 8) & (samples["visit"] == 0)
    groups["measurements"] = {name: values[:9] for name, values in measurements.items()}
    groups["samples"] = {name: values[rows] for name, values in samples.items()}
    provenance = json.loads(groups["runs"]["provenance"][0]) | {"config": command.config(4)}
    groups["runs"]["provenance"] = np.array([json.dumps(provenance)] * len(groups["runs"]["provenance"]), object)
    variant, why = contender_name("device_copy", "neighbours_nccl"), "failed: gpu_links/cuda-r4-1: ended by SIGINT"
    lost = {"sweep": "gpu_links", "variant": variant, "ranks": 4, "reason": why, "points": 2}
    more = [lost | {"sweep": name, "reason": f"failed: {name}/cuda-r4-1: no memory"} for name in ("a", "b")]
    timings.merge([], path, [lost, *more], parts=[groups])
    main(["check", str(path)])
    assert f"a: {variant}; b: {variant}: failed: no memory" in capsys.readouterr().out.splitlines()
    path.unlink()
    others = [lost | {"ranks": 2}, lost | {"sweep": "unplanned", "points": 0}]  # are no faults of this check
    timings.merge([], path, [lost, *others], parts=[groups])
    assert main(["check", str(path), "--json"]) == command.SLOW
    found = json.loads(capsys.readouterr().out)
    assert found["missing"] == 2 and {each["rank"] for each in found["findings"] if each["slow"]} == {2}
    assert main(["check", str(path)]) == command.SLOW
    lines = capsys.readouterr().out.splitlines()
    assert f"gpu_links: {variant}: {why}" in lines and "gpu_links: 1 point with 1 of 3 visits" in lines
    assert lines[-1] == "4 devices, 9 of 11 measurements: slow: node1 slot 0 GPU-2; 2 faults"


def folder(path, name):
    (path / name).mkdir(exist_ok=True)
    return path / name


@pytest.mark.slow
def test_visits_are_added_until_the_sweeps_can_show_the_slowdown(tmp_path, monkeypatch, capsys):
    """The ranks of each round are other devices of the same node."""
    rounds = []

    def measure(arguments, experiment, where):
        rounds.append(set(experiment["sweeps"]))
        order = [[0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2], [3, 2, 1, 0]][len(rounds) % 4]
        slow = {order.index(2): 1.05}
        results = folder(folder(tmp_path, where.name), "results")
        return run(results, len(rounds), 4, slow, visits=4, least=0.05, most=0.06, order=order)

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "ROUNDS", 2)
    code = main(["check", "--ranks", "4", "--directory", str(tmp_path / "check"), "--detect", "5%"])
    shown = capsys.readouterr()
    assert code in (command.SLOW, command.INCONCLUSIVE) and len(rounds) == command.ROUNDS
    assert rounds[1] <= {"gpu_product", "gpu_memory", "gpu_links"} and "GPU-1" not in shown.out
    assert "more visits, round 2 of at most 2: gpu_" in shown.err
    files = [str(tmp_path / name / "results" / "timings.h5") for name in ("check", "round-2")]
    assert main(["check", *files]) in (command.SLOW, command.INCONCLUSIVE)
    other = run(folder(tmp_path, "other"), 1, 4, order=[4, 5, 6, 7])
    assert main(["check", files[0], str(other)]) == 1
    assert "the files are of other devices; request the nodes by name" in capsys.readouterr().err


@pytest.mark.parametrize("lasts", [True, False])
def test_a_sweep_with_a_slow_device_is_measured_again(tmp_path, monkeypatch, capsys, lasts):
    rounds = []

    def measure(arguments, experiment, where):
        rounds.append(set(experiment["sweeps"]))
        slow = {2: 1.5} if lasts or len(rounds) == 1 else {}
        return run(folder(folder(tmp_path, where.name), "results"), len(rounds), 4, slow)

    monkeypatch.setattr(command, "measure", measure)
    code = main(["check", "--ranks", "4", "--directory", str(tmp_path / "check"), "--detect", "50%"])
    assert len(rounds) == 2 and rounds[1] < rounds[0] and code == (command.SLOW if lasts else 0)
    assert ("GPU-2" in capsys.readouterr().out) == lasts


@pytest.mark.slow
def test_a_history_shows_each_device_over_the_checks(tmp_path, capsys):
    log, page = tmp_path / "history.jsonl", tmp_path / "check.html"
    for night, factor in enumerate((1.0, 1.0, 1.2), 1):
        path = run(folder(tmp_path, str(night)), night, slow={2: factor}, utc=f"2026-11-0{night}T02:30:00+00:00")
        code = main(["check", str(path), "--history", str(log), "--html", str(page)])
        assert code == (command.SLOW if factor > 1 else 0)
    assert main(["check", str(path), "--history", str(log)]) == command.SLOW  # is already in it
    assert len(log.read_text().splitlines()) == 3
    rows = health.history([json.loads(line) for line in log.read_text().splitlines()])
    first = rows[0]
    assert (first["uuid"], first["checks"], first["since"], first["slow"]) == ("GPU-2", 3, "2026-11-01", 1)
    assert first["now"] == pytest.approx(0.2, abs=0.02) and first["before"] == pytest.approx(0, abs=0.01)
    assert len(rows) == 4 * 3 and "Slow in" in page.read_text()
    out = capsys.readouterr().out
    assert re.search(r"node1 +0 +GPU-2 +gpu_product +3 +2026-11-01 +1 ", out) and "GPU-1 " not in out
    prolog = (Path(__file__).parents[1] / "examples" / "slurm_prolog.sh").read_text()
    of_here = prolog.replace("/var/lib/hpcmm/history.jsonl", str(log))
    assert of_here != prolog and subprocess.run(["bash", "-c", of_here]).returncode == 1  # refuses the job
    log.write_text(log.read_text().splitlines()[0] + "\n")
    assert subprocess.run(["bash", "-c", of_here]).returncode == 0
    page.write_text("no history\n")
    assert main(["check", str(path), "--history", str(page)]) == 1
    assert "not a history of checks" in capsys.readouterr().err


def test_what_cannot_be_checked_is_refused(tmp_path, capsys):
    path = timings.write(tmp_path / "old.h5", {"size": [measurement(timings.total("cub"))]})
    assert main(["check", str(path)]) == 1
    assert "does not name the node of each rank" in capsys.readouterr().err
    assert main(["check", str(run(tmp_path, 1)), "--reference", str(path)]) == 1
    assert f"reference {path}: the timings file does not name the node of each rank" in capsys.readouterr().err
    assert main(["check", str(path), "--cores", "2"]) == 1
    assert "unknown options: --cores 2" in capsys.readouterr().err


def test_values_of_options_of_snakemake_are_no_timings_file(tmp_path, monkeypatch, capsys):
    given, seen = ["--cluster", "sbatch", "--config", "backends=cpu"], []
    monkeypatch.setattr(command.workflow, "run", lambda options: seen.extend(options.rest) or 1)
    with pytest.raises(SystemExit, match="1"):  # which the run reported
        main(["check", "--ranks", "2", *given, "--directory", str(tmp_path / "check")])
    assert not capsys.readouterr().err and seen[-4:] == given
    path = run(tmp_path, 16)
    assert main(["check", "--html", str(tmp_path / "check.html"), str(path)]) == 0


def test_the_page_names_what_is_slow(tmp_path):
    page, path = tmp_path / "check.html", run(tmp_path, 9, slow={2: 1.5}, link={0: 1.5})
    assert main(["check", str(path), "--html", str(page)]) == command.SLOW
    text = page.read_text()
    assert text.count('class="chart"') == 5 and "node1 slot 0 GPU-2" in text and "Links" in text
    assert f'<p class="machine">A CPU, 8 cores · 2026-11-22 · {path}</p>' in text


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 512, 4096])
def test_the_experiment_of_a_check_is_a_config_and_gives_each_rank_the_same(ranks):
    config, sweeps = validated(yaml.safe_load(yaml.safe_dump(command.config(ranks))))
    assert config["measuring"]["visits"] == 3
    for sweep in sweeps.values():
        assert sweep.entry["ranks"] == [ranks]
        divided = {ALONE, "all_reduce_nccl"}.isdisjoint(sweep.entry["algorithms"])
        assert sweep.shapes["cuda"] and all(shape[0] % ranks == 0 or not divided for shape in sweep.shapes["cuda"])
        for algorithm, shape in itertools.product(sweep.algorithms, sweep.shapes["cuda"]):
            most = max(sweep.shapes["cuda"])[0] if algorithm.name == "all_reduce_nccl" else 2**26  # elements
            for rank in (0, ranks - 1):  # no need grows with the ranks
                need = algorithm.need(sweep.operation, shape, ranks, rank)
                assert need.device <= 3 * most and need.whole <= 7 * (most + ranks)
    assert sum(each.points for name, each in sweeps.items() if name.startswith("cpu")) >= 7


def measured(mpiexec, folder, ranks, *arguments):
    """The timings file of a check by ``mpi_programs/check.py``."""
    done = mpiexec(ranks, PROGRAM, folder, *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    timings.merge(sorted(folder.glob("*.h5")), folder / "timings.h5")
    return folder / "timings.h5"


def test_products_for_minutes_are_a_sweep_whose_visits_are_judged_with_the_others(tmp_path, monkeypatch, capsys):
    """Without them the check is not passed, and what was measured before is shown."""
    asked, broken = [], []

    def measure(arguments, experiment, where):
        asked.append(experiment)
        if broken and "lasting_product" in experiment["sweeps"]:
            raise HpcmmError("no GPU is left")
        return run(folder(folder(tmp_path, where.name), "results"), 3, 4)

    monkeypatch.setattr(command, "measure", measure)
    given = ["check", "--ranks", "4", "--minutes", "10", "--directory"]
    assert main([*given, str(tmp_path / "one")]) == 0
    first, last = asked
    config, sweeps = validated(last)
    (lasting,) = sweeps.values()
    assert list(lasting.dtypes) == ["float32", "float64"] and lasting.scalars["beta"] == 0 and len(first["sweeps"]) > 3
    assert first["sweeps"]["gpu_product"]["dtypes"] == ["float32", "float64", "bfloat16"]
    assert config["measuring"]["max_seconds"] * len(lasting.dtypes) == 600
    broken.append(True)
    assert main([*given, str(tmp_path / "two")]) == command.SLOW
    assert "lasting_product: no GPU is left" in capsys.readouterr().out
    assert main(["check", "--minutes", "1e9"]) == 1


@pytest.mark.parametrize("ranks", [2, 8])
def test_one_job_measures_all_sweeps_of_a_device(ranks):
    planned = plan.make(command.config(ranks), machine(gpus=ranks))
    assert [(job.device, len(job.batches)) for job in planned.jobs] == [("cpu", 3), ("cuda", 4)]


@pytest.mark.skipif(os.environ.get("HPCMM_TEST_ALL") != "1", reason="needs a quiet machine; HPCMM_TEST_ALL=1 runs it")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
def test_a_node_kept_busy_by_another_process_is_named(mpiexec, tmp_path, capsys):
    assert main(["check", str(measured(mpiexec, tmp_path, 2, "cpu", 1))]) == command.SLOW
    out = capsys.readouterr().out
    assert "2 devices, 5 measurements: slow: node1 slot 0" in out, out


@pytest.mark.gpu
def test_one_gpu_has_no_peer_but_is_compared_with_a_reference_cuda(gpu, mpiexec, tmp_path, capsys):
    path = measured(mpiexec, tmp_path, 1, "cuda")
    assert main(["check", str(path)]) == command.INCONCLUSIVE
    assert f"node0 slot 0 {gpu.uuid} has no peer in this run" in capsys.readouterr().out
    names = checked(path).reference()["seconds"]
    assert {name.split(":")[0] for name in names} == {"gpu_product", "gpu_memory", "gpu_links"}
    assert main(["check", str(path), "--reference", str(path)]) != command.SLOW
    groups = store.read(path)
    groups["samples"] |= {name: groups["samples"][name] / 20 for name in PHASES}  # other tests may use the GPU
    store.write_groups(tmp_path / "good.h5", groups)
    assert main(["check", str(path), "--reference", str(tmp_path / "good.h5")]) == command.SLOW
    assert f"slow: node0 slot 0 {gpu.uuid}" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.skipif(presence.count() < 2, reason="needs two GPUs")
@pytest.mark.skipif(os.environ.get("HPCMM_TEST_ALL") != "1", reason="needs a quiet machine; HPCMM_TEST_ALL=1 runs it")
@pytest.mark.parametrize("busy", [None, 1])
def test_of_several_gpus_the_busy_one_is_named_cuda(mpiexec, tmp_path, capsys, busy):
    gpus = presence.count()
    timings = measured(mpiexec, tmp_path, gpus, "cuda", *([busy] if busy is not None else []))
    code = main(["check", str(timings), "--html", str(tmp_path / "check.html")])
    out = capsys.readouterr().out
    assert code == (0 if busy is None else command.SLOW), out
    slow = {each.rank for each in checked(timings).slow.itertuples() if not each.source}
    assert slow == (set() if busy is None else {busy}), out


def test_a_check_whose_jobs_failed_says_that_nothing_was_measured(tmp_path, capsys):
    reason = {"sweep": "cpu_product", "variant": "numpy", "ranks": 4, "reason": "sbatch: error", "points": 3}
    path = timings.write(tmp_path / "timings.h5", {"cpu_product": []}, {}, [reason])
    assert main(["check", str(path)]) == 1
    assert "nothing was measured" in capsys.readouterr().err
