"""The choice of ``best`` by tables of measured times, and the tuner that writes them."""

import dataclasses
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm.bench import tuning
from hpcmm.cli import tune
from hpcmm.experiment import fingerprint
from hpcmm.model import DeviceError, HpcmmError, Task
from hpcmm.operations import OPERATIONS, choice, tables
from hpcmm.operations.builds import builds
from hpcmm.operations.tables import Entry

MATMUL = OPERATIONS["matmul"]
BEST = MATMUL.variant("best")
H100 = "NVIDIA H100 80GB HBM3"
TYPES = ("float32", "float64", "bfloat16")
shapes = st.tuples(*[st.integers(1, 20000) | st.integers(1, 200).map(lambda size: 64 * size)] * 3)


def task(shape, dtype="float32", beta=0.0, gpu=H100, sms=132, variant=BEST, alpha=1.0) -> Task:
    return Task(MATMUL, variant, shape, dtype, {"alpha": alpha, "beta": beta}, multiprocessors=sms, gpu=gpu)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Without a table of the user's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def entries(dtype: str) -> list[Entry]:
    return tables.read(tables.FOLDER / tables.file_of(H100))[dtype]


@pytest.mark.parametrize("dtype", [*TYPES, "float16"])
@given(shape=shapes, beta=st.sampled_from([0.0, 0.5]))
def test_a_shape_has_one_build_whatever_alpha(dtype, shape, beta):
    asked, other = task(shape, dtype, beta), task(shape, dtype, 2 * beta, alpha=0.3)
    assert asked.pick == other.pick
    assert asked.picked.variant.name in BEST.picks.rungs(dtype)
    name = asked.pick.removesuffix(", by table")
    assert name in {each.name for each in builds(asked)}
    assert asked.pick == name or asked.picked.variant.geometry_of(dtype).pick(asked.picked) in name
    if asked.pick == name:  # the models chose
        assert name == task(shape, dtype, beta, gpu="").pick


@given(shape=shapes)
def test_no_table_is_of_another_gpu_or_of_a_part_of_its_sms(shape):
    models = task(shape, gpu="")
    assert task(shape, gpu="NVIDIA H200").pick == models.pick
    assert task(shape, sms=66).pick == task(shape, gpu="", sms=66).pick
    for name in ("best_invariant", "best_three_tf32", "split_k"):
        variant = MATMUL.variant(name)
        assert task(shape, variant=variant).pick == task(shape, gpu="", variant=variant).pick


@pytest.mark.parametrize("dtype", TYPES)
def test_a_product_with_more_work_than_any_measured_one_is_left_to_the_models(dtype):
    for size in (8192, 12345, 16384):
        assert task((size, size, size), dtype).pick == task((size, size, size), dtype, gpu="").pick


@pytest.mark.parametrize("dtype", TYPES)
def test_a_measured_shape_has_its_fastest_build(dtype):
    for entry in entries(dtype)[:60]:
        asked = task(entry.shape, dtype, entry.beta)
        assert entry.seconds[asked.pick.removesuffix(", by table")] == entry.least
        assert asked.pick.endswith(", by table")


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1.02), ("float64", 1.06), ("bfloat16", 1.035)])
def test_at_shapes_that_are_left_out_of_the_table_its_choice_is_better_than_that_of_the_models(dtype, most):
    every, seconds = entries(dtype)[:200], BEST.picks.seconds_of_build
    known = [choice.measured(task(each.shape, dtype), each, seconds) for each in every]
    by_table, by_models = [], []
    for part in range(4):
        kept = [each for number, each in enumerate(known) if number % 4 != part]
        usual = choice.medians(kept)
        for entry in every[part::4]:
            asked = task(entry.shape, dtype, entry.beta, gpu="")
            times = choice.corrected(asked, kept, usual, seconds)
            model = asked.pick
            fastest = min(times, key=times.__getitem__, default=model)
            gains = fastest != model and times[fastest] < (1 - choice.GAIN) * times[model]
            picked = fastest if gains else model
            for losses, name in ((by_table, picked), (by_models, model)):
                losses.append(entry.seconds.get(name, tables.PROMISING * entry.least) / entry.least)
    assert statistics.geometric_mean(by_table) < statistics.geometric_mean(by_models)
    assert statistics.geometric_mean(by_table) < most


