"""From an experiment's config to batches of points, with their expected times and fingerprints.

The plan depends on the planning machine in one way only: batches that cannot run there are not measured, each with a
reason.
"""

import dataclasses
import functools
import importlib.util
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm import kernels
from hpcmm.experiment import extensions, fingerprint
from hpcmm.experiment.config import Sweep, read_config, validated
from hpcmm.experiment.durations import STARTUP_SECONDS, input_seconds, point_seconds
from hpcmm.experiment.extensions import SOURCES
from hpcmm.experiment.fingerprint import digest, of_point, of_profile
from hpcmm.model import TEXTBOOK, Variant, contender_name
from hpcmm.model.devices import ANY, DEVICES, Machine
from hpcmm.model.measurement import Batch, Job, Measuring, Point
from hpcmm.operations import OPERATIONS, tables, task_of
from hpcmm.parallel import algorithm_of
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.preflight import GIB, largest_need
from hpcmm.system import files
from hpcmm.system.reader import ConfigError, naming

# Points that one run of Nsight Compute profiles. A job that is killed loses the run in progress only.
PROFILE_POINTS = 16
MOST_HOURS = 720  # upper limit of a point's expected time


@dataclass(frozen=True)
class Plan:
    """All batches of an experiment, and the reasons why some are not measured, by the batch's name."""

    batches: tuple[Batch, ...]
    unmeasured: Mapping[str, str]
    measuring: Measuring
    share_gpu: bool
    transport: str
    config: Mapping[str, Any]
    files: list[str] = dataclasses.field(default_factory=list)  # of the config, relative to the folder of the results
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the config, on the command line

    @property
    def to_measure(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.name not in self.unmeasured]

    @functools.cached_property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs: batches on one device with one number of ranks share one, up to ``job_minutes``.

        The start of a process takes longer than many a batch. Batches with an optional package have jobs of their own.
        """
        groups: dict[tuple, list[list[Batch]]] = {}
        for batch in self.to_measure:
            packages = frozenset(algorithm.package for algorithm in algorithms_of_batch(batch))
            jobs = groups.setdefault((batch.device, batch.ranks, packages), [[]])
            if jobs[-1] and Job((*jobs[-1], batch)).seconds > 60 * self.config["job_minutes"]:
                jobs.append([])
            jobs[-1].append(batch)
        return tuple(Job(tuple(members)) for jobs in groups.values() for members in jobs)

    def batch(self, name: str) -> Batch:
        for batch in self.batches:
            if batch.name == name:
                return batch
        raise ConfigError(f"no batch {name!r}; planned are: {', '.join(b.name for b in self.batches)}")

    @property
    def fingerprint(self) -> str:
        return digest_of(dataclasses.asdict(self))

    def rows_unmeasured(self) -> list[dict[str, Any]]:
        """Return the rows of the group ``omitted`` of the timings file."""
        rows = dict.fromkeys(
            (batch.sweep, contender_name(point.variant, point.algorithm), batch.ranks, self.unmeasured[batch.name])
            for batch in self.batches
            if batch.name in self.unmeasured
            for point in batch.points
        )
        return [dict(zip(("sweep", "variant", "ranks", "reason"), row, strict=True)) for row in rows]

    @property
    def profiled(self) -> dict[str, tuple[Point, ...]]:
        """The points to profile with Nsight Compute, by operation; empty unless the config has ``profile: true``.

        These are the floating-point points of the sweep with the most GPU variants, on one GPU at its largest size, and
        those of the next sweeps for variants that it lacks; of products also those with integers. Of operations with
        the same kernels, the first is profiled.
        """
        found = {}
        for operation in OPERATIONS if self.config.get("profile") else ():
            if any(OPERATIONS[operation].kernels == OPERATIONS[other].kernels for other in found):
                continue
            sweeps: dict[str, list[Point]] = {}
            for batch in self.to_measure:
                if (batch.operation, batch.ranks) == (operation, 1) and DEVICES[batch.device].accelerator:
                    any_type = OPERATIONS[operation].metric == "flops"
                    sweeps.setdefault(batch.sweep, []).extend(
                        point
                        for point in batch.points
                        if point.algorithm == TEXTBOOK and (any_type or not task_of(point).element.is_integer)
                    )
            chosen: list[Point] = []
            for points in sorted(sweeps.values(), key=lambda points: -len({point.variant for point in points})):
                others = {point.variant for point in points} - {point.variant for point in chosen}
                own = [point for point in points if point.variant in others]
                largest = max((point.shape for point in own), key=math.prod, default=None)
                chosen += [point for point in own if point.shape == largest]
            if chosen:
                # points of one dtype and shape share their inputs
                found[operation] = tuple(sorted(chosen, key=lambda point: (point.dtype, point.shape)))
        return found

    def profile_parts(self, operation: str) -> dict[str, tuple[Point, ...]]:
        """Return the points to profile in parts, by a digest that changes when a part must be repeated."""
        profiled = self.profiled
        if operation not in profiled:
            raise ConfigError(f"no profile of {operation!r} is planned; planned are: {', '.join(profiled) or 'none'}")
        points = profiled[operation]
        parts = [points[first : first + PROFILE_POINTS] for first in range(0, len(points), PROFILE_POINTS)]
        return {of_profile(part, self.measuring.cache, self.measuring.seed): part for part in parts}

    def unprofiled(self) -> list[dict[str, str]]:
        """Return the rows of the group ``unprofiled`` of the timings file: operations without a profile, and why."""
        profiled = self.profiled

        def why(operation: str) -> str:
            if not self.config.get("profile"):
                return "not requested: run make profile, or set --config profile=true"
            if shared := [each for each in profiled if OPERATIONS[each].kernels == OPERATIONS[operation].kernels]:
                return f"same kernels as {shared[0]}"
            batches = [each for each in self.batches if each.operation == operation and each.name in self.unmeasured]
            reasons = [self.unmeasured[each.name] for each in batches if DEVICES[each.device].accelerator]
            return [*reasons, "no GPU variant is measured in floating point on one rank"][0]

        operations = dict.fromkeys(batch.operation for batch in self.batches)
        return [{"operation": each, "reason": why(each)} for each in operations if each not in profiled]

    def edited(self, batches: Sequence[Batch], since: float) -> dict[str, list[Path]]:
        """Return the batches whose fingerprints have changed, with the sources edited ``since`` a time, last first."""
        package, recorded = fingerprint.PACKAGE, fingerprint.PACKAGE / fingerprint.RECORDED
        sources = [path for path in package.rglob("*") if path.suffix != ".pyc" and path != recorded]
        sources += tables.of_user("").parent.glob("*.yaml")
        own = [Path(kernels.file_of(name)[0]) for name in extensions.named(self.config)]
        sources += [*own, *(header for path in own if path.suffix in SOURCES for header in kernels.headers(path))]
        times = {path: path.stat().st_ctime for path in sources if path.is_file()}
        files = sorted((path for path in times if times[path] > since), key=times.get, reverse=True)
        found = {}
        for batch in batches if files else ():  # fingerprints take a second
            how = dataclasses.replace(self.measuring, accuracy=batch.accuracy, same_bits=batch.same_bits)
            now = (of_point(point, how, self.transport, self.share_gpu) for point in batch.points)
            if tuple(now) != batch.fingerprints:
                found[batch.name] = files
        return found

    def outdated(self, results: Path) -> str:
        """Return what was edited since this plan, the config or the sources of batches; empty if nothing was."""
        paths = [results.parent / each for each in self.files]
        if paths and all(path.exists() for path in paths):
            config = read_config(*paths, changes=self.changes)
            extensions.load(extensions.named(config))
            with naming(paths[-1]):
                if digest(validated(config)[0]) != digest(self.config):
                    return str(paths[-1])
        batches = self.edited(self.to_measure, since=0)
        return f"the source of {', '.join([*batches][:3])}{' and others' * (len(batches) > 3)}" if batches else ""

    def write(self, path: Path) -> None:
        entry = dataclasses.asdict(self) | {"fingerprint": self.fingerprint}
        try:
            with files.replacing(path) as temporary:
                temporary.write_text(json.dumps(entry, indent=1) + "\n")
        except FileExistsError as error:
            raise ConfigError(f"{error.filename}: not a folder; remove it, or write elsewhere") from error
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


@dataclass(frozen=True)
class Turn:
    """A part of a job: the visits that one Snakemake job makes of its batches.

    ``visits`` is the number of visits of each point after this turn, and ``after`` the name of the turn before it, in a
    list that is empty for the first one.
    """

    job: Job
    visits: int
    after: list[str]


def turns(job: Job, measuring: Measuring) -> dict[str, Turn]:
    """Return the turns of a job by their names; the last one has the name of the job."""
    names = [*(f"{job.name}.{number}" for number in range(1, measuring.jobs)), job.name]
    numbers = [measuring.job_of(visit) for visit in range(measuring.visits)]
    after = [sum(each <= number for each in numbers) for number in range(len(names))]
    return {name: Turn(job, after[number], names[:number][-1:]) for number, name in enumerate(names)}


def digest_of(entry: Mapping[str, Any]) -> str:
    """Return the digest of the fields of a plan, whatever file and command line its config is from."""
    return digest({name: value for name, value in entry.items() if name not in ("files", "changes")})


def read(path: Path) -> Plan:
    """Read a plan that ``Plan.write`` wrote; raise ConfigError if it is missing, damaged, or of another version."""
    try:
        entry = json.loads(files.text_of(path))
        fingerprint = entry["fingerprint"]
        del entry["fingerprint"]
        if fingerprint != digest_of(entry):
            raise ValueError("not as it was written")
        return from_json(entry)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; a run writes it when it starts") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{path}: not a plan of this version of hpcmm; start the run again") from error


def from_json(entry: dict[str, Any]) -> Plan:
    extensions.load(extensions.named(entry["config"]))
    for batch in entry["batches"]:
        batch |= {name: tuple(batch[name]) for name in ("fingerprints", "predicted")}
        batch["points"] = tuple(Point(**point | {"shape": tuple(point["shape"])}) for point in batch["points"])
    entry["batches"] = tuple(Batch(**batch) for batch in entry["batches"])
    return Plan(**entry | {"measuring": Measuring(**entry["measuring"])})


def make(config: Mapping[str, Any], machine: Machine = ANY, **origin: Any) -> Plan:
    """Plan the experiment of a config, by default for a cluster; raise ConfigError with all problems.

    ``origin`` has the fields ``files`` and ``changes`` of a plan.
    """
    fingerprint.forget()
    extensions.load(extensions.named(config))  # before the config is validated: they add to the allowed names
    config, sweeps = validated(config)
    batches: list[Batch] = []
    problems: list[str] = []
    for name, sweep in sweeps.items():
        try:
            own = list(sweep_batches(name, sweep, config))
            batches += own
            problems += too_long(sweep.place, own)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    unmeasured = {batch.name: why for batch in batches if (why := reason_to_leave_out(batch, config, machine))}
    if not set(unmeasured) < {batch.name for batch in batches}:
        reasons = "; ".join(sorted(set(unmeasured.values()))) or "no sweep has a size at this scale"
        raise ConfigError(f"nothing is left to measure: {reasons}")
    given = {key: config[key] for key in ("share_gpu", "transport")}
    return Plan(tuple(batches), unmeasured, Measuring(**config["measuring"]), config=config, **given, **origin)


def largest_bytes(job: Job) -> int:
    return max(task_of(point).bytes for point in job.points)


def reason_to_leave_out(batch: Batch, config: Mapping[str, Any], machine: Machine) -> str:
    """Return the reason why a batch is not measured; empty if it is.

    The key ``backends`` selects the devices; ``machine`` determines which batches can run. More CPU ranks than cores
    can run, but share cores: only ``auto`` leaves them out.
    """
    backends = config["backends"]
    if backends not in ("auto", batch.device):
        return f"the config has backends: {backends}"
    if machine.missing.get(batch.device):
        return machine.missing[batch.device]
    count = machine.count.get(batch.device, batch.ranks)
    accelerator = DEVICES[batch.device].accelerator
    if accelerator and batch.ranks > count and not config["share_gpu"]:
        return f"{batch.ranks} ranks need a GPU each and this machine has {count} (share_gpu: false)"
    if not accelerator and batch.ranks > count and backends == "auto":
        return (
            f"{batch.ranks} ranks need a core each and this machine has {count} "
            f"(backends: {batch.device} measures it anyway)"
        )
    for algorithm in algorithms_of_batch(batch):
        if algorithm.package and importlib.util.find_spec(algorithm.package) is None:
            return f"{algorithm.package} is not installed (extra {algorithm.name})"
    return ""


def algorithms_of_batch(batch: Batch) -> list[Algorithm]:
    operation = OPERATIONS[batch.operation]
    return [algorithm_of(operation, name) for name in dict.fromkeys(point.algorithm for point in batch.points)]


def too_large(planned: Plan, machine: Machine) -> dict[Point, str]:
    """Return the points that do not fit into a machine's memory, as jobs will find, each with a reason."""
    found = {}
    for batch in planned.to_measure if machine.memory else ():
        for point in batch.points:
            algorithm = algorithm_of(OPERATIONS[batch.operation], point.algorithm)
            in_host_memory = not DEVICES[batch.device].accelerator
            task = dataclasses.replace(task_of(point), multiprocessors=machine.multiprocessors)
            needs = largest_need(algorithm, task, batch.ranks, in_host_memory)
            for device, need in (("cpu", needs[0]), (batch.device, needs[1])):
                has = machine.memory.get(device, need)
                if need > has:
                    memory = f"{DEVICES[device].title} memory"
                    found[point] = f"needs {need / GIB:.3g} GiB of {memory}, this machine has {has / GIB:.3g}"
    return found


