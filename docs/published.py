"""Publish a run: results/reference/ and the parts of README.md and docs/ that show it.

    python docs/published.py [TIMINGS]

With TIMINGS, that file becomes the published run, without points that a later run in it measured again. Then the
report, the figures, and the text between the marks ``<!-- published: NAME -->`` and ``<!-- end -->`` are rewritten from
results/reference/timings.h5, and the names in the last column of docs/coverage.md. The atlas, a run of
examples/atlas.yaml, is a file of its own, results/reference/atlas.h5.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import atlas
import climb
import covered
import numpy as np
import pandas as pd
from playwright.sync_api import sync_playwright
from tabulate import tabulate

from hpcmm import analysis, report, store
from hpcmm.analysis import Columns, documents
from hpcmm.analysis.scaling import speedups
from hpcmm.analysis.why import Known
from hpcmm.cli.unmeasured import unmeasured
from hpcmm.experiment.config import read_config, validated
from hpcmm.model import Variant
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS
from hpcmm.report import answer, formats, headlines, markup, page, tables
from hpcmm.report.chapters import courses, memory, same_bits
from hpcmm.report.ratio import Ratio, arithmetic_of, is_itself
from hpcmm.system.text import folded, number, percent, short_revision

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"
# Figures on the pages: sweep, and the rest of the file name in the report
FIGURES = {
    "ladder": ("ladder", "float32-r1-ladder-cuda"),
    "tiles": ("tile", "float32-r1-tiles"),
    "scaling": ("distributed", "strong-cuda-float32"),
}
MARKED = re.compile(r"(<!-- published: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(arguments: Sequence[str]) -> None:
    timings = REFERENCE / "timings.h5"
    if arguments:
        part = newest(store.read(Path(arguments[0])))
        store.write_groups(timings, store.merged([part], unmeasured(part)), single=True)
    with tempfile.TemporaryDirectory() as folder:
        made, summary = report.build(timings, Path(folder))
        shutil.copyfile(made, REFERENCE / "report.html")
        columns = store.read(timings)
        frame = analysis.measurements(columns)
        for name, (sweep, rest) in FIGURES.items():
            for machine in _of(frame, [sweep])["machine"].unique():  # at most one
                for shown in (sweep, f"{sweep} ({machine})"):
                    drawn = Path(folder, "figures", f"{quote(shown, safe='')}-{rest}.svg")
                    if drawn.exists():
                        shutil.copyfile(drawn, REFERENCE / f"{name}.svg")
        for drawn in Path(folder, "figures").glob("course-*.svg"):
            shutil.copyfile(drawn, REFERENCE / drawn.name)
    atlas.draw(REFERENCE)
    photograph(REFERENCE / "report.html", REFERENCE / "report.png")
    for path in pages():
        path.write_text(filled(path, columns, frame), "utf-8")
    coverage = ROOT / covered.PAGE
    coverage.write_text(covered.updated(coverage.read_text("utf-8"), columns), "utf-8")
    print(f"{REFERENCE}: {summary.line}")


def newest(groups: store.Groups) -> store.Groups:
    """Return a file without the points that a later run on the same kind of machine measured again."""
    again = analysis.measurements(groups)["superseded"].to_numpy(bool)
    return store.select(groups, np.flatnonzero(~again))


def photograph(shown: Path, target: Path) -> None:
    """Write an image of the first screen of a page, where there is a browser."""
    browser = shutil.which("chromium-headless-shell")
    if browser is None:
        print(f"{target}: not written, because there is no chromium-headless-shell")
        return
    with sync_playwright() as started:
        launched = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        window = launched.new_page(viewport={"width": 1280, "height": 800})
        window.goto(shown.as_uri())
        window.wait_for_selector("svg")
        window.screenshot(path=target)


def pages() -> list[Path]:
    """Return the pages that show parts of the published run."""
    every = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/courses/*.md")))
    return [path for path in every if MARKED.search(path.read_text())]


def filled(path: Path, columns: Columns, frame: pd.DataFrame) -> str:
    """Return a page with the text between its marks made from a timings file and its measurements."""
    above = "../" * (len(path.relative_to(ROOT).parts) - 1)

    def section(mark: re.Match) -> str:
        content = re.sub(r"\]\((?=results/|examples/)", f"]({above}", SECTIONS[mark["name"]](columns, frame))
        return f"{mark[1]}{content}\n{mark[3]}" if content else f"{mark[1]}{mark[3]}"

    return MARKED.sub(section, path.read_text("utf-8"))


def summary(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the machines, the fastest rungs of the usual types relative to the library, the ladder and the report."""
    if frame.empty:
        return ""
    shown = SCREENSHOT if (REFERENCE / "report.png").exists() else ""
    source = _source(columns, frame, ", [configs](docs/results.md)")
    parts = [source, short(frame), efficiency(frame), _figure("ladder"), shown]
    return "\n\n".join(filter(None, parts))


