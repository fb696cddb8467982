"""The tables of the course documents in their own axes, each number beside that of a timings file."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from hpcmm.analysis import occupancy
from hpcmm.analysis.levels import levels
from hpcmm.analysis.tidy import Columns, mapping, points, profiles, row_dicts, runs
from hpcmm.analysis.views import Row
from hpcmm.model import TEXTBOOK
from hpcmm.model.capabilities import WARP, Capability, block_limits, block_on, capability, tile_phase
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.quantities import RESOURCES
from hpcmm.model.records import beside
from hpcmm.operations import OPERATIONS

NOT_MEASURED, NOT_TIMED = "not measured", "not timed"
WAVEFRONT_BYTES = 128  # of shared memory in a cycle of an SM
UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "×": 1.0, "%": 0.01}
UNITS |= {"GFLOP/s": 1e9, "GB/s": 1e9, "MB/s": 1e6, "KB": 1024.0, "K": 1024.0}
USUAL = {"operation": "matmul", "dtype": "float32", "tile": 0, "memory": "pinned", "unit": ""}


@dataclass(frozen=True)
class Pair:
    """A number of a document and ours, in one unit; either may be a text. Counters are not ``compared``."""

    document: float | str | None
    ours: float | str
    unit: str
    compared: bool = True

    @property
    def measured(self) -> bool:
        return self.ours != NOT_MEASURED


@dataclass(frozen=True)
class Column:
    """A column: its name, its cells, and their GPU if it is not the table's; or ``texts`` of the document alone."""

    name: str
    pairs: Sequence[Pair] = ()
    texts: Sequence[str] = ()
    gpu: str = ""

    @property
    def documented(self) -> bool:
        return any(pair.document is not None for pair in self.pairs)


@dataclass(frozen=True)
class Answered:
    """A table of a document with our numbers.

    ``needs_points`` is false for numbers that are computed. ``machine`` is that of the points, empty without any, and
    ``gpu`` its GPU. ``why`` says where the numbers differ, and for what reason.
    """

    caption: str
    axis: str
    rows: Sequence[str]
    columns: Sequence[Column]
    needs_points: bool
    machine: str
    why: str
    gpu: str = ""

    @property
    def pairs(self) -> list[Pair]:
        return [pair for column in self.columns for pair in column.pairs]

    @property
    def measured(self) -> int:
        return sum(pair.measured for pair in self.pairs)


@dataclass(frozen=True)
class Curve:
    """A figure of a document with our points: sizes and values of each line, by its name."""

    name: str
    caption: str
    unit: str
    lines: Mapping[str, Sequence[tuple[int, float]]]
    machine: str

    @property
    def measured(self) -> int:
        return sum(map(len, self.lines.values()))


@dataclass(frozen=True)
class Document:
    """A course document: number, title, author, hardware, tables and curves."""

    number: str
    title: str
    source: str
    hardware: str
    tables: Sequence[Answered]
    curves: Sequence[Curve]


@functools.cache
def written() -> Mapping[str, Any]:
    return beside(__file__)


def documents(columns: Columns, frame: pd.DataFrame) -> list[Document]:
    """Return the course documents with the numbers of the machine that has the most of them, for each table.

    A kernel that this machine has not measured has the numbers of another GPU, which its row or column names.
    """
    machines = Points.of_machines(columns, frame)
    answered = []
    for number, each in written().items():
        tables = [_completed(part, [_answered(part, machine) for machine in machines]) for part in each["tables"]]
        drawn = (
            [_drawn(part, *of) for of in product(part.get("variants", [""]), machines)]
            for part in each.get("figures", ())
        )
        curves = [max(some, key=lambda one: one.measured) for some in drawn]
        answered.append(Document(number, each["title"], each["source"], each["hardware"], tables, curves))
    return answered


