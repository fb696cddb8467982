"""Energy of the kernels, and the state of the GPU during the run."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.report import formats
from hpcmm.report.figures.points import described
from hpcmm.report.vega import LINE, PALETTE, Figure, category, layered, quantity, rounded


def efficiencies(series: Series) -> Iterator[Figure]:
    """Draw one bar per rung at the largest size with energy: its rate over the power of the device."""
    for device, points in series.points.groupby("device", sort=False):
        known = points[points["watts"].notna()]
        if known.empty:
            continue
        size = analysis.largest(known).iloc[0]
        rows = analysis.at_size(known, size).sort_values("place").drop_duplicates("label")
        unit = formats.rate_unit(series.operation, series.dtype)
        column, title = unit.column.replace("_per_second", "_per_joule"), f"{unit.name} per W"
        columns = {
            "label": list(rows["label"]),
            "value": rounded(rows[column] / unit.scale),
            "watts": rounded(rows["watts"]),
            "baseline": [int(each) for each in rows["baseline"]],
        }
        color = {"condition": {"test": "datum.baseline == 1", "value": LINE}, "value": PALETTE[0]}
        encoding = {
            "x": quantity("value", title=title),
            "y": category("label", sort=columns["label"], title=None, axis={"labelLimit": 200}),
            "color": color,
            "opacity": {"condition": {"test": "datum.baseline == 1", "value": 0.45}, "value": 1},
        }
        spec = layered([{"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": encoding}], 24 * len(rows) + 8)
        shown = {"label": "Rung", "value": title, "watts": "Power, W"}
        caption = f"{formats.device(device)} at {formats.size(size)}, {described(series)}: {title}"
        yield Figure(f"energy-{device}", caption, columns, spec, shown, series.dtype, device)


def clocks(frame: pd.DataFrame) -> Iterator[Figure]:
    """Draw clocks, temperature and power during the run; ``frame`` is from ``analysis.clock_samples``."""
    quantities = {"sm_clock": ("SM clock, MHz", 1e-6), "memory_clock": ("memory clock, MHz", 1e-6)}
    quantities |= {"temperature": ("temperature, °C", 1.0), "power": ("power, W", 1.0)}
    for hue, (name, (title, unit)) in zip(PALETTE, quantities.items(), strict=False):
        rows = frame[frame[name].notna()]
        if rows[name].nunique() < 2:  # a constant is not drawn
            continue
        columns = {"sample": [int(each) for each in rows["sample"]], "sweep": list(rows["sweep"])}
        columns["value"] = rounded(rows[name] * unit)
        along = {"axis": {"format": ",d"}, "scale": {"nice": False}}
        value = quantity("value", title=title, format=",.4r")
        spec = {
            "width": "container",
            "height": 120,
            "mark": {"type": "line", "strokeWidth": 1, "color": hue, "point": {"size": 14, "color": hue}},
            "encoding": {
                "x": quantity("sample", title="sample, in the order of the file", **along),
                "y": quantity("value", title=title, scale={"zero": False}, axis={"tickCount": 4}),
                "tooltip": [{"field": "sample"}, {"field": "sweep"}, value],
            },
        }
        caption = f"{title[0].upper()}{title[1:]}, GPU of rank 0 during the run, medians of adjacent samples"
        yield Figure(name, caption, columns, spec, {"sample": "Sample", "sweep": "Sweep", "value": title})
