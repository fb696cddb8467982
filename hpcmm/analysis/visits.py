"""From the repetitions of a file to its visits, and from visits to medians, intervals and ratios.

A visit is the repetitions that one process measured of a contender at a point. Its time is the Hodges-Lehmann estimate
of its repetitions, as a logarithm. ``noise`` has the statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hpcmm.analysis import noise
from hpcmm.store import DIMENSIONS

LEVEL = 0.95  # confidence of an interval
NOISY = 0.05  # spread between visits above which a number needs a warning
PROBLEM = ("operation", *DIMENSIONS, "dtype", "ranks", "pinned")  # and the columns of the operation
FEWEST = 4  # with fewer repetitions one outlier moves the Hodges-Lehmann estimate far
SAME = (*PROBLEM, "contender", "contender_algorithm", "rung")


def of_rows(part: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Return the visits of each measurement: ``measurement``, ``visit`` and ``log``, of the seconds.

    ``part`` has the slowest rank of each repetition, of calls or of kernels alone.
    """
    part = part.dropna(subset=phase).sort_values(["measurement", "visit"], kind="stable")
    sizes = part.groupby(["measurement", "visit"], as_index=False).size()
    logs, counts = np.log(part[phase].to_numpy(float)), sizes["size"].to_numpy()
    first = np.cumsum(counts) - counts
    found = np.empty(len(counts))
    for count in np.unique(counts):
        same = counts == count
        found[same] = middles(logs[first[same][:, None] + np.arange(count)])
    return sizes[["measurement", "visit"]].assign(log=found)


def middles(rows: np.ndarray) -> np.ndarray:
    """Return the Hodges-Lehmann estimate of each row: the median of the means of all pairs.

    A value is also paired with itself.

    Repetitions of short kernels alternate between two states (see docs/design.md). Their median is the state of
    the majority, by chance; most means of pairs are between both. A row of fewer than ``FEWEST`` values has its
    median.

    >>> middles(np.array([[8.0, 8.0, 7.0, 7.0, 8.0, 8.0], [8.0, 7.0, 7.0, 8.0, 8.0, 9.0]])).tolist()
    [7.5, 8.0]
    >>> middles(np.array([[7.0, 7.1, 7.2, 90.0], [1.0, 1.1, 90.0, np.nan]])[:, :3]).round(3).tolist()
    [7.1, 1.1]
    """
    count = rows.shape[1]
    if count < FEWEST:
        return np.median(rows, axis=1)
    i, j = np.triu_indices(count)
    return np.median((rows[:, i] + rows[:, j]) / 2, axis=1)


def gathered(groups: np.ndarray, logs: np.ndarray, length: int) -> pd.DataFrame:
    """Return count, median and variance of the logarithms of each group, 0 <= group < length."""
    found = pd.Series(logs).groupby(np.asarray(groups)).agg(["count", "median", "var"]).reindex(range(length))
    return found.assign(count=found["count"].fillna(0).astype(np.int64))


def alike(frame: pd.DataFrame, added: Sequence[str], *more: str) -> np.ndarray:
    """Number the measurements by contender and problem, and by the columns ``more``."""
    return frame.groupby([*more, *SAME, *added], dropna=False, sort=False).ngroup().to_numpy()


def priors(frame: pd.DataFrame, visits: pd.DataFrame, groups: np.ndarray) -> dict[str, noise.Prior]:
    """Return the prior of each device, from the variances between visits that its measurements show.

    A measurement with several visits has a variance of its own. Those with one visit are combined if they
    have the same contender and problem: a baseline is measured beside each variant, and each time is a visit.
    """
    own = gathered(visits["measurement"].to_numpy(), visits["log"].to_numpy(), len(frame))
    single = visits[own["count"].to_numpy()[visits["measurement"]] == 1]
    of_group = groups[single["measurement"].to_numpy(int)]
    several = gathered(of_group, single["log"].to_numpy(), int(groups.max(initial=-1)) + 1)
    first = pd.Series(frame["device"].to_numpy()).groupby(groups).first().reindex(several.index)
    both = pd.concat([own.assign(device=frame["device"].to_numpy()), several.assign(device=first.to_numpy())])
    both = both[both["count"] >= 2]
    return {
        device: noise.Prior.of(
            *(part[name].to_numpy(float) for name in ("median", "var")), part["count"].to_numpy() - 1
        )
        for device, part in both.groupby("device")
    }


