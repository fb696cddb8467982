"""Publish a run: results/reference/ and what README.md shows of it.

    python docs/published.py [TIMINGS]

With a timings file, that one is taken as the published run. Then the report, the figures and the tables between
the README's marks ``<!-- published: NAME -->`` and ``<!-- end -->`` are made anew from results/reference/timings.h5.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from tabulate import tabulate

from hpcmm import analysis, report, store
from hpcmm.analysis import Columns
from hpcmm.operations import OPERATIONS
from hpcmm.report import findings, formats, page
from hpcmm.scaling import speedups

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"
# the figures that the README shows: sweep, and the rest of the name in the report
FIGURES = {
    "ladder": ("ladder", "float32-r1-ladder-cuda"),
    "tiles": ("tile", "float32-r1-tiles"),
    "scaling": ("distributed", "strong-cuda-float32"),
}
MARKED = re.compile(r"(<!-- published: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(arguments: Sequence[str]) -> None:
    timings = REFERENCE / "timings.h5"
    if arguments:
        store.merge([Path(arguments[0])], timings, single=True)
    with tempfile.TemporaryDirectory() as folder:
        made, summary = report.build(timings, Path(folder))
        shutil.copyfile(made, REFERENCE / "report.html")
        columns = store.read(timings)
        frame = analysis.measurements(columns)
        for name, (sweep, rest) in FIGURES.items():
            for machine in _of(frame, [sweep])["machine"].unique():  # one or none
                for shown in (sweep, f"{sweep} ({machine})"):
                    drawn = Path(folder, "figures", f"{quote(shown, safe='')}-{rest}.svg")
                    if drawn.exists():
                        shutil.copyfile(drawn, REFERENCE / f"{name}.svg")
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text("utf-8"), columns), "utf-8")
    print(f"{REFERENCE}: {summary.line}")


def filled(text: str, columns: Columns | None) -> str:
    """A text with what stands between its marks made from a timings file, or without numbers if there is none."""
    columns = columns or store.joined([])
    frame = analysis.measurements(columns)

    def section(mark: re.Match) -> str:
        content = SECTIONS[mark["name"]](columns, frame)
        return f"{mark[1]}{content}\n{mark[3]}" if content else f"{mark[1]}{mark[3]}"

    return MARKED.sub(section, text)


def run(columns: Columns, frame: pd.DataFrame) -> str:
    """What was measured where, what matters most of it, and the figure of the ladder."""
    if frame.empty:
        return ""
    conditions = dict(page.conditions(analysis.runs(columns)))
    names = ("GPU" if "GPU" in conditions else "CPU", "Date (UTC)")
    where = "; ".join(" and ".join(conditions[name]) for name in names if name in conditions)
    apart = analysis.apart(frame)
    first = findings.headlines(apart, speedups(apart))
    return (
        f"[The report](results/reference/report.html) of the published run ({where})\nis made from "
        f"[timings.h5](results/reference/timings.h5): {analysis.summary(columns, frame).line}.\n\n"
        + "".join(f"- {each.name}: **{each.value}**, {each.text}.\n" for each in first)
        + f"{_revisions(columns, frame)}\n{_figure('ladder')}"
    )


def _revisions(columns: Columns, frame: pd.DataFrame) -> str:
    """Which sweep is of which revision, if there are several; the newest first."""
    known = [each["provenance"] for each in analysis.runs(columns)]
    made = [(str(each.get("utc", "")), str(each.get("revision") or "unknown")[:7]) for each in known]
    shown = frame[~frame["superseded"]]
    sweeps: dict[str, list[str]] = {}
    for (_, revision), sweep in sorted(
        {(made[i], sweep) for i, sweep in zip(shown["run"], shown["sweep"], strict=True)}
    ):
        sweeps.setdefault(revision, []).append(sweep)
    if len(sweeps) < 2:
        return ""
    lists = (f"{revision} ({', '.join(dict.fromkeys(names))})" for revision, names in reversed(sweeps.items()))
    return f"\nIts sweeps are of several revisions, between which kernels may have changed: {'; '.join(lists)}.\n"


def ladder(operation: str, sweeps: Sequence[str]) -> Callable[[Columns, pd.DataFrame], str]:
    """Every rung of an operation, and what it reached in the published run: of several tiles the fastest."""
    about = OPERATIONS[operation]
    unit = formats.RATES[operation][1]

    def section(columns: Columns, frame: pd.DataFrame) -> str:
        rows = _fastest(frame, operation, sweeps)
        dtypes = [dtype for dtype in about.dtypes if (rows["dtype"] == dtype).any()]
        dtypes = dtypes if about.metric == "flops" else dtypes[:1]  # only bytes count for the others
        steps = about.metric == "bytes"
        head = ["rung", "on", "what changes"]
        for dtype in dtypes:
            head += [f"{dtype} {unit}", *(["× first rung"] if steps else []), "× library"]
        cells = []
        for variant in about.ladder:
            name = f"*baseline*: {variant.change}" if variant.baseline else variant.change
            line = [f"`{variant.name}`", formats.device(variant.device), name]
            for dtype in dtypes:
                here = rows[(rows["dtype"] == dtype) & (rows["device"] == variant.device)]
                line += _reached(here, variant.name, steps)
            cells.append(line)
        table = _table(head, cells)
        if not dtypes:
            return table
        sizes = {formats.device(device): formats.size(at.iloc[0]) for device, at in rows.groupby("device")}
        at = " and ".join(f"{size} on the {device}" for device, size in sizes.items())
        if len(set(sizes.values())) < len(sizes):
            at = next(iter(sizes.values()))
        fastest = "; of several tiles the fastest" if "tile" in rows and rows["tile"].notna().any() else ""
        return f"{table}\n\nThe numbers are those of the published run at {at}{fastest}."

    return section


def _reached(here: pd.DataFrame, variant: str, steps: bool) -> list[str]:
    own = here[here["variant"] == variant]
    if own.empty:
        return [""] * (2 + steps)
    row = own.iloc[0]
    first = here[here["baseline"] == 0].iloc[0]
    ratio = formats.number(row["ratio"])
    if pd.notna(row["ratio_low"]) and not row["baseline"]:
        ratio += f" ({formats.number(row['ratio_low'])} to {formats.number(row['ratio_high'])})"
    gain = [formats.number(first["seconds"] / row["seconds"])] if steps else []
    return [formats.number(formats.rate(row)), *gain, ratio]


def _fastest(frame: pd.DataFrame, operation: str, sweeps: Sequence[str]) -> pd.DataFrame:
    """The largest size that all variants of a device have, on one rank: the fastest of each variant's tiles."""
    rows = _of(frame, sweeps)
    rows = rows[(rows["operation"] == operation) & (rows["ranks"] == 1) & rows["seconds"].notna()]
    found = []
    for _, on_device in rows.groupby("device", sort=False):
        variants = on_device.groupby("n")["variant"].nunique()
        at = on_device[on_device["n"] == variants[variants == variants.max()].index.max()]
        at = at.sort_values("seconds", kind="stable").drop_duplicates(["variant", "dtype"])
        found.append(at.sort_values("place", kind="stable"))
    return pd.concat(found) if found else rows


