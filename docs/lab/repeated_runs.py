"""Real runs of unchanged code: how often a point is called changed, how ratios repeat, and which change is found.

    python docs/lab/repeated_runs.py measure CONFIG FOLDER --runs 11 --seconds 300
    python docs/lab/repeated_runs.py judge FOLDER

The first command runs an experiment several times back to back, without Snakemake. The second one compares each run
with the next one by ``hpcmm.analysis.compare`` and prints the tables of docs/lab/comparisons.md.
``repeated_gpu.yaml`` and ``repeated_cpu.yaml`` are the experiments of these tables.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from hpcmm import analysis, store
from hpcmm.analysis import compare
from hpcmm.jobs import trial

CLASSES = {"below 25 us": (0.0, 25e-6), "25 to 250 us": (25e-6, 250e-6), "above 250 us": (250e-6, math.inf)}
CHANGES = (1.005, 1.01, 1.012, 1.015, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0)
POWER = 0.8

Columns = Mapping[str, Mapping[str, np.ndarray]]


def measure(config: Mapping, folder: Path, runs: int, seconds: float) -> None:
    """Measure an experiment several times, as long as another run fits into the seconds."""
    began, took = time.perf_counter(), []
    for run in range(runs):
        start = time.perf_counter()
        if took and start - began + took[-1] > seconds:
            break
        (folder / f"{run:02}").mkdir()
        store.write_groups(folder / f"{run:02}" / "timings.h5", trial.measure(config))
        took.append(time.perf_counter() - start)
        print(f"run {run}: {took[-1]:.1f} s", flush=True)


def timings(folder: Path) -> list[Columns]:
    return [store.read(path) for path in sorted(folder.glob("*/timings.h5"))]


def scaled(columns: Columns, factor: float) -> Columns:
    """Return the columns of a file whose variants, but no baselines, took ``factor`` times as long."""
    measurements, samples = columns["measurements"], dict(columns["samples"])
    own = (measurements["contender"] == measurements["variant"]) & (measurements["baseline"] == 0)
    longer = np.where(own[samples["measurement"]], factor, 1.0)
    return {**columns, "samples": samples | {phase: samples[phase] * longer for phase in ("kernel", "total")}}


def classes(seconds: pd.Series) -> dict[str, pd.Series]:
    return {name: (seconds >= low) & (seconds < high) for name, (low, high) in CLASSES.items()}


def verdicts(files: Sequence[Columns], scope: str) -> pd.DataFrame:
    """Return how each run differs from the next one: a row for each pair, and one for all."""
    rows = []
    for number, (first, second) in enumerate(itertools.pairwise(files)):
        found = compare.compare(first, second, scope)
        called = found.rows["verdict"].isin(["faster", "slower"])
        parts = {name: f"{int(called[part].sum())} of {int(part.sum())}"
                 for name, part in classes(found.rows["before"]).items()}  # fmt: skip
        rows.append({"pair": number, "points": len(called), "called": int(called.sum()), **parts,
                     "noise": "; ".join(found.noise)})  # fmt: skip
        for row in found.rows[called].to_dict("records"):
            names = ("label", "n", "dtype", "before", "ratio", "low", "high", "p")
            print("  called:", number, *(f"{row[name]:.5g}" if isinstance(row[name], float) else row[name]
                                         for name in names))  # fmt: skip
    return pd.DataFrame(rows)


def ratios(files: Sequence[Columns], prefix: str = "") -> pd.DataFrame:
    """Return how the ratios to the library differ between runs, by the time of the variant."""
    names = ["ratio", "ratio_low", "ratio_high", "seconds"]
    frames = []
    for columns in files:
        points = analysis.points(analysis.measurements(columns)).reset_index(drop=True)
        (keys,) = compare.keys_of([points])
        points = points.assign(key=keys)[points["baseline"].to_numpy() == 0]
        frames.append(points.set_index("key")[[prefix + name for name in names]].set_axis(names, axis=1))
    rows = []
    for first, second in itertools.pairwise(frames):
        both = first.add_suffix("_before").join(second, how="inner").dropna()
        apart = (both["ratio_low"] > both["ratio_high_before"]) | (both["ratio_low_before"] > both["ratio_high"])
        rows.append(pd.DataFrame({"seconds": both["seconds"], "apart": apart,
                                  "log": np.log(both["ratio"] / both["ratio_before"])}))  # fmt: skip
    every = pd.concat(rows)
    parts = {**classes(every["seconds"]), "all": every["seconds"] > 0}
    found = []
    for name, part in parts.items():
        logs = every.loc[part, "log"]
        found.append({"time": name, "ratios": len(logs), "rms": f"{100 * math.sqrt((logs**2).mean()):.2f} %",
                      "median": f"{100 * logs.abs().median():.2f} %",
                      "intervals apart": f"{100 * every.loc[part, 'apart'].mean():.2f} %"})  # fmt: skip
    return pd.DataFrame(found)


def detectable(files: Sequence[Columns], scope: str) -> pd.DataFrame:
    """Return the share of slower variants that is found, by the time and the simulated change."""
    rows = []
    for factor in CHANGES:
        found = []
        for first, second in itertools.pairwise(files):
            each = compare.compare(first, scaled(second, factor), scope).rows
            found.append(each[each["baseline"] == 0])
        every = pd.concat(found)
        slower = every["verdict"] == "slower"
        rows.append(
            {"change": factor, **{name: slower[part].mean() for name, part in classes(every["before"]).items()}}
        )
    return pd.DataFrame(rows).set_index("change")


def judge(files: Sequence[Columns], scope: str = "kernel") -> None:
    """Print the tables of several runs of unchanged code."""
    print(f"{len(files)} runs, scope {scope}")
    found = verdicts(files, scope)
    print(found.drop(columns="noise").to_string(index=False))
    print(found["noise"].iloc[-1])
    points, called = found["points"].sum(), found["called"].sum()
    print(f"called changed: {called} of {points}, {1000 * called / points:.1f} of 1,000\n")
    print(ratios(files, "" if scope == "kernel" else "call_").to_string(index=False), "\n")
    shares = detectable(files, scope)
    print(shares.to_string(float_format="{:.2f}".format))
    for name in CLASSES:
        enough = shares.index[(shares[name] >= POWER).to_numpy()]
        print(f"{name}: found with {100 * POWER:.0f} % power from {100 * (min(enough, default=math.inf) - 1):.1f} % on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="measure runs")
    measuring.add_argument("config", type=Path)
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("--runs", type=int, default=11)
    measuring.add_argument("--seconds", type=float, default=math.inf, help="start no run that would end later")
    judging = commands.add_parser("judge", help="compare each run with the next one")
    judging.add_argument("folder", type=Path)
    judging.add_argument("--scope", choices=tuple(compare.SCOPES), default="kernel")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        config = yaml.safe_load(arguments.config.read_text())
        measure(config, arguments.folder, arguments.runs, arguments.seconds)
    else:
        judge(timings(arguments.folder), arguments.scope)


if __name__ == "__main__":
    main()
