"""What happens to the points of a batch while it runs, on disk at once; and from there to its HDF5 file."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.model import Batch, Measurement, Point, Sample, Verdict
from hpcmm.store import Groups, StoreError, columns_of, joined, read, replacing, select, write_groups

CUT_OFF = "the job crashed, was killed, or ran out of memory or time"


class Journal:
    """What happened to the points of a batch that is not complete, one JSON line each, synced as they come.

    Every line about a point has its fingerprint; those that the batch does not have belong to another
    kernel or way of measuring and count for nothing. Before the JSON stands its CRC-32: a line that a crash cut
    short, or that is damaged, is dropped on opening, with all after it.

    Complete files are kept under their batch's fingerprint too, in the folder ``kept`` beside them: a
    workflow deletes its output before it makes it anew, and most points of it may be as they were.

    Parameters
    ----------
    path : Path
        The journal.
    batch : Batch
    provenance : mapping
        Of this process.

    Attributes
    ----------
    finished : dict
        By fingerprint, what was measured and the index of its run in ``runs``.
    attempts : dict
        By fingerprint, how each attempt to measure a point ended that did not finish it.
    kept : list
        Groups of columns, as ``read`` gives them, with points of earlier files.
    """

    def __init__(self, path: Path, batch: Batch, provenance: Mapping[str, Any]):
        self.path, self.batch = path, batch
        self.fingerprints = dict(zip((point.key for point in batch.points), batch.fingerprints, strict=True))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+", buffering=0)  # nothing of a line that failed is left to be written later
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            busy = isinstance(error, BlockingIOError)
            why = "another process is measuring this batch" if busy else f"cannot be locked: {error.strerror}"
            raise StoreError(f"{path}: {why}") from error
        self.runs: list[dict] = []
        self.finished: dict[str, list[tuple[int, Measurement]]] = {}
        self.attempts: dict[str, list[str]] = {}
        self._load()
        self.kept = self._find_kept()
        kept = [fingerprint for part in self.kept for fingerprint in part["measurements"]["fingerprint"]]
        self._append({"provenance": dict(provenance), "kept": list(dict.fromkeys(kept))})
        self.runs.append(dict(provenance))

    @property
    def measured(self) -> set[str]:
        """Fingerprints of the points that need no measuring."""
        return set(self.finished).union(*(part["measurements"]["fingerprint"] for part in self.kept))

    def _load(self) -> None:
        self._file.seek(0)
        good = 0
        for line in whole_lines(self._file.readall()):
            entry = json.loads(line)
            good += len(b"%08x %b\n" % (0, line))
            fingerprint = entry.get("fingerprint")
            if "provenance" in entry:
                self.runs.append(entry["provenance"])
            elif fingerprint not in self.batch.fingerprints:
                continue
            elif "begun" in entry:
                self.attempts.setdefault(fingerprint, []).append(CUT_OFF)
            elif "failed" in entry:
                self.attempts[fingerprint].pop()
                if entry["counts"]:
                    self.attempts[fingerprint].append(entry["reason"])
            else:
                measurements = [measurement_from_json(each) for each in entry["measurements"]]
                self.finished[fingerprint] = [(entry["run"], each) for each in measurements]
        self._file.truncate(good)

    def _find_kept(self) -> list[Groups]:
        """Take from kept files what this batch still lacks, the newest first."""
        missing = set(self.batch.fingerprints) - set(self.finished)
        found = []
        pattern = kept_file(self.path, dataclasses.replace(self.batch, fingerprint="*"))
        for path in sorted(pattern.parent.glob(pattern.name), key=lambda path: -path.stat().st_mtime):
            if not missing:
                break
            try:
                groups = read(path)
            except StoreError:
                continue  # then its points are measured again
            rows = np.flatnonzero(np.isin(groups["measurements"]["fingerprint"].astype(str), list(missing)))
            if len(rows):
                found.append(select(groups, rows))
                missing -= set(found[-1]["measurements"]["fingerprint"])
        return found

    def _append(self, entry: dict) -> None:
        self._file.seek(0, os.SEEK_END)
        start = self._file.tell()
        try:
            text = json.dumps(entry).encode()
            line = b"%08x %b\n" % (zlib.crc32(text), text)
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), start)
            raise StoreError(f"{self.path}: {error.strerror}; the points before this one are kept") from error

    def begin(self, point: Point) -> None:
        """Record that a point is being measured: if nothing else follows, the job ended in it."""
        self._append({"begun": point.key, "fingerprint": self.fingerprints[point.key]})

    def fail(self, point: Point, reason: str, counts: bool) -> None:
        """Record that a point that was begun could not be measured, and whether that counts as an attempt."""
        fingerprint = self.fingerprints[point.key]
        self._append({"failed": point.key, "fingerprint": fingerprint, "reason": reason, "counts": counts})

    def append(self, point: Point, measurements: Sequence[Measurement]) -> None:
        """Record a finished point; it is on the disk when this returns."""
        run, fingerprint = len(self.runs) - 1, self.fingerprints[point.key]
        entries = [dataclasses.asdict(measurement) for measurement in measurements]
        self._append({"point": point.key, "fingerprint": fingerprint, "run": run, "measurements": entries})
        self.finished[fingerprint] = [(run, measurement) for measurement in measurements]

    def complete(self, path: Path) -> None:
        """Write the batch's HDF5 file, keep it under its fingerprint too, and remove the journal."""
        rows = [row for rows in self.finished.values() for row in rows]
        groups = joined([*self.kept, columns_of(self.batch, self.runs, rows)])
        place = {fingerprint: i for i, fingerprint in enumerate(self.batch.fingerprints)}
        places = [place[fingerprint] for fingerprint in groups["measurements"]["fingerprint"]]
        write_groups(path, select(groups, np.argsort(places, kind="stable")))
        with replacing(kept_file(path, self.batch)) as temporary:
            temporary.unlink()
            try:
                temporary.hardlink_to(path)
            except OSError:  # a file system without such links
                shutil.copyfile(path, temporary)
        self.path.unlink()
        self.close()

    def close(self) -> None:
        self._file.close()


