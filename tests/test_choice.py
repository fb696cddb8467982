"""The choice of ``best`` by tables of measured times, and the tuner that writes them."""

import ast
import dataclasses
import inspect
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm.bench import tuning
from hpcmm.experiment import fingerprint
from hpcmm.model import DeviceError, HpcmmError, Task
from hpcmm.operations import OPERATIONS, blocks, choice, copies, matmul_ladder, tabled, tables, trials, waves
from hpcmm.operations.choice import builds
from hpcmm.operations.shapes import KINDS, drawn
from hpcmm.operations.tables import Entry

MATMUL = OPERATIONS["matmul"]
BEST = MATMUL.variant("best")
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
TYPES = ("float32", "float64", "bfloat16")
shapes = st.tuples(*[st.integers(1, 20000) | st.integers(1, 200).map(lambda size: 64 * size)] * 3)


def task(shape, dtype="float32", beta=0.0, gpu=H100, sms=132, variant=BEST) -> Task:
    return Task(MATMUL, variant, shape, dtype, {"alpha": 1.0, "beta": beta}, multiprocessors=sms, gpu=gpu)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Without a table of the user's own, and without earlier trials."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "_trials", {})
    return tmp_path


def entries(dtype: str, gpu: str = H100) -> list[Entry]:
    return tables.read(tables.FOLDER / tables.file_of(gpu))[dtype]


@pytest.mark.parametrize("dtype", [*TYPES, "float16"])
@given(shape=shapes, beta=st.sampled_from([0.0, 0.5]))
def test_a_shape_has_one_build_whatever_alpha(dtype, shape, beta):
    asked = task(shape, dtype, beta)
    assert asked.pick == dataclasses.replace(asked, scalars={"alpha": 0.3, "beta": 2 * beta}).pick
    assert asked.picked.variant.name in BEST.picks.rungs(dtype)
    assert asked.pick.removesuffix(", by table") in {each.name for each in builds(asked)}


@pytest.mark.parametrize(
    ("dtype", "card", "by_table"),
    [
        ("float32", H200, {True}),
        ("float64", H200, {True}),
        ("float32", H100, {False}),  # its table lacks the newest builds
        ("bfloat16", H200, {True, False}),
    ],
)
def test_a_measured_shape_has_its_fastest_build(dtype, card, by_table):
    decided = set()
    for entry in entries(dtype, card)[:20]:
        asked = task(entry.shape, dtype, entry.beta, card)
        if all(entry.knows(each.name) for each in choice.ranked(asked)[: choice.TRIED]):
            assert entry.seconds[asked.pick.removesuffix(", by table")] == entry.least
            assert asked.pick.endswith(", by table") and not choice.undecided(asked)
        else:
            assert "by table" not in asked.pick and choice.undecided(asked)
        decided.add(asked.pick.endswith(", by table"))
    assert decided == by_table


def test_the_model_has_at_most_ten_constants():
    """In all: no module of a geometry, and no record of a tile, has one of its own."""
    assert len(waves.CONSTANTS) <= 10
    fractions = {}
    for module in (waves, blocks, copies, tabled, matmul_ladder, choice):
        tree = ast.parse(inspect.getsource(module))
        fractions[module.__name__] = [
            each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, float)
        ]
    of_model = fractions.pop(waves.__name__)
    assert set(of_model) <= {*waves.CONSTANTS, 0.0}
    others = {choice.UNALIKE, tabled.CACHED_BYTES, 0.0, 1.0}  # of the distance of shapes, of a cache, and scalars
    assert set().union(*fractions.values()) <= others


def test_the_model_takes_the_numbers_of_the_gpu():
    large, small = (8192, 8192, 8192), (8, 8192, 8192)
    for shape, field, faster in ((large, "clock", 1.9), (small, "bandwidth", 1.1), (large, "multiprocessors", 1.8)):
        build = min((each.task for each in builds(task(shape))), key=waves.seconds)
        twice = dataclasses.replace(build, **{field: 2 * getattr(build, field)})
        assert waves.seconds(build) / waves.seconds(twice) > faster, field
        assert waves.seconds(build) / waves.seconds(twice) <= 2