@dataclass(frozen=True)
class Points:
    """The points of one machine, its profiles and levels of memory, and the names of its GPU and part of a CPU."""

    machine: str
    gpu: str
    part: str
    points: Mapping[tuple, Sequence[Row]]
    counters: Mapping[tuple, Row]
    levels: Mapping[str, Row]

    @classmethod
    def of_machines(cls, columns: Columns, frame: pd.DataFrame) -> list[Points]:
        """Return the points of each machine; those of the most points come first."""
        rows = points(frame)
        rows = rows[(rows["ranks"] == 1) & (rows["algorithm"] == TEXTBOOK) & rows["operation"].isin(OPERATIONS)]
        profiled = [row for row in row_dicts(profiles(columns)) if row["result"] == "PASS"]
        of_levels = row_dicts(levels(frame))
        surroundings = [mapping(run.get("surroundings")) for run in runs(columns)]
        parts = [str(mapping(each.get("limits")).get("CPU affinity") or "") for each in surroundings]
        found = []
        for machine, own in rows.groupby("machine", sort=False):
            known: dict[tuple, list[Row]] = {}
            for row in row_dicts(own[own["result"].isin(["PASS", "FAIL"])]):
                for shape in (_shape(row), None):
                    known.setdefault((row["operation"], row["variant"], row["dtype"], shape), []).append(row)
            gpus = set(own["gpu"]) - {""}
            counters = {_counted(row): row for row in profiled if row["gpu"] in gpus}
            level = {row["level"]: row for row in of_levels if row["owner"] in gpus}
            part = " and ".join(sorted({parts[run] for run in own.loc[own["gpu"] == "", "run"]} - {""}))
            found.append(cls(str(machine), " and ".join(gpus), part, known, counters, level))
        found.sort(key=lambda each: -sum(map(len, each.points.values())))
        return found or [cls("", "", "", {}, {}, {})]

    def named(self, devices: Iterable[str]) -> str:
        """Return the name of the GPU if no number is of the CPU, else that of the machine."""
        if self.gpu and all(DEVICES[device].accelerator for device in devices):
            return self.gpu
        named = not self.part or self.part in self.machine
        return self.machine if named else f"{self.machine}; on the CPU {self.part}"

    def find(self, at: Row) -> Row | None:
        """Return the point of a cell: of several runs that with the most visits, of several tiles the fastest."""
        dimensions = OPERATIONS[at["operation"]].dimensions
        n = (at["n"],) * len(dimensions) if "n" in at else None  # None: a number that is the same for all
        shape = tuple(at["shape"]) if "shape" in at else n
        rows = self.points.get((at["operation"], at["variant"], at["dtype"], shape), ())
        rows = [row for row in rows if (row["memory"] == "pageable") == (at["memory"] == "pageable")]
        if at["tile"]:
            rows = [row for row in rows if row["tile"] == at["tile"]]
        by_visits = sorted(rows, key=lambda row: (row["visits"], row["repetitions"]))
        of_tiles = {row["tile"]: row for row in by_visits}.values()
        return min(of_tiles, key=lambda row: (math.isnan(row["seconds"]), row["seconds"]), default=None)

    def value(self, at: Row) -> float | str:
        """Return the quantity of a cell in SI units, or a text."""
        source, _, name = at["quantity"].rpartition(":")
        if source == "capability":
            return float(getattr(capability(at["like"]), name))
        if source == "resident":
            return float(_resident(name, capability(at["like"]), at["tile"], at.get("sm_shared", 0)))
        if source == "level":
            return _known(self.levels.get(at["level"], {}).get(name, math.nan))
        row = self.find(at)
        if row is None:
            return NOT_MEASURED
        if source == "counter":
            counted = self.counters.get(_counted(row), {})
            return _known(COUNTED.get(name, lambda of, _: of[name])(counted, row) if counted else math.nan)
        if "over" in at:
            base = self.find(USUAL | {key: at[key] for key in KEPT if key in at} | at["over"])
            value = base["seconds"] / row["seconds"] if base else math.nan
        else:
            value = DERIVED[name](row) if name in DERIVED else row[name]
        return NOT_TIMED if row["result"] == "FAIL" and _known(value) == NOT_MEASURED else _known(value)


KEPT = ("operation", "dtype", "n", "shape", "memory")  # what the lower point of a ratio takes from the upper one


def _shape(row: Row) -> tuple[int, ...]:
    return tuple(int(row[name]) for name in OPERATIONS[row["operation"]].dimensions)


def _counted(row: Row) -> tuple:
    return row["operation"], row["variant"], row["dtype"], row["tile"], _shape(row)


def _known(value: float | str) -> float | str:
    return value if isinstance(value, str) else float(value) if math.isfinite(value) else NOT_MEASURED


def _occupied(row: Row) -> Mapping[str, Any]:
    """Return the occupancy of a kernel; NaN where its resources are unknown, as those of libraries."""
    known = all(math.isfinite(row[name]) for name in RESOURCES)
    return occupancy.occupancy_of(row) if known else defaultdict(lambda: math.nan)


DERIVED: Mapping[str, Callable[[Row], float | str]] = {
    "threads": lambda row: row["block_x"] * row["block_y"],
    "blocks": lambda row: row["grid_x"] * row["grid_y"],
    "blocks_per_sm": lambda row: row["grid_x"] * row["grid_y"] / (row["multiprocessors"] or math.nan),
    "grid": lambda row: _times(row["grid_x"], row["grid_y"]),
    "block": lambda row: _times(row["block_x"], row["block_y"]),
    "operations_per_load": lambda row: _occupied(row)["phase_flops"] / _occupied(row)["phase_loads"],
    **{
        name: lambda row, name=name: _occupied(row)[name]
        for name in ("phase_loads", "phase_flops", "pending_loads", "bound_flops_per_second")
    },
}


def _times(x: float, y: float) -> str | float:
    return f"{x:.0f}x{y:.0f}" if x > 0 else math.nan


def _shared_loads(counted: Row, row: Row) -> float:
    """Return the bytes per second of shared-memory loads; an SM has at most one wavefront in a cycle."""
    loads, stores = counted["shared_load_wavefronts"], counted["shared_store_wavefronts"]
    peak = WAVEFRONT_BYTES * row["multiprocessors"] * counted["sm_clock"]
    return counted["shared_pipe"] * peak * loads / (loads + stores) if loads else loads


