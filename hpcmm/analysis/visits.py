"""From the repetitions of a file to its visits, and from visits to medians, intervals and ratios.

A visit is the repetitions that one process measured of a contender at a point. Its time is the Hodges-Lehmann estimate
of its repetitions, as a logarithm. ``noise`` has the statistics.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hpcmm.analysis import noise
from hpcmm.model.devices import DEVICES
from hpcmm.store import DIMENSIONS, IDENTITY

LEVEL = 0.95  # confidence of an interval
NOISY = 0.05  # spread between visits above which a number needs a warning
TICK = 0.01  # seconds, in which Linux counts the steal of a CPU
PROBLEM = ("operation", *DIMENSIONS, "dtype", "ranks", "pinned")  # and the columns of the operation
WIDEST = math.log(100)  # half-width of the widest interval that is shown
FEWEST = 4  # with fewer repetitions one outlier moves the Hodges-Lehmann estimate far
SAME = (*PROBLEM, "contender", "contender_algorithm", "rung")
# columns that visits add, in their order
OF_VISITS = ("seconds_low", "seconds_high", "visits", "spread", "spread_of_jobs", "ratio_low", "ratio_high")
OF_VISITS += tuple(f"pooled_{name}" for name in ("seconds", "low", "high", "visits"))


def of_rows(part: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Return the visits of each measurement: ``measurement``, ``run``, ``visit`` and ``log``, of the seconds.

    ``part`` has the slowest rank of each repetition, of calls or of kernels alone.
    """
    part = part[["measurement", "run", "visit", phase]].dropna().sort_values(["measurement", "visit"], kind="stable")
    logs, at = np.log(part[phase].to_numpy(float)), part[["measurement", "visit"]].to_numpy()
    first = np.flatnonzero((np.diff(at, axis=0, prepend=-1) != 0).any(axis=1))
    counts = np.diff(first, append=len(logs))
    found = np.empty(len(counts))
    for count in np.unique(counts):
        same = counts == count
        found[same] = middles(logs[first[same][:, None] + np.arange(count)])
    return part[["measurement", "run", "visit"]].iloc[first].reset_index(drop=True).assign(log=found)


def middles(rows: np.ndarray) -> np.ndarray:
    """Return the Hodges-Lehmann estimate of each row: the median of the means of all pairs.

    A value is also paired with itself.

    Repetitions of short kernels alternate between two states (see docs/lab/two-states.md). Their median is the state of
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


def states(columns: Mapping[str, Mapping[str, np.ndarray]], length: int) -> pd.DataFrame:
    """Return the states of the visits of each measurement.

    ``schedule`` has the schedules that visits took after trials, each with its number of visits if they differ;
    ``huge_pages`` and ``huge_pages_most`` the least and the largest share of array bytes on huge pages; ``steal`` the
    largest share of CPU time that the hypervisor gave to other guests, 0 for a single tick.
    """
    visited = pd.DataFrame(dict(columns["visits"]))
    steal = (visited["steal_seconds"] / visited["busy_seconds"]).where(~(visited["steal_seconds"] <= TICK), 0.0)
    pages = visited.groupby("measurement")["huge_pages"]
    chosen = visited[visited["schedule"] != ""]
    schedules = chosen.drop_duplicates("measurement").set_index("measurement")["schedule"]
    several = chosen[chosen.groupby("measurement")["schedule"].transform("nunique") > 1]
    schedules.update(several.groupby("measurement")["schedule"].agg(counted))  # few: it takes long
    states = {"schedule": schedules.astype(object), "huge_pages": pages.min(), "huge_pages_most": pages.max()}
    states["steal"] = steal.groupby(visited["measurement"]).max()
    return pd.DataFrame(states, index=range(length)).fillna({"schedule": ""})


def counted(texts: pd.Series) -> str:
    """Return distinct texts, the most frequent first, each with its number of visits if there are several.

    >>> counted(pd.Series(["a", "b", "a"])), counted(pd.Series(["a", "a"]))
    ('a (2 of 3 visits); b (1 of 3 visits)', 'a')
    """
    counts = Counter(texts).most_common()
    if len(counts) == 1:
        return str(counts[0][0])
    return "; ".join(f"{text} ({count} of {len(texts)} visits)" for text, count in counts)


def gathered(groups: np.ndarray, logs: np.ndarray, length: int) -> pd.DataFrame:
    """Return count, median and variance of the logarithms of each group, 0 <= group < length."""
    found = pd.Series(logs).groupby(np.asarray(groups)).agg(["count", "median", "var"]).reindex(range(length))
    return found.assign(count=found["count"].fillna(0).astype(np.int64))


def numbered(frame: pd.DataFrame, *names: str) -> np.ndarray:
    """Number the distinct rows of some columns in the order of their first ones; return the number of each row."""
    return frame.groupby([*names], dropna=False, sort=False).ngroup().to_numpy()


def alike(frame: pd.DataFrame, added: Sequence[str], *more: str) -> np.ndarray:
    """Number the measurements by contender and problem, and by the columns ``more``."""
    return numbered(frame, *more, *SAME, *added)


def kinds(frame: pd.DataFrame, names: Sequence[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the distinct rows of some columns, and for each row of the frame which of these it is."""
    number = numbered(frame, *names)
    return frame[[*names]].iloc[np.unique(number, return_index=True)[1]], number


