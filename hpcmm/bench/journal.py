"""The journal of a running batch: each finished point is on disk at once. At the end it becomes the HDF5 file."""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from hpcmm import store
from hpcmm.model import UNCHECKED, Verdict
from hpcmm.model.measurement import Batch, Measurement, Point, Sample, Visit
from hpcmm.store import Groups, StoreError
from hpcmm.system import files

CUT_OFF = "the job crashed, was killed, or ran out of memory or time"
ENDLESS = "did not end within"  # of a step of a point, before its time


class Recorded:
    """What the entries of a journal say about the points of a batch, by fingerprint; others are skipped."""

    def __init__(self, batch: Batch, entries: Iterable[dict] = ()):
        self.batch = batch
        self.fingerprints = dict(zip((point.key for point in batch.points), batch.fingerprints, strict=True))
        self.runs: list[dict] = []  # the provenance of each process
        # The measurements of all visits so far, each with the index of the first visit's run in ``runs``
        self.finished: dict[str, list[tuple[int, Measurement]]] = {}
        self.visits: dict[str, tuple[int, int]] = {}  # the number of visits that a point has and that it still needs
        self.attempts: dict[str, list[str]] = {}  # how each unfinished attempt at the next visit of a point ended
        self.failed: dict[str, str] = {}  # the reason of the last attempt since the last visit
        # Of the last process: host and number, the shares of visits that it added, the key and the visit of the point
        # that it began last, and whether it ended by itself
        self.host, self.pid, self.ended = "", 0, False
        self.recent: dict[str, float] = {}
        self.begun: tuple[str, int] = "", 0
        for entry in entries:
            self.add(entry)

    def add(self, entry: dict, measurements: Sequence[Measurement] | None = None) -> None:
        """Add an entry; ``measurements`` are those of a finished visit, where the caller has them."""
        fingerprint = entry.get("fingerprint")
        if "provenance" in entry:
            self.host, self.pid = entry["process"]["host"], entry["process"]["pid"]
            self.runs.append(entry["provenance"])
            self.recent, self.begun, self.ended = {}, ("", 0), False
        elif "ended" in entry:
            self.runs[-1]["counters_at_end"], self.ended = entry["ended"], True
        elif fingerprint not in self.batch.fingerprints:
            return
        elif "begun" in entry:
            self.attempts.setdefault(fingerprint, []).append(CUT_OFF)
            self.failed[fingerprint] = CUT_OFF
            self.begun = entry["begun"], entry["visit"]
        elif "failed" in entry:
            self.attempts[fingerprint].pop()
            if entry["counts"]:
                self.attempts[fingerprint].append(entry["reason"])
            self.failed[fingerprint] = entry["reason"]
        else:
            self.add_visit(entry, fingerprint, measurements)

    def add_visit(self, entry: dict, fingerprint: str, measurements: Sequence[Measurement] | None) -> None:
        if entry["run"] not in range(len(self.runs)):
            raise ValueError("a run that has not begun")
        before, _ = self.visits.get(fingerprint, (0, 0))
        if entry["visit"] != before:
            raise ValueError("a visit that is not the next")
        if measurements is None:
            measurements = list(map(measurement_from_json, entry["measurements"]))
        share = self.share(fingerprint)
        self.visits[fingerprint] = before + 1, entry["left"]
        self.recent[fingerprint] = self.recent.get(fingerprint, 0.0) + self.share(fingerprint) - share
        self.finished[fingerprint] = with_visit(self.finished.get(fingerprint, ()), entry["run"], measurements)
        self.attempts.pop(fingerprint, None)  # each visit has its own
        self.failed.pop(fingerprint, None)

    def read(self, path: Path, journal: bytes) -> int:
        """Add lines of a journal; return the length of the valid ones. StoreError: a line of another version."""
        length = 0
        for number, line in enumerate(whole_lines(journal), 1):
            with of_this_version(f"{path}: line {number}"):
                try:
                    entry = json.loads(line)
                except ValueError:  # after a loss of power
                    break
                self.add(entry)
            length += len(line) + 1
        return length

    def share(self, fingerprint: str) -> float:
        done, left = self.visits.get(fingerprint, (0, 1))
        return done / (done + left)

    def last_reason(self, point: Point) -> str:
        """Return how the last attempt at a point since its last visit ended; empty without one."""
        return self.failed.get(self.fingerprints[point.key], "")

    @property
    def whole(self) -> set[str]:
        """Fingerprints of the points that have all visits."""
        return {fingerprint for fingerprint, (_, left) in self.visits.items() if not left}


