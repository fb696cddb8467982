"""Simulated runs of the same code: how often a point is called changed, and which change is found.

Repetitions scatter by 0.1 to 0.45 %, visits by 3 % below 25 us, 0.5 % up to 100 us and 0.2 % above: what two runs on an
H200 showed. Between two jobs, each kernel scatters in addition.
"""

import math

import numpy as np
import pandas as pd

from hpcmm.analysis import compare, history, visits
from hpcmm.analysis.evidence import Evidence

POINTS, VISITS = 330, 3
TIMES = {"10 us": 10e-6, "100 us": 99e-6, "1 ms": 1e-3}  # of the first points, 60 each; the others lie between
KINDS = ("normal", "heavy-tailed", "on or off")
SHARED = 0.003  # spread of the state that all points of a visit share


def spread(seconds: np.ndarray) -> np.ndarray:
    return np.where(seconds < 25e-6, 0.03, np.where(seconds < 100e-6, 0.005, 0.002))


def states(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of standard deviation 1: normal, Student's with three degrees of freedom, or one of two, evenly or not."""
    if kind == "normal":
        return rng.standard_normal(shape)
    if kind == "heavy-tailed":
        return rng.standard_t(3, shape) / math.sqrt(3)
    if kind == "rare":
        return ((rng.random(shape) < 0.1) - 0.1) / 0.3
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)


def times(rng: np.random.Generator) -> np.ndarray:
    found = np.exp(rng.uniform(math.log(5e-6), math.log(2e-3), POINTS))
    for i, seconds in enumerate(TIMES.values()):
        found[60 * i : 60 * (i + 1)] = seconds
    return found


def repetitions(rng, seconds, kind: str, count: int = 6, factor: float = 1.0, job=0.0) -> np.ndarray:
    """Seconds of variants and their baselines, by measurement, visit and repetition; the variants take ``factor``.

    ``job`` is the logarithm of a factor of each, for this job.
    """
    both = np.concatenate([seconds * factor, seconds]) * np.exp(job)
    scatter = np.exp(rng.uniform(math.log(0.001), math.log(0.0045), (len(both), 1, 1)))
    state = spread(np.concatenate([seconds, seconds]))[:, None] * states(rng, kind, (len(both), VISITS))
    state = state + SHARED * rng.standard_normal(VISITS)
    noise = scatter * rng.standard_normal((len(both), VISITS, count))
    return both[:, None, None] * np.exp(state[:, :, None] + noise)


def frame() -> pd.DataFrame:
    """The measurements of a run, as ``analysis.measurements`` has them: each variant, then each baseline beside it."""
    size = np.tile(np.arange(POINTS), 2)
    own = np.repeat([True, False], POINTS)
    texts = {"sweep": "size", "operation": "matmul", "algorithm": "scatter", "contender_algorithm": "scatter"}
    texts |= {"dtype": "float32", "variant": "naive", "device": "cuda", "machine": "T"}
    numbers = {
        "m": size, "n": size, "k": size, "ranks": 1, "tile": 0, "pinned": -1, "passed": 1, "superseded": False,
        "run": 0,
    }  # fmt: skip
    contender = np.where(own, "naive", "cublas")
    return pd.DataFrame({**texts, **numbers, "baseline": (~own).astype(int), "contender": contender, "rung": contender})


def visited(seconds: np.ndarray) -> pd.DataFrame:
    rows, number, _ = (each.ravel() for each in np.indices(seconds.shape))
    part = pd.DataFrame({"measurement": rows, "run": 0, "visit": number, "kernel": seconds.ravel()})
    return visits.of_rows(part, "kernel")


def compared(rng: np.random.Generator, kind: str, between: float = 0.0, factor: float = 1.0, shape: str = "normal"):
    """Return how each point differs between two jobs with this spread of each kernel, and of the machine."""
    took = times(rng)
    runs = [
        repetitions(rng, took, kind, 6, each, between * (states(rng, shape, (2 * POINTS,)) + rng.standard_normal()))
        for each in (1.0, factor)
    ]
    found = Evidence([frame(), frame()], [visited(each) for each in runs], [0, 0])
    return [found.change([i], [i + found.offsets[1]]) for i in range(POINTS)]


def called(found: list) -> np.ndarray:
    return np.isin([each.verdict for each in found], ("faster", "slower"))


def gated(found: list) -> np.ndarray:
    """Whether the gate calls a point changed."""
    return called(found) & (compare.adjusted(np.array([each.p for each in found])) <= compare.FAMILY)


def lasting(rng: np.random.Generator, kind: str, runs: int, length: int) -> np.ndarray:
    """Return states of measurements over runs, of standard deviation 1, that last about ``length`` runs.

    They are autoregressive, or constant in blocks that begin at the same runs for all points.
    """
    points = 2 * POINTS
    if kind == "AR(1)":
        found = rng.standard_normal((points, runs))
        kept = math.exp(-1 / length)
        for run in range(1, runs):
            found[:, run] = kept * found[:, run - 1] + math.sqrt(1 - kept**2) * found[:, run]
        return found
    first = rng.integers(length)
    blocks = rng.standard_normal((points, runs // length + 2))
    return blocks[:, (np.arange(runs) + first) // length]


def followed(rng: np.random.Generator, states: np.ndarray, factor: float = 1.0, since: int = 0):
    """Return the changes of each point in a history with these states of its measurements, by run.

    From run ``since`` on, the variants take ``factor``.
    """
    took, runs = times(rng), states.shape[1]
    each = [repetitions(rng, took, "normal", 4, factor if run >= since else 1.0, states[:, run]) for run in range(runs)]
    evidence = Evidence([frame()] * runs, [visited(seconds) for seconds in each], [0] * runs)
    steps = (history.steps_of(evidence, [i + j for j in evidence.offsets]) for i in range(POINTS))
    return [[(at, change.verdict) for at, _, _, change in each] for each in steps]
