"""The first screen of the page: the fastest rungs beside the library, over sizes and over ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.analysis.scaling import base_columns
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS
from hpcmm.report import figures, formats
from hpcmm.report.headlines import Headline, at_told_sizes, by_size, headlines, noise_of
from hpcmm.report.vega import (
    LINE,
    PALETTE,
    Figure,
    Style,
    category,
    dots,
    layered,
    quantity,
    ranks_axis,
    rounded,
    styled,
    text_width,
)

HEIGHT = 190  # of a figure; three of them, each with a sentence, fit on one screen
BAR = 30  # height of a bar with its label above it


@dataclass(frozen=True)
class Panel:
    """One question of the first screen: its title, and figures of which the page shows one, each with a sentence.

    Without figures, ``headlines`` has the sentence alone.
    """

    title: str
    figures: Sequence[Figure]
    headlines: Sequence[Headline | None]


def panels(
    frame: pd.DataFrame, series: Sequence[Series], scaling: pd.DataFrame, styles: Mapping[str, Mapping[str, Style]]
) -> list[Panel]:
    """Return the panels that the measurements allow.

    Parameters
    ----------
    frame : DataFrame
        From ``analysis.measurements``.
    series : sequence of Series
        Of all sweeps.
    scaling : DataFrame
        From ``scaling.speedups``.
    styles : mapping
        By sweep, from ``vega.styles``.
    """
    rows = analysis.points(frame)
    rows = rows[(rows["operation"] == "matmul") & (rows["result"] == "PASS") & rows["seconds"].notna()]
    rows = rows[(rows["ranks"] == rows["ranks"].min()) & (rows["algorithm"] == TEXTBOOK)]
    rows = analysis.pooled(rows)
    beside = frame[(frame["baseline"] == 1) & (frame["contender_algorithm"] == TEXTBOOK) & (frame["result"] == "PASS")]
    beside = analysis.pooled(beside[(beside["operation"] == "matmul") & (beside["ranks"] == rows["ranks"].min())])

    machines = formats.machines(frame["machine"])

    def told(name: str, figure: Figure | None = None, of: pd.DataFrame = frame) -> Headline | None:
        """Return a headline about what a figure shows."""
        about = [of, scaling]
        for column in ("device", "dtype"):
            if figure and getattr(figure, column):
                about = [each[each[column] == getattr(figure, column)] for each in about]
        return next((each for each in headlines(*about, machines, frame) if each.name == name), None)

    best = [(figure, told("Fastest product", figure, at)) for figure, at in _best_rungs(rows, beside)]
    over_sizes = list(_over_sizes(series, styles, frame))
    over_ranks = [(figure, told("Scaling", figure)) for figure in _over_ranks(scaling, styles)]
    found = [
        Panel(title, [figure for figure, _ in pairs], [headline for _, headline in pairs] or [told(name)])
        for title, name, pairs in (
            ("Best rung of each arithmetic", "Fastest product", best),
            ("Rate over size", "", over_sizes),
            ("Scaling over ranks", "Scaling", over_ranks),
        )
    ]
    if not any(each.figures for each in found):  # a file without products
        found.append(Panel("Fastest sum", [], [told("Fastest sum")]))
    return [each for each in found if each.figures or any(each.headlines)]


def _best_rungs(rows: pd.DataFrame, beside: pd.DataFrame) -> Iterator[tuple[Figure, pd.DataFrame]]:
    """Draw the rate of the fastest rung of each arithmetic beside that of the library, one figure for each device.

    They are at the size of the courses if the ladder was measured there, else at the next smaller one. ``beside`` has
    the library, also where it was measured beside a rung only. Yield also the points of the device.
    """
    accelerated = analysis.on_accelerator(rows)
    for device, on_device in rows.assign(first=~accelerated).sort_values("first", kind="stable").groupby(
        "device", sort=False
    ):  # fmt: skip
        variants = on_device.groupby(list(dimensions()))["variant"].nunique()
        full = on_device.set_index(list(dimensions())).index.isin(variants[variants == variants.max()].index)
        at = at_told_sizes(on_device[full])[0]
        best = at[at["role"] == "rung"].sort_values("seconds").drop_duplicates(["dtype", "arithmetic"])
        if best.empty:
            continue
        place = {dtype: i for i, dtype in enumerate(OPERATIONS["matmul"].dtypes)}
        # the arithmetic of the type first
        best = best.assign(place=best["dtype"].map(place), other=best["arithmetic"] != "")
        best = best.sort_values(["place", "other", "seconds"], kind="stable")
        highest = best["flops_per_second"].max()
        units = {dtype: formats.rate_unit("matmul", dtype, highest) for dtype in best["dtype"]}
        per = next(iter(units.values())).scale
        title = " and ".join(dict.fromkeys(unit.name for unit in units.values()))
        columns: dict[str, list] = {name: [] for name in ("label", "name", "arithmetic", "rate", "library", "text")}
        for dtype, rungs in best.groupby("dtype", sort=False):
            lines = [
                (row["rung"], row["arithmetic"] or dtype, row["flops_per_second"], 0, _ratios(row))
                for row in analysis.row_dicts(rungs)
            ]
            same = (beside[["device", "dtype", "machine"]] == rungs[["device", "dtype", "machine"]].iloc[0]).all(axis=1)
            for row in analysis.row_dicts(analysis.at_size(beside[same], rungs.iloc[0]).head(1)):
                lines.append((row["library"], dtype, row["flops_per_second"], 1, ""))
            for name, arithmetic, rate, is_library, ratio in lines:
                label = f"{dtype} {name}" + (f": {arithmetic.partition(',')[0]}" if arithmetic != dtype else "")
                text = formats.number(rate / per) + ratio
                line = (label, name, arithmetic, float(f"{rate / per:.6g}"), is_library, text)
                for values, value in zip(columns.values(), line, strict=True):
                    values.append(value)
        if len(columns["label"]) < 2:
            continue
        y = category("label", sort=columns["label"], axis=None)
        needed = (
            f"{rate:.6g} * width / max(width - {text_width(text) - 12}, 40)"
            for rate, text in zip(columns["rate"], columns["text"], strict=True)
        )
        scale = {"domainMin": 0, "domainMax": {"expr": f"max({', '.join(needed)})"}, "nice": False}
        x = quantity("rate", title=title, scale=scale, axis={"tickCount": 3, "labelBound": True, "grid": False})
        color = {"condition": {"test": "datum.library == 1", "value": LINE}, "value": PALETTE[0]}
        opacity = {"condition": {"test": "datum.library == 1", "value": 0.45}, "value": 1}
        tooltip = [{"field": name} for name in ("name", "arithmetic", "text")]
        small = {"type": "text", "align": "left", "fontSize": 11}
        layers = [
            {
                "mark": {"type": "bar", "height": BAR / 3, "yOffset": BAR / 4},
                "encoding": {"x": x, "y": y, "color": color, "opacity": opacity, "tooltip": tooltip},
            },
            {
                "mark": small | {"dx": 4, "dy": BAR / 4},
                "encoding": {"x": quantity("rate"), "y": y, "text": {"field": "text"}},
            },
            {
                "mark": small | {"dx": 2, "dy": -BAR / 6, "limit": {"expr": "width"}},
                "encoding": {"x": {"value": 0}, "y": y, "text": {"field": "label"}},
            },
        ]
        size, name = formats.size(best.iloc[0]), formats.device(device)
        caption = f"Size {size} on the {name}; in parentheses relative to the library and to the tuned library"
        shown = {"name": "Rung", "arithmetic": "Arithmetic", "rate": title}
        height = max(HEIGHT, BAR * len(columns["label"]))
        yield (
            Figure(f"best-{device}", caption, columns, layered(layers, height), shown, device=device, group="best"),
            on_device,
        )


def _ratios(row: Mapping) -> str:
    """Give the ratios to the library and to the tuned library if it has one, ``" (1.02×, 0.992×)"``; – if unknown."""
    names = ("ratio", "tuned_ratio") if row["tuned_library"] else ("ratio",)
    return f" ({', '.join(formats.times(row[name]) or '–' for name in names)})" if row["ratio"] > 0 else ""


def _over_sizes(
    series: Sequence[Series], styles: Mapping[str, Mapping[str, Style]], frame: pd.DataFrame
) -> Iterator[tuple[Figure, Headline]]:
    """Draw the fastest rung of each arithmetic and the library by size, for each type; GPUs first."""
    known = set()
    dtypes = OPERATIONS["matmul"].dtypes
    alone = [each for each in series if each.operation == "matmul" and each.ranks == 1]

    def rank(each: Series) -> tuple:
        """Accelerators first, types in their order, the most sizes first."""
        points = each.points
        return not analysis.on_accelerator(points).any(), dtypes.index(each.dtype), -points["n"].nunique()

    for each in sorted(alone, key=rank):
        points = each.points
        if not formats.size_is_one_number(points):
            continue
        shown = (points["algorithm"] == TEXTBOOK) & (points["result"] == "PASS") & (points["tile"] == 0)
        for device, here in sorted(
            analysis.pooled(points[shown]).groupby("device"),
            key=lambda group: not analysis.on_accelerator(group[1]).any(),
        ):  # fmt: skip
            compared = here[(here["role"] == "rung") & here["ratio"].notna()]
            if compared["n"].nunique() < 3 or (each.dtype, device) in known:
                continue
            at = analysis.largest(here)
            best = at[at["role"] == "rung"].sort_values("seconds").drop_duplicates("arithmetic")["label"]
            shown = here[here["label"].isin(best) | (here["baseline"] == 1)].reset_index(drop=True)
            own = replace(each, points=shown.assign(fraction=np.nan))  # the first screen has no room for limits
            for figure in figures.rate_against_size(own, styles[each.sweep], HEIGHT):
                known.add((each.dtype, device))
                caption = f"{each.dtype} on the {formats.device(device)}, kernel alone"
                name = f"over-sizes-{device}-{each.dtype}"
                drawn = replace(figure, name=name, caption=caption, device=device, group="over-sizes")
                yield drawn, by_size(here, noise_of(frame, here.iloc[0]))


def _over_ranks(scaling: pd.DataFrame, styles: Mapping[str, Mapping[str, Style]]) -> Iterator[Figure]:
    """Draw the speedup of the fastest algorithm and of the library over ranks, for each type."""
    rows = scaling[(scaling["operation"] == "matmul") & (scaling["kind"] == "strong")]
    for (device, dtype), here in sorted(
        rows.groupby(["device", "dtype"], sort=False), key=lambda group: not analysis.on_accelerator(group[1]).any()
    ):
        if here["ranks"].nunique() < 3:  # two points are a sentence
            continue
        most = here[here["ranks"] == here["ranks"].max()]
        most = most[most["flops"] == most["flops"].max()]
        foreign = most["algorithm"].map(lambda name: bool(ALGORITHMS[name].package))
        ours = ~foreign & (most["algorithm"] != TEXTBOOK)
        chosen = {}  # label: the seconds that it is compared by
        for alike in (most[ours], most[foreign], most[most["algorithm"] == TEXTBOOK]):
            for prefix in ("", "call_"):
                timed = alike[alike[prefix + "speedup"].notna() & ((prefix != "") | (alike["algorithm"] != TEXTBOOK))]
                if not timed.empty and not set(alike["label"]) & set(chosen):
                    chosen[timed.loc[timed[prefix + "seconds"].idxmin(), "label"]] = prefix
        if not chosen:
            continue
        base = most[base_columns()].iloc[0]
        here = here[(here[base_columns()] == base).all(axis=1) & (here["sweep"] == most["sweep"].iloc[0])]
        yield _speedup(here, chosen, styles[most["sweep"].iloc[0]], device, dtype)


def _speedup(rows: pd.DataFrame, chosen: Mapping[str, str], style: Mapping, device: str, dtype: str) -> Figure:
    columns: dict[str, list] = {"label": [], "ranks": [], "speedup": []}
    own = {}
    for label, prefix in chosen.items():
        row = rows[rows["label"] == label].iloc[0]
        name = f"{row['variant']} {row['algorithm']}" + (", end to end" if prefix else "")
        own[name] = style[label]
        if ALGORITHMS[row["algorithm"]].package:  # the library has the colour of the text, nothing else has
            own[name] = own[name]._replace(color=LINE, strokeDash=[7, 4])
        elif own[name].color == LINE:
            used = {each.color for each in own.values()}
            own[name] = own[name]._replace(color=next(hue for hue in PALETTE if hue not in used))
        for row in analysis.row_dicts(rows[rows["label"] == label].sort_values("ranks")):
            if math.isfinite(row[prefix + "speedup"]):
                for column, value in (("label", name), ("ranks", int(row["ranks"]))):
                    columns[column].append(value)
                columns["speedup"].extend(rounded([row[prefix + "speedup"]]))
    ranks = sorted({1, *columns["ranks"]})
    x, y = ranks_axis(ranks), quantity("speedup", title="speedup", scale={"domainMin": 0})
    color, shape, dash = styled("label", list(own), own)
    tooltip = [{"field": "label", "title": "variant"}, {"field": "ranks"}, quantity("speedup", format=".3r")]
    ideal = [{"ranks": count, "speedup": count} for count in ranks]
    layers = [
        {
            "data": {"values": ideal},
            "mark": {"type": "line", "strokeDash": [2, 3], "color": LINE},
            "encoding": {"x": x, "y": y},
        },
        {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": color, "strokeDash": dash}},
        {"mark": dots(60), "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip}},
    ]
    name = formats.device(device)
    caption = f"{dtype}, size {formats.size(rows.iloc[0])} on {name}s; dotted: ideal"
    shown = {"label": "Variant", "ranks": "Ranks", "speedup": "Speedup"}
    whole = layered(layers, HEIGHT)
    return Figure(f"over-ranks-{device}-{dtype}", caption, columns, whole, shown, dtype, device, group="over-ranks")
