"""Records of points, batches, jobs, samples and measurements."""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Literal

from hpcmm.model import TEXTBOOK, HpcmmError, Verdict, contender_name

# Files in the folder of the results: of a batch, by its name, and of a run
FILE, TIMINGS, PAGE = "raw/{}.h5", "timings.h5", "report.html"


@dataclass(frozen=True)
class Point:
    """One point to measure: a variant at one shape, element type, set of scalars and number of ranks."""

    operation: str
    variant: str
    shape: tuple[int, ...]
    dtype: str
    ranks: int
    scalars: Mapping[str, float] = field(default_factory=dict, hash=False)  # the operation's scalar arguments
    algorithm: str = TEXTBOOK
    tile: int = 0  # width of the square thread block; 0 if the variant has none
    # Whether host memory is page-locked; None if its sweep does not set it, which means page-locked
    pinned: bool | None = None

    @property
    def key(self) -> str:
        """Canonical text that identifies the point in journals."""
        named = self.operation, self.variant, self.algorithm, self.shape, self.dtype, self.ranks
        return json.dumps([*named, dict(self.scalars), self.tile, self.pinned], sort_keys=True)

    @property
    def name(self) -> str:
        """Label of the point, without operation and ranks."""
        tile = f" tile {self.tile}" if self.tile else ""
        memory = {True: " pinned", False: " pageable", None: ""}[self.pinned]
        spread = contender_name(self.variant, self.algorithm)
        return f"{spread} {'x'.join(map(str, self.shape))} {self.dtype}{tile}{memory}"

    @property
    def divides_into_tiles(self) -> bool:
        """Whether the tile divides every dimension, on every rank."""
        tile, (first, *_) = self.tile, self.shape
        return all(size % tile == 0 for size in self.shape) and first % (tile * self.ranks) == 0

    @property
    def page_locked(self) -> bool:
        return self.pinned is not False


@dataclass(frozen=True)
class Batch:
    """Points of one sweep on one device with one number of ranks: one file."""

    sweep: str
    operation: str
    device: str
    ranks: int
    part: int  # number of the part, from 1: points that would exceed the time limit of a job are divided into parts
    points: tuple[Point, ...]  # points with the same inputs are adjacent
    # One per point. It changes with the point, the record or source of its variant, and the code that measures. The
    # point is then measured again.
    fingerprints: tuple[str, ...]
    predicted: tuple[float, ...]  # upper bound of the seconds for each point, including drawing and checking
    seconds: float  # upper bound of the seconds for a job of this batch alone, including its start
    fingerprint: str  # fingerprint of all points together. If it changes, the batch is measured again.
    # accuracy, same_bits: those of ``Measuring`` for its points
    accuracy: bool = False
    same_bits: bool = False

    @property
    def name(self) -> str:
        return f"{self.sweep}/{self.device}-r{self.ranks}-{self.part}"

    def file(self, results: Path) -> Path:
        return results / FILE.format(self.name)

    @property
    def startup(self) -> float:
        """Upper bound of the seconds before the points, in all its processes."""
        return self.seconds - sum(self.predicted)


