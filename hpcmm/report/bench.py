"""The results of ``hpcmm bench``: verdicts and times, as JSON and as text."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from hpcmm import analysis
from hpcmm.analysis import occupancy, visits
from hpcmm.model import Operation, Variant
from hpcmm.model.quantities import COUNTERS, DIFFERENCES
from hpcmm.operations import OPERATIONS
from hpcmm.report import formats, hardware
from hpcmm.report.chapters import same_bits
from hpcmm.system.streams import tabulated
from hpcmm.system.text import amount, number, percent, whole

INTERVALS = ("seconds", "ratio", "tuned_ratio")
NUMBERS = (*(f"{each}{end}" for each in INTERVALS for end in ("", "_low", "_high")), "fraction", "visits", "spread")
NAMES = 3  # columns of a table that name its row: kernel, size, type
RESOURCES = ("registers", "local_bytes", "shared_bytes", "dynamic_shared_bytes")


def timed_rows(operation: Operation, own: Sequence[Variant], other: str, frame: Any) -> list[dict[str, Any]]:
    """Return the numbers of each point, the kernels' first; NaN becomes None."""
    occupied = occupancy.resources(frame)
    of_kernel = {(row["label"], row["dtype"]): row for row in analysis.row_dicts(occupied)}
    rows = analysis.row_dicts(frame)
    problem = (*operation.dimensions, "dtype")
    beside = {analysis.values(row, problem): row for row in rows if row["contender"] == other}
    order = {variant.name: i for i, variant in enumerate(own)}
    found, seen = [], set()
    for row in sorted(rows, key=lambda row: (order.get(row["contender"], len(order)), row["baseline"])):
        at = analysis.values(row, problem)
        timed = row["result"] == "PASS" and math.isfinite(row["seconds"])  # a wrong kernel's library is not timed
        if not timed or (row["label"], at) in seen:
            continue
        seen.add((row["label"], at))
        numbers = {name: row[name] for name in NUMBERS}
        against = beside.get(at)
        if against is not None and row["contender"] in order:
            numbers |= quotient("against", against, row)
        kernel = of_kernel.get((row["label"], row["dtype"]), {})
        numbers |= {name: kernel.get(name) for name in (*RESOURCES, "occupancy")}
        numbers = {name: value if math.isfinite(value or 0) else None for name, value in numbers.items()}
        texts = {"limited_by": kernel.get("limited_by", "")}
        texts |= {name: row[name] for name in ("ceiling", "dtype", "library", "tuned_library")}
        place = {"kernel": row["label"], "size": formats.size(row), "rate": formats.rate_text(row)}
        shape = {"shape": [int(row[each]) for each in operation.dimensions]}
        found.append({**place, **shape, **texts, "own": row["contender"] in order, **numbers})
    return found


def quotient(name: str, over: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, float]:
    """Return the ratio of two times, and its interval from their intervals, assuming independent errors."""
    ratio = over["seconds"] / under["seconds"]
    widths = [math.log(each["seconds_high"] / each["seconds_low"]) / 2 for each in (over, under)]
    factor = math.exp(math.hypot(*widths))
    return {name: ratio, f"{name}_low": ratio / factor, f"{name}_high": ratio * factor}


def table(found: Mapping[str, Any], other: str, tuned: bool) -> str:
    """Return the times as a table, and the best of combinations."""

    def memory(row: Mapping[str, Any], *names: str) -> str:
        return amount(sum(row[name] for name in names)) if row["registers"] else ""

    def shared(row: Mapping[str, Any], share: str, of: str, between: str) -> str:
        return f"{percent(row[share])}{between}{row[of]}" if row[share] else ""

    rows = found["points"]
    library, tuned_library = (
        " or ".join(dict.fromkeys(row[name] for row in rows if row[name])) for name in ("library", "tuned_library")
    )
    if tuned:
        rows = sorted(rows, key=lambda row: (row["shape"], row["dtype"], row["seconds"]))
    columns = {
        **{"kernel": itemgetter("kernel"), "size": itemgetter("size"), "type": itemgetter("dtype")},
        **{"time": lambda row: formats.duration(row["seconds"]), "rate": itemgetter("rate")},
        f"over {library}": lambda row: interval(row, "ratio"),
        f"over tuned {tuned_library}": lambda row: interval(row, "tuned_ratio"),
        f"over {other}": lambda row: interval(row, "against"),
        "of the limit": lambda row: shared(row, "fraction", "ceiling", " "),
        "registers": lambda row: whole(row["registers"] or math.nan),
        "local memory": lambda row: memory(row, "local_bytes"),
        "shared memory": lambda row: memory(row, "shared_bytes", "dynamic_shared_bytes"),
        "occupancy": lambda row: shared(row, "occupancy", "limited_by", ", "),
    }
    texts = [_lined(rows, columns)] if rows else []
    spreads = [row["spread"] for row in rows if row["spread"] is not None]
    if spreads and (spread := statistics.median(spreads)) > visits.NOISY:
        noisy = f"this machine is too noisy for small differences: visits scatter by {percent(spread)} (median)"
        texts.append(f"\n{noisy}; an idle machine gives narrower intervals")
    if tuned:
        for name, why in found["not_tried"].items():
            texts.append(f"{name}: not tried: {why}")
        for shape, dtype in dict.fromkeys((tuple(row["shape"]), row["dtype"]) for row in rows):
            best = next(row for row in rows if row["own"] and (tuple(row["shape"]), row["dtype"]) == (shape, dtype))
            texts.append(f"best at {best['size']} {dtype}: {best['kernel']}, {best['rate']}")
    return "\n".join(texts)


