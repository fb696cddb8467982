"""Journals that survive what happens to jobs, and HDF5 files that other programs read as they are."""

import dataclasses
import errno
import hashlib
import json
import os
import resource
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray

from hpcmm import store
from hpcmm.model import PHASES, RESOURCES, Batch, Measurement, Point, Sample, Verdict
from hpcmm.store import Journal, StoreError

HOST = {"host": "here"}
RIGHT = Verdict(True, 1e-8, 1e-7, "componentwise, float64")
WRONG = Verdict(False, float("nan"), 1e-7, "componentwise, float64", "0:3: nan - 1 = nan")


def batch_of(
    sizes, variant: str = "tiled_padded", operation: str = "matmul", source: str = "s1", **parameters
) -> Batch:
    """A batch of one variant whose fingerprints follow from the points and from ``source``."""
    dimensions = 3 if operation == "matmul" else 1
    points = tuple(Point(operation, variant, (size,) * dimensions, "float32", 2, parameters) for size in sizes)
    return together(points, source)


def together(points, source: str = "s1", part: int = 1) -> Batch:
    operation = points[0].operation
    fingerprints = tuple(f"{source} {point.key}" for point in points)
    whole = hashlib.sha256("".join(fingerprints).encode()).hexdigest()
    predicted = (1.0,) * len(points)
    return Batch(
        f"{operation}-sweep", operation, "cuda", 2, part, points, fingerprints, predicted, sum(predicted), whole
    )


BATCH = batch_of([8, 16, 32], alpha=1.5, tile=8.0)


def measured(point: Point, seconds: float = 0.5, verdict: Verdict = RIGHT) -> list[Measurement]:
    """What a point and its baseline may have given: two repetitions on two ranks; none where it failed."""
    samples = tuple(
        Sample(repetition, rank, call, dict.fromkeys(PHASES if call else ["kernel"], seconds), {"power": 300.0})
        for repetition in range(2)
        for rank in range(2)
        for call in (True, False)
    )
    return [
        Measurement(point, point.variant, False, verdict, 100, 200, samples if verdict.passed else ()),
        Measurement(point, "library", True, RIGHT, 100, 200, samples),
    ]


def of(point: Point, batch: Batch = BATCH) -> str:
    """The fingerprint of one of the batch's points."""
    return batch.fingerprints[batch.points.index(point)]


def filled(path, points=BATCH.points) -> Journal:
    journal = Journal(path, BATCH, HOST)
    for i, point in enumerate(points):
        journal.append(point, measured(point, seconds=i + 0.25))
    return journal


def stored(path, batch: Batch = BATCH, host: str = "here"):
    """A complete file of a batch."""
    journal = Journal(path.with_suffix(".journal"), batch, {"host": host})
    for point in batch.points:
        journal.append(point, measured(point))
    journal.complete(path)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "raw" / "sweep" / "cuda-r2-1.journal"


# --- journal -----------------------------------------------------------------------------------------------------


def test_a_journal_opened_again_has_its_finished_points(path):
    first = filled(path, BATCH.points[:2])
    expected = first.finished
    first.close()
    again = Journal(path, BATCH, {"host": "there"})
    assert again.finished == expected
    assert again.finished[of(BATCH.points[0])] == [(0, each) for each in measured(BATCH.points[0], 0.25)]
    again.append(BATCH.points[2], measured(BATCH.points[2]))
    assert again.finished[of(BATCH.points[2])][0][0] == 1  # the second run measured it
    assert again.runs == [HOST, {"host": "there"}]
    again.close()


def test_a_last_line_cut_anywhere_is_dropped_and_the_lines_before_it_are_kept(path):
    journal = filled(path, BATCH.points[:2])
    journal.append(BATCH.points[2], measured(BATCH.points[2], verdict=WRONG)[:1])  # a short line
    journal.close()
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    kept = set(BATCH.fingerprints[:2])
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path, BATCH, HOST)
        assert set(journal.finished) == kept
        journal.append(BATCH.points[2], measured(BATCH.points[2]))
        journal.close()
        again = Journal(path, BATCH, HOST)
        assert set(again.finished) == set(BATCH.fingerprints)
        again.close()


