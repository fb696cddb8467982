"""Speedup and efficiency over ranks, and predictions of the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import Columns, is_own, mapping, points, row_dicts, runs
from hpcmm.dtypes import DTYPES
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS, cost
from hpcmm.parallel.all_reduce import is_reduction


def base_columns() -> list[str]:
    """Return the columns with the size on one rank that a speedup is relative to."""
    return [f"base_{dimension}" for dimension in dimensions()]


def speedups(frame: pd.DataFrame) -> pd.DataFrame:
    """Return speedup and efficiency of each point on several ranks, and of the same label on one rank.

    Returns
    -------
    DataFrame
        The columns of ``measurements`` and

        - ``kind``: "strong" (same size on one rank), "weak" (same work per rank) or "memory-constrained" (same bytes
          per rank);
        - ``base_m``, ``base_n``, ``base_k``: the size on one rank;
        - ``speedup``: work per second of the kernel alone, divided by the highest on one rank at that size with the
          same ``arithmetic``, of any rung or baseline on that device; both are medians over all visits of a point;
        - ``efficiency``: ``speedup`` divided by ranks; ``efficiency_low`` and ``efficiency_high`` follow from the
          intervals of both times;
        - ``call_speedup``, ``call_efficiency`` and so on: the same end to end.
    """
    rows = frame[~frame["superseded"] & (frame["result"] == "PASS")]
    rows = rows[rows["seconds"].notna() | rows["call_seconds"].notna()]
    rows = rows.assign(work=_work(rows), own=is_own(rows))
    found = []
    for _, group in rows.groupby(["sweep", "operation", "device", "dtype", "arithmetic", "setting"], sort=False):
        one, more = group[group["ranks"] == 1], group[group["own"] & (group["ranks"] > 1)]
        for (ranks, *shape), points_there in more.groupby(["ranks", *dimensions()], sort=False):
            same_shape = (one[list(dimensions())] == shape).all(axis=1)
            same_work, same_bytes = (
                (one[amount] * ranks / points_there[amount].iloc[0]).between(0.98, 1.02) for amount in ("work", "bytes")
            )
            for kind, same in (
                ("strong", same_shape),
                ("weak", same_work),
                ("memory-constrained", same_bytes & ~same_work),
            ):
                base_rows = one[same]
                if not base_rows.empty:
                    fastest = [each for prefix in ("", "call_") for each in _fastest(base_rows, prefix + "pooled")]
                    alone = base_rows.index[base_rows["own"] & base_rows["label"].isin(points_there["label"])]
                    base_shape = base_rows[list(dimensions())].iloc[0]
                    found += [(row, kind, *base_shape, *fastest) for row in (*points_there.index, *alone)]
    ends = [prefix + end for prefix in ("", "call_") for end in ("fastest", "fastest_low", "fastest_high")]
    gains = pd.DataFrame(found, columns=["row", "kind", *base_columns(), *ends])
    rows = rows.loc[gains.pop("row")].reset_index(drop=True).assign(**gains[["kind", *base_columns()]])
    for prefix in ("", "call_"):
        speedup, low, high = (
            gains[f"{prefix}fastest{of_one}"] * rows["work"] / rows[f"{prefix}pooled_{of_more}"]
            for of_one, of_more in (("", "seconds"), ("_low", "high"), ("_high", "low"))
        )
        rows = rows.assign(**{prefix + "speedup": speedup, prefix + "efficiency": speedup / rows["ranks"]})
        ends = {prefix + "efficiency_low": low / rows["ranks"], prefix + "efficiency_high": high / rows["ranks"]}
        rows = rows.assign(**ends)
    keys = ["kind", "sweep", "operation", "device", "dtype", "setting", *dimensions(), "label", "ranks"]
    return rows.drop(columns=["work", "own"]).drop_duplicates(keys).reset_index(drop=True)


def _fastest(rows: pd.DataFrame, time: str) -> tuple[float, float, float]:
    """The least seconds for a unit of work, with the ends of their interval; NaN if none was timed."""
    seconds = rows[time + "_seconds"] / rows["work"]
    if seconds.isna().all():
        return np.nan, np.nan, np.nan
    row = rows.loc[seconds.idxmin()]
    return tuple(row[f"{time}_{end}"] / row["work"] for end in ("seconds", "low", "high"))


def _work(rows: pd.DataFrame) -> pd.Series:
    """Return the work of each row: operations or bytes, by the metric of its operation."""
    return rows["flops"].where(rows["operation"].map(lambda name: OPERATIONS[name].metric) == "flops", rows["bytes"])


MOVES = ("scatter", "broadcast", "upload", "download", "gather")
REACH = 8  # predictions go to this many times the measured ranks


def predictions(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Predict the points of each algorithm, and end-to-end times of ``TEXTBOOK``, with the cost models.

    The lines of a model are fitted to measurements of this file with the same variant and type. Local work and copies
    come from ``TEXTBOOK``, exchanges from the run of the point. An all-reduce comes from the reduction of the shortest
    vector less its local part. The largest problem is also predicted from the most ranks that it was measured on, for
    one rank to ``REACH`` times as many.

    Returns
    -------
    DataFrame
        From ``measurements``: ``sweep``, ``operation``, ``variant``, ``algorithm``, ``label``, ``place``, ``device``,
        ``m``, ``n``, ``k``, ``dtype``. Added: ``work``, operations or bytes; ``of``, "end to end" or "kernel alone";
        ``measured_ranks``; ``ranks``; ``predicted_seconds``; ``seconds``, measured, if ``ranks`` equals
        ``measured_ranks``. Points that a model cannot predict are left out.
    """
    frame = frame[frame["pinned"] != 0]  # pageable memory has other rates
    frame = frame[~frame["superseded"] & (frame["result"] == "PASS")]
    alike = ["operation", "dtype", "device", "machine"]
    comparable = dict(iter(frame.groupby(alike)))
    own = points(frame)
    others, at = own["algorithm"] != TEXTBOOK, [own[name] for name in ("sweep", "operation", "variant", "dtype")]
    compared = others.groupby(at).transform("any") & (own["ranks"].groupby(at).transform("max") > 1)
    own = own[others | compared]
    own = own.assign(work=_work(own))
    one = ["sweep", "operation", "variant", "algorithm", "label", "place", "device", "dtype"]
    # one rank exchanges nothing, so it cannot predict several
    last = own[own["ranks"] > 1].sort_values(["work", "ranks"]).drop_duplicates(one, keep="last").index
    exchanges = [mapping(run["provenance"].get("exchanges")) for run in runs(columns)]
    machines: dict[tuple, cost.Machine | None] = {}
    rows = []
    for row in row_dicts(own.assign(last=own.index.isin(last))):
        operation, algorithm = OPERATIONS[row["operation"]], ALGORITHMS[row["algorithm"]]
        if algorithm.predict is None:
            continue
        kind = algorithm.measures[0]
        lines = tuple(row[key] for key in ("operation", "variant", "dtype", "device", "machine", "ranks", "run"))
        lines += (algorithm.name,) if is_reduction(operation) else ()  # each has its own cost of combining
        if lines not in machines:
            machines[lines] = _machine(comparable[tuple(row[name] for name in alike)], row, exchanges[int(row["run"])])
        if machines[lines] is None:
            continue
        shape, itemsize = [int(row[d]) for d in dimensions() if row[d]], DTYPES[row["dtype"]].itemsize
        for ranks in sorted({row["ranks"], *(_predicted_ranks(row["ranks"]) if row["last"] else ())}):
            predicted = algorithm.predict(operation, shape, itemsize, ranks, machines[lines])
            measured = row["seconds" if kind == "kernel" else "call_seconds"] if ranks == row["ranks"] else np.nan
            named = {key: row[key] for key in (*one, *dimensions(), "work")} | {"measured_ranks": row["ranks"]}
            named |= {"of": "kernel alone" if kind == "kernel" else "end to end"}
            rows.append(named | {"ranks": ranks, "predicted_seconds": predicted, "seconds": measured})
    names = [*one, *dimensions(), "work", "of", "measured_ranks", "ranks", "predicted_seconds", "seconds"]
    return pd.DataFrame(rows, columns=names).dropna(subset="predicted_seconds").reset_index(drop=True)


