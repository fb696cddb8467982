"""Timings files: HDF5 that other programs can read, and files that are refused."""

import zlib

import h5py
import numpy as np
import pandas as pd
import pytest
import timings
import xarray
from batches import BATCH, HOST, assert_same, batch_of, measured, stored, together
from tasks import UMASK

import hpcmm
from hpcmm import store
from hpcmm.bench.journal import Journal
from hpcmm.cli.main import main
from hpcmm.model.measurement import Point
from hpcmm.model.quantities import PHASES
from hpcmm.store import StoreError


def test_a_file_is_replaced_atomically(tmp_path):
    target = tmp_path / "new" / "file"
    with store.replacing(target) as temporary:
        temporary.write_text("old")
        assert not target.exists()
    with pytest.raises(ZeroDivisionError), store.replacing(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    assert target.stat().st_mode & 0o777 == 0o666 & ~UMASK


def test_a_file_without_its_seal_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(store.file, "UNSEALED", [])
    path = stored(tmp_path / "a.h5")
    expected, content = store.read(path), path.read_bytes()
    assert content[-8:] == b"%08x" % zlib.crc32(content[: -len(store.file.SEAL) - 8])
    with h5py.File(path, "a") as file:  # as another program changes it
        file.attrs["mine"] = 1
    assert store.file.SEAL not in path.read_bytes()
    assert_same(expected, store.read(path))
    with h5py.File(path, "a") as file:  # values that do not fit together
        file["samples/measurement"][...] += 1000
    assert main(["show", str(path)]) == 1
    assert f"{path}: another program changed it" in capsys.readouterr().err


def test_any_changed_byte_is_an_error(tmp_path):
    path = stored(tmp_path / "a.h5")
    whole = path.read_bytes()
    end = len(whole) - len(store.file.SEAL) - 8
    for place in [*range(0, end, len(whole) // 100), len(whole) - 1]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError, match=r"a\.h5: .*; if a run wrote it, run again"):
            store.read(path)


def test_a_point_of_a_renamed_variant_is_measured_again(tmp_path):
    """Its fingerprint holds the name and the source. The other points of the kept file are taken."""
    pairs = (("oblong", "swizzled"), ("large_thread_tile", "swizzled"))
    before, after = (together([timings.product(name, ranks=2) for name in names]) for names in pairs)
    stored(tmp_path / "a.h5", before)
    assert before.fingerprints[1] == after.fingerprints[1]
    journal = Journal(tmp_path / "a.journal", after, HOST)
    assert journal.measured == {after.fingerprints[1]}
    journal.append(after.points[0], measured(after.points[0]))
    journal.complete()
    variants = store.read(tmp_path / "a.h5")["measurements"]["variant"]
    assert list(variants) == ["large_thread_tile"] * 2 + ["swizzled"] * 2


def test_control_characters_of_texts_are_removed(tmp_path):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file["measurements/sweep"][:] = "si\x1b[2Jze\r\n\u202eGPU\x9b"
    assert set(store.read(path)["measurements"]["sweep"]) == {"si[2Jze  GPU"}


def test_texts_that_hdf5_rejects_are_written(tmp_path):
    reasons = ["driver said \x00\x01", "of file \udcff.cu"]
    store.write_groups(tmp_path / "a.h5", {"unprofiled": {"operation": ["sum", "matmul"], "reason": reasons}})
    assert list(store.read(tmp_path / "a.h5")["unprofiled"]["reason"]) == ["driver said ", "of file \ufffd.cu"]


@pytest.mark.parametrize("link", ["", "nowhere", "results"], ids=["a file", "a dangling link", "a link to itself"])
def test_a_folder_that_cannot_be_created_is_named(tmp_path, link):
    place = tmp_path / "results"
    place.symlink_to(link) if link else place.touch()
    with pytest.raises(StoreError, match=rf"^{tmp_path}/results(/raw)?: (not a folder; remove it|cannot be created)"):
        store.write_groups(tmp_path / "results" / "raw" / "a.h5", {})


@pytest.mark.parametrize("member", ["samples", "measurements/variant"])
def test_a_file_without_a_group_or_column_is_an_error(tmp_path, member):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        del file[member]
    with pytest.raises(StoreError, match=r"no (group samples|variant): an earlier hpcmm wrote it"):
        store.read(path)


def test_numbers_that_an_earlier_version_did_not_measure_are_unknown(tmp_path):
    path = stored(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        del file["measurements/cpu_instructions"]
    assert np.isnan(store.read(path)["measurements"]["cpu_instructions"]).all()


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """Three batches in one file: with a tile, without one, and of an operation without parameters."""
    tmp_path = tmp_path_factory.mktemp("merged")
    batches = [BATCH, batch_of([64], "cublas", alpha=1.5), batch_of([1000, 2000], "cub", "sum")]
    parts = [stored(tmp_path / f"{i}" / "part.h5", batch, host=f"node{i}") for i, batch in enumerate(batches)]
    omitted = [{"sweep": "size", "variant": "naive", "ranks": 4, "reason": "no GPU"}]
    timings.merge(parts, tmp_path / "all.h5", omitted)
    return tmp_path / "all.h5"


def test_merged_rows_keep_values_and_references(merged):
    groups = store.read(merged)
    measurements, samples, runs = (groups[name] for name in ("measurements", "samples", "runs"))
    assert list(measurements["n"]) == [8, 8, 16, 16, 32, 32, 64, 64, 1000, 1000, 2000, 2000]
    assert list(measurements["m"]) == [8, 8, 16, 16, 32, 32, 64, 64, 0, 0, 0, 0]
    assert list(measurements["tile"]) == [8] * 6 + [0] * 6
    np.testing.assert_array_equal(measurements["alpha"], [1.5] * 8 + [np.nan] * 4)
    assert list(measurements["run"]) == [0] * 6 + [1] * 2 + [2] * 4
    assert list(runs["batch"]) == ["matmul-sweep/cuda-r2-1"] * 2 + ["sum-sweep/cuda-r2-1"]
    assert list(np.bincount(samples["measurement"])) == [8] * 12


def test_rows_are_selected_with_their_own_runs_and_ranks(merged):
    whole = store.read(merged)
    run = whole["measurements"]["run"]
    part = store.select(whole, np.flatnonzero(run == run[-1]))
    assert len(part["runs"]["batch"]) == 1 < len(whole["runs"]["batch"])
    assert set(part["ranks"]["run"]) == {0} == set(part["measurements"]["run"])


@pytest.mark.parametrize("others", [(), ("all.h5", "1/part.h5", "all.h5")])
def test_merging_merged_files_and_parts_of_them_gives_the_same_rows(merged, tmp_path, others):
    timings.merge([merged, *(merged.parent / name for name in others)], tmp_path / "again.h5")
    assert_same(store.read(merged), store.read(tmp_path / "again.h5"))


def test_a_variant_omitted_by_one_file_and_measured_by_another_is_not_omitted(merged, tmp_path):
    of_sweep = [{"sweep": "matmul-sweep", "variant": "tiled_padded", "ranks": n, "reason": "no GPU"} for n in (2, 4)]
    left_out = [*of_sweep, {"sweep": "size", "variant": "naive", "ranks": 4, "reason": "no GPU"}]
    timings.merge([], tmp_path / "none.h5", left_out)
    timings.merge([tmp_path / "none.h5", merged], tmp_path / "again.h5")
    omitted = store.read(tmp_path / "again.h5")["omitted"]
    found = list(zip(omitted["variant"], omitted["ranks"], strict=True))
    assert found == [("tiled_padded", 4), ("naive", 4)], "once, and not what was measured"


def test_omitted_algorithms_of_one_variant_are_distinct(tmp_path):
    ring = Point("matmul", "cublas", (8, 8, 8), "float32", 2, algorithm="ring")
    path = stored(tmp_path / "a.h5", together((ring,)))
    names = ["cublas", "cublas ring", "cublas summa"]
    left_out = [{"sweep": "matmul-sweep", "variant": name, "ranks": 2, "reason": "no GPU"} for name in names]
    timings.merge([], tmp_path / "none.h5", left_out)
    timings.merge([tmp_path / "none.h5", path], tmp_path / "all.h5")
    assert list(store.read(tmp_path / "all.h5")["omitted"]["variant"]) == ["cublas", "cublas summa"]


def test_a_variant_with_some_omitted_points_stays_omitted(tmp_path):
    failed = [{"sweep": "matmul-sweep", "variant": "tiled_padded", "ranks": 2, "reason": "failed: 32x32x32"}]
    whole, partial, both = stored(tmp_path / "a.h5"), tmp_path / "partial.h5", tmp_path / "both.h5"
    timings.merge([whole], partial, failed)
    timings.merge([partial, partial], both)
    assert list(store.read(both)["omitted"]["reason"]) == ["failed: 32x32x32"]
    timings.merge([partial, whole], both)
    assert list(store.read(both)["omitted"]["reason"]) == []


@pytest.fixture(scope="module")
def opened(merged, tmp_path_factory):
    """Two files, each with its number of measurements and its groups."""
    one = stored(tmp_path_factory.mktemp("one") / "one.h5")
    return [(path, count, store.read(path)) for path, count in ((merged, 12), (one, 6))]


@pytest.mark.parametrize("group", store.GROUPS)
def test_xarray_and_pandas_open_a_file(opened, group):
    for path, count, groups in opened:
        expected = groups[group]
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


def test_units_have_no_prefixes(merged):
    with h5py.File(merged) as file:
        assert {file["samples"][phase].attrs["units"] for phase in PHASES} == {"s"}
        assert file["samples/sm_clock"].attrs["units"] == "Hz"
        assert file["measurements/bytes"].attrs["units"] == "B"


def test_single_precision_keeps_seven_digits(tmp_path):
    whole = stored(tmp_path / "raw" / "whole.h5")
    timings.merge([whole], tmp_path / "small.h5", single=True)
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


@pytest.mark.slow
@pytest.mark.parametrize("longest", [0, 20, 300_000])
def test_long_columns_of_texts_are_compressed_and_read_alike(tmp_path, longest):
    texts = [f"é{row}" if longest else "" for row in range(300)]
    texts[7] *= max(1, longest // 2)
    store.write_groups(tmp_path / "a.h5", {"unprofiled": {"operation": texts, "reason": texts[::-1]}})
    assert list(store.read(tmp_path / "a.h5")["unprofiled"]["operation"]) == texts
    with hpcmm.open(tmp_path / "a.h5") as tree:
        assert list(tree["unprofiled"].to_dataset().reason.values) == texts[::-1]


def test_long_texts_with_much_in_common_are_compressed_together(tmp_path):
    common = np.random.default_rng(1).bytes(4000).hex()
    texts = [f"{row} {common}" for row in range(250)]
    store.write_groups(tmp_path / "a.h5", {"unprofiled": {"operation": texts, "reason": texts}})
    store.write_groups(tmp_path / "b.h5", {"unprofiled": {"operation": texts[:1], "reason": texts[:1]}})
    sizes = [(tmp_path / name).stat().st_size for name in ("a.h5", "b.h5")]
    assert sizes[0] < sizes[1] + 20 * len(common), "of 500 texts"
    assert list(store.read(tmp_path / "a.h5")["unprofiled"]["reason"]) == texts
