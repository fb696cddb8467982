"""One page per rung, written at each build: idea, source, arithmetic, and results of the published run."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import published
from tabulate import tabulate

from hpcmm import analysis, kernels, store
from hpcmm.analysis import why
from hpcmm.model import Operation, Task, Variant
from hpcmm.model.capabilities import tile_phase
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS, dimensions, drawings, heads
from hpcmm.operations.blocks import OverC
from hpcmm.operations.reduction import Passes
from hpcmm.report import findings, formats, hardware, markup
from hpcmm.report.chapters import memory
from hpcmm.report.chapters import why as steps
from hpcmm.report.ratio import Ratio
from hpcmm.system.text import amount, number, percent

INSTRUCTIONS = Path(__file__).parent / "instructions.json"  # from tests/instruction_mix.py
TITLES = {
    "matmul": "matrix product",
    "reduction": "reduction",
    "vector_add": "vector addition",
    "latency": "memory latency",
    "bandwidth": "memory bandwidth",
    "copy": "copy",
}


@dataclass(frozen=True)
class Rung:
    """A rung with its counterpart, and with the neighbours on its device."""

    operation: Operation
    variant: Variant
    below: Variant | None
    before: Variant | None
    above: Variant | None
    place: int
    count: int

    @property
    def page(self) -> str:
        """The name of its page."""
        return page_of(self.operation, self.variant)

    @property
    def source(self) -> Path:
        return kernels.source(self.operation, self.variant)


def page_of(operation: Operation, variant: Variant) -> str:
    return steps.page_of(operation.name, variant.name, variant.device)


def rungs() -> Iterator[Rung]:
    """Yield every rung with a source, by ladder. Operations with the same kernels have one ladder."""
    known = set()
    for operation in OPERATIONS.values():
        if operation.kernels in known:
            continue
        known.add(operation.kernels)
        for device in dict.fromkeys(variant.device for variant in operation.ladder):
            own = [each for each in operation.ladder if each.device == device and each.compiled]
            by_name = {variant.name: variant for variant in own}
            for i, variant in enumerate(own):
                below, before = by_name.get(variant.counterpart), own[i - 1] if i else None
                above = own[i + 1] if i + 1 < len(own) else None
                yield Rung(operation, variant, below, before, above, i + 1, len(own))


class Published:
    """The published run: the time and the step of each rung, by element type."""

    def __init__(self):
        path = published.REFERENCE / "timings.h5"
        columns = store.read(path) if path.exists() else store.joined([])
        frame = analysis.measurements(columns)
        self.known = why.Known.of(columns, frame)
        self.revisions = list(map(published.revision, analysis.runs(columns)))
        self.levels = analysis.levels(frame)
        self.multiprocessors = int(frame["multiprocessors"].max()) if len(frame) else 0
        self.rows: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
        self.steps: dict[tuple[str, str, str, str], why.Step] = {}
        for operation, sweeps in published.LADDERS.items():
            rows = published._of(frame, [*sweeps, *published.LADDERS_OF_TYPES.get(operation, ())])
            rows = rows[(rows["operation"] == operation) & (rows["ranks"] == 1)]
            for series in analysis.series(rows):
                self._take(series)

    def _take(self, series: analysis.Series) -> None:
        for device in {row["device"] for row in series.rows}:
            points = [row for row in series.rows if row["device"] == device]
            key = (series.operation, device, series.dtype)
            for row in findings.fastest_first(analysis.largest(points)):
                self.rows.setdefault((*key, row["variant"]), row)
            self.steps |= {(*key, step.rung["variant"]): step for step in why.steps(points, self.known)}

    def of(self, rung: Rung) -> list[Mapping[str, Any]]:
        """Return the row of each element type in which it was measured."""
        keys = [(rung.operation.name, rung.variant.device, each, rung.variant.name) for each in rung.operation.dtypes]
        return [self.rows[key] for key in keys if key in self.rows]

    def step(self, row: Mapping[str, Any]) -> why.Step | None:
        return self.steps.get((row["operation"], row["device"], row["dtype"], row["variant"]))


def write(folder: Path) -> None:
    """Write the pages into ``folder``; a page that is still right is not touched, so that Sphinx keeps it.

    They are in no toctree: the sidebar of every page would list all of them.
    """
    folder.mkdir(exist_ok=True)
    run = Published()
    texts = {f"{rung.page}.md": f"---\norphan: true\n---\n\n{text(rung, run)}" for rung in rungs()}
    for path in folder.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, content in texts.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != content:
            with store.replacing(path) as temporary:
                temporary.write_text(content, "utf-8")


def text(rung: Rung, run: Published) -> str:
    """Return the page of a rung."""
    idea, limits = head(rung.source)
    parts = [
        f"# {rung.variant.name}",
        f"Rung {rung.place} of {rung.count} of the {TITLES[rung.operation.kernels]} on the "
        f"{formats.device(rung.variant.device)}. What changes: {rung.variant.change}.{_neighbours(rung)}",
        "## Idea",
        *idea,
        *(raw(drawing) for drawing in drawings.of(rung.page)),
        *_guarded(rung),
        *source(rung),
        *arithmetic(rung, run),
        *measured(rung, run),
        *machine_code(rung),
        "## What limits it",
        *limits,
        *_remaining(rung, run),
    ]
    return "\n\n".join(parts) + "\n"


def _neighbours(rung: Rung) -> str:
    links = [
        f"{word}: [`{each.name}`]({page_of(rung.operation, each)}.md)."
        for word, each in (("Previous rung", rung.before), ("Next rung", rung.above))
        if each
    ]
    return "".join(f" {link}" for link in links)


def _guarded(rung: Rung) -> Iterator[str]:
    rows = rung.variant.guard_rows
    if rows:
        yield (
            f"It runs on copies of the matrices with {rows} guard rows behind each one. A guard element that "
            "contributes to C makes the result wrong, and a write to a guard row is detected."
        )


def raw(html: str) -> str:
    return f"```{{raw}} html\n{html.strip()}\n```"


# --- source --------------------------------------------------------------------------------------------------------


def head(path: Path) -> tuple[list[str], list[str]]:
    """Return the paragraphs of the comment at the top of a source, and the sentences in it about its limit."""
    comment, _ = divided(path)
    lines = [re.sub(r"^\s*(//|/\*|\*/|\*)? ?|\s*\*/\s*$", "", line) for line in comment]
    paragraphs, limits = [], []
    for block in "\n".join(lines).split("\n\n"):
        joined = " ".join(block.split())
        if joined.startswith(heads.MARK):
            continue
        joined, _, source = joined.partition("Source: ")
        idea, _, limit = joined.partition("Limit: ")
        if idea.strip():
            paragraphs.append(_items(block, idea))
        if limit.strip():
            limits.append(escaped(limit.strip()[:1].upper() + limit.strip()[1:]))
        if source:
            paragraphs.append(f"*Source: {escaped(source.strip())}*")
    return paragraphs, limits


def _items(block: str, idea: str) -> str:
    """Return a paragraph; lines that begin with a hyphen become a list."""
    if not re.search(r"^\s*- ", block, re.MULTILINE):
        return escaped(idea.strip())
    first, *items = re.split(r"(?:^|\s)- ", idea)
    return "\n".join([escaped(first.strip()), "", *(f"- {escaped(item.strip())}" for item in items)])


def escaped(text: str) -> str:
    """Return text in which Markdown finds nothing to mark up but code between backticks."""
    parts = re.split(r"(`[^`\n]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([\\`*_\[\]<>$|#{}])", r"\\\1", part) for i, part in enumerate(parts))


def divided(path: Path) -> tuple[list[str], list[str]]:
    """Return the comment at the top of a source, and the lines after it."""
    lines = heads.whole(path).splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith(("//", "/*", "  ", " *")) and line.strip()), 0)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end], lines[end:]


def source(rung: Rung) -> list[str]:
    """Return the source with the lines highlighted that the rung before it does not have."""
    comment, body = divided(rung.source)
    while body and not body[0].strip():
        comment, body = [*comment, ""], body[1:]
    kind = "c++" if rung.source.suffix == ".cu" else "c"
    before = divided(kernels.source(rung.operation, rung.below))[1] if rung.below else body
    while before and not before[0].strip():
        before = before[1:]
    matcher = difflib.SequenceMatcher(None, before, body, autojunk=False)
    new = [
        i for tag, _, _, start, end in matcher.get_opcodes() if tag in ("insert", "replace") for i in range(start, end)
    ]
    new = [i for i in new if body[i].strip()]
    gone = [
        line
        for tag, start, end, _, _ in matcher.get_opcodes()
        if tag in ("delete", "replace")
        for line in before[start:end]
    ]
    parts = ["## Source", f"`hpcmm/kernels/{rung.source.relative_to(kernels.FOLDER)}`."]
    shared = [str(each.relative_to(kernels.FOLDER)) for each in kernels.headers(rung.source)]
    if shared:
        parts[-1] += f" It includes {', '.join(f'`{each}`' for each in shared)}."
    if rung.below and not new and not gone:
        parts[-1] += f" The code is that of [`{rung.below.name}`]({page_of(rung.operation, rung.below)}.md)."
    elif rung.below and matcher.ratio() < 0.2:
        new = []
        parts[-1] += f" It has little in common with `{rung.below.name}`."
    elif rung.below:
        parts[-1] += f" Highlighted lines are not in [`{rung.below.name}`]({page_of(rung.operation, rung.below)}.md)."
    options = [":linenos:", f":lineno-start: {len(comment) + 1}"]
    if new:
        options.append(f":emphasize-lines: {spans([i + 1 for i in new])}")
    parts.append("\n".join([f"```{{code-block}} {kind}", *options, "", *body, "```"]))
    if new and gone:
        parts += [
            f"<details><summary>Lines of {rung.below.name} that were removed</summary>",
            "\n".join([f"```{{code-block}} {kind}", "", *gone, "```"]),
            "</details>",
        ]
    for name in (each for each in shared if each != "ptx.cuh"):
        lines = (kernels.FOLDER / name).read_text("utf-8").splitlines()
        parts += [
            f"<details><summary>{name}</summary>",
            "\n".join([f"```{{code-block}} {kind}", "", *lines, "```"]),
            "</details>",
        ]
    return parts


def spans(numbers: Sequence[int]) -> str:
    """Return numbers in ascending order as spans.

    >>> spans([1, 2, 3, 7])
    '1-3,7'
    """
    found: list[list[int]] = []
    for line in numbers:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


# --- arithmetic ----------------------------------------------------------------------------------------------------


def arithmetic(rung: Rung, run: Published) -> list[str]:
    """Work out bytes per operation and blocks per SM, as one does by hand."""
    if not DEVICES[rung.variant.device].accelerator:
        return []
    rows = run.of(rung)
    shape = tuple(int(rows[0][name]) for name in rung.operation.dimensions) if rows else ()
    tile = int(rows[0]["tile"]) if rows else max(rung.variant.tiles, default=0)
    size = 2**22 if len(rung.operation.dimensions) == 1 else 4096
    dtype = rows[0]["dtype"] if rows else rung.operation.dtypes_of(rung.variant)[0]
    shape = shape or (size,) * len(rung.operation.dimensions)
    shape = (min(shape[0], rung.variant.capacity or shape[0]), *shape[1:])
    sms = int(rows[0]["multiprocessors"]) if rows else run.multiprocessors
    task = Task(rung.operation, rung.variant, shape, dtype, rung.operation.scalars, tile, sms)
    facts = run.known.facts(rows[0]) if rows else {}
    lines = [*_loads(task, facts), *_blocks(facts)]
    at = formats.size(dict.fromkeys(dimensions(), 0) | dict(zip(rung.operation.dimensions, shape, strict=True)))
    return ["## Arithmetic", f"In {dtype}, at {at}:", "\n".join(f"- {line}" for line in lines)]


def _loads(task: Task, facts: Mapping[str, Any]) -> Iterator[str]:
    itemsize, geometry = task.element.itemsize, task.geometry
    if isinstance(geometry, OverC):
        staged = geometry.phase(task)
        if staged:
            loads, flops = tile_phase(staged.rows, staged.columns, staged.depth)
            yield (
                f"A phase loads {staged.rows} × {staged.depth} of A and {staged.depth} × {staged.columns} of B, "
                f"{loads:,} elements, for {flops // 2:,} multiply-adds: "
                f"{number(2 * loads / flops)} loads from global memory per multiply-add."
            )
        else:
            loads, flops = tile_phase(1, 1, 1)
            yield "Each multiply-add loads one element of A and one of B: 2 loads per multiply-add."
        per_flop = loads * itemsize / flops
        yield f"{loads:,} loads × {itemsize} B / {flops:,} flops = {number(per_flop)} B per flop."
        rate = facts.get("memory_bytes_per_second", math.nan)
        if math.isfinite(rate):
            yield (
                f"Without caches, {number(rate / 1e9)} GB/s / {number(per_flop)} B per flop = "
                f"{formats.billions(rate / per_flop)} G{task.operation.rate_unit(task.dtype)}."
            )
    elif task.operation.cached:
        yield f"{task.bytes:,} B are read; the number of elements decides from which level of memory."
    else:
        yield (
            f"{task.bytes:,} B for {task.flops:,} operations: {number(task.bytes / task.flops)} B per flop, "
            "whatever the kernel does. Memory bandwidth is the limit."
            if task.flops
            else f"{task.bytes:,} B are read and written. Memory bandwidth is the limit."
        )
        rate = facts.get("memory_bytes_per_second", math.nan)
        if math.isfinite(rate):
            least = task.bytes / rate
            yield f"{task.bytes:,} B / {number(rate / 1e9)} GB/s = {formats.duration(least)} at least."
    if isinstance(geometry, Passes):
        counts = geometry.blocks(task)
        yield (
            f"{len(counts)} launch{'es' if len(counts) > 1 else ''} of {', '.join(f'{each:,}' for each in counts)} "
            f"blocks of {geometry.block} threads; the first one takes "
            f"{number(task.shape[0] / (counts[0] * geometry.block))} elements per thread."
        )
        depth = geometry.block.bit_length() - 1
        yield f"A tree over {geometry.block} elements has log₂ {geometry.block} = {depth} steps."


def _blocks(facts: Mapping[str, Any]) -> Iterator[str]:
    if "threads" not in facts:
        return
    threads = int(facts["threads"])
    yield (
        f"A block has {facts['block_x']:g} × {facts['block_y']:g} = {threads:,} threads. By threads, "
        f"{facts['sm_threads']:,.0f} / {threads:,} = {facts['limit_threads']:.0f} blocks fit on an SM."
    )
    if math.isfinite(facts["limit_registers"]):
        yield (
            f"By registers: {facts['registers']:g} per thread × {threads:,} = {facts['registers'] * threads:,.0f} of "
            f"{facts['sm_registers']:,.0f}, {facts['limit_registers']:.0f} blocks."
        )
    used = facts["shared_bytes"] + facts["dynamic_shared_bytes"]
    if used and math.isfinite(facts["limit_shared_memory"]):
        yield (
            f"By shared memory: {amount(used)} of {amount(facts['sm_shared_bytes'])}, "
            f"{facts['limit_shared_memory']:.0f} blocks."
        )
    yield (
        f"So {facts['resident_blocks']:g} block{'s' if facts['resident_blocks'] > 1 else ''} × {threads:,} = "
        f"{facts['resident_blocks'] * threads:,.0f} threads of {facts['sm_threads']:,.0f}: occupancy "
        f"{percent(facts['occupancy'])}, limited by {facts['limited_by']}."
    )


# --- the published run ---------------------------------------------------------------------------------------------


def measured(rung: Rung, run: Published) -> list[str]:
    """Return times, reasons, resources and counters of the published run."""
    rows = run.of(rung)
    parts = ["## In the published run"]
    if rung.operation.cached:
        own = run.levels[run.levels[f"{rung.operation.name}_variant"] == rung.variant.name]
        own = own[own["device"] == rung.variant.device]
        if not own.empty:
            return [*parts, markup.markdown([memory.level_table(own, formats.device(rung.variant.device))])]
    if not rows:
        return [*parts, "The published run does not have this rung in its ladder."]
    cells, reasons, compared = [], [], {}
    tuned = any(row["tuned_library"] for row in rows)
    for row in rows:
        step = run.step(row)
        ratios = [Ratio.to_library(row).short]
        ratios += [Ratio.to_library(row, "tuned_ratio").short or published.NONE] if tuned else []
        gain = formats.times(step.ratio) if step else ""
        cells.append(
            [
                row["dtype"],
                formats.size(row),
                row["rung"],
                formats.duration(row["seconds"]),
                formats.rate_text(row),
                *([gain] if rung.below else []),
                *ratios,
            ]
        )
        if step:
            compared[str(step.below["variant"])] = True
            reasons.append(f"- **{row['dtype']}**: {escaped(steps.effect(step))}. {escaped(steps.reason(step))}")
    below = [f"× {' or '.join(compared) or rung.below.name}"] if rung.below else []
    heads = [published.LIBRARY, *([published.TUNED] if tuned else [])]
    parts.append(_table(["type", "size", "rung", "time", "rate", *below, *heads], cells))
    if sources := published.libraries(pd.DataFrame(rows)):
        parts.append(sources)
    if revisions := dict.fromkeys(run.revisions[row["run"]] for row in rows):
        parts.append(f"Measured at revision {' and '.join(revisions)}; the source above may be newer.")
    if reasons:
        names = " and ".join(f"`{each}`" for each in compared)
        absent = "" if rung.below.name in compared else f" (the published run does not have `{rung.below.name}`)"
        parts += [f"Why it differs from {names}{absent}:", "\n".join(reasons)]
    facts = run.known.facts(rows[0])
    step = run.step(rows[0])
    both = [facts, *([step.facts_below] if step else [])]
    names = [rung.variant.name, *([str(step.below["variant"])] if step else [])]
    if "threads" in facts:
        lines = [
            [name, *(form(each) if "threads" in each else "" for each in both)] for name, form in RESOURCES.items()
        ]
        parts += [f"Resources in {rows[0]['dtype']}:", _table(["resource", *names], lines)]
    if "counted" in facts:
        lines = [
            [name, *(column(each).text if "counted" in each else "" for each in both)]
            for name, column in hardware.COUNTER_COLUMNS.items()
            if name != "Achieved occupancy"
        ]
        lines = [line for line in lines if any(line[1:])]
        lines += [
            [text, *(number(each[name]) for each in both)]
            for name, text in PER_WORK
            if any(math.isfinite(each[name]) for each in both)
        ]
        work = why.work_of(rung.operation.name)
        lines = [[line[0].replace("{work}", work), *line[1:]] for line in lines]
        parts += [f"Counters of {facts['counted']}, from Nsight Compute:", _table(["counter", *names], lines)]
    return parts


def machine_code(rung: Rung) -> Iterator[str]:
    """Yield the most frequent instructions of the machine code, beside those of its counterpart."""
    kept = json.loads(INSTRUCTIONS.read_text("utf-8"))
    known = kept["rungs"]
    names = [rung.variant.name, *([rung.below.name] if rung.below else [])]
    counted = {name: known.get(f"{rung.operation.kernels}/{name}") for name in names}
    found = {name: mix for name, mix in counted.items() if mix}
    if rung.variant.name not in found:
        return
    own = found[rung.variant.name]
    lines = [[f"`{name}`", *(str(each["counts"].get(name, "")) for each in found.values())] for name in own["counts"]]
    lines.append(["all", *(str(each["all"]) for each in found.values())])
    tile = f", tile {own['tile']}" if own["tile"] else ""
    yield "## Machine code"
    yield f"The most frequent instructions in {own['dtype']}{tile}, each counted once, however often a loop repeats it:"
    yield _table(["instruction", *found], lines)
    yield f"*{escaped(kept['source'])}*"


RESOURCES = {
    "registers per thread": lambda facts: f"{facts['registers']:g}",
    "shared memory per block": lambda facts: amount(facts["shared_bytes"] + facts["dynamic_shared_bytes"]),
    "local memory per thread": lambda facts: amount(facts["local_bytes"]),
    "block": lambda facts: f"{facts['block_x']:g} × {facts['block_y']:g}",
    "grid": lambda facts: f"{facts['grid_x']:,.0f} × {facts['grid_y']:,.0f}",
    "blocks per SM": lambda facts: f"{facts['resident_blocks']:g}",
    "occupancy": lambda facts: percent(facts["occupancy"]),
    "limited by": lambda facts: facts["limited_by"],
}
PER_WORK = (
    ("load_requests", "global loads of a thread per {work}"),
    ("load_bytes", "B through L1 per {work}"),
    ("shared_accesses", "accesses of a thread to shared memory per {work}"),
    ("shared_wavefronts", "wavefronts of shared memory per 32 {work}s"),
    ("dram_bytes", "B from and to DRAM per {work}"),
)


def _remaining(rung: Rung, run: Published) -> Iterator[str]:
    rows = run.of(rung)
    if rows:
        facts = run.known.facts(rows[0])
        yield escaped(f"In the published run, in {rows[0]['dtype']}: {why.limit(rows[0], facts)}.")
    if rung.above:
        yield f"The next rung is [`{rung.above.name}`]({page_of(rung.operation, rung.above)}.md): {rung.above.change}."
    else:
        yield "It is the last rung of its ladder."


def _table(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    sides = ["left", *["right"] * (len(heading) - 1)]
    return tabulate(lines, heading, tablefmt="pipe", disable_numparse=True, colalign=sides)


def contents() -> str:
    """Return the list of all pages, by ladder, for the page that leads to them."""
    parts: dict[str, list[Rung]] = {}
    for rung in rungs():
        title = f"{TITLES[rung.operation.kernels].capitalize()} on the {formats.device(rung.variant.device)}"
        parts.setdefault(title, []).append(rung)
    sections = []
    for title, members in parts.items():
        listed = "\n".join(
            f"{each.place}. [`{each.variant.name}`](rungs/{each.page}.md): {each.variant.change}" for each in members
        )
        sections.append(f"## {title}\n\n{listed}")
    return "\n\n".join(sections)
