"""Collecting what the jobs of a plan left on the disk, whether they completed or not."""

import dataclasses

import pytest
from batches import BATCH, HOST, filled, measured, of, reopened, stored
from test_done import OTHER, planned_of

from hpcmm import store
from hpcmm.bench import done, profiling
from hpcmm.bench.journal import CUT_OFF, Journal
from hpcmm.experiment import plan
from hpcmm.jobs.collect import collect
from hpcmm.model import Verdict
from hpcmm.model.measurement import Profile


@pytest.fixture
def planned(tmp_path) -> plan.Plan:
    """A plan of two jobs; the second one is complete."""
    planned = planned_of(BATCH, OTHER)
    planned.write(tmp_path / "plan.json")
    stored(tmp_path / "raw" / f"{OTHER.name}.h5", OTHER)
    return planned


def collected(planned, folder) -> tuple[list[str], list[int], list[tuple]]:
    """What failed, the sizes that the file has, and the rows that it omits."""
    failed = collect(planned, folder, folder / "timings.h5")
    groups = store.read(folder / "timings.h5")
    omitted = groups["omitted"]
    rows = list(zip(omitted["sweep"], omitted["variant"], omitted["ranks"], omitted["reason"], strict=True))
    return failed, list(groups["measurements"]["n"][::2]), rows


def logged(folder, name: str, text: str):
    """Write a log of a job; return its path."""
    log = folder / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    return log


def test_a_job_that_failed_is_omitted_with_the_error_of_its_log(planned, tmp_path):
    before = "rank 0 on vm: CPU\nhpcmm: error: other/cuda-r2-1: of another batch\n"
    logged(tmp_path, BATCH.name, f"{before}hpcmm: error: matmul-sweep/cuda-r2-1: no GPU here\nAbort(1)\n")
    _, _, omitted = collected(planned, tmp_path)
    assert [reason for *_, reason in omitted] == ["failed: matmul-sweep/cuda-r2-1: no GPU here"]


def test_batches_that_failed_for_one_reason_have_one_line(tmp_path):
    """The reason of Slurm is in the log of their job."""
    batches = [dataclasses.replace(BATCH, sweep=f"sweep{i}") for i in range(20)]
    planned = planned_of(*batches, minutes=1e6)
    planned.write(tmp_path / "plan.json")
    (job,) = planned.jobs
    why = "Slurm ended job 12 without an error of the job: FAILED (BadConstraints); it requested --mem=22323M"
    logged(tmp_path, job.name, f"hpcmm: error: {why}\n")
    failed, _, omitted = collected(planned, tmp_path)
    assert failed == [f"sweep0/cuda-r2-1 and 19 more: 60 of 60 points not measured: {why}"]
    assert len(omitted) == 20


def test_a_job_that_ended_without_an_error_is_omitted_with_the_last_line_of_its_log(planned, tmp_path):
    text = "Abort(1) in MPI_Init\nucx function returned with failed status (Shared memory error)\n\n"
    log = logged(tmp_path, BATCH.name, text)
    (failed,), _, _ = collected(planned, tmp_path)
    assert failed.endswith(f"{log}, is: ucx function returned with failed status (Shared memory error)")
    log.write_text("")
    (failed,), _, _ = collected(planned, tmp_path)
    assert failed.endswith(f"without an error message; its log, {log}, is empty")


def test_the_finished_points_of_a_job_that_failed_are_there_and_the_others_named(planned, tmp_path):
    first, second, third = BATCH.points
    journal = filled(tmp_path / "raw" / f"{BATCH.name}.journal", [first])
    journal.begin(second)
    journal.fail(second, "RuntimeError: no luck", counts=True)
    journal.begin(third)
    journal.close()
    before = journal.path.read_bytes()
    failed, sizes, omitted = collected(planned, tmp_path)
    assert len(failed) == 1 and failed[0].startswith("matmul-sweep/cuda-r2-1: 2 of 3 points not measured: ")
    assert sizes == [8, 1000, 2000]
    assert omitted == [
        ("matmul-sweep", "tiled_padded", 2, f"failed: {second.name}: RuntimeError: no luck"),
        ("matmul-sweep", "tiled_padded", 2, f"failed: {third.name}: {CUT_OFF}"),
    ]
    assert journal.path.read_bytes() == before
    again = reopened(journal.path)
    assert again.measured == {of(first)} and len(again.attempts) == 2


