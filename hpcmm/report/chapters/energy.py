"""Energy of the kernels, and the state of the GPU during the run."""

from collections.abc import Iterator, Sequence

import pandas as pd

from hpcmm.analysis import Series
from hpcmm.report.chapters.chapter import Tabulated, chapter
from hpcmm.report.formats import billions, conditions, duration, rate, rate_unit, rate_unit_of, size_title
from hpcmm.report.markup import Cell, Table
from hpcmm.report.tables import Column, Row, clock, of_size, table, text, value
from hpcmm.report.vega import PALETTE, Figure, category, layer, quantity, rounded
from hpcmm.system.text import number

STATES = {"sm_clock": ("SM clock, MHz", 1e-6), "memory_clock": ("memory clock, MHz", 1e-6)}
STATES |= {"temperature": ("temperature, °C", 1.0), "power": ("power, W", 1.0)}


def clocks(frame: pd.DataFrame) -> Iterator[Figure]:
    """Draw clocks, temperature and power during the run; ``frame`` is from ``analysis.clock_samples``."""
    kinds = list(dict.fromkeys(frame["gpu"]))
    hues = {"domain": kinds, "range": list(PALETTE[: len(kinds)])}
    for name, (title, unit) in STATES.items():
        rows = frame[frame[name].notna()]
        if rows[name].nunique() < 2:  # a constant is not drawn
            continue
        columns = {"sample": [int(sample) for sample in rows["sample"]]}
        columns |= {column: list(rows[column]) for column in ("sweep", "gpu", "part")}
        columns["value"] = rounded(rows[name] * unit)
        along = {"axis": {"format": ",d", "labelBound": True}, "scale": {"nice": False}}
        value = quantity("value", title=title, format=",.4r")
        spec = {"width": "container", "height": 120} | layer(
            {"type": "line", "strokeWidth": 1, "point": {"size": 14}},
            x=quantity("sample", title="sample, in the order of the file", **along),
            y=quantity("value", title=title, scale={"zero": False}, axis={"tickCount": 4}),
            color=category("gpu", scale=hues, legend={"title": None} if len(kinds) > 1 else None),
            detail={"field": "part"},
            tooltip=[*({"field": field} for field in ("sample", "sweep", "gpu")), value],
        )
        caption = f"{title[0].upper()}{title[1:]}, GPU of rank 0 during the run, medians of adjacent samples"
        yield Figure(name, caption, columns, spec, {"sample": "Sample", "sweep": "Sweep", "gpu": "GPU", "value": title})


def energy_table(series: Series, points: Sequence[Row]) -> Table:
    """Make the table of points with energy: time, clock, power, and rate over power."""
    unit = rate_unit_of(points)
    column = unit.column.replace("_per_second", "_per_joule")
    columns: dict[str, Column] = {size_title(points): of_size, "Device": text("device"), "Rung": text("label")}
    columns |= {"Time": value("seconds", duration), unit.name: lambda row: Cell(rate(row, unit=unit))}
    if any(row["clock"] > 0 for row in points):
        columns["SM clock"] = lambda row: Cell(clock(row))
    columns |= {
        "Power, W": value("watts", number),
        f"{rate_unit(series.operation, series.dtype).name} per W": value(column, billions),
    }
    return table(f"Clocks and energy, {conditions(series)}", points, columns, leading=2)


TABLE = Tabulated("energy", lambda series, _: [row for row in series.rows if row["watts"] > 0], energy_table)
CHAPTER = chapter("clocks", tables=(TABLE,))