def too_long(place: str, batches: Sequence[Batch]) -> list[str]:
    """Return the problem of a sweep whose longest point may exceed ``MOST_HOURS``, or nothing."""
    points = [each for batch in batches for each in zip(batch.predicted, batch.points, strict=True)]
    seconds, point = max(points, key=lambda each: each[0], default=(0.0, None))
    if seconds <= 3600 * MOST_HOURS:
        return []
    return [
        f"{place}: {point.name} may take {seconds / 3600:,.0f} h; allowed: at most {MOST_HOURS} h a point; "
        "use a smaller size, or leave out this variant"
    ]


def sweep_batches(name: str, sweep: Sweep, config: Mapping[str, Any]) -> Iterator[Batch]:
    """Plan a sweep: one batch per device and number of ranks, or several if one would take too long."""
    operation, entry = sweep.operation, sweep.entry
    passes = {key: entry.get(key, False) for key in ("accuracy", "same_bits")}
    measuring = Measuring(**config["measuring"], **passes)
    shapes = dict.fromkeys(itertools.chain.from_iterable(sweep.shapes.values()))
    problems = itertools.product(shapes, sweep.dtypes, dict.fromkeys([*entry.get("pinned", []), True]))
    order = {problem: i for i, problem in enumerate(problems)}
    devices = dict.fromkeys(variant.device for variant in sweep.variants)
    named = {variant.name for variant in sweep.variants}
    # a library over ranks has a product of its own: naming the library is enough
    own = {name for algorithm in sweep.algorithms if algorithm.provider for name in algorithm.variants} - named
    variants = [*sweep.variants, *map(operation.variant, sorted(own))]
    packages = sorted({algorithm.package for algorithm in sweep.algorithms})  # an optional package has its own jobs
    for device, ranks in itertools.product(devices, entry.get("ranks", [1])):
        parts: list[list[tuple[Point, float]]] = []
        for package in packages:
            points = [
                point
                for variant in variants
                if variant.device == device
                for algorithm in sweep.algorithms
                if algorithm.package == package
                and algorithm.takes(variant)
                and (variant.name in named or algorithm.provider)
                for point in variant_points(sweep, variant, algorithm, ranks)
            ]
            points.sort(key=lambda point: order[problem_of(point)])
            parts += split(points, measuring, 60 * config["job_minutes"])
        for number, part in enumerate(parts, 1):
            members, predicted = zip(*part, strict=True)
            given = measuring, config["transport"], config["share_gpu"]
            fingerprints = tuple(of_point(point, *given) for point in members)
            place = name, operation.name, device, ranks, number
            bound = measuring.visits * STARTUP_SECONDS + sum(predicted)
            yield Batch(*place, members, fingerprints, predicted, bound, digest(fingerprints), **passes)