def priors(frame: pd.DataFrame, visits: pd.DataFrame, groups: np.ndarray) -> dict[str, noise.Prior]:
    """Return the prior of each device, from the variances between visits that its measurements show."""
    own = gathered(visits["measurement"].to_numpy(), visits["log"].to_numpy(), len(frame))
    # those with one visit are combined: a baseline is measured beside each variant, and each time is a visit
    single = visits[own["count"].to_numpy()[visits["measurement"]] == 1]
    of_group = groups[single["measurement"].to_numpy(int)]
    several = gathered(of_group, single["log"].to_numpy(), int(groups.max(initial=-1)) + 1)
    first = pd.Series(frame["device"].to_numpy()).groupby(groups).first().reindex(several.index)
    both = pd.concat([own.assign(device=frame["device"].to_numpy()), several.assign(device=first.to_numpy())])
    both = both[both["count"] >= 2]
    prior_of = {}
    for device, part in both.groupby("device"):
        median, variance = (part[name].to_numpy(float) for name in ("median", "var"))
        prior_of[device] = noise.Prior.of(median, variance, part["count"].to_numpy() - 1)
    return prior_of


def summarized(visits: pd.DataFrame, groups: np.ndarray, length: int) -> pd.DataFrame:
    """Summarize the visits of each group, 0 <= group < length: ``count`` and ``median`` of the logarithms.

    ``variance`` is between the visits of one job, with its ``freedom``; ``share`` is the part of the variance between
    jobs that the median has (see ``noise.Noise.of_medians``).
    """
    whole = gathered(groups, visits["log"].to_numpy(), length)[["count", "median"]]
    jobs = pd.DataFrame({"group": groups, "job": visits["job"].to_numpy(), "log": visits["log"].to_numpy()})
    jobs = jobs.groupby(["group", "job"])["log"].agg(["count", "var"]).reset_index("job", drop=True)
    freedom = jobs["count"] - 1.0
    parts = {"freedom": freedom, "squares": freedom * jobs["var"].fillna(0.0), "share": jobs["count"] ** 2.0}
    sums = pd.DataFrame(parts).groupby(level="group").sum().reindex(range(length), fill_value=0.0)
    whole["freedom"] = sums["freedom"]
    whole["variance"] = sums["squares"] / sums["freedom"].where(sums["freedom"] > 0)
    whole["share"] = sums["share"] / whole["count"].clip(lower=1) ** 2
    return whole


