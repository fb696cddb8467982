"""Journals that survive what happens to jobs."""

import dataclasses
import errno
import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from batches import BATCH, HOST, WRONG, assert_same, batch_of, filled, measured, of, reopened, stored, together

from hpcmm import store
from hpcmm.bench import journal as journals
from hpcmm.bench.journal import CUT_OFF, Journal, glance, so_far, whole_lines
from hpcmm.store import StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "raw" / "sweep" / "cuda-r2-1.journal"


@pytest.mark.parametrize("count", [0, 2])
def test_a_truncated_last_line_is_dropped_and_earlier_lines_are_kept(path, count):
    """The first line, which is that of the run, and the line of a point."""
    journal = filled(path, BATCH.points[:count])
    if count:
        journal.append(BATCH.points[count], measured(BATCH.points[count], verdict=WRONG)[:1])  # a short line
    journal.close()
    whole = path.read_bytes()
    for end in range(whole.rstrip(b"\n").rfind(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path, BATCH, HOST)
        assert set(journal.finished) == set(BATCH.fingerprints[:count])
        journal.append(BATCH.points[count], measured(BATCH.points[count]))
        journal.close()
        assert set(reopened(path).finished) == set(BATCH.fingerprints[: count + 1])


@pytest.mark.parametrize(
    "order",
    [["point"], ["opening", "failed"], ["opening", "begun", "failed", "failed"]]
    + [["opening", each] for each in (b"[]", b"[" * 100_000)],
    ids=["no-run", "not-begun", "failed-twice", "list", "deep"],
)
def test_a_line_that_no_job_writes_there_is_one_error(path, order):
    """As of another version."""
    journal = filled(path, [])
    journal.begin(BATCH.points[0])
    journal.fail(BATCH.points[0], "no room", counts=False)
    journal.append(BATCH.points[0], measured(BATCH.points[0]))
    journal.close()
    names = dict(zip(("opening", "begun", "failed", "point"), whole_lines(path.read_bytes()), strict=True))
    content = b"".join((names[each] if isinstance(each, str) else each) + b"\n" for each in order)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"cuda-r2-1\.journal: line {len(order)} was not written .*remove the file"):
        Journal(path, BATCH, HOST)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("right", "wrong"),
    [('"ranks": [', '"ranks": [{}, '), ('"left": 0', '"left": []'), ('"operation": "', '"operation": "x')],
)
def test_values_that_no_job_writes_are_one_error_when_they_are_collected(path, right, wrong):
    filled(path, BATCH.points[:1]).close()
    before = path.read_bytes()
    path.write_bytes(before.replace(right.encode(), wrong.encode()))
    assert path.read_bytes() != before
    with pytest.raises(StoreError, match=r"cuda-r2-1\.journal.* was not written .*remove the file"):
        so_far(path.with_suffix(".h5"), BATCH)


@pytest.mark.parametrize("obstacle", ["a file", "a dangling link", "a folder"])
def test_a_journal_that_cannot_be_written_is_named(path, obstacle):
    place = path if obstacle == "a folder" else path.parents[1]
    place.parent.mkdir(parents=True, exist_ok=True)
    {"a file": place.touch, "a dangling link": lambda: place.symlink_to("nowhere"), "a folder": place.mkdir}[obstacle]()
    with pytest.raises(StoreError, match=rf"^{place}(/sweep)?: (not a folder|cannot be (written|created))"):
        Journal(path, BATCH, HOST)


def test_a_batch_continues_from_its_unchanged_points(path):
    filled(path).close()
    batch = dataclasses.replace(BATCH, fingerprints=(BATCH.fingerprints[0], "another source", BATCH.fingerprints[2]))
    journal = Journal(path, batch, HOST)
    assert journal.measured == {BATCH.fingerprints[0], BATCH.fingerprints[2]}
    journal.append(batch.points[1], measured(batch.points[1], 9.0))
    journal.complete()
    groups = store.read(path.with_suffix(".h5"))
    assert list(groups["measurements"]["m"]) == [8, 8, 16, 16, 32, 32]
    assert list(groups["measurements"]["fingerprint"][::2]) == list(batch.fingerprints)
    assert list(groups["measurements"]["run"]) == [0, 0, 1, 1, 0, 0]
    times, rows = (groups["samples"][name] for name in ("kernel", "measurement"))
    assert [times[rows == row][0] for row in (0, 2, 4)] == [0.25, 9.0, 2.25]