class Events(Recorded):
    """What happens to the points of a batch: each event is an entry, which a subclass writes somewhere."""

    def __init__(self, batch: Batch, entries: Iterable[dict] = ()):
        super().__init__(batch, entries)
        self.kept: list[Groups] = []  # groups of columns, as ``read`` gives them, with points of earlier files

    def open(self, provenance: Mapping[str, Any]) -> None:
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        self._record({"provenance": dict(provenance), "process": process})

    @property
    def measured(self) -> set[str]:
        return self.whole.union(*(part["measurements"]["fingerprint"] for part in self.kept))

    def _record(self, entry: dict, measurements: Sequence[Measurement] | None = None) -> None:
        self._write(entry)
        self.add(entry, measurements)

    def _write(self, entry: dict) -> None:
        raise NotImplementedError

    def _about(self, point: Point) -> dict[str, Any]:
        fingerprint = self.fingerprints[point.key]
        visit, _ = self.visits.get(fingerprint, (0, 0))
        return {"fingerprint": fingerprint, "visit": visit}

    def begin(self, point: Point) -> None:
        """Record the start of a point. If no other entry follows, the job ended in this point."""
        self._record({"begun": point.key, **self._about(point)})

    def fail(self, point: Point, reason: str, counts: bool) -> None:
        """Record that a point that was begun could not be measured, and whether that counts as an attempt."""
        self._record({"failed": point.key, **self._about(point), "reason": reason, "counts": counts})

    def append(self, point: Point, measurements: Sequence[Measurement], left: int = 0) -> None:
        entry = {"point": point.key, **self._about(point), "left": left, "run": len(self.runs) - 1}
        self._record(entry | {"measurements": list(map(measurement_to_json, measurements))}, measurements)

    def end(self, counters: Mapping[str, Any]) -> None:
        """Record the counters of the machine at the end of this process; a job that is killed has none."""
        self._record({"ended": dict(counters)})

    def complete(self) -> None:
        self.close()

    def close(self) -> None:
        """Release what ``_write`` uses."""


Opening = Callable[[Batch, dict[str, Any]], Events]  # opens the journal of a batch, which gets its provenance


class Sent(Events):
    """Events that another process receives as lines of JSON in ``file``, and adds to the ``entries`` that it sent."""

    def __init__(self, batch: Batch, provenance: Mapping, entries: Sequence[dict], config: Mapping, file: IO[str]):
        super().__init__(batch, entries)
        self._file = file
        self.open({**provenance, "config": dict(config)})

    def _write(self, entry: dict) -> None:
        self._file.write(json.dumps({"batch": self.batch.name, "entry": entry}) + "\n")
        self._file.flush()


class Journal(Events):
    """Events of an incomplete batch on disk, beside its HDF5 file: one JSON line per event, synced when it is written.

    A truncated or damaged line is dropped on opening, with all lines after it. Opening raises StoreError if the journal
    cannot be understood, or another process is measuring the batch.
    """

    def __init__(self, path: Path, batch: Batch, provenance: Mapping[str, Any]):
        self.path = path
        store.make_folder(path.parent)
        try:
            self._file = files.opened(path, "ab+", buffering=0)  # no part of a failed line remains in a buffer
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
        try:
            files.lock(self._file, path, wait=False)
        except OSError as error:
            self._file.close()
            busy = isinstance(error, BlockingIOError)
            why = "another process is measuring this batch" if busy else error.strerror
            raise StoreError(f"{path}: {why}") from error
        super().__init__(batch)
        self._file.seek(0)
        try:
            length = self.read(path, self._file.readall())
        except StoreError:
            self.close()
            raise
        self._file.truncate(length)
        self.kept = stored_points(path.with_suffix(".h5"), batch, set(batch.fingerprints) - set(self.finished))
        self.open(provenance)

    def _write(self, entry: dict) -> None:
        self._file.seek(0, os.SEEK_END)
        start = self._file.tell()
        try:
            line = json.dumps(entry).encode() + b"\n"
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), start)
            raise StoreError(f"{self.path}: {error.strerror}; the points before this one are kept") from error

    def complete(self) -> None:
        """Write the batch's HDF5 file, link it in the folder ``kept``, and remove the journal."""
        path = self.path.with_suffix(".h5")
        with of_this_version(str(self.path)):
            groups = in_order(self.batch, self.kept, self.runs, self.finished)
        store.write_groups(path, groups)
        with store.replacing(kept_file(path, self.batch)) as temporary:
            try:
                temporary.hardlink_to(path)
            except OSError:  # a file system without such links
                shutil.copyfile(path, temporary)
        self.path.unlink()
        self.close()

    def close(self) -> None:
        self._file.close()