def noises(frame: pd.DataFrame, visits: pd.DataFrame, groups: np.ndarray, times: np.ndarray) -> dict[str, noise.Noise]:
    """Return the noise of each model of a device, from the visits of its measurements.

    With too few of them, it is the noise of all models of the device in the file.
    The variance between visits comes from measurements with several visits in one job, that between jobs from groups
    that several jobs measured with the same code.

    ``visits`` has ``measurement``, ``process``, ``job``, ``code``, and ``log``, a time or a ratio. ``groups`` has the
    contender, problem and machine of each measurement, ``times`` the logarithm of its seconds.
    """
    within = summarized(visits, visits["measurement"].to_numpy(), len(frame))
    within = within.assign(device=frame["device"].to_numpy(), model=models(frame), time=times)
    several = pd.DataFrame(columns=["jobs", "variance", "time", "kept", "device", "model"])
    if visits["job"].nunique() > 1:
        at = visits["measurement"].to_numpy(int)
        members = visits.assign(
            group=groups[at], **within[["device", "model", "time"]].iloc[at].set_index(visits.index)
        )
        # the times of a baseline beside several variants are of one process
        jobs = members.groupby(["group", "code", "job"]).agg(
            log=("log", "median"), time=("time", "median"), count=("process", "nunique"),
            device=("device", "first"), model=("model", "first"),
        )  # fmt: skip
        jobs["kept"] = noise.median_spread(jobs["count"].to_numpy()) ** 2
        several = jobs.groupby(level=["group", "code"]).agg(
            jobs=("log", "size"), variance=("log", "var"), time=("time", "median"), kept=("kept", "mean"),
            device=("device", "first"), model=("model", "first"),
        )  # fmt: skip
        several = several[several["jobs"] >= 2]
    within, found = within[(within["freedom"] > 0) & np.isfinite(times)], {}
    for device in frame["device"].unique():
        everywhere = _noise(within[within["device"] == device], several[several["device"] == device])
        for model in models(frame[frame["device"] == device]).unique():
            here = _noise(within[within["model"] == model], several[several["model"] == model])
            enough = here.visits.known and (here.jobs.known or not everywhere.jobs.known)
            found[model] = here if enough else everywhere
    return found


def models(frame: pd.DataFrame) -> pd.Series:
    """Return the model of each measurement's device: the GPU, or the machine of a CPU."""
    accelerated = frame["device"].map({name: each.accelerator for name, each in DEVICES.items()}).astype(bool)
    return frame["device"] + " " + frame["gpu"].where(accelerated, frame["machine"])


def _noise(within: pd.DataFrame, several: pd.DataFrame) -> noise.Noise:
    prior = noise.Prior.of(*(within[name].to_numpy(float) for name in ("time", "variance", "freedom")))
    time, variance, jobs, kept = (several[name].to_numpy(float) for name in ("time", "variance", "jobs", "kept"))
    return noise.Noise.of(prior, time, variance, jobs - 1, kept)


def uncertain(
    frame: pd.DataFrame, known: Mapping[str, noise.Noise], found: pd.DataFrame, times: np.ndarray
) -> pd.DataFrame:
    """Add to summaries, one per measurement, the ``width`` of their interval, and the spreads of visits and jobs."""
    total, freedom, one, between = np.full((4, len(frame)), np.nan)
    of = models(frame).to_numpy()
    for model, noisy in known.items():
        here = (of == model) & (found["count"] > 0).to_numpy() & np.isfinite(times)
        variance, own, count, share = (
            found.loc[here, name].to_numpy(float) for name in ("variance", "freedom", "count", "share")
        )
        total[here], freedom[here] = noisy.of_medians(times[here], variance, own, count.astype(int), share)
        one[here], weight = noisy.visits.moderated(times[here], variance, own)
        one[here] = np.where(weight > 0, one[here], np.nan)
        between[here] = noisy.between(times[here])
    some, width = np.isfinite(total) & (freedom > 0), np.full(len(frame), np.nan)
    width[some] = np.sqrt(total[some]) * noise.criticals(1 - LEVEL, freedom[some])
    width[~(width <= WIDEST)] = np.nan
    return found.assign(width=width, spread=np.sqrt(one), spread_of_jobs=np.sqrt(between))