def test_a_point_that_failed_at_first_and_was_measured_then_is_there(planned, tmp_path):
    journal = filled(tmp_path / "raw" / f"{BATCH.name}.journal", BATCH.points[:2])
    journal.begin(BATCH.points[2])
    journal.fail(BATCH.points[2], "RuntimeError: no luck", counts=True)
    journal.begin(BATCH.points[2])
    journal.append(BATCH.points[2], measured(BATCH.points[2]))
    journal.close()
    assert collected(planned, tmp_path) == ([], [8, 16, 32, 1000, 2000], [])


def test_points_that_lack_visits_are_there_and_their_job_has_failed(planned, tmp_path):
    journal = Journal(tmp_path / "raw" / f"{BATCH.name}.journal", BATCH, HOST)
    for point, left in zip(BATCH.points, (2, 2, 0), strict=True):
        journal.append(point, measured(point), left)
    journal.close()
    failed, sizes, omitted = collected(planned, tmp_path)
    assert failed == ["matmul-sweep/cuda-r2-1: 2 of 3 points have fewer visits than planned: its job did not start"]
    assert sizes == [8, 16, 32, 1000, 2000] and not omitted


def test_the_first_part_of_a_job_may_have_failed_where_the_last_one_did_not_start(planned, tmp_path):
    what = "matmul-sweep/cuda-r2-1: 3 of 3 points not measured"
    text = "Traceback (most recent call last):\n  File x\nmpi4py.MPI.Exception: MPI_ERR_WIN: invalid window\n"
    log = logged(tmp_path, f"{BATCH.name}.1", text)
    assert collected(planned, tmp_path)[0] == [f"{what}: mpi4py.MPI.Exception: MPI_ERR_WIN: invalid window"]
    log.write_text("rank 0 on vm: CPU\nException ignored in: x\n")
    assert collected(planned, tmp_path)[0] == [f"{what}: its job did not start"]


def test_a_damaged_file_has_no_points_and_the_rest_is_there(planned, tmp_path):
    path = stored(tmp_path / "raw" / f"{BATCH.name}.h5")
    content = path.read_bytes()
    path.write_bytes(content[:1000])  # also the kept file, which is the same one
    failed, sizes, omitted = collected(planned, tmp_path)
    assert len(failed) == 1 and sizes == [1000, 2000] and len(omitted) == 1
    assert list(store.read(tmp_path / "timings.h5")["omitted"]["points"]) == [3]
    stored(path).unlink()
    path.write_bytes(content[:1000])
    assert collected(planned, tmp_path)[1] == [8, 16, 32, 1000, 2000], "the kept file has them"


def test_only_the_file_of_a_whole_plan_has_its_source(planned, tmp_path):
    assert collect(planned, tmp_path, tmp_path / "timings.h5")
    assert store.source(tmp_path / "timings.h5") == ""
    stored(tmp_path / "raw" / f"{BATCH.name}.h5")
    assert collect(planned, tmp_path, tmp_path / "timings.h5") == []
    assert store.source(tmp_path / "timings.h5") == done.source(planned, tmp_path)


def test_a_profile_that_failed_is_named(planned, tmp_path, monkeypatch):
    monkeypatch.setattr(plan.Plan, "profiled", {"sum": ()})
    stored(tmp_path / "raw" / f"{BATCH.name}.h5")
    assert collect(planned, tmp_path, tmp_path / "timings.h5") == ["profile of sum: its job did not start"]
    unprofiled = store.read(tmp_path / "timings.h5")["unprofiled"]
    reasons = dict(zip(unprofiled["operation"], unprofiled["reason"], strict=True))
    assert reasons["sum"] == "failed: its job did not start"


def test_the_finished_parts_of_a_profile_that_failed_are_kept(planned, tmp_path, monkeypatch):
    points = [dataclasses.replace(OTHER.points[0], shape=(length,)) for length in range(1, plan.PROFILE_POINTS + 2)]
    monkeypatch.setattr(plan.Plan, "profiled", {"sum": points})
    stored(tmp_path / "raw" / f"{BATCH.name}.h5")
    _, last = planned.profile_parts("sum")
    found = Profile(points[-1], Verdict(True, 0.0, 0.0, "exact"), "reduce", 1, {"l2_hits": 0.5})
    store.write_profiles(profiling.part_file(tmp_path / "profiles" / "sum.h5", last), "sum", {}, [found], source=last)
    assert collect(planned, tmp_path, tmp_path / "timings.h5") == ["profile of sum: its job did not start"]
    assert list(store.read(tmp_path / "timings.h5")["profiles"]["l2_hits"]) == [0.5]
