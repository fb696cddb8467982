"""Compare each node or GPU of a run with its peers, and with a reference.

All ranks do the same work at the same time, so their times are comparable.
"""

import collections
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis.detection import compared
from hpcmm.analysis.health import Check, Subject
from hpcmm.analysis.peers import Times
from hpcmm.model import HpcmmError, quantities
from hpcmm.model.devices import DEVICES
from hpcmm.parallel.collective_links import COLLECTIVES
from hpcmm.parallel.links import EXCHANGES, PATTERNS
from hpcmm.system.text import plural

PHASES = {"kernel": 0, "upload": 1, "download": 1}  # phase: whether it belongs to end-to-end calls
DETECT = 0.05  # slowdown that a check of accelerators must be able to show
PLACED = "request the nodes by name, or in one allocation"


class CheckError(HpcmmError):
    """A file that cannot be checked; the message says why."""


def check(
    columns: analysis.Columns,
    reference: Mapping[str, Any] | None = None,
    detect: float | None = None,
    further: Sequence[analysis.Columns] = (),
) -> Check:
    """Compare each device of a timings file with its peers, and with a ``reference`` from ``Check.reference``.

    ``detect`` is the slowdown that every sweep must be able to show, such as 0.05; by default ``DETECT`` for those of
    accelerators. ``further`` are files of the same devices, whose visits count as visits of the same measurements.

    Raise CheckError if the file does not name the node of each rank, or has several runs of different ranks.
    """
    subjects = _subjects(columns)
    measured, broken, missing = _times(columns, len(subjects))
    for more in further:
        others = {each.identity: each.rank for each in _subjects(more)}
        if set(others) != {each.identity for each in subjects}:
            raise CheckError(f"the files are of other devices; {PLACED}")
        times, faults, failed = _times(more, len(subjects))
        order = [others[each.identity] for each in subjects]
        measured = _with_visits(measured, times, order)
        broken, missing = [*broken, *faults], missing + failed
    if not measured and not broken:
        raise CheckError(f"no point has {len(subjects)} ranks")
    alone = [times for times in measured if not times.together]
    wanted = {times.sweep: detect or DETECT for times in alone if detect is not None or times.accelerated}
    return dataclasses.replace(compared(subjects, measured, broken, reference, wanted), missing=missing)


def _with_visits(measured: Sequence[Times], more: Sequence[Times], order: Sequence[int]) -> list[Times]:
    """Add the visits of further times, with ranks in another order, to the measurements of the same names."""
    found = {times.name: times for times in measured}
    for times in more:
        logs = times.logs[order]
        if before := found.get(times.name):
            logs = np.hstack([before.logs, logs])
        found[times.name] = dataclasses.replace(times, logs=logs, scatter=() if before else times.scatter)
    return list(found.values())


def _subjects(columns: analysis.Columns) -> tuple[Subject, ...]:
    """Return the devices of the ranks; all runs with the most ranks must have the same."""
    ranks = pd.DataFrame(dict(columns["ranks"])).drop_duplicates(["run", "rank"])
    if not len(columns["measurements"]["variant"]):
        raise CheckError("nothing was measured; the errors of the jobs are above or in the logs")
    if ranks.empty:
        raise CheckError("the timings file does not name the node of each rank; measure again with this version")
    size = ranks.groupby("run")["rank"].transform("count")
    ranks = ranks[size == size.max()]
    found = dict.fromkeys(tuple(zip(part["node"], part["device"], strict=True)) for _, part in ranks.groupby("run"))
    nodes = {tuple(node for node, _ in each) for each in found}
    if len(nodes) > 1:
        raise CheckError(f"the jobs of this run were on different nodes; {PLACED}")
    (placed,) = nodes
    uuids = [next(filter(None, (each[rank][1] for each in found)), "") for rank in range(len(placed))]
    return tuple(
        Subject(rank, node, placed[:rank].count(node), uuid)
        for rank, (node, uuid) in enumerate(zip(placed, uuids, strict=True))
    )


