"""Explain why a rung is faster or slower than its counterpart, from counters, resources and arithmetic.

This module knows no rung by name. Every reason is a quantity that differs between both rungs of a step, with both
numbers. A step that no quantity explains is reported as not known.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from hpcmm.analysis import limits, occupancy
from hpcmm.analysis.tidy import Columns, gpus_of, mapping, points, profiles, row_dicts, runs
from hpcmm.analysis.views import Row, climbs, ladder, largest, values
from hpcmm.model import HpcmmError
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.quantities import RESOURCES, STALLS
from hpcmm.model.records import beside
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.operations.blocks import OverC
from hpcmm.system.text import amount, number, percent, whole

NEGLIGIBLE = 0.01  # a smaller change of the time needs no reason
CLEAR = 1.0  # without an interval, a change of the time by less than a factor of 2 is not distinguished from noise
NOTABLE = 0.1  # a quantity that differs by more is named, even if the time is the same
LEAST = 0.02  # a quantity that differs by less explains nothing
SHARE = 0.05  # the same for the difference of two shares
BUSY = 0.6  # share of its peak rate from which a unit is a likely limit
IDLE = 0.1  # share below which a unit limits nothing
MOST = 3  # reasons of a step
SECTOR, WARP = 32, 32  # bytes, threads
BEYOND = 2.0  # a speedup by more than the number of threads times this has another cause, too
LINE = 64  # bytes of a line of a CPU's cache
PROFILED_RANKS = 1  # of every row of profiles
COUNTED = ("operation", "rung", "dtype", "gpu")  # what counters belong to

Verdict = Literal["faster", "slower", "same", "unclear"]


@dataclass(frozen=True)
class Quantity:
    """A number that a step may change."""

    name: str  # key of ``Known.facts``
    # Clause with a place for the number of the rung and one for that of the rung before; ``{work}`` is the unit of work
    # of the operation
    text: str
    form: str = "number"  # how the numbers are formatted, a key of ``FORMS``
    less: bool = True  # whether a smaller value is faster
    unit: str = ""  # the unit of the hardware that it loads, a key of ``UNITS``; empty if unknown
    # total, number: ``total`` is the product of this quantity and ``number``. This quantity is a reason only if it
    # changes ``total`` and changes more than ``number``: wider loads touch more sectors each, but there are fewer of
    # them. Without ``number`` it suffices that both change alike: a larger share of a shorter time is no longer wait.
    total: str = ""
    number: str = ""
    wait: bool = False  # whether it is a share of the time of warps, which explains no more of the time than that share


def count(value: float) -> str:
    """Format a number that is often whole, ``"8"`` or ``"15.5"``."""
    return whole(value) if value == round(value) else number(value)


FORMS = {each.__name__: each for each in (number, percent, count, amount)}

# Units of the hardware whose use is counted: name, and key of ``facts``
UNITS = {"shared memory": "shared_pipe", "the FMA pipe": "fma", "DRAM": "dram"}


def _quantities() -> Iterator[Quantity]:
    for name, fields in beside(__file__).items():
        for stall, what in STALLS.items() if fields.get("wait") else ():
            of = {"text": fields["text"].replace("{stall}", what), "total": f"{fields['total']}_{stall}"}
            yield Quantity(f"{name}_{stall}", **fields | of)
        if not fields.get("wait"):
            yield Quantity(name, **fields)


QUANTITIES = tuple(_quantities())


@dataclass(frozen=True)
class Step:
    """A rung and the one before it on one device."""

    # below, rung: rows of ``measurements``
    below: Row
    rung: Row
    # ratio, low, high: seconds of ``below`` over those of ``rung``, and the extreme quotients of both intervals; NaN
    # without them
    ratio: float
    low: float
    high: float
    verdict: Verdict
    # reasons, despite: quantities that explain the verdict, and quantities that contradict it. For ``"same"``,
    # quantities that changed without effect.
    reasons: tuple[str, ...]
    despite: tuple[str, ...]
    source: str  # what the reasons come from: ``"counters"``, ``"resources"``, ``"traffic"`` or ``"nothing"``
    counted: str  # what the counters are of, if not of this operation in this element type

    limit: str  # what limits the rung now
    # facts_below, facts: from ``Known.facts``
    facts_below: Mapping[str, Any]
    facts: Mapping[str, Any]


def work_of(operation: str) -> str:
    """Return the unit of work of an operation, ``"multiply-add"`` or ``"element"``."""
    return "multiply-add" if OPERATIONS[operation].metric == "flops" else "element"


@dataclass(frozen=True)
class Known:
    """The counters and resources of a timings file, by point and rung, with keys that begin with ``COUNTED``.

    ``runs`` has the provenance of each run.
    """

    resources: Mapping[tuple, Row]
    counters: Mapping[tuple, Row]
    runs: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, columns: Columns, frame: pd.DataFrame) -> Known:
        """Collect the resources and counters of a timings file; ``frame`` is ``measurements(columns)``."""
        rows = points(frame)
        rows = rows[rows[list(RESOURCES)].notna().all(axis=1)]
        names = [*COUNTED, "ranks", "variant", "tile", "pick", "multiprocessors", *dimensions(), *RESOURCES]
        resources = {values(row, (*COUNTED, "ranks", *dimensions())): row for row in row_dicts(rows[names])}
        profiled = profiles(columns).sort_values(list(dimensions()), kind="stable")  # the largest size counts
        counters = {values(row, COUNTED): row for row in row_dicts(profiled) if row["result"] == "PASS"}
        return cls(resources, counters, runs(columns))

    def facts(self, row: Row) -> dict[str, Any]:
        """Return the quantities of a point, and the use of each unit; NaN if unknown."""
        found: dict[str, Any] = dict.fromkeys([each.name for each in QUANTITIES] + [*UNITS.values(), "sm"], math.nan)
        found |= self._of_source(row) | self._of_events(row) | self._of_resources(row) | self._of_counters(row)
        gpus = gpus_of(self.runs[row["run"]]) if row["gpu"] else ()
        peak = limits.fma_peak(gpus, row["dtype"], row["clock"], row["ranks"])
        return found | {"of_fma": row["flops_per_second"] / peak if peak > 0 else math.nan}

    def _of_source(self, row: Row) -> dict[str, float]:
        """Return what the record of a C kernel states: bytes of cache lines, lanes of SIMD, threads."""
        variant = OPERATIONS[row["operation"]].find(row["variant"])
        if variant is None or not variant.traffic:
            return {}
        cpu, itemsize = mapping(self.runs[row["run"]].get("cpu")), DTYPES[row["dtype"]].itemsize
        path = mapping(cpu.get("simd")).get(f"{row['operation']}/{row['variant']}")
        lines, elements = (variant.traffic[name] for name in ("lines", "elements"))
        return {
            "line_bytes": LINE * lines + itemsize * elements,
            # down a column, no compiler takes several elements at once; else it decides
            "lanes": limits.SIMD_BYTES[path] / itemsize if path in limits.SIMD_BYTES else 1.0 if lines else math.nan,
            "threads_used": (cpu.get("threads_per_rank") or math.nan) if variant.all_threads else 1.0,
        }

    def _of_events(self, row: Row) -> dict[str, Any]:
        if not row["cpu_instructions"] > 0:
            return {}
        work = _work(row)
        missed = {"l1_missed_bytes": row["cpu_l1_misses"], "missed_bytes": row["cpu_cache_misses"]}
        found = {name: LINE * lines / work for name, lines in missed.items()}
        return found | {"counted": row["dtype"], "cpu_instructions": row["cpu_instructions"] / work}

    def _of_resources(self, row: Row) -> dict[str, Any]:
        kernel = self.resources.get(values(row, (*COUNTED, "ranks", *dimensions())))
        if kernel is None:
            return {}
        occupied = occupancy.occupancy_of(kernel)
        threads, blocks = kernel["block_x"] * kernel["block_y"], kernel["grid_x"] * kernel["grid_y"]
        if not (threads > 0 and blocks > 0):
            return {}
        found = {**{name: kernel[name] for name in RESOURCES}, **occupied, "threads": threads}
        first, *others = OPERATIONS[row["operation"]].dimensions
        if others:
            with contextlib.suppress(HpcmmError):  # the tile depends on the SM count, which the file may not have
                task = occupancy.task_of(kernel, kernel["multiprocessors"])
                if task and isinstance(task.geometry, OverC):
                    found["elements_per_thread"] = math.prod(task.geometry.covered(task)) / threads
        else:
            found["elements_per_thread"] = max(1.0, row[first] / (blocks * threads * row["ranks"]))
        waves = blocks / (kernel["resident_blocks"] * self._multiprocessors(row) or math.nan)
        return found | ({"filled": waves / math.ceil(waves)} if waves > 0 else {})

    def _of_counters(self, row: Row) -> dict[str, Any]:
        counted = self._profile(row)
        if counted is None:
            return {}
        work = _work(counted)
        found = {name: value for name, value in counted.items() if isinstance(value, float)}
        of = "" if counted["operation"] == row["operation"] else f"{counted['operation']} in "
        found |= {"counted": of + counted["dtype"], "launches": float(counted["launches"])}
        accesses = counted["shared_loads"] + counted["shared_stores"]
        found["shared_accesses"] = WARP * accesses / work
        found |= {"warps": counted["achieved_occupancy"], "sm": counted["sm_throughput"]}
        plain = counted["dtype"] == "float32" and not row["arithmetic"]
        found["fma"] = counted["fma_pipe"] if plain else math.nan
        moved = counted["dram_read_bytes_per_second"] + counted["dram_write_bytes_per_second"]
        found["dram"] = moved / row["peak_bytes_per_second"]
        seconds = _counted_seconds(row, counted, work)
        sectors = counted["load_sectors"] or math.nan  # 0: TMA loads all, which is not counted
        found["load_bytes"] = counted["global_load_bytes_per_second"] * seconds / work if sectors > 0 else math.nan
        found["load_requests"] = found["load_bytes"] * WARP / (SECTOR * sectors)
        found["dram_bytes"] = moved * seconds / work
        # one wavefront per SM and clock at most; counts by instruction omit accesses without an active thread
        clocks = seconds * counted["sm_clock"] * self._multiprocessors(row)
        wavefronts = counted["shared_pipe"] * clocks if accesses else 0.0
        found["shared_wavefronts"] = WARP * wavefronts / work
        passes = counted["shared_load_wavefronts"] + counted["shared_store_wavefronts"]
        loads = counted["shared_load_wavefronts"] - counted["shared_load_conflicts"]
        found["active_loads"] = WARP * loads / work  # a load without an active thread has no wavefront
        free = loads + counted["shared_store_wavefronts"] - counted["shared_store_conflicts"]
        found["conflict_factor"] = passes / free if free > 0 else math.nan
        found["instructions_per_work"] = WARP * counted["instructions"] / work or math.nan  # 0: not counted
        cycles = counted["warp_cycles"] or math.nan
        for name in STALLS:
            found[f"stalled_{name}"] = counted[f"stall_{name}"] / cycles
            found[f"waited_{name}"] = found[f"stalled_{name}"] * row["seconds"]
        return found

    def _profile(self, row: Row) -> Row | None:
        """Find the counters of the rung, or of an element type of the same size, or an operation with these kernels."""
        if row["ranks"] != PROFILED_RANKS:  # whose kernel has another share of the problem
            return None
        size, folder = DTYPES[row["dtype"]].itemsize, OPERATIONS[row["operation"]].kernels
        dtypes = [row["dtype"], *(name for name, each in DTYPES.items() if each.itemsize == size)]
        operations = [row["operation"], *(name for name, each in OPERATIONS.items() if each.kernels == folder)]
        keys = [(operation, row["rung"], dtype, row["gpu"]) for operation in operations for dtype in dtypes]
        return next((self.counters[key] for key in keys if key in self.counters), None)

    def _multiprocessors(self, row: Row) -> float:
        """Return the multiprocessors of the GPU of rank 0, whose kernel the resources and counters describe."""
        gpus = gpus_of(self.runs[row["run"]])
        return (gpus[0].get("multiprocessors") if gpus else 0) or math.nan


def _counted_seconds(row: Row, counted: Row, work: int) -> float:
    """Return the time of the counted launch, which the profiler does not measure; NaN if unknown.

    A single launch took the time of the point. With several launches, the counted one is the first, which reads each
    input from DRAM once.
    """
    operation = OPERATIONS[row["operation"]]
    if operation.metric == "bytes":
        inputs = sum(each.role != "out" for each in operation.operands)
        read = counted["dram_read_bytes_per_second"]
        return inputs * work * DTYPES[counted["dtype"]].itemsize / read if read else math.nan
    same = all(counted[name] == row[name] for name in operation.dimensions)
    return row["seconds"] if same and counted["launches"] == 1 else math.nan


def _work(row: Row) -> int:
    return math.prod(int(row[name]) for name in OPERATIONS[row["operation"]].dimensions)


def steps(rows: Sequence[Row], known: Known) -> list[Step]:
    """Explain each step of a ladder, of the points of one series.

    The steps are those at its largest size, from the counterpart of a rung to the rung, both with their fastest tile. A
    rung that runs another one is no step.
    """
    fastest: dict[tuple, Row] = {}
    timed = [row for row in largest(rows) if row["seconds"] > 0 and climbs(row)]
    for row in sorted(timed, key=lambda row: row["seconds"]):
        fastest.setdefault((row["device"], row["variant"]), row)
    return [_step(row["compared"], row, known) for row in ladder(fastest.values()) if row["step"] > 0]


def _step(below: Row, rung: Row, known: Known) -> Step:
    ratio = below["seconds"] / rung["seconds"]
    low, high = below["seconds_low"] / rung["seconds_high"], below["seconds_high"] / rung["seconds_low"]
    before, after = known.facts(below), known.facts(rung)
    verdict = _verdict(ratio, low, high)
    least = NOTABLE if verdict in ("same", "unclear") else max(LEAST, min(NOTABLE, abs(math.log(ratio)) / 2))
    changed = sorted(_changes(before, after, work_of(rung["operation"]), least), key=lambda each: -each.weight)
    if verdict in ("faster", "slower"):
        changed = [each for each in changed if each.use >= IDLE or math.isnan(each.use)]
    helping, hurting = ([each for each in changed if each.helps is helps] for helps in (True, False))
    reasons, despite = {"faster": (helping, hurting), "slower": (hurting, helping)}.get(verdict, (changed, []))
    beyond = abs(math.log(ratio)) - math.log(BEYOND)
    if [each.name for each in reasons] == ["threads_used"] and beyond > reasons[0].size:
        reasons = []
    units = _units(before, after, rung, below, verdict)
    change = (after["sm"] - before["sm"]) * (1 if verdict == "faster" else -1)
    if verdict in ("faster", "slower") and not (units or reasons) and change >= SHARE:
        now, then = percent(after["sm"]), percent(before["sm"])
        units.append(f"the busiest unit of the SM is busy {now} of the time instead of {then}")
    source = "counters" if "counted" in before and "counted" in after else "resources" if "threads" in after else ""
    if source != "counters" and math.isfinite(before["line_bytes"]) and math.isfinite(after["line_bytes"]):
        source = "traffic"
    counted = after.get("counted", rung["dtype"])
    shown, against = (*units, *_shown(reasons, MOST - len(units))), tuple(_shown(despite, 1))
    return Step(
        *(below, rung, ratio, low, high, verdict, shown, against, source or "nothing"),
        *(counted if counted != rung["dtype"] else "", limit(rung, after), before, after),
    )


def _verdict(ratio: float, low: float, high: float) -> Verdict:
    """Judge a ratio by its interval. A difference below ``NEGLIGIBLE`` is none, however certain it is."""
    if abs(math.log(ratio)) < math.log1p(NEGLIGIBLE):
        return "same"
    if not (math.isfinite(low) and math.isfinite(high)):
        if abs(math.log(ratio)) < math.log1p(CLEAR):
            return "unclear"
        return "faster" if ratio > 1 else "slower"
    return "faster" if low > 1 else "slower" if high < 1 else "same"


@dataclass(frozen=True)
class _Change:
    name: str
    text: str
    helps: bool
    size: float
    unit: str
    use: float

    @property
    def weight(self) -> float:
        return min(self.size, 3.0) * (0.5 if math.isnan(self.use) else self.use)


def _changes(before: Row, after: Row, work: str, least: float) -> Iterator[_Change]:
    """Yield the quantities that differ by a share of at least ``least``."""
    for each in QUANTITIES:
        change = _logarithm(before[each.name], after[each.name])
        if abs(change) < math.log1p(least):
            continue
        if each.form == "percent" and abs(after[each.name] - before[each.name]) < SHARE:
            continue
        if each.total and change * _logarithm(before[each.total], after[each.total]) <= 0:
            continue
        if each.number and abs(_logarithm(before[each.number], after[each.number])) > abs(change) / 2:
            continue
        helps = (change < 0) == each.less
        use = (before if helps else after)[UNITS[each.unit]] if each.unit else math.nan
        text = each.text.format(*(FORMS[each.form](facts[each.name]) for facts in (after, before)), work=work)
        size = abs(after[each.name] - before[each.name]) if each.wait else abs(change)
        yield _Change(each.name, text, helps, size, each.unit, use)


def _shown(changes: Sequence[_Change], most: int) -> Iterator[str]:
    """Yield the clauses of the first changes; the first clause of each unit notes it if that unit is not busy."""
    units = set()
    for each in changes[:most]:
        idle = each.use < BUSY and each.unit not in units
        units.add(each.unit)
        yield each.text + (f" ({each.unit} is only {percent(each.use)} busy)" if idle else "")


def _logarithm(before: float, after: float) -> float:
    """Return the logarithm of after over before: 0 if one is unknown or both are zero, at most 10 in size."""
    if not (math.isfinite(before) and math.isfinite(after)) or before == after:
        return 0.0
    if before <= 0 or after <= 0:
        return 10.0 if after > before else -10.0
    return math.log(after / before)


def _units(before: Row, after: Row, rung: Row, below: Row, verdict: Verdict) -> list[str]:
    """Report another arithmetic, and for a clear verdict a rung that alone is faster than the FMA units can be."""
    found = []
    own, other = (row["arithmetic"] or f"{row['dtype']} arithmetic" for row in (rung, below))
    if own != other:
        found.append(f"it computes with {own} instead of {other}")
    if verdict in ("faster", "slower") and after["of_fma"] > 1 >= before["of_fma"]:
        share = percent(after["of_fma"])
        found.append(f"its rate is {share} of the peak of the FMA units at this clock, so tensor cores compute it")
    return found


NO_LIMIT = "the limit is not known: the file has no counters for it"


def limit(row: Row, facts: Row) -> str:
    """Return what limits a rung: the busiest unit, or that none of the counted ones is busy."""
    use = {unit: facts[name] for unit, name in UNITS.items() if math.isfinite(facts[name])}
    if not use:
        if math.isfinite(row["fraction"]):
            return f"it reaches {percent(row['fraction'])} of the limit of {row['ceiling']}"
        return NO_LIMIT
    unit = max(use, key=use.__getitem__)
    if use[unit] >= BUSY:
        return f"{unit} is busy {percent(use[unit])} of the time, more than any other unit counted"
    waits = {what: facts[f"stalled_{name}"] for name, what in STALLS.items() if facts[f"stalled_{name}"] > 0}
    names = ", ".join(f"{name} {percent(share)}" for name, share in use.items())
    if facts["sm"] >= BUSY:
        share = percent(facts["sm"])
        return f"the busiest unit of the SM is busy {share} of the time; the counters do not name it ({names})"
    text = f"no counted unit is busy ({names}"
    if not waits:
        return f"{text}): the kernel waits, but the counters do not show for what"
    most = max(waits, key=waits.__getitem__)
    return f"{text}); warps wait longest for {most}, {percent(waits[most])} of their time"
