"""End-to-end calls with their copies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.devices import DEVICES
from hpcmm.model import TEXTBOOK
from hpcmm.quantities import PHASES
from hpcmm.report import formats
from hpcmm.report.figures.points import SECONDS, described
from hpcmm.report.vega import PALETTE, Figure, category, layered, quantity


def calls(series: Series) -> Iterator[Figure]:
    """Draw end-to-end times by phase: of each label at the largest size, and of the fastest one at all sizes."""
    frame = analysis.phases(series.points)
    if frame.empty:
        return
    largest = analysis.largest(frame)
    for device, rows in largest.groupby("device", sort=False):
        if not DEVICES[device].accelerator and series.ranks == 1:
            continue  # nothing is copied
        rows = rows.sort_values("place")
        what = f"{formats.size(largest.iloc[0])}, {described(series)}"
        caption = f"End-to-end time on the {formats.device(device)} by phase at {what}{_overlapping(rows)}"
        yield replace(
            _stacked(f"calls-{device}", caption, rows, list(rows["label"]), share=False),
            dtype=series.dtype, device=device,
        )  # fmt: skip
    shapes = analysis.shapes(frame)
    some = formats.spread(list(dict.fromkeys(shapes)), 8)
    ours = largest[(largest["role"] == "rung") & analysis.on_accelerator(largest)]
    if len(some) < 3 or ours.empty:
        return
    rung = ours.loc[ours["call_seconds"].idxmin(), "rung"]
    rows = frame[[own == rung and shape in some for own, shape in zip(frame["rung"], shapes, strict=True)]]
    names = [", ".join(filter(None, (formats.size(row), row["memory"]))) for row in analysis.row_dicts(rows)]
    caption = f"Share of each phase in the end-to-end time of {rung}, by size{_overlapping(rows)}"
    yield replace(
        _stacked("shares", caption, rows, names, share=True),
        dtype=series.dtype, device=rows["device"].iloc[0],
    )  # fmt: skip


def _overlapping(rows: pd.DataFrame) -> str:
    """Return the part of a caption that names algorithms with overlapping phases."""
    names = [name for name in rows["algorithm"].unique() if name != TEXTBOOK]
    who = " and ".join(names)
    return f"; phases of {who} overlap, so the end-to-end time is shorter than the bar" if names else ""


def _stacked(name: str, caption: str, rows: pd.DataFrame, names: Sequence[str], share: bool) -> Figure:
    columns: dict[str, list] = {"name": [], "phase": [], "start": [], "end": [], "seconds": [], "share": []}
    unit, scale = ("share of the end-to-end time", 1.0) if share else formats.unit_of(rows["call_seconds"].max())
    for label, row in zip(names, analysis.row_dicts(rows), strict=True):
        start = 0.0
        for phase in PHASES[:-1]:
            seconds = row["call_" + phase]
            if not math.isfinite(seconds):
                continue
            length = row["share_" + phase] if share else seconds * scale
            for column, value in (("start", start), ("end", start + length), ("seconds", seconds)):
                columns[column].append(float(f"{value:.5g}"))
            columns["name"].append(label)
            columns["phase"].append(phase)
            columns["share"].append(float(f"{row['share_' + phase]:.4g}"))
            start += length
    present = [phase for phase in PHASES if phase in columns["phase"]]
    hues = [PALETTE[PHASES.index(phase) % len(PALETTE)] for phase in present]
    y = category("name", sort=list(names), title=None, axis={"labelLimit": 240})
    axis = {"format": ".0%" if share else ",~r", "labelBound": True}
    longest = max(columns["end"])
    # the domain of the bars alone: if no label fits into a bar, Vega warns about an empty domain of the labels
    scale_x = {"domain": [0, longest], "nice": True}
    x = quantity("start", title=unit, axis=axis, stack=None, scale=scale_x)
    color = category("phase", scale={"domain": present, "range": hues}, legend={"title": None})
    bar = "Size" if share else "Variant"
    tooltip = [{"field": "name", "title": bar.lower()}, {"field": "phase"}, {"field": "time"}]
    tooltip.append(quantity("share", format=".1%"))
    layers = [
        {
            "mark": {"type": "bar", "stroke": "#ffffff", "strokeWidth": 1, "height": {"band": 0.75}},
            "transform": [{"calculate": SECONDS, "as": "time"}],
            "encoding": {"x": x, "x2": {"field": "end"}, "y": y, "color": color, "tooltip": tooltip},
        },
        {
            "mark": {"type": "text", "color": "#ffffff", "fontSize": 11, "fontWeight": "bold"},
            "transform": [
                # only where the label fits into the bar
                {"filter": f"(datum.end - datum.start) * width / {longest:.6g} > 8 * length(datum.phase)"},
                {"calculate": "(datum.start + datum.end) / 2", "as": "middle"},
            ],
            "encoding": {"x": quantity("middle"), "y": y, "text": {"field": "phase"}},
        },
    ]
    shown = {"name": bar, "phase": "Phase", "seconds": "Seconds", "share": "Share"}
    return Figure(name, caption, columns, layered(layers, 26 * len(set(names)) + 8), shown)