COUNTED: Mapping[str, Callable[[Row, Row], float]] = {
    "shared_load_bytes_per_second": _shared_loads,
    "barrier_share": lambda counted, _: counted["stall_barrier"] / (counted["warp_cycles"] or math.nan),
    "dram_share": lambda counted, row: (
        (counted["dram_read_bytes_per_second"] + counted["dram_write_bytes_per_second"]) / row["peak_bytes_per_second"]
    ),
}


def _resident(name: str, like: Capability, tile: int, sm_shared: int) -> float:
    """Return a number of blocks, warps, threads or loads on an SM, for a product with square tiles of float32."""
    shared = 2 * tile**2 * DTYPES["float32"].itemsize
    limits = block_limits(block_on(like, (tile, tile), shared, sm_shared=sm_shared), like)
    least = min(limits.values())
    numbers = {"least": least, "all threads": least * tile**2, "warps": least * tile**2 // WARP}
    return (limits | numbers | {"loads": limits["shared memory"] * tile_phase(tile, tile, tile)[0]})[name]


def _answered(table: Row, machine: Points) -> Answered:
    parts = (table["at"], *table["rows"], *table["columns"])
    operation = OPERATIONS[table["at"].get("operation", USUAL["operation"])]
    devices = {operation.variant(part["variant"]).device for part in parts if "variant" in part}
    needs_points = bool(devices) or any("level" in part for part in parts)
    names, why = [str(row["name"]) for row in table["rows"]], " ".join(table["why"].split())
    columns = _columns(table, machine)
    found = Answered(table["caption"], table["axis"], names, columns, needs_points, "", why, machine.gpu)
    return replace(found, machine=machine.named(devices)) if needs_points and found.measured else found


def _completed(table: Row, answers: Sequence[Answered]) -> Answered:
    """Return the answer with the most numbers, with those of other GPUs for the kernels that it lacks."""
    best, *others = sorted(answers, key=lambda one: -one.measured)
    for other in (each for each in others if each.gpu):
        rows, columns = list(best.rows), list(best.columns)
        for i, part in enumerate(table["columns"]):
            if _lacks(table["at"] | part, columns[i].pairs, other.columns[i].pairs):
                columns[i] = replace(other.columns[i], gpu=other.gpu)
        for j, part in enumerate(table["rows"]):
            pairs, fresh = ([each.pairs[j] for each in of.columns if each.pairs] for of in (best, other))
            if _lacks(table["at"] | part, pairs, fresh):
                rows[j] += f" (hpcmm: {other.gpu})"
                for i, another in enumerate(other.columns):
                    pairs = [*columns[i].pairs]
                    pairs[j : j + 1] = another.pairs[j : j + 1]
                    columns[i] = replace(columns[i], pairs=pairs)
        best = replace(best, rows=rows, columns=columns)
    return best


def _lacks(part: Row, own: Sequence[Pair], other: Sequence[Pair]) -> bool:
    """Whether a row or column is of a GPU kernel, and another machine alone has measured it."""
    operation = OPERATIONS[part.get("operation", USUAL["operation"])]
    if "variant" not in part or not DEVICES[operation.variant(part["variant"]).device].accelerator:
        return False
    return not any(pair.measured for pair in own) and any(pair.measured for pair in other)


def _columns(table: Row, machine: Points) -> list[Column]:
    found = []
    for i, column in enumerate(table["columns"]):
        if "text" in column:
            found.append(Column(column["name"], texts=column["text"]))
            continue
        pairs = []
        for j, row in enumerate(table["rows"]):
            at = USUAL | table["at"] | row | column
            if at.get("over") == "before":
                at = {**at, "over": at["before"]} if "before" in at else {**at, "quantity": "", "over": {}}
            written = row.get("document", column.get("document"))
            document = written[i if "document" in row else j] if written else None
            ours = _in_unit(machine.value(at), at["unit"]) if at["quantity"] else ""
            pairs.append(Pair(document, ours, at["unit"], not at["quantity"].startswith("counter:")))
        found.append(Column(str(column["name"]), pairs))
    return found


def _in_unit(value: float | str, unit: str) -> float | str:
    return value if isinstance(value, str) else value / UNITS[unit]


def _drawn(figure: Row, variant: str, machine: Points) -> Curve:
    """Draw a figure, with one of its ``variants`` in its lines and its caption if it has some."""
    sizes = range(figure["sizes"]["start"], figure["sizes"]["stop"] + 1, figure["sizes"]["step"])
    lines, chosen = {}, {"variant": variant} if variant else {}
    for line in figure["lines"]:
        line = line | chosen
        values = [(n, _in_unit(machine.value(USUAL | line | {"n": n}), figure["unit"])) for n in sizes]
        lines[line["name"]] = [(n, value) for n, value in values if not isinstance(value, str)]
    devices = {OPERATIONS["matmul"].variant((line | chosen)["variant"]).device for line in figure["lines"]}
    caption = figure["caption"].format(variant=variant)
    return Curve(figure["name"], caption, figure["unit"], lines, machine.named(devices))
