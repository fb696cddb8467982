"""Pairs of simulated runs of the same code: how often a point is called changed, and which change is found.

    python tests/simulated_runs.py

prints the table of docs/design.md. Repetitions scatter by 0.1 to 0.45 %, visits by 3 % below 25 us, 0.5 % up to 100 us
and 0.2 % above: what two runs on an H200 showed.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from hpcmm.analysis import compare

POINTS, VISITS, REPETITIONS = 330, 3, 6
TIMES = {"10 us": 10e-6, "100 us": 99e-6, "1 ms": 1e-3}  # of the first points, 60 each; the others lie between
KINDS = ("normal", "heavy-tailed", "on or off")
SHARED = 0.003  # spread of the state that all points of a visit share
CHANGES = (1.005, 1.011, 1.012, 1.015, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1, 1.12, 1.15, 1.2, 1.25, 1.3, 1.4)


def spread(seconds: np.ndarray) -> np.ndarray:
    return np.where(seconds < 25e-6, 0.03, np.where(seconds < 100e-6, 0.005, 0.002))


def states(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of standard deviation 1: normal, Student's with three degrees of freedom, or one of two."""
    if kind == "normal":
        return rng.standard_normal(shape)
    if kind == "heavy-tailed":
        return rng.standard_t(3, shape) / math.sqrt(3)
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)


def times(rng: np.random.Generator) -> np.ndarray:
    found = np.exp(rng.uniform(math.log(5e-6), math.log(2e-3), POINTS))
    for i, seconds in enumerate(TIMES.values()):
        found[60 * i : 60 * (i + 1)] = seconds
    return found


def repetitions(rng, seconds, kind: str, shared: float, visits: int, count: int, factor: float) -> np.ndarray:
    """Seconds of variants and their baselines, by measurement, visit and repetition; the variants take ``factor``."""
    both = np.concatenate([seconds * factor, seconds])
    scatter = np.exp(rng.uniform(math.log(0.001), math.log(0.0045), (len(both), 1, 1)))
    state = spread(np.concatenate([seconds, seconds]))[:, None] * states(rng, kind, (len(both), visits))
    state = state + shared * rng.standard_normal(visits)
    noise = scatter * rng.standard_normal((len(both), visits, count))
    return both[:, None, None] * np.exp(state[:, :, None] + noise)


def frame() -> pd.DataFrame:
    """The measurements of a run, as ``analysis.measurements`` has them: each variant, then each baseline beside it."""
    size = np.tile(np.arange(POINTS), 2)
    own = np.repeat([True, False], POINTS)
    texts = {"sweep": "size", "operation": "matmul", "algorithm": "scatter", "contender_algorithm": "scatter"}
    texts |= {"dtype": "float32", "variant": "naive", "device": "cuda", "machine": "T"}
    numbers = {"m": size, "n": size, "k": size, "ranks": 1, "tile": 0, "pinned": -1, "passed": 1, "superseded": False}
    contender = np.where(own, "naive", "cublas")
    return pd.DataFrame({**texts, **numbers, "baseline": (~own).astype(int), "contender": contender, "rung": contender})


def slowest(seconds: np.ndarray) -> pd.DataFrame:
    rows, visits, count = (each.ravel() for each in np.indices(seconds.shape))
    return pd.DataFrame({"measurement": rows, "call": 0, "visit": visits, "repetition": count,
                         "kernel": seconds.ravel()})  # fmt: skip


def verdicts(rng: np.random.Generator, kind: str, shared: float, factor: float = 1.0) -> list[str]:
    """Compare two runs by their visits."""
    took = times(rng)
    runs = [repetitions(rng, took, kind, shared, VISITS, REPETITIONS, each) for each in (1.0, factor)]
    found = compare.Evidence([frame(), frame()], [slowest(each) for each in runs], "kernel", unchanged=[(0, 1)])
    return [found.change([i], [i + found.offsets[1]]).verdict for i in range(POINTS)]


def verdicts_of_one_visit(rng: np.random.Generator, kind: str, shared: float, factor: float = 1.0) -> list[str]:
    """Compare two runs by the repetitions of one visit, as before there were several."""
    took = times(rng)
    runs = [repetitions(rng, took, kind, shared, 1, 10, each)[:POINTS, 0] for each in (1.0, factor)]
    return [compare.change(*pair).verdict for pair in zip(*runs, strict=True)]


def called(found: list[str]) -> np.ndarray:
    return np.isin(found, ("faster", "slower"))


def smallest(how, kind: str, shared: float, place: int) -> float:
    """The smallest of ``CHANGES`` that is found at 80 % of 240 points of one time."""
    for factor in CHANGES:
        rng = np.random.default_rng(2)
        found = [np.array(how(rng, kind, shared, factor))[60 * place : 60 * (place + 1)] for _ in range(4)]
        if np.mean(np.concatenate(found) == "slower") >= 0.8:
            return factor
    return math.inf


def main() -> None:
    print("| spread between visits | evidence | called changed | " + " | ".join(TIMES) + " |\n|---" + "|--:" * 5 + "|")
    for kind in KINDS:
        for how, name in ((verdicts_of_one_visit, "repetitions of one visit"), (verdicts, "three visits")):
            rng = np.random.default_rng(1)
            share = np.mean([called(how(rng, kind, SHARED)) for _ in range(10)])
            found = [f"{100 * (smallest(how, kind, SHARED, place) - 1):.1f} %" for place in range(len(TIMES))]
            print(f"| {kind} | {name} | {1000 * share:.1f} of 1,000 | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