def _times(columns: analysis.Columns, ranks: int) -> tuple[list[Times], list[str], int]:
    """Return the measurements with as many ranks, lines about faults, and the number of points of jobs that failed.

    A job that ended early leaves points without a result, and others with fewer visits than planned.
    """
    frame = analysis.points(analysis.measurements(columns))
    frame = frame[frame["ranks"] == ranks]
    samples = pd.DataFrame(dict(columns["samples"]))
    unmeasured = pd.DataFrame(dict(columns["omitted"]))
    failed = unmeasured[(unmeasured["ranks"] == ranks) & (unmeasured["points"] > 0)]
    plans = [analysis.mapping(run.get("config")) for run in analysis.runs(columns)]
    measured, short = [], collections.Counter()
    causes: dict[str, dict[str, str]] = collections.defaultdict(dict)  # one cause may end many batches
    for row in analysis.row_dicts(failed):
        cause = re.sub(r"^(failed: )\S+: ", r"\1", row["reason"])
        causes[cause][f"{row['sweep']}: {row['variant']}"] = row["reason"]
    said = {cause: cause if len(names) > 1 else "".join(names.values()) for cause, names in causes.items()}
    broken = [f"{'; '.join(names)}: {said[cause]}" for cause, names in causes.items()]
    for row in analysis.row_dicts(frame.assign(at=frame.index)):
        name = _name(row)
        if row["result"] != "PASS":
            where = row["where"].removeprefix(row["result"])
            broken.append(f"{name}: {row['result']} {where}" if where == row["where"] else f"{name}: {row['where']}")
            continue
        own = samples[samples["measurement"] == row["at"]]
        visits, planned = own["visit"].nunique(), analysis.mapping(plans[row["run"]].get("measuring"))
        # a point with a repetition above the limit gets no further visit
        longest = own[list(quantities.PHASES)].max(axis=None)
        if visits < planned.get("visits", 1) and longest <= planned.get("max_seconds", 0):
            short[row["sweep"], f"{visits} of {planned['visits']}"] += 1
        for phase, call in PHASES.items():
            part = own[own["call"] == call].dropna(subset=phase)
            table = np.log(part.pivot_table(index="rank", columns="visit", values=phase, aggfunc="median"))
            table = table.dropna(axis=1)  # a visit in which a rank has no time
            if len(table) == ranks and table.size:
                of_phase = "" if phase == "kernel" else f", {phase}"
                sources, together = _exchange(row["algorithm"], ranks)
                scatter = part.groupby("rank")[phase].agg(lambda seconds: np.log(seconds).var())
                scatter = tuple(scatter) if table.shape[1] == 1 else ()
                accelerated = DEVICES[row["device"]].accelerator
                # products in other types may reach the limit of the power
                hot = phase == "kernel" and row["operation"] == "matmul" and row["dtype"] != "float32"
                kind = _name(row, sized=False) + of_phase, accelerated and not hot, accelerated
                measured.append(Times(name + of_phase, table.to_numpy(float), sources, together, scatter, *kind))
    broken += [f"{sweep}: {plural(n, 'point')} with {visits} visits" for (sweep, visits), n in short.items()]
    return measured, broken, int(failed["points"].sum())


def _name(row: Mapping[str, Any], sized: bool = True) -> str:
    shape = "x".join(str(row[name]) for name in ("m", "n", "k") if row[name])
    return " ".join([f"{row['sweep']}:", row["label"], *([shape] if sized else []), row["dtype"]])


def _exchange(algorithm: str, ranks: int) -> tuple[tuple[int, ...], bool]:
    """Return the rank that each rank receives from, if it is one; and whether each receives from all."""
    if ranks == 1 or algorithm not in EXCHANGES:
        return (), ranks > 1 and algorithm in COLLECTIVES
    pieces = PATTERNS[EXCHANGES[algorithm][0]][0]
    received = [pieces([(0, ranks)] * ranks, rank) for rank in range(ranks)]
    one = all(len(each) == 1 for each in received)
    return (tuple(each[0][0] for each in received) if one else ()), not one