@dataclass(frozen=True)
class Job:
    """Batches that the same processes measure, one after another; a job has the name of its first batch."""

    batches: tuple[Batch, ...]

    @property
    def name(self) -> str:
        return self.batches[0].name

    @property
    def device(self) -> str:
        return self.batches[0].device

    @property
    def ranks(self) -> int:
        return self.batches[0].ranks

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(itertools.chain.from_iterable(batch.points for batch in self.batches))

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper bound of the seconds of each batch: its points, and an equal share of the starts of the processes."""
        share = max(batch.startup for batch in self.batches) / len(self.batches)
        return tuple(share + sum(batch.predicted) for batch in self.batches)

    @property
    def seconds(self) -> float:
        """Upper bound of its seconds, including the starts of its processes."""
        return sum(self.bounds)


@dataclass(frozen=True)
class Measuring:
    """How a point is measured: keys of ``config.schema.yaml``."""

    warmups: int  # untimed repetitions at the start
    min_repetitions: int
    max_repetitions: int
    max_seconds: float
    relative_interval: float
    cache: Literal["cold", "hot"]  # whether caches are flushed before each timed kernel (cold)
    seed: int  # seed of the random inputs
    visits: int = 1
    jobs: int = 1  # Snakemake jobs among which the visits are divided, one after another
    energy: bool = False
    accuracy: bool = False
    same_bits: bool = False  # whether the first visit also compares bits, as in ``BITS``

    def job_of(self, visit: int) -> int:
        """Return the number of the job that makes a visit; both are counted from 0."""
        return visit * self.jobs // self.visits

    @property
    def only_verifies(self) -> bool:
        """Whether points are verified only, in two runs each: not timed beside the library."""
        return self.max_repetitions == 1


@dataclass(frozen=True)
class Sample:
    """Raw times of one repetition on one rank."""

    repetition: int  # counted from 0 over all visits, separately for end-to-end calls and for the kernel alone
    rank: int
    call: bool  # True for the end-to-end call with its transfers, False for the kernel alone on data in place
    seconds: Mapping[str, float]  # seconds of each of ``PHASES`` that took place
    # State of the device right after it, some of ``STATES``; empty for a CPU
    state: Mapping[str, float] = field(default_factory=dict)
    visit: int = 0  # counted from 0. Repetitions of one visit are of one process and share its state.
    # Index of the process of a later visit among the runs of its journal; None for the first visit, whose run is that
    # of the measurement
    run: int | None = None


@dataclass(frozen=True)
class Visit:
    """The state of a process in its visit of a contender."""

    number: int  # counted from 0
    # The fastest of trial runs: the order of exchanges and products, or the algorithm of a library. Empty if the
    # contender has no trials.
    schedule: str = ""
    # Share of the bytes of the kernel's arrays that are on huge pages of the host, on the rank with the fewest. NaN if
    # unknown, and for device memory.
    huge_pages: float = math.nan
    # CPU time of the node that was used or stolen from the warm-up on, all CPUs together; NaN if unknown
    busy_seconds: float = math.nan
    # The part of it that the hypervisor gave to other guests, on the node with the most
    steal_seconds: float = math.nan


@dataclass(frozen=True)
class Measurement:
    """Results of one contender (the variant, or the baseline beside it) at one point.

    ``resources`` are some of ``RESOURCES``, as on rank 0; empty for libraries and for a CPU. ``algorithm`` is the
    contender's, and ``transport`` the transport of its exchanges between ranks. ``visits`` are its visits in order.
    ``late_runs`` counts kernel runs that were repeated because the host queued them too late. ``clock`` is the SM clock
    while the kernel repeats [Hz], on the slowest rank; NaN if it was not taken.
    ``energy`` is ``ENERGY``, ``errors`` is ``ERRORS``, ``differences`` is ``DIFFERENCES`` and ``events`` is
    ``CPU_EVENTS``; empty where they were not measured.
    ``pick`` names the rung and the tile that were picked for the shape, as in ``Task.pick``.
    """

    point: Point
    contender: str
    baseline: bool
    verdict: Verdict
    flops: int
    bytes: int
    samples: tuple[Sample, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    algorithm: str = TEXTBOOK
    transport: str = ""
    visits: tuple[Visit, ...] = ()
    late_runs: int = 0
    energy: Mapping[str, float] = field(default_factory=dict)
    pick: str = ""
    clock: float = math.nan
    errors: Mapping[str, float] = field(default_factory=dict)
    differences: Mapping[str, float] = field(default_factory=dict)
    events: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """Profiler counters of one run of a point's kernel; not a time measurement."""

    point: Point
    verdict: Verdict  # verdict on the result of the profiled run
    kernel: str = ""  # name of the longest kernel of the run; empty for a failed check
    launches: int = 0  # number of kernels that the run launched
    counters: Mapping[str, float] = field(default_factory=dict)  # some of ``COUNTERS``, for that kernel


def timings_file(text: str | PathLike[str]) -> Path:
    """Read the path of a timings file; a folder, or the page of a report, stands for the file of its run."""
    path = Path(text).expanduser()
    if not path.exists() and path.name in (TIMINGS, "results"):
        raise HpcmmError(f"{text}: no such file; hpcmm run writes it")
    run = path.parent if path.name == PAGE else path
    inside = [run / TIMINGS, run / "results" / TIMINGS]
    if run.is_dir() and not any(each.exists() for each in inside):
        raise HpcmmError(f"{path}: no {TIMINGS} in this folder; allowed: a timings file, or the folder of a run")
    return next((each for each in inside if each.exists()), path)