def whole_lines(journal: bytes) -> Iterator[bytes]:
    """The JSON of a journal's lines, up to the first that is not as it was written."""
    for line in journal.splitlines(keepends=True):
        checksum, _, text = line.removesuffix(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
            return
        yield text


def kept_file(output: Path, batch: Batch) -> Path:
    """Where a batch whose file is ``output`` is kept once it is complete."""
    return output.parent / "kept" / f"{batch.device}-r{batch.ranks}-{batch.fingerprint[:16]}.h5"


@dataclass(frozen=True)
class Glance:
    """How far a journal is, for others than the process that writes it.

    ``started`` is when its last process did, and ``recent`` are the fingerprints of the points that it
    finished; ``begun`` is the key of the point begun last, ``changed`` when the journal was written to last.
    """

    finished: frozenset[str]
    recent: frozenset[str]
    failed: Mapping[str, str]
    begun: str
    started: datetime
    changed: datetime


JOURNAL_LINE = re.compile(rb'\{"(begun|failed|point)": ("(?:[^"\\]|\\.)*"), "fingerprint": "([^"]*)"')


def glance(path: Path) -> Glance | None:
    """Look into a journal without disturbing who writes it; None if there is none or nothing in it yet."""
    finished, recent, failed, begun, started = set(), set(), {}, "", None
    try:
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        lines = list(whole_lines(path.read_bytes()))
    except FileNotFoundError:
        return None
    for line in lines:
        match = JOURNAL_LINE.match(line)  # a point's line is long, and its measurements are of no interest here
        if match is None:
            entry = json.loads(line)
            started = datetime.fromisoformat(entry["provenance"]["utc"])
            finished.update(entry["kept"])
            recent, begun = set(), ""
            continue
        kind, key, fingerprint = match[1].decode(), json.loads(match[2]), match[3].decode()
        if kind == "begun":
            begun = key
        elif kind == "failed":
            failed[fingerprint] = json.loads(line)["reason"]
        else:
            finished.add(fingerprint)
            recent.add(fingerprint)
            failed.pop(fingerprint, None)
    if started is None:
        return None
    return Glance(frozenset(finished), frozenset(recent), failed, begun, started, changed)


def rehearse(folder: Path) -> None:
    """Do in a folder what a job does with its files: lock, write, read.

    Raises
    ------
    OSError, StoreError
        If the file system does not take part.
    """
    with tempfile.TemporaryDirectory(prefix=".rehearsal-", dir=folder) as name:
        path = Path(name, "rehearsal.h5")
        with path.with_suffix(".journal").open("wb") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal.write(b"x")
            os.fsync(journal.fileno())
        write_groups(path, {})
        read(path)


def measurement_from_json(entry: dict) -> Measurement:
    """Undo ``dataclasses.asdict`` and JSON."""
    point = entry["point"] | {"shape": tuple(entry["point"]["shape"])}
    return Measurement(
        **entry
        | {
            "point": Point(**point),
            "verdict": Verdict(**entry["verdict"]),
            "samples": tuple(Sample(**sample) for sample in entry["samples"]),
        }
    )
