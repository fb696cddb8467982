"""Findings of a sweep: short sentences, each computed from its points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import visits
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.report import formats
from hpcmm.report.ratio import Ratio

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """A finding of a sweep."""

    text: str  # about the largest size, or all sizes
    device: str = ""  # the device that it is about; empty for all
    # By size, the text about that size alone; without sizes that have no text of their own
    at: Mapping[str, str] = field(default_factory=dict)


MOST_SIZES = 16  # sizes of a sweep that the switch of the page offers


def first_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the first element type, the fewest ranks and one setting, so that a sentence has one subject."""
    rows = first_type(rows)
    rows = rows[rows["ranks"] == rows["ranks"].min()]
    return rows[rows["setting"] == rows["setting"].iloc[0]]


def first_type(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the points of the first element type of their operation that was measured."""
    dtypes = (*OPERATIONS[rows["operation"].iloc[0]].dtypes, rows["dtype"].iloc[0])
    return rows[rows["dtype"] == next(dtype for dtype in dtypes if (rows["dtype"] == dtype).any())]


def timed_rungs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rungs that are right and were timed alone, not distributed by an algorithm."""
    rows = analysis.points(frame)
    timed = (rows["result"] == "PASS") & rows["seconds"].notna()
    return rows[timed & (rows["role"] == "rung") & (rows["algorithm"] == TEXTBOOK)]


def in_own_arithmetic(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the points in the arithmetic of their element type, if there are any."""
    plain = rows[rows["arithmetic"] == ""]
    return rows if plain.empty else plain


def on_accelerators(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the points on accelerators, if there are any."""
    accelerated = analysis.on_accelerator(rows)
    return rows[accelerated] if accelerated.any() else rows


def fastest(rows: pd.DataFrame) -> Row:
    """Return the fastest point; of several measurements of it, that with the most visits."""
    return analysis.row_dicts(rows.sort_values(["seconds", "visits"], ascending=[True, False]).head(1))[0]


def fastest_of(rows: pd.DataFrame, by: Sequence[str] = ("variant",)) -> list[dict[str, Any]]:
    """Return the fastest point of each group, in the order of the ladder."""
    return analysis.row_dicts(rows.loc[rows.groupby(list(by))["seconds"].idxmin()].sort_values("place", kind="stable"))


def listed(parts: Iterable[str]) -> str:
    """Join texts as ``"a, b and c"``."""
    *front, last = list(dict.fromkeys(parts))
    return f"{', '.join(front)} and {last}" if front else last


def failures(rows: pd.DataFrame) -> str:
    """Name the rungs that are wrong, their sizes, and the first wrong element."""
    failed = rows[rows["result"] == "FAIL"]
    texts = []
    for expected, part in failed.groupby("expected"):
        sizes = listed(formats.sizes(part))
        labels = listed(part.sort_values("place")["label"])
        first = part.iloc[0]
        where = f"First wrong element of {first['label']}: {first['where'].partition(': ')[0]}."
        why = ", as expected: without bounds checks the tile must divide the size" if expected else ""
        texts.append(f"FAIL at {sizes}: {labels}{why}. {where}")
    return " ".join(texts)


def disturbances(rows: pd.DataFrame) -> str:
    """Name the sizes whose visits had arrays on different pages, and the points with much steal."""
    texts = []
    pages = rows.groupby([*dimensions(), "dtype", "ranks"])[["huge_pages", "huge_pages_most"]]
    extremes = pages.agg({"huge_pages": "min", "huge_pages_most": "max"})
    apart = extremes[extremes["huge_pages_most"] - extremes["huge_pages"] > visits.NOISY]
    if not apart.empty:
        alike = apart.reset_index()
        low, high = formats.percent(apart["huge_pages"].min()), formats.percent(apart["huge_pages_most"].max())
        texts.append(
            f"Visits differ in the pages of their arrays at {listed(formats.sizes(alike))}: {low} to {high} of the "
            "bytes are on huge pages. Their times are not comparable."
        )
    stolen = rows[rows["steal"] > visits.NOISY]
    if not stolen.empty:
        worst = stolen.loc[stolen["steal"].idxmax()]
        texts.append(
            f"The hypervisor gave more than {formats.percent(visits.NOISY)} of the CPU time to other guests during "
            f"{len(stolen)} of {len(rows)} points, at most {formats.percent(worst['steal'])} ({worst['label']} at "
            f"{formats.size(worst)})."
        )
    return " ".join(texts)


def relative(row: Row) -> list[str]:
    """Give the ratios to the library and the tuned library, and the fraction of the limit, as far as they are known."""
    found = []
    for ratio, library in (("ratio", row["library"]), ("tuned_ratio", row["tuned_library"])):
        if math.isfinite(row[ratio]):
            found.append(Ratio.to_library(row, ratio).over(library, "95 % CI "))
    return [*found, *filter(None, [limited(row)])]


def limited(row: Row) -> str:
    """Give the fraction of the limit; empty if it is not known."""
    return (
        f"{formats.percent(row['fraction'])} of the limit ({row['ceiling']})" if math.isfinite(row["fraction"]) else ""
    )


def name_of(row: Row) -> str:
    """Name a rung, with its arithmetic if its element type has another: ``"tensor_core (three TF32 products)"``."""
    return row["rung"] + (f" ({row['arithmetic']})" if row["arithmetic"] else "")


def rate_ratio(one: Row, other: Row) -> Ratio:
    """Return the rate of ``one`` divided by that of ``other``; their work may differ."""
    names = ("seconds", "seconds_low", "seconds_high")
    return Ratio.of(*({name: row[name] / row["flops"] for name in names} for row in (one, other)))
