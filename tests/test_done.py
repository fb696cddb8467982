"""What is done follows from the contents of the files of a plan, and Snakemake is told so."""

import dataclasses
import math
import os

import pytest
from batches import BATCH, RIGHT, batch_of, measured, reopened, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcmm import analysis, store
from hpcmm.bench import done, status
from hpcmm.bench.journal import Journal
from hpcmm.experiment import plan
from hpcmm.jobs.collect import collect
from hpcmm.model import UNCHECKED, Verdict
from hpcmm.model.measurement import Measuring

OTHER = dataclasses.replace(batch_of([1000, 2000], "cub", "sum"), device="cuda", ranks=1)
MEASURING = Measuring(1, 3, 6, 0.5, 0.05, "cold", 1)


def planned_of(*batches, minutes: float = 10) -> plan.Plan:
    return plan.Plan(batches, {}, MEASURING, False, "auto", {"job_minutes": minutes})


def file_of(folder, batch=BATCH):
    return folder / "raw" / f"{batch.name}.h5"


@pytest.fixture
def whole(tmp_path) -> plan.Plan:
    """A plan of two jobs that are done, with a timings file and a page."""
    planned = planned_of(BATCH, OTHER)
    planned.write(tmp_path / "plan.json")
    for batch in planned.batches:
        stored(file_of(tmp_path, batch), batch)
    assert collect(planned, tmp_path, tmp_path / done.TIMINGS) == []
    (tmp_path / done.PAGE).write_text(store.page_source(tmp_path / done.TIMINGS))
    return planned


def told(planned, folder) -> tuple[set[str], set[str]]:
    """The jobs that Snakemake takes for done, and the products that it takes for stale."""
    marks = folder / "marks"
    done.mark(planned, folder, marks)
    jobs = {str(path.relative_to(marks / "done")) for path in (marks / "done").rglob("*") if path.is_file()}
    dates = {name: (folder / name).stat().st_mtime for name in (done.TIMINGS, done.PAGE)}
    return jobs, {name for name, date in dates.items() if (marks / "stale" / name).stat().st_mtime > date}


BOTH, PRODUCTS = {BATCH.name, OTHER.name}, {done.TIMINGS, done.PAGE}


def test_nothing_is_left_to_do_whatever_the_dates(whole, tmp_path):
    for date in (0.0, 1e9, 2.0**32):
        for path in tmp_path.rglob("*"):
            os.utime(path, (date, date))
        assert done.is_done(whole, tmp_path)
        jobs, _ = told(whole, tmp_path)
        assert jobs == BOTH
    assert not (tmp_path / "marks" / "stale" / done.PAGE).read_text(), "no product was stale"


@pytest.mark.parametrize(
    ("batches", "left"),
    [
        ((batch_of([8, 16], alpha=1.5, tile=8), OTHER), BOTH),
        ((BATCH,), {BATCH.name}),
        ((batch_of([8, 16, 64], alpha=1.5, tile=8), OTHER), {OTHER.name}),
        ((batch_of([8, 16, 32], source="s2", alpha=1.5, tile=8), OTHER), {OTHER.name}),
    ],
    ids=["fewer sizes", "fewer sweeps", "another size", "another kernel"],
)
def test_products_of_another_plan_are_stale_whatever_the_dates(whole, tmp_path, batches, left):
    planned_of(*batches).write(tmp_path / "plan.json")
    for date in (1e9, 2.0**32):  # also in the future
        for name in PRODUCTS:
            os.utime(tmp_path / name, (date, date))
        assert told(planned_of(*batches), tmp_path) == (left, PRODUCTS)
        assert not done.is_done(planned_of(*batches), tmp_path)
    whole.write(tmp_path / "plan.json")
    assert told(whole, tmp_path)[0] == BOTH and done.is_done(whole, tmp_path), "the config is changed back"


def test_a_job_that_ends_while_its_files_are_read_stays_done(whole, tmp_path, monkeypatch):
    """A dry run beside a run must not remove what the job has just told Snakemake."""
    file_of(tmp_path).unlink()
    mark, jobs = tmp_path / "marks" / "done" / BATCH.name, done.jobs

    def ending(*arguments):
        found = jobs(*arguments)
        done.write_old(mark)
        return found

    monkeypatch.setattr(done, "jobs", ending)
    done.mark(whole, tmp_path, tmp_path / "marks")
    assert mark.exists()
    monkeypatch.undo()
    done.mark(whole, tmp_path, tmp_path / "marks")
    assert not mark.exists()


def test_the_plan_of_a_folder_that_was_moved_is_replaced(whole, tmp_path):
    """Its kernels have other paths, and cannot be loaded."""
    config = {**whole.config, "extensions": [str(tmp_path / "gone" / "mine.c")]}
    dataclasses.replace(whole, config=config).write(tmp_path / "plan.json")
    assert done.products(whole, tmp_path, True) == {done.TIMINGS: False, done.PAGE: False}


def test_a_page_of_another_file_is_stale_alone(whole, tmp_path):
    path = tmp_path / done.PAGE
    path.write_text(path.read_text().replace("sha256 ", "sha256 0"))
    assert told(whole, tmp_path) == (BOTH, {done.PAGE})


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(share=st.floats(0, 0.99))  # without its seal, a file is whole
def test_a_truncated_file_is_never_done_and_never_in_the_way(whole, tmp_path, share):
    for path in (tmp_path / done.TIMINGS, file_of(tmp_path)):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        jobs, stale = told(whole, tmp_path)
        assert stale == PRODUCTS and jobs == (BOTH if path.name == done.TIMINGS else {OTHER.name})
        path.write_bytes(content)
    file_of(tmp_path).write_bytes(content[: int(share * len(content))])  # the kept file is the same one
    assert not reopened(file_of(tmp_path).with_suffix(".journal")).measured, "its points are measured again"
    file_of(tmp_path).write_bytes(content)


def test_points_of_a_file_without_kept_files_are_not_measured_again(whole, tmp_path):
    for path in (tmp_path / "raw").rglob("kept/*"):
        path.unlink()
    journal = reopened(file_of(tmp_path).with_suffix(".journal"), batch_of([8, 16, 64], alpha=1.5, tile=8))
    assert journal.measured == set(BATCH.fingerprints[:2])


def test_a_point_without_a_result_is_done_and_counts_as_not_measured(whole, tmp_path):
    lost = Verdict(False, math.nan, math.nan, UNCHECKED, "not measured: no room")
    batch = batch_of([8, 16], source="s3", alpha=1.5, tile=8)
    journal = Journal(file_of(tmp_path, batch).with_suffix(".journal"), batch, {})
    for point, verdict in zip(batch.points, (RIGHT, lost), strict=True):
        journal.append(point, measured(point, verdict=verdict))
    journal.complete()
    assert store.fingerprints(file_of(tmp_path, batch)) == dict(zip(batch.fingerprints, (True, False), strict=True))
    line = status.progress(*status.look_at_all(tmp_path, planned_of(batch)))
    assert line == "1 of 2 points measured (1 not measured), 1 of 1 batches done"
    collect(planned_of(batch), tmp_path, tmp_path / "two.h5")
    columns = store.read(tmp_path / "two.h5")
    found = analysis.summary(columns, analysis.measurements(columns))
    assert (found.points, found.unmeasured) == (2, 1)