def test_a_prediction_without_a_near_shape_is_not_corrected():
    far = [
        choice.measured(task((9000, 9000, 9000)), Entry((9000, 9000, 9000), 0.0, {"stream_k_fma": 1.0}), lambda t: 1)
    ]
    assert choice.corrected(task((40, 40, 40)), far, choice.medians(far), lambda t: 1) == {}
    assert task((1, 1, 1)).pick == task((1, 1, 1), gpu="").pick


def test_what_is_measured_corrects_a_prediction():
    """A model that is wrong by a factor for one build, and a table that says so."""

    def seconds(of_build: Task) -> float:
        return 1e-9 * math.prod(of_build.shape)

    names = [each.name for each in builds(task((512, 512, 512)))]
    slow = [size for size in (400, 500, 600)]
    known = [
        Entry((size,) * 3, 0.0, {name: 1e-9 * size**3 * (1.3 if name == names[0] else 1.0) for name in names})
        for size in slow
    ]
    known = [choice.measured(task(each.shape), each, seconds) for each in known]
    times = choice.corrected(task((512, 512, 512)), known, choice.medians(known), seconds)
    assert times[names[0]] == pytest.approx(1.3 * 1e-9 * 512**3)
    assert times[names[1]] == pytest.approx(1e-9 * 512**3)


def test_a_build_of_which_nothing_is_known_is_not_corrected():
    entry = Entry((512, 512, 512), 0.0, {"stream_k_fma": 1e-6}, ("large_thread_tile",))
    deviations = choice.measured(task((512, 512, 512)), entry, lambda t: 1e-6).deviations
    assert "large_thread_tile" not in deviations and deviations["stream_k_fma"] == 0
    assert deviations["split_k, 32x32, slices 8, parts 1"] == pytest.approx(math.log(tables.PROMISING))


# --- tables --------------------------------------------------------------------------------------------------------

some_seconds = st.floats(1e-6, 1.0)
some_entries = st.lists(
    st.builds(
        Entry,
        st.tuples(*[st.integers(1, 20000)] * 3),
        st.sampled_from([0.0, 0.5]),
        st.dictionaries(st.sampled_from(["a, 1", "b", "c: d"]), some_seconds, min_size=1),
        st.sampled_from([(), ("e",), ("e", "f, 2")]),
    ),
    min_size=1,
    max_size=5,
)


