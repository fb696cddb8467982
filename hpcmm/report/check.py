"""A check as a table for the terminal and as a page."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hpcmm import analysis, store
from hpcmm.analysis.health import Check
from hpcmm.report import formats, page, sheet, tables
from hpcmm.report.markup import Cell, Table, words
from hpcmm.report.vega import Figure, category, layer, layered, quantity, rounded, tooltip

LEAST = 10  # per cent that the axis of differences shows in each direction
HEAT = ("#1f5fa8", "#eef3f9")  # fastest, slowest
DIVERGING = ["#1f5fa8", "#f1f1f1", "#d1495b"]  # faster than the peers, as fast, slower


def slower(share: float) -> str:
    return f"{100 * share:+.1f} %" if math.isfinite(share) else ""


def table(findings: pd.DataFrame, caption: str) -> Table:
    """Make a table of findings: the device, the measurement, the slowdown and its probability."""

    def chance(p: float) -> str:
        return "" if math.isnan(p) else "below 1e-12" if p < 1e-12 else f"{p:.1g}"

    def verdict(row: tables.Row) -> Cell:
        return Cell("slow", kind="fail") if row["slow"] else words("not compared" if math.isnan(row["p"]) else "")

    columns = {
        "Node": lambda row: words(row["subject"].node),
        "Slot": lambda row: words(str(row["subject"].slot)),
        "UUID": lambda row: words(row["subject"].uuid),
        "Measurement": tables.text("measurement"),
        "Received from": lambda row: words(row["source"].name if row["source"] else ""),
        **{"Against": tables.text("against"), "Time": tables.value("seconds", formats.duration)},
        **{"Slower by": tables.value("slowdown", slower), "Chance": tables.value("p", chance), "Verdict": verdict},
    }
    return tables.table(caption, findings.to_dict("records"), columns)


def slow_table(check: Check) -> Table:
    return table(check.slow, "Slow devices; the chance is the probability of such a difference without a cause")


def history_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table of the histories of devices, from rows of ``check.history``."""
    columns = tables.columns_of("checks", before=tables.value("before", slower), now=tables.value("now", slower))
    return tables.table("Slower than the median of the peers: in earlier checks, and now", rows, columns)


def overview(findings: pd.DataFrame) -> Figure:
    """Draw the slowdown of each device in each measurement; a slow one has a border and its number."""
    columns = {
        "measurement": list(findings["measurement"]),
        "device": [subject.name for subject in findings["subject"]],
        "slower": rounded(100 * findings["slowdown"]),
        "verdict": list(findings["slow"].map({True: "slow", False: "not slow"})),
        "text": list((100 * findings["slowdown"]).map("{:+.0f}".format).where(findings["slow"], "")),
    }
    names, devices = (list(dict.fromkeys(columns[key])) for key in ("measurement", "device"))
    # the longer list stands in lines, whose names do not overlap
    across, down = sorted((("measurement", names), ("device", devices)), key=lambda axis: len(axis[1]))
    axis = {"labelLimit": 340, "domain": False, "ticks": False}
    place = {
        "x": category(across[0], sort=across[1], title=None, axis=axis | {"orient": "top", "labelAngle": -40}),
        "y": category(down[0], sort=down[1], title=None, axis=axis),
    }
    # a difference of a tenth of a percent must not look like one of a half
    most = max(LEAST, *(abs(finding) for finding in columns["slower"] if finding is not None))
    scale = {"domain": [-most, 0, most], "range": DIVERGING}
    heat = quantity("slower", title="slower than the median of the peers, %", scale=scale, legend={"titleLimit": 300})
    shown = {"device": "Device", "measurement": "Measurement", "slower": "Slower, %", "verdict": "Verdict"}
    border = {"type": "rect", "filled": False, "stroke": "#b3141d", "strokeWidth": 2}
    layers = [
        layer({"type": "rect", "stroke": "#ffffff"}, **place, color=heat, tooltip=tooltip(shown)),
        layer(border, "datum.verdict == 'slow'", **place),
        layer({"type": "text", "color": "#16202c"}, **place, text=category("text")),
    ]
    return Figure("devices", "Slowdown by device and measurement", columns, layered(layers, 26 * len(down[1])), shown)


