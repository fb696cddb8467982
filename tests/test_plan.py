"""Configs: what is refused and how, what is planned, what is not measured, and when a batch runs again."""

import copy
import dataclasses
import itertools
import shutil
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks import CONFIGS, machine

from hpcmm import kernels
from hpcmm.experiment import fingerprint, plan
from hpcmm.experiment.config import SCALES, read_config, validated
from hpcmm.experiment.durations import STARTUP_SECONDS, input_seconds, point_seconds
from hpcmm.model.devices import Machine
from hpcmm.operations import OPERATIONS
from hpcmm.system.reader import ConfigError

ROOT = Path(plan.__file__).parents[2]
TESTS = Path(__file__).parent
NO_GPU = "no GPU here"

CONFIG = CONFIGS["plan"]
GONE = object()


def changed(changes=(), **more) -> dict:
    """CONFIG with some values replaced; ``sweeps__size__tiles=GONE`` takes one away."""
    config = copy.deepcopy(CONFIG)
    for place, value in (dict(changes) | more).items():
        *path, key = place.split("__") if isinstance(place, str) else [place]
        entry = config
        for each in path:
            entry = entry[each]
        if value is GONE:
            del entry[key]
        else:
            entry[key] = copy.deepcopy(value)  # which later changes change
    return config


def make(config=CONFIG, missing: str = "", gpus: int = 8) -> plan.Plan:
    return plan.make(config, machine(missing, gpus))


MEASURING = plan.Measuring(**validated(CONFIG)[0]["measuring"])


# --- refused configs ---------------------------------------------------------------------------------------------

REFUSALS = yaml.safe_load((TESTS / "refused_configs.yaml").read_text())
SPECIAL = {"GONE": GONE, "SUM": CONFIG["sweeps"]["sum"]}


def special(value):
    """Put what a file cannot hold in the place of its name."""
    if isinstance(value, dict):
        return {key: special(each) for key, each in value.items()}
    return SPECIAL.get(value, value) if isinstance(value, str) else value


# a change of the config, and the message: it names the key, the value and the allowed values
REFUSED = [
    *((special(changes), named) for changes, named in REFUSALS["refused"]),
    ({"sweeps__size__alpha": 10**400}, ["sweeps.size.alpha", "000...", "a number"]),
    ({"sweeps__" + 300 * "x": CONFIG["sweeps"]["sum"]}, ["sweeps", "xxx...", "at most 100 characters"]),
    (
        {"sweeps__size__sizes": GONE, "sweeps__size__shapes": [[n, 1, 1] for n in range(1, 20_000)]},
        ["sweeps.size", "points", "at most 100000"],
    ),
    (
        {f"sweeps__{i}": {"operation": "sum", "sizes": {"start": 1, "stop": 1000, "step": 1}} for i in range(5)},
        ["sweeps: up to", "points altogether; allowed: at most 100000"],
    ),
]


@pytest.mark.parametrize(
    ("changes", "named"), REFUSED, ids=[str(list(changes)[-1]) + str(i) for i, (changes, _) in enumerate(REFUSED)]
)
def test_a_wrong_config_is_refused_with_key_value_and_what_is_allowed(changes, named):
    with pytest.raises(ConfigError) as refusal:
        make(changed(changes))
    message = str(refusal.value)
    assert "\n" not in message and all(part in message for part in named), message


def test_all_errors_are_reported_at_once():
    changes, problems = REFUSALS["at once"]
    with pytest.raises(ConfigError) as refusal:
        make(changed(special(changes)))
    found = [problem.split("; allowed: ")[0] for problem in refusal.value.problems]
    assert sorted(found) == sorted(problems)
    assert str(refusal.value).splitlines() == list(refusal.value.problems)


def test_twenty_of_many_errors_are_reported():
    with pytest.raises(ConfigError) as refusal:
        make(changed({"sweeps__size__sizes": list(range(-30, 0))}))
    *first, last = str(refusal.value).splitlines()
    assert len(first) == 20 and last == "and 10 more" and len(refusal.value.problems) == 30


