"""The tables of the report: cells that Markdown and HTML share, and CSV with every digit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pandas as pd
from tabulate import tabulate

from hpcmm import analysis, compare, occupancy
from hpcmm.analysis import Series
from hpcmm.model import COUNTERS, PHASES, RESOURCES
from hpcmm.operations import OPERATIONS
from hpcmm.scaling import BASE
from hpcmm.store import DIMENSIONS

RATES = {"flops": ("flops_per_second", "GFLOP/s"), "bytes": ("bytes_per_second", "GB/s")}
UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))
RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
SUPERSCRIPTS = str.maketrans("0123456789", RAISED)

# What a CSV file has of each point, in this order, where the timings have it.
POINT_COLUMNS = (
    *(
        "sweep",
        "operation",
        "setting",
        "dtype",
        "ranks",
        *DIMENSIONS,
        "device",
        "machine",
        "variant",
        "tile",
        "label",
        "result",
        "where",
    ),
    *("seconds", "seconds_low", "seconds_high", "repetitions"),
    *("flops_per_second", "flops_per_second_low", "flops_per_second_high"),
    *("bytes_per_second", "bytes_per_second_low", "bytes_per_second_high"),
    *("ratio", "ratio_low", "ratio_high", "fraction", "ceiling", "sm_clock"),
    *("error", "bound", "reference", "arithmetic", "throttled"),
)
LADDER_COLUMNS = ("dtype", "ranks", *DIMENSIONS, "device", "label", "result", "where", "seconds")
LADDER_COLUMNS += ("flops_per_second", "bytes_per_second", "step", "cumulative", "ratio", "fraction", "ceiling")
PHASE_COLUMNS = ("dtype", "ranks", *DIMENSIONS, "device", "label", "call_seconds", "call_seconds_low")
PHASE_COLUMNS += ("call_seconds_high", "call_repetitions", *(f"call_{phase}" for phase in PHASES[:-1]))
PHASE_COLUMNS += (*(f"share_{phase}" for phase in PHASES[:-1]), "seconds", "flops_per_second", "bytes_per_second")
PHASE_COLUMNS += ("call_flops_per_second", "call_bytes_per_second", "call_ratio")
ACTIVITY_COLUMNS = ("dtype", "ranks", *DIMENSIONS, "device", "label", "memory", "activity", "share", "total", "calls")
ACTIVITY_COLUMNS += ("mean", "least", "most")
SCALING_COLUMNS = ("kind", "setting", "dtype", *DIMENSIONS, "device", "label", "ranks", "seconds", "speedup")
SCALING_COLUMNS += ("efficiency", "call_seconds", "call_speedup", "call_efficiency")
PREDICTION_COLUMNS = ("operation", "dtype", *DIMENSIONS, "device", "label", "of", "measured_ranks", "ranks", "seconds")
PREDICTION_COLUMNS += ("predicted_seconds",)
RESOURCE_COLUMNS = (
    "operation",
    "gpu",
    "variant",
    "tile",
    "label",
    "dtype",
    *DIMENSIONS,
    "ranks",
    *RESOURCES,
    "occupancy",
)
RESOURCE_COLUMNS += (*(f"limit_{name.replace(' ', '_')}" for name in occupancy.LIMITS), "limited_by", "computed_blocks")
RESOURCE_COLUMNS += ("phase_loads", "phase_flops", "pending_loads", "bound_flops_per_second")
PROFILE_COLUMNS = ("operation", "gpu", "variant", "tile", "label", "dtype", *DIMENSIONS, "result", "where", "kernel")
PROFILE_COLUMNS += ("launches", *COUNTERS, "shared_wavefronts_per_load", "shared_wavefronts_per_store")


@dataclass(frozen=True)
class Cell:
    """What a reader sees in one place of a table.

    ``kind`` is ``"text"``, ``"number"``, ``"fail"``, or ``"again"`` for a text that the row above has
    too: it is shown once a reader sorts or filters; ``note`` is the small print under it.
    """

    text: str = ""
    note: str = ""
    kind: str = "number"


EMPTY = Cell()

# What the table of the profiler has of a kernel.
COUNTED = ("Occupancy reached", "Threads of a warp", "Global loads GB/s", "Global stores GB/s", "Sectors a load")
COUNTED += ("Sectors a store", "Shared memory pipe", "Wavefronts a shared load", "Wavefronts a shared store")
COUNTED += ("Bank conflicts", "L2 hits", "DRAM reads GB/s", "DRAM writes GB/s", "FMA pipe", "SM throughput")

# Where the page defines what a column has, by the column's name.
DEFINED = {
    **{name: "kernel" for name in ("Time", "Kernel alone")},
    **{name: "rate" for _, name in RATES.values()},
    **{f"{name}, kernel alone": "rate" for _, name in RATES.values()},
    **{f"{name}, whole call": "rate" for _, name in RATES.values()},
    **dict.fromkeys(("Step", "Cumulative"), "step"),
    "Ratio to baseline": "ratio",
    "Of limit": "hardware-limit",
    "Result": "pass",
    **dict.fromkeys((*(phase.capitalize() for phase in PHASES), "Whole call"), "phase"),
    **dict.fromkeys(("Activity", "Share", "Sum", "Calls", "Mean", "Min", "Max"), "activity"),
    **dict.fromkeys(("Registers", "Shared memory", "Local memory"), "registers"),
    **dict.fromkeys(("Block", "Grid", "Blocks an SM", "Threads an SM", "Occupancy"), "occupancy"),
    "Limited by": "limit",
    **dict.fromkeys(("Loads a phase", "Operations a phase", "Pending loads an SM", "Operations a load"), "tile-phase"),
    "GFLOP/s, bandwidth bound": "tile-phase",
    **dict.fromkeys(COUNTED, "profile"),
    "Verdict": "verdict",
    **dict.fromkeys(("Of", "Predicted", "Predicted over measured"), "predicted"),
    **dict.fromkeys(("Scaling", "Speed-up", "Efficiency", "Call speed-up", "Call efficiency"), "scaling"),
}


@dataclass(frozen=True)
class Table:
    """A table as a reader sees it: caption, column heads, rows of cells."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def is_text(self) -> tuple[bool, ...]:
        """Which columns have no number in them and are set flush left."""
        return tuple(
            not any(row[i].kind == "number" and row[i].text for row in self.rows) for i in range(len(self.head))
        )