def accuracy(columns: Columns, frame: pd.DataFrame) -> str:
    """Speed and largest error of the rungs with other arithmetic, the fastest one without, and the library."""
    rows = _fastest(frame, "matmul", ["ladder"])
    rows = rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32")]
    if rows.empty:
        return ""
    usual = rows[(rows["arithmetic"] == "") & (rows["baseline"] == 0)].nsmallest(1, "seconds")
    shown = pd.concat([usual, rows[(rows["arithmetic"] != "") | (rows["baseline"] == 1)]])
    cells = [
        [f"`{row['variant']}`", row["arithmetic"] or "float32", formats.number(row["ratio"]), f"{row['error']:.1e}"]
        for row in analysis.records(shown)
    ]
    return _table([f"float32 at {formats.size(shown.iloc[0])}", "arithmetic", "× library", "largest error"], cells)


def shapes(columns: Columns, frame: pd.DataFrame) -> str:
    """The fastest rungs beside the library, in float32, by size and shape."""
    rows = _of(frame, ["size", "shape"])
    if rows.empty:
        return ""
    rows = rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32") & (rows["ranks"] == 1)]
    best = rows[rows["baseline"] == 0].groupby("variant")["ratio"].max().nlargest(4)
    shown = rows[rows["variant"].isin(best.index)].sort_values("place", kind="stable")
    variants = list(dict.fromkeys(shown["variant"]))
    cells = []
    for _, own in shown.sort_values("flops", kind="stable").groupby(["m", "n", "k"], sort=False):
        ratios = own.drop_duplicates("variant").set_index("variant")["ratio"].map(formats.number)
        cells.append([formats.size(own.iloc[0]), *(ratios.get(variant, "") for variant in variants)])
    return _table(["× library, float32; m × n × k", *(f"`{variant}`" for variant in variants)], cells)


def tiles(columns: Columns, frame: pd.DataFrame) -> str:
    """GFLOP/s and share of the library by variant and tile, at the largest size."""
    rows = _of(frame, ["tile"])
    if rows.empty:
        return ""
    rows = rows[(rows["dtype"] == "float32") & (rows["ranks"] == 1) & rows["tile"].notna()]
    rows = rows[rows["n"] == rows["n"].max()]
    widths = sorted(rows["tile"].unique())
    cells = [
        [f"`{variant}`", *(_joined(own[own["tile"] == width], "flops_per_second", "ratio") for width in widths)]
        for variant, own in rows.sort_values("place").groupby("variant", sort=False)
    ]
    head = [f"float32 GFLOP/s at {rows['n'].iloc[0]} (× library)", *(f"tile {width:g}" for width in widths)]
    return f"{_table(head, cells)}\n\n{_figure('tiles')}"


