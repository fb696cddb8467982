"""Tables of the GPUs and of their use by kernels: resources, occupancy, counters, properties."""

import math
from collections.abc import Callable, Mapping, Sequence

from hpcmm.model.quantities import STALLS
from hpcmm.model.records import beside
from hpcmm.operations import OPERATIONS
from hpcmm.report.formats import rate_text, size
from hpcmm.report.markup import Cell, Table, words
from hpcmm.report.tables import Row, columns_of, failed, table, text
from hpcmm.system.text import amount, number, percent, plural, whole


def resource_table(rows: Sequence[Row]) -> Table:
    """Make the table of the resources of each kernel of one operation; ``rows`` are from ``occupancy.resources``."""

    def resident_blocks(row: Row) -> Cell:
        resident, computed = row["resident_blocks"], row["computed_blocks"]
        return Cell(whole(resident), f"computed: {computed}" if computed != resident else "")

    def grid(row: Row) -> Cell:
        at = size(row) + (f", {plural(row['ranks'], 'rank')}" if row["ranks"] > 1 else "")
        return Cell(f"{whole(row['grid_x'])} × {whole(row['grid_y'])}", at)

    columns = columns_of(
        "resources",
        **{"grid": grid, "resident_blocks": resident_blocks},
        shared_memory=lambda row: Cell(
            amount(row["shared_bytes"] + row["dynamic_shared_bytes"]), "dynamic" if row["dynamic_shared_bytes"] else ""
        ),
        block=lambda row: Cell(f"{whole(row['block_x'])} × {whole(row['block_y'])}", row["pick"]),
        threads=lambda row: Cell(whole(row["resident_blocks"] * row["block_x"] * row["block_y"])),
        operations_per_load=lambda row: Cell(number(row["phase_flops"] / row["phase_loads"])),
        bound=lambda row: Cell(rate_text(row, "bound_") if row["bound_flops_per_second"] > 0 else ""),
    )
    return table(f"Resources and occupancy, {_operation_on(rows)}", rows, columns, leading=1)


def _achieved_occupancy(row: Row) -> Cell:
    if row["result"] == "FAIL":
        return failed(row)
    possible = percent(row["occupancy"])
    return Cell(percent(row["achieved_occupancy"]), possible and f"of {possible}")


def _stalls(row: Row) -> Cell:
    """Give the two longest reasons to wait with their shares of the time of a warp."""
    shares = {what: row[f"stall_{name}"] / (row["warp_cycles"] or math.nan) for name, what in STALLS.items()}
    longest = sorted((what for what in shares if shares[what] > 0), key=lambda what: -shares[what])[:2]
    return words(", ".join(f"{what} {percent(shares[what])}" for what in longest))


FORMS = {
    "amount": amount,
    "text": str,
    "count": "{:,}".format,
    "bits": "{:,} bits".format,
    "capability": lambda value: f"{value[:-1]}.{value[-1]}",
    "sizes": lambda value: " × ".join(map("{:,}".format, value)),
    "switch": lambda value: "on" if value else "off",
    "MHz": lambda value: f"{value / 1e6:,.0f} MHz",
    "W": lambda value: f"{value:,.0f} W",
    "GB/s": lambda value: f"{value / 1e9:,.0f} GB/s",
    "TFLOP/s": lambda value: f"{value / 1e12:,.1f} TFLOP/s",
}
# Columns of the profile table; a kernel that failed has only the first.
COUNTER_COLUMNS = columns_of(
    "profile",
    achieved_occupancy=_achieved_occupancy,
    stalls=_stalls,
    bank_conflicts=lambda row: Cell(whole(row["shared_load_conflicts"] + row["shared_store_conflicts"])),
)
PROPERTIES = beside(__file__)
# Properties of a GPU: key in the provenance, name for readers, format.
DEVICE_ROWS = tuple((key, name, FORMS[form]) for key, (name, form) in PROPERTIES.items())


def profile_table(rows: Sequence[Row]) -> Table:
    """Make the table of profiler counters of one operation; ``rows`` are from ``analysis.profiles``."""
    libraries = {variant.name for variant in OPERATIONS[rows[0]["operation"]].ladder if variant.library}

    def of_type(row: Row) -> Cell:
        kernel = row["kernel"] if row["variant"] in libraries else ""  # only a library chooses a kernel
        return words(row["dtype"], kernel if len(kernel) <= 32 else kernel[:31] + "…")

    several = list(dict.fromkeys(map(size, rows)))
    at = {"Size": lambda row: words(size(row))} if len(several) > 1 else {}
    caption = f"Profile, {_operation_on(rows)} at {', '.join(several)}"
    return table(caption, rows, {"Variant": text("label"), "Type": of_type, **at, **COUNTER_COLUMNS}, leading=1)


def _operation_on(rows: Sequence[Row]) -> str:
    """Return ``"matmul on NVIDIA H200"``; each kind of GPU has its own table."""
    operation, gpu = rows[0]["operation"], rows[0]["gpu"]
    return f"{operation} on {gpu}" if gpu else operation


def device_table(gpus: Sequence[Mapping]) -> Table | None:
    """Make the table of GPU properties, one column per kind of GPU; None if the provenance has no GPU."""
    kinds: list[tuple[str, ...]] = []
    for gpu in gpus:
        kind = (str(gpu.get("name", "GPU")), *(printed(gpu.get(key), form) for key, _, form in DEVICE_ROWS))
        if kind not in kinds:
            kinds.append(kind)
    rows = [
        [words(name), *(Cell(kind[i]) for kind in kinds)]
        for i, (_, name, _) in enumerate(DEVICE_ROWS, 1)
        if any(kind[i] for kind in kinds)
    ]
    return Table("GPU", ("Property", *(kind[0] for kind in kinds)), rows) if rows else None


def printed(value: object, form: Callable[..., str]) -> str:
    """Format a value of the provenance; empty if it is missing or of another type."""
    try:
        return form(value) if value is not None else ""
    except (TypeError, ValueError, IndexError):
        return ""
