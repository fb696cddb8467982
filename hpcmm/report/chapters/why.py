"""Rooflines."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis.why import NO_LIMIT, Step
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS, drawings
from hpcmm.report import formats, vega
from hpcmm.report.chapters.chapter import chapter
from hpcmm.report.chapters.ladder import chain_of
from hpcmm.report.ratio import SAME
from hpcmm.report.vega import BESIDE, DASHES, LINE, MARKERS, PALETTE, Figure
from hpcmm.system.text import number

HEIGHT, LEAST_WIDTH = 380, 260  # of a roofline, on a phone [pixels]
SIDE = {"align": "datum.left ? 'right' : 'left'", "dx": "datum.left ? -9 : 9"}  # of a point, for its name
MOST_STEPS = 12  # with more, those beside the climb are folded
APART = 15  # pixels between the middles of two names


def rooflines(frame: pd.DataFrame) -> Iterator[Figure]:
    """Draw the highest rate of each rung over its arithmetic intensity, with the limits of hardware and run."""
    # of several machines with such a GPU, that with the most rungs
    roofs = sorted(analysis.rooflines(frame), key=lambda roof: len(roof.rungs), reverse=True)
    roofs = list({(roof.device, roof.dtype, *set(roof.rungs["gpu"])): roof for roof in reversed(roofs)}.values())[::-1]
    machines = list(dict.fromkeys(roof.machine for roof in roofs))
    for roof in roofs:
        rows = roof.rungs.sort_values("flops_per_second", ascending=False, kind="stable", ignore_index=True)
        intensity = rows["flops"] / rows["bytes"]
        peak = max(flops for _, flops, _ in roof.ceilings)
        unit = formats.rate_unit("matmul", roof.dtype, max(peak, rows["flops_per_second"].max()))
        columns = {"label": list(rows["label"]), "operation": list(rows["operation"])}
        columns |= {"size": list(map(formats.size, analysis.row_dicts(rows))), "intensity": vega.rounded(intensity)}
        columns["rate"] = vega.rounded(rows["flops_per_second"] / unit.scale)
        columns["fraction"] = vega.rounded(rows["fraction"])
        first, last = min(intensity.min() / 2, 0.05), max(intensity.max() * 2, 10)
        lines = []
        for name, flops, nbytes in roof.ceilings:
            stops = [first, *(knee for knee in [flops / nbytes] if first < knee < last), last]
            lines += [{"x": x, "y": min(flops, nbytes * x) / unit.scale, "of": name} for x in stops]
        low = min(line["y"] for line in lines)
        along = _logarithmic(intensity, first, last, LEAST_WIDTH)
        up = _logarithmic(rows["flops_per_second"] / unit.scale, low, peak / unit.scale, HEIGHT)
        columns["name"], columns["left"] = _names(list(rows["label"]), along, up)
        log = {"scale": {"type": "log", "nice": False, "padding": 8}, "axis": vega.tens_axis(-3, 9)}
        within = vega.tens_axis(-3, math.floor(math.log10(last / 2)) + 1)  # the number at the right end would be cut
        x = log | {"title": "operations per byte of compulsory traffic", "axis": within}
        y = log | {"title": unit.name}
        operations = list(dict.fromkeys(rows["operation"]))
        ranges = [{"domain": operations, "range": list(each[: len(operations)])} for each in (PALETTE, MARKERS)]
        color, shape = (vega.category("operation", scale=scale, legend={"title": None}) for scale in ranges)
        names = [name for name, *_ in roof.ceilings]
        dashes = {"domain": names, "range": list(DASHES[: len(names)])}
        dash = vega.category("of", scale=dashes, legend={"title": None})
        tooltip = [{"field": field} for field in ("label", "operation", "size")]
        tooltip.append(vega.quantity("rate", title=unit.name, format=",.3r"))
        tooltip.append(vega.quantity("fraction", title="of limit", format=".0%"))
        position = {"x": vega.quantity("intensity", **x), "y": vega.quantity("rate", **y)}
        line = {"type": "line", "color": LINE, "strokeWidth": 2}
        limits = vega.layer(line, x=vega.quantity("x", **x), y=vega.quantity("y", **y), strokeDash=dash)
        beside = {"type": "text", "fontSize": 11} | {name: {"expr": each} for name, each in SIDE.items()}
        layers = [
            limits | {"data": {"values": lines}},
            vega.layer(vega.dots(70, opacity=0.85), **position, tooltip=tooltip, color=color, shape=shape),
            vega.layer(beside, **position, text={"field": "name"}) | {"name": BESIDE},
        ]
        caption = f"Roofline of the {formats.device(roof.device)} in {roof.dtype}: every rung at its fastest size"
        number = f"-{machines.index(roof.machine) + 1}" if len(machines) > 1 else ""
        if number:
            caption += f"; {roof.machine}"
        shown = {"label": "Variant", "operation": "Operation", "size": "Size", "intensity": "Operations per byte"}
        shown |= {"rate": unit.name} | ({"fraction": "Of limit"} if rows["fraction"].notna().any() else {})
        whole = vega.layered(layers, HEIGHT)
        yield Figure(f"{roof.device}-{roof.dtype}{number}", caption, columns, whole, shown, roof.dtype, roof.device)


def _logarithmic(values: Iterable[float], first: float, last: float, pixels: int) -> list[float]:
    return [pixels * math.log(value / first) / (math.log(last / first) or 1.0) for value in values]


def _names(labels: Sequence[str], along: Sequence[float], up: Sequence[float]) -> tuple[list[str], list[int]]:
    """Choose the points that bear their name, the fastest first, and whether it stands at their left.

    A name covers neither another name, nor a point, nor the end of the figure, at the width that a phone has.
    """
    taken: list[tuple[float, float, float]] = []
    names, sides = [], []
    for label, x, y in zip(labels, along, up, strict=True):
        left = x > LEAST_WIDTH / 2
        begin, end = (x - vega.text_width(label), x) if left else (x, x + vega.text_width(label))
        free = begin >= 0 and end <= LEAST_WIDTH
        free &= all(abs(y - other) >= APART or end < start or stop < begin for start, stop, other in taken)
        near = (at for at, other in zip(along, up, strict=True) if abs(y - other) < APART / 2 < abs(at - x))
        free &= not any(begin < at < end for at in near)
        names.append(label if free else "")
        sides.append(int(left))
        taken += [(begin, end, y)] if free else []
    return names, sides


FROM = {"resources": "resources", "traffic": "source"}  # where reasons come from, besides counters
UNEXPLAINED = {
    "counters": "The reason is not known: no counter and no resource in the file differs in this direction.",
    "resources": "The reason is not known: the file lacks counters of one rung, and the resources do not explain it.",
    "traffic": "The reason is not known: neither the traffic of the source nor the number of threads explains it.",
    "nothing": "The reason is not known: this device has neither counters nor resources.",
}


def effect(step: Step) -> str:
    """Return the ratio of the times with its interval and the verdict, ``"1.10× (1.09 to 1.12), faster"``."""
    ends = f" ({number(step.low)} to {number(step.high)})" if math.isfinite(step.low) else ""
    return f"{formats.times(step.ratio)}{ends}, {verdict(step)}"


def verdict(step: Step) -> str:
    """Return the verdict in words. A difference that is significant but below 1 % is called that."""
    if step.verdict == "same":
        if math.isfinite(step.low) and step.low <= 1 <= step.high:
            return SAME
        return f"less than 1 % {'faster' if step.ratio > 1 else 'slower'}"
    return "no interval: less than a factor of 2 is not judged" if step.verdict == "unclear" else step.verdict


def reason(step: Step) -> str:
    reasons, despite = map("; ".join, (step.reasons, step.despite))
    clear = step.verdict in ("faster", "slower")
    parts = []
    if step.source in FROM and step.reasons:
        parts.append(f"From the {FROM[step.source]}, without counters:")
    if step.counted:
        parts.append(f"By the counters of {step.counted}:")
    if reasons:
        effect = "what changed: " if step.verdict == "unclear" else "changes without significant effect: "
        text = reasons if clear else f"{effect}{reasons}"
        parts.append(f"{text}." if parts else _sentence(text))
        parts += [f"Against it: {despite}."] if clear and despite else []
    elif clear:
        parts.append(UNEXPLAINED[step.source])
    elif step.source != "nothing":
        none = f"no {step.source.removesuffix('s')} differs by more than 10 %"
        parts.append(f"{none}." if parts else _sentence(none))
    return " ".join(parts)


def sentence(step: Step) -> str:
    told = step.limit != NO_LIMIT or (step.source in ("counters", "resources") and step.rung["gpu"])
    limit = _sentence(step.limit) if step.source != "nothing" and told else ""
    return " ".join(filter(None, (f"{effect(step)}.", reason(step), limit)))


def rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the lines of a ladder: names of both rungs, the effect, its cause, all sentences, and the rung's page.

    Of many steps, those beside the climb are ``aside``. Of the others, that with the largest effect has its drawing.
    """
    climb = _climb(steps) if len(steps) > MOST_STEPS else steps
    pictures = {id(step): next(drawings.of(_page(step)), "") for step in climb if cause(step)}
    drawn = [step for step in climb if pictures.get(id(step))]
    largest = max(drawn, key=lambda step: abs(math.log(step.ratio)), default=None)
    lines = []
    for step in steps:
        line = {"rung": step.rung["rung"], "below": step.below["rung"], "change": change(step.rung)}
        line |= {"effect": effect(step), "cause": cause(step), "text": sentence(step), "page": _page(step)}
        line["aside"] = not any(step is other for other in climb)
        lines.append(line | {"picture": pictures[id(step)] if step is largest else ""})
    return lines