def transfer(columns: Columns, frame: pd.DataFrame) -> str:
    """Whole calls from page-locked and from pageable memory beside the kernel alone."""
    rows = _of(frame, ["transfer"])
    if rows.empty:
        return ""
    rows = rows[(rows["device"] == "cuda") & rows["call_seconds"].notna()]
    cells = []
    rows = rows.assign(first=rows.groupby("rung")["place"].transform("min")).sort_values(["first", "n"])
    for (rung, _), own in rows.groupby(["rung", "n"], sort=False):
        kinds = {row["memory"]: row for row in analysis.records(own)}
        if {"pinned", "pageable"} <= kinds.keys():
            pinned, pageable = kinds["pinned"], kinds["pageable"]
            seconds = (pinned["seconds"], pinned["call_seconds"], pageable["call_seconds"])
            gain = pageable["call_seconds"] / pinned["call_seconds"]
            cells.append([rung, pinned["n"], *map(formats.duration, seconds), formats.number(gain)])
    head = [rows["dtype"].iloc[0], "n", "kernel alone", "whole call, pinned", "whole call, pageable", "pinned gains"]
    return _table(head, cells)


def scaling(columns: Columns, frame: pd.DataFrame) -> str:
    """Rate and efficiency of each algorithm over 1, 2, 4, ... GPUs, at the largest size."""
    rows = _of(frame, ["distributed"])
    rows = rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32")]
    if rows.empty:
        return ""
    gains = speedups(rows)
    gains = gains[gains["kind"] == "strong"]
    if gains.empty:
        return ""
    at = gains[gains["flops"] == gains["flops"].max()]
    ranks = sorted(at["ranks"].unique())
    cells = []
    for (algorithm, variant), own in at.sort_values("place").groupby(["algorithm", "variant"], sort=False):
        call = "call" in OPERATIONS["matmul"].algorithm(algorithm).measures
        prefix = "call_" if call else ""
        by_ranks = (own[own["ranks"] == count] for count in ranks)
        shown = (
            _joined(one, f"{prefix}flops_per_second", f"{prefix}efficiency", 1e12, formats.percent) for one in by_ranks
        )
        cells.append([f"`{algorithm}`", f"`{variant}`", "whole call" if call else "on the devices", *shown])
    what = f"float32 TFLOP/s at {formats.size(at.iloc[0])} (efficiency)"
    head = [what, "local product", "", *(f"{count} GPU{'s' if count > 1 else ''}" for count in ranks)]
    return (
        "Over several GPUs of one machine, [algorithm](#over-several-ranks) by algorithm; the efficiency is beside\n"
        f"the fastest product on one GPU with the same arithmetic:\n\n{_table(head, cells)}\n\n{_figure('scaling')}"
    )


def _of(frame: pd.DataFrame, sweeps: Sequence[str]) -> pd.DataFrame:
    """The points of sweeps that passed, of each sweep on the machine with the most ranks and then the most points."""
    rows = analysis.points(frame)
    rows = rows[rows["sweep"].isin(sweeps) & (rows["result"] == "PASS")]
    kinds = rows.groupby(["sweep", "machine"], sort=False)["ranks"].agg(["max", "size"]).sort_values(["max", "size"])
    chosen = kinds.reset_index().drop_duplicates("sweep", keep="last")
    return rows.merge(chosen[["sweep", "machine"]])


def _joined(rows: pd.DataFrame, rate: str, beside: str, unit: float = 1e9, form=formats.number) -> str:
    """A rate and what stands beside it in parentheses."""
    if rows.empty:
        return ""
    row = rows.iloc[0]
    part = form(row[beside])
    return formats.number(row[rate] / unit) + (f" ({part})" if part else "")


def _figure(name: str) -> str:
    return f"![{name.capitalize()} of the published run](results/reference/{name}.svg)"


def _table(head: Sequence[str], cells: Sequence[Sequence[object]]) -> str:
    numbers = [all(str(line[i])[:1].isdigit() for line in cells if line[i] != "") for i in range(len(head))]
    sides = ["right" if number else "left" for number in numbers]
    return tabulate(cells, head, tablefmt="pipe", disable_numparse=True, colalign=sides)


SECTIONS = {
    "run": run,
    "matmul": ladder("matmul", ["ladder", "cpu_ladder"]),
    "sum": ladder("sum", ["reduction_ladder"]),
    "vector_add": ladder("vector_add", ["vector_add"]),
    "accuracy": accuracy,
    "shapes": shapes,
    "tiles": tiles,
    "transfer": transfer,
    "scaling": scaling,
}

if __name__ == "__main__":
    main(sys.argv[1:])
