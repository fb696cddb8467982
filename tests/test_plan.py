"""Configs: what is refused and how, what is planned, what is left out, and when a batch runs again."""

import copy
import dataclasses
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcmm import kernels, plan
from hpcmm.operations import OPERATIONS

ROOT = Path(plan.__file__).parents[1]
NO_GPU = "no GPU here"

CONFIG = {
    "scale": "quick",
    "backends": "cuda",
    "measuring": {
        "warmups": 2,
        "min_repetitions": 10,
        "max_repetitions": {"quick": 30, "full": 200},
        "max_seconds": 0.25,
        "relative_interval": 0.01,
        "cache": "cold",
        "seed": 1,
    },
    "sweeps": {
        "size": {
            "operation": "matmul",
            "variants": ["serial", "numpy", "naive", "tiled_padded", "cublas"],
            "sizes": {"quick": [64, 128], "full": {"start": 100, "stop": 400, "step": 100}},
            "dtypes": ["float32"],
            "tiles": [8, 32],
            "ranks": [1, 2],
        },
        "sum": {"operation": "sum", "sizes": [1000]},
    },
}
GONE = object()


def changed(**changes) -> dict:
    """CONFIG with some values replaced; ``sweeps__size__tiles=GONE`` takes one away."""
    config = copy.deepcopy(CONFIG)
    for place, value in changes.items():
        *path, key = place.split("__")
        entry = config
        for each in path:
            entry = entry[each]
        if value is GONE:
            del entry[key]
        else:
            entry[key] = value
    return config


def make(config=CONFIG, missing: str = NO_GPU, gpus: int = 0) -> plan.Plan:
    return plan.make(config, missing, gpus)


# --- refused configs ---------------------------------------------------------------------------------------------

REFUSED = [
    # what is changed, and what the message must name: the key, the value, what is allowed
    ({"sizes": [3]}, ["top level", "'sizes'", "scale", "sweeps"]),
    ({"sweeps__size__size": [3]}, ["sweeps.size", "'size'", "sizes"]),
    ({"measuring__repeats": 3}, ["measuring", "'repeats'", "min_repetitions"]),
    ({"scale": "huge"}, ["scale", "'huge'", "quick", "full"]),
    ({"scale": GONE}, ["'scale'"]),
    ({"backends": "gpu"}, ["backends", "'gpu'", "auto", "cpu", "cuda"]),
    ({"measuring__seed": GONE}, ["measuring", "'seed'"]),
    ({"measuring__max_seconds": 0}, ["measuring.max_seconds", "0", "more than 0"]),
    ({"measuring__warmups": True}, ["measuring.warmups", "True", "integer"]),
    ({"measuring__warmups": 2.0}, ["measuring.warmups", "2.0", "integer"]),
    ({"measuring__max_repetitions": {"quick": 0, "full": 5}}, ["measuring.max_repetitions", "0", "at least 1"]),
    ({"measuring__max_repetitions": {"full": 5}}, ["{'full': 5}", "quick"]),
    ({"sweeps": {}}, ["sweeps", "at least 1"]),
    ({"sweeps": None}, ["sweeps", "None", "object"]),
    ({"sweeps__a/b": CONFIG["sweeps"]["sum"]}, ["sweeps", "'a/b'", "letters, digits, '-' and '_'"]),
    ({"sweeps__a b": CONFIG["sweeps"]["sum"]}, ["sweeps", "'a b'", "letters, digits, '-' and '_'"]),
    ({"sweeps__sum\n": CONFIG["sweeps"]["sum"]}, ["sweeps", "letters, digits, '-' and '_'"]),
    ({"sweeps__size__operation": "product"}, ["sweeps.size.operation", "'product'", "matmul", "sum"]),
    ({"sweeps__size__operation": GONE}, ["sweeps.size", "'operation'"]),
    ({"sweeps__size__variants": ["serial", "fast"]}, ["sweeps.size.variants", "'fast'", "serial", "cublas"]),
    ({"sweeps__size__variants": []}, ["sweeps.size.variants", "[]", "at least 1"]),
    ({"sweeps__size__variants": ["numpy", "numpy"]}, ["sweeps.size.variants", "'numpy'", "each value once"]),
    ({"sweeps__size__dtypes": ["int32"]}, ["sweeps.size.dtypes", "'int32'", "float32", "float64"]),
    ({"sweeps__size__sizes": [64, -1]}, ["sweeps.size.sizes", "-1", "at least 1"]),
    ({"sweeps__size__sizes": [0]}, ["sweeps.size.sizes", "0", "at least 1"]),
    ({"sweeps__size__sizes": [2**31]}, ["sweeps.size.sizes", "2147483648", "at most 2147483647"]),
    ({"sweeps__size__sizes": [64.0]}, ["sweeps.size.sizes", "64.0", "integer"]),
    ({"sweeps__size__sizes": ["64"]}, ["sweeps.size.sizes", "'64'", "integer"]),
    ({"sweeps__size__sizes": 64}, ["sweeps.size.sizes", "64", "array"]),
    ({"sweeps__size__sizes": {"start": 64, "stop": 128}}, ["sweeps.size.sizes", "'step'", "start"]),
    ({"sweeps__size__sizes": {"start": 1, "stop": 9, "step": 0}}, ["sweeps.size.sizes.step", "0", "at least 1"]),
    ({"sweeps__size__sizes": GONE}, ["sweeps.size", "either sizes or shapes"]),
    ({"sweeps__size__shapes": [[1, 2, 3]]}, ["sweeps.size", "either sizes or shapes"]),
    ({"sweeps__sum__sizes": GONE, "sweeps__sum__shapes": [[1, 2]]}, ["sweeps.sum.shapes", "[1, 2]", "n"]),
    ({"sweeps__size__tiles": [7]}, ["sweeps.size.tiles", "7", "8, 16, 32"]),
    ({"sweeps__sum__tiles": [8]}, ["sweeps.sum.tiles", "8", "none"]),
    ({"sweeps__sum__alpha": 2}, ["sweeps.sum.alpha", "sum has no such parameter"]),
    ({"sweeps__size__ranks": [0]}, ["sweeps.size.ranks", "0", "at least 1"]),
    ({"sweeps__size__beta": "half"}, ["sweeps.size.beta", "'half'", "number"]),
    ({"sweeps__size__beta": float("nan")}, ["sweeps.size.beta", "nan", "finite"]),
    ({"sweeps__size__sizes": [8, 8]}, ["sweeps.size.sizes", "[8, 8]", "each value once"]),
    ({"sweeps__size__sizes": {"start": 9, "stop": 8, "step": 1}}, ["sweeps.size.sizes.start", "9", "at most stop, 8"]),
    ({"measuring__min_repetitions": 500}, ["measuring.min_repetitions", "500", "at most max_repetitions"]),
    (
        {"sweeps__size__variants": ["naive_unguarded"], "sweeps__size__sizes": [641]},
        ["sweeps.size", "641", "allow_fail"],
    ),
    ({"sweeps__full": CONFIG["sweeps"]["sum"]}, ["sweeps", "'full'", "all but the scales"]),
]