def test_a_first_line_cut_anywhere_leaves_an_empty_journal_that_works(path):
    filled(path, []).close()
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path, BATCH, HOST)
        assert not journal.finished
        journal.append(BATCH.points[0], measured(BATCH.points[0]))
        journal.close()
        again = Journal(path, BATCH, HOST)
        assert set(again.finished) == {of(BATCH.points[0])}
        again.close()


def test_points_of_another_fingerprint_count_for_nothing(path):
    filled(path).close()
    journal = Journal(path, batch_of([8, 16, 32], source="s2", alpha=1.5, tile=8.0), HOST)
    assert not journal.finished and not journal.measured
    journal.close()


def test_a_batch_goes_on_from_the_points_that_are_as_they_were(path):
    filled(path).close()
    batch = dataclasses.replace(BATCH, fingerprints=(BATCH.fingerprints[0], "another source", BATCH.fingerprints[2]))
    journal = Journal(path, batch, HOST)
    assert journal.measured == {BATCH.fingerprints[0], BATCH.fingerprints[2]}
    journal.append(batch.points[1], measured(batch.points[1], 9.0))
    journal.complete(path.with_suffix(".h5"))
    groups = store.read(path.with_suffix(".h5"))
    assert list(groups["measurements"]["m"]) == [8, 8, 16, 16, 32, 32]
    assert list(groups["measurements"]["fingerprint"][::2]) == list(batch.fingerprints)
    assert list(groups["measurements"]["run"]) == [0, 0, 1, 1, 0, 0]
    assert [groups["samples"]["kernel"][groups["samples"]["measurement"] == row][0] for row in (0, 2, 4)] == [
        0.25,
        9.0,
        2.25,
    ]


def test_how_attempts_ended_is_known_when_a_journal_is_opened_again(path):
    journal = filled(path, BATCH.points[:1])
    for _ in range(2):
        journal.begin(BATCH.points[1])  # and the job ended
    journal.begin(BATCH.points[2])
    journal.fail(BATCH.points[2], "MemoryError: no room", counts=True)
    journal.begin(BATCH.points[2])
    journal.fail(BATCH.points[2], "compile it again", counts=False)
    journal.close()
    again = Journal(path, BATCH, HOST)
    assert again.measured == {BATCH.fingerprints[0]}
    assert again.attempts[of(BATCH.points[1])] == [store.CUT_OFF] * 2
    assert again.attempts[of(BATCH.points[2])] == ["MemoryError: no room"]
    again.close()
    changed = Journal(path, batch_of([8, 16, 32], source="s2"), HOST)
    assert not changed.attempts, "another source is another chance"
    changed.close()


