"""HDF5 files that other programs read as they are."""

import dataclasses
import json
import os

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray
from batches import BATCH, HOST, batch_of, measured, stored, together

from hpcmm import store
from hpcmm.journal import Journal
from hpcmm.model import PHASES, RESOURCES, Point
from hpcmm.store import StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "raw" / "sweep" / "cuda-r2-1.journal"


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
    content = len(whole) - len(store.SEAL) - 8  # without the checksum a file is still whole
    for length in [*range(0, content, content // 40), content - 1, len(whole) - 1]:
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


@pytest.mark.parametrize("part", [b"HEAP", b"TREE", b"SNOD", b"GCOL"])
def test_a_file_whose_inside_is_damaged_is_an_error_that_names_it(tmp_path, part):
    path = stored(tmp_path / "a.h5")
    damaged = path.read_bytes()
    assert part in damaged
    path.write_bytes(damaged.replace(part, bytes(4)))
    with pytest.raises(StoreError, match=r"a\.h5: cut short or damaged"):
        store.read(path)


def test_a_changed_byte_anywhere_is_an_error(tmp_path):
    path = stored(tmp_path / "a.h5")
    whole = path.read_bytes()
    for place in [*range(0, len(whole) - len(store.SEAL) - 8, len(whole) // 100), len(whole) - 1]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError, match=r"a\.h5: "):
            store.read(path)


def test_another_program_may_change_a_file(tmp_path):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file.attrs["note"] = "on the new node"
        file["measurements/flops"][0] = 7
    assert store.read(path)["measurements"]["flops"][0] == 7


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("samples/kernel", -1e-3),
        ("samples/total", np.inf),
        ("samples/measurement", 6),
        ("samples/call", 2),
        ("measurements/run", -1),
        ("measurements/ranks", 0),
    ],
)
def test_a_value_that_no_run_writes_is_an_error_that_names_its_column(tmp_path, column, value):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file[column][1] = value
    with pytest.raises(StoreError, match=rf"a\.h5: .*{column.replace('/', '.')}: {value} in row 1"):
        store.read(path)


@pytest.mark.parametrize("values", [None, np.zeros(5, int), np.zeros((48, 2), int), np.zeros(48, bool), ["a"] * 48])
def test_a_column_of_another_kind_is_an_error_that_names_it(tmp_path, values):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        assert len(file["samples/rank"]) == 48
        del file["samples/rank"]
        if values is not None:
            file["samples/rank"] = values
    with pytest.raises(StoreError, match=r"a\.h5: .*samples.* ?rank"):
        store.read(path)


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


def test_an_algorithm_that_was_left_out_is_told_from_others_of_its_variant(tmp_path):
    ring = Point("matmul", "cublas", (8, 8, 8), "float32", 2, algorithm="ring")
    path = stored(tmp_path / "a.h5", together((ring,)))
    names = ["cublas", "cublas ring", "cublas summa"]
    left_out = [{"sweep": "matmul-sweep", "variant": name, "ranks": 2, "reason": "no GPU"} for name in names]
    store.merge([path], tmp_path / "all.h5", left_out)
    assert list(store.read(tmp_path / "all.h5")["omitted"]["variant"]) == ["cublas", "cublas summa"]


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