def first(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the first line of ``short`` as a sentence, and the ladder."""
    row = next((row for row in _fastest_rungs(frame) if not row["arithmetic"]), None)
    if row is None:
        return ""
    beside = f" and {tuned(row)} times that of {row['tuned_library']}"
    text = (
        f"On the {row['gpu'] or row['machine']}, the rung `{row['variant']}` multiplies {row['dtype']} matrices of "
        f"size {formats.size(row)} at {formats.rate_text(row)}, {_ratio(row)} times the rate of {row['library']}"
        f"{beside if math.isfinite(row['tuned_ratio']) else ''}."
    )
    return f"{text}\n\n{_figure('ladder')}"


def answered(columns: Columns, frame: pd.DataFrame) -> str:
    """Return what ``hpcmm show`` prints about the file."""
    if frame.empty:
        return ""
    lines = (folded(line, 100) for line in answer.answer(columns, frame))
    return "\n".join(["```text", *lines, "```"])


def run(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the machines, the revisions, and the figure of the ladder."""
    if frame.empty:
        return ""
    source = _source(columns, frame, _configs(columns))
    return "\n\n".join(filter(None, [source, _revisions(columns, frame), _figure("ladder")]))


def _source(columns: Columns, frame: pd.DataFrame, configs: str) -> str:
    conditions = dict(page.conditions(analysis.runs(columns)))
    names = ("GPU" if "GPU" in conditions else "CPU", "Date (UTC)")
    where = "; ".join(" and ".join(conditions[name]) for name in names if name in conditions)
    summary = analysis.summary(columns, frame)
    return (
        f"Published run: {where}.\n[Report](results/reference/report.html), "
        f"[timings.h5](results/reference/timings.h5){configs}. {summary.line}; "
        f"{summary.single} have one visit."
    )


SPREAD = ("ranks", "dtypes")  # what the runs of a sweep may divide between them


def _configs(columns: Columns) -> str:
    """Return links to configs, also examples, whose sweeps the runs were made from, whole or in parts."""
    asked: dict[str, set] = {}  # sweep without what may be divided: each rank and type
    for run in analysis.runs(columns):
        for name, entry in (analysis.mapping(run.get("config")).get("sweeps") or {}).items():
            whole, parts = _divided(name, entry)
            asked.setdefault(whole, set()).update(parts)
    made = []
    folders = {"results/reference": REFERENCE, "examples": ROOT / "examples"}
    for folder, path in [(name, path) for name, each in folders.items() for path in sorted(each.glob("*.yaml"))]:
        sweeps = [_divided(*each) for each in validated(read_config(path))[0]["sweeps"].items()]
        if all(parts <= asked.get(whole, set()) for whole, parts in sweeps):
            made.append(f", [{path.name}]({folder}/{path.name})")
    return "".join(made)


def _divided(name: str, entry: Mapping) -> tuple[str, set]:
    """Return what the runs of a sweep share, as text, and the ranks and types that they may divide between them."""
    shared = {key: value for key, value in entry.items() if key not in SPREAD}
    parts = {(key, value) for key in SPREAD for value in entry.get(key, [None])}
    return json.dumps([name, shared], sort_keys=True), parts


# The sweeps that measure every rung of an operation
LADDERS = {
    "matmul": ("ladder", "cpu_ladder"),
    "sum": ("reduction_ladder",),
    "vector_add": ("vector_add",),
    "copy": ("copy",),
}
# The sweeps that measure the rungs of the other element types
LADDERS_OF_TYPES = {"matmul": ("ladder_16_bit", "ladder_8_bit", "cpu_ladder_amx")}
# The sweeps with the largest sizes
LARGE = {"matmul": ("size", "best", "size_16_bit")}
SHORT = ("copy",)  # operations whose table is in docs/ladder.md alone
USUAL = ("float32", "float64", "bfloat16", "int8", "int32")  # types of the rows of README.md
SCREENSHOT = "[![Report of the published run](results/reference/report.png)](results/reference/report.html)"


def fastest(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the fastest rung of each operation, device, type and arithmetic, relative to both libraries."""
    cells = [
        [
            *(row["operation"], row["gpu"] or row["machine"] or formats.device(row["device"]), formats.size(row)),
            *(row["arithmetic"] or row["dtype"], f"`{row['variant']}`", formats.rate_text(row), row["library"]),
            *(_ratio(row), tuned(row, named=True)),
        ]
        for row in _fastest_rungs(frame)
    ]
    head = ["operation", "on", "size", "arithmetic", "fastest rung", "rate", "library", f"{LIBRARY} (95 % CI)", TUNED]
    return f"{_table(head, cells)}\n\n{WITHOUT_TUNED}" if cells else ""


def short(frame: pd.DataFrame) -> str:
    """Return the rows of the usual types in their own arithmetic: of GPUs, and of products on the CPU."""
    rows = [row for row in _fastest_rungs(frame) if not row["arithmetic"] and row["dtype"] in USUAL]
    gpus = any(DEVICES[row["device"]].accelerator for row in rows)
    first = {}  # by device and type, in the order of the table; of float32 products on GPUs also the largest size
    for row in rows:
        on_gpu, types = DEVICES[row["device"]].accelerator, OPERATIONS[row["operation"]].dtypes
        if on_gpu or not gpus or (row["operation"] == "matmul" and row["dtype"] == types[0]):
            large = row["n"] if on_gpu and row["dtype"] == types[0] else 0
            first.setdefault((row["operation"], row["device"], row["dtype"], large), row)
    cells = [
        [
            *(row["operation"], row["gpu"] or row["machine"], formats.size(row), row["dtype"]),
            *(f"`{row['variant']}`", formats.rate_text(row), f"{_ratio(row)} {row['library']}", tuned(row, named=True)),
        ]
        for row in first.values()
    ]
    head = ["operation", "on", "size", "type", "fastest rung", "rate", f"{LIBRARY} (95 % CI)", TUNED]
    return _table(head, cells) if cells else ""


def _fastest_rungs(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Return the fastest rung of each operation, device, type and arithmetic, in the order of the tables.

    Of the arithmetic of a type, also that at the largest size.
    """
    found = []
    for operation, sweeps in LADDERS.items():
        if operation in SHORT:
            continue
        others = [[sweep] for sweep in LADDERS_OF_TYPES.get(operation, ())]
        rows = pd.concat([_fastest(frame, operation, each) for each in (sweeps, *others)])
        if OPERATIONS[operation].metric == "bytes":
            rows = rows[rows["dtype"] == OPERATIONS[operation].dtypes[0]]  # the metric is bytes: one type is enough
        rows, large = rows[rows["role"] == "rung"], _large(frame, operation)
        most = rows[analysis.on_accelerator(rows)].groupby("dtype")["n"].max()
        large = large[large["n"] >= large["dtype"].map(most).fillna(0)]
        rows = analysis.pooled(pd.concat([rows, large])).sort_values("seconds", kind="stable")
        best = rows.drop_duplicates(["device", "dtype", "arithmetic", "n"])
        place = {dtype: i for i, dtype in enumerate(OPERATIONS[operation].dtypes)}
        best = best.assign(place=best["dtype"].map(place), other=best["arithmetic"] != "")
        order = ["device", "place", "other", "n"]
        found += analysis.row_dicts(best.sort_values(order, ascending=[False, True, True, True], kind="stable"))
    return found


def _large(frame: pd.DataFrame, operation: str) -> pd.DataFrame:
    """Return the rungs in the arithmetic of their type at the largest size of each type on GPUs."""
    rows = _of(frame, LARGE.get(operation, ()))
    rows = rows[(rows["role"] == "rung") & (rows["arithmetic"] == "") & (rows["ranks"] == 1) & (rows["ratio"] > 0)]
    rows = rows[analysis.on_accelerator(rows)]
    rows = rows[(rows["m"] == rows["n"]) & (rows["k"] == rows["n"])]
    return rows[rows["n"] == rows.groupby("dtype")["n"].transform("max")]


LIBRARY, TUNED = "× library", "× tuned library"  # heads of columns
NONE = "–"
WITHOUT_TUNED = f"{NONE}: the library has no tuned call, or it was not measured in that job."


def libraries(rows: pd.DataFrame) -> str:
    """Return the sentence below a table that says what its ratios are relative to."""
    named = tables.libraries(analysis.row_dicts(rows))
    shown = (rows["tuned_library"] != "").any()  # else no table has the column
    lacking = shown and (rows["tuned_ratio"].isna() & rows["ratio"].notna()).any()
    texts = (f"{named[:1].upper()}{named[1:]}." if named else "", WITHOUT_TUNED if lacking else "")
    return " ".join(filter(None, texts))


def efficiency(frame: pd.DataFrame) -> str:
    """Return the scaling that the report begins with; empty if it is that of whole calls, or of a CPU."""
    found = headlines.most_ranks(speedups(frame[frame["operation"] == "matmul"]))
    if found is None or found[0] or not found[1]["gpu"]:
        return ""
    _, row = found
    return (
        f"On {row['ranks']} × {row['gpu']}, `{row['algorithm']}` with `{row['variant']}` multiplies {row['dtype']} "
        f"matrices of size {formats.size(row)} at {formats.rate_text(row)}, computed in {arithmetic_of(row)}: "
        f"{percent(row['efficiency'])} {row['kind']} scaling efficiency in this arithmetic, "
        f"{formats.base(row)}."
    )


def revision(provenance: Mapping) -> str:
    """Return the commit of a run, and whether it had changes."""
    return short_revision(str(provenance.get("revision") or "unknown")) + " with uncommitted changes" * bool(
        provenance.get("dirty")
    )


def _revisions(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the sweeps of each revision and where they ran, newest first; empty for a single revision."""
    known = analysis.runs(columns)
    made = [(str(each.get("utc", "")), revision(each)) for each in known]
    shown = frame[~frame["superseded"]]
    shown = shown.assign(made=[made[i] for i in shown["run"]], commit=[made[i][1] for i in shown["run"]])
    cells = []
    for commit, rows in shown.sort_values(["made", "sweep"], ascending=[False, True]).groupby("commit", sort=False):
        most = rows[rows["gpu"] != ""].groupby("gpu", sort=False)["ranks"].max()
        on = [f"{ranks} × {gpu}" if ranks > 1 else gpu for gpu, ranks in most.items()]
        on += ["CPU"] if (rows["gpu"] == "").any() else []
        cells.append([commit, " and ".join(on), ", ".join(f"`{sweep}`" for sweep in sorted(set(rows["sweep"])))])
    if len(cells) < 2:
        return ""
    return "The sweeps are from several revisions, and kernels may differ between them:\n\n" + _table(
        ["revision", "on", "sweeps"], cells
    )


def ladder(operation: str) -> Callable[[Columns, pd.DataFrame], str]:
    """Return a function that lists every rung of an operation with its rate, for its fastest tile."""
    about, sweeps = OPERATIONS[operation], LADDERS[operation]

    def section(columns: Columns, frame: pd.DataFrame) -> str:
        rows = _fastest(frame, operation, sweeps)
        dtypes = [dtype for dtype in about.dtypes if (rows["dtype"] == dtype).any()]
        dtypes = dtypes if about.metric == "flops" else dtypes[:1]  # the metric is bytes: one type is enough
        steps = about.metric == "bytes"
        highest = rows[formats.rate_column(operation)].max()
        units = {dtype: formats.rate_unit(operation, dtype, highest) for dtype in dtypes}
        head = ["rung", "on", "what changes"]
        for dtype, unit in units.items():
            head += [f"{dtype} {unit.name}", *(["× first rung"] if steps else []), LIBRARY]
            head += [TUNED] if _has_tuned(rows, dtype) else []
        cells = []
        for variant in about.ladder:
            line = [f"`{variant.name}`", formats.device(variant.device), f"{_kind(variant)}{variant.change}"]
            for dtype in dtypes:
                here = rows[(rows["dtype"] == dtype) & (rows["device"] == variant.device)]
                line += _reached(here, variant.name, steps, units[dtype], _has_tuned(rows, dtype))
            cells.append(line)
        table = _table(head, cells)
        if not dtypes:
            return table
        sizes = {formats.device(device): formats.size(at.iloc[0]) for device, at in rows.groupby("device")}
        at = " and ".join(f"{size} on the {device}" for device, size in sizes.items())
        if len(set(sizes.values())) < len(sizes):
            at = next(iter(sizes.values()))
        tiles = ", with the fastest tile of each rung" if "tile" in rows and (rows["tile"] > 0).any() else ""
        sources = f"The numbers are from the published run, at {at}{tiles}."
        compared = libraries(rows[rows["dtype"].isin(dtypes)])
        return f"{table}\n\n{' '.join(filter(None, (sources, _gpu(rows), compared)))}"

    return section


def _gpu(rows: pd.DataFrame) -> str:
    """Return the names of the GPUs of rows, ``"GPU: NVIDIA H200."``; empty without one."""
    names = ", ".join(dict.fromkeys(filter(None, rows["gpu"])))
    return f"GPU: {names}." if names else ""


def _kind(variant: Variant) -> str:
    """Return the words before the change of a library; empty for a rung."""
    return "*baseline*: " if variant.baseline else "*library*: " if variant.library else ""


def _has_tuned(rows: pd.DataFrame, dtype: str) -> bool:
    """Return whether a library of these rows has a tuned call."""
    return bool((rows.loc[rows["dtype"] == dtype, "tuned_library"] != "").any())


def _reached(here: pd.DataFrame, variant: str, steps: bool, unit: formats.RateUnit, has_tuned: bool) -> list[str]:
    own = here[here["variant"] == variant]
    if own.empty:
        return [""] * (2 + steps + has_tuned)
    row = own.iloc[0]
    first = here[here["role"] == "rung"].iloc[0]
    gain = [number(first["seconds"] / row["seconds"])] if steps else []
    return [formats.rate(row, unit=unit), *gain, _ratio(row), *([tuned(row)] if has_tuned else [])]


def _ratio(row: Mapping, column: str = "ratio") -> str:
    """Format a ratio to a library with its interval, if it has one, and both arithmetics if they differ."""
    ratio = Ratio.to_library(row, column)
    ends = "" if is_itself(row, column) else ratio.ends
    notes = "; ".join(filter(None, (ends, ratio.arithmetics)))
    return number(ratio.value) + (f" ({notes})" if notes else "")


def tuned(row: Mapping, named: bool = False) -> str:
    """Format the ratio to the tuned library; a dash if it is unknown, as ``libraries`` explains."""
    ratio, name = _ratio(row, "tuned_ratio"), row["tuned_library"]
    return (f"{ratio} {name}" if named else ratio) if ratio else NONE


def _fastest(frame: pd.DataFrame, operation: str, sweeps: Sequence[str]) -> pd.DataFrame:
    """Return the fastest tile of each variant on one rank, at the largest size that every variant of a device has."""
    rows = _of(frame, sweeps)
    rows = rows[(rows["operation"] == operation) & (rows["ranks"] == 1) & rows["seconds"].notna()]
    found = []
    for _, on_device in rows.groupby("device", sort=False):
        variants = on_device.groupby("n")["variant"].nunique()
        at = on_device[on_device["n"] == variants[variants == variants.max()].index.max()]
        at = at.sort_values("seconds", kind="stable").drop_duplicates(["variant", "dtype"])
        found.append(at.sort_values("place", kind="stable"))
    return pd.concat(found) if found else rows


# The rungs of the tutorial: lessons, then products
STEPS = ("uncoalesced", "naive", "tiled_padded", "register_1d", "register_2d", "vectorized", "warp_tiled")
STEPS += ("asynchronous", "swizzled", "large_thread_tile", "tensor_core", "warpgroup")


def steps(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the rungs of the tutorial in float32, relative to the counterpart and to the library."""
    rows = _fastest(frame, "matmul", LADDERS["matmul"])
    rows = rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32")]
    known = {row["variant"]: row for row in analysis.row_dicts(rows)}
    found = [known[name] for name in STEPS if name in known]
    cells, unit = [], formats.rate_unit("matmul", "float32", rows["flops_per_second"].max())
    for row in found:
        variant = OPERATIONS["matmul"].variant(row["variant"])
        beside = known.get(variant.counterpart)
        gain = f"{Ratio.of(row, beside).short.replace('×', '', 1)} × `{variant.counterpart}`" if beside else ""
        rate = formats.rate(row, unit=unit)
        cells.append([f"`{variant.name}`", variant.shelf, rate, gain, _plain(row), _plain(row, "tuned_ratio")])
    if not cells:
        return ""
    head = [f"float32 at {formats.size(found[0])}", "shelf", unit.name, "× counterpart", LIBRARY, TUNED]
    sources = " ".join(filter(None, ("The numbers are from the published run.", _gpu(rows), libraries(rows))))
    return f"{_table(head, cells)}\n\n{sources}"


def step(name: str) -> Callable[[Columns, pd.DataFrame], str]:
    """Return a function that shows one step of the tutorial: its rungs beside each other."""
    given = climb.STEPS[name]

    def made(columns: Columns, frame: pd.DataFrame) -> str:
        sweeps = given.sweeps or LADDERS[given.operation]
        rows = _fastest(frame[frame["variant"].isin(given.rungs)], given.operation, sweeps)
        gpu, usual = (
            set(each.loc[each["device"] == "cuda", "gpu"]) for each in (rows, _fastest(frame, "matmul", sweeps))
        )
        other = f"\n\n{_gpu(rows)}" if gpu - usual and usual else ""
        table = climb.table(given, rows, Known.of(columns, frame))
        return table + other if table else ""

    return made


def sixteen_bit(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the rungs of a 16-bit type, relative to the counterpart and to the library, with their clock."""
    rows = _fastest(frame, "matmul", ["ladder_16_bit"])
    if rows.empty:
        return ""
    rows = rows[rows["dtype"] == rows["dtype"].iloc[0]]
    unit = formats.rate_unit("matmul", rows["dtype"].iloc[0], rows["flops_per_second"].max())
    cells = []
    for row in analysis.ladder(analysis.row_dicts(rows)):
        variant = OPERATIONS["matmul"].variant(row["variant"])
        gain, clock = (number(each) if math.isfinite(each) else "" for each in (row["step"], row["clock"] / 1e9))
        what = f"{_kind(variant)}{variant.change}"
        cells.append([f"`{variant.name}`", what, formats.rate(row, unit=unit), gain, _ratio(row), tuned(row), clock])
    first = rows.iloc[0]
    head = ["rung", "what changes", unit.name, "× counterpart", f"{LIBRARY} (95 % CI)", TUNED, "SM clock, GHz"]
    sources = f"The numbers are from the published run, in {first['dtype']} at {formats.size(first)}."
    return f"{_table(head, cells)}\n\n{' '.join(filter(None, (libraries(rows), sources, _gpu(rows))))}"


def accuracy(columns: Columns, frame: pd.DataFrame) -> str:
    """Return speed and largest error of rungs with other arithmetic, the fastest float32 rung, and the library."""
    rows = _fastest(frame, "matmul", ["ladder"])
    rows = rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32")]
    if rows.empty:
        return ""
    usual = rows[(rows["arithmetic"] == "") & (rows["role"] == "rung")].nsmallest(1, "seconds")
    shown = pd.concat([usual, rows[(rows["arithmetic"] != "") | (rows["baseline"] == 1)]])
    cells = [
        [
            *(f"`{row['variant']}`", row["arithmetic"] or "float32"),
            *(_plain(row), _plain(row, "tuned_ratio"), f"{row['error']:.1e}"),
        ]
        for row in analysis.row_dicts(shown)
    ]
    head = [f"float32 at {formats.size(shown.iloc[0])}", "arithmetic", LIBRARY, TUNED, "largest error"]
    return f"{_table(head, cells)}\n\n{libraries(rows)} They compute in float32."


def shapes(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the fastest rungs relative to the library, in float32, by size and shape."""
    rows = _of(frame, ["size", "shape"])
    if rows.empty:
        return ""
    rows = rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32") & (rows["ranks"] == 1)]
    rungs = rows[rows["role"] == "rung"].groupby("variant")["ratio"].agg(["max", "size"])
    best = rungs[rungs["size"] > rungs["size"].max() / 2]["max"].nlargest(4)  # of those at most of the shapes
    shown = rows[rows["variant"].isin(best.index)].sort_values("place", kind="stable")
    variants = list(dict.fromkeys(shown["variant"]))
    cells = []
    for _, own in shown.sort_values("flops", kind="stable").groupby(["m", "n", "k"], sort=False):
        ratios = {row["variant"]: _both(row) for row in analysis.row_dicts(own.drop_duplicates("variant"))}
        cells.append([formats.size(own.iloc[0]), *(ratios.get(variant, "") for variant in variants)])
    arithmetics = {row["variant"]: Ratio.to_library(row).arithmetics for row in analysis.row_dicts(shown)}
    named = [f"`{each}`" + (f" ({arithmetics[each]})" if arithmetics[each] else "") for each in variants]
    table = _table([f"{LIBRARY}, {TUNED}, float32; m × n × k", *named], cells)
    return f"{table}\n\n{libraries(shown)}"


def tiles(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the rate and the ratio to the library by variant and tile, at the largest size."""
    rows = _of(frame, ["tile"])
    if rows.empty:
        return ""
    rows = rows[(rows["dtype"] == "float32") & (rows["ranks"] == 1) & (rows["tile"] > 0)]
    rows = rows[rows["n"] == rows["n"].max()]
    widths, unit = sorted(rows["tile"].unique()), formats.rate_unit("matmul", "float32", rows["flops_per_second"].max())
    cells = [
        [
            f"`{variant}`",
            *(_reached_with(own[own["tile"] == width], unit) for width in widths),
        ]
        for variant, own in rows.sort_values("place").groupby("variant", sort=False)
    ]
    head = [
        f"float32 {unit.name} at {rows['n'].iloc[0]} ({LIBRARY}, {TUNED})",
        *(f"tile {width:g}" for width in widths),
    ]
    return f"{_table(head, cells)}\n\n{_gpu(rows)} {libraries(rows)}\n\n{_figure('tiles')}"


def bits(columns: Columns, frame: pd.DataFrame) -> str:
    """Return what the bits of libraries, picks, and rungs that promise equal bits depended on, by operation."""
    points = same_bits.compared(frame)
    variants = {name: OPERATIONS[name].variant for name in points["operation"].unique()}
    own = [variants[row.operation](row.variant) for row in points[["operation", "variant"]].itertuples()]
    promised = [bool(each.library or each.picks or each.invariant or each.leaf_bytes) for each in own]
    points = points[np.array(promised, bool)]
    return markup.markdown([same_bits.bits_table(own) for _, own in points.groupby("operation", sort=False)])


def transfer(columns: Columns, frame: pd.DataFrame) -> str:
    """Return end-to-end times from page-locked and pageable memory, and the time of the kernel alone."""
    rows = _of(frame, ["transfer"])
    if rows.empty:
        return ""
    rows = rows[(rows["device"] == "cuda") & rows["call_seconds"].notna()]
    cells = []
    rows = rows.assign(first=rows.groupby("rung")["place"].transform("min")).sort_values(["first", "n"])
    for (rung, _), own in rows.groupby(["rung", "n"], sort=False):
        kinds = {row["memory"]: row for row in analysis.row_dicts(own)}
        if {"pinned", "pageable"} <= kinds.keys():
            pinned, pageable = kinds["pinned"], kinds["pageable"]
            seconds = (pinned["seconds"], pinned["call_seconds"], pageable["call_seconds"])
            gain = pageable["call_seconds"] / pinned["call_seconds"]
            cells.append([rung, pinned["n"], *map(formats.duration, seconds), number(gain)])
    head = [rows["dtype"].iloc[0], "n", "kernel alone", "end to end, pinned", "end to end, pageable", "speedup"]
    return f"{_table(head, cells)}\n\n{_gpu(rows)}"


def step_transfers(columns: Columns, frame: pd.DataFrame) -> str:
    """Return what page-locked memory gains a product of the library, at each size."""
    rows = _of(frame, ["transfer"])
    return climb.transfers(rows[(rows["variant"] == "cublas") & rows["call_seconds"].notna()])


def pitch(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the gain by a pitch at sizes where rows are aligned without one, and where they are not."""
    rows = _of(frame, ["pitch"])
    return climb.pitches(rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32") & (rows["tile"] == 32)])


def scaling(columns: Columns, frame: pd.DataFrame) -> str:
    """Return rate and efficiency of each algorithm on 1, 2, 4, ... GPUs, at the largest size."""
    at = _scaled(frame)
    return "" if at.empty else f"{_scaling_table(at)}\n\n{_gpu(at)}\n\n{_figure('scaling')}"


def step_ranks(columns: Columns, frame: pd.DataFrame) -> str:
    """Return those of the algorithms with one local product, in the arithmetic of the type."""
    at = _scaled(frame)
    return _scaling_table(at[at["variant"] == "best"]) if len(at) else ""


def _scaling_table(at: pd.DataFrame) -> str:
    ranks = sorted(at["ranks"].unique())
    cells = []
    for (algorithm, variant), own in at.sort_values("place").groupby(["algorithm", "variant"], sort=False):
        call = "call" in ALGORITHMS[algorithm].measures
        prefix = "call_" if call else ""
        by_ranks = (own[own["ranks"] == count] for count in ranks)
        shown = (_joined(one, f"{prefix}flops_per_second", f"{prefix}efficiency", 1e12, percent) for one in by_ranks)
        local = f"`{variant}`" + (f" ({own['arithmetic'].iloc[0]})" if own["arithmetic"].iloc[0] else "")
        cells.append([f"`{algorithm}`", local, "end to end" if call else "on the devices", *shown])
    what = f"float32 TFLOP/s at {formats.size(at.iloc[0])} (efficiency)"
    head = [what, "local product", "timed", *(f"{count} GPU{'s' if count > 1 else ''}" for count in ranks)]
    return _table(head, cells)


def _scaled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the strong scaling of float32 products over GPUs, at the largest size."""
    rows = _of(frame, ["distributed"])
    rows = rows[(rows["device"] == "cuda") & (rows["dtype"] == "float32")]
    if rows.empty:
        return rows
    alike = ["sweep", "device", "machine", "dtype"]
    gains = speedups(frame[frame["operation"].isin(rows["operation"]) & (frame["dtype"] == "float32")])
    gains = gains.merge(rows[alike].drop_duplicates())
    gains = gains[gains["kind"] == "strong"]
    return gains[gains["flops"] == gains["flops"].max()]


def _of(frame: pd.DataFrame, sweeps: Sequence[str]) -> pd.DataFrame:
    """Return the passed points of sweeps, each on the machine with the most ranks, then points, of each device."""
    rows = analysis.points(frame)
    rows = rows[rows["sweep"].isin(sweeps) & (rows["result"] == "PASS")]
    keys = ["sweep", "device", "machine"]
    kinds = rows.groupby(keys, sort=False)["ranks"].agg(["max", "size"]).sort_values(["max", "size"])
    chosen = kinds.reset_index().drop_duplicates(["sweep", "device"], keep="last")
    return rows.merge(chosen[keys])


def _plain(row: Mapping, column: str = "ratio") -> str:
    """Format a ratio to a library without its interval, with both arithmetics if they differ; a dash if unknown."""
    return Ratio.to_library(row, column).short.replace("×", "", 1) or NONE


def _both(row: Mapping) -> str:
    return ", ".join(number(row[name]) or NONE for name in ("ratio", "tuned_ratio"))


def _reached_with(rows: pd.DataFrame, unit: formats.RateUnit) -> str:
    """Format a rate with its ratios to both libraries in parentheses."""
    return " ".join(f"{formats.rate(row, unit=unit)} ({_both(row)})" for row in analysis.row_dicts(rows.head(1)))


def _joined(rows: pd.DataFrame, rate: str, beside: str, unit: float = 1e9, form=number) -> str:
    """Format a rate, with a second quantity in parentheses."""
    if rows.empty:
        return ""
    row = rows.iloc[0]
    part = form(row[beside])
    return number(row[rate] / unit) + (f" ({part})" if part else "")


def _figure(name: str) -> str:
    return f"![{name.capitalize()} of the published run](results/reference/{name}.svg)"


def _table(head: Sequence[str], cells: Sequence[Sequence[object]]) -> str:
    numbers = [all(str(line[i])[:1].isdigit() for line in cells if line[i] not in ("", NONE)) for i in range(len(head))]
    sides = ["right" if number else "left" for number in numbers]
    return tabulate(cells, head, tablefmt="pipe", disable_numparse=True, colalign=sides)


def levels(columns: Columns, frame: pd.DataFrame) -> str:
    """Return the levels of memory of each device, with their latency and bandwidth."""
    rows = analysis.levels(frame)
    groups = rows.groupby(["owner", "device"], sort=False)
    return "\n\n".join(
        markup.markdown([memory.level_table(own, formats.device(device))]) for (_, device), own in groups
    )


def course(number: str) -> Callable[[Columns, pd.DataFrame], str]:
    """Return the function that makes the tables of a course document, with a sentence below each."""

    def tables(columns: Columns, frame: pd.DataFrame) -> str:
        found = documents.documents(columns, frame)
        document = next(each for each in found if each.number == number)
        parts = [f"{document.source}. Hardware of the document: {document.hardware}."]
        for table in document.tables:
            parts += [markup.markdown([courses.course_table(table, number)]).rstrip(), courses.sentence(table)]
        for figure in courses.curves(document):
            name = f"course-{number}-{figure.name}.svg"
            parts.append(f"**{figure.caption}**\n\n![{figure.caption}](results/reference/{name})")
        return "\n\n".join(parts)

    return tables


SECTIONS = {
    **{f"course_{number}": course(number) for number in documents.written()},
    "summary": summary,
    "first": first,
    "fastest": fastest,
    "run": run,
    "answer": answered,
    **{operation: ladder(operation) for operation in LADDERS},
    "steps": steps,
    **{f"step_{name}": step(name) for name in climb.STEPS},
    "step_transfers": step_transfers,
    "step_ranks": step_ranks,
    "pitch": pitch,
    "sixteen_bit": sixteen_bit,
    "accuracy": accuracy,
    "shapes": shapes,
    "levels": levels,
    "points": covered.points,
    "tiles": tiles,
    "bits": bits,
    "transfer": transfer,
    "scaling": scaling,
    "atlas": lambda columns, frame: atlas.section(REFERENCE, _table),
}

if __name__ == "__main__":
    main(sys.argv[1:])
