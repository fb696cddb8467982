"""How a reader sees numbers, times, sizes and conditions: a few significant digits, and the unit that suits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.devices import DEVICES
from hpcmm.operations import OPERATIONS, dimensions

# By an operation's metric: the column of its rate, and the unit in which it is printed, a billion of the column's
RATES = {"flops": ("flops_per_second", "GFLOP/s"), "bytes": ("bytes_per_second", "GB/s")}
UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))
RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
SUPERSCRIPTS = str.maketrans("0123456789", RAISED)


def rate_of(operation: str) -> tuple[str, str]:
    """Return the column of an operation's rate, and the unit in which it is printed."""
    return RATES[OPERATIONS[operation].metric]


def number(value: float) -> str:
    """Three significant digits, ``"51,200"`` or ``"0.0123"``; nothing for NaN."""
    if not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        return f"{value:.2e}"
    value = float(f"{value:.2e}")
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def billions(value: float) -> str:
    """As ``number``, in billions."""
    return number(value / 1e9)


def whole(count: float) -> str:
    """A whole number, ``"8,192"``; nothing for NaN."""
    return f"{count:,.0f}" if math.isfinite(count) else ""


def amount(size: float) -> str:
    """Bytes in the binary unit that suits them, ``"48 KiB"``."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} B"


def duration(seconds: float) -> str:
    """Three significant digits with the unit that suits them, ``"8.05 ms"``."""
    if not math.isfinite(seconds):
        return ""
    unit, scale = unit_of(seconds)
    return f"{number(seconds * scale)} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit that suits a time, and how many of it a second has."""
    return next((unit, scale) for unit, scale in UNITS if seconds * scale >= 0.9995 or unit == "ns")


def times(ratio: float) -> str:
    """A ratio as a factor, ``"0.85×"``."""
    return f"{number(ratio)}×" if math.isfinite(ratio) else ""


def percent(share: float) -> str:
    """A share, ``"68 %"`` or ``"0.42 %"``; nothing for NaN."""
    if not math.isfinite(share):
        return ""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{number(100 * share)} %"


def rate(row: Mapping, prefix: str = "") -> float:
    """Billions of the operation's own count per second."""
    return row[prefix + rate_of(row["operation"])[0]] / 1e9


def ends(row: Mapping, name: str, form: Callable[[float], str]) -> str:
    """The 95 % interval of a number, ``"0.971 to 0.976"``; nothing where it has none."""
    low, high = row[name + "_low"], row[name + "_high"]
    return f"{form(low)} to {form(high)}" if math.isfinite(low) else ""


def device(name: str) -> str:
    return DEVICES[name].title


def size(row: Mapping) -> str:
    """``"4096"`` for a square product, ``"128 × 64 × 32"`` for another, ``"2²²"`` for a vector."""
    shape = [int(row[d]) for d in dimensions() if row[d] > 0] or [0]
    if len(shape) == 1 and shape[0] >= 1024 and shape[0].bit_count() == 1:
        return "2" + str(shape[0].bit_length() - 1).translate(SUPERSCRIPTS)
    return str(shape[0]) if len(set(shape)) == 1 else " × ".join(map(str, shape))


def size_is_one_number(points: pd.DataFrame) -> bool:
    """Whether all shapes are vectors or square products."""
    shapes = points[list(dimensions())]
    return bool((shapes.eq(shapes.max(axis=1), axis=0) | (shapes == 0)).all(axis=None))


def size_title(points: pd.DataFrame) -> str:
    """What stands above their sizes."""
    return "n" if size_is_one_number(points) else " × ".join(name for name in dimensions() if (points[name] > 0).any())


def conditions(series: Series) -> str:
    """What all points of a series share: ``"float32, 2 ranks, alpha 1.5, beta 0.5"``."""
    ranks = f"{series.ranks} rank" + ("s" if series.ranks != 1 else "")
    return ", ".join(filter(None, (series.dtype, ranks, series.setting)))


def spread(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many of the rows, evenly over them and always with the last."""
    if len(rows) <= most:
        return rows
    return rows.iloc[[round((i + 1) * len(rows) / most) - 1 for i in range(most)]]


def at_sizes(rows: pd.DataFrame, most: int) -> tuple[pd.DataFrame, str]:
    """The rows at some of their sizes, and which these are if there are more."""
    sizes = rows[list(dimensions())].drop_duplicates()
    some = spread(sizes, most)
    if len(some) == len(sizes):
        return rows, ""
    kept = rows[pd.MultiIndex.from_frame(rows[list(dimensions())]).isin(pd.MultiIndex.from_frame(some))]
    names = f" ({', '.join(size(row) for row in analysis.row_dicts(some))})" if len(some) <= 8 else ""
    return kept, f", at {len(some)} of {len(sizes)} sizes{names}; the CSV file has all"
