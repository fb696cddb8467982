"""Scaling over ranks, and the predictions of the cost model."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import links
from hpcmm.analysis.scaling import base_columns
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS
from hpcmm.report import formats, vega
from hpcmm.report.chapters.chapter import Answer, Experiment, chapter
from hpcmm.report.chapters.ladder import ladders
from hpcmm.report.findings import fastest_of, first_series, quickest
from hpcmm.report.markup import Cell, Table, words
from hpcmm.report.ratio import Ratio
from hpcmm.report.tables import Column, Row, columns_of, of_size, table, text
from hpcmm.system.text import percent, plural


def scalings(frame: pd.DataFrame, height: int = 300) -> Iterator[vega.Figure]:
    """Draw efficiency over ranks of one sweep, for each kind of scaling, device and element type, at the largest size.

    Of each arithmetic it shows the two labels that are fastest on the most ranks by the kernel alone, and end to end.
    """
    for (kind, device, dtype, setting), rows in frame.groupby(["kind", "device", "dtype", "setting"], sort=False):
        work = OPERATIONS[rows["operation"].iloc[0]].metric
        last = rows[rows["ranks"] == rows["ranks"].max()]
        at = last.loc[last[work].idxmax()]
        rows = rows[(rows[base_columns()] == at[base_columns()]).all(axis=1)]
        if rows["ranks"].nunique() < 3:  # its table shows more than two points
            continue
        alone = rows["algorithm"] == TEXTBOOK  # its kernel exchanges nothing, so it is not comparable with the others
        if not alone.all():
            rows = rows.assign(**{name: rows[name].mask(alone) for name in ("speedup", "efficiency")})
        last = rows[rows["ranks"] == at["ranks"]]
        best: set[str] = set()
        for (_, alike), prefix in itertools.product(last.groupby("arithmetic"), ("", "call_")):
            best |= set(alike.dropna(subset=[prefix + "speedup"]).nsmallest(2, prefix + "seconds")["label"])
        if not best:  # not timed in the same way on one rank
            continue
        what = ", ".join(filter(None, (dtype, setting)))
        shown = " of the fastest variants" if rows["label"].nunique() > len(best) else ""
        where = f"{shown} on the {formats.device(device)}, {what}"
        at_once = " of all devices at once" if (at["base_ranks"] > 1) else ""
        base = f"the fastest on one rank{at_once} in the same arithmetic"
        caption = f"{kind.capitalize()} scaling{where}, relative to {base}"
        figure = _scaling(analysis.row_dicts(rows[rows["label"].isin(best)]), caption, height)
        yield replace(figure, name=f"{kind}-{device}-{dtype}")


def _scaling(rows: Sequence[Row], caption: str, height: int) -> vega.Figure:
    shown = {"series": "Variant", "size": "Size", "of": "Timed", "ranks": "Ranks"}
    shown |= {"efficiency": "Efficiency", "speedup": "Speedup"}
    points = []
    for row in sorted(rows, key=lambda row: (row["place"], row["ranks"])):
        for prefix, what in (("", "kernel alone"), ("call_", "end to end")):
            if math.isfinite(row[prefix + "efficiency"]):
                point = {"series": row["label"], "size": formats.size(row), "of": what, "ranks": int(row["ranks"])}
                efficiency, speedup = vega.rounded([row[f"{prefix}efficiency"], row[f"{prefix}speedup"]], 5)
                points.append(point | {"efficiency": efficiency, "speedup": speedup})
    columns = vega.transposed(points)
    scale = {"type": "log", "base": 2, "nice": False, "padding": 12}
    ticks = {"values": sorted(set(columns["ranks"])), "format": "d"}
    x = vega.quantity("ranks", title="ranks", axis=ticks, scale=scale)
    y = vega.quantity("efficiency", title="efficiency", axis={"format": ".0%"})
    color, shape, _ = vega.styled(rows, "series")
    dashes = {what: dash for what, dash in (("kernel alone", [1, 0]), ("end to end", [4, 3])) if what in columns["of"]}
    dash = vega.category("of", legend={"title": None}, scale={"domain": list(dashes), "range": list(dashes.values())})
    tooltip = [{"field": field, "title": shown[field].lower()} for field in ("series", "size", "of", "ranks")]
    tooltip += [vega.quantity("efficiency", format=".1%"), vega.quantity("speedup", format=".3r")]
    layers = [vega.AT_ONE, *vega.curves(x, y, color, shape, dash, tooltip)]
    caption = f"{caption}, up to {max(columns['ranks'])} ranks"
    return vega.Figure("", caption, columns, vega.layered(layers, height), shown, rows[0]["dtype"], rows[0]["device"])


CONTRADICTING = 4  # measured ranks from which predictions of more ranks are shown


def scaling_table(rows: Sequence[Row]) -> Table:
    """Make the table of speedup and efficiency over ranks of one sweep; ``rows`` are from ``scaling.speedups``."""
    by = ["kind", *base_columns(), "device", "place", "dtype", "setting", "ranks", *dimensions()]
    lines = sorted(rows, key=lambda row: [row[name] for name in by])
    sizes = ([row[base] for base in base_columns()] for row in lines)
    bases = [dict(zip(dimensions(), size, strict=True)) | {"line": row} for size, row in zip(sizes, lines, strict=True)]
    kept, which = formats.at_sizes(bases, 3)
    some = [each["line"] for each in kept]
    named = ["label", *(name for name in ("dtype", "setting") if len({row[name] for row in some}) > 1)]
    columns: dict[str, Column] = {
        "Scaling": text("kind"),
        formats.size_title(some): of_size,
        "Variant": lambda row: words(", ".join(filter(None, [*(row[name] for name in named), row["arithmetic"]]))),
        **columns_of("scaling"),
    }
    return table(f"Scaling over ranks{which}", some, columns, leading=3)


def prediction_table(rows: Sequence[Row]) -> Table:
    """Make the table of predicted and measured times of the largest problem, from ``scaling.predictions``."""
    rows = [row for row in rows if row["measured_ranks"] >= CONTRADICTING or row["seconds"] > 0]
    most: dict[tuple, float] = {}
    for row in rows:
        most[row["device"], row["dtype"]] = max(row["work"], most.get((row["device"], row["dtype"]), 0))
    rows = [row | {"ratio": row["predicted_seconds"] / row["seconds"]} for row in rows]
    kept: dict[tuple, Row] = {}
    by = ("device", "place", "dtype", "ranks")
    for row in sorted(rows, key=lambda row: (*(row[name] for name in by), not row["seconds"] > 0, row["seconds"])):
        if row["work"] == most[row["device"], row["dtype"]]:
            kept.setdefault((row["label"], row["dtype"], row["ranks"]), row)
    lines = list(kept.values())
    columns = {formats.size_title(lines): of_size} | columns_of(
        "predictions",
        measured=lambda row: Cell(formats.duration(row["seconds"])) if row["ratio"] > 0 else words("predicted only"),
        held_out=lambda row: Cell("" if row["ratio"] > 0 else percent(row["held_out"])),
        noise=lambda row: Cell("" if row["ratio"] > 0 else percent(row["noise"])),
    )
    return table("Predicted by the cost model", lines, columns, leading=4)


def over_library(rows: Sequence[Row]) -> str:
    """Compare the fastest product of each variant with that of the library, on the most ranks at the largest size."""
    rows = [row for row in rows if row["operation"] == "matmul" and row["algorithm"] != TEXTBOOK]
    foreign = [row for row in rows if ALGORITHMS[row["algorithm"]].package]
    if not foreign:
        return ""
    most = max(row["ranks"] for row in foreign)
    texts = []
    for dtype in sorted({row["dtype"] for row in rows}):
        work = max((row["flops"] for row in foreign if (row["ranks"], row["dtype"]) == (most, dtype)), default=0)
        at = [row for row in rows if (row["ranks"], row["dtype"], row["flops"]) == (most, dtype, work)]
        for setting in sorted({row["setting"] for row in at}):
            for _, here in sorted(analysis.by_size(row for row in at if row["setting"] == setting).items()):
                library = quickest(row for row in here if row in foreign)
                ours = fastest_of(row for row in here if row not in foreign)
                if library and ours:
                    speedups = [f"{row['label']} {Ratio.of(row, library)}" for row in ours]
                    texts.append(f"{formats.size(library)} in {dtype}: {', '.join(speedups)}")
    if not texts:
        return ""
    name = foreign[0]["algorithm_library"]
    return f"Speedup over {name} on {plural(most, 'rank')}, measured in separate jobs: {'; '.join(texts)}."


def ranks(rows: Sequence[Row]) -> str:
    """Give the speedup from more ranks, at the largest size."""
    texts = []
    for device in DEVICES:
        here = [row for row in rows if row["device"] == device]
        first = first_series(here)
        if not first:
            continue
        alike = [row for row in here if all(row[name] == first[0][name] for name in ("dtype", "setting"))]
        most = analysis.largest(alike)
        (shape,) = analysis.by_size(most)
        one = {row["label"]: row for row in analysis.by_size(first).get(shape, ())}
        count = max(row["ranks"] for row in most)
        last = [row for row in most if row["ranks"] == count and row["role"] == "rung" and row["label"] in one]
        if not last or count == first[0]["ranks"]:
            continue
        exchanging = [row for row in last if row["algorithm"] != TEXTBOOK]
        row = min(exchanging or last, key=lambda row: row["seconds"])
        found = []
        if math.isfinite(row["call_seconds"]):
            found.append(f"end to end {Ratio.of(row, one[row['label']], 'call_seconds')}")
        what = "kernel alone" if exchanging else "local kernels without exchange"
        found.append(f"{what} {Ratio.of(row, one[row['label']])}")
        where = f"{row['label']} at {formats.size(row)}"
        texts.append(f"Speedup of {row['ranks']} ranks over {first[0]['ranks']}, {where}: {', '.join(found)}.")
    return " ".join(texts)


def over_ranks(
    sweep: str, rows: Sequence[Row], experiment: Experiment
) -> list[tuple[str, Callable[[Sequence[Row]], Table], Sequence[Row]]]:
    """Return what makes the tables of a sweep over ranks, each with the kind of its files and its rows."""
    exchange_table = partial(table, "Exchanges, all ranks at once", columns=columns_of("exchanges"), leading=4)
    both = (experiment.scaling, experiment.predictions)
    gains, predicted = (analysis.row_dicts(each[each["sweep"] == sweep]) for each in both)
    known = (("scaling", scaling_table, gains), ("predictions", prediction_table, predicted))
    known += (("exchanges", exchange_table, links.exchanges(rows)),)
    return [(kind, make, own) for kind, make, own in known if own]


CHAPTER = chapter("ranks", figures=(ladders,), answers=(Answer(over_library, "timed"), Answer(ranks, "timed")))