def kept_in(output: Path, config: Mapping[str, Any]) -> Opening:
    """Return a function that opens the journal of a batch, with the experiment's config in the provenance."""
    return lambda batch, provenance: Journal(journal_of(output), batch, {**provenance, "config": dict(config)})


def with_visit(
    rows: Sequence[tuple[int, Measurement]], run: int, measurements: Sequence[Measurement]
) -> list[tuple[int, Measurement]]:
    """Append a later visit and its samples to a point's measurements; the first visit creates them.

    Repetitions are numbered across visits. Run and verdict are from the first visit, and the samples of a later one
    have its run. A later visit with a wrong result replaces the verdict and removes the samples.
    """
    if not rows:
        return [(run, measurement) for measurement in measurements]
    added = {(each.contender, each.algorithm): each for each in measurements}
    found = []
    for first, measurement in rows:
        another, changes = added.get((measurement.contender, measurement.algorithm)), {}
        if another and not another.verdict.passed and another.verdict.reference != UNCHECKED:
            changes = {"verdict": another.verdict, "samples": ()}
        elif another:
            counts, samples = {True: 0, False: 0}, list(measurement.samples)
            for sample in samples:
                counts[sample.call] = max(counts[sample.call], sample.repetition + 1)
            for sample in another.samples:
                repetition = sample.repetition + counts[sample.call]
                samples.append(dataclasses.replace(sample, repetition=repetition, run=run))
            changes = {name: getattr(measurement, name) + getattr(another, name) for name in ("late_runs", "visits")}
            changes["samples"] = tuple(samples)
        found.append((first, dataclasses.replace(measurement, **changes)))
    return found


UNEXPECTED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)  # of other values


@contextlib.contextmanager
def of_this_version(what: str) -> Iterator[None]:
    """Take the errors of values that nothing expects for one error of a file, ``what``."""
    try:
        yield
    except UNEXPECTED as error:
        raise StoreError(
            f"{what} was not written by a job of this version; remove the file to measure its points again"
        ) from error


def so_far(output: Path, batch: Batch) -> tuple[Groups, dict[str, str], int]:
    """Return the results of a batch on disk, also of a job that is running: nothing is locked or changed.

    They are the groups of the points with a visit or more, in the order of the plan, from the batch's file ``output``,
    kept files, or its journal; by fingerprint, why each other point failed, if the journal says so; and the number of
    points that have fewer visits than planned. A damaged file has no points.
    """
    journal, content = journal_of(output), Recorded(batch)
    try:
        content.read(journal, files.bytes_of(journal))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(f"{journal}: {error.strerror}") from error
    parts = stored_points(output, batch, batch.fingerprints)
    stored = set().union(*(part["measurements"]["fingerprint"] for part in parts))
    begun = {fingerprint: rows for fingerprint, rows in content.finished.items() if fingerprint not in stored}
    with of_this_version(str(journal)):
        short = sum(content.visits[fingerprint][1] > 0 for fingerprint in begun)
        groups = in_order(batch, parts, content.runs, begun)
    missing = set(batch.fingerprints).difference(groups["measurements"]["fingerprint"])
    return groups, {each: content.failed.get(each, "") for each in batch.fingerprints if each in missing}, short


def journal_of(output: Path) -> Path:
    return output.with_suffix(".journal")


def in_order(batch: Batch, parts: Sequence[Groups], runs: list[Mapping], finished: Mapping[str, Sequence]) -> Groups:
    rows = [row for rows in finished.values() for row in rows]
    groups = store.joined([*parts, store.columns_of(batch, runs, rows)])
    place = {fingerprint: i for i, fingerprint in enumerate(batch.fingerprints)}
    places = [place[fingerprint] for fingerprint in groups["measurements"]["fingerprint"]]
    return store.select(groups, np.argsort(places, kind="stable"))


