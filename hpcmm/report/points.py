"""Shared parts of the figures of a series: their columns, tooltips and tables of values."""

from __future__ import annotations

import pandas as pd

from hpcmm.analysis import Series
from hpcmm.report import formats
from hpcmm.report.vega import Spec, quantity, rounded

TUNED = "isValid(datum.tuned) ? format(datum.tuned, '.3r') + '×' : 'not measured'"
RATIO = "isValid(datum.ratio) ? format(datum.ratio, '.3r') + '×' : ''"
SECONDS = "isValid(datum.seconds) ? format(datum.seconds, '.3s') + 's' : ''"


def described(series: Series) -> str:
    """Return the text that every caption has: the element type, and the ranks if there are several."""
    return series.dtype + (f" on {formats.ranks(series.ranks)}" if series.ranks > 1 else "")


def columns_of(rows: pd.DataFrame, series: Series) -> dict[str, list]:
    """Return the columns that all figures of a series share."""
    unit = formats.rate_unit_of(series.points)
    column, scale = unit.column, unit.scale
    return {
        "label": list(rows["label"]),
        "device": list(rows["device"]),
        "n": [int(n) for n in rows["n"]],
        "size": formats.sizes(rows),
        "rate": rounded(rows[column] / scale),
        "low": rounded(rows[column + "_low"] / scale),
        "high": rounded(rows[column + "_high"] / scale),
        "seconds": rounded(rows["seconds"]),
        "ratio": rounded(rows["ratio"]),
        **({"tuned": rounded(rows["tuned_ratio"])} if _has_tuned(series) else {}),
        "baseline": [int(each) for each in rows["baseline"]],
        "library": [int(each != "rung") for each in rows["role"]],
        "fraction": rounded(rows["fraction"]),
        "ceiling": list(rows["ceiling"]),
    }


def _has_tuned(series: Series) -> bool:
    return bool(series.points["tuned_ratio"].notna().any())


def tooltips(unit: str, series: Series) -> list[Spec]:
    tuned = [{"field": "to_tuned", "title": "ratio to tuned library"}] if _has_tuned(series) else []
    return [
        {"field": "label", "title": "variant"},
        {"field": "size", "title": "size"},
        quantity("rate", title=unit, format=",.3r"),
        {"field": "interval", "title": "95 % interval"},
        {"field": "time", "title": "time"},
        {"field": "times", "title": "ratio to baseline"},
        *tuned,
        {"field": "part", "title": "of limit"},
    ]


def calculations(series: Series) -> list[Spec]:
    tuned = [{"calculate": TUNED, "as": "to_tuned"}] if _has_tuned(series) else []
    ends = "format(datum.low, ',.3r') + ' to ' + format(datum.high, ',.3r')"
    return [
        {"calculate": f"isValid(datum.low) ? {ends} : 'none'", "as": "interval"},
        {"calculate": SECONDS, "as": "time"},
        {"calculate": f"datum.baseline ? 'baseline' : {RATIO}", "as": "times"},
        *tuned,
        {"calculate": "isValid(datum.fraction) ? format(datum.fraction, '.0%') : 'unknown'", "as": "part"},
    ]


def titles_of(series: Series) -> dict[str, str]:
    unit = formats.rate_unit_of(series.points).name
    tuned = {"tuned": "Ratio to tuned library"} if _has_tuned(series) else {}
    limit = {"fraction": "Of limit"} if series.points["fraction"].notna().any() else {}
    return {
        **{"label": "Variant", "size": formats.size_title(series.points), "rate": unit, "low": "from", "high": "to"},
        **{"seconds": "Seconds", "ratio": "Ratio to baseline", **tuned, **limit},
    }