def chart_of(measurement: str) -> str:
    """Return the title of the figure of a link: exchanges at all distances are one matrix."""
    return re.sub(r"(neighbours|distance_\d+)_", "links_", measurement)


def heat_map(findings: pd.DataFrame, name: str, caption: str) -> Figure:
    """Draw the speed of each measured link over that of the median link."""
    median = sorted(findings["seconds"])[len(findings) // 2]
    columns = {
        "receiver": [subject.name for subject in findings["subject"]],
        "source": [source.name for source in findings["source"]],
        "speed": rounded(median / findings["seconds"]),
        "verdict": list(findings["slow"].map({True: "slow", False: ""})),
    }
    shown = {"source": "From", "receiver": "To", "speed": "Speed over the median link", "verdict": "Verdict"}
    order = {"type": "nominal", "sort": list(dict.fromkeys(columns["receiver"]))}  # of the ranks, in both directions
    place = {
        "x": {"field": "source", "title": "from", "axis": {"labelAngle": -40}, **order},
        "y": {"field": "receiver", "title": "to", **order},
    }
    heat = quantity("speed", title="speed over the median link", scale={"range": list(HEAT[::-1]), "domainMin": 0})
    layers = [
        layer("rect", **place, color=heat, tooltip=tooltip(shown)),
        layer({"type": "text", "color": "#16202c"}, **place, text=category("verdict")),
    ]
    return Figure(name, caption, columns, layered(layers, max(120, 30 * len(findings))), shown)


def build(
    check: Check, columns: analysis.Columns, timings: str, target: Path, history: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Write the page of a check of ``columns``, from the file ``timings``, with rows of ``check.history``."""
    slow, peers = check.slow, check.with_peers
    between, links = slow["source"].notna(), peers[peers["source"].notna()]
    counts = [
        ("devices", len(check.subjects), ""),
        ("slow devices", slow.loc[~between, "rank"].nunique(), "wrong"),
        ("slow links", len(slow[between].drop_duplicates(["subject", "source"])), "wrong"),
        ("faults", len(check.broken), "wrong"),
    ]
    alone = peers[peers["source"].isna()].dropna(subset="slowdown")
    charts = links.groupby(links["measurement"].map(chart_of), sort=False)
    drawn = [heat_map(own, f"link-{i}", name) for i, (name, own) in enumerate(charts, 1)]
    names = tuple(subject.name for subject in check.subjects)
    sections = []
    if len(slow):
        states = [("fail", f"{len(slow)} slow")]
        sections.append(sheet.Section("Slow", tables=[slow_table(check)], states=states))
    if len(alone):
        sections.append(sheet.Section("Devices", figures=[overview(alone)]))
    if drawn:
        about = "A cell is one direction of a link, while all links are busy. Cells without colour were not measured."
        sections.append(sheet.Section("Links", [about], drawn))
    if history:
        sections.append(sheet.Section("History", tables=[history_table(history)]))
    sections.append(sheet.Section("All measurements", folded=[table(check.findings, "All measurements")]))
    notes = [  # names of hosts and of sweeps are kept as they are
        f"{note}." if note.startswith(names) or note.split()[0].endswith(":") else f"{note[:1].upper()}{note[1:]}."
        for note in (check.line, *check.notes, *check.broken, *(f"{name}: {why}" for name, why in check.blind.items()))
    ]
    machine = page.machine_line(page.conditions(analysis.runs(columns)))
    about = f"{machine} · {timings}" if machine else timings
    store.write_text(target, sheet.render("Check", about, counts, notes, sections))