@pytest.mark.parametrize(
    ("changes", "named"), REFUSED, ids=[str(list(changes)[-1]) + str(i) for i, (changes, _) in enumerate(REFUSED)]
)
def test_a_wrong_config_is_refused_with_key_value_and_what_is_allowed(changes, named):
    with pytest.raises(plan.ConfigError) as refusal:
        make(changed(**changes))
    message = str(refusal.value)
    assert message.startswith("config: ")
    assert "\n" not in message
    for part in named:
        assert part in message


@pytest.mark.parametrize("scale", plan.SCALES)
@pytest.mark.parametrize("backends", ["auto", "cpu", "cuda"])
def test_the_config_of_the_repository_is_right(scale, backends):
    config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"scale": scale, "backends": backends}
    planned = make(config)
    planned_sweeps = {batch.sweep for batch in planned.batches}
    assert planned_sweeps == set(config["sweeps"]) if scale == "full" else planned_sweeps <= set(config["sweeps"])
    assert planned.config["scale"] == scale


# --- what is planned ---------------------------------------------------------------------------------------------


def test_a_batch_holds_all_points_of_a_sweep_variant_and_rank_count():
    planned = make()
    assert (
        len({batch.name for batch in planned.batches}) == len(planned.batches) == 5 * 2 + len(OPERATIONS["sum"].ladder)
    )
    batch = planned.batch("size/tiled_padded-r2")
    assert (batch.sweep, batch.variant, batch.device, batch.ranks) == ("size", "tiled_padded", "cuda", 2)
    assert [(point.shape, point.parameters["tile"]) for point in batch.points] == [
        ((64, 64, 64), 8),
        ((64, 64, 64), 32),
        ((128, 128, 128), 8),
        ((128, 128, 128), 32),
    ]
    assert {point.ranks for point in batch.points} == {2}
    assert "tile" not in planned.batch("size/cublas-r1").points[0].parameters
    assert [point.dtype for point in planned.batch("sum/cub-r1").points] == ["int32", "float32", "float64"]


