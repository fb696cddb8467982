"""Sustained products over time, and the counters of errors before and after them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hpcmm.analysis.tidy import Columns
from hpcmm.model.quantities import ERROR_COUNTERS

PARTS = 3  # of the time; they are compared between devices like visits


def newest(columns: Columns, group: str) -> pd.DataFrame:
    """Return the rows of a group that belong to its last run."""
    rows = pd.DataFrame(dict(columns[group]))
    return rows[rows["run"] == rows["run"].max()].reset_index(drop=True)


def intervals(columns: Columns) -> pd.DataFrame:
    """Return the intervals of the newest job with sustained products, each with ``flops_per_second``.

    ``power`` follows from the energy counter where it is not read itself. ``part`` is the part of the time, from 0 to
    ``PARTS`` - 1, of the rank that ended first; -1 after it.
    """
    rows = newest(columns, "sustained")
    rows["flops_per_second"] = rows["flops"] * rows["products"] / rows["busy"]
    steps = rows.groupby("rank")[["energy", "seconds"]].diff()
    rows["power"] = rows["power"].fillna(steps["energy"] / steps["seconds"])
    end = rows.groupby("rank")["seconds"].max().min()
    part = np.minimum(PARTS * rows["seconds"] // end, PARTS - 1)
    rows["part"] = part.where(rows["seconds"] <= end, -1).astype(int)
    return rows


def times(rows: pd.DataFrame, ranks: int) -> dict[str, np.ndarray]:
    """Return the seconds of a product on each rank (rows) in each part of the time (columns), if all have them."""
    found = {}
    seconds = rows.assign(each=rows["busy"] / rows["products"])
    for (dtype, n), own in seconds[seconds["part"] >= 0].groupby(["dtype", "n"]):
        table = own.pivot_table(index="rank", columns="part", values="each", aggfunc="median")
        if table.shape == (ranks, PARTS) and not table.isna().any(axis=None):
            found[f"sustained: product {n} {dtype}"] = table.to_numpy(float)
    return found


def errors(columns: Columns) -> pd.DataFrame:
    """Return the counters of errors of the newest job: rank, counter, title, before, after, and whether it grew."""
    rows = newest(columns, "errors")
    rows["title"] = [ERROR_COUNTERS[name][0] for name in rows["counter"]]
    return rows.assign(grew=rows["after"] > rows["before"])


def faults(rows: pd.DataFrame, counted: pd.DataFrame, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the faults of the devices, and notes about counters that could not be read.

    ``rows`` are from ``intervals``, ``counted`` from ``errors``, ``names`` are those of the ranks.
    """
    broken, notes = [], []
    for (rank, dtype), own in rows.groupby(["rank", "dtype"]):
        if wrong := int(own["wrong"].sum()):
            first = own.loc[own["wrong"] > 0, "seconds"].min()
            broken.append(
                f"sustained: {names[rank]}: {wrong} of {own['products'].sum()} products in {dtype} are wrong, "
                f"the first within {first:.0f} s"
            )
    if len(rows):
        broken += [f"sustained: {name}: no product" for rank, name in enumerate(names) if rank not in set(rows["rank"])]
    for rank, counter, title, before, after in zip(
        *(counted.loc[counted["grew"], name] for name in ("rank", "counter", "title", "before", "after")), strict=True
    ):
        text = f"{names[rank]}: {title} grew from {before:.0f} to {after:.0f}"
        (broken if ERROR_COUNTERS[counter][1] else notes).append(text)
    unread = counted[counted["before"].isna()]
    for rank, own in unread.groupby("rank"):
        which = "no counter of errors is readable" if len(own) == len(ERROR_COUNTERS) else ""
        notes.append(f"{names[rank]}: {which or 'not readable: ' + ', '.join(own['title'])}")
    if (counted["after"].isna() & counted["before"].notna()).any():
        notes.append("the sustained products were ended early, without reading the counters of errors again")
    return broken, notes
