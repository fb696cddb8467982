"""Format numbers, times, sizes and conditions: three significant digits, and a fitting unit."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcmm import analysis
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.system.text import RAISED, number, percent, plural

GIGA = 1e9
TERA = 1e12
UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))

SUPERSCRIPTS = str.maketrans("0123456789", RAISED)


def rate_column(operation: str) -> str:
    return f"{OPERATIONS[operation].metric}_per_second"


@dataclass(frozen=True)
class RateUnit:
    """The column of a rate, the unit in which it is printed, and how many of the column's units that is."""

    column: str
    name: str
    scale: float


def rate_unit(operation: str, dtype: str, largest: float = 0.0) -> RateUnit:
    """Return the unit for rates up to ``largest`` per second: TFLOP/s from 1,000 GFLOP/s on, but never TB/s."""
    column, name = rate_column(operation), OPERATIONS[operation].rate_unit(dtype)
    if OPERATIONS[operation].metric == "flops" and largest >= TERA:
        return RateUnit(column, f"T{name}", TERA)
    return RateUnit(column, f"G{name}", GIGA)


def rate_unit_of(rows: Sequence[Mapping]) -> RateUnit:
    """Return the unit of all rates of one operation and type, which a table or figure shows together."""
    operation, dtype = rows[0]["operation"], rows[0]["dtype"]
    column = rate_column(operation)
    rates = (row.get(name, 0.0) for row in rows for name in (column, f"call_{column}"))
    return rate_unit(operation, dtype, max((each for each in rates if each > 0), default=0.0))


def rate_text(row: Mapping, prefix: str = "") -> str:
    """Format a rate with its own unit, ``"54.2 TFLOP/s"``."""
    column = prefix + rate_column(row["operation"])
    unit = rate_unit(row["operation"], row["dtype"], row[column])
    return f"{number(row[column] / unit.scale)} {unit.name}"


def beyond(value: float, limit: float) -> str:
    """Format a percentage above a limit; with a third digit if it would read as the limit otherwise."""
    return percent(value) if percent(value) != percent(limit) else f"{100 * value:.3g} %"


def billions(value: float) -> str:
    """Format as ``number``, in units of 10⁹."""
    return number(value / 1e9)


def duration(seconds: float) -> str:
    """Format seconds as ``number`` with a fitting unit, ``"8.05 ms"``; empty for NaN."""
    if not math.isfinite(seconds):
        return ""
    unit, scale = unit_of(seconds)
    return f"{number(seconds * scale)} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """Return the unit that fits a time, and the number of these units in a second."""
    return next((unit, scale) for unit, scale in UNITS if seconds * scale >= 0.9995 or unit == "ns")


def times(ratio: float) -> str:
    """Format a ratio as a factor, ``"0.85×"``; empty for NaN."""
    return f"{number(ratio)}×" if math.isfinite(ratio) else ""


def rate(row: Mapping, prefix: str = "", unit: RateUnit | None = None) -> str:
    """Format a rate in a unit, by default 10⁹ per second; one below 1 TFLOP/s among TFLOP/s with its own."""
    unit = unit or rate_unit(row["operation"], row["dtype"])
    column = prefix + unit.column
    if unit.scale == TERA and row[column] < TERA:
        return rate_text(row, prefix)
    return number(row[column] / unit.scale)


def ends(row: Mapping, name: str, form: Callable[[float], str]) -> str:
    """Format the 95 % interval of a number, ``"0.971 to 0.976"``; empty if there is none."""
    low, high = row[name + "_low"], row[name + "_high"]
    return f"{form(low)} to {form(high)}" if math.isfinite(low) else ""


def device(name: str) -> str:
    return DEVICES[name].title


def size(row: Mapping) -> str:
    """Format a size: ``"4096"`` for a square product, ``"128 × 64 × 32"`` for another, ``"2²²"`` for a vector."""
    shape = [int(row[name]) for name in dimensions() if row[name] > 0] or [0]
    if len(shape) == 1 and shape[0] >= 1024 and shape[0].bit_count() == 1:
        return "2" + str(shape[0].bit_length() - 1).translate(SUPERSCRIPTS)
    return str(shape[0]) if len(set(shape)) == 1 else " × ".join(map(str, shape))


def size_is_one_number(rows: Iterable[Mapping]) -> bool:
    """Return whether all shapes are vectors or square products."""
    return all(len(set(shape) - {0}) <= 1 for shape in analysis.by_size(rows))


def at(row: Mapping) -> str:
    """Format the size of a point, with its ranks if there are several: ``"4096 on 2 ranks"``."""
    return size(row) + (f" on {plural(row['ranks'], 'rank')}" if row["ranks"] > 1 else "")


def size_title(rows: Sequence[Mapping]) -> str:
    """Return the heading for a column of their sizes."""
    if size_is_one_number(rows):
        return "n"
    return " × ".join(name for name in dimensions() if any(row[name] > 0 for row in rows))


def machines(names: Iterable[str]) -> dict[str, str]:
    """Return a short name of each kind of machine, from what distinguishes it: without its CPU, if the rest does.

    >>> machines(["CPU, 16 cores, GPU", "CPU, 32 cores, GPU"])["CPU, 32 cores, GPU"]
    'machine with 32 cores'
    >>> machines(["A, 2 cores", "B, 32 cores, GPU", "B, 64 cores, GPU"])["B, 64 cores, GPU"]
    'machine with 64 cores, GPU'
    """
    parts = {name: name.split(", ") for name in names}
    common = set.intersection(*map(set, parts.values())) if parts else set()

    def own(name: str) -> list[str]:
        found = [part for part in parts[name] if part not in common]
        cpu, *rest = found or [""]
        alike = sum(set(rest) <= set(each) for each in parts.values())
        return rest if rest and cpu == parts[name][0] and alike == 1 else found

    return {name: f"machine with {', '.join(each)}" if (each := own(name)) else name for name in parts}


def conditions(series: analysis.Series) -> str:
    """Format what all points of a series share: ``"float32, 2 ranks, alpha 1.5, beta 0.5"``."""
    return ", ".join(filter(None, (series.dtype, plural(series.ranks, "rank"), series.setting)))


def base(row: Mapping) -> str:
    """Name the baseline of a scaling efficiency; ``row`` is from ``scaling.speedups``."""
    if row["base_ranks"] > 1:
        slowest = f"{percent(row['efficiency_of_slowest'])} of the slowest"
        return f"relative to the mean of one rank on each of {row['base_ranks']:.0f} devices at once ({slowest})"
    return "relative to one rank alone" + (f", on {row['base_card'][:12]}" if row["base_card"] else "")


def at_sizes(rows: Sequence[Mapping], most: int) -> tuple[Sequence[Mapping], str]:
    """Return the rows at no more than ``most`` sizes, and a text about the sizes that were dropped, if any."""
    known = analysis.by_size(rows)
    if len(known) <= most:
        return rows, ""
    some = [[*known][round((i + 1) * len(known) / most) - 1] for i in range(most)]  # evenly spaced, with the last one
    kept = [row for row in rows if analysis.values(row, dimensions()) in some]
    names = f" ({', '.join(size(known[shape][0]) for shape in some)})" if len(some) <= 8 else ""
    return kept, f", at {len(some)} of {len(known)} sizes{names}"
