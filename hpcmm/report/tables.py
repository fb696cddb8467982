"""The tables of the report: rounded for Markdown, LaTeX and HTML, with every digit for CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series, compare
from hpcmm.analysis.scaling import base_columns
from hpcmm.analysis.tidy import SHORT
from hpcmm.dtypes import DTYPES
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.quantities import DATA, PHASES
from hpcmm.report.formats import (
    RateUnit,
    amount,
    at_sizes,
    billions,
    conditions,
    duration,
    ends,
    number,
    percent,
    rate,
    rate_unit,
    rate_unit_of,
    size,
    size_title,
    times,
    whole,
)
from hpcmm.report.markup import EMPTY, Cell, Table, grouped, words
from hpcmm.report.ratio import Ratio, is_itself
from hpcmm.text import printable

SHORT_MARK = "†"
CONTRADICTING = 4  # measured ranks from which predictions of more ranks are shown
Row = Mapping[str, Any]
Column = Callable[[Row], Cell]


def table(caption: str, rows: pd.DataFrame, columns: Mapping[str, Column], leading: int = 0) -> Table:
    """Make a table with one line per row; the first ``leading`` cells of a line are shown where they change."""
    known = analysis.row_dicts(rows)
    lines = [[cell(row) for cell in columns.values()] for row in known]
    sized = set(dimensions()) <= set(rows)
    of_rows = [(size(row) if sized else "", row.get("device", ""), row.get("dtype", "")) for row in known]
    return Table(caption, tuple(columns), grouped(lines, leading), of_rows)


def level_table(rows: pd.DataFrame, device: str) -> Table:
    """Make the table of the levels of memory of one device, from ``analysis.levels``."""

    def known(name: str, form: Callable[[Row], str]) -> Column:
        return lambda row: Cell(form(row)) if math.isfinite(row[name]) else EMPTY

    def of(kind: str) -> Column:
        return lambda row: words(
            f"{row[f'{kind}_variant']}, {amount(row[f'{kind}_bytes'])}" if row[f"{kind}_variant"] else ""
        )

    columns: dict[str, Column] = {
        "Level": lambda row: words(row["level"] or amount(np.nanmax([row["latency_bytes"], row["bandwidth_bytes"]]))),
        "Latency, ns": known(
            "latency_seconds",
            lambda row: number(row["latency_seconds"] * 1e9),
        ),
        "Cycles": known("latency_cycles", lambda row: number(row["latency_cycles"])),
        "Chase": of("latency"),
        "Bandwidth, GB/s": known(
            "bytes_per_second",
            lambda row: number(row["bytes_per_second"] / 1e9),
        ),
        "Read by": of("bandwidth"),
    }
    if rows["latency_cycles"].isna().all():  # the clock of a CPU is not known
        del columns["Cycles"]
    return table(f"Levels of memory of the {device}", rows, columns)


def text(name: str) -> Column:
    return lambda row: words(row[name])


def value(name: str, form: Callable[[Any], str]) -> Column:
    return lambda row: Cell(form(row[name]))


def of_size(row: Row) -> Cell:
    return words(size(row))


def failed(row: Row) -> Cell:
    """Return the cell of a point without numbers: its result, and the wrong element or the reason."""
    return Cell(row["result"], row["where"], "fail" if row["result"] == "FAIL" else "text")


def result(row: Row) -> str:
    """Format PASS with the largest error, or ``"PASS exact"`` where no error is allowed, and notes on the point."""
    accuracy = f" {row['error']:.0e}" if row["bound"] > 0 else " exact"
    notes = [row["arithmetic"], row["pick"], row["schedule"], "throttled" if row["throttled"] else ""]
    return ", ".join([row["result"] + accuracy, *filter(None, notes)])


def marked(text: str, row: Row) -> str:
    """A time or rate, with a mark if it is so short that the events around it count."""
    return f"{text} {SHORT_MARK}" if row["short"] else text


def marked_caption(caption: str, points: pd.DataFrame) -> str:
    """The caption of a table, with the meaning of the mark if a point has it."""
    if not points["short"].any():
        return caption
    return f"{caption}; {SHORT_MARK} below {SHORT} times an empty pair of CUDA events"


def clock(row: Row) -> str:
    """The SM clock during the kernel, ``"1.75 GHz"``; files of earlier versions lack it."""
    return f"{row['clock'] / 1e9:.2f} GHz" if row["clock"] > 0 else "unknown"


def against_baseline(row: Row, prefix: str = "") -> str:
    """Format the ratio to the baseline; it names both arithmetics if they differ."""
    return "baseline" if row["baseline"] else Ratio.to_library(row, prefix + "ratio").short


def against_tuned(row: Row) -> str:
    """Format the ratio to the tuned library, ``"0.992× tuned"``; empty if it is unknown, and for that library."""
    ratio = Ratio.to_library(row, "tuned_ratio").short
    return f"{ratio} tuned" if ratio and not is_itself(row, "tuned_ratio") else ""


def tuned_cell(row: Row) -> Cell:
    """Return the ratio to the tuned library with its interval, or why there is none."""
    ratio = Ratio.to_library(row, "tuned_ratio")
    if math.isfinite(ratio.value):
        return words("itself") if is_itself(row, "tuned_ratio") else Cell(ratio.short, ends(row, "tuned_ratio", number))
    if not row["tuned_library"]:
        return Cell("–", "this library has no tuned call")
    return Cell("–", f"{row['tuned_library'].partition(' ')[0]} was not measured beside it")


def libraries(points: pd.DataFrame) -> str:
    """Name the libraries of the ratios of a table, with their versions, ``"library: cublas 13.1"``."""
    texts = []
    for title, ratio, column in (("library", "ratio", "library"), ("tuned", "tuned_ratio", "tuned_library")):
        compared = points[points[ratio].notna() & (points["algorithm"] == TEXTBOOK) & (points["baseline"] == 0)]
        if known := " and ".join(name for name in dict.fromkeys(compared[column]) if name):
            texts.append(f"{title}: {known}")
    return "; ".join(texts)


def size_table(series: Series, most: int | None = None) -> Table:
    """Make the table of sizes by variants: kernel rate, ratio to the baseline, fraction of the limit, PASS or FAIL.

    It has at most ``most`` sizes, if that is given.
    """
    labels = series.points.sort_values("place")["label"].unique()
    points, which = at_sizes(series.points, most or len(series.points))
    unit, lines = rate_unit_of(series.points), []
    for _, at in groupby(analysis.row_dicts(points), key=itemgetter(*dimensions())):
        rows = {row["label"]: row for row in at}
        known = [_rate_cell(rows[label], unit) if label in rows else EMPTY for label in labels]
        lines.append([of_size(next(iter(rows.values()))), *known])
    caption = "; ".join(filter(None, (f"{unit.name}, {conditions(series)}{which}", libraries(series.points))))
    head, of_rows = (size_title(series.points), *labels), [(line[0].text, "", "") for line in lines]
    devices = series.points.drop_duplicates("label").set_index("label")["device"]
    return Table(marked_caption(caption, points), head, lines, of_rows, ("", *(devices[label] for label in labels)))


def _rate_cell(row: Row, unit: RateUnit) -> Cell:
    if row["result"] != "PASS":
        return failed(row)
    alone = math.isfinite(row["seconds"])  # otherwise the algorithm is timed end to end only
    prefix = "" if alone else "call_"
    limit = f"{percent(row['fraction'])} at {clock(row)}" if row["clock"] > 0 else percent(row["fraction"])
    parts = ", ".join(filter(None, (against_baseline(row, prefix), against_tuned(row), limit)))
    notes = filter(None, ("" if alone else "end to end", parts, result(row).replace(", ", ",\n")))
    return Cell(marked(rate(row, prefix, unit), row), "\n".join(notes))


def ladder_table(series: Series) -> Table | None:
    """Make the table of the ladder at each size: time, rate, step and cumulative speedup of each rung.

    None for a product at several sizes.
    """

    def if_passed(cell: Column, otherwise: Column = lambda row: EMPTY) -> Column:
        return lambda row: cell(row) if row["result"] == "PASS" else otherwise(row)

    def ratio_cell(row: Row) -> Cell:
        return Cell(against_baseline(row), "" if row["baseline"] else ends(row, "ratio", number))

    if OPERATIONS[series.operation].metric == "flops" and len(set(analysis.shapes(series.points))) > 1:
        return None
    some, which = at_sizes(series.points, 4)
    unit = rate_unit_of(series.points)
    columns: dict[str, Column] = {
        size_title(series.points): of_size,
        "Device": text("device"),
        "Rung": text("label"),
        "Time": lambda row: Cell(marked(duration(row["seconds"]), row), ends(row, "seconds", duration)),
        unit.name: lambda row: Cell(rate(row, unit=unit)),
        "Step": value("step", times),
        "Cumulative": value("cumulative", times),
        "Ratio to baseline": if_passed(ratio_cell),
    }
    if (series.points["ratio"].notna() & (series.points["tuned_library"] != "")).any():
        columns["Ratio to tuned library"] = if_passed(tuned_cell)
    if series.points["fraction"].notna().any():
        columns["Of limit"] = if_passed(lambda row: Cell(percent(row["fraction"]), row["ceiling"]))
        columns["SM clock"] = if_passed(lambda row: Cell(clock(row)))
    columns["Result"] = if_passed(lambda row: words(result(row)), failed)
    return table(
        marked_caption("; ".join(filter(None, (f"Ladder, {conditions(series)}{which}", libraries(some)))), some),
        analysis.ladder(some),
        columns,
        leading=2,
    )


def energy_table(series: Series) -> Table | None:
    """Make the table of points with energy: time, clock, power, and rate over power; None without any."""
    points = series.points[series.points["watts"].notna()]
    if points.empty:
        return None
    unit = rate_unit_of(points)
    column = unit.column.replace("_per_second", "_per_joule")
    columns: dict[str, Column] = {
        size_title(points): of_size,
        "Device": text("device"),
        "Rung": text("label"),
        "Time": lambda row: Cell(duration(row["seconds"])),
        unit.name: lambda row: Cell(rate(row, unit=unit)),
    }
    if (points["clock"] > 0).any():
        columns["SM clock"] = lambda row: Cell(clock(row))
    columns |= {
        "Power, W": value("watts", number),
        f"{rate_unit(series.operation, series.dtype).name} per W": lambda row: Cell(billions(row[column])),
    }
    return table(f"Clocks and energy, {conditions(series)}", points, columns, leading=2)


def accuracy_table(series: Series) -> Table | None:
    """Make the table of errors on each kind of data, in units of the unit roundoff; None without any."""
    points = series.points[series.points["error_uniform"].notna()]
    if points.empty:
        return None
    unit = DTYPES[series.dtype].unit_roundoff

    def of(name: str) -> Column:
        return lambda row: Cell(number(row[name] / unit))

    columns: dict[str, Column] = {
        size_title(points): of_size,
        "Device": text("device"),
        "Rung": text("label"),
        "Arithmetic": lambda row: Cell(row["arithmetic"] or row["dtype"]),
    }
    columns |= {
        f"{kind.capitalize()}, {title}": of(f"{name}_{kind}")
        for kind in DATA
        for name, title in (("error", "largest"), ("rms", "RMS"))
    }
    return table(f"Errors in units of u |A| |B|, {conditions(series)}", points, columns, leading=2)


def phase_table(series: Series) -> Table | None:
    """Make the table of end-to-end times by phase, with both rates; None if no call was timed."""

    def of_phase(phase: str) -> Column:
        def cell(row: Row) -> Cell:
            share = row["share_" + phase]
            return Cell(duration(row["call_" + phase]), percent(share))

        return cell

    rows, which = at_sizes(analysis.phases(series.points), 3)
    if rows.empty:
        return None
    unit = rate_unit_of(series.points)
    columns: dict[str, Column] = {size_title(rows): of_size, "Variant": text("label")}
    columns |= {phase.capitalize(): of_phase(phase) for phase in PHASES[:-1] if rows["call_" + phase].notna().any()}
    columns |= {
        "Total": value("call_seconds", duration),
        f"{unit.name}, kernel alone": lambda row: Cell(rate(row, unit=unit)),
        f"{unit.name}, end to end": lambda row: Cell(rate(row, "call_", unit)),
    }
    return table(f"End-to-end times, {conditions(series)}{which}", rows, columns, leading=1)


# Phases of a call, under the names that profilers use
ACTIVITIES = {
    "scatter": "scatter (MPI)",
    "broadcast": "broadcast (MPI)",
    "upload": "host to device",
    "pitch": "device to device (pitch)",
    "kernel": "kernel",
    "download": "device to host",
    "gather": "gather (MPI)",
}


def activity_table(series: Series, activities: pd.DataFrame) -> Table | None:
    """Make the table of copies and kernels as a profiler lists them; None if no call moved anything.

    ``activities`` are the rows of ``analysis.activities`` that belong to the series. For each activity, page-locked
    and pageable memory are in adjacent rows.
    """
    activities = activities[analysis.on_accelerator(activities) | (activities["ranks"] > 1)]
    if activities.empty:
        return None
    with_memory = bool((activities["memory"] != "").any())
    activities = activities.assign(
        position=activities["activity"].map({phase: i for i, phase in enumerate(PHASES)}),
        first=activities.groupby("rung")["place"].transform("min"),
    ).sort_values(
        [*dimensions(), "first", "position", "memory"], ascending=[*[True] * 5, False], kind="stable", ignore_index=True
    )
    some, which = at_sizes(activities, 4 if with_memory else 1)
    columns: dict[str, Column] = {
        size_title(activities): of_size,
        "Variant": text("rung"),
        "Activity": lambda row: words(ACTIVITIES.get(row["activity"], row["activity"])),
        **({"Host memory": text("memory")} if with_memory else {}),
        "Share": value("share", percent),
        "Sum": value("total", duration),
        "Calls": value("calls", whole),
        **{title: value(name, duration) for title, name in (("Mean", "mean"), ("Min", "least"), ("Max", "most"))},
    }
    return table(f"Copies and kernel, {conditions(series)}{which}", some, columns, leading=3)


def scaling_table(rows: pd.DataFrame) -> Table:
    """Make the table of speedup and efficiency over ranks of one sweep; ``rows`` are from ``scaling.speedups``."""
    by = ["kind", *base_columns(), "device", "place", "dtype", "setting", "ranks", *dimensions()]
    rows = rows.sort_values(by, kind="stable", ignore_index=True)
    bases, which = at_sizes(
        rows.assign(**{d: rows[base] for d, base in zip(dimensions(), base_columns(), strict=True)}), 3
    )
    some = rows.loc[bases.index]
    named = ["label", *(name for name in ("dtype", "setting") if some[name].nunique() > 1)]
    amounts = {"Kernel alone": ("seconds", duration), "Speedup": ("speedup", times)}
    amounts |= {"Efficiency": ("efficiency", percent), "Of slowest": ("efficiency_of_slowest", percent)}
    amounts |= {"End to end": ("call_seconds", duration)}
    amounts |= {"End-to-end speedup": ("call_speedup", times)}
    amounts |= {"End-to-end efficiency": ("call_efficiency", percent)}
    columns: dict[str, Column] = {
        "Scaling": text("kind"),
        size_title(some): of_size,
        "Variant": lambda row: words(", ".join(filter(None, [*(row[name] for name in named), row["arithmetic"]]))),
        "Ranks": value("ranks", whole),
        **{title: value(name, form) for title, (name, form) in amounts.items() if some[name].notna().any()},
    }
    return table(f"Scaling over ranks{which}", some, columns, leading=3)


def prediction_table(rows: pd.DataFrame) -> Table:
    """Make the table of predicted and measured times of the largest problem, from ``scaling.predictions``.

    It has other numbers of ranks than the measured ones only if these could contradict the model.
    """
    rows = rows[(rows["measured_ranks"] >= CONTRADICTING) | rows["seconds"].notna()]
    rows = rows[rows["work"] == rows.groupby(["device", "dtype"])["work"].transform("max")]
    rows = rows.sort_values(["device", "place", "dtype", "ranks", "seconds"], kind="stable")  # NaN is last
    rows = rows.drop_duplicates(["label", "dtype", "ranks"])
    rows = rows.assign(ratio=rows["predicted_seconds"] / rows["seconds"])
    columns: dict[str, Column] = {
        size_title(rows): of_size,
        "Variant": text("label"),
        "Timed": text("of"),
        "Type": text("dtype"),
        "Ranks": value("ranks", whole),
        "Measured": lambda row: Cell(duration(row["seconds"])) if row["ratio"] > 0 else words("predicted only"),
        "Predicted": value("predicted_seconds", duration),
        "Predicted over measured": value("ratio", number),
    }
    if rows["held_out"].notna().any():
        columns["Held-out error"] = lambda row: Cell("" if row["ratio"] > 0 else percent(row["held_out"]))
    return table("Predicted by the cost model", rows, columns, leading=4)


def comparison_table(rows: pd.DataFrame) -> Table:
    """Make the table that compares two files point by point; ``rows`` are from ``compare.compare``."""

    def verdict(row: Row) -> Cell:
        wrong = row["verdict"] in ("broken", "FAIL")
        return Cell(row["verdict"], row["where"] if wrong else "", "fail" if wrong else "text")

    order = {verdict: i for i, verdict in enumerate(compare.VERDICTS)}
    rows = rows.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    columns: dict[str, Column] = {
        "Verdict": verdict,
        "Sweep": text("sweep"),
        "Variant": text("label"),
        "Size": of_size,
        "Type": text("dtype"),
        "Ranks": value("ranks", whole),
        "Before": value("before", duration),
        "After": value("after", duration),
        "Speedup": value("ratio", times),
        "from": value("low", times),
        "to": value("high", times),
        "p": value("p", number),
        "Adjusted p": value("adjusted", number),
        "Found from": value("least", percent),
    }
    return table("Points of both files; speedup of the second file over the first", rows, columns)


def grades_table(result: Mapping[str, Any]) -> Table:
    """Make the table of the points of many submissions; ``result`` is from ``grading.submissions``."""
    rows = []
    for each in result["submissions"]:
        cells = [Cell(f"{grade['points']:g}") for grade in each["exercises"]]
        rows.append([words(printable(each["name"])), Cell(f"{each['points']:g}"), *cells])
    return Table("Points", ["Submission", f"of {result['of']:g}", *result["exercises"]], rows)


def exercises_table(submission: Mapping[str, Any]) -> Table:
    """Make the table of the exercises of one submission; of a message of several lines, it has the first."""

    def verdict(grade: Mapping[str, Any]) -> Cell:
        return words("PASS") if grade["passed"] else Cell("FAIL", printable(grade["why"].partition("\n")[0]), "fail")

    def shown(value: float | None, form: Callable[[float], str]) -> Cell:
        return EMPTY if value is None else Cell(form(value))

    rows = [
        [
            *(words(grade["exercise"]), verdict(grade), Cell(f"{grade['points']:g}"), Cell(f"{grade['of']:g}")),
            *(words(grade["device"]), shown(grade["ratio"], times), words(grade["against"])),
            *(shown(grade[key], duration) for key in ("seconds", "seconds_against")),
        ]
        for grade in submission["exercises"]
    ]
    head = ["Exercise", "Verdict", "Points", "Of", "Device", "Speedup", "Over", "Time", "Time of the other"]
    return Table(f"Exercises of {printable(submission['name'])}", head, rows)


def failure_table(frame: pd.DataFrame) -> Table:
    """Make the table of all wrong results, each with its first wrong element."""
    what = "First wrong element: result - reference = difference"
    return _points_table("Wrong results", frame, what, lambda row: Cell(row["where"], kind="fail"))


def unmeasured_table(frame: pd.DataFrame) -> Table:
    """Make the table of points that could not be measured, with the reasons."""
    return _points_table("Not measured", frame, "Reason", text("where"))


def throttling_table(frame: pd.DataFrame) -> Table:
    """Make the table of points during which the device throttled, with the reasons."""

    def reasons(row: Row) -> Cell:
        return words(analysis.throttling_names(row["throttle_reasons"]))

    return _points_table("Throttled", frame, "Reason", reasons)


def _points_table(caption: str, frame: pd.DataFrame, what: str, cell: Column) -> Table:
    columns = {"Sweep": text("sweep"), "Variant": text("label"), "Size": of_size, what: cell}
    return table(caption, frame, columns | {"Type": text("dtype"), "Ranks": value("ranks", str)})


def omitted_table(caption: str, frame: pd.DataFrame) -> Table:
    """Make a table of the group ``omitted``, one row per sweep and reason; points left out by the plan do not count."""
    rows = [
        [
            words(sweep),
            words(", ".join(dict.fromkeys(group["variant"]))),
            Cell(", ".join(str(ranks) for ranks in sorted(set(group["ranks"])))),
            Cell(str(group["points"].sum() or "")),
            words(reason),
        ]
        for (sweep, reason), group in frame.groupby(["sweep", "reason"], sort=False)
    ]
    return Table(caption, ("Sweep", "Variants", "Ranks", "Points", "Reason"), rows)