def put(frame: pd.DataFrame, added: Sequence[str], visits: pd.DataFrame, prefix: str) -> None:
    """Compute times, intervals and ratios from visits, as ``analysis.measurements`` describes them.

    Adds ``OF_VISITS``, each with the prefix. Replaces ``seconds`` and ``ratio`` where there are several visits; with
    one visit they stay the medians over its repetitions.
    """
    if visits.empty:  # as of calls in most files: each step would take as long as for hundreds of points
        for name in OF_VISITS:
            frame[prefix + name] = 0 if name.endswith("visits") else np.nan
        return
    seconds, ratio, rows, everyone = f"{prefix}seconds", f"{prefix}ratio", len(frame), alike(frame, added, "machine")
    at = visits["measurement"].to_numpy(int)
    own = summarized(visits, at, rows)
    times, several = own["median"].to_numpy(), (own["count"] >= 2).to_numpy()
    known = noises(frame, visits, everyone, times)
    own = uncertain(frame, known, own, times)
    _interval(frame, own, seconds, seconds, several)
    frame[prefix + "visits"] = own["count"]
    frame[prefix + "spread"] = own["spread"]
    frame[prefix + "spread_of_jobs"] = own["spread_of_jobs"]

    # the ratio divides by all visits of the baseline for the problem in the same run
    libraries = ((frame["baseline"] == 1) & (frame["passed"] == 1)).to_numpy()
    numbers, row = numbered(frame, "run", *PROBLEM, *added, "contender", "contender_algorithm"), beside(frame, added)
    partner = np.where(row >= 0, numbers[row], -1)
    base = visits[libraries[at]].assign(partner=numbers[at[libraries[at]]])
    chosen = ((row >= 0) & ~libraries)[at] & frame[ratio].notna().to_numpy()[at]
    ratios = visits[chosen].assign(partner=partner[at[chosen]])
    in_process = base.groupby(["partner", "process"])["log"].median().rename("theirs")
    ratios = ratios.join(in_process, on=["partner", "process"], how="inner")
    paired = np.log(frame[ratio].to_numpy(float))[ratios["measurement"]]
    ratios["log"] = np.where(several[ratios["measurement"]], ratios.pop("theirs") - ratios["log"], paired)
    of_ratio = summarized(ratios, ratios["measurement"].to_numpy(int), rows)
    # the median over all visits of the baseline varies less than the medians of single processes
    whole = base[several[base["measurement"]]].groupby("partner")["log"].median()
    of_ratio["median"] = whole.reindex(partner).to_numpy() - times
    of_ratio = uncertain(frame, noises(frame, ratios, everyone, times), of_ratio, times)
    _interval(frame, of_ratio, ratio, ratio, several & (of_ratio["count"] > 0).to_numpy())

    # a point that several sweeps or runs measured has the visits of all
    current = (~frame["superseded"]).to_numpy()[at]
    members = visits[current].assign(group=everyone[at[current]])
    members = members.groupby(["group", "process"], as_index=False).agg({"log": "median", "job": "first"})
    pooled = summarized(members, members["group"].to_numpy(int), int(everyone.max(initial=-1)) + 1)
    pooled = pooled.iloc[everyone].reset_index(drop=True)
    pooled = uncertain(frame, known, pooled, pooled["median"].to_numpy())
    frame[f"{prefix}pooled_seconds"] = frame[seconds]
    several = (pooled["count"] >= 2).to_numpy()
    _interval(frame, pooled, f"{prefix}pooled_seconds", f"{prefix}pooled", several)
    frame[prefix + "pooled_visits"] = pooled["count"]


def _interval(frame: pd.DataFrame, found: pd.DataFrame, value: str, ends: str, several: np.ndarray) -> None:
    """Put the value of rows with several visits, and the interval of all rows, into three columns."""
    values = np.where(several, np.exp(found["median"]), frame[value].to_numpy(float))
    width = found["width"].to_numpy()
    frame[value] = values
    frame[f"{ends}_low"], frame[f"{ends}_high"] = values * np.exp(-width), values * np.exp(width)


def beside(frame: pd.DataFrame, added: Sequence[str]) -> np.ndarray:
    """Return the row of the baseline that passed beside each measurement, at the same point of a job; -1 if none."""
    point = numbered(frame, "run", *(name for name in IDENTITY if not name.startswith("contender")), *added)
    return first_of(point, ((frame["baseline"] == 1) & (frame["passed"] == 1)).to_numpy())


def first_of(groups: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the first chosen row of each row's group; -1 if there is none."""
    rows, first = np.flatnonzero(chosen)[::-1], np.full(groups.max(initial=-1) + 1, -1)
    first[groups[rows]] = rows
    return first[groups]
