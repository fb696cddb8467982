"""The verdict of ``hpcmm bench`` on a kernel, from all its points. It is shown first, before pandas is imported."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hpcmm.backends.cpu import searches
from hpcmm.bench import on_host, sanitizing
from hpcmm.model import NotTested, Operation, Task, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.store import Groups

WRONG, UNTESTED = 1, 3  # exit statuses
FAULT = re.compile(r"cudaError(Assert|IllegalAddress|MisalignedAddress|LaunchFailure|IllegalInstruction)")


def result(kernel: str, where: str, points: int = 0, largest: Sequence[int] = (), error: float = 0) -> dict[str, Any]:
    """Return a verdict: ``where`` is the first mistake, and ``error`` the largest one over its bound."""
    verdict = {"kernel": kernel, "passed": not where, "points": points, "where": where, "note": ""}
    return verdict | {"largest": list(largest), "error_over_bound": error}


def verdict_of(operation: Operation, name: str, columns: Groups) -> dict[str, Any]:
    """Return the verdict on a kernel at all points of a file."""
    rows = columns["measurements"]
    own = [i for i, (of, contender) in enumerate(zip(rows["variant"], rows["contender"], strict=True))
           if of == contender == name]  # fmt: skip
    unmeasured = sorted(missing_points(name, columns), key=lambda why: not why.startswith(f"failed: {name} "))
    where = unmeasured[0].removeprefix("failed: ").removeprefix(f"{name} ") if unmeasured else ""
    where = where[max(0, where.find(NotTested.PREFIX)) :]  # at no point
    if wrong := [i for i in own if not rows["passed"][i]]:
        first = wrong[0]
        shape = "x".join(str(rows[dimension][first]) for dimension in operation.dimensions)
        scalars = "".join(f", {scalar} {rows[scalar][first]:g}" for scalar in operation.scalars)
        where = f"{shape} {rows['dtype'][first]}{scalars}: {rows['where'][first]}"
    shapes = [tuple(int(rows[dimension][i]) for dimension in operation.dimensions) for i in own]
    error = max((rows["error"][i] / rows["bound"][i] for i in own if rows["bound"][i] > 0), default=0)
    return result(name, where, len(own), max(shapes, key=math.prod, default=()), error)


def slowest_call(variants: Iterable[Variant], columns: Groups, launch_seconds: float) -> tuple[int, float] | None:
    """Return the size and the seconds of the largest call of the slowest kernel; None without times.

    The size is the product of its dimensions. The seconds of a launch on a GPU do not count.
    """
    rows, samples = columns["measurements"], columns["samples"]
    least = {each.name: launch_seconds if DEVICES[each.device].accelerator else 0.0 for each in variants}
    calls: dict[str, tuple[int, float]] = {}
    for at, seconds, end_to_end in zip(samples["measurement"], samples["kernel"], samples["call"], strict=True):
        name = rows["contender"][at]
        if name in least and not end_to_end:
            size = math.prod(int(rows[each][at]) for each in OPERATIONS[rows["operation"][at]].dimensions)
            calls[name] = max(calls.get(name, (0, 0.0)), (size, max(0.0, seconds - least[name])))
    return max((each for each in calls.values() if each[0]), key=lambda each: each[1] / each[0], default=None)


def searched(operation: Operation, variant: Variant, dtype: str) -> dict[str, Any]:
    """Search a kernel that passed for mistakes that results do not show; return what changes in its verdict."""
    if not variant.compiled:
        return {"note": "not searched for races"}
    if DEVICES[variant.device].accelerator:
        return {}  # after the first verdicts, because it takes seconds
    scalars = {**operation.scalars, **(variant.contract.scalars if variant.contract else {})}
    task = Task(operation, variant, (1,) * len(operation.dimensions), dtype, scalars)
    with ThreadPoolExecutor() as pool:
        races, overflow = pool.map(lambda search: search(task), (searches.races, searches.overflow))
    if races.found:
        return {"passed": False, "where": races.found}
    unsearched = races.not_made and f"not searched for races: {races.not_made}"
    return {"note": "; ".join(filter(None, (unsearched, overflow.found)))}


def raced(
    reports: Sequence[sanitizing.Report], hosted: on_host.Found | None, unhosted: str, source: str
) -> dict[str, Any]:
    """Return what sanitizers' ``reports`` and runs on the host, or why there are none, change in a verdict."""
    made, unmeasured = [], [] if reports else [sanitizing.NOT_INSTALLED]
    for report in reports:
        if not report.summary:
            unmeasured.append(f"{report.tool} {report.what}")
        elif not report.what:
            made.append(report.tool)
        elif report.tool == "racecheck" and sanitizing.ASYNCHRONOUS.search(source):
            unmeasured.append(f"racecheck reports one, which may be false with asynchronous copies: {report.what}")
        else:
            return {"passed": False, "where": f"{report.tool}: {report.what}, at {report.point}"}
    if hosted is None:
        unmeasured.append(unhosted)
    elif hosted.where:
        return {"passed": False, "where": f"on the host, {hosted.where}"}
    else:
        made.append(f"{hosted.runs} runs on the host")
    searched = f"no race found by {' and '.join(made)}" if made else "not searched for races"
    texts = [searched, *([] if made and not reports else unmeasured), hosted.note if hosted else ""]
    return {"races": "; ".join(filter(None, texts))}


def missing_points(name: str, columns: Groups) -> list[str]:
    rows = columns["omitted"]
    return [why for of, why in zip(rows["variant"], rows["reason"], strict=True) if of == name]


def lost_to_others(name: str, columns: Groups) -> bool:
    """Return whether points of a kernel are missing only because their job ended at a point of another kernel."""
    unmeasured = missing_points(name, columns)
    return bool(unmeasured) and not any(why.startswith(f"failed: {name} ") for why in unmeasured)


def status(results: Iterable[Mapping[str, Any]]) -> int:
    wrong = [result["where"] for result in results if not result["passed"]]
    return WRONG if not all(why.startswith(NotTested.PREFIX) for why in wrong) else UNTESTED if wrong else 0


def line_of(result: Mapping[str, Any]) -> str:
    if result["where"].startswith(NotTested.PREFIX):
        return f"{result['kernel']}: {result['where']}"
    if not result["passed"]:
        fault = FAULT.search(result["where"]) and "; on the host" not in result["where"]
        return f"{result['kernel']}: FAIL {result['where']}{'; --sanitize names the line' if fault else ''}"
    largest_error = f"{result['error_over_bound']:.2g} of the rounding bound"
    error = f"largest error {largest_error}" if result["error_over_bound"] else "exact"
    contract = f" ({result['contract']})" if result.get("contract") else ""
    note = result.get("note", "")
    largest = "x".join(map(str, result.get("largest", ())))
    points = f"{result['points']} points{largest and ' to '}{largest}{contract}"
    return f"{result['kernel']}: PASS at {points}, {error}{note and '; '}{note}"
