"""Merge the groups of timings files, and select rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hpcmm.model import contender_name
from hpcmm.store.schema import GROUPS, IDENTITY, INDEXES, MEASUREMENTS, UNMEASURED, Groups, as_column, empty, row_count


def merged(
    parts: Iterable[Groups], unmeasured: Sequence[Mapping[str, Any]] = (), unprofiled: Sequence[Mapping[str, Any]] = ()
) -> Groups:
    """Merge the groups of several files; each measurement keeps its own run.

    The rows ``unmeasured`` are added to the group ``omitted``; those without ``points`` are not measured by a plan. A
    row of ``omitted`` is dropped if another file measured that variant, sweep and number of ranks and omits none of it.
    A row of ``unprofiled`` is dropped if there is a profile of the operation. Of several reasons, that of a file with
    profiles of other operations is kept.
    """
    parts = list(map(_whole, parts))
    rows = [row for part in parts for row in unmeasured_rows(part)]
    measured = set().union(*(measured_variants(part) - {row[:3] for row in unmeasured_rows(part)} for part in parts))
    rows = [row for row in rows if row[:3] not in measured]  # sweep, variant, ranks
    rows += [tuple(({"points": 0} | dict(row))[name] for name in UNMEASURED) for row in unmeasured]
    rows = list(dict.fromkeys(rows))
    groups = distinct(joined(parts))
    lost = zip(*rows, strict=True) if rows else [()] * len(UNMEASURED)
    groups["omitted"] = {name: as_column(of, UNMEASURED[name]) for name, of in zip(UNMEASURED, lost, strict=True)}
    reasons = {}
    for part in sorted(parts, key=lambda part: row_count(part["profiles"]) > 0):  # the last reason stays
        reasons |= zip(part["unprofiled"]["operation"], part["unprofiled"]["reason"], strict=True)
    reasons |= {row["operation"]: row["reason"] for row in unprofiled}
    for operation in groups["profiles"]["operation"]:
        reasons.pop(operation, None)
    left = {"operation": list(reasons), "reason": list(reasons.values())}
    groups["unprofiled"] = {name: as_column(of, GROUPS["unprofiled"][name]) for name, of in left.items()}
    return groups


def unmeasured_rows(groups: Groups) -> list[tuple]:
    """Return the rows of ``omitted``: sweep, variant with algorithm, ranks, reason, points."""
    return list(zip(*(groups["omitted"][name] for name in UNMEASURED), strict=True))


def measured_variants(groups: Groups) -> set[tuple]:
    columns = (groups["measurements"][name] for name in ("sweep", "variant", "algorithm", "ranks"))
    return {(sweep, contender_name(*of), ranks) for sweep, *of, ranks in zip(*columns, strict=True)}


def _whole(part: Groups) -> Groups:
    return {group: empty(group) for group in GROUPS} | part


def joined(parts: Sequence[Groups]) -> Groups:
    parts = list(map(_whole, parts))
    counts = {group: [row_count(part[group]) for part in parts] for group in GROUPS}

    def column(group: str, name: str) -> np.ndarray:
        given = [part[group].get(name) for part in parts]
        dimension = name not in GROUPS[group] and any(x is not None and x.dtype.kind == "i" for x in given)
        none = 0 if dimension else np.nan
        values = [np.full(count, none) if x is None else x for x, count in zip(given, counts[group], strict=True)]
        if name in INDEXES:
            before = np.cumsum([0, *counts[INDEXES[name]]])
            values = [x + shift for x, shift in zip(values, before, strict=False)]
        return np.concatenate([as_column([], GROUPS[group].get(name)), *values])

    return {
        group: {name: column(group, name) for name in dict.fromkeys([*GROUPS[group], *sorted(names)])}
        for group, names in ((group, {name for part in parts for name in part[group]}) for group in GROUPS)
    }


def select(groups: Groups, rows: np.ndarray) -> Groups:
    """Select measurements by row, in this order, with their samples and visits, and the runs and ranks still used."""
    place = np.full(row_count(groups["measurements"]), -1)
    place[rows] = np.arange(len(rows))
    chosen = groups | {"measurements": {name: values[rows] for name, values in groups["measurements"].items()}}
    for group in ("samples", "visits"):
        places = place[groups[group]["measurement"]]
        taken = np.flatnonzero(places >= 0)
        taken = taken[np.argsort(places[taken], kind="stable")]
        chosen[group] = {name: values[taken] for name, values in groups[group].items()} | {"measurement": places[taken]}
    lists = [columns["run"] for group, columns in chosen.items() if "run" in columns and group != "ranks"]
    used = np.unique(np.concatenate(lists))
    there = np.isin(chosen["ranks"]["run"], used)
    chosen["ranks"] = {name: values[there] for name, values in chosen["ranks"].items()}
    chosen["runs"] = {name: values[used] for name, values in groups["runs"].items()}
    return _with_runs(chosen, lambda run: np.searchsorted(used, run))


def distinct(groups: Groups) -> Groups:
    """Remove duplicate measurements of the same run and point, and duplicate rows of other groups."""
    same = _first(groups["runs"].values())
    groups = _with_runs(groups, lambda run: same[run])
    for group in ("profiles", "ranks"):
        kept = np.unique(_first(groups[group].values()))
        groups[group] = {name: values[kept] for name, values in groups[group].items()}
    measurements = groups["measurements"]
    names = [name for name in measurements if name in ("run", *IDENTITY) or name not in MEASUREMENTS]
    return select(groups, np.unique(_first(measurements[name] for name in names)))


def _first(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Return for each row the first one with the same values, as texts: NaN is not equal to NaN."""
    first: dict[tuple, int] = {}
    rows = (tuple(map(str, row)) for row in zip(*columns, strict=True))
    return np.array([first.setdefault(row, i) for i, row in enumerate(rows)], int)


def _with_runs(groups: Groups, change: Callable[[np.ndarray], np.ndarray]) -> Groups:
    return {
        group: columns | {"run": change(columns["run"])} if "run" in columns else columns
        for group, columns in groups.items()
    }