def variant_points(sweep: Sweep, variant: Variant, algorithm: Algorithm, ranks: int) -> list[Point]:
    """Return a variant's points on a number of ranks: all shapes, dtypes, tiles and kinds of host memory."""
    place, entry, operation = sweep.place, sweep.entry, sweep.operation
    able = operation.dtypes_of(variant)
    own = [dtype for dtype in sweep.dtypes if dtype in able and algorithm.takes_type(dtype)]
    tiles = [tile for tile in entry.get("tiles", variant.tiles[-1:]) if tile in variant.tiles] if variant.tiles else [0]
    copies = DEVICES[variant.device].accelerator and algorithm.name == TEXTBOOK
    points = [
        Point(
            *(operation.name, variant.name, shape, dtype, ranks),
            *(operation.scalars_of(dtype, sweep.scalars), algorithm.name, tile, pinned),
        )
        for shape, dtype, tile, pinned in itertools.product(
            sweep.shapes[variant.device], own, tiles, entry.get("pinned", [None]) if copies else [None]
        )
    ]
    if variant.capacity:
        points = [point for point in points if point.shape[0] <= variant.capacity]
    for point in points if variant.contract else ():
        sizes = dict(zip(operation.dimensions, point.shape, strict=True))
        if why := variant.contract.refuses(sizes, point.scalars):
            raise ConfigError(f"{place}: {variant.name} {why}; leave out {'x'.join(map(str, point.shape))}")
    if variant.exact and not entry.get("allow_fail", False):
        divisible = [point for point in points if point.divides_into_tiles]
        if "variants" in entry and divisible != points:
            point = next(point for point in points if point not in divisible)
            raise ConfigError(
                f"{place}: {point.variant} needs sizes that its tile divides on each rank; {point.tile} does not "
                f"divide {'x'.join(map(str, point.shape))} on {ranks} ranks; leave this size out, or set "
                "allow_fail: true to see it FAIL"
            )
        points = divisible
    return points


def problem_of(point: Point) -> tuple:
    """Return the properties of a point that determine its inputs."""
    return point.shape, point.dtype, point.page_locked


def split(points: Sequence[Point], measuring: Measuring, longest: float) -> Iterator[list[tuple[Point, float]]]:
    """Divide points, with their seconds, into parts of at most ``longest``; problems stay whole if they can."""
    part: list[tuple[Point, float]] = []
    total = startup = measuring.visits * STARTUP_SECONDS
    for _, group in itertools.groupby(points, problem_of):
        members = list(group)
        drawing = measuring.visits * input_seconds(members[0])
        times = [point_seconds(point, measuring) for point in members]
        whole = drawing + sum(times)
        for i, (point, seconds) in enumerate(zip(members, times, strict=True)):
            if i == 0:
                seconds += drawing
            undivided = i == 0 and startup + whole <= longest
            if part and total + (whole if undivided else seconds) > longest:
                yield part
                part, total = [], startup
                seconds += drawing * (i > 0)
            part.append((point, seconds))
            total += seconds
    if part:
        yield part
