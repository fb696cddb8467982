"""Scaling over ranks, and the predictions of the cost model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis.scaling import base_columns
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS
from hpcmm.report import formats
from hpcmm.report.tables import CONTRADICTING
from hpcmm.report.vega import (
    AT_ONE,
    Figure,
    Style,
    category,
    distinct,
    dots,
    layered,
    quantity,
    ranks_axis,
    rounded,
    styled,
    tens_axis,
)

PREDICTED = "predicted"  # group of the figures of a model


def scalings(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw efficiency over ranks of one sweep; ``frame`` is from ``scaling.speedups``.

    There is one figure for each kind of scaling, device and element type, at the largest size. Of each arithmetic it
    shows the two labels that are fastest on the most ranks by the kernel alone, and the two fastest end to end.
    """
    for (kind, device, dtype, setting), rows in frame.groupby(["kind", "device", "dtype", "setting"], sort=False):
        if kind == "memory-constrained":  # its table has the numbers; no question of its own
            continue
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
        best = {
            label
            for _, alike in last.groupby("arithmetic")
            for prefix in ("", "call_")
            for label in alike.dropna(subset=[prefix + "speedup"]).nsmallest(2, prefix + "seconds")["label"]
        }
        if not best:  # not timed in the same way on one rank
            continue
        what = ", ".join(filter(None, (dtype, setting)))
        shown = " of the fastest variants" if rows["label"].nunique() > len(best) else ""
        where = f"{shown} on the {formats.device(device)}, {what}"
        at_once = " of all devices at once" if (at["base_ranks"] > 1) else ""
        base = f"the fastest on one rank{at_once} in the same arithmetic"
        caption = f"{kind.capitalize()} scaling{where}, relative to {base}"
        yield _scaling(rows[rows["label"].isin(best)], style, caption, f"{kind}-{device}-{dtype}")


def _scaling(rows: pd.DataFrame, style: Mapping[str, Style], caption: str, name: str, height: int = 300) -> Figure:
    shown = {"series": "Variant", "size": "Size", "of": "Timed", "ranks": "Ranks"}
    shown |= {"efficiency": "Efficiency", "speedup": "Speedup"}
    columns: dict[str, list] = {name: [] for name in shown}
    for row in analysis.row_dicts(rows.sort_values(["place", "ranks"], kind="stable")):
        for prefix, what in (("", "kernel alone"), ("call_", "end to end")):
            if math.isfinite(row[prefix + "efficiency"]):
                columns["series"].append(row["label"])
                columns["of"].append(what)
                columns["size"].append(formats.size(row))
                columns["ranks"].append(int(row["ranks"]))
                columns["efficiency"].append(float(f"{row[prefix + 'efficiency']:.5g}"))
                columns["speedup"].append(float(f"{row[prefix + 'speedup']:.5g}"))
    labels = list(dict.fromkeys(columns["series"]))
    x, y = ranks_axis(columns["ranks"]), quantity("efficiency", title="efficiency", axis={"format": ".0%"})
    color, shape, _ = styled("series", labels, distinct(rows, style))
    dashes = {what: dash for what, dash in (("kernel alone", [1, 0]), ("end to end", [4, 3])) if what in columns["of"]}
    dash = category("of", legend={"title": None}, scale={"domain": list(dashes), "range": list(dashes.values())})
    tooltip = [{"field": field, "title": shown[field].lower()} for field in ("series", "size", "of", "ranks")]
    tooltip += [quantity("efficiency", format=".1%"), quantity("speedup", format=".3r")]
    layers = [
        AT_ONE,
        {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": color, "strokeDash": dash}},
        {"mark": dots(60), "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip}},
    ]
    caption = f"{caption}, up to {max(columns['ranks'])} ranks"
    of = rows["dtype"].iloc[0], rows["device"].iloc[0]
    return Figure(name, caption, columns, layered(layers, height), shown, *of)


def predictions(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw predicted rates of the largest problem of a sweep over ranks, with the measured rates.

    ``frame`` is from ``scaling.predictions``. Nothing is drawn for so few measured ranks that they could not
    contradict the model.
    """
    for (device, dtype), rows in frame.groupby(["device", "dtype"], sort=False):
        if rows["measured_ranks"].max() < CONTRADICTING:
            continue
        rows = rows[rows["work"] == rows["work"].max()].sort_values(["place", "ranks", "seconds"])
        rows = rows.drop_duplicates(["label", "ranks"])
        largest = (rows["work"] / rows[["seconds", "predicted_seconds"]].min(axis=1)).max()
        rates = formats.rate_unit(rows["operation"].iloc[0], dtype, largest)
        unit = rates.name
        columns = {
            "label": list(rows["label"].where(rows["of"] != "end to end", rows["label"] + ", end to end")),
            "ranks": [int(ranks) for ranks in rows["ranks"]],
            "predicted": rounded(rows["work"] / rows["predicted_seconds"] / rates.scale),
            "rate": rounded(rows["work"] / rows["seconds"] / rates.scale),
        }
        hues = distinct(rows, style)
        own = {shown: hues[label] for shown, label in zip(columns["label"], rows["label"], strict=True)}
        color, shape, dash = styled("label", list(own), own, symbolStrokeWidth=0)
        x, log = ranks_axis(columns["ranks"]), {"title": unit, "scale": {"type": "log"}, "axis": tens_axis(0, 10)}
        tooltip = [{"field": "label", "title": "variant"}, {"field": "ranks"}]
        tooltip += [
            quantity(field, title=f"{title}, {unit}", format=",.3r")
            for field, title in (("rate", "measured"), ("predicted", "predicted"))
        ]
        layers = [
            {
                "mark": {"type": "line"},
                "encoding": {"x": x, "y": quantity("predicted", **log), "color": color, "strokeDash": dash},
            },
            {
                "mark": dots(60),
                "transform": [{"filter": "isValid(datum.rate)"}],
                "encoding": {"x": x, "y": quantity("rate", **log), "color": color, "shape": shape, "tooltip": tooltip},
            },
        ]
        caption = (
            f"Predicted rates on the {formats.device(device)}, {dtype}, at {formats.size(rows.iloc[0])}. Lines are "
            "predictions of the cost model, marks are measurements; kernel alone unless labelled end to end"
        )
        shown = {"label": "Variant", "ranks": "Ranks", "rate": f"Measured, {unit}", "predicted": f"Predicted, {unit}"}
        name, whole = f"predicted-{device}-{dtype}", layered(layers, 300)
        yield Figure(name, caption, columns, whole, shown, dtype, device, group=PREDICTED)
