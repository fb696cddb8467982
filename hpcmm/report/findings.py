"""Findings of a sweep: short sentences, each computed from its points."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import visits
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.report import formats
from hpcmm.report.ratio import LIBRARIES, Ratio, Row
from hpcmm.system.text import percent


@dataclass(frozen=True)
class Finding:
    """A finding of a sweep."""

    text: str
    device: str = ""  # the device that it is about; empty for all


def first_series(rows: Sequence[Row]) -> list[Row]:
    """Select the first element type, the fewest ranks and one setting, so that a sentence has one subject."""
    rows = on_fewest_ranks(first_type(rows))
    return [row for row in rows if row["setting"] == rows[0]["setting"]]


def first_type(rows: Sequence[Row]) -> list[Row]:
    """Select the points of the first element type of their operation that was measured."""
    dtypes = {row["dtype"] for row in rows}
    order = (*OPERATIONS[rows[0]["operation"]].dtypes, rows[0]["dtype"]) if rows else ()
    first = next((dtype for dtype in order if dtype in dtypes), "")
    return [row for row in rows if row["dtype"] == first]


def timed_rungs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rungs that are right and were timed alone, not distributed by an algorithm."""
    rows = analysis.points(frame)
    timed = (rows["result"] == "PASS") & rows["seconds"].notna()
    return rows[timed & (rows["role"] == "rung") & (rows["algorithm"] == TEXTBOOK)]


def in_own_arithmetic(rows: Sequence[Row]) -> Sequence[Row]:
    """Select the points in the arithmetic of their element type, if there are any."""
    return [row for row in rows if not row["arithmetic"]] or rows


def on_fewest_ranks(rows: Sequence[Row]) -> list[Row]:
    ranks = min((row["ranks"] for row in rows), default=0)
    return [row for row in rows if row["ranks"] == ranks]


def on_accelerators(rows: pd.DataFrame) -> pd.DataFrame:
    accelerated = analysis.on_accelerator(rows)
    return rows[accelerated] if accelerated.any() else rows


def fastest_first(rows: Iterable[Row]) -> list[Row]:
    """Sort points by their seconds of the kernel alone, those without at the end."""
    return sorted(rows, key=lambda row: row["seconds"] if row["seconds"] > 0 else math.inf)


def quickest(rows: Iterable[Row]) -> Row | None:
    """Return the point with the least seconds of the kernel alone, of several measurements that with the most visits.

    None without one.
    """
    timed = (row for row in rows if row["seconds"] > 0)
    return min(timed, key=lambda row: (row["seconds"], -row["visits"]), default=None)


def fastest_of(rows: Iterable[Row], by: str = "variant") -> list[Row]:
    """Return the fastest point of each value of a column, in the order of the ladder."""
    groups = analysis.grouped(rows, by).values()
    return sorted(filter(None, map(quickest, groups)), key=lambda row: row["place"])


def listed(parts: Iterable[str]) -> str:
    *front, last = list(dict.fromkeys(parts))
    return f"{', '.join(front)} and {last}" if front else last


def failures(rows: Sequence[Row]) -> str:
    """Name the rungs that are wrong, their sizes, and the first wrong element."""
    texts = []
    for expected in (False, True):
        failed = [row for row in rows if row["result"] == "FAIL" and row["expected"] == expected]
        if not failed:
            continue
        sizes = listed(map(formats.size, failed))
        labels = listed(row["label"] for row in sorted(failed, key=lambda row: row["place"]))
        where = f"First wrong element of {failed[0]['label']}: {failed[0]['where'].partition(': ')[0]}."
        why = ", as expected: without bounds checks the tile must divide the size" if expected else ""
        texts.append(f"FAIL at {sizes}: {labels}{why}. {where}")
    return " ".join(texts)


def disturbances(rows: Sequence[Row]) -> str:
    """Name the sizes whose visits had arrays on different pages, and the points with much steal."""
    texts = []
    known = (row for row in rows if not math.isnan(row["huge_pages"]))
    pages = analysis.grouped(known, *dimensions(), "dtype", "ranks")
    extremes = [
        (min(row["huge_pages"] for row in alike), max(row["huge_pages_most"] for row in alike), alike[0])
        for _, alike in sorted(pages.items())
    ]
    if apart := [each for each in extremes if each[1] - each[0] > visits.NOISY]:
        lows, highs, first = zip(*apart, strict=True)
        low, high, sizes = percent(min(lows)), percent(max(highs)), listed(map(formats.size, first))
        texts.append(
            f"Visits differ in the pages of their arrays at {sizes}: {low} to {high} of the bytes are on huge pages. "
            "Their times are not comparable."
        )
    if stolen := [row for row in rows if row["steal"] > visits.NOISY]:
        worst = max(stolen, key=lambda row: row["steal"])
        texts.append(
            f"The hypervisor gave more than {percent(visits.NOISY)} of the CPU time to other guests during "
            f"{len(stolen)} of {len(rows)} points, at most {percent(worst['steal'])} ({worst['label']} at "
            f"{formats.size(worst)})."
        )
    return " ".join(texts)


def relative(row: Row) -> list[str]:
    """Give the ratios to the library and the tuned library, and the fraction of the limit, as far as they are known."""
    known = ((ratio, row[library]) for ratio, library in LIBRARIES.items() if math.isfinite(row[ratio]))
    found = [Ratio.to_library(row, ratio).over(library, "95 % CI ") for ratio, library in known]
    if math.isfinite(row["fraction"]):
        found.append(f"{percent(row['fraction'])} of the limit ({row['ceiling']})")
    return found


def name_of(row: Row) -> str:
    """Name a rung, with its arithmetic if its element type has another: ``"tensor_core (three TF32 products)"``."""
    return row["rung"] + (f" ({row['arithmetic']})" if row["arithmetic"] else "")


def rate_ratio(one: Row, other: Row) -> Ratio:
    """Return the rate of ``one`` divided by that of ``other``; their work may differ."""
    names = ("seconds", "seconds_low", "seconds_high")
    return Ratio.of(*({name: row[name] / row["flops"] for name in names} for row in (one, other)))