def whole_lines(journal: bytes) -> list[bytes]:
    """Return the lines of a journal, without the last one if it was not written to its end."""
    return journal.split(b"\n")[:-1]


def is_complete(output: Path, batch: Batch) -> bool:
    """Whether the HDF5 file of a batch has all its points, and perhaps more, with the code of the plan."""
    return store.fingerprints(output).keys() >= set(batch.fingerprints)


def on_disk(output: Path, batch: Batch) -> dict[str, bool]:
    """Return whether the points of a batch in its file and in kept files have a result, by fingerprint."""
    found: dict[str, bool] = {}
    for path in stored_files(output, batch):
        if len(found) == len(batch.fingerprints):
            break
        found = {each: has for each, has in store.fingerprints(path).items() if each in batch.fingerprints} | found
    return found


def is_visited(output: Path, batch: Batch, share: float) -> bool:
    """Whether all points of a batch have this share of their visits; 1 means that its file is complete."""
    if is_complete(output, batch):
        return True
    seen = glance(output, batch) if share < 1 else None
    stored = on_disk(output, batch) if seen else {}
    return seen is not None and all(each in stored or seen.share(each) > share - 1e-9 for each in batch.fingerprints)


def kept_file(output: Path, batch: Batch) -> Path:
    """Return a further path of a complete file: another plan replaces it, and a later one may have its points again."""
    return output.parent / "kept" / f"{batch.device}-r{batch.ranks}-{batch.fingerprint[:16]}.h5"


def stored_files(output: Path, batch: Batch) -> list[Path]:
    pattern = kept_file(output, dataclasses.replace(batch, fingerprint="*"))
    return [output, *sorted(pattern.parent.glob(pattern.name), key=lambda path: -path.stat().st_mtime)]


def stored_points(output: Path, batch: Batch, missing: Collection[str]) -> list[Groups]:
    """Return the points with ``missing`` fingerprints that files have, the first that has one; skip damaged files."""
    found, missing = [], set(missing)
    for path in stored_files(output, batch):
        if not missing:
            break
        try:
            groups = store.read(path)
        except StoreError:
            continue
        points = store.select(
            groups, np.flatnonzero(np.isin(groups["measurements"]["fingerprint"].astype(str), list(missing)))
        )
        missing.difference_update(points["measurements"]["fingerprint"])
        found.append(points)
    return found


def glance(output: Path, batch: Batch) -> Recorded | None:
    """Read a batch's progress without a lock, up to a line of another version; None without a journal."""
    seen = Recorded(batch)
    with contextlib.suppress(OSError, *UNEXPECTED):
        for line in whole_lines(files.bytes_of(journal_of(output))):
            head, measurements, _ = line.partition(b', "measurements": ')  # the last entry, long and not needed here
            seen.add(json.loads(head + b"}" * bool(measurements)), measurements=())
    return seen if seen.runs else None


def rehearse(folder: Path) -> None:
    """Lock, write and read a file in a folder in the same way as a job, to see whether its file system supports it."""
    with tempfile.TemporaryDirectory(prefix=".rehearsal-", dir=folder) as name:
        path = Path(name, "rehearsal.h5")
        with path.with_suffix(".journal").open("wb") as journal:
            files.lock(journal, folder, wait=False)
            journal.write(b"x")
            os.fsync(journal.fileno())
        store.write_groups(path, {})
        store.read(path)


def measurement_to_json(measurement: Measurement) -> dict:
    """Return the same as ``dataclasses.asdict``, without its copies, which take a millisecond."""
    return vars(measurement) | {
        "point": vars(measurement.point),
        "verdict": vars(measurement.verdict),
        "samples": [vars(sample) for sample in measurement.samples],
        "visits": [vars(visit) for visit in measurement.visits],
    }


def measurement_from_json(entry: dict) -> Measurement:
    return Measurement(
        **entry
        | {
            "point": Point(**entry["point"] | {"shape": tuple(entry["point"]["shape"])}),
            "verdict": Verdict(**entry["verdict"] | {"bits": tuple(entry["verdict"]["bits"])}),
            "samples": tuple(Sample(**sample) for sample in entry["samples"]),
            "visits": tuple(Visit(**visit) for visit in entry["visits"]),
        }
    )