def test_a_second_process_on_the_same_batch_is_refused(path):
    first = filled(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another process is measuring this batch"):
        Journal(path, BATCH, HOST)
    assert path.read_bytes() == before
    first.close()
    Journal(path, BATCH, HOST).close()


def test_a_sync_that_fails_leaves_the_points_before_it(path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = filled(path, BATCH.points[:2])
    before = path.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(StoreError, match=r"No space left.*before this one are kept"):
        patch.setattr(os, "fsync", full)
        journal.append(BATCH.points[2], measured(BATCH.points[2]))
    assert of(BATCH.points[2]) not in journal.finished
    journal.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_disk_that_is_full_leaves_the_points_before_it(path, room):
    journal = filled(path, BATCH.points[:2])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"cuda-r2-1\.journal: .*the points before this one are kept"):
            journal.append(BATCH.points[2], measured(BATCH.points[2]))
        assert path.read_bytes() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    journal.append(BATCH.points[2], measured(BATCH.points[2]))  # there is room again
    journal.close()
    assert path.read_bytes().startswith(before)
    again = Journal(path, BATCH, HOST)
    assert set(again.finished) == set(BATCH.fingerprints)
    again.close()


def test_a_complete_journal_becomes_one_file(path):
    output = path.with_suffix(".h5")
    filled(path).complete(output)
    assert sorted(each.name for each in path.parent.iterdir()) == [output.name, "kept"]
    groups = store.read(output)
    measurements, samples = groups["measurements"], groups["samples"]
    assert list(measurements["m"]) == [8, 8, 16, 16, 32, 32]
    assert list(measurements["contender"]) == ["tiled_padded", "library"] * 3
    assert list(measurements["baseline"]) == [0, 1] * 3
    assert list(measurements["tile"]) == [8] * 6
    assert list(np.bincount(samples["measurement"])) == [8] * 6
    assert set(samples["total"][(samples["measurement"] == 2) & (samples["call"] == 1)]) == {1.25}
    assert np.isnan(samples["scatter"][samples["call"] == 0]).all()
    assert set(samples["power"]) == {300.0}
    assert np.isnan(samples["temperature"]).all()
    assert json.loads(groups["runs"]["provenance"][0]) == HOST


def test_points_keep_the_order_of_the_batch_and_their_run(path):
    filled(path, BATCH.points[2:]).close()
    journal = Journal(path, BATCH, HOST)
    for point in BATCH.points[:2]:
        journal.append(point, measured(point))
    journal.complete(path.with_suffix(".h5"))
    measurements = store.read(path.with_suffix(".h5"))["measurements"]
    assert list(measurements["m"]) == [8, 8, 16, 16, 32, 32]
    assert list(measurements["run"]) == [1, 1, 1, 1, 0, 0]


def test_a_failure_is_stored_with_its_place_and_without_times(path):
    batch = batch_of([8])
    journal = Journal(path, batch, HOST)
    journal.append(batch.points[0], measured(batch.points[0], verdict=WRONG))
    journal.close()
    journal = Journal(path, batch, HOST)  # a NaN comes back from the journal too
    journal.complete(path.with_suffix(".h5"))
    groups = store.read(path.with_suffix(".h5"))
    assert list(groups["measurements"]["passed"]) == [0, 1]
    assert np.isnan(groups["measurements"]["error"][0])
    assert groups["measurements"]["where"][0] == WRONG.where
    assert set(groups["samples"]["measurement"]) == {1}


# --- what is kept of earlier files ------------------------------------------------------------------------------


def test_a_file_that_was_deleted_comes_back_from_what_is_kept(path):
    output = stored(path.with_suffix(".h5"))
    before = store.read(output)
    output.unlink()  # as a workflow does before it makes it anew
    journal = Journal(path, BATCH, {"host": "there"})
    assert journal.measured == set(BATCH.fingerprints) and not journal.finished
    journal.complete(output)
    after = store.read(output)
    for group, columns in before.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(after[group][name], values)
    assert [json.loads(each) for each in after["runs"]["provenance"]] == [HOST], "a run without points is none"


def test_only_what_changed_is_missing_and_the_numbers_of_the_rest_are_the_same(path):
    output = stored(path.with_suffix(".h5"))
    before = store.read(output)
    output.unlink()
    other = batch_of([16, 8], "cublas", alpha=1.5)  # a batch may get variants, too
    batch = together((*BATCH.points, *other.points))
    batch = dataclasses.replace(batch, fingerprints=("new", *batch.fingerprints[1:]))
    journal = Journal(path, batch, {"host": "there"})
    assert journal.measured == set(BATCH.fingerprints[1:])
    for point in (BATCH.points[0], *other.points):
        journal.append(point, measured(point, 9.0))
    journal.complete(output)
    after = store.read(output)
    rows = after["measurements"]
    assert list(rows["m"]) == [8, 8, 16, 16, 32, 32, 16, 16, 8, 8]
    assert list(rows["variant"]) == ["tiled_padded"] * 6 + ["cublas"] * 4
    assert [json.loads(text) for text in after["runs"]["provenance"][rows["run"]]] == (
        [{"host": "there"}] * 2 + [HOST] * 4 + [{"host": "there"}] * 4
    )
    np.testing.assert_array_equal(rows["tile"], [8] * 6 + [np.nan] * 4)
    for row in range(10):
        kept = 2 <= row < 6
        of_row = after["samples"]["kernel"][after["samples"]["measurement"] == row]
        earlier = before["samples"]["kernel"][before["samples"]["measurement"] == row]
        np.testing.assert_array_equal(of_row, earlier if kept else [9.0] * 8)


def test_points_are_found_wherever_the_parts_were_divided(path):
    """Two jobs become three: each new one takes its points from whichever had them."""
    points = batch_of(range(1, 7)).points
    for part, members in ((1, points[:3]), (2, points[3:])):
        batch = together(members, part=part)
        journal = Journal(path.with_name(f"{part}.journal"), batch, HOST)
        for point in members:
            journal.append(point, measured(point))
        journal.complete(path.with_name(f"{part}.h5"))
    for part in (1, 2, 3):  # one after the other, and each has its file before the next one starts
        path.with_name(f"{part}.h5").unlink(missing_ok=True)
        batch = together(points[2 * part - 2 : 2 * part], part=part)
        journal = Journal(path.with_name(f"{part}.journal"), batch, HOST)
        assert journal.measured == set(batch.fingerprints)
        journal.complete(path.with_name(f"{part}.h5"))
        assert list(store.read(path.with_name(f"{part}.h5"))["measurements"]["m"][::2]) == [2 * part - 1, 2 * part]


def test_a_kept_file_that_is_damaged_is_measured_again(path):
    stored(path.with_suffix(".h5"))
    (kept,) = (path.parent / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[:-100])
    journal = Journal(path, BATCH, HOST)
    assert not journal.measured
    journal.close()


def test_without_links_a_copy_is_kept(path, monkeypatch):
    def no_links(self, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    output = stored(path.with_suffix(".h5"))
    (kept,) = (path.parent / "kept").iterdir()
    assert kept.read_bytes() == output.read_bytes()
    assert not kept.samefile(output)


# --- files -------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "new" / "file"
    with store.replacing(target) as temporary:
        temporary.write_text("old")
        assert not target.exists()
    with pytest.raises(ZeroDivisionError), store.replacing(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_file_cut_short_is_an_error_that_names_it(tmp_path):
    path = stored(tmp_path / "a.h5")
    whole = path.read_bytes()
    for length in [*range(0, len(whole), len(whole) // 40), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"a\.h5: .*delete it and run again"):
            store.read(path)


def test_a_file_that_is_not_ours_is_an_error_that_says_so(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = [1, 2]
    with pytest.raises(StoreError, match=r"other\.h5: not a file of"):
        store.read(tmp_path / "other.h5")
    (tmp_path / "text.h5").write_text("no HDF5 at all\n")
    with pytest.raises(StoreError, match=r"text\.h5: "):
        store.read(tmp_path / "text.h5")
    with pytest.raises(StoreError, match=r"none\.h5: no such file"):
        store.read(tmp_path / "none.h5")


def test_a_file_of_a_newer_schema_says_what_to_do(tmp_path):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file.attrs["schema_version"] = store.SCHEMA_VERSION + 1
    with pytest.raises(StoreError, match=rf"schema version {store.SCHEMA_VERSION + 1}.*upgrade"):
        store.read(path)


def without_resources(path):
    """What this package wrote before it recorded resources."""
    with h5py.File(path, "a") as file:
        for name in RESOURCES:
            del file["measurements"][name]
        del file["measurements"]["fingerprint"]
    return path


def test_a_file_from_before_resources_opens_without_them(tmp_path):
    groups = store.read(without_resources(stored(tmp_path / "a.h5")))
    assert set(groups["measurements"]) == set(store.MEASUREMENTS) | {"alpha", "tile"}
    for name in RESOURCES:
        assert np.isnan(groups["measurements"][name]).all() and len(groups["measurements"][name]) == 6
    assert list(groups["measurements"]["fingerprint"]) == [""] * 6


def test_a_file_from_before_resources_merges_with_one_that_has_them(tmp_path):
    journal = Journal(tmp_path / "b.journal", BATCH, HOST)
    for point in BATCH.points:
        first, library = measured(point)
        journal.append(point, [dataclasses.replace(first, resources={"registers": 40, "block_x": 16}), library])
    journal.close()
    journal = Journal(tmp_path / "b.journal", BATCH, HOST)  # they come back from the journal
    journal.complete(tmp_path / "b.h5")
    store.merge(
        [without_resources(stored(tmp_path / "a" / "a.h5", host="there")), tmp_path / "b.h5"], tmp_path / "all.h5"
    )
    rows = store.read(tmp_path / "all.h5")["measurements"]
    np.testing.assert_array_equal(rows["registers"], [np.nan] * 6 + [40, np.nan] * 3)
    np.testing.assert_array_equal(rows["block_x"], [np.nan] * 6 + [16, np.nan] * 3)
    assert np.isnan(rows["grid_x"]).all()


def test_a_journal_from_before_resources_goes_on(path):
    filled(path).close()
    old = [json.loads(line) for line in path.read_bytes().splitlines()]
    for entry in old[1:]:
        for each in entry["measurements"]:
            del each["resources"]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in old))
    journal = Journal(path, BATCH, HOST)
    assert set(journal.finished) == set(BATCH.fingerprints)
    journal.close()


def test_a_file_without_one_of_its_groups_is_an_error(tmp_path):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        del file["samples"]
    with pytest.raises(StoreError, match="damaged"):
        store.read(path)


# --- merged files ------------------------------------------------------------------------------------------------


@pytest.fixture
def merged(tmp_path):
    """Three batches in one file: with a tile, without one, and of an operation without parameters."""
    batches = [BATCH, batch_of([64], "cublas", alpha=1.5), batch_of([1000, 2000], "cub", "sum")]
    parts = [stored(tmp_path / f"{i}" / "part.h5", batch, host=f"node{i}") for i, batch in enumerate(batches)]
    omitted = [{"sweep": "size", "variant": "naive", "ranks": 4, "reason": "no GPU"}]
    store.merge(parts, tmp_path / "all.h5", omitted)
    return tmp_path / "all.h5"


def test_merged_rows_keep_their_values_and_point_at_their_own_rows(merged):
    groups = store.read(merged)
    measurements, samples, runs = (groups[name] for name in ("measurements", "samples", "runs"))
    assert list(measurements["n"]) == [8, 8, 16, 16, 32, 32, 64, 64, 1000, 1000, 2000, 2000]
    assert list(measurements["m"]) == [8, 8, 16, 16, 32, 32, 64, 64, 0, 0, 0, 0]
    np.testing.assert_array_equal(measurements["tile"], [8] * 6 + [np.nan] * 6)
    np.testing.assert_array_equal(measurements["alpha"], [1.5] * 8 + [np.nan] * 4)
    assert list(measurements["run"]) == [0] * 6 + [1] * 2 + [2] * 4
    assert list(runs["batch"]) == ["matmul-sweep/cuda-r2-1"] * 2 + ["sum-sweep/cuda-r2-1"]
    assert list(np.bincount(samples["measurement"])) == [8] * 12


def test_merging_merged_files_gives_the_same_rows(merged, tmp_path):
    store.merge([merged], tmp_path / "again.h5")
    before, after = store.read(merged), store.read(tmp_path / "again.h5")
    for group, columns in before.items():
        assert after[group].keys() == columns.keys()
        for name, values in columns.items():
            np.testing.assert_array_equal(after[group][name], values)


def test_what_was_left_out_is_in_the_merged_file(merged):
    omitted = store.read(merged)["omitted"]
    assert {name: list(values) for name, values in omitted.items()} == {
        "sweep": ["size"],
        "variant": ["naive"],
        "ranks": [4],
        "reason": ["no GPU"],
    }


def test_a_file_merged_with_itself_or_with_a_part_of_it_has_nothing_twice(merged, tmp_path):
    before = store.read(merged)
    store.merge([merged, merged, tmp_path / "1" / "part.h5", merged], tmp_path / "again.h5")
    after = store.read(tmp_path / "again.h5")
    for group, columns in before.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(after[group][name], values)


def test_the_same_points_of_two_runs_are_kept_of_both(tmp_path):
    here, there = (stored(tmp_path / host / "a.h5", host=host) for host in ("here", "there"))
    store.merge([here, there], tmp_path / "all.h5")
    groups = store.read(tmp_path / "all.h5")
    assert list(groups["measurements"]["m"]) == [8, 8, 16, 16, 32, 32] * 2
    hosts = [json.loads(groups["runs"]["provenance"][run])["host"] for run in groups["measurements"]["run"]]
    assert hosts == ["here"] * 6 + ["there"] * 6
    assert list(np.bincount(groups["samples"]["measurement"])) == [8] * 12


def test_what_one_file_left_out_and_another_has_is_not_left_out(merged, tmp_path):
    left_out = [
        {"sweep": "matmul-sweep", "variant": "tiled_padded", "ranks": 2, "reason": "no GPU"},
        {"sweep": "matmul-sweep", "variant": "tiled_padded", "ranks": 4, "reason": "no GPU"},
        {"sweep": "size", "variant": "naive", "ranks": 4, "reason": "no GPU"},
    ]
    store.merge([], tmp_path / "none.h5", left_out)
    store.merge([tmp_path / "none.h5", merged], tmp_path / "again.h5")
    omitted = store.read(tmp_path / "again.h5")["omitted"]
    found = list(zip(omitted["variant"], omitted["ranks"], strict=True))
    assert found == [("tiled_padded", 4), ("naive", 4)], "once, and not what was measured"


def test_a_merge_names_the_part_that_is_damaged(tmp_path):
    path = stored(tmp_path / "a.h5")
    (tmp_path / "b.h5").write_bytes(path.read_bytes()[:1000])
    with pytest.raises(StoreError, match=r"b\.h5"):
        store.merge([path, tmp_path / "b.h5"], tmp_path / "all.h5")
    assert not (tmp_path / "all.h5").exists()


@pytest.mark.parametrize("group", store.GROUPS)
def test_xarray_and_pandas_open_a_file_as_it_is(tmp_path, merged, group):
    for path, count in ((merged, 12), (stored(tmp_path / "one.h5"), 6)):
        expected = store.read(path)[group]
        with xarray.open_dataset(path, group=group, engine="h5netcdf") as dataset:
            index = f"{group.removesuffix('s')}_index"
            assert set(dataset.data_vars) == set(expected)
            for name, column in dataset.data_vars.items():
                assert column.dims == (index,), name
                assert column.attrs["long_name"], name
                assert "units" in column.attrs or column.dtype.kind in "OTU", name
                np.testing.assert_array_equal(column.values.astype(expected[name].dtype), expected[name])
            if group == "measurements":
                assert dataset.sizes[index] == count
                assert list(dataset.to_dataframe()["n"]) == list(expected["n"])
        with h5py.File(path) as file:
            frame = pd.DataFrame({name: column[()] for name, column in file[group].items()})
        assert len(frame) == len(next(iter(expected.values())))


def test_units_are_of_the_system_and_not_scaled(merged):
    with h5py.File(merged) as file:
        assert {file["samples"][phase].attrs["units"] for phase in PHASES} == {"s"}
        assert file["samples/sm_clock"].attrs["units"] == "Hz"
        assert file["measurements/bytes"].attrs["units"] == "B"


def test_a_file_from_before_there_were_profiles_opens(tmp_path):
    path = stored(tmp_path / "old.h5")
    with h5py.File(path, "a") as file:
        for group in ("profiles", "unprofiled"):
            del file[group]
    columns = store.read(path)
    assert set(columns["profiles"]) == set(store.PROFILES)
    assert all(len(values) == 0 for group in ("profiles", "unprofiled") for values in columns[group].values())
    store.merge([path, stored(tmp_path / "other" / "new.h5")], tmp_path / "all.h5")
    assert len(store.read(tmp_path / "all.h5")["measurements"]["run"]) == 2 * len(BATCH.points)  # both are of one run


def test_single_precision_keeps_seven_digits_and_all_else(path, tmp_path):
    whole = stored(path.with_suffix(".h5"))
    store.merge([whole], tmp_path / "small.h5", single=True)
    before, after = store.read(whole), store.read(tmp_path / "small.h5")
    for group, columns in before.items():
        for name, values in columns.items():
            if values.dtype == object:
                assert list(after[group][name]) == list(values)
            else:
                np.testing.assert_allclose(after[group][name], values, rtol=1e-7)
                assert after[group][name].dtype == values.dtype
    with h5py.File(tmp_path / "small.h5") as file:
        assert file["samples/kernel"].dtype == "f4" and file["measurements/bound"].dtype == "f8"