def _climb(steps: Sequence[Step]) -> list[Step]:
    """Return the steps from the first rung to the fastest one in the arithmetic of the type, on each device."""
    climb = []
    for device in dict.fromkeys(step.rung["device"] for step in steps):
        own = {step.rung["label"]: step for step in steps if step.rung["device"] == device}
        rungs = {label: step.rung for label, step in own.items()}
        chain = chain_of(rungs, {label: {"counterpart": step.below["label"]} for label, step in own.items()})
        climb += [own[label] for label in chain[1:]]
    return climb


def _page(step: Step) -> str:
    return page_of(*(step.rung[name] for name in ("operation", "variant", "device")))


def cause(step: Step) -> str:
    """Return the strongest reason of a significant step; empty without one."""
    known = step.reasons if step.verdict in ("faster", "slower") else ()
    return _sentence(known[0]) if known else ""


def notes(steps: Sequence[Step]) -> list[str]:
    """List the steps without a cause: steps without a significant difference, and steps whose cause is not known."""
    without = [step for step in steps if not cause(step)]
    unknown = [step for step in without if step.verdict in ("faster", "slower")]
    same = [step.rung["rung"] for step in without if step not in unknown]
    texts = [f"No significant difference: {', '.join(same)}."] if same else []
    if unknown:
        sources = {step.source for step in unknown}
        why = UNEXPLAINED[sources.pop()] if len(sources) == 1 else "The reason is not known."
        names = ", ".join(step.rung["rung"] for step in unknown)
        texts.append(f"{names}: {why[:1].lower()}{why[1:]}")
    return texts


def page_of(operation: str, variant: str, device: str) -> str:
    """Return the name of the page of a rung in the documentation."""
    return f"{OPERATIONS[operation].kernels}-{variant}" + ("" if DEVICES[device].accelerator else f"-{device}")


def change(row: Mapping[str, Any]) -> str:
    """Return the change in the record of a rung; empty for a rung that was removed since."""
    variant = OPERATIONS[row["operation"]].find(row["variant"])
    return variant.change if variant else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


CHAPTER = chapter("why")
