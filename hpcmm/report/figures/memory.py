"""Padded rows beside rows without padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.report import formats
from hpcmm.report.figures.points import described
from hpcmm.report.vega import AT_ONE, INTERVAL, Figure, Style, dots, layered, quantity, rounded, size_axis, styled


def pitch_gain(series: Series, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw the speedup of padded rows over the same kernel without padding, at each size and tile."""
    pairs = analysis.pitch_pairs(series.points)
    if pairs["n"].nunique() < 3 or not formats.size_is_one_number(pairs):
        return
    columns = {
        "label": list(pairs["label"]),
        "n": [int(n) for n in pairs["n"]],
        **{name: rounded(pairs[name]) for name in ("gain", "gain_low", "gain_high")},
    }
    axis = {"title": "speedup from pitch", "scale": {"zero": False}}
    x, y = size_axis(pairs), quantity("gain", **axis)
    labels = pairs.sort_values("place", kind="stable")["label"].unique()
    color, shape, dash = styled("label", labels, style, symbolOpacity=1)
    tooltip = [{"field": "label", "title": "variant"}, {"field": "n"}]
    titles = {"gain": "gain", "gain_low": "from", "gain_high": "to"}
    tooltip += [quantity(name, format=".3r", title=title) for name, title in titles.items()]
    ends = {"x": x, "y": quantity("gain_low", **axis), "y2": {"field": "gain_high"}}
    layers = [
        AT_ONE,
        {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": color, "strokeDash": dash}},
        {"mark": dots(60), "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip}},
    ]
    if pairs["gain_low"].notna().any():
        layers.insert(2, {"mark": INTERVAL, "encoding": ends | {"color": color}})
    caption = f"Speedup from pitched rows, kernel alone, {described(series)}"
    shown = {"label": "Variant", "n": "n", "gain": "Gain", "gain_low": "from", "gain_high": "to"}
    device = pairs["device"].iloc[0]
    yield Figure("pitch", caption, columns, layered(layers, 260), shown, series.dtype, device)