@given(written=some_entries)
def test_a_table_is_read_as_it_was_written_to_three_digits(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("tiles") / "table.yaml"
    assert tables.add("A GPU", 12, {"float64": written}, path) == path
    found = tables.read(path)["float64"]
    last = {(each.shape, bool(each.beta)): each for each in written}
    assert {(each.shape, bool(each.beta)) for each in found} == set(last)
    for each in found:
        entry = last[each.shape, bool(each.beta)]
        assert each.unknown == entry.unknown
        assert set(each.seconds) == {n for n, s in entry.seconds.items() if s < tables.PROMISING * entry.least}
        for name, seconds in each.seconds.items():
            assert seconds == pytest.approx(entry.seconds[name], rel=6e-3)


def test_the_tables_of_the_package_name_builds_that_exist():
    for path in tables.FOLDER.glob("*.yaml"):
        for dtype, found in tables.read(path).items():
            assert all(set(each.seconds) <= {b.name for b in builds(task(each.shape, dtype))} for each in found[::9])
        assert path.stat().st_size < 400_000


def test_the_users_own_table_comes_first_and_measures_best_again():
    shape = entries("float32")[0].shape
    fastest = task(shape).pick
    other = next(each.name for each in builds(task(shape)) if each.name not in fastest)

    def prints() -> list[str]:
        fingerprint.forget()
        return [fingerprint._of_task(MATMUL, MATMUL.variant(n), task(shape).element) for n in ("best", "split_k")]

    before = prints()
    tables.add(H100, 132, {"float32": [Entry(shape, 0.0, {other: 1e-6, fastest: 2e-6})]})
    assert task(shape).pick == other + ", by table"
    after = prints()
    fingerprint.forget()
    assert after[0] != before[0] and after[1] == before[1]


# --- the tuner -----------------------------------------------------------------------------------------------------


class Clock:
    """A device whose builds take times by their names; some cannot run."""

    def __init__(self, times):
        self.times = times

    def placed(self, task):
        return dataclasses.replace(task, multiprocessors=132, gpu="A GPU")

    def upload(self, array):
        return array.copy()

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def copy(self, source, target):
        target[...] = source

    def prepare(self, task, arrays):
        assert arrays["A"].shape == task.shape[::2] and arrays["A"].flags.c_contiguous
        name = ", ".join(filter(None, (task.variant.name, task.geometry.pick(task))))
        if name not in self.times:
            raise DeviceError("no room")
        return lambda: name

    def seconds_alone(self, run, cold, arrays):
        assert cold
        return self.times[run()]


def test_the_tuner_times_every_build_that_can_run(monkeypatch):
    monkeypatch.setattr(tuning, "PIECE", 1 << 12)
    every = [each.name for each in builds(task((70, 90, 50)))]
    times = {name: 1e-6 * (3 + number % 7) for number, name in enumerate(every) if number % 3}
    entry = tuning.Tuner(Clock(times), MATMUL, "best", "float32").entry((70, 90, 50), 0.5)
    assert entry == Entry((70, 90, 50), 0.5, times)


def test_the_grid_has_shapes_of_three_kinds_and_reads_c_at_some():
    first = [each for each, _ in zip(tuning.grid(), range(300), strict=False)]
    assert len(set(first)) > 280
    assert sum(beta > 0 for _, beta in first) == 75
    assert sum(all(side % 64 == 0 for side in shape) for shape, _ in first) >= 100
    assert all(1 <= side <= 4 * 8192 for shape, _ in first for side in shape)


@pytest.mark.parametrize("text", ["", "1x2", "0x1x1", "axbxc", "1x2x3x4", "-1x2x3"])
def test_a_shape_that_is_none_is_refused(text):
    with pytest.raises(Exception, match="is not a shape"):
        tune._shape(text)
    assert tune._shape("512x4096x1000") == (512, 4096, 1000)


@pytest.mark.parametrize(
    "text", ["", "[1]", "multiprocessors: 1\nfloat32: {builds: [a]}", "multiprocessors: 1\nfloat32: 3", "{"]
)
def test_a_file_that_is_no_table_is_named(tmp_path, text):
    path = tmp_path / "table.yaml"
    path.write_text(text)
    with pytest.raises(HpcmmError, match=f"{path}: not a table of hpcmm tune"):
        tables.read(path)


def test_a_table_keeps_no_times_of_another_part_of_a_gpu_and_may_be_empty(tmp_path):
    path = tmp_path / "table.yaml"
    tables.add("T", 132, {"float32": []}, path)
    assert tables.read(path) == {}
    tables.add("T", 132, {"float32": [tables.Entry((1, 2, 3), 0.0, {"a": 1e-6})]}, path)
    tables.add("T", 132, {"float64": [tables.Entry((4, 5, 6), 0.5, {"b": 2e-6})]}, path)
    assert {dtype: [each.shape for each in entries] for dtype, entries in tables.read(path).items()} == {
        "float32": [(1, 2, 3)],
        "float64": [(4, 5, 6)],
    }
    tables.add("T", 66, {"float64": [tables.Entry((7, 8, 9), 0.0, {"b": 2e-6})]}, path)
    assert [each.shape for each in tables.read(path)["float64"]] == [(7, 8, 9)] and "float32" not in tables.read(path)
