"""The levels of memory of each device: latency and bandwidth, from the operations that measure them."""

import math
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis.tidy import on_accelerator, points, row_dicts
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations.memory import BANDWIDTH, COPY, LATENCY, PIECE_BYTES, SCALE, chased_bytes

KIB, MIB = 2**10, 2**20
# Numbers of bytes that are certainly in a level. L1 and shared memory are one array of an SM; without shared memory,
# L1 has at least as many bytes as shared memory has at most. The L2 caches of GPUs for data centres have 6 to 128 MiB.
L1_BYTES = 64 * KIB  # where the bytes of shared memory are unknown
L2_BYTES = 512 * KIB, 4 * MIB
CHASED_DRAM_BYTES = 64 * MIB  # for a chain that starts with empty caches and is read in small part
READ_DRAM_BYTES = 512 * MIB  # read from end to end, with a small part of them in the L2 cache
SMALL_CONSTANT = 2 * KIB  # first level of the constant caches

PLACES = {
    "registers": "registers",
    "shuffle": "registers of the lanes of a warp",
    "shared": "shared memory",
    "constant": "constant memory",
    "constant_serialised": "constant memory, an address for each lane",
}
ORDER = (
    *PLACES.values(),
    *("constant memory beyond its first cache", "L1 cache", "L2 cache", "DRAM", "DRAM, copy", "DRAM, scale"),
)
CEILINGS = ("L1 cache", "L2 cache", "DRAM")  # that a roofline shows


def level_of(operation: str, variant: str, nbytes: int, l1_bytes: float = L1_BYTES) -> str:
    """Return the level of a GPU's memory that a point measures, whose elements take ``nbytes`` there; empty if unknown.

    ``l1_bytes`` certainly fit into the L1 cache of an SM.

    >>> level_of("latency", "cached", 4096), level_of("latency", "uncached", 4096)
    ('L1 cache', '')
    >>> level_of("bandwidth", "cached", 2**16), level_of("bandwidth", "cached", 2**15)
    ('L1 cache', '')
    >>> level_of("bandwidth", "uncached", 2**21), level_of("bandwidth", "stride_8", 2**30)
    ('L2 cache', 'DRAM, neighbours 8 elements apart')
    """
    if operation in (COPY.name, SCALE.name):
        return f"DRAM, {operation}" if nbytes >= READ_DRAM_BYTES else ""
    if variant == "constant" and nbytes > SMALL_CONSTANT:
        return "constant memory beyond its first cache" if nbytes >= 32 * KIB else ""
    if variant in PLACES:
        return PLACES[variant]
    if nbytes >= (CHASED_DRAM_BYTES if operation == LATENCY.name else READ_DRAM_BYTES):
        stride = variant.removeprefix("stride_")
        return "DRAM" if stride in (variant, "1") else f"DRAM, neighbours {stride} elements apart"
    if variant == "cached" and nbytes <= l1_bytes:
        return "L1 cache" if operation == LATENCY.name or nbytes >= PIECE_BYTES else ""
    return "L2 cache" if variant == "uncached" and L2_BYTES[0] <= nbytes <= L2_BYTES[1] else ""


def levels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return latency and bandwidth of each level of memory, on one rank, from ``analysis.measurements``.

    It has one row for each model of a GPU, or machine of a CPU, and level, from the fastest points: ``owner``, the
    model or the machine; ``level``, for a CPU empty; ``latency_seconds``, of a step of a chain, with ``_low`` and
    ``_high``; ``latency_cycles``, at the clock of the point; ``latency_bytes`` of its elements; ``bytes_per_second``
    with ``_low`` and ``_high``, ``bandwidth_bytes``, and the names ``latency_variant`` and ``bandwidth_variant``. NaN
    and empty where unknown.
    """
    rows = points(frame)
    rows = rows[rows["operation"].isin([each.name for each in (LATENCY, BANDWIDTH, COPY, SCALE)])]
    rows = rows[(rows["ranks"] == 1) & rows["seconds"].notna()]
    rows = rows.assign(accelerated=on_accelerator(rows), owner=rows["gpu"].where(on_accelerator(rows), rows["machine"]))
    placed: dict[tuple, dict[str, Any]] = {}
    for row in row_dicts(rows):
        n, chased, shared = int(row["n"]), row["operation"] == LATENCY.name, row["sm_shared_bytes"]
        nbytes = chased_bytes(row["variant"], n) if chased else n * DTYPES[row["dtype"]].itemsize
        level, l1_bytes = "", shared if shared > 0 else L1_BYTES  # NaN where unknown
        if row["accelerated"] and not (level := level_of(row["operation"], row["variant"], nbytes, l1_bytes)):
            continue
        stride = row["variant"].rpartition("stride_")[2]
        further = nbytes + (int(stride) if stride.isdecimal() else 0)
        place = ORDER.index(level) if level in ORDER else len(ORDER) + further
        whose = {"owner": row["owner"], "device": row["device"], "level": level, "place": place}
        known = placed.setdefault((row["owner"], row["device"], level or nbytes), whose)
        if not chased:
            if row["bytes_per_second"] > known.get("bytes_per_second", -math.inf):
                rates = {f"bytes_per_second{end}": row[f"bytes_per_second{end}"] for end in ("", "_low", "_high")}
                known |= {**rates, "bandwidth_bytes": nbytes, "bandwidth_variant": row["rung"]}
        elif row["k"] and row["seconds"] / row["k"] < known.get("latency_seconds", math.inf):
            times = {f"latency_seconds{end}": row[f"seconds{end}"] / row["k"] for end in ("", "_low", "_high")}
            cycles = times["latency_seconds"] * row["clock"]
            known |= {**times, "latency_cycles": cycles, "latency_bytes": nbytes, "latency_variant": row["variant"]}
    names = ("latency_seconds", "latency_cycles", "latency_bytes", "bytes_per_second", "bandwidth_bytes")
    ends = [f"{name}_{end}" for name in ("latency_seconds", "bytes_per_second") for end in ("low", "high")]
    texts = ["owner", "device", "level", "latency_variant", "bandwidth_variant"]
    table = pd.DataFrame(list(placed.values()), columns=[*texts, "place", *names, *ends])
    table[texts] = table[texts].fillna("")
    return table.sort_values(["owner", "device", "place"], kind="stable").reset_index(drop=True)


def ceilings(table: pd.DataFrame, gpu: str) -> list[tuple[str, float]]:
    """Return the measured bandwidths [B/s] that a roofline of a GPU model shows, by level: from rows of ``levels``."""
    own = table[(table["owner"] == gpu) & table["level"].isin(CEILINGS)].sort_values("place", kind="stable")
    highest = own["bytes_per_second"].astype(float).groupby(own["level"], sort=False).max()
    return [(f"{level}, measured", rate) for level, rate in highest.items() if np.isfinite(rate)]
