"""The time of jobs relative to their upper bounds, learned from the jobs of a results folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcmm.experiment.durations import EXPECTED_STARTUP_SECONDS, STARTUP_SECONDS, expected_share, rounded_duration
from hpcmm.model.measurement import Batch
from hpcmm.system import files

LAUNCH_SECONDS = 0.2  # per visit of a batch, before the first process of a job and after the last
FILE = "paces.jsonl"  # in the results folder; without it the expected times are the defaults
# Seconds of a later visit: at most ``LATER`` of the first one, which also verifies and compiles, and ``TIMED`` times
# its timed calls
LATER, TIMED = 0.8, 3.3
DIFFERENCE = 1.7  # between batches on one device: the logarithm of the factor by which paces differ
PRIOR = 0.3  # of a batch, as which its expected pace counts beside that of its first points


@dataclass(frozen=True)
class Record:
    batch: str
    operation: str
    device: str
    predicted: float  # upper bound of its points in seconds
    seconds: float  # measured seconds of these points
    # Seconds before the first point, since the start of the process or the end of its batch before; None if unknown
    startup: float | None = None
    timed: float | None = None  # seconds of timed calls and kernels
    visit: int = 0  # counted from 0


class Pace:
    """Expected times, learned from the batch's last visit, else from first visits of its operation and device."""

    def __init__(self, records: Iterable[Record] = ()):
        usable = [record for record in records if record.predicted > 0]
        self.records = list({record.batch: record for record in usable}.values())
        self.first = list({record.batch: record for record in usable if not record.visit}.values())

    def share(self, batch: Batch) -> float:
        """Return the share of the upper bound that the next visit takes."""
        own = [record for record in self.records if record.batch == batch.name]
        on_device = [record for record in self.first if record.device == batch.device]
        alike = [record for record in on_device if record.operation == batch.operation]
        default = expected_share(batch.device)
        for records in filter(None, (own, alike, on_device)):
            share = sum(visit.seconds for visit in records) / sum(visit.predicted for visit in records)
            if records is own:
                return share if own[0].visit else share * self.later(batch)
            return math.sqrt(share * default)  # batches on one device differ by a factor of ten
        return default

    def later(self, batch: Batch) -> float:
        """Return the seconds of a later visit relative to the first one, on the device of a batch."""
        known = [visit for visit in self.first if visit.device == batch.device and visit.timed and visit.seconds]
        seconds = sum(visit.seconds for visit in known)
        return min(LATER, TIMED * sum(visit.timed for visit in known) / seconds) if known else LATER

    def startup(self, batch: Batch) -> float:
        startups = [each.startup for each in self.records if each.device == batch.device and each.startup is not None]
        return LAUNCH_SECONDS + sum(startups) / len(startups) if startups else EXPECTED_STARTUP_SECONDS

    def seconds(self, batch: Batch) -> float:
        """Return the expected seconds of all visits of a batch, at most their upper bound."""
        points = sum(batch.predicted)
        starts = max(1, round((batch.seconds - points) / STARTUP_SECONDS))  # one a visit
        visits = 1 + (starts - 1) * (1.0 if self.knows(batch) else self.later(batch))  # as many of ``share``
        return min(batch.seconds, starts * self.startup(batch) + self.share(batch) * points * visits / starts)

    def knows(self, batch: Batch) -> bool:
        """Whether the batch was visited."""
        return any(record.batch == batch.name for record in self.records)

    def visited(self, device: str) -> int:
        """Return the number of visited batches on a device."""
        return sum(record.device == device for record in self.records)


def blended(seconds: float, predicted: float, whole: float, share: float) -> float:
    """Return the seconds per predicted second of a batch, from its first points and the ``share`` of other batches.

    The first points of a batch say little about the others, so ``share`` counts as ``PRIOR`` of the ``whole`` batch; 0
    if it is unknown.

    >>> blended(8.0, 10.0, 100.0, 0.2), blended(20.0, 100.0, 100.0, 0.2), blended(8.0, 10.0, 100.0, 0.0)
    (0.35, 0.2, 0.8)
    """
    weight = PRIOR * whole if share else 0.0
    return (seconds + weight * share) / (predicted + weight)


def around(known: float, guessed: float, visited: int) -> str:
    """Return the seconds left as text: those ``known``, and those ``guessed`` from so many ``visited`` batches.

    One duration is right within a factor of two. As long as it may not be, it is a range. Seconds are not counted down:
    starts of processes, which nothing predicts, are most of them.

    >>> around(60.0, 30.0, 20), around(0.0, 60.0, 1), around(20.0, 4.0, 20)
    ('about 91 s', 'about 18 s to 3 min', 'less than a minute')
    """
    factor = math.exp(DIFFERENCE / math.sqrt(1 + visited))
    low, high = known + guessed / factor, known + guessed * factor
    middle = math.sqrt(low * high)
    if high <= 60 and middle <= 30:
        return "less than a minute"
    one = high <= 4 * low
    return "about " + (rounded_duration(middle) if one else f"{rounded_duration(low)} to {rounded_duration(high)}")


def learned(results: Path) -> list[Record]:
    """Return the times of the jobs of a results folder. Lines of other versions are skipped."""
    found = []
    with suppress(OSError):
        for line in files.text_of(results / FILE, errors="replace").splitlines():
            with suppress(ValueError, TypeError, RecursionError):
                record = Record(**json.loads(line))
                numbers = record.predicted, record.seconds, record.visit, record.startup or 0, record.timed or 0
                if all(type(number) in (int, float) and 0 <= number < float("inf") for number in numbers):
                    found.append(record)
    return found


def record(results: Path, took: Record) -> None:
    """Append the time of a job. An unwritable folder is not an error: only estimates depend on it."""
    with suppress(OSError), files.opened(results / FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(took)) + "\n")
