"""A merged file lists what its runs did not measure of their own configs."""

import timings
from timings import kernel_samples, measurement

from hpcmm import store
from hpcmm.cli.main import main
from hpcmm.cli.unmeasured import unmeasured
from hpcmm.model.measurement import Point

SIZE = {"operation": "matmul", "sizes": [64], "dtypes": ["float32"], "variants": ["naive", "uncoalesced"], "tiles": [8]}
CONFIG = {"sweeps": {"size": SIZE, "other": {**SIZE, "variants": ["naive"], "ranks": [1, 2]}}}


def rows(*variants):
    points = [Point("matmul", variant, (64,) * 3, "float32", 1, tile=8) for variant in variants]
    return [measurement(point, samples=kernel_samples([1e-3] * 6)) for point in points]


def written(folder, sweep, *variants, omitted=(), **provenance):
    folder.mkdir()
    given = {"config": CONFIG, "revision": "0123456789"} | provenance
    return timings.write(folder / "timings.h5", {sweep: rows(*variants)}, given, omitted)


def found(path):
    return {(row["sweep"], row["variant"], row["ranks"]): row["reason"] for row in unmeasured(store.read(path))}


def test_points_of_a_config_without_a_row_are_listed(tmp_path):
    reasons = found(written(tmp_path / "a", "size", "naive"))
    assert set(reasons) == {("size", "uncoalesced", 1), ("other", "naive", 1), ("other", "naive", 2)}
    assert set(reasons.values()) == {"the config of revision 0123456 requests it, and no merged file has it"}


def test_single_points_that_no_file_has_are_counted(tmp_path):
    config = {"sweeps": {"size": {**SIZE, "sizes": [64, 128, 256], "variants": ["naive"]}}}
    (row,) = unmeasured(store.read(written(tmp_path / "a", "size", "naive", config=config)))
    assert (row["sweep"], row["variant"], row["ranks"], row["points"]) == ("size", "naive", 1, 2)


def test_what_the_file_omits_is_not_listed_twice(tmp_path):
    omitted = [{"sweep": "other", "variant": "naive", "ranks": ranks, "reason": "no GPU"} for ranks in (1, 2)]
    assert set(found(written(tmp_path / "a", "size", "naive", omitted=omitted))) == {("size", "uncoalesced", 1)}


def test_a_config_that_cannot_be_read_is_a_row_and_no_code_of_it_runs(tmp_path):
    (tmp_path / "code.py").write_text("raise SystemExit(7)")
    config = CONFIG | {"extensions": [str(tmp_path / "code.py")]}
    reasons = found(written(tmp_path / "a", "size", "naive", config=config))
    assert reasons == {("config of revision 0123456", "", 0): "not compared with its results: it has extensions"}
    reasons = found(written(tmp_path / "b", "size", "naive", config={"sweeps": {"size": {"operation": "none"}}}))
    assert [key[1] for key in reasons] == [""] and "not compared" in next(iter(reasons.values()))


def test_merged_files_complete_each_other(tmp_path):
    one = written(tmp_path / "a", "size", "naive")
    two = written(tmp_path / "b", "size", "uncoalesced", host="there")
    target, again = tmp_path / "all.h5", tmp_path / "again.h5"
    assert main(["merge", str(one), str(two), "-o", str(target)]) == 0
    assert main(["merge", str(target), "-o", str(again)]) == 0
    for path in (target, again):
        omitted = store.read(path)["omitted"]
        listed = list(zip(omitted["sweep"], omitted["variant"], omitted["ranks"], strict=True))
        assert listed == [("other", "naive", 1), ("other", "naive", 2)]