def _predicted_ranks(measured: int) -> list[int]:
    """Return the powers of two up to ``REACH`` times the measured ranks."""
    return [2**power for power in range((REACH * measured).bit_length())]


def _machine(frame: pd.DataFrame, row: Mapping[str, Any], exchanges: Mapping[str, Any]) -> cost.Machine | None:
    """Fit the lines of the cost model for a point; None without measurements of ``TEXTBOOK``.

    ``frame`` has what passed with the operation, element type, device and machine of the point.
    """
    same = frame[frame["contender"] == row["variant"]]
    baselines = same[same["contender_algorithm"] == TEXTBOOK]
    products = baselines[baselines["seconds"].notna() & (baselines["ranks"] == row["ranks"])]
    calls = baselines[baselines["call_seconds"].notna() & (baselines["ranks"] == row["ranks"])]
    if not len(products):  # a batch timed end to end only: use the kernel phase
        products = calls.assign(seconds=calls["call_kernel"])
    if not len(products):
        return None
    largest, moves = [_local_work(each) for each in row_dicts(products)], {}
    for phase in MOVES:
        timed = calls[calls["call_" + phase].notna()]
        if len(timed):
            itemsize, ranks = DTYPES[row["dtype"]].itemsize, int(row["ranks"])
            sizes = [cost.moved(phase, shape, itemsize, ranks) for shape in timed[[*dimensions()]].to_numpy().tolist()]
            if any(sizes):  # one rank sends nothing
                moves[phase] = cost.fit(sizes, timed["call_" + phase])
    exchange = cost.fit(exchanges["bytes"], exchanges["seconds"]) if exchanges.get("bytes") else cost.Line(0.0, 0.0)
    local, doubling = cost.fit(largest, products["seconds"]), np.nan
    if is_reduction(OPERATIONS[row["operation"]]) and row["algorithm"] != TEXTBOOK and row["ranks"] > 1:
        combined = same[(same["ranks"] == row["ranks"]) & (same["contender_algorithm"] == row["algorithm"])]
        combined = combined[combined["seconds"].notna()]
        shortest = combined.loc[combined["n"].idxmin()]  # where the all-reduce dominates
        doubling = max(0.0, shortest["seconds"] - local(_local_work(shortest))) / log2(row["ranks"])
    return cost.Machine(local, exchange, moves, doubling)


def _local_work(row: Mapping[str, Any]) -> int:
    """Return the work of the largest share: operations of a product, or elements of a vector."""
    first, *others = (int(row[d]) for d in dimensions() if row[d])
    share = -(-first // int(row["ranks"]))
    return 2 * share * prod(others) if others else share
