"""Run Nsight Compute, and assign its counters to points.

It runs ``hpcmm.jobs.watched``, which launches the kernels of each point once. Before them it launches a marker kernel
``spin`` with as many blocks as the number of the point: rows after a marker belong to that point. Times under the
profiler are not used: it runs a kernel several times, with a few counters and restored data each time.
"""

import csv
import itertools
import json
import math
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm import store
from hpcmm.bench import tools
from hpcmm.experiment.fingerprint import digest
from hpcmm.model import HpcmmError, Verdict
from hpcmm.model.measurement import Point, Profile
from hpcmm.model.quantities import COUNTERS

PROGRAM = "ncu"
NOT_INSTALLED = tools.not_installed("Nsight Compute", PROGRAM)
MARK = "spin"
DURATION = "gpu__time_duration.sum"
# Our unit -> units of Nsight Compute, with the divisor that converts them. Unit 1 may be a count of anything.
UNITS = {
    "1": {"%": 100.0},
    "B s-1": {"byte/s": 1.0, "byte/second": 1.0},
    "Hz": {"hz": 1.0, "cycle/s": 1.0, "cycle/second": 1.0},
}
SCALED = re.compile(r"[KMGT](byte|hz|inst)", re.IGNORECASE)


class ProfilerError(HpcmmError):
    """Output of Nsight Compute that cannot be used; the message has its path."""


@dataclass(frozen=True)
class Kernel:
    """One launch that was profiled: ``blocks`` in x, its time, and its ``COUNTERS``."""

    name: str
    blocks: int
    nanoseconds: float
    counters: Mapping[str, float]


def version(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    match = re.search(r"Version (\S+)", answer)
    return match[1] if match else ""


def command(program: str, log: Path, cold: bool, watched: Sequence[str | Path]) -> list[str]:
    metrics = [DURATION, *(metric for _, _, metric in COUNTERS.values())]
    options = {
        "--page": "raw",
        "--print-units": "base",
        "--kernel-name-base": "function",
        "--profile-from-start": "off",
        "--clock-control": "none",  # the clocks of the measurements, not the lowest that is guaranteed
        "--cache-control": "all" if cold else "none",
        "--metrics": ",".join(metrics),
        "--log-file": str(log),
    }
    return [program, "--csv", "--force-overwrite", *itertools.chain(*options.items()), *map(str, watched)]


def refusal(log: str) -> str:
    """Return why Nsight Compute cannot profile, in its words; empty for a failure of the program itself."""
    reasons = re.findall(r"^==ERROR== (.*\S)", log, re.MULTILINE)
    return next((reason for reason in reasons if not reason.startswith("The application returned an error")), "")


def kernels(log: str) -> list[Kernel]:
    """Read the launches from a log with a CSV table: a row of names, a row of units, one row per launch."""
    table = csv.reader(line for line in log.splitlines() if line.startswith('"'))  # not ==PROF== and the like
    names, units = next(table, []), next(table, [])
    place = {name: i for i, name in enumerate(names)}
    counted = {}
    for name, (unit, _, metric) in COUNTERS.items():
        if metric in place:
            counted[name] = place[metric], divisor(metric, units[place[metric]], unit)
    return [
        Kernel(
            row[place["Kernel Name"]],
            int(re.findall(r"\d+", row[place["Grid Size"]])[0]),
            number(row[place[DURATION]]) if DURATION in place else math.nan,
            {name: number(row[i]) / parts for name, (i, parts) in counted.items()},
        )
        for row in table
    ]


def divisor(metric: str, unit: str, ours: str) -> float:
    if unit in UNITS[ours]:
        return UNITS[ours][unit]
    if ours == "1" and not SCALED.match(unit):
        return 1.0
    raise ProfilerError(f"Nsight Compute gave {metric} in {unit!r}; expected one of: {', '.join(UNITS[ours])}")


def number(text: str) -> float:
    """Convert a text such as ``"36,969,742,529.60"`` to a number; other texts, such as ``"n/a"``, to NaN.

    >>> number("36,969,742,529.60"), number("n/a")
    (36969742529.6, nan)
    """
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def profiles(points: Sequence[Point], verdicts: Sequence[Verdict], launches: Iterable[Kernel]) -> list[Profile]:
    """Return the counters of each point, numbered from 1; a point with a wrong result has none."""
    marked: dict[int, list[Kernel]] = {}  # the launches after each marker, by its number
    after: list[Kernel] = []
    for kernel in launches:
        if kernel.name == MARK:
            after = marked.setdefault(kernel.blocks, [])
        else:
            after.append(kernel)
    found = []
    for i, (point, verdict) in enumerate(zip(points, verdicts, strict=True), 1):
        if not verdict.passed:
            found.append(Profile(point, verdict))
        elif seen := marked.get(i):
            longest = max(seen, key=lambda kernel: kernel.nanoseconds)
            found.append(Profile(point, verdict, longest.name, len(seen), longest.counters))
        else:
            raise ProfilerError(f"Nsight Compute saw no kernel of {point.variant}, {point.dtype}, {point.shape}")
    return found


def profile(
    operation: str, parts: Mapping[str, Sequence[Point]], cold: bool, watched: Sequence[str | Path], output: Path
) -> str:
    """Profile the points of one operation into ``output``, in parts; return why nothing could be profiled.

    The names of the ``parts`` change when a part must be repeated; one that an earlier job finished is not repeated.
    ``watched`` is the command that runs the points for the profiler, without the part and the file for its provenance
    and verdicts. Raise ProfilerError if it fails, or if the output cannot be used.
    """
    program = tools.find(PROGRAM)
    reason = "" if program else NOT_INSTALLED
    for number, (name, points) in enumerate(parts.items(), 1):
        path = part_file(output, name)
        if not reason and store.source(path) != name:
            print(f"profile of {operation}: part {number} of {len(parts)}, {len(points)} points", flush=True)
            reason = profile_part(program, operation, points, cold, [*watched, "--part", name], path)
    source = digest(list(parts))
    if reason:
        store.write_profiles(output, operation, None, [], reason, source)
    else:
        store.write_groups(output, store.merged(finished(output, parts)), source=source)
    return reason


def part_file(output: Path, name: str) -> Path:
    return output.with_suffix("") / f"{name}.h5"


def finished(output: Path, names: Iterable[str]) -> list[store.Groups]:
    paths = {name: part_file(output, name) for name in names}
    return [store.read(path) for name, path in paths.items() if store.source(path) == name]


def profile_part(
    program: str, operation: str, points: Sequence[Point], cold: bool, watched: Sequence[str | Path], output: Path
) -> str:
    """Profile the points of one part; return why there is no ``output``, or nothing."""
    log = output.with_suffix(".csv")
    output.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.json")
        status = subprocess.run(command(program, log, cold, [*watched, record])).returncode
        answer = log.read_text() if log.exists() else ""
        if reason := refusal(answer):
            return f"Nsight Compute: {reason}"
        if status != 0 or not record.exists():
            raise ProfilerError(f"profile of {operation}: {program} ended with status {status}; see above and {log}")
        report: dict[str, Any] = json.loads(record.read_text())
    verdicts = [Verdict(**verdict) for verdict in report["verdicts"]]
    run = report["provenance"] | {"nsight_compute": version(program)}
    try:
        found = profiles(points, verdicts, kernels(answer))
        store.write_profiles(output, operation, run, found, source=output.stem)
    except ProfilerError as error:
        raise ProfilerError(f"{log}: {error}") from error
    return ""
