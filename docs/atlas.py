"""The atlas: our fastest rungs beside the faster library, at shapes that a seed drew."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from hpcmm import analysis, report, store
from hpcmm.experiment.config import read_config
from hpcmm.report import formats, tables
from hpcmm.system.text import number, percent

CONFIG, FILE = Path(__file__).parents[1] / "examples" / "atlas.yaml", "atlas.h5"
KINDS = {"any": "any", "multiples": "multiples of 64", "layers": "layers"}  # in the order of the table
HOLE = 0.95  # a point whose lead is smaller is listed
COLUMNS = ("sweep", "dtype", "m", "n", "k", "variant", "seconds", "seconds_low", "seconds_high", "visits")
RATIOS = ("ratio", "tuned_ratio", "lead", "pick", "gpu")


def draw(folder: Path) -> None:
    """Write a map of each type, and the CSV file, of the atlas in a folder; do nothing without one."""
    if not (folder / FILE).exists():
        return
    rows = points(folder)
    rows[[*COLUMNS, *RATIOS]].to_csv(folder / "atlas.csv", index=False, float_format="%.6g")
    columns = store.read(folder / FILE)
    columns["measurements"]["sweep"] = np.full(len(columns["measurements"]["sweep"]), "atlas", object)  # a map a type
    runs = [json.loads(text) for text in columns["runs"]["provenance"]]  # hosts differ, and may be virtual
    columns["runs"]["provenance"] = np.array([json.dumps(run | {"cpu": runs[0]["cpu"]}) for run in runs], object)
    with tempfile.TemporaryDirectory() as made:
        together = Path(made, FILE)
        store.write_groups(together, columns, single=True)
        report.build(together, Path(made))
        maps = {drawn.name.split("-")[1]: drawn for drawn in Path(made, "figures").glob("atlas-*-map.svg")}
        for dtype in rows["dtype"].unique():
            shutil.copyfile(maps[dtype], folder / f"atlas-{dtype}.svg")


def points(folder: Path) -> pd.DataFrame:
    """Return the points of our rungs, by kind of shape; ``lead`` is NaN where the library has no right result."""
    frame = analysis.points(analysis.measurements(store.read(folder / FILE)))
    rows = frame[(frame["role"] == "rung") & (frame["result"] == "PASS")]
    sweeps = read_config(CONFIG)["sweeps"]
    kinds = [sweeps[name]["shapes"]["drawn"] for name in rows["sweep"]]
    return rows.assign(kind=pd.Categorical(kinds, [*KINDS], ordered=True)).sort_values(["dtype", "kind", "m", "n", "k"])


def section(folder: Path, table: Callable) -> str:
    """Return the leads by type and kind of shape, a map of each type, and the shapes that are behind."""
    if not (folder / FILE).exists():
        return ""
    rows = points(folder)
    whole = []
    for (dtype, kind), own in rows.groupby(["dtype", "kind"], observed=True):
        lead = own["lead"].dropna()
        mean, worst = map(number, (np.exp(np.log(lead).mean()), lead.min()))
        first = dtype, f"`{own['variant'].iloc[0]}`", KINDS[kind]
        whole.append([*first, f"{len(lead)} of {len(own)}", mean, worst, percent((lead < 0.98).mean())])
    holes = [
        [row["dtype"], formats.size(row), number(row["lead"]), row["pick"].partition(", by trial")[0]]
        for row in analysis.row_dicts(rows[rows["lead"] < HOLE].sort_values("lead"))
    ]
    measured, sweeps = set(zip(rows["kind"], rows["dtype"], strict=True)), read_config(CONFIG)["sweeps"].values()
    planned = [(sweep["shapes"]["drawn"], dtype) for sweep in sweeps for dtype in sweep["dtypes"]]
    lacking = ", ".join(f"{KINDS[kind]} in {dtype}" for kind, dtype in planned if (kind, dtype) not in measured)
    kept = rows["lead"].notna()
    left_out = f" At {(~kept).sum()} shapes a result of the library is wrong." if not kept.all() else ""
    files = "[atlas.csv](results/reference/atlas.csv), [atlas.h5](results/reference/atlas.h5)"
    on = f"{' and '.join(rows['gpu'].unique())}; {tables.libraries(analysis.row_dicts(rows))}. {files}.{left_out}"
    return "\n\n".join(
        [
            table(["type", "rung", "shapes", "number", "geometric mean", "worst", "below 0.98"], whole),
            f"{on}\n\nNot measured: {lacking}." if lacking else on,
            *(f"![Map of {dtype}](results/reference/atlas-{dtype}.svg)" for dtype in rows["dtype"].unique()),
            f"Shapes with a lead below {HOLE}: {len(holes)} of {kept.sum()}.",
            table(["type", "m x n x k", "lead", "picked"], holes) if holes else "",
        ]
    ).rstrip()
