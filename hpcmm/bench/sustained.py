"""Read the lines that the ranks of sustained products wrote, as the groups of a file. It needs no MPI."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcmm.model.measurement import Batch
from hpcmm.model.quantities import ERROR_COUNTERS, VITALS
from hpcmm.store import Groups, as_groups, joined, placed
from hpcmm.system import files


def lines_of(output: Path) -> list[Path]:
    return sorted(output.parent.glob(f"{output.stem}.*.jsonl"))


def so_far(output: Path, batch: Batch) -> Groups | None:
    """Return the whole lines of an ended job's ranks as groups of a file; None without lines of this batch."""
    everyone = []
    for path in lines_of(output):
        everyone.append([])
        with suppress(OSError, ValueError):  # of a line that was cut or damaged
            for line in files.bytes_of(path).splitlines(keepends=True):
                everyone[-1].append(json.loads(line.removesuffix(b"\n") if line.endswith(b"\n") else b""))
    everyone = [lines for lines in everyone if lines and lines[0].get("fingerprint") == batch.fingerprint]
    everyone.sort(key=lambda lines: lines[0]["rank"])
    complete = everyone and everyone[0][0]["rank"] == 0  # which has the provenance
    return groups_of(batch, everyone) if complete else None


def groups_of(batch: Batch, everyone: Iterable[Sequence[Mapping[str, Any]]]) -> Groups:
    everyone = list(everyone)
    provenance = everyone[0][0]["provenance"]
    intervals = [(first["rank"], line) for first, *lines in everyone for line in lines if "products" in line]
    counted = []
    for first, *lines in everyone:
        last = next((line["errors"] for line in reversed(lines) if "errors" in line), {})
        for name in ERROR_COUNTERS:
            counted.append((first["rank"], name, first["errors"].get(name, math.nan), last.get(name, math.nan)))
    names = ("dtype", "n", "flops", "seconds", "products", "wrong", "busy")
    groups: dict[str, dict[str, list]] = {
        **placed(batch.name, [provenance]),
        "sustained": {
            "run": [0 for _ in intervals],
            "rank": [rank for rank, _ in intervals],
            **{name: [line[name] for _, line in intervals] for name in names},
            **{name: [line["vitals"].get(name, math.nan) for _, line in intervals] for name in VITALS},
        },
        "errors": {
            "run": [0 for _ in counted],
            **{name: [row[i] for row in counted] for i, name in enumerate(("rank", "counter", "before", "after"))},
        },
    }
    return joined([as_groups(groups)])  # with all other groups, empty