def _lined(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Callable[[Any], str]]) -> str:
    lines = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    lines = {name: cells for name, cells in lines.items() if any(cells)}
    return f"\n{tabulated(list(lines), list(zip(*lines.values(), strict=True)), NAMES, [True] * len(lines))}"


def interval(row: Mapping[str, Any], name: str) -> str:
    """Format a ratio with its interval; empty without one, and for the baseline itself."""
    if row.get(name) is None or not row["own"]:
        return ""
    ends = row.get(f"{name}_low"), row.get(f"{name}_high")
    if None in ends:
        return formats.times(row[name])
    return f"{formats.times(row[name])} ({number(ends[0])} to {number(ends[1])})"


def bits(frame: Any) -> list[dict[str, Any]]:
    """Return by point the first differences of bits, and their sizes in ulps."""
    found = []
    for row in analysis.row_dicts(same_bits.compared(frame)):
        operation = OPERATIONS[row["operation"]]
        place = {"kernel": row["label"], "shape": [int(row[each]) for each in operation.dimensions]}
        known = {name: row[name] for name in DIFFERENCES if row[name] == row[name]}
        found.append(place | {"dtype": row["dtype"], "tile": int(row["tile"])} | known)
    return found


def bits_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the same: yes, or the first difference and its size in units in the last place."""

    def said(row: Mapping[str, Any], question: str) -> str:
        first = row.get(f"first_{question}")
        if first is None:
            return ""
        return "yes" if first < 0 else f"no: first at {first:.0f}, {number(row[f'ulps_{question}'])} ulps"

    columns = {"same bits": itemgetter("kernel"), "size": lambda row: " × ".join(map(str, row["shape"]))}
    columns |= {"type": itemgetter("dtype"), "tile": lambda row: str(row["tile"] or "")}
    columns |= {title.lower(): partial(said, question=of) for of, title in same_bits.QUESTIONS.items()}
    return _lined(found, columns)


def sanitizer_line(found: Mapping[str, Any]) -> str:
    at = found["point"].removeprefix(found["kernel"]).strip()
    parts = [found["what"], f", at {at}" if at else "", f" ({found['summary']})" if found["summary"] else ""]
    verdict = f"FAIL {''.join(parts)}" if found["what"] else f"PASS, {found['summary']}"
    return f"{found['kernel']}: {found['tool']}: {verdict}"


def profiles(columns: analysis.Columns) -> list[dict[str, Any]]:
    """Return the counters of Nsight Compute, by kernel."""
    rows = analysis.row_dicts(analysis.profiles(columns))
    return [{"kernel": row["label"], "dtype": row["dtype"]} | {name: row[name] for name in COUNTERS} for row in rows]


def profile_table(columns: analysis.Columns) -> str:
    """Return the counters with a column for each kernel; empty without a profile."""
    rows = analysis.profiles(columns)
    if not len(rows):
        return ""
    made = hardware.profile_table(analysis.row_dicts(rows))
    labels = [row["label"] for row in analysis.row_dicts(rows)]
    columns_of_kernels = zip(*(texts[1:] for texts in made.texts), strict=True)
    lines = [[name, *texts] for name, texts in zip(made.head[1:], columns_of_kernels, strict=True)]
    return f"\n{tabulated(['counter', *labels], lines, 1, [True] * (1 + len(labels)))}"
