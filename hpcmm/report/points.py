"""Shared parts of the figures of a series: their columns, tooltips and tables of values."""

from collections.abc import Mapping, Sequence

from hpcmm.analysis import Series
from hpcmm.report import formats
from hpcmm.report.vega import Spec, quantity, rounded
from hpcmm.system.text import plural

TUNED = "isValid(datum.tuned) ? format(datum.tuned, '.3r') + '×' : 'not measured'"
RATIO = "isValid(datum.ratio) ? format(datum.ratio, '.3r') + '×' : ''"
SECONDS = "isValid(datum.seconds) ? format(datum.seconds, '.3s') + 's' : ''"


def described(series: Series) -> str:
    """Return the text that every caption has: the element type, and the ranks if there are several."""
    return series.dtype + (f" on {plural(series.ranks, 'rank')}" if series.ranks > 1 else "")


def columns_of(rows: Sequence[Mapping], series: Series) -> dict[str, list]:
    """Return the columns that all figures of a series share."""
    unit = formats.rate_unit_of(series.rows)

    def numbers(name: str, scale: float = 1.0) -> list[float | None]:
        return rounded([row[name] / scale for row in rows])

    columns = {name: [row[name] for row in rows] for name in ("label", "device", "n")}
    columns["size"] = list(map(formats.size, rows))
    for name, end in (("rate", ""), ("low", "_low"), ("high", "_high")):
        columns[name] = numbers(unit.column + end, unit.scale)
    columns |= {name: numbers(name) for name in ("seconds", "ratio")}
    columns |= {"tuned": numbers("tuned_ratio")} if _has_tuned(series) else {}
    columns["baseline"] = [int(row["baseline"]) for row in rows]
    columns["library"] = [int(row["role"] != "rung") for row in rows]
    return columns | {"fraction": numbers("fraction"), "ceiling": [row["ceiling"] for row in rows]}


def _has_tuned(series: Series) -> bool:
    return any(row["tuned_ratio"] > 0 for row in series.rows)


def tooltips(series: Series) -> list[Spec]:
    tuned = {"to_tuned": "ratio to tuned library"} if _has_tuned(series) else {}
    titles = {"interval": "95 % interval", "time": "time", "times": "ratio to baseline", **tuned, "part": "of limit"}
    first = [{"field": "label", "title": "variant"}, {"field": "size", "title": "size"}]
    others = [{"field": field, "title": title} for field, title in titles.items()]
    return [*first, quantity("rate", title=formats.rate_unit_of(series.rows).name, format=",.3r"), *others]


def calculations(series: Series) -> list[Spec]:
    ends = "format(datum.low, ',.3r') + ' to ' + format(datum.high, ',.3r')"
    names = {"interval": f"isValid(datum.low) ? {ends} : 'none'", "time": SECONDS}
    names |= {"times": f"datum.baseline ? 'baseline' : {RATIO}"} | ({"to_tuned": TUNED} if _has_tuned(series) else {})
    names |= {"part": "isValid(datum.fraction) ? format(datum.fraction, '.0%') : 'unknown'"}
    return [{"calculate": expression, "as": name} for name, expression in names.items()]


def titles_of(series: Series) -> dict[str, str]:
    unit = formats.rate_unit_of(series.rows).name
    tuned = {"tuned": "Ratio to tuned library"} if _has_tuned(series) else {}
    limit = {"fraction": "Of limit"} if any(row["fraction"] > 0 for row in series.rows) else {}
    return {
        **{"label": "Variant", "size": formats.size_title(series.rows), "rate": unit, "low": "from", "high": "to"},
        **{"seconds": "Seconds", "ratio": "Ratio to baseline", **tuned, **limit},
    }
