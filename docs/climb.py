"""The steps of the tutorial: the rate of a rung beside its counterpart, and the counters that show why it differs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from hpcmm import analysis
from hpcmm.analysis.why import Known
from hpcmm.report import formats
from hpcmm.report.ratio import Ratio
from hpcmm.system.text import number, percent


@dataclass(frozen=True)
class Step:
    """Rungs, each beside the rung before it, which differs in one idea, and the quantities that show the idea."""

    rungs: tuple[str, ...]
    shown: tuple[str | Callable, ...]
    operation: str = "matmul"
    device: str = "cuda"
    sweeps: tuple[str, ...] = ()  # that have it, by default the ladders


def three_digits(value: float) -> str:
    return f"{100 * value:.3g} %"


WAVEFRONTS_OF_BLOCKS = ("shared_load_wavefronts", "shared_load_conflicts", "grid_x")


def combining_loads(facts: Mapping[str, Any]) -> float:
    """Return the loads of warps from shared memory with an active lane, per block."""
    wavefronts, conflicts, blocks = (facts.get(name, math.nan) for name in WAVEFRONTS_OF_BLOCKS)
    return (wavefronts - conflicts) / blocks


# Lines of 128 bytes that a warp asks of L1 per 32 multiply-adds, by hand: a row of B and one element of A; or one
# element of B and a column of A
LINES = {"naive_unguarded": 2, "naive": 2, "uncoalesced": 33}


def bound_by_l1(facts: Mapping[str, Any]) -> float:
    """Return the rate in TFLOP/s at which every SM gets a line from L1 in every clock."""
    return 2 * 32 / LINES[facts["variant"]] * facts["multiprocessors"] * facts["clock"] / 1e12


# Quantity -> its title, and how it is written. Those that ``Known.facts`` does not have are functions of its facts.
QUANTITIES: Mapping[str | Callable, tuple[str, Callable[[float], str]]] = {
    "load_requests": ("global loads of a thread per multiply-add", number),
    "load_sectors": ("sectors per global load of a warp", number),
    "stalled_lg_throttle": ("time that warps wait for room in the queue of L1", three_digits),
    "stalled_long_scoreboard": ("time that warps wait for data from L1, L2 or DRAM", three_digits),
    "stalled_mio_throttle": ("time that warps wait for room in the queue of shared memory", three_digits),
    "stalled_barrier": ("time that warps wait at barriers", three_digits),
    "dram": ("DRAM: share of its bandwidth", three_digits),
    "l2_hits": ("accesses to L2 that hit", three_digits),
    "shared_pipe": ("shared memory: share of its rate", three_digits),
    "fma": ("FMA units: share of their rate", three_digits),
    "shared_accesses": ("shared memory accesses of a thread per multiply-add", number),
    "conflict_factor": ("wavefronts by bank conflicts, relative to none", number),
    "instructions_per_work": ("instructions of a warp per 32 multiply-adds", number),
    "warps": ("occupancy", three_digits),
    "occupancy": ("occupancy, by the resources", three_digits),
    "resident_blocks": ("blocks of an SM", number),
    "registers": ("registers of a thread", number),
    "line_bytes": ("bytes of cache lines per multiply-add", number),
    bound_by_l1: ("bound: one line from L1 per clock and SM, in TFLOP/s", number),
    combining_loads: ("shared memory loads of warps per block", number),
}

SECTOR = 32  # bytes
SUMS = ("divergent", "strided", "sequential", "first_add", "last_warp")
STEPS: Mapping[str, Step] = {
    "order": Step(("parallel_for", "openmp"), ("line_bytes",), device="cpu", sweeps=("product",)),
    "naive": Step(("naive_unguarded", "naive"), ("load_requests", bound_by_l1, "stalled_lg_throttle", "dram", "fma")),
    "coalescing": Step(("uncoalesced", "naive"), ("load_sectors", "load_requests", bound_by_l1, "stalled_lg_throttle")),
    "tiles": Step(
        ("naive_unguarded", "tiled_exact"),
        ("load_requests", "shared_accesses", "stalled_lg_throttle", "stalled_mio_throttle", "shared_pipe"),
    ),
    "ragged": Step(("tiled_exact", "tiled_remainder"), ("load_requests", "instructions_per_work")),
    "in_the_tile": Step(
        ("tiled_uncoalesced_b", "tiled_padded", "tiled_uncoalesced"), ("load_sectors", "shared_accesses")
    ),
    "conflicts": Step(("bank_conflict", "conflict_free"), ("conflict_factor", "shared_accesses", "shared_pipe")),
    "unrolling": Step(
        ("tiled_rolled", "tiled_unrolled"), ("instructions_per_work", "shared_accesses", "stalled_mio_throttle")
    ),
    "pitch": Step(("tiled_padded", "pitched"), ("load_sectors",)),
    "occupancy": Step(
        ("tiled_padded", "tiled_four_blocks", "tiled_two_blocks", "tiled_one_block"),
        ("resident_blocks", "occupancy", "stalled_long_scoreboard"),
        sweeps=("blocks",),
    ),
    "registers": Step(
        ("tiled_padded", "register_1d", "register_2d"),
        ("shared_accesses", "instructions_per_work", "registers", "warps", "fma"),
    ),
    "wide": Step(("register_2d", "vectorized", "warp_tiled"), ("instructions_per_work", "conflict_factor", "fma")),
    "pipeline": Step(
        ("warp_tiled", "asynchronous", "swizzled"), ("stalled_long_scoreboard", "l2_hits", "conflict_factor", "fma")
    ),
    "larger": Step(("swizzled", "large_thread_tile"), ("shared_accesses", "registers", "warps", "fma")),
    "tensor": Step(("swizzled", "tensor_core", "warpgroup"), ("instructions_per_work", "shared_accesses", "warps")),
    "sums": Step(SUMS, (combining_loads, "conflict_factor", "stalled_barrier", "dram"), "sum"),
}


def table(step: Step, rows: pd.DataFrame, known: Known) -> str:
    """Return a table with a column for each rung.

    Parameters
    ----------
    step : Step
    rows : DataFrame
        Measured points of the operation, one for each rung, device and element type.
    known : Known
    """
    rows = rows[(rows["device"] == step.device) & (rows["dtype"] == "float32")]
    by_name = {row["variant"]: row for row in analysis.row_dicts(rows)}
    found = [by_name[name] for name in step.rungs if name in by_name]
    if len(found) < 2:
        return ""
    facts = [{**row, **known.facts(row)} for row in found]
    unit = formats.rate_unit(step.operation, "float32", rows[formats.rate_column(step.operation)].max())
    head = [f"float32 at {formats.size(found[0])}", *(f"`{row['variant']}`" for row in found)]
    gains = [Ratio.of(row, before).short.replace("×", "", 1) for before, row in itertools.pairwise(found)]
    cells = [[unit.name, *(formats.rate(row, unit=unit) for row in found)], ["speedup over the one before", "", *gains]]
    for name in step.shown:
        title, form = QUANTITIES[name]
        values = [name(each) if callable(name) else each.get(name, math.nan) for each in facts]
        cells.append([title, *(form(value) if math.isfinite(value) else "—" for value in values)])
    return tabulate(cells, head, "pipe", colalign=["left", *["right"] * len(found)], disable_numparse=True)


def pitches(rows: pd.DataFrame) -> str:
    """Return a table of the gain by a pitch at each size; ``rows`` are points of one tile in float32."""
    by = {(row["variant"], row["n"]): row for row in analysis.row_dicts(rows)}
    sizes = sorted(n for name, n in by if name == "pitched" and ("tiled_padded", n) in by)
    if not sizes:
        return ""
    gains = [Ratio.of(by["pitched", n], by["tiled_padded", n]).short.replace("×", "", 1) for n in sizes]
    aligned = ["all" if 4 * n % SECTOR == 0 else "not all" for n in sizes]
    cells = [["rows at multiples of 32 bytes", *aligned], ["`pitched` × `tiled_padded`", *gains]]
    head = ["float32 at", *map(str, sizes)]
    return tabulate(cells, head, "pipe", colalign=["left", *["right"] * len(sizes)], disable_numparse=True)


def transfers(rows: pd.DataFrame) -> str:
    """Return a table of the gain by page-locked memory at each size; ``rows`` are points of one rung."""
    by = {(row["memory"], row["n"]): row for row in analysis.row_dicts(rows)}
    sizes = sorted(n for memory, n in by if memory == "pinned" and ("pageable", n) in by)
    if not sizes:
        return ""
    size = np.dtype(rows["dtype"].iloc[0]).itemsize
    cells = [
        [
            "× pageable",
            *(number(by["pageable", n]["call_seconds"] / by["pinned", n]["call_seconds"]) for n in sizes),
        ]
    ]
    for memory, title in (("pageable", "pageable"), ("pinned", "page-locked")):
        own = [by[memory, n] for n in sizes]
        cells.append([f"{title}: end to end", *(formats.duration(row["call_seconds"]) for row in own)])
        rates = (3 * size * row["n"] ** 2 / row["call_upload"] for row in own)  # of A, B and C
        cells.append([f"{title}: upload, GB/s", *map(formats.billions, rates)])
        cells.append(
            [
                f"{title}: share of the kernel",
                *(percent(row["call_kernel"] / row["call_seconds"]) for row in own),
            ]
        )
    head = [f"`{rows['variant'].iloc[0]}` at", *map(str, sizes)]
    return tabulate(cells, head, "pipe", colalign=["left", *["right"] * len(sizes)], disable_numparse=True)
