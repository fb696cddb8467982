"""Padded rows beside rows without padding."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.report import formats, vega
from hpcmm.report.chapters.chapter import Answer, chapter
from hpcmm.report.chapters.ladder import best, ladders
from hpcmm.report.chapters.sizes import rate_against_size
from hpcmm.report.markup import Cell, Table, words
from hpcmm.report.points import described
from hpcmm.report.ratio import Ratio
from hpcmm.report.tables import Column, Row, columns_of, table
from hpcmm.system.text import amount, percent


def pitch_gain(series: analysis.Series) -> Iterator[vega.Figure]:
    """Draw the speedup of padded rows over the same kernel without padding, at each size and tile."""
    pairs = analysis.pitch_pairs(series.rows)
    rows, gains = [row for row, _ in pairs], [Ratio.of(*pair) for pair in pairs]
    if len({row["n"] for row in rows}) < 3 or not formats.size_is_one_number(rows):
        return
    columns, titles = {name: [row[name] for row in rows] for name in ("label", "n")}, {}
    for name, title, of in (("gain", "gain", "value"), ("gain_low", "from", "low"), ("gain_high", "to", "high")):
        columns[name], titles[name] = vega.rounded([getattr(gain, of) for gain in gains]), title
    axis = {"title": "speedup from pitch", "scale": {"zero": False}}
    x, y = vega.size_axis(rows), vega.quantity("gain", **axis)
    color, shape, dash = vega.styled(rows, symbolOpacity=1)
    tooltip = [{"field": "label", "title": "variant"}, {"field": "n"}]
    tooltip += [vega.quantity(name, format=".3r", title=title) for name, title in titles.items()]
    ends = {"x": x, "y": vega.quantity("gain_low", **axis), "y2": {"field": "gain_high"}}
    layers = [vega.AT_ONE, *vega.curves(x, y, color, shape, dash, tooltip)]
    if any(gain.low > 0 for gain in gains):
        layers.insert(2, {"mark": vega.INTERVAL, "encoding": ends | {"color": color}})
    caption = f"Speedup from pitched rows, kernel alone, {described(series)}"
    shown = {"label": "Variant", "n": "n", "gain": "Gain", "gain_low": "from", "gain_high": "to"}
    yield vega.Figure("pitch", caption, columns, vega.layered(layers, 260), shown, series.dtype, rows[0]["device"])


def level_table(rows: pd.DataFrame, device: str) -> Table:
    """Make the table of the levels of memory of one device, from ``analysis.levels``."""

    def of(kind: str) -> Column:
        variant, nbytes = f"{kind}_variant", f"{kind}_bytes"
        return lambda row: words(f"{row[variant]}, {amount(row[nbytes])}" if row[variant] else "")

    def level(row: Row) -> Cell:
        return words(row["level"] or amount(np.nanmax([row["latency_bytes"], row["bandwidth_bytes"]])))

    columns = columns_of("levels", level=level, chase=of("latency"), read_by=of("bandwidth"))
    return table(f"Levels of memory of the {device}", analysis.row_dicts(rows), columns)


def pitch(rows: Sequence[Row]) -> str:
    """Give the speedup of padded rows over the same kernel without padding, and the cost of the copies."""
    pairs = [(Ratio.of(*pair), *pair) for pair in analysis.pitch_pairs(rows)]
    if not pairs:
        return ""
    highest, where, plain = max(pairs, key=lambda each: each[0].value)
    if len(pairs) == 1:
        text = f"{where['rung']} at {formats.size(where)}: {highest.over(plain['variant'])}"
    else:
        faster, slower = sum(ratio.faster for ratio, *_ in pairs), sum(ratio.slower for ratio, *_ in pairs)
        text = f"{where['variant']} is significantly faster than {plain['variant']} at {faster} of {len(pairs)} points"
        text += f" and significantly slower at {slower}. Largest speedup: {where['rung']} at {formats.size(where)}, "
        text += str(highest)
    shares = [row["call_pitch"] / row["call_seconds"] for _, row, _ in pairs if math.isfinite(row["call_pitch"])]
    if shares:
        text += f". The copies take {percent(median(shares))} of the end-to-end time"
    return text + "."


ANSWERS = (Answer(best, each_device=True), Answer(pitch))
CHAPTER = chapter("memory", figures=(pitch_gain, rate_against_size, ladders), answers=ANSWERS)