def test_the_scale_picks_the_values():
    planned = make(changed(scale="full"))
    assert [point.shape[0] for point in planned.batch("size/numpy-r1").points] == [100, 200, 300, 400]
    assert planned.measuring.max_repetitions == 200


def test_parameters_have_defaults_and_are_taken_from_the_sweep():
    assert make().batch("size/serial-r1").points[0].parameters == {"alpha": 1.5, "beta": 0.5}
    planned = make(changed(sweeps__size__beta=0))
    assert planned.batch("size/serial-r1").points[0].parameters == {"alpha": 1.5, "beta": 0.0}


def test_an_unknown_batch_is_named_with_those_that_are_planned():
    with pytest.raises(plan.ConfigError, match=r"'size/none-r1'; planned are: size/serial-r1, "):
        make().batch("size/none-r1")


def test_a_long_plan():
    sizes = {"start": 1, "stop": 300, "step": 1}
    planned = make(changed(sweeps__size__sizes=sizes))
    assert sum(len(batch.points) for batch in planned.batches) >= 300 * 7 * 2


# --- what is left out --------------------------------------------------------------------------------------------


def devices(planned: plan.Plan) -> set[str]:
    return {batch.device for batch in planned.to_measure}


def test_auto_without_a_gpu_leaves_out_all_of_cuda_with_the_reason():
    planned = make(changed(backends="auto"))
    assert devices(planned) == {"cpu"}
    assert planned.left_out == {batch.name: NO_GPU for batch in planned.batches if batch.device == "cuda"}
    assert {"sweep": "size", "variant": "tiled_padded", "ranks": 2, "reason": NO_GPU} in planned.omitted()
    assert len(planned.omitted()) == len(planned.left_out)


def test_auto_with_one_gpu_leaves_out_what_needs_two():
    planned = make(changed(backends="auto"), missing="", gpus=1)
    assert set(planned.left_out) == {"size/naive-r2", "size/tiled_padded-r2", "size/cublas-r2"}
    assert all("2 ranks" in reason and "1" in reason for reason in planned.left_out.values())


def test_auto_with_one_gpu_keeps_what_may_share_it():
    assert not make(changed(backends="auto", share_gpu=True), missing="", gpus=1).left_out


def test_cuda_keeps_all_of_cuda_whatever_the_planner_sees():
    planned = make()
    assert devices(planned) == {"cuda"}
    assert all(batch.device == "cpu" for batch in planned.batches if batch.name in planned.left_out)
    assert planned.to_measure == make(missing="", gpus=8).to_measure


def test_cpu_keeps_the_cpu_alone():
    assert devices(make(changed(backends="cpu"), missing="", gpus=8)) == {"cpu"}


def test_a_plan_with_nothing_to_measure_is_refused():
    config = changed(backends="auto", sweeps__size__variants=["naive"], sweeps__sum=GONE)
    with pytest.raises(plan.ConfigError, match=f"nothing is left to measure: {NO_GPU}"):
        make(config)
    with pytest.raises(plan.ConfigError, match="no sweep has a size at this scale"):
        make(changed(sweeps__size__sizes=[], sweeps__sum=GONE))


# --- on disk -----------------------------------------------------------------------------------------------------


@st.composite
def configs(draw) -> dict:
    """Right configs of one to three sweeps."""
    config = changed(backends=draw(st.sampled_from(["auto", "cuda"])), share_gpu=draw(st.booleans()), sweeps={})
    names = st.text("abcXYZ019-_", min_size=1, max_size=8).filter(lambda name: name not in plan.SCALES)
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        operation = draw(st.sampled_from(list(OPERATIONS.values())))
        size = st.integers(1, 5000)

        def some(values):
            return draw(st.lists(st.sampled_from(values), min_size=1, unique=True))

        entry = {"operation": operation.name, "dtypes": some(operation.dtypes), "ranks": some([1, 2, 3, 7])}
        if draw(st.booleans()):
            entry["sizes"] = draw(st.lists(size, min_size=1, max_size=3, unique=True))
        else:
            shape = st.lists(size, min_size=len(operation.dimensions), max_size=len(operation.dimensions))
            entry["shapes"] = draw(st.lists(shape, min_size=1, max_size=3, unique_by=tuple))
        for parameter in operation.parameters:
            if draw(st.booleans()):
                entry[parameter] = draw(st.floats(-4, 4))
        config["sweeps"][name] = entry
    return config


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=configs(), gpus=st.integers(0, 2))
def test_a_plan_that_was_written_reads_as_it_was(tmp_path, config, gpus):
    planned = make(config, "" if gpus else NO_GPU, gpus)
    planned.write(tmp_path / "plan.json")
    again = plan.read(tmp_path / "plan.json")
    assert again == planned
    assert again.fingerprint == planned.fingerprint
    keys = [point.key for point in again.batches[0].points]
    assert keys == [point.key for point in planned.batches[0].points]