# Relative losses to the fastest build over half of the shapes of the table of an H100, left out with a quarter of all:
# geometric mean of the first in the order of the model, the first in the corrected order, and the fastest of a trial;
# and the largest loss of a trial.
MOST_LOSSES = {
    "float32": (1.06, 1.03, 1.002, 1.06),
    "float64": (1.15, 1.08, 1.004, 1.12),
    "bfloat16": (1.08, 1.04, 1.0005, 1.02),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_a_trial_finds_nearly_the_fastest_build_of_shapes_that_are_left_out_of_the_table(dtype, monkeypatch):
    found = losses(dtype, monkeypatch)
    print(
        dtype, *(f"{name} {100 * (mean - 1):.2f} %, {100 * (most - 1):.0f} %" for name, (mean, most) in found.items())
    )
    for (mean, _), limit in zip(found.values(), MOST_LOSSES[dtype], strict=False):
        assert mean < limit, found
    assert found["trial"][1] < MOST_LOSSES[dtype][-1], found


def losses(dtype: str, monkeypatch) -> dict[str, tuple[float, float]]:
    """Return the geometric mean and the largest of the losses of a pick by the model, corrected, and by a trial.

    Builds that are newer than the table do not count.
    """
    every, part = entries(dtype), 0
    monkeypatch.setattr(choice, "own_entries", lambda of: [each for i, each in enumerate(every) if i % 4 != part])
    of: dict[str, list[float]] = {"model": [], "corrected": [], "trial": []}
    for part in range(2):
        for entry in every[part::4]:
            asked = task(entry.shape, dtype, entry.beta)
            order = [each.name for each in choice.ranked(asked) if entry.knows(each.name)]
            timed = [each for each in builds(asked) if entry.knows(each.name)]
            by_model = min(timed, key=lambda each: waves.seconds(each.task)).name
            times = {name: entry.seconds.get(name, tables.SLOW * entry.least) / entry.least for name in order}
            of["model"].append(times[by_model])
            of["corrected"].append(times[order[0]])
            of["trial"].append(min(times[name] for name in order[: choice.TRIED]))
    return {name: (statistics.geometric_mean(each), max(each)) for name, each in of.items()}


def test_a_gpu_without_a_table_takes_the_deviations_of_an_h200_and_an_h100():
    shape = (777, 1000, 333)
    assert task(shape, gpu="NVIDIA GH200 480GB").pick == task(shape, gpu="").pick
    assert choice.nearest(task(shape, gpu=H200, sms=78)) == choice.nearest(task(shape, gpu="", sms=132))
    tables.add("A GPU", 132, {"float32": [Entry(shape, 0.0, {"a": 1e-6})]})  # which has no float64
    assert choice.nearest(task(shape, "float64", gpu="A GPU")) == choice.nearest(task(shape, "float64", gpu=""))


def test_what_is_measured_corrects_a_prediction():
    """A build that takes 1.3 times as long as predicted at shapes around is expected to do so, and no other one."""
    every = builds(task((512, 512, 512)))
    names = [each.name for each in sorted(every, key=lambda each: waves.seconds(each.task))]
    around = [(size,) * 3 for size in (400, 500, 600)]
    known = []
    for shape in around:
        predicted = {each.name: waves.seconds(each.task) for each in builds(task(shape))}
        known.append(Entry(shape, 0.0, {**predicted, names[0]: 1.3 * predicted[names[0]]}))
    tables.add("A GPU", 132, {"float32": known})
    asked = task((512, 512, 512), gpu="A GPU")
    predicted = {each.name: waves.seconds(each.task) for each in builds(asked)}
    times = choice.corrected(predicted, *choice.nearest(asked))
    assert times[names[0]] == pytest.approx(1.3 * predicted[names[0]], rel=0.02)
    fast = [
        name for name in names if all(name in each.seconds for each in tables.read(tables.of_user("A GPU"))["float32"])
    ]
    assert len(fast) > 5
    assert all(times[name] == pytest.approx(predicted[name], rel=0.02) for name in fast if name != names[0])


def test_a_build_that_no_table_has_is_expected_to_be_as_fast_as_the_faster_others():
    near = [(1.0, {str(number): 0.1 * number for number in range(8)})]
    times = choice.corrected(dict.fromkeys(["new", *map(str, range(8))], 1e-6), near)
    assert times["new"] == times["2"] < times["3"]
    assert choice.corrected({"new": 1e-6}) == {"new": 1e-6}


def test_the_first_tables_that_have_a_build_correct_it():
    first, second = [(1.0, {"a": 0.1}), (3.0, {"a": 0.5})], [(1.0, {"a": 2.0, "b": 1.0})]
    times = choice.corrected({"a": 1e-6, "b": 1e-6}, first, second)
    assert times == pytest.approx({"a": 1e-6 * math.exp(0.4), "b": 1e-6 * math.e})


@pytest.mark.slow
def test_on_other_gpus_a_trial_finds_nearly_the_fastest_build_too(monkeypatch):
    """By the times of an H200 at shapes that are left out of its table; an H100 has times of fewer rungs."""
    every, left_out = entries("bfloat16", H200), ()
    known = choice.own_entries
    monkeypatch.setattr(choice, "own_entries", lambda of: [each for each in known(of) if each.shape != left_out])
    for gpu in (H100, "A GPU without a table", H200):
        found = []
        for entry in every[::3]:
            left_out = entry.shape
            order = [each.name for each in choice.ranked(task(entry.shape, "bfloat16", entry.beta, gpu=gpu))]
            found.append(min(entry.seconds.get(name, math.inf) for name in order[: choice.TRIED]) / entry.least)
        assert statistics.geometric_mean(found) < 1.003 and max(found) < 1.3, (gpu, found)


def test_a_build_of_which_nothing_is_known_is_not_corrected_and_has_to_be_tried():
    """As one that was added after the table was written."""
    stream = "stream_k_fma, 128x128, slices 2"
    every = [each.name for each in choice.ranked(task((512, 512, 512), gpu="A GPU"))]
    new = every[0]
    entry = Entry((512, 512, 512), 0.0, {stream: 1e-6}, set(every) - {stream, new})
    found = choice.deviations(task((512, 512, 512), sms=131), entry)
    assert new not in found and stream in found
    tables.add("A GPU", 132, {"float32": [entry]})
    asked = task((512, 512, 512), gpu="A GPU")
    assert choice.undecided(asked)
    whole = Entry((512, 512, 512), 0.0, {stream: 1e-6}, set(every) - {stream})
    tables.add("A GPU", 132, {"float32": [whole]})
    assert asked.pick == f"{stream}, by table" and not choice.undecided(asked)


def test_a_table_that_lacks_builds_that_a_trial_would_not_run_decides():
    every = [each.name for each in choice.ranked(task((512, 512, 512), gpu="A GPU"))]
    seconds = dict.fromkeys(every[:-1], 2e-6) | {every[3]: 1e-6}
    tables.add("A GPU", 132, {"float32": [Entry((512, 512, 512), 0.0, seconds)]})
    asked = task((512, 512, 512), gpu="A GPU")
    assert asked.pick == f"{every[3]}, by table" and not choice.undecided(asked)


# --- tables --------------------------------------------------------------------------------------------------------

some_seconds = st.floats(1e-6, 1.0)
some_entries = st.lists(
    st.builds(
        Entry,
        st.tuples(*[st.integers(1, 20000)] * 3),
        st.sampled_from([0.0, 0.5]),
        st.dictionaries(st.sampled_from(["a, 1", "b", "c: d"]), some_seconds, min_size=1),
        st.sampled_from([(), ("e",), ("e", "f, 2")]).map(frozenset),
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
        assert set(each.seconds) == {n for n, s in entry.seconds.items() if s < tables.SLOW * entry.least}
        assert all(
            each.knows(name) == entry.knows(name) for name in {n for e in written for n in (*e.seconds, *e.slow)}
        )
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
        return [
            fingerprint._of_task(MATMUL, MATMUL.variant(n), task(shape).element) for n in ("best", "split_k", "naive")
        ]

    before = prints()
    choice.keep(task((33, 44, 54)), other, 2)
    assert prints() == before, "the first trial, which writes the user's file, measures nothing again"
    slow = {each.name for each in builds(task(shape))} - {other}
    tables.add(H100, 132, {"float32": [Entry(shape, 0.0, {other: 1e-6}, slow)]})
    assert task(shape).pick == other + ", by table"
    after = prints()
    assert after[0] != before[0] and after[1] != before[1] and after[2] == before[2]
    choice.keep(task((33, 44, 55)), other, 2)
    assert prints() == after, "a trial does not measure again what it decides on"
    fingerprint.forget()


def test_a_trial_is_kept_beside_the_users_table(tmp_path):
    asked, other = task((33, 44, 55)), task((33, 44, 56), "float64", 0.5)
    times = tables.add(H100, 132, {"float32": [Entry((4, 4, 4), 0.0, {"a": 1e-6})]})
    for one, number in ((asked, 5), (other, 7)):
        name = builds(one)[number].name
        choice.keep(one, name, 12)
        assert one.pick == f"{name}, by trial of 12" and not choice.undecided(one)
    tables._trials.clear()  # as another process
    assert asked.pick == f"{builds(asked)[5].name}, by trial of 12"
    assert choice.undecided(dataclasses.replace(asked, variant=MATMUL.variant("split_k"))), "of another variant"
    assert tables.read(times)["float32"] == [Entry((4, 4, 4), 0.0, {"a": 1e-6}, frozenset())]
    tables.add(H100, 132, {"float32": [Entry((5, 5, 5), 0.0, {"a": 1e-6})]})
    tables._trials.clear()
    assert asked.pick.endswith("by trial of 12"), "times that are added keep trials"


def test_a_trial_is_made_again_if_there_are_other_builds(monkeypatch):
    asked = task((33, 44, 55), variant=MATMUL.variant("split_k"))
    choice.keep(asked, builds(asked)[3].name, 12)
    fewer = dataclasses.replace(
        asked.variant, geometry=dataclasses.replace(asked.geometry, choices=asked.geometry.choices[:3])
    )
    assert not choice.undecided(asked) and choice.undecided(dataclasses.replace(asked, variant=fewer))


def test_a_trial_that_cannot_be_kept_lasts_until_the_process_ends_and_says_so(home, monkeypatch, capsys):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    asked = task((34, 45, 56))
    choice.keep(asked, builds(asked)[5].name, 12)
    assert asked.pick == f"{builds(asked)[5].name}, by trial of 12, not kept"
    assert "cannot be written (Not a directory)" in capsys.readouterr().out


class Ranks:
    """The ranks of several nodes, one after another in one process; each has results of trials of its own."""

    def __init__(self, everyone):
        self.everyone = everyone

    def allgather(self, mine):
        return self.everyone

    def allreduce(self, number):
        return number


def test_all_ranks_take_the_decision_of_the_first(monkeypatch):
    asked = task((35, 46, 57))
    of = tables.Gpu(H100, 132), choice.key_of(asked)
    names = [each.name for each in builds(asked)]
    first, second = ({of: tables.Trial(names[number], 12, len(names))} for number in (3, 4))
    monkeypatch.setattr(tables, "_trials", dict(second))
    assert tables.settle(Ranks([{}, first, second])) == 1
    assert asked.pick == f"{names[3]}, by trial of 12"
    assert tables.settle(Ranks([{}, first, first])) == 0
    tables._trials.clear()
    assert asked.pick == f"{names[3]}, by trial of 12", "its own table has it, too"


# --- trials and the tuner ------------------------------------------------------------------------------------------


class Clock:
    """A device whose builds take times by their names; some cannot run."""

    tries = True

    def __init__(self, times):
        self.times, self.ran = times, []

    def compile_ahead(self, tasks, threads):
        pass

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

    def seconds_alone(self, run, cold, arrays, lead):
        assert cold
        self.ran.append(run())
        return self.times[run()]


def test_the_tuner_times_every_build_that_can_run(monkeypatch):
    monkeypatch.setattr(trials, "PIECE", 1 << 12)
    every = [each.name for each in builds(task((70, 90, 50)))]
    times = {name: 1e-6 * (3 + number % 7) for number, name in enumerate(every) if number % 3}
    entry = tuning.Tuner(Clock(times), MATMUL, "best", "float32").entry((70, 90, 50), 0.5)
    unsuited = {each.name for each in builds(task(()))} - set(every)
    assert entry == Entry((70, 90, 50), 0.5, times, unsuited) and any(name.startswith("skinny") for name in unsuited)
    assert [name for name in every if not entry.knows(name)] == every[::3]  # for which the clock raises an error


@pytest.mark.parametrize(
    ("variant", "dtype"), [("best", "float64"), ("split_k", "float32"), ("int8_transposed", "int8")]
)
def test_the_first_use_of_a_shape_tries_the_most_promising_builds_and_takes_the_fastest(variant, dtype):
    asked = task((70, 96, 64), dtype, variant=MATMUL.variant(variant), gpu="A GPU")
    order = [each.name for each in choice.ranked(asked)]
    times = {name: 1e-6 * (30 - number % 10) for number, name in enumerate(order)}
    device, chooser = Clock(times), asked.variant.picks or asked.geometry
    chooser.decide(device, asked)
    tried = order[: choice.TRIED]
    assert set(device.ran) == set(tried)
    fastest = min(tried, key=times.__getitem__)
    by = f", by trial of {len(tried)}"
    assert asked.pick == (fastest if variant == "best" else fastest.partition(", ")[2]) + by
    device.ran.clear()
    chooser.decide(device, asked)
    assert not device.ran, "the second use needs no trial"


def test_the_products_of_strassen_are_tried():
    asked = task((300, 300, 300), variant=MATMUL.variant("strassen_2"), gpu="A GPU")
    inner = task((128, 128, 128), gpu="A GPU")
    device = Clock({each.name: 1e-6 for each in builds(inner)})
    asked.geometry.decide(device, asked)
    assert len(set(device.ran)) == choice.TRIED and "by trial" in inner.pick


def test_builds_that_do_not_run_leave_the_choice_to_the_model():
    asked = task((70, 96, 64), gpu="A GPU")
    before = asked.pick
    asked.variant.picks.decide(Clock({}), asked)
    assert asked.pick == before


def test_the_grid_has_shapes_of_three_kinds_and_reads_c_at_some():
    first = [each for each, _ in zip(tuning.grid(), range(300), strict=False)]
    assert len(set(first)) > 280
    assert sum(beta > 0 for _, beta in first) == 75
    assert sum(all(side % 64 == 0 for side in shape) for shape, _ in first) >= 100
    assert all(1 <= side <= 4 * 8192 for shape, _ in first for side in shape)


@given(st.sampled_from(KINDS), st.integers(1, 60), st.integers(0, 2**32))
def test_drawn_shapes_are_those_of_their_seed_and_kind(kind, count, seed):
    found = drawn(kind, count, seed)
    assert len(set(found)) == count and drawn(kind, count + 1, seed)[:count] == found
    for m, n, k in found:
        assert min(m, n, k) >= {"any": 16, "multiples": 64, "layers": 1}[kind]
        assert max(m, k) <= 10240 and n <= 4 * 8192
        assert kind == "any" or (n % 64 == k % 64 == 0 and (kind == "layers" or m % 64 == 0))


TIMED = "multiprocessors: 1\nfloat32: {builds: [a], shapes: [[8, 8, 8, 0, {0: %s}]]}"


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "multiprocessors: 1\nfloat32: {builds: [a]}", "multiprocessors: 1\nfloat32: 3", "{"]
    + [TIMED % time for time in ("-1", ".nan", ".inf", "x")],
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


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [*TYPES, "float16"])
def test_cuda_the_first_use_of_a_shape_tries_builds_and_later_ones_do_not(gpu, dtype, monkeypatch):
    monkeypatch.setattr(gpu, "tries", True)
    asked = gpu.placed(task((333, 520, 264), dtype, 0.5, gpu="", sms=0))
    inputs = MATMUL.draw(np.random.default_rng(1), asked)
    arrays = {name: gpu.upload(array) for name, array in inputs.items()}
    assert choice.undecided(asked)
    run = gpu.prepare(asked, arrays)
    assert asked.pick.endswith(f"by trial of {choice.TRIED}")
    run()
    result = np.empty_like(inputs["C"])
    gpu.copy(arrays["C"], result)
    verdict = MATMUL.reference(asked, inputs)(result)
    assert verdict.passed, verdict.where
    monkeypatch.setattr(gpu, "seconds_alone", None)
    gpu.prepare(asked, arrays)