def moderated(
    frame: pd.DataFrame, known: Mapping[str, noise.Prior], centre: np.ndarray, variance: np.ndarray, freedom: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return variance of one visit and its degrees of freedom for each row, by the prior of the row's device."""
    found, total = np.full((2, len(frame)), np.nan)
    for device in frame["device"].unique():
        here = (frame["device"] == device).to_numpy() & np.isfinite(centre)
        prior = known.get(device) or noise.Prior(*np.empty((3, 0)))
        found[here], total[here] = prior.moderated(centre[here], variance[here], freedom[here])
    found[~(total > 0)] = np.nan  # one visit, and nothing to compare it with
    return found, total


def half_widths(errors: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return the half-width of the interval of each logarithm; NaN without a degree of freedom."""
    found = np.full(len(errors), np.nan)
    some = np.isfinite(errors) & (freedom > 0)
    found[some] = errors[some] * noise.criticals(1 - LEVEL, freedom[some])
    return found


def put(frame: pd.DataFrame, added: Sequence[str], visits: pd.DataFrame, prefix: str) -> None:
    """Compute times, intervals and ratios of measurements with several visits from these visits.

    Adds ``visits``, ``spread`` and ``pooled_seconds``, ``pooled_low``, ``pooled_high``, ``pooled_visits`` as
    ``analysis.measurements`` describes them, each with the prefix, and replaces ``seconds`` and ``ratio`` with their
    intervals where there are several visits. A measurement with one visit keeps the interval of its repetitions.
    """
    rows, everyone = len(frame), alike(frame, added, "machine")
    known = priors(frame, visits, everyone)
    own = gathered(visits["measurement"].to_numpy(), visits["log"].to_numpy(), rows)
    count, centre = own["count"].to_numpy(), own["median"].to_numpy()
    variance, freedom = moderated(frame, known, centre, own["var"].to_numpy(), np.maximum(count - 1, 0))
    error = np.sqrt(variance) * noise.median_spread(count)
    several = count >= 2
    _interval(frame, several, prefix + "seconds", centre, half_widths(error, freedom))
    frame[prefix + "visits"] = count
    frame[prefix + "spread"] = np.sqrt(variance)

    # the ratio divides by all visits of the baseline for the problem in the same run
    beside = ((frame["baseline"] == 1) & (frame["passed"] == 1)).to_numpy()
    problem = frame.groupby(["run", *PROBLEM, *added], dropna=False, sort=False).ngroup().to_numpy()
    keys = _baselines(frame, problem, beside)
    of_baseline = beside[visits["measurement"].to_numpy(int)] & several[visits["measurement"].to_numpy(int)]
    members = visits[of_baseline]
    groups = keys["own"][members["measurement"].to_numpy(int)]
    number = int(max(keys["own"].max(initial=-1), keys["partner"].max(initial=-1))) + 1
    base = gathered(groups, members["log"].to_numpy(), number)
    inner = pd.DataFrame({"group": keys["own"], "weight": count - 1, "part": (count - 1) * own["var"].fillna(0)})
    sums = inner[beside & several].groupby("group")[["weight", "part"]].sum().reindex(range(number))
    partner = keys["partner"]
    chosen = several & (partner >= 0) & ~beside & frame[prefix + "ratio"].notna().to_numpy()
    chosen &= np.where(partner >= 0, base["count"].to_numpy()[partner], 0) > 0 if number else False
    if chosen.any():
        at = partner[chosen]
        here = frame[chosen]
        weight = sums["weight"].to_numpy()[at]
        pooled = sums["part"].to_numpy()[at] / np.maximum(weight, 1)
        theirs, their_freedom = moderated(here, known, base["median"].to_numpy()[at], pooled, weight)
        errors = np.hypot(error[chosen], np.sqrt(theirs) * noise.median_spread(base["count"].to_numpy()[at]))
        width = half_widths(errors, np.minimum(freedom[chosen], their_freedom))
        ratio, widths = np.full((2, rows), np.nan)
        ratio[chosen], widths[chosen] = base["median"].to_numpy()[at] - centre[chosen], width
        _interval(frame, chosen, prefix + "ratio", ratio, widths)

    # a point that several sweeps or runs measured has the visits of all
    current = (~frame["superseded"]).to_numpy()[visits["measurement"].to_numpy(int)]
    members = visits[current]
    whole = gathered(
        everyone[members["measurement"].to_numpy(int)], members["log"].to_numpy(), int(everyone.max(initial=-1)) + 1
    )
    whole = whole.iloc[everyone].reset_index(drop=True)
    count, centre = whole["count"].to_numpy(), whole["median"].to_numpy()
    variance, freedom = moderated(frame, known, centre, whole["var"].to_numpy(), np.maximum(count - 1, 0))
    width = half_widths(np.sqrt(variance) * noise.median_spread(count), freedom)
    for name in ("seconds", "low", "high"):
        column = prefix + "seconds" + (f"_{name}" if name != "seconds" else "")
        frame[f"{prefix}pooled_{name}"] = frame[column]
    _interval(frame, count >= 2, f"{prefix}pooled", centre, width, ("_seconds", "_low", "_high"))
    frame[prefix + "pooled_visits"] = count


def _interval(
    frame: pd.DataFrame,
    rows: np.ndarray,
    name: str,
    centre: np.ndarray,
    width: np.ndarray,
    suffixes: Sequence[str] = ("", "_low", "_high"),
) -> None:
    """Put the exponentials of centre and interval of some rows into three columns."""
    for suffix, sign in zip(suffixes, (0, -1, 1), strict=True):
        values = frame[name + suffix].to_numpy(float).copy()
        values[rows] = np.exp(centre[rows] + (sign * width[rows] if sign else 0.0))
        frame[name + suffix] = values


def _baselines(frame: pd.DataFrame, problem: np.ndarray, beside: np.ndarray) -> dict[str, np.ndarray]:
    """Number the baselines of each problem in a run; a row that is not a baseline gets the number of its partner."""
    pairs = pd.Series(list(zip(problem, frame["contender"], frame["contender_algorithm"], strict=True)))
    numbers, _ = pd.factorize(pairs)
    points = frame.groupby(["run", "sweep", "variant", "algorithm", "tile", "pinned"], dropna=False).ngroup().to_numpy()
    partner = np.full(len(frame), -1)
    of_point = {(point, which): number for point, which, number in
                zip(points[beside], problem[beside], numbers[beside], strict=True)}  # fmt: skip
    for i, key in enumerate(zip(points, problem, strict=True)):
        partner[i] = of_point.get(key, -1)
    return {"own": numbers, "partner": partner}