def test_sizes_that_a_variant_gets_wrong_are_reported_for_all_sweeps_at_once():
    entry = {"operation": "matmul", "variants": ["tiled_exact"], "sizes": [641]}
    with pytest.raises(ConfigError) as refusal:
        make(changed({"sweeps": {"a": entry, "b": entry, "c": {**entry, "sizes": [640]}}}))
    assert [problem.split(":")[0] for problem in refusal.value.problems] == ["sweeps.a", "sweeps.b"]


@pytest.mark.parametrize("scale", SCALES)
def test_all_but_the_sweeps_has_a_default(scale):
    """That of the repository's config.yaml, which writes them out."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"scale": scale}
    sweeps = {"sum": {"operation": "sum", "sizes": [1000]}}
    short = make({"sweeps": sweeps} | ({"scale": "full"} if scale == "full" else {}))
    assert short == make(config | {"sweeps": sweeps})
    other = make({"sweeps": sweeps, "measuring": {"seed": 7}, "scale": scale})
    assert other.measuring == dataclasses.replace(short.measuring, seed=7)


@pytest.mark.parametrize("scale", SCALES)
def test_the_config_of_the_repository_is_right(scale):
    config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"scale": scale}
    planned = make(config)
    planned_sweeps = {batch.sweep for batch in planned.batches}
    assert planned_sweeps == set(config["sweeps"]) if scale == "full" else planned_sweeps <= set(config["sweeps"])
    assert planned.config["scale"] == scale


# --- what is planned ---------------------------------------------------------------------------------------------


def test_a_batch_holds_all_variants_of_a_sweep_on_one_device_problem_by_problem():
    planned = make()
    names = ["size/cpu-r1-1", "size/cpu-r2-1", "size/cuda-r1-1", "size/cuda-r2-1", "sum/cpu-r1-1", "sum/cuda-r1-1"]
    assert [batch.name for batch in planned.batches] == names
    batch = planned.batch("size/cuda-r2-1")
    assert (batch.sweep, batch.operation, batch.device, batch.ranks, batch.part) == ("size", "matmul", "cuda", 2, 1)
    assert [(point.shape[0], point.variant, point.tile) for point in batch.points] == [
        (size, variant, tile)
        for size in (64, 128)
        for variant, tile in (("naive", 8), ("naive", 32), ("tiled_padded", 8), ("tiled_padded", 32), ("cublas", 0))
    ]
    assert {point.ranks for point in batch.points} == {2}
    of_sum = planned.batch("sum/cuda-r1-1").points
    assert [point.dtype for point in of_sum if point.variant == "cub"] == ["int32", "float32", "float64"]


@pytest.mark.parametrize("minutes", [1, 2, 5, 60])
def test_jobs_are_divided_where_they_would_be_longer_than_stated(minutes):
    sizes = {"start": 64, "stop": 640, "step": 64}
    config = changed(sweeps__size__sizes=sizes, sweeps__size__dtypes=["float32", "float64"])
    whole = make(config | {"job_minutes": 10_000})
    assert len(whole.batches) == 6
    divided = make(config | {"job_minutes": minutes})
    assert all(len(batch.points) == 1 or batch.seconds <= 60 * minutes for batch in divided.batches)
    assert len({batch.name for batch in divided.batches}) == len(divided.batches)
    for one in whole.batches:
        parts = [b for b in divided.batches if (b.sweep, b.device, b.ranks) == (one.sweep, one.device, one.ranks)]
        assert [part.part for part in parts] == list(range(1, len(parts) + 1))
        assert tuple(point for part in parts for point in part.points) == one.points
        assert tuple(each for part in parts for each in part.fingerprints) == one.fingerprints
        for part in parts:
            assert part.seconds == pytest.approx(STARTUP_SECONDS + sum(part.predicted))
        for part, following in itertools.pairwise(parts):
            problem, next_problem = plan.problem_of(part.points[-1]), plan.problem_of(following.points[0])
            together = [point for point in one.points if plan.problem_of(point) == next_problem]
            if problem == next_problem:  # only what is too long for one job is measured in two
                alone = sum(point_seconds(each, whole.measuring) for each in together)
                assert STARTUP_SECONDS + input_seconds(together[0]) + alone > 60 * minutes
            else:  # nor is a job shorter than it could be
                assert part.seconds + sum(following.predicted[: len(together)]) > 60 * minutes


@pytest.mark.parametrize("minutes", [0.1, 1, 2, 5, 60])
def test_batches_share_a_job_up_to_its_length(minutes):
    planned = make(changed(sweeps__size__sizes=[64, 128], backends="auto") | {"job_minutes": minutes})
    names = sorted(batch.name for job in planned.jobs for batch in job.batches)
    assert names == sorted(batch.name for batch in planned.to_measure)
    assert len({job.name for job in planned.jobs}) == len(planned.jobs)
    for job in planned.jobs:
        assert {(batch.device, batch.ranks) for batch in job.batches} == {(job.device, job.ranks)}
        assert job.seconds == pytest.approx(STARTUP_SECONDS + sum(sum(batch.predicted) for batch in job.batches))
        assert len(job.batches) == 1 or job.seconds <= 60 * minutes
    for job, following in itertools.pairwise(planned.jobs):  # none is shorter than it could be
        if (job.device, job.ranks) == (following.device, following.ranks):
            assert job.seconds + sum(following.batches[0].predicted) > 60 * minutes
    assert any(len(job.batches) > 1 for job in planned.jobs) == (minutes >= 1)


def test_an_optional_package_has_jobs_of_its_own(monkeypatch):
    monkeypatch.setattr(plan.importlib.util, "find_spec", lambda name: True)
    sweep = {"operation": "matmul", "variants": ["cublas"], "algorithms": ["scatter", "cublasmp"], "ranks": [2]}
    planned = make({"job_minutes": 1000, "sweeps": {"one": sweep | {"sizes": [300]}, "two": sweep | {"sizes": [400]}}})
    names = [[batch.name for batch in job.batches] for job in planned.jobs]
    assert names == [["one/cuda-r2-1", "two/cuda-r2-1"], ["one/cuda-r2-2", "two/cuda-r2-2"]]


@given(operation=st.sampled_from(list(OPERATIONS.values())), size=st.integers(1, 4000), data=st.data())
def test_more_work_more_time_or_more_repetitions_never_shorten_what_is_planned(operation, size, data):
    variant = data.draw(st.sampled_from(operation.ladder))
    dtype = data.draw(st.sampled_from(operation.dtypes_of(variant)))

    def seconds(size, measuring=MEASURING):
        shape = (size,) * len(operation.dimensions)
        point = plan.Point(operation.name, variant.name, shape, dtype, 1, dict(operation.scalars))
        return input_seconds(point) + point_seconds(point, measuring)

    assert 0 < seconds(size) <= seconds(size + data.draw(st.integers(1, 100)))
    assert seconds(size) <= seconds(size, dataclasses.replace(MEASURING, max_seconds=2 * MEASURING.max_seconds))
    contenders = 1 if variant.baseline or not operation.baseline(variant.device, dtype) else 2
    assert seconds(size) >= contenders * 3 * MEASURING.max_seconds


@settings(max_examples=10)
@given(size=st.integers(1, 4000), data=st.data())
def test_more_visits_take_longer_but_share_the_repetitions(size, data):
    variant = data.draw(st.sampled_from(OPERATIONS["matmul"].ladder))
    point = plan.Point("matmul", variant.name, (size,) * 3, "float32", 1, dict(OPERATIONS["matmul"].scalars))
    one, three = (dataclasses.replace(MEASURING, visits=visits) for visits in (1, 3))
    assert point_seconds(point, one) < point_seconds(point, three)
    calls = 2 * 4 * 2 * one.max_seconds  # of two more visits: each of its calls up to the limit, for two contenders
    assert point_seconds(point, three) <= point_seconds(point, one) + calls + 1e-9


def test_a_job_of_three_visits_starts_three_times():
    for batch in make(changed(measuring__visits=3)).batches:
        assert batch.seconds == pytest.approx(3 * STARTUP_SECONDS + sum(batch.predicted))


def test_sizes_may_differ_by_device():
    sizes = {"cpu": [64], "cuda": {"start": 512, "stop": 1024, "step": 512}}
    batches = make(changed(sweeps__size__sizes=sizes, backends="auto")).batches
    found = {(each.device, point.shape[0]) for each in batches if each.sweep == "size" for point in each.points}
    assert found == {("cpu", 64), ("cuda", 512), ("cuda", 1024)}
    only = make(changed(sweeps__size__sizes={"cuda": [512]}, backends="auto"))
    assert {batch.device for batch in only.batches if batch.sweep == "size"} == {"cuda"}


def test_points_too_large_for_memory_are_reported_in_the_plan():
    planned = plan.make(changed(sweeps__size__sizes=[64, 4096]), machine())
    assert plan.too_large(planned, machine()) == {}
    found = plan.too_large(planned, machine(memory=10**8))  # a matrix of 4096 has 64 MiB
    assert {point.shape for point in found} == {(4096,) * 3}
    # of 64 MiB each: A, B and C twice; on two ranks B, and halves of the others
    assert {(point.ranks, text) for point, text in found.items()} == {
        (1, "needs 0.25 GiB of GPU memory, this machine has 0.0931"),
        (2, "needs 0.156 GiB of GPU memory, this machine has 0.0931"),
    }
    assert plan.too_large(planned, Machine()) == {}, "a cluster may have any memory"


def test_an_unknown_batch_is_refused_with_the_planned_ones():
    with pytest.raises(ConfigError, match=r"'size/none-r1'; planned are: size/cpu-r1-1, "):
        make().batch("size/none-r1")


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"scale: quick\n\tbackends: auto\n", ["line 2, column 1: ", "a tab; indent by blanks"]),
        (b"sweeps:\n  a: {sizes: [1]}\n  b: {}\n  a: {sizes: [2]}\n", ["line 4, column 3: key 'a' appears twice"]),
        (b"? [a, b]\n: 1\n", ["line 1, ", "unhashable key"]),
        (b"", ["is empty", "keys with values"]),
        (b"\xff\xfe", ["not a text file in UTF-8"]),
        (bytes(range(256)), ["not a text file in UTF-8"]),
        (b"\x00\x01", ["not a text file (a control character at 0)"]),
        (b"seed: 2026-13-01\n", ["line 1, ", "month must be in 1..12"]),
        (b"seed: 1\n[size, sum]: 2\n", ["line 2, ", "unhashable key"]),
        (b"sweeps: &all\n  size: *all\n", ["line 1, ", "recursive alias"]),
        (b"sweeps: " + 2000 * b"[", ["nested too deeply"]),
        (b"sizes: [1:30]", ["line 1, column 9: 1:30 is a number in base 60 in YAML 1.1; write it in base 10"]),
        (b"sizes: [1:30.5]", ["1:30.5 is a number in base 60"]),
        (b"a: 1\nsizes: [8, 010]", ["line 2, column 12: 010 is a number in base 8"]),
        (b"scale: quick\n  more: 1\n", ["line 2, column 7: mapping values are not allowed here"]),
        (b"sizes: [" + 500_000 * b"1," + b"]", ["too long; allowed: 1000000 bytes"]),
        (b"sizes: [" + 100_000 * b"1," + b"]", ["line 1, column ", "more than 10000 values"]),
        (
            b"a: &a [1,2,3,4,5,6,7,8,9]\n"
            + b"".join(
                b"%c: &%c [%s]\n" % (name, name, b",".join(9 * [b"*%c" % (name - 1)]))
                for name in range(ord("b"), ord("z"))
            ),
            ["line 5, column ", "more than 10000 values, aliases expanded"],
        ),
        (None, ["No such file"]),
    ],
)
def test_a_file_that_is_no_config_is_refused_with_name_and_line(tmp_path, text, named):
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ConfigError) as refusal:
        read_config(path)
    message = str(refusal.value)
    assert "\n" not in message and all(part in message for part in ["mine.yaml: ", *named]), message


def test_whole_numbers_to_the_base_ten_are_read_as_they_are(tmp_path):
    (tmp_path / "mine.yaml").write_text("a: [0, 10, -5, 1_000, 0x10, 0b11, +7, 0.5, 1.5e+3, .inf, 08, 1e3]\n")
    read = read_config(tmp_path / "mine.yaml")["a"]
    assert read == [0, 10, -5, 1000, 16, 3, 7, 0.5, 1500.0, float("inf"), "08", "1e3"]


def test_many_values_that_cannot_be_sorted_are_compared_at_once():
    """jsonschema compares all pairs of them, which takes minutes."""
    sizes = [each for i in range(1, 9_000) for each in (i, [i])]
    with pytest.raises(ConfigError) as refusal:
        make(changed({"sweeps__size__sizes": sizes}))
    assert len(refusal.value.problems) == 8_999


def test_later_files_override_earlier_ones(tmp_path):
    for name, text in (("a", "scale: quick\nsweeps: {x: {n: 1}, y: &y {n: 2}}"), ("b", "sweeps: {x: {n: 3}}")):
        (tmp_path / name).write_text(text)
    merged = read_config(tmp_path / "a", tmp_path / "b")
    assert merged == {"scale": "quick", "sweeps": {"x": {"n": 3}, "y": {"n": 2}}}


# --- what is not measured --------------------------------------------------------------------------------------------


def devices(planned: plan.Plan) -> set[str]:
    return {batch.device for batch in planned.to_measure}


def test_auto_without_a_gpu_leaves_out_all_of_cuda_with_the_reason():
    planned = make(changed(backends="auto"), NO_GPU, 0)
    assert devices(planned) == {"cpu"}
    assert planned.unmeasured == {batch.name: NO_GPU for batch in planned.batches if batch.device == "cuda"}
    gpu_rungs = [variant for variant in OPERATIONS["sum"].ladder if variant.device == "cuda"]
    assert {"sweep": "size", "variant": "tiled_padded", "ranks": 2, "reason": NO_GPU} in planned.rows_unmeasured()
    assert len(planned.rows_unmeasured()) == 3 * 2 + len(gpu_rungs)


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_with_one_gpu_points_for_two_are_left_out_unless_they_may_share_it(asked):
    reason = "2 ranks need a GPU each and this machine has 1 (share_gpu: false)"
    for more, expected in ({}, {"size/cuda-r2-1": reason}), ({"share_gpu": True}, {}):
        planned = make(changed(backends=asked, **more), gpus=1)
        assert "cuda" in devices(planned)
        assert {name: why for name, why in planned.unmeasured.items() if "cuda" in name} == expected


def test_auto_leaves_out_more_ranks_on_the_cpu_than_there_are_cores():
    config = changed(sweeps__size__ranks=[1, 2, 1000])
    planned = plan.make(config | {"backends": "auto"}, machine(gpus=1000, cpus=2))
    assert {name: reason.split("(")[0] for name, reason in planned.unmeasured.items()} == {
        "size/cpu-r1000-1": "1000 ranks need a core each and this machine has 2 "
    }
    asked_for = plan.make(config | {"backends": "cpu"}, machine(gpus=1000, cpus=2))
    assert max(batch.ranks for batch in asked_for.to_measure) == 1000


@pytest.mark.parametrize(
    ("asked", "installed", "rung"), [("auto", True, "best"), ("cuda", True, "cublas"), ("auto", False, "cublas")]
)
def test_an_algorithm_of_an_optional_package_has_its_own_jobs_and_product(monkeypatch, installed, asked, rung):
    found = {"nvmath": installed}
    monkeypatch.setattr(plan.importlib.util, "find_spec", lambda name: found[name] or None)
    algorithms = ["cublasmp", "scatter", "resident"]
    entry = {"operation": "matmul", "variants": [rung], "algorithms": algorithms, "sizes": [64], "ranks": [1, 2]}
    config = changed(sweeps__size=entry, sweeps__sum=GONE)
    planned = make(config | {"backends": asked}, gpus=2)
    missing = dict.fromkeys(["size/cuda-r1-2", "size/cuda-r2-2"], "nvmath is not installed (extra cublasmp)")
    assert planned.unmeasured == ({} if installed else missing)
    together = [{(p.variant, p.algorithm) for p in batch.points} for batch in planned.batches if batch.ranks == 2]
    assert together == [{(rung, "scatter"), (rung, "resident")}, {("cublas", "cublasmp")}]


def test_a_plan_with_nothing_to_measure_is_refused():
    config = changed(backends="auto", sweeps__size__variants=["naive"], sweeps__sum=GONE)
    with pytest.raises(ConfigError, match=f"nothing is left to measure: {NO_GPU}"):
        make(config, NO_GPU, 0)
    with pytest.raises(ConfigError, match=f"nothing is left to measure: {NO_GPU}; the config has backends: cuda"):
        make(changed(backends="cuda"), NO_GPU, 0)
    with pytest.raises(ConfigError, match="no sweep has a size at this scale"):
        make(changed(sweeps__size__sizes=[], sweeps__sum=GONE))


# --- on disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"backends": "cuda", "share_gpu": True, "sweeps__size__alpha": -0.0625, "sweeps__size__beta": 0},
        {"sweeps__size": {"operation": "matmul", "dtypes": ["int8", "float32"], "shapes": [[3, 1, 4999], [2, 7, 1]]}},
        {"sweeps__sum": {"operation": "maximum", "ranks": [1, 7], "sizes": [1, 5000]}, "job_minutes": 1},
    ],
)
@pytest.mark.parametrize("gpus", [0, 2])
def test_a_written_plan_is_read_unchanged(tmp_path, changes, gpus):
    planned = make(changed(**{"backends": "auto"} | changes), "" if gpus or "backends" in changes else NO_GPU, gpus)
    planned.write(tmp_path / "plan.json")
    again = plan.read(tmp_path / "plan.json")
    assert again == planned and again.fingerprint == planned.fingerprint
    assert [point.key for point in again.batches[0].points] == [point.key for point in planned.batches[0].points]


def test_a_damaged_plan_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    make().write(path)
    written = path.read_text()
    other_name, other_type = written.replace("naive", "neive"), written.replace('"ranks": 2', '"ranks": "2"')
    for damaged in (other_name, other_type, written[:-9], "3"):
        assert damaged != written
        path.write_text(damaged)
        with pytest.raises(plan.ConfigError, match=r"plan\.json: not a plan of this version"):
            plan.read(path)
    with pytest.raises(plan.ConfigError, match="Is a directory"):
        plan.read(tmp_path)


# --- what runs again ---------------------------------------------------------------------------------------------


def test_a_run_finds_the_batches_whose_sources_were_edited_meanwhile(monkeypatch, tmp_path):
    planned = make()
    shutil.copytree(kernels.FOLDER, tmp_path / "kernels")
    monkeypatch.setattr(kernels, "FOLDER", tmp_path / "kernels")
    naive = tmp_path / "kernels" / "matmul" / "lessons" / "naive.cu"
    planned = dataclasses.replace(planned, config={**planned.config, "extensions": [str(naive)]})
    monkeypatch.setattr(fingerprint, "RECORDED", "__init__.py")  # is no source then
    for text, stale in (("// a comment\n", set()), ("static int faster;\n", {"size/cuda-r1-1", "size/cuda-r2-1"})):
        naive.write_text(naive.read_text() + text)
        fingerprint.forget()
        found = planned.edited(planned.batches, since=0)
        assert set(found) == stale and all(files[0] == naive for files in found.values())
        assert all(fingerprint.PACKAGE / "__init__.py" not in files for files in found.values())
        assert bool(planned.outdated(tmp_path / "results")) == bool(stale)
    assert not planned.edited(planned.batches, since=time.time() + 1)


def test_a_plan_is_outdated_after_an_edit_of_a_value_in_its_config(tmp_path):
    path, results, changes = tmp_path / "experiment.yaml", tmp_path / "results", {"backends": "cpu"}
    path.write_text(yaml.safe_dump(CONFIG))
    planned = plan.make(CONFIG | changes, machine(), files=[path.name], changes=changes)
    planned.write(results / "plan.json")
    for edit, expected in ({}, ""), ({"scale": "full"}, str(path)), ({"backends": "auto"}, ""):
        path.write_text(f"{yaml.safe_dump(CONFIG | edit)}# a comment\n")
        assert plan.read(results / "plan.json").outdated(results) == expected


def test_other_simd_instructions_change_the_points_of_the_variants_that_have_a_choice(monkeypatch):
    def points() -> dict[tuple[str, str], str]:
        planned = make(changed(backends="auto", sweeps__size__variants=["serial", "avx", "packed", "naive"]))
        each_batch = [zip(batch.points, batch.fingerprints, strict=True) for batch in planned.batches]
        return {(point.variant, point.key): of for pairs in each_batch for point, of in pairs}

    monkeypatch.delenv("HPCMM_SIMD", raising=False)
    widest = points()
    for path in ("avx2", ""):  # an empty name is that of no instructions: the portable path
        monkeypatch.setenv("HPCMM_SIMD", path)
        found = points()
        assert {place[0] for place in found if found[place] != widest[place]} == {"avx", "packed"}


OTHERS = {"measuring__seed": 2, "sweeps__size__sizes": [64], "sweeps__size__alpha": 1}
OTHERS["sweeps__size__variants"] = ["naive", "cublas"]


@pytest.mark.parametrize("place", OTHERS)
def test_other_points_or_another_way_of_measuring_change_a_batch_and_another_sweep_does_not(place):
    batch, before = "size/cuda-r1-1", make()
    assert make(changed({place: OTHERS[place]})).batch(batch).fingerprint != before.batch(batch).fingerprint
    other = make(changed(sweeps__sum__sizes=[5]))
    assert other.batch(batch).fingerprint == before.batch(batch).fingerprint and other.fingerprint != before.fingerprint


def test_a_variant_for_even_sizes_is_planned_if_right_or_if_a_fail_is_wanted():
    def shapes(**sweep):
        entry = {"operation": "matmul", "sizes": [32, 40, 64], "dtypes": ["float32"], "tiles": [16, 32]}
        batches = make(changed(backends="cuda", sweeps={"s": entry | {"ranks": [2]} | sweep})).batches
        points = [point for batch in batches for point in batch.points if point.variant == "tiled_exact"]
        return [(point.shape[0], point.tile) for point in points]

    assert shapes() == [(32, 16), (64, 16), (64, 32)], "half of the rows must be a multiple too"
    assert len(shapes(allow_fail=True, variants=["tiled_exact"])) == 6


def test_pinned_and_pageable_are_points_of_a_gpu_and_those_that_share_host_memory_are_adjacent():
    entry = {"operation": "matmul", "variants": ["serial", "naive", "cublas"], "sizes": [8, 9], "dtypes": ["float32"]}
    cpu, cuda = make(changed(backends="cuda", sweeps={"s": entry | {"pinned": [True, False]}})).batches
    assert [(p.variant, p.pinned) for p in cpu.points] == [("serial", None)] * 2
    points = [(point.shape[0], point.pinned, point.variant) for point in cuda.points]
    assert points == list(itertools.product([8, 9], [True, False], ["naive", "cublas"]))


# --- what is profiled --------------------------------------------------------------------------------------------

PROFILED = {
    "few": {"operation": "matmul", "variants": ["naive", "cublas"], "sizes": [4096]},
    "many": {
        "operation": "matmul", "variants": ["serial", "naive", "tiled_padded", "cublas"], "sizes": [64, 512],
        "tiles": [16, 32], "ranks": [1, 2],
    },
    "sum": {"operation": "sum", "variants": ["cub"], "shapes": [[100], [2000], [300]]},
    "host": {"operation": "vector_add", "variants": ["serial"], "sizes": [10]},
}  # fmt: skip


def test_no_profile_without_a_wish_or_a_gpu_and_the_reason_is_kept():
    def reasons(**changes):
        planned = make(changed(sweeps=PROFILED, **changes), NO_GPU if changes.get("backends") == "auto" else "")
        assert planned.profiled == {}
        return {row["operation"]: row["reason"] for row in planned.unprofiled()}

    operations = {"matmul", "sum", "vector_add"}
    assert set(reasons()) == operations
    assert all("not requested: run make profile" in reason for reason in reasons().values())
    assert reasons(profile=False) == reasons()
    without = reasons(profile=True, backends="auto")
    assert (without["matmul"], without["sum"]) == (NO_GPU, NO_GPU)
    assert reasons(profile=True, backends="cpu")["matmul"] == "the config has backends: cpu"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_a_switch_can_be_text_from_a_command_line(text, value):
    assert make(changed(profile=text)).config["profile"] is value


def test_a_profile_is_taken_again_when_its_points_or_sources_change(monkeypatch, tmp_path):
    def fingerprint(**changes):
        return list(make(changed(sweeps=PROFILED, profile=True, **changes)).profile_parts("matmul"))

    before = fingerprint()
    assert fingerprint(measuring__min_repetitions=3) == before
    assert fingerprint(sweeps__few__sizes=[2048], sweeps__many__ranks=[1]) == before
    assert fingerprint(sweeps__many__sizes=[64, 513]) != before
    assert fingerprint(measuring__cache="hot") != before
    shutil.copytree(kernels.FOLDER, tmp_path / "kernels")
    source = tmp_path / "kernels" / "matmul" / "lessons" / "tiled_padded.cu"
    source.write_text(source.read_text() + "static int changed;\n")
    monkeypatch.setattr(kernels, "FOLDER", tmp_path / "kernels")
    assert fingerprint() != before


def test_the_config_of_the_repository_profiles_every_gpu_rung():
    config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"backends": "cuda", "profile": True}
    planned = make(config)
    assert list(planned.profiled) == ["matmul", "sum", "vector_add", "copy"]  # each set of kernels once
    for name, points in planned.profiled.items():
        rungs = {variant.name for variant in OPERATIONS[name].ladder if variant.device == "cuda"}
        assert {point.variant for point in points} == rungs
    reasons = {row["operation"]: row["reason"] for row in planned.unprofiled()}
    assert reasons == {
        **dict.fromkeys(("minimum", "maximum"), "same kernels as sum"),
        **dict.fromkeys(("latency", "bandwidth"), "no GPU variant is measured in floating point on one rank"),
        "scale": "same kernels as copy",
    }


def test_a_sweep_without_types_has_those_of_its_kernels():
    def types(**entry) -> dict[str, set[str]]:
        config = {**CONFIG, "backends": "auto", "sweeps": {"s": {"operation": "matmul", "sizes": [64], **entry}}}
        points = [point for batch in plan.make(config, machine()).batches for point in batch.points]
        return {name: {each.dtype for each in points if each.variant == name} for name in {p.variant for p in points}}

    plain, narrow = {"float32", "float64"}, {"float16", "bfloat16"}
    assert types(variants=["naive", "cublas"]) == {"naive": plain, "cublas": plain}
    assert types(variants=["tma", "cublas"]) == {"tma": narrow, "cublas": narrow}
    wider = {f"{each}_to_float32" for each in narrow}
    assert types(variants=["cublas"]) == {"cublas": plain | narrow | wider | {"int8", "float8_e4m3"}}
    float8 = {"float8_e4m3"}
    assert types(dtypes=["float8_e4m3"], device="cuda") == {"cublas": float8, "cublaslt": float8}
    parts = types(variants=["cublas"], algorithms=["scatter", "summa"], dtypes=["float32", "bfloat16"], ranks=[2])
    assert parts == {"cublas": {"float32", "bfloat16"}}


# --- visits of several jobs ---------------------------------------------------------------------------------------


@settings(max_examples=8)
@given(visits=st.integers(1, 50), data=st.data())
def test_the_visits_of_a_point_are_divided_evenly_among_its_jobs(visits, data):
    measuring = dataclasses.replace(MEASURING, visits=visits, jobs=data.draw(st.integers(1, visits)))
    numbers = [measuring.job_of(visit) for visit in range(visits)]
    assert numbers == sorted(numbers) and set(numbers) == set(range(measuring.jobs))
    counts = [numbers.count(job) for job in range(measuring.jobs)]
    assert max(counts) - min(counts) <= 1
    (job, *_) = make(changed(measuring__visits=visits, measuring__jobs=measuring.jobs)).jobs
    turns = plan.turns(job, measuring)
    assert [turn.visits for turn in turns.values()] == list(itertools.accumulate(counts))
    assert [turn.after for turn in turns.values()] == [[], *([name] for name in list(turns)[:-1])]
    assert list(turns)[-1] == job.name