# --- what runs again ---------------------------------------------------------------------------------------------


def fingerprints() -> dict[str, str]:
    return {batch.name: batch.fingerprint for batch in make().batches}


def with_record(monkeypatch, name: str, **changes) -> None:
    """Change one record of the matmul ladder."""
    matmul = OPERATIONS["matmul"]
    ladder = tuple(dataclasses.replace(v, **changes) if v.name == name else v for v in matmul.ladder)
    monkeypatch.setitem(OPERATIONS, "matmul", dataclasses.replace(matmul, ladder=ladder))


def differing(before: dict[str, str]) -> set[str]:
    after = fingerprints()
    assert after.keys() == before.keys()
    return {name for name in after if after[name] != before[name]}


def test_a_changed_source_changes_that_variant_alone(monkeypatch, tmp_path):
    before = fingerprints()
    shutil.copytree(kernels.FOLDER, tmp_path / "kernels")
    monkeypatch.setattr(kernels, "FOLDER", tmp_path / "kernels")
    assert not differing(before)
    with (tmp_path / "kernels" / "matmul" / "naive.cu").open("a") as file:
        file.write("// faster\n")
    assert differing(before) == {"size/naive-r1", "size/naive-r2"}


def test_a_changed_record_changes_that_variant_alone(monkeypatch):
    before = fingerprints()
    with_record(monkeypatch, "tiled_padded", tiles=(8, 32))  # the points are the same
    assert differing(before) == {"size/tiled_padded-r1", "size/tiled_padded-r2"}


def test_a_changed_text_of_a_record_changes_nothing(monkeypatch):
    before = fingerprints()
    with_record(monkeypatch, "tiled_padded", change="in other words", source="005")
    assert not differing(before)


@pytest.mark.parametrize(
    "changes",
    [{"measuring__seed": 2}, {"sweeps__size__sizes": [64]}, {"sweeps__size__alpha": 1}],
    ids=lambda changes: next(iter(changes)),
)
def test_other_points_or_another_way_of_measuring_change_a_batch(changes):
    batch = "size/tiled_padded-r1"
    assert make(changed(**changes)).batch(batch).fingerprint != make().batch(batch).fingerprint


def test_another_sweep_leaves_a_batch_as_it_is():
    batch = "size/tiled_padded-r1"
    planned = make(changed(sweeps__sum__sizes=[5]))
    assert planned.batch(batch).fingerprint == make().batch(batch).fingerprint
    assert planned.fingerprint != make().fingerprint


def test_a_variant_for_even_sizes_is_planned_where_it_is_right_or_where_a_fail_is_asked_for():
    def shapes(**sweep):
        entry = {
            "operation": "matmul",
            "sizes": [32, 40, 64],
            "dtypes": ["float32"],
            "tiles": [16, 32],
            "ranks": [2],
        } | sweep
        batches = make(changed(backends="cuda", sweeps={"s": entry})).batches
        (batch,) = (batch for batch in batches if batch.variant == "tiled_exact")
        return [(point.shape[0], int(point.parameters["tile"])) for point in batch.points]

    assert shapes() == [(32, 16), (64, 16), (64, 32)], "half of the rows must be a multiple too"
    assert len(shapes(allow_fail=True, variants=["tiled_exact"])) == 6


def test_pinned_and_pageable_are_points_of_their_own_on_a_gpu_only():
    entry = {"operation": "matmul", "variants": ["serial", "cublas"], "sizes": [8], "dtypes": ["float32"]}
    config = changed(backends="cuda", sweeps={"s": entry | {"pinned": [True, False]}})
    found = {batch.variant: [p.parameters.get("pinned") for p in batch.points] for batch in make(config).batches}
    assert found == {"serial": [None], "cublas": [1.0, 0.0]}
    without = make(changed(backends="cuda", sweeps={"s": entry})).batches
    assert all("pinned" not in point.parameters for batch in without for point in batch.points)
