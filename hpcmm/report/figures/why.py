"""Rooflines."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from hpcmm import analysis
from hpcmm.report import formats
from hpcmm.report.vega import (
    DASHES,
    LINE,
    MARKERS,
    PALETTE,
    Figure,
    category,
    dots,
    layered,
    quantity,
    rounded,
    tens_axis,
)


def rooflines(frame: pd.DataFrame) -> Iterator[Figure]:
    """Draw the highest rate of each rung over its arithmetic intensity, with the limits of hardware and run."""
    # of several machines with such a GPU, that with the most rungs
    roofs = sorted(analysis.rooflines(frame), key=lambda roof: len(roof.rungs), reverse=True)
    roofs = list({(roof.device, roof.dtype, *set(roof.rungs["gpu"])): roof for roof in reversed(roofs)}.values())[::-1]
    machines = list(dict.fromkeys(roof.machine for roof in roofs))
    for roof in roofs:
        rows = roof.rungs
        intensity = rows["flops"] / rows["bytes"]
        peak = max(flops for _, flops, _ in roof.ceilings)
        unit = formats.rate_unit("matmul", roof.dtype, max(peak, rows["flops_per_second"].max()))
        columns = {
            "label": list(rows["label"]),
            "operation": list(rows["operation"]),
            "size": formats.sizes(rows),
            "intensity": rounded(intensity),
            "rate": rounded(rows["flops_per_second"] / unit.scale),
            "fraction": rounded(rows["fraction"]),
        }
        first, last = min(intensity.min() / 2, 0.05), max(intensity.max() * 2, 10)
        lines = []
        for name, flops, nbytes in roof.ceilings:
            knee = flops / nbytes
            stops = [first, *([knee] if first < knee < last else []), last]
            lines += [{"x": x, "y": min(flops, nbytes * x) / unit.scale, "of": name} for x in stops]
        log = {"scale": {"type": "log", "nice": False, "padding": 8}, "axis": tens_axis(-3, 9)}
        x, y = log | {"title": "operations per byte of compulsory traffic"}, log | {"title": unit.name}
        operations = list(dict.fromkeys(rows["operation"]))
        color, shape = (
            category(
                "operation",
                scale={"domain": operations, "range": list(values[: len(operations)])},
                legend={"title": None},
            )
            for values in (PALETTE, MARKERS)
        )
        names = [name for name, *_ in roof.ceilings]
        dashes = {"domain": names, "range": list(DASHES[: len(names)])}
        dash = category("of", scale=dashes, legend={"title": None})
        tooltip = [{"field": field} for field in ("label", "operation", "size")]
        tooltip.append(quantity("rate", title=unit.name, format=",.3r"))
        tooltip.append(quantity("fraction", title="of limit", format=".0%"))
        position = {"x": quantity("intensity", **x), "y": quantity("rate", **y)}
        layers = [
            {
                "data": {"values": lines},
                "mark": {"type": "line", "color": LINE, "strokeWidth": 2},
                "encoding": {"x": quantity("x", **x), "y": quantity("y", **y), "strokeDash": dash},
            },
            {
                "mark": dots(70, opacity=0.85),
                "encoding": {**position, "tooltip": tooltip, "color": color, "shape": shape},
            },
        ]
        caption = f"Roofline of the {formats.device(roof.device)} in {roof.dtype}: every rung at its fastest size"
        number = f"-{machines.index(roof.machine) + 1}" if len(machines) > 1 else ""
        if number:
            caption += f"; {roof.machine}"
        shown = {"label": "Variant", "operation": "Operation", "size": "Size", "intensity": "Operations per byte"}
        shown |= {"rate": unit.name} | ({"fraction": "Of limit"} if rows["fraction"].notna().any() else {})
        whole = layered(layers, 380)
        yield Figure(f"{roof.device}-{roof.dtype}{number}", caption, columns, whole, shown, roof.dtype, roof.device)
