"""The effect of the width of a tile."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from hpcmm import analysis
from hpcmm.report import formats, vega
from hpcmm.report.chapters.chapter import Answer, chapter
from hpcmm.report.chapters.ladder import ladders
from hpcmm.report.chapters.sizes import rate_against_size
from hpcmm.report.findings import rate_ratio
from hpcmm.report.points import calculations, columns_of, described, titles_of, tooltips
from hpcmm.report.ratio import Ratio
from hpcmm.report.tables import Row
from hpcmm.system.text import number

HEAT = ("#eef3f9", "#1f5fa8")  # slowest, fastest
MOST_SIZES = 8  # of a map: more columns are too narrow for their numbers on a phone


def tile_map(series: analysis.Series) -> Iterator[vega.Figure]:
    """Draw rates by tile and size, coloured relative to the fastest at that size; wrong results are marked."""
    rows = [row for row in series.rows if row["tile"]]
    sizes = analysis.by_size(rows)
    kinds = {(row["variant"], row["tile"]) for row in rows}
    if len(kinds) == len({variant for variant, _ in kinds}) or not 2 <= len(sizes) <= MOST_SIZES:
        return
    unit = formats.rate_unit_of(series.rows).name
    columns = columns_of(rows, series)
    most: dict[str, float] = {}
    for size, rate in zip(columns["size"], columns["rate"], strict=True):
        most[size] = max(rate or 0.0, most.get(size, 0.0))
    rates = [math.nan if rate is None else rate for rate in columns["rate"]]
    shares = [rate / (most[size] or 1.0) for rate, size in zip(rates, columns["size"], strict=True)]
    columns["relative"] = vega.rounded(shares)
    texts = (row["result"] if row["result"] == "FAIL" else "" for row in rows)
    columns["text"] = [text or number(rate) for text, rate in zip(texts, rates, strict=True)]
    labels = [row["label"] for row in vega.first_of_labels(rows)]
    top = {"labelAngle": 0, "orient": "top", "domain": False, "ticks": False}
    position = {
        "x": vega.category("size", sort=[formats.size(at[0]) for at in sizes.values()], title="n", axis=top),
        "y": vega.category("label", sort=labels, title=None, axis={"domain": False, "ticks": False, "labelLimit": 200}),
    }
    legend = {"title": "relative to the fastest", "titleLimit": 300, "format": ".0%", "gradientLength": 160}
    color = vega.quantity("relative", scale={"domain": [0, 1], "range": list(HEAT)}, legend=legend)
    ink = {"test": "datum.text == 'FAIL'", "value": "#b3141d"}
    light = {"test": "datum.relative > 0.77", "value": "#ffffff"}
    cell = {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1}
    wrong = {"type": "rect", "fill": "#ffffff", "stroke": "#b3141d", "strokeWidth": 2}
    shades = {"color": color, "tooltip": tooltips(series)}
    inks = {"condition": [ink, light], "value": "#16202c"}
    layers = [
        vega.layer(cell, "isValid(datum.relative)", calculations(series), **position, **shades),
        vega.layer(wrong, "datum.text == 'FAIL'", **position),
        vega.layer({"type": "text", "fontSize": 11}, **position, text={"field": "text"}, color=inks),
    ]
    caption = f"{unit} by tile and size, {described(series)}; an empty cell was not measured"
    whole = vega.layered(layers, 26 * len(labels) + 20)
    yield vega.Figure("tiles", caption, columns, whole, titles_of(series), series.dtype, rows[0]["device"])


def tiles(rows: Sequence[Row]) -> str:
    """Name the fastest tile of each rung that was measured with several, at the largest size."""
    here = [row for row in analysis.largest(rows) if row["tile"]]
    texts = []
    in_order = sorted(here, key=lambda row: row["place"])
    for (variant,), points in analysis.grouped(in_order, "variant").items():
        ranked = sorted(points, key=lambda row: row["seconds"])
        others = [row for row in ranked if row["tile"] != ranked[0]["tile"] and row["memory"] == ranked[0]["memory"]]
        if others:
            speedup = Ratio.of(ranked[0], others[0]).over(f"tile {others[0]['tile']:.0f}")
            texts.append(f"{ranked[0]['tile']:.0f} for {variant}, {speedup}")
    return f"Fastest tile at {formats.size(here[0])}: {'; '.join(texts)}." if texts else ""


def remainders(rows: Sequence[Row]) -> str:
    """Give the cost of one row and column more than a multiple of the tile, and how many multiples are peaks."""
    squares = [row for row in rows if row["tile"] and row["m"] == row["n"] == row["k"]]
    texts, peaks = [], []
    for first in vega.first_of_labels(squares):
        at = {row["n"]: row for row in squares if row["label"] == first["label"]}
        tile = first["tile"]
        multiples = [n for n in at if n % tile == 0]
        falls = [rate_ratio(at[n + 1], at[n]) for n in multiples if n + 1 in at]
        if not falls:
            continue
        texts.append(f"{first['label']} {_spread(falls)}")
        around = {n: range(n - tile // 2, n + tile // 2 + 1) for n in multiples}
        whole = {n: near for n, near in around.items() if all(each in at for each in near)}
        if whole:
            count = sum(max(near, key=lambda each: at[each]["flops_per_second"]) == n for n, near in whole.items())
            peaks.append(f"{first['label']} at {count} of {len(whole)}")
    if not texts:
        return ""
    text = f"Rate at a multiple of the tile plus one, relative to the multiple (median, range): {', '.join(texts)}."
    return text + (f" The multiple is the fastest size within half a tile: {', '.join(peaks)}." if peaks else "")


def _spread(ratios: Sequence[Ratio]) -> str:
    if len(ratios) == 1:
        return str(ratios[0])
    values = sorted(ratio.value for ratio in ratios)
    ends = f"{number(values[0])} to {number(values[-1])}"
    return f"{formats.times(median(values))} ({ends})"


CHAPTER = chapter("tiles", figures=(tile_map, rate_against_size, ladders), answers=(Answer(tiles), Answer(remainders)))