def test_how_attempts_ended_is_known_when_a_journal_is_opened_again(path):
    journal = filled(path, BATCH.points[:1])
    for _ in range(2):
        journal.begin(BATCH.points[1])  # and the job ended
    journal.begin(BATCH.points[2])
    journal.fail(BATCH.points[2], "MemoryError: no room", counts=True)
    journal.begin(BATCH.points[2])
    journal.fail(BATCH.points[2], "compile it again", counts=False)
    journal.close()
    again = reopened(path)
    assert again.measured == {BATCH.fingerprints[0]}
    assert again.attempts[of(BATCH.points[1])] == [CUT_OFF] * 2
    assert again.attempts[of(BATCH.points[2])] == ["MemoryError: no room"]
    changed = reopened(path, batch_of([8, 16, 32], source="s2"))
    assert not changed.attempts, "another source is another chance"


def test_a_second_process_on_the_same_batch_is_refused(path):
    first = filled(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another process is measuring this batch"):
        Journal(path, BATCH, HOST)
    assert path.read_bytes() == before
    first.close()
    reopened(path)


def fails(number: int) -> mock.Mock:
    """A function of the system that fails with this number of an error."""
    return mock.Mock(side_effect=OSError(number, os.strerror(number)))


def test_a_file_system_without_locks_is_not_taken_for_another_process(path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", fails(errno.ENOLCK))
    with pytest.raises(StoreError, match="cannot be locked: No locks available"):
        Journal(path, BATCH, HOST)


def test_the_line_of_a_measurement_has_all_its_fields():
    (first, *_) = measured(BATCH.points[0])
    entry = json.loads(json.dumps(journals.measurement_to_json(first)))
    assert entry == json.loads(json.dumps(dataclasses.asdict(first)))
    assert journals.measurement_from_json(entry) == first


def test_a_sync_that_fails_leaves_the_points_before_it(path, monkeypatch):
    journal = filled(path, BATCH.points[:2])
    before = path.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(StoreError, match=r"No space left.*before this one are kept"):
        patch.setattr(os, "fsync", fails(errno.ENOSPC))
        journal.append(BATCH.points[2], measured(BATCH.points[2]))
    assert of(BATCH.points[2]) not in journal.finished
    journal.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_disk_that_is_full_leaves_the_points_before_it(path, limited_files, room):
    journal = filled(path, BATCH.points[:2])
    before = path.read_bytes()
    with limited_files(len(before) + room):
        with pytest.raises(StoreError, match=r"cuda-r2-1\.journal: .*the points before this one are kept"):
            journal.append(BATCH.points[2], measured(BATCH.points[2]))
        assert path.read_bytes() == before
    journal.append(BATCH.points[2], measured(BATCH.points[2]))  # there is room again
    journal.close()
    assert path.read_bytes().startswith(before)
    assert set(reopened(path).finished) == set(BATCH.fingerprints)


@pytest.mark.parametrize("room", [0, 5000, 40_000])
def test_a_disk_that_is_full_at_the_end_leaves_the_journal(path, limited_files, room):
    output = path.with_suffix(".h5")
    journal = filled(path)
    before = path.read_bytes()
    refused = pytest.raises(StoreError, match=r"cuda-r2-1\.h5: cannot be written: File too large")
    with refused, limited_files(room):
        journal.complete()
    assert [each.name for each in path.parent.iterdir()] == [path.name] and path.read_bytes() == before
    journal.complete()  # there is room again
    assert len(store.read(output)["measurements"]["run"]) == 6


def test_a_complete_journal_becomes_one_file(path):
    output = path.with_suffix(".h5")
    filled(path).complete()
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


def test_a_failure_is_stored_with_its_place_and_without_times(path):
    batch = batch_of([8])
    journal = Journal(path, batch, HOST)
    journal.append(batch.points[0], measured(batch.points[0], verdict=WRONG))
    journal.close()
    journal = Journal(path, batch, HOST)  # a NaN comes back from the journal too
    journal.complete()
    groups = store.read(path.with_suffix(".h5"))
    assert list(groups["measurements"]["passed"]) == [0, 1]
    assert np.isnan(groups["measurements"]["error"][0])
    assert groups["measurements"]["where"][0] == WRONG.where
    assert set(groups["samples"]["measurement"]) == {1}


# --- visits ------------------------------------------------------------------------------------------------------


def visited(point, visit, seconds):
    rows = measured(point, seconds)
    return [replace(row, samples=tuple(replace(each, visit=visit) for each in row.samples)) for row in rows]


def test_a_reopened_journal_continues_at_the_visit_it_had_reached(path):
    first, second, third = BATCH.points
    for visit, points in ((0, BATCH.points), (1, (first,))):
        journal = Journal(path, BATCH, {"utc": f"2026-01-0{visit + 1}T00:00:00+00:00"})
        for point in points:
            journal.begin(point)
            journal.append(point, visited(point, visit, 1.0 + visit), left=1 - visit if point != third else 0)
        journal.begin(second)
        journal.close()
    again = Journal(path, BATCH, HOST)
    assert again.visits == {of(first): (2, 0), of(second): (1, 1), of(third): (1, 0)}
    assert again.measured == {of(first), of(third)}
    assert again.attempts == {of(second): [CUT_OFF] * 2}, "those of the second visit"
    again.append(second, visited(second, 1, 2.0)[:1])  # without its baseline
    assert again.measured == set(BATCH.fingerprints)
    again.complete()
    groups = store.read(path.with_suffix(".h5"))
    assert list(groups["measurements"]["run"]) == [0] * 6, "a measurement is of the run of its first visit"
    samples = groups["samples"]
    for row, visits in enumerate([2, 2, 2, 1, 1, 1]):
        own = samples["measurement"] == row
        alone = own & (samples["call"] == 0) & (samples["rank"] == 0)
        assert list(samples["visit"][alone]) == [visit for visit in range(visits) for _ in range(2)]
        assert list(samples["repetition"][alone]) == list(range(2 * visits)), "repetitions are counted on"
        assert list(samples["kernel"][alone]) == [1.0 + visit for visit in samples["visit"][alone]]


def test_a_glance_has_the_share_of_visits(path):
    journal = Journal(path, BATCH, HOST)
    for point in BATCH.points:
        journal.append(point, visited(point, 0, 1.0), left=2)
    journal.close()
    journal = Journal(path, BATCH, HOST)
    journal.append(BATCH.points[0], visited(BATCH.points[0], 1, 1.0), left=1)
    journal.begin(BATCH.points[1])
    journal.close()
    seen = glance(path, BATCH)
    assert not seen.whole and seen.begun == (BATCH.points[1].key, 1)
    assert [seen.share(each) for each in BATCH.fingerprints] == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert seen.recent == {of(BATCH.points[0]): pytest.approx(1 / 3)}


# --- what is kept of earlier files ------------------------------------------------------------------------------


def test_counters_at_the_end_of_a_process_are_in_its_provenance(path):
    began = {"host": "here", "utc": "2026-01-01T00:00:00+00:00"}
    journal = Journal(path, BATCH, began)
    journal.append(BATCH.points[0], measured(BATCH.points[0]))
    journal.end({"load_average": 2.0})
    journal.close()
    assert glance(path, BATCH).whole == {of(BATCH.points[0])}
    assert reopened(path).runs == [began | {"counters_at_end": {"load_average": 2.0}}, HOST]


def test_a_deleted_file_is_restored_from_kept_files(path):
    output = stored(path.with_suffix(".h5"))
    before = store.read(output)
    output.unlink()  # as a workflow does before it makes it anew
    journal = Journal(path, BATCH, {"host": "there"})
    assert journal.measured == set(BATCH.fingerprints) and not journal.finished
    journal.complete()
    after = store.read(output)
    assert_same(before, after)
    assert [json.loads(each) for each in after["runs"]["provenance"]] == [HOST], "a run without points is none"


def test_points_are_found_wherever_the_parts_were_divided(path):
    """Two jobs become three: each new one takes its points from whichever had them."""
    points = batch_of(range(1, 7)).points
    for part, members in ((1, points[:3]), (2, points[3:])):
        stored(path.with_name(f"{part}.h5"), together(members, part=part))
    for part in (1, 2, 3):  # one after the other, and each has its file before the next one starts
        path.with_name(f"{part}.h5").unlink(missing_ok=True)
        batch = together(points[2 * part - 2 : 2 * part], part=part)
        journal = Journal(path.with_name(f"{part}.journal"), batch, HOST)
        assert journal.measured == set(batch.fingerprints)
        journal.complete()
        assert list(store.read(path.with_name(f"{part}.h5"))["measurements"]["m"][::2]) == [2 * part - 1, 2 * part]


def test_without_links_a_copy_is_kept(path, monkeypatch):
    monkeypatch.setattr(Path, "hardlink_to", fails(errno.EPERM))
    output = stored(path.with_suffix(".h5"))
    (kept,) = (path.parent / "kept").iterdir()
    assert kept.read_bytes() == output.read_bytes()
    assert not kept.samefile(output)
