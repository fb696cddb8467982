"""The first screen of the page: the fastest rung in sentences, beside the library over sizes, and over ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.analysis.scaling import base_columns
from hpcmm.analysis.why import Known, limit
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS
from hpcmm.report import findings, formats, vega
from hpcmm.report.chapters.sizes import ratio_against_size
from hpcmm.report.chapters.why import clause
from hpcmm.report.headlines import Headline, by_size, headlines, noise_of
from hpcmm.report.vega import LINE, PALETTE, Figure, Style

HEIGHT = 190  # of a figure; two of them, each with a sentence, fit on one screen beside the first answer


@dataclass(frozen=True)
class Opening:
    """One question of the first screen: its title, and figures of which the page shows one, each with a sentence.

    Without figures, the page shows one of ``headlines``.
    """

    title: str
    figures: Sequence[Figure]
    headlines: Sequence[Headline | None]


def panels(
    frame: pd.DataFrame,
    series: Sequence[Series],
    scaling: pd.DataFrame,
    styles: Mapping[str, Mapping[str, Style]],
    known: Known,
) -> list[Opening]:
    """Return the panels that the measurements allow.

    ``frame`` is from ``analysis.measurements``, ``scaling`` from ``scaling.speedups``; ``styles`` are those of each
    sweep.
    """
    machines = formats.machines(frame["machine"])

    def told(name: str, **about: str) -> Headline | None:
        """Return a headline about a machine, a device and an element type, as far as they are given."""
        both = [frame, scaling]
        for column, wanted in about.items():
            both = [each[each[column] == wanted] for each in both]
        return next((each for each in headlines(*both, machines, frame) if each.name == name), None)

    answers = list(_answers(frame, known, told))
    over_sizes = list(_over_sizes(series, styles, frame))
    over_ranks = [
        (figure, told("Scaling", device=figure.device, dtype=figure.dtype)) for figure in _over_ranks(scaling, styles)
    ]
    found = [
        Opening("Fastest rung", [], answers),
        Opening("Speed over size", *_columns(over_sizes)),
        Opening("Scaling over ranks", *(_columns(over_ranks) if over_ranks else ([], [told("Scaling")]))),
    ]
    if not answers and not over_sizes:  # a file without products
        found.append(Opening("Fastest sum", [], [told("Fastest sum")]))
    return [each for each in found if each.figures or any(each.headlines)]


def _columns(pairs: Sequence[tuple]) -> tuple[list, list]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def _answers(frame: pd.DataFrame, known: Known, told: Callable[..., Headline | None]) -> Iterator[Headline]:
    """Say what is the fastest product, why, and whether to believe it: for each machine, device and type.

    The machine with the most points of several visits comes first, or else of one, then accelerators.
    """
    rows = findings.timed_rungs(frame)
    rows = rows[rows["operation"] == "matmul"]
    counts = analysis.points(frame).groupby("machine")["visits"].agg([lambda visits: (visits > 1).sum(), "size"])
    machines = counts.sort_values(list(counts), ascending=False).index.tolist()
    dtypes = OPERATIONS["matmul"].dtypes

    def place(group: tuple) -> tuple:
        machine, device, dtype = group[0]
        return machines.index(machine), not DEVICES[device].accelerator, dtypes.index(dtype)

    names = ["machine", "device", "dtype"]
    for values, own in sorted(rows.groupby(names, sort=False), key=place):
        about = dict(zip(names, values, strict=True))
        if headline := told("Fastest product", **about):
            best = findings.fastest(analysis.largest(findings.in_own_arithmetic(analysis.row_dicts(own))))
            reason = f"Why: {clause(limit(best, known.facts(best)))}."
            here = frame[(frame["machine"] == about["machine"]) & (frame["device"] == about["device"])]
            yield replace(headline, more=[*headline.more, reason, _belief(here)], **about)


def _belief(rows: pd.DataFrame) -> str:
    rows = analysis.points(rows)
    noise, wrong = rows["spread"].median(), int(((rows["result"] == "FAIL") & ~rows["expected"]).sum())
    quiet = "unknown" if math.isnan(noise) else formats.percent(noise)
    results = f"{wrong or 'no'} unexpected wrong result{'' if wrong == 1 else 's'}"
    counted = f"{len(rows):,} points have" if len(rows) != 1 else "1 point has"
    text = f"Visits of a point differ by {quiet}. {counted} {results}."
    if throttled := int(rows["throttled"].sum()):
        text += f" At {throttled:,} of them the device lowered its clock, so their rates are lower."
    return text


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
        if not formats.size_is_one_number(each.rows):
            continue
        shown = (points["algorithm"] == TEXTBOOK) & (points["result"] == "PASS") & (points["tile"] == 0)
        for device, here in sorted(
            analysis.pooled(points[shown]).groupby("device"),
            key=lambda group: not analysis.on_accelerator(group[1]).any(),
        ):  # fmt: skip
            rows = analysis.row_dicts(here)
            compared = {row["n"] for row in rows if row["role"] == "rung" and row["ratio"] > 0}
            machine, library = rows[0]["machine"], rows[0]["library"]
            if len(compared) < 3 or (each.dtype, device, machine) in known:
                continue
            rungs = (row for row in analysis.largest(rows) if row["role"] == "rung")
            best = [row["label"] for row in findings.fastest_of(rungs, "arithmetic")]
            shown = here[here["label"].isin(best) | (here["role"] != "rung")].reset_index(drop=True)
            own = replace(each, points=shown.assign(fraction=np.nan))  # the first screen has no room for limits
            for figure in ratio_against_size(own, styles[each.sweep], HEIGHT):
                known.add((each.dtype, device, machine))
                caption = f"{each.dtype} on the {formats.device(device)}, relative to {library}"
                caption += "".join(figure.caption.partition(";")[1:])
                name = f"over-sizes-{device}-{each.dtype}"
                drawn = replace(figure, name=name, caption=caption, device=device, machine=machine, group="over-sizes")
                yield drawn, by_size(rows, noise_of(frame, rows[0]))


def _over_ranks(scaling: pd.DataFrame, styles: Mapping[str, Mapping[str, Style]]) -> Iterator[Figure]:
    rows = scaling[(scaling["operation"] == "matmul") & (scaling["kind"] == "strong")]
    for (device, dtype), here in sorted(
        rows.groupby(["device", "dtype"], sort=False), key=lambda group: not analysis.on_accelerator(group[1]).any()
    ):
        alike = (rows for _, rows in here.groupby(["machine", *base_columns(), "sweep"], sort=False))
        here = max(alike, key=lambda rows: (rows["ranks"].nunique(), rows["algorithm"].nunique(), rows["flops"].max()))
        if here["ranks"].nunique() < 3:  # two points are a sentence
            continue
        most = here[here["ranks"] == here["ranks"].max()]
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
                columns["speedup"].extend(vega.rounded([row[prefix + "speedup"]]))
    ranks = sorted({1, *columns["ranks"]})
    x, y = vega.ranks_axis(ranks), vega.quantity("speedup", title="speedup", scale={"domainMin": 0})
    color, shape, dash = vega.styled("label", list(own), own)
    tooltip = [{"field": "label", "title": "variant"}, {"field": "ranks"}, vega.quantity("speedup", format=".3r")]
    ideal = {"data": {"values": [{"ranks": count, "speedup": count} for count in ranks]}}
    dotted = vega.layer({"type": "line", "strokeDash": [2, 3], "color": LINE}, x=x, y=y)
    layers = [ideal | dotted, *vega.curves(x, y, color, shape, dash, tooltip)]
    on = rows["gpu"].iloc[0] or f"{formats.device(device)}s"
    caption = f"{dtype}, size {formats.size(rows.iloc[0])} on {on}; dotted: ideal"
    shown = {"label": "Variant", "ranks": "Ranks", "speedup": "Speedup"}
    whole = vega.layered(layers, HEIGHT)
    return Figure(f"over-ranks-{device}-{dtype}", caption, columns, whole, shown, dtype, device, group="over-ranks")