def leading(texts: Sequence[str], above: Sequence[str]) -> list[Cell]:
    """The first cells of a row, those that the row above has too as ``"again"``."""
    same = [list(texts[: i + 1]) == list(above[: i + 1]) for i in range(len(texts))]
    return [Cell(text, kind="again" if again else "text") for text, again in zip(texts, same, strict=True)]


def spread(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many of the rows, evenly over them and always with the last."""
    if len(rows) <= most:
        return rows
    return rows.iloc[[round((i + 1) * len(rows) / most) - 1 for i in range(most)]]


def at_sizes(rows: pd.DataFrame, most: int) -> tuple[pd.DataFrame, str]:
    """The rows at some of their sizes, and which these are if there are more."""
    sizes = rows[list(DIMENSIONS)].drop_duplicates()
    some = spread(sizes, most)
    if len(some) == len(sizes):
        return rows, ""
    kept = rows[pd.MultiIndex.from_frame(rows[list(DIMENSIONS)]).isin(pd.MultiIndex.from_frame(some))]
    names = f" ({', '.join(size(row) for row in analysis.records(some))})" if len(some) <= 8 else ""
    return kept, f", at {len(some)} of {len(sizes)} sizes{names}; the CSV file has all"


def number(value: float) -> str:
    """Three significant digits, ``"51,200"`` or ``"0.0123"``; nothing for NaN."""
    if not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        return f"{value:.2e}"
    value = float(f"{value:.2e}")
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def amount(size: float) -> str:
    """Bytes in the binary unit that suits them, ``"48 KiB"``."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} B"


def duration(seconds: float) -> str:
    """Three significant digits with the unit that suits them, ``"8.05 ms"``."""
    if not math.isfinite(seconds):
        return ""
    unit, scale = unit_of(seconds)
    return f"{number(seconds * scale)} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit that suits a time, and how many of it a second has."""
    return next((unit, scale) for unit, scale in UNITS if seconds * scale >= 0.9995 or unit == "ns")


def times(ratio: float) -> str:
    """A ratio as a factor, ``"0.85×"``."""
    return f"{number(ratio)}×" if math.isfinite(ratio) else ""


def percent(share: float) -> str:
    """A share, ``"68 %"`` or ``"0.42 %"``; nothing for NaN."""
    if not math.isfinite(share):
        return ""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{number(100 * share)} %"


def size(row: Mapping) -> str:
    """``"4096"`` for a square product, ``"128 × 64 × 32"`` for another, ``"2²²"`` for a vector."""
    shape = [int(row[d]) for d in DIMENSIONS if row[d] > 0] or [0]
    if len(shape) == 1 and shape[0] >= 1024 and shape[0].bit_count() == 1:
        return "2" + str(shape[0].bit_length() - 1).translate(SUPERSCRIPTS)
    return str(shape[0]) if len(set(shape)) == 1 else " × ".join(map(str, shape))


def conditions(series: Series) -> str:
    """What all points of a series share: ``"float32, 2 ranks, alpha 1.5, beta 0.5"``."""
    ranks = f"{series.ranks} rank" + ("s" if series.ranks != 1 else "")
    return ", ".join(filter(None, (series.dtype, ranks, series.setting)))


def rate(row: Mapping, metric: str, prefix: str = "") -> float:
    """Billions of the operation's own count per second."""
    return row[prefix + RATES[metric][0]] / 1e9


def failed(row: Mapping) -> Cell:
    """Instead of the numbers of a point that has none."""
    return Cell(row["result"], row["where"], "fail" if row["result"] == "FAIL" else "text")


def result(row: Mapping) -> str:
    """PASS with the largest error that was found, ``"PASS 3e-07"``; some results have to be exact."""
    accuracy = f" {row['error']:.0e}" if row["bound"] > 0 else " exact"
    besides = [row["arithmetic"], "throttled" if row["throttled"] else ""]
    return ", ".join([row["result"] + accuracy, *filter(None, besides)])


def against_baseline(row: Mapping, prefix: str = "") -> str:
    return "baseline" if row["baseline"] else times(row[prefix + "ratio"])


def ends(row: Mapping, name: str, form: Callable[[float], str]) -> str:
    """The 95 % interval of a number, ``"0.971 to 0.976"``; nothing where it has none."""
    low, high = row[name + "_low"], row[name + "_high"]
    return f"{form(low)} to {form(high)}" if math.isfinite(low) else ""


def size_table(series: Series, most: int | None = None) -> Table:
    """Size by variant: the kernel's rate, its ratio to the baseline, its part of the limit, PASS or FAIL.

    ``most`` sizes at most, if it is given.
    """
    metric = OPERATIONS[series.operation].metric
    labels = series.points.sort_values("place")["label"].unique()
    points, which = at_sizes(series.points, most or len(series.points))
    rows = []
    for _, at in groupby(analysis.records(points), key=itemgetter(*DIMENSIONS)):
        records = {row["label"]: row for row in at}
        cells = [Cell(size(next(iter(records.values()))), kind="text")]
        for label in labels:
            row = records.get(label)
            if row is None:
                cells.append(EMPTY)
            elif row["result"] != "PASS":
                cells.append(failed(row))
            else:
                alone = math.isfinite(row["seconds"])  # else the algorithm is a way to do the whole call
                prefix = "" if alone else "call_"
                parts = ", ".join(filter(None, (against_baseline(row, prefix), percent(row["fraction"]))))
                notes = filter(None, ("" if alone else "whole call", parts, result(row).replace(", ", ",\n")))
                cells.append(Cell(number(rate(row, metric, prefix)), "\n".join(notes)))
        rows.append(tuple(cells))
    head = ("n" if size_is_one_number(series.points) else "m × n × k", *labels)
    return Table(f"{RATES[metric][1]}, {conditions(series)}{which}", head, tuple(rows))


def size_is_one_number(points: pd.DataFrame) -> bool:
    """Whether all shapes are vectors or square products."""
    return bool(
        (
            ((points["m"] == 0) | (points["m"] == points["n"])) & ((points["k"] == 0) | (points["k"] == points["n"]))
        ).all()
    )


def is_ladder(series: Series) -> bool:
    """Whether rungs are to be compared: those that move memory, and those of a product at a single size."""
    sizes = series.points[list(DIMENSIONS)].drop_duplicates()
    return OPERATIONS[series.operation].metric == "bytes" or len(sizes) == 1


def ladder_table(series: Series) -> Table:
    """The ladder at each size: time, rate, step and cumulative speed-up of each rung."""
    metric = OPERATIONS[series.operation].metric
    limited = bool(series.points["fraction"].notna().any())
    rows, above = [], ("", "")
    some, which = at_sizes(series.points, 4)
    for row in analysis.records(analysis.ladder(some)):
        here = (size(row), row["device"])
        cells = [*leading(here, above), Cell(row["label"], kind="text")]
        above = here
        if row["result"] != "PASS":
            cells += [EMPTY] * (5 + limited) + [failed(row)]
        else:
            cells += [Cell(duration(row["seconds"]), ends(row, "seconds", duration)), Cell(number(rate(row, metric)))]
            cells += [Cell(times(row["step"])), Cell(times(row["cumulative"]))]
            cells.append(Cell(against_baseline(row), "" if row["baseline"] else ends(row, "ratio", number)))
            if limited:
                cells.append(Cell(percent(row["fraction"]), row["ceiling"]))
            cells.append(Cell(result(row), kind="text"))
        rows.append(tuple(cells))
    head = (
        "n" if size_is_one_number(series.points) else "m × n × k",
        "Device",
        "Rung",
        "Time",
        RATES[metric][1],
        "Step",
        "Cumulative",
        "Ratio to baseline",
        *(["Of limit"] if limited else []),
        "Result",
    )
    return Table(f"Ladder, {conditions(series)}{which}", head, tuple(rows))


def phase_table(series: Series) -> Table | None:
    """The whole call by phases, and its rate beside that of the kernel alone; None if no call was timed."""
    frame, which = at_sizes(analysis.phases(series.points), 3)
    if frame.empty:
        return None
    metric = OPERATIONS[series.operation].metric
    present = [phase for phase in PHASES[:-1] if frame["call_" + phase].notna().any()]
    rows, above = [], [""]
    for row in analysis.records(frame):
        here = [size(row)]
        cells = [*leading(here, above), Cell(row["label"], kind="text")]
        above = here
        for phase in present:
            share = row["share_" + phase]
            cells.append(Cell(duration(row["call_" + phase]), f"{100 * share:.1f} %" if share == share else ""))
        cells += [Cell(duration(row["call_seconds"])), Cell(number(rate(row, metric)))]
        cells.append(Cell(number(rate(row, metric, "call_"))))
        rows.append(tuple(cells))
    unit = RATES[metric][1]
    head = ("n" if size_is_one_number(frame) else "m × n × k", "Variant", *map(str.capitalize, present), "Total")
    head += (f"{unit}, kernel alone", f"{unit}, whole call")
    return Table(f"Whole calls, {conditions(series)}{which}", head, tuple(rows))


# What a reader calls a phase of the whole call, as profilers do.
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
    """Copies and kernels of the whole calls as a profiler sums them up; None if nothing was moved in one.

    ``activities`` are those of ``analysis.activities`` that belong to the series. Page-locked and
    pageable memory stand below one another, activity by activity.
    """
    activities = activities[(activities["device"] != "cpu") | (activities["ranks"] > 1)]
    if activities.empty:
        return None
    with_memory = bool((activities["memory"] != "").any())
    activities = activities.assign(
        position=activities["activity"].map({phase: i for i, phase in enumerate(PHASES)}),
        first=activities.groupby("rung")["place"].transform("min"),
    ).sort_values(
        [*DIMENSIONS, "first", "position", "memory"], ascending=[*[True] * 5, False], kind="stable", ignore_index=True
    )
    some, which = at_sizes(activities, 4 if with_memory else 1)
    rows, above = [], ("", "", "")
    for row in analysis.records(some):
        here = (size(row), row["rung"], ACTIVITIES.get(row["activity"], row["activity"]))
        cells = leading(here, above)
        above = here
        if with_memory:
            cells.append(Cell(row["memory"], kind="text"))
        cells += [Cell(percent(row["share"])), Cell(duration(row["total"])), Cell(whole(row["calls"]))]
        cells += [Cell(duration(row[name])) for name in ("mean", "least", "most")]
        rows.append(tuple(cells))
    head = ("n" if size_is_one_number(activities) else "m × n × k", "Variant", "Activity")
    head += (*(["Host memory"] if with_memory else []), "Share", "Sum", "Calls", "Mean", "Min", "Max")
    return Table(f"Copies and kernel, {conditions(series)}{which}", head, tuple(rows))


def scaling_table(rows: pd.DataFrame) -> Table:
    """What more ranks gain in one sweep; ``rows`` are of ``scaling.speedups``."""
    by = ["kind", *BASE, "device", "place", "dtype", "setting", "ranks", *DIMENSIONS]
    rows = rows.sort_values(by, kind="stable", ignore_index=True)
    bases, which = at_sizes(rows.assign(**{d: rows[base] for d, base in zip(DIMENSIONS, BASE, strict=True)}), 3)
    some = rows.loc[bases.index]
    typed, set_ = some["dtype"].nunique() > 1, some["setting"].nunique() > 1
    amounts = {"Kernel alone": ("seconds", duration), "Speed-up": ("speedup", times)}
    amounts |= {"Efficiency": ("efficiency", percent), "Whole call": ("call_seconds", duration)}
    amounts |= {"Call speed-up": ("call_speedup", times), "Call efficiency": ("call_efficiency", percent)}
    known = {title: (name, form) for title, (name, form) in amounts.items() if some[name].notna().any()}
    cells, above = [], ("", "", "")
    for row in analysis.records(some):
        more = [text for text, shown in ((row["dtype"], typed), (row["setting"], set_)) if shown]
        here = (row["kind"], size(row), ", ".join([row["label"], *more]))
        line = [*leading(here, above), Cell(whole(row["ranks"]))]
        cells.append((*line, *(Cell(form(row[name])) for name, form in known.values())))
        above = here
    head = ("Scaling", "n" if size_is_one_number(some) else "m × n × k", "Variant", "Ranks", *known)
    return Table(f"Scaling over ranks{which}", head, tuple(cells))


def prediction_table(rows: pd.DataFrame) -> Table:
    """Predicted beside measured, of one sweep's largest problem of each type; of ``scaling.predictions``."""
    rows = rows[rows["work"] == rows.groupby(["device", "dtype"])["work"].transform("max")]
    rows = rows.sort_values(["device", "place", "dtype", "ranks", "seconds"], kind="stable")  # NaN is last
    rows = rows.drop_duplicates(["label", "dtype", "ranks"])
    cells, above = [], ("",) * 4
    for row in analysis.records(rows):
        here = (size(row), row["label"], row["of"], row["dtype"])
        ratio = row["predicted_seconds"] / row["seconds"]
        line = [*leading(here, above), Cell(whole(row["ranks"]))]
        line += [Cell(duration(row["seconds"])) if ratio > 0 else Cell("predicted only", kind="text")]
        cells.append((*line, Cell(duration(row["predicted_seconds"])), Cell(number(ratio))))
        above = here
    head = ("n" if size_is_one_number(rows) else "m × n × k", "Variant", "Of", "Type", "Ranks", "Measured")
    return Table("Predicted by the cost model", (*head, "Predicted", "Predicted over measured"), tuple(cells))


def resource_table(rows: pd.DataFrame) -> Table:
    """What each kernel of one operation takes of an SM; ``rows`` are of ``occupancy.resources``."""
    phased = "phase_loads" in rows and rows["phase_loads"].notna().any()
    cells, above = [], [""]
    for row in analysis.records(rows):
        dynamic, computed = row["dynamic_shared_bytes"], row["computed_blocks"]
        line = [
            *leading([row["label"]], above),
            Cell(row["dtype"], kind="text"),
            Cell(whole(row["registers"])),
            Cell(amount(row["shared_bytes"] + dynamic), "dynamic" if dynamic else ""),
            Cell(amount(row["local_bytes"])),
            Cell(f"{whole(row['block_x'])} × {whole(row['block_y'])}"),
            Cell(f"{whole(row['grid_x'])} × {whole(row['grid_y'])}", size(row)),
            Cell(whole(row["resident_blocks"]), f"computed: {computed}" if computed != row["resident_blocks"] else ""),
            Cell(whole(row["resident_blocks"] * row["block_x"] * row["block_y"])),
            Cell(f"{100 * row['occupancy']:.0f} %"),
            Cell(row["limited_by"], kind="text"),
            *(Cell(whole(row[f"limit_{name.replace(' ', '_')}"])) for name in occupancy.LIMITS),
        ]
        above = [row["label"]]
        if phased:
            line += [Cell(whole(row[name])) for name in ("phase_loads", "phase_flops", "pending_loads")]
            line.append(Cell(number(row["phase_flops"] / row["phase_loads"])))
            line.append(Cell(number(row["bound_flops_per_second"] / 1e9)))
        cells.append(tuple(line))
    head = ("Variant", "Type", "Registers", "Shared memory", "Local memory", "Block", "Grid", "Blocks an SM")
    head += ("Threads an SM", "Occupancy", "Limited by", *(f"Blocks by {name}" for name in occupancy.LIMITS[:-1]))
    head += ("Most blocks",)
    if phased:
        head += ("Loads a phase", "Operations a phase", "Pending loads an SM", "Operations a load")
        head += ("GFLOP/s, bandwidth bound",)
    return Table(f"Resources and occupancy, {_operation_on(rows)}", head, tuple(cells))


def profile_table(rows: pd.DataFrame) -> Table:
    """What the profiler counted of one operation's kernels; ``rows`` are of ``analysis.profiles``."""
    baselines = {variant.name for variant in OPERATIONS[rows["operation"].iloc[0]].ladder if variant.baseline}
    head = ("Variant", "Type", *COUNTED)
    cells, above = [], [""]
    for row in analysis.records(rows):
        kernel = row["kernel"] if row["variant"] in baselines else ""  # what the library chose; ours have no other name
        line = [
            *leading([row["label"]], above),
            Cell(row["dtype"], kernel if len(kernel) <= 32 else kernel[:31] + "…", kind="text"),
        ]
        above = [row["label"]]
        if row["result"] == "FAIL":
            cells.append((*line, failed(row), *[EMPTY] * (len(head) - 3)))
            continue
        possible = percent(row["occupancy"])
        line += [
            Cell(percent(row["achieved_occupancy"]), possible and f"of {possible}"),
            Cell(number(row["active_threads"])),
            Cell(number(row["global_load_bytes_per_second"] / 1e9)),
            Cell(number(row["global_store_bytes_per_second"] / 1e9)),
            Cell(number(row["load_sectors"])),
            Cell(number(row["store_sectors"])),
            Cell(percent(row["shared_pipe"])),
            Cell(number(row["shared_wavefronts_per_load"])),
            Cell(number(row["shared_wavefronts_per_store"])),
            Cell(whole(row["shared_load_conflicts"] + row["shared_store_conflicts"])),
            Cell(percent(row["l2_hits"])),
            Cell(number(row["dram_read_bytes_per_second"] / 1e9)),
            Cell(number(row["dram_write_bytes_per_second"] / 1e9)),
            Cell(percent(row["fma_pipe"])),
            Cell(percent(row["sm_throughput"])),
        ]
        cells.append(tuple(line))
    sizes = ", ".join(dict.fromkeys(size(row) for row in analysis.records(rows)))
    return Table(f"What the profiler says, {_operation_on(rows)} of {sizes}", head, tuple(cells))


def _operation_on(rows: pd.DataFrame) -> str:
    """``"matmul on NVIDIA H200"``, as no two GPUs share such a table."""
    operation, gpu = rows[["operation", "gpu"]].iloc[0]
    return f"{operation} on {gpu}" if gpu else operation


def whole(count: float) -> str:
    """A whole number, ``"8,192"``; nothing for NaN."""
    return f"{count:,.0f}" if math.isfinite(count) else ""


# What a GPU says of itself: its name in the provenance, how a reader calls it, and how its value is printed.
DEVICE_ROWS = (
    ("compute_capability", "Compute capability", lambda value: f"{value[:-1]}.{value[-1]}"),
    ("multiprocessors", "Multiprocessors (SM)", str),
    ("max_sm_clock", "Highest clock of an SM", lambda value: f"{value / 1e6:,.0f} MHz"),
    ("memory_bytes", "Memory", amount),
    ("max_memory_clock", "Highest clock of the memory", lambda value: f"{value / 1e6:,.0f} MHz"),
    ("memory_bus_bits", "Width of the memory bus", lambda value: f"{value:,} bits"),
    ("memory_bytes_per_second", "Bandwidth of the memory by clock and width", lambda value: f"{value / 1e9:,.0f} GB/s"),
    ("peak_float32", "Most float32 operations at the highest clock", lambda value: f"{value / 1e9:,.0f} GFLOP/s"),
    ("peak_float64", "Most float64 operations at the highest clock", lambda value: f"{value / 1e9:,.0f} GFLOP/s"),
    ("units_float64", "Units that do float64 fastest", str),
    ("ecc", "Error correction", lambda value: "on" if value else "off"),
    ("l2_bytes", "L2 cache", amount),
    ("constant_bytes", "Constant memory", amount),
    ("warp_size", "Threads of a warp", str),
    ("block_threads", "Most threads of a block", "{:,}".format),
    ("block_dimensions", "Largest block, x × y × z", lambda value: " × ".join(map("{:,}".format, value))),
    ("grid_dimensions", "Largest grid, x × y × z", lambda value: " × ".join(map("{:,}".format, value))),
    ("block_registers", "Most registers of a block", "{:,}".format),
    ("block_shared_bytes", "Most shared memory of a block", amount),
    ("block_shared_bytes_on_request", "Most shared memory of a block that asks for it", amount),
    ("sm_threads", "Most resident threads of an SM", "{:,}".format),
    ("sm_blocks", "Most resident blocks of an SM", str),
    ("sm_registers", "Registers of an SM", "{:,}".format),
    ("sm_shared_bytes", "Shared memory of an SM", amount),
    ("reserved_shared_bytes", "Shared memory reserved of each block's", amount),
)


def device_table(gpus: Sequence[Mapping]) -> Table | None:
    """Properties of each kind of GPU, a column each; None if the provenance has none."""
    kinds: list[tuple[str, ...]] = []
    for gpu in gpus:
        kind = (str(gpu.get("name", "GPU")), *(printed(gpu.get(key), form) for key, _, form in DEVICE_ROWS))
        if kind not in kinds:
            kinds.append(kind)
    rows = tuple(
        (Cell(name, kind="text"), *(Cell(kind[i]) for kind in kinds))
        for i, (_, name, _) in enumerate(DEVICE_ROWS, 1)
        if any(kind[i] for kind in kinds)
    )
    return Table("GPU", ("Property", *(kind[0] for kind in kinds)), rows) if rows else None


def device_csv(gpus: Sequence[Mapping]) -> str:
    """The same in plain units, one row a kind of GPU."""
    names = ["name", *(key for key, _, _ in DEVICE_ROWS)]
    rows = [{name: gpu[name] for name in names if name in gpu} for gpu in gpus]
    return pd.DataFrame([row for i, row in enumerate(rows) if row not in rows[:i]]).to_csv(
        index=False, lineterminator="\n"
    )


def printed(value: object, form: Callable[..., str]) -> str:
    """A value of the provenance; nothing where it is missing or not what it should be."""
    try:
        return form(value) if value is not None else ""
    except (TypeError, ValueError, IndexError):
        return ""


def comparison_table(rows: pd.DataFrame) -> Table:
    """Points of two files beside each other; ``rows`` are of ``compare.compare``."""
    order = {verdict: i for i, verdict in enumerate(compare.VERDICTS)}
    rows = rows.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    cells = []
    for row in analysis.records(rows):
        kind = "fail" if row["verdict"] in ("broken", "FAIL") else "text"
        known = math.isfinite(row["low"])
        cells.append(
            (
                Cell(row["verdict"], row["where"] if kind == "fail" else "", kind),
                *(Cell(text, kind="text") for text in (row["sweep"], row["label"], size(row), row["dtype"])),
                Cell(whole(row["ranks"])),
                Cell(duration(row["before"])),
                Cell(duration(row["after"])),
                Cell(times(row["ratio"])),
                Cell(times(row["low"]) if known else ""),
                Cell(times(row["high"]) if known else ""),
                Cell(number(row["p"])),
            )
        )
    head = ("Verdict", "Sweep", "Variant", "Size", "Type", "Ranks", "Before", "After", "Speed", "from", "to", "p")
    return Table("Points of both files; the speed is that of the second over the first", head, tuple(cells))


def plain(table: Table) -> str:
    """A table for a terminal."""
    sides = ["left" if words else "right" for words in table.is_text]
    return tabulate(_printed(table), table.head, disable_numparse=True, colalign=sides)


def failure_table(frame: pd.DataFrame) -> Table:
    """Every measurement that failed, and where."""
    what = "First wrong element: result - truth = difference"
    return _points_table("Wrong results", what, frame, lambda row: Cell(row["where"], kind="fail"))


def missing_table(frame: pd.DataFrame) -> Table:
    """Every point that was tried and could not be measured, and why."""
    return _points_table("Missing", "Reason", frame, lambda row: Cell(row["where"], kind="text"))


def throttling_table(frame: pd.DataFrame) -> Table:
    """Every measurement during which the device was slowed down, and by what."""
    return _points_table(
        "Throttled",
        "Reason",
        frame,
        lambda row: Cell(analysis.throttling_names(row["throttle_reasons"]), kind="text"),
    )


def _points_table(caption: str, what: str, frame: pd.DataFrame, cell: Callable[[Mapping], Cell]) -> Table:
    rows = tuple(
        (
            *(Cell(text, kind="text") for text in (row["sweep"], row["label"], size(row))),
            cell(row),
            Cell(row["dtype"], kind="text"),
            Cell(str(row["ranks"])),
        )
        for row in analysis.records(frame)
    )
    return Table(caption, ("Sweep", "Variant", "Size", what, "Type", "Ranks"), rows)


def omitted_table(frame: pd.DataFrame) -> Table:
    """What was planned and never tried, and why; one row for all that share sweep and reason."""
    rows = tuple(
        (
            Cell(sweep, kind="text"),
            Cell(", ".join(dict.fromkeys(group["variant"])), kind="text"),
            Cell(", ".join(str(ranks) for ranks in sorted(set(group["ranks"])))),
            Cell(reason, kind="text"),
        )
        for (sweep, reason), group in frame.groupby(["sweep", "reason"], sort=False)
    )
    return Table("Left out", ("Sweep", "Variants", "Ranks", "Reason"), rows)


def markdown(tables: Sequence[Table]) -> str:
    """Pipe tables, each under its caption; text from a file stays text."""
    parts = []
    for table in tables:
        lines = [[_escaped(text) for text in line] for line in (table.head, *_printed(table))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        flush = [str.ljust if words else str.rjust for words in table.is_text]
        rule = [
            ":" + "-" * (w + 1) if words else "-" * (w + 1) + ":"
            for w, words in zip(widths, table.is_text, strict=True)
        ]
        padded = [
            "| " + " | ".join(side(text, width) for side, text, width in zip(flush, line, widths, strict=True)) + " |"
            for line in lines
        ]
        text = "\n".join([padded[0], "|" + "|".join(rule) + "|", *padded[1:]])
        parts.append(f"**{_escaped(table.caption)}**\n\n{text}\n")
    return "\n".join(parts)


LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {character: "\\" + character for character in "&%$#_{}"}
    | {raised: rf"\textsuperscript{{{digit}}}" for digit, raised in enumerate(RAISED)}  # pdflatex knows only three
)


def latex(tables: Sequence[Table]) -> str:
    """Tables for the package booktabs, each with its caption; text from a file stays text."""
    parts = []
    for table in tables:
        sides = "".join("l" if words else "r" for words in table.is_text)
        head, *rows = [
            " & ".join(text.translate(LATEX) for text in line) + r" \\" for line in (table.head, *_printed(table))
        ]
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{table.caption.translate(LATEX)}}}"]
        lines += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        lines += [r"\end{tabular}", r"\end{table}", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def _printed(table: Table) -> list[list[str]]:
    """The texts of the cells, each with its note, on a line of their own; nothing for what is there above."""
    return [
        [
            "" if cell.kind == "again" else " ".join(f"{cell.text} {cell.note and f'({cell.note})'}".split())
            for cell in row
        ]
        for row in table.rows
    ]


def _escaped(text: str) -> str:
    for character in "\\`*_<>[]|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


def csv(frames: Sequence[pd.DataFrame], columns: Sequence[str]) -> str:
    """One row a point, in plain units (seconds, flops_per_second), every digit; empty where there is none."""
    frame = pd.concat(frames)
    own = [name for name in frame.columns if name in columns]
    return frame[sorted(own, key=columns.index)].to_csv(index=False, lineterminator="\n")
