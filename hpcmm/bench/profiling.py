"""Nsight Compute: what it is asked, and what its answer says of each point.

It runs ``hpcmm.jobs.profiled``, which launches each point's kernels once, after a kernel ``spin`` of as many
blocks as the point's number: rows after such a mark belong to that point. Its times are no results: it
runs a kernel several times over, a few counters at a time, each time with its data restored.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm import store
from hpcmm.model import COUNTERS, HpcmmError, Point, Profile, Verdict

PROGRAM = "ncu"
# Where it lies if it is not on PATH: beside the CUDA toolkit, or in a folder of its own, the newest first.
PLACES = ("/usr/local/cuda/bin", *sorted(map(str, Path("/opt/nvidia/nsight-compute").glob("*")), reverse=True))
NOT_INSTALLED = f"Nsight Compute is not installed ({PROGRAM} is neither on PATH nor beside the CUDA toolkit)"
MARK = "spin"
DURATION = "gpu__time_duration.sum"
# Unit of ours -> what Nsight Compute calls it, and how many make one of ours. Unit 1 may be a count of anything.
UNITS = {
    "1": {"%": 100.0},
    "B s-1": {"byte/s": 1.0, "byte/second": 1.0},
    "Hz": {"hz": 1.0, "cycle/s": 1.0, "cycle/second": 1.0},
}
SCALED = re.compile(r"[KMGT](byte|hz|inst)", re.IGNORECASE)


class ProfilerError(HpcmmError):
    """An answer of Nsight Compute that cannot be used; the message says where it lies."""


@dataclass(frozen=True)
class Kernel:
    """One launch that was profiled: ``blocks`` in x, its time, and its ``COUNTERS``."""

    name: str
    blocks: int
    nanoseconds: float
    counters: Mapping[str, float]


def find() -> str | None:
    """Return the path of Nsight Compute's command line program, or None."""
    return shutil.which(PROGRAM, path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))


def version(program: str) -> str:
    """Return what the program calls its version."""
    answer = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"Version (\S+)", answer)
    return found[1] if found else ""


def command(program: str, log: Path, cold: bool, watched: Sequence[str | Path]) -> list[str]:
    """Return the command that profiles what ``watched`` launches while it lets a profiler look."""
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
    """What Nsight Compute itself gave as the reason why it cannot profile; empty if it gave none.

    That the program under it failed is no reason of its own.
    """
    reasons = re.findall(r"^==ERROR== (.*\S)", log, re.MULTILINE)
    return next((reason for reason in reasons if not reason.startswith("The application returned an error")), "")


def kernels(log: str) -> list[Kernel]:
    """Read the launches out of a log with a table in CSV: a row of names, one of units, one a launch.

    Raises
    ------
    ProfilerError
        If a counter comes in a unit that is not expected.
    """
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
    """What a value in Nsight Compute's unit is to be divided by to be in ours."""
    if unit in UNITS[ours]:
        return UNITS[ours][unit]
    if ours == "1" and not SCALED.match(unit):
        return 1.0
    raise ProfilerError(f"Nsight Compute gave {metric} in {unit!r}; expected one of: {', '.join(UNITS[ours])}")


def number(text: str) -> float:
    """``"36,969,742,529.60"`` as a number; what is none, as ``"n/a"``, is NaN.

    Examples
    --------
    >>> number("36,969,742,529.60"), number("n/a")
    (36969742529.6, nan)
    """
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def by_mark(launches: Iterable[Kernel]) -> dict[int, list[Kernel]]:
    """The launches after each mark, by the number that the mark carries."""
    found: dict[int, list[Kernel]] = {}
    after: list[Kernel] = []
    for kernel in launches:
        if kernel.name == MARK:
            after = found.setdefault(kernel.blocks, [])
        else:
            after.append(kernel)
    return found


def profiles(points: Sequence[Point], verdicts: Sequence[Verdict], launches: Iterable[Kernel]) -> list[Profile]:
    """What was counted for each point, numbered from 1; a point that failed its check has no counters.

    Raises
    ------
    ProfilerError
        If no kernel of a point that passed was seen.
    """
    marked, found = by_mark(launches), []
    for i, (point, verdict) in enumerate(zip(points, verdicts, strict=True), 1):
        if not verdict.passed:
            found.append(Profile(point, verdict))
        elif seen := marked.get(i):
            longest = max(seen, key=lambda kernel: kernel.nanoseconds)
            found.append(Profile(point, verdict, longest.name, len(seen), longest.counters))
        else:
            raise ProfilerError(f"Nsight Compute saw no kernel of {point.variant}, {point.dtype}, {point.shape}")
    return found


def profile(operation: str, points: Sequence[Point], cold: bool, watched: Sequence[str | Path], output: Path) -> str:
    """Have the points of one operation profiled into ``output``.

    Parameters
    ----------
    operation : str
    points : sequence of Point
    cold : bool
        Whether caches are emptied before a kernel.
    watched : sequence of str or Path
        The command that runs the points for the profiler; it is given one argument more, the file that
        it has to write its provenance and its verdicts into.
    output : Path
        HDF5 file; what Nsight Compute answered lies beside it with the suffix ``.csv``.

    Returns
    -------
    str
        Why nothing could be profiled here, which the file says too; empty if it was.

    Raises
    ------
    ProfilerError
        If the program under Nsight Compute fails, or if the answer cannot be used.
    """
    program = find()
    if program is None:
        store.write_profiles(output, operation, None, [], NOT_INSTALLED)
        return NOT_INSTALLED
    log = output.with_suffix(".csv")
    output.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "told.json")
        status = subprocess.run(command(program, log, cold, [*watched, told])).returncode
        answer = log.read_text() if log.exists() else ""
        if reason := refusal(answer):
            reason = f"Nsight Compute: {reason}"
            store.write_profiles(output, operation, None, [], reason)
            return reason
        if status != 0 or not told.exists():
            raise ProfilerError(f"profile of {operation}: {program} ended with status {status}; see above and {log}")
        report: dict[str, Any] = json.loads(told.read_text())
    verdicts = [Verdict(**verdict) for verdict in report["verdicts"]]
    run = report["provenance"] | {"nsight_compute": version(program)}
    try:
        store.write_profiles(output, operation, run, profiles(points, verdicts, kernels(answer)))
    except ProfilerError as error:
        raise ProfilerError(f"{log}: {error}") from error
    return ""
