"""Test whether a point changed between files; the baselines, whose code is the same in both, are the controls.

Two jobs differ for reasons that no number of visits within one of them shows: another card, other physical pages,
another clock. The baselines beside the variants ran the same code in both, so they are controls: their differences are
what unchanged points show by chance, whatever its cause. No model of the noise is needed, also not of states that last
for several runs.

Some points have states that no control has: on a CPU the pages of its arrays and the places of its threads, elsewhere
links, exchanges between ranks, and operations without a library. Their own visits, each in a process of its own, show
how heavy the tails of their differences are, too.
"""

import functools
import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import noise, visits
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.store import IDENTITY
from hpcmm.system.text import plural

ALPHA = 0.005  # significance level: the largest share of unchanged points that is called faster or slower
MARGIN = 0.01  # smaller changes are ignored
BEYOND = math.log(10)  # controls say nothing about times that are so much longer or shorter than theirs
CONTROLS = 20  # least number of baselines in all files that show how much unchanged points differ

QUARTILE = 1.1503  # third quartile of the magnitude of a normal value of standard deviation 1
UNJUDGED = "not judged"


@dataclass(frozen=True)
class Change:
    """The difference between the times of a point in two sets of files.

    ``ratio`` is how many times as fast the second is, without the difference that all baselines share, between ``low``
    and ``high`` with confidence 1 - ``ALPHA``. ``p`` is the chance of such a difference of an unchanged point. A
    measured change from ``least`` on, as a ratio less 1, is called faster or slower. NaN where it is unknown.
    """

    ratio: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    least: float = math.nan
    verdict: str = UNJUDGED


def percent(share: float) -> str:
    """Return ``"1.2 %"``; from 1 on, the factor.

    >>> percent(0.0123), percent(0.5), percent(3.0)
    ('1.2 %', '50 %', 'a factor of 4')
    """
    if share < 1:
        return f"{100 * share:.2g} %"
    return f"a factor of {1 + share:.2g}" if math.log1p(share) < visits.WIDEST else "a factor of 100 or more"


def judged(log: float, width: float, p: float) -> Change:
    """Return a change by the logarithm of the ratio and the half-width of its interval.

    ``verdict`` is ``"same"`` if the whole interval is within ``MARGIN`` of 1, ``"faster"`` or ``"slower"`` if 1 is
    outside the interval and the ratio beyond the margin, and else ``"ambiguous"``.

    >>> [judged(*each, 0.5).verdict for each in ((0.002, 0.005), (0.05, 0.02), (-0.05, 0.02), (0.05, 0.06))]
    ['same', 'faster', 'slower', 'ambiguous']
    """
    margin = math.log1p(MARGIN)
    least = math.expm1(min(max(margin, width), 700.0))
    if width > visits.WIDEST:
        return Change(math.exp(log), p=p, least=least, verdict="ambiguous")
    if abs(log) + width <= margin:
        verdict = "same"
    else:
        verdict = ("faster" if log > 0 else "slower") if abs(log) > max(margin, width) else "ambiguous"
    return Change(math.exp(log), math.exp(log - width), math.exp(log + width), p, least, verdict)


class Chance:
    """The distribution of a standardized difference of an unchanged point, from those of the controls.

    Student's t with unknown scale and degrees of freedom, weighted by the likelihood of each pair of them: few
    controls, or some large differences, leave heavy tails possible. Where two controls or more show a larger
    chance, it counts, and that of larger differences grows by the same factor: a state that few points have is in no
    tail of Student's t. ``weights`` is how much each control counts.
    """

    STEP = 0.05
    SCALES = np.arange(-1.5, 2.5, STEP)  # logarithms, as everything here
    SIZES = np.arange(-4.0, 9.0, STEP)
    FREEDOMS = (2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 1e6)

    def __init__(self, values: np.ndarray, weights: np.ndarray):
        scaled = np.abs(values)[:, None] / np.exp(self.SCALES)
        likelihood = np.array([weights @ _density(scaled, each) for each in self.FREEDOMS])
        likelihood -= weights.sum() * self.SCALES
        belief = np.exp(likelihood - likelihood.max())
        table, shift = _tails(), len(self.SCALES) - 1
        # a scale moves the table along its axis of logarithms
        found = sum(belief[:, i] @ table[:, shift - i : shift - i + len(self.SIZES)] for i in range(len(self.SCALES)))
        found /= belief.sum()
        order = np.argsort(values)
        at = np.searchsorted(values[order], np.exp(self.SIZES))
        larger = np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)[at]
        shown = np.where(larger > 1, larger, 0.0) / weights.sum()
        more = np.maximum.accumulate(np.maximum(shown / found, 1.0))  # also for larger differences than those shown
        self.logs = np.log(np.minimum(more * found, 1.0))

    def outside(self, size: float) -> float:
        """Return the chance of a larger difference than this many standard errors."""
        return math.exp(np.interp(math.log(max(size, 1e-9)), self.SIZES, self.logs)) if size else 1.0

    def critical(self, share: float) -> float:
        """Return the difference that is exceeded with this chance, in standard errors."""
        return math.exp(np.interp(-math.log(share), -self.logs, self.SIZES))


def _density(values: np.ndarray, freedom: float) -> np.ndarray:
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    return scale - (freedom + 1) / 2 * np.log1p(values**2 / freedom)


@functools.cache
def _tails() -> np.ndarray:
    """Return P(|T| > t) for each of ``Chance.FREEDOMS``, on the sizes divided by each scale."""
    first = Chance.SIZES[0] - Chance.SCALES[-1]
    sizes = np.exp(first + Chance.STEP * np.arange(len(Chance.SIZES) + len(Chance.SCALES)))
    return np.array([[noise.outside(size, freedom) for size in sizes] for freedom in Chance.FREEDOMS])


class Controls:
    """Differences of controls, and what they say about an unchanged point.

    Their median is the level that all points share; if it is ``centred``, it is removed, as ``check`` removes that of a
    visit. What the errors of the visits do not explain is a spread between the files, which depends on the time of a
    point: the one that makes the third quartile of the standardized differences of the controls with the nearest times
    that of a normal distribution (the random-effects model of DerSimonian and Laird, *Control. Clin. Trials* 7, 1986).
    The median would jump if a state is either on or off. These controls are a third of all, at least ``CONTROLS`` and
    at most ``noise.NEIGHBOURS``. ``Chance`` has the tails, from differences that are standardized without the control
    itself.

    ``times`` are logarithms of seconds. ``kinds`` is the problem of each control: controls of one problem are not
    independent, and count as one in ``Chance``.
    """

    def __init__(
        self, times: np.ndarray, differences: np.ndarray, errors: np.ndarray, kinds: np.ndarray, centred: bool
    ):
        self.kinds = kinds
        times = pd.Series(times).groupby(kinds).transform("mean").to_numpy()  # not in the order of their differences
        order = np.argsort(times, kind="stable")
        times, differences, self._errors = times[order], differences[order], errors[order]
        self._range = times[0], times[-1]
        self.level = float(np.median(differences)) if centred else 0.0
        self._sizes = np.abs(differences - self.level)
        self.drift = float(_quartile(self._sizes)) / QUARTILE
        count = len(times)
        width = int(np.clip(count // 3, CONTROLS, noise.NEIGHBOURS))
        windows = np.lib.stride_tricks.sliding_window_view(np.arange(count), width)
        self._times, self._spreads = np.median(times[windows], axis=1), self._fitted(windows)
        first = np.clip(np.arange(count) - width // 2, 0, count - width - 1)
        others = first[:, None] + np.arange(width)
        others += others >= np.arange(count)[:, None]  # without the control itself
        _, groups, sizes = np.unique(kinds[order], return_inverse=True, return_counts=True)
        standard = self._sizes / np.hypot(self._errors, self._fitted(others))
        self.chance = Chance(standard, 1 / sizes[groups])

    def _fitted(self, windows: np.ndarray) -> np.ndarray:
        """Return the spread of each row of controls; 0 if their errors explain their differences."""
        sizes, errors = self._sizes[windows] / QUARTILE, self._errors[windows]
        low, high = np.zeros(len(windows)), sizes.max(axis=1)
        for _ in range(20):
            middle = (low + high) / 2
            more = _quartile(sizes / np.hypot(errors, middle[:, None])) > 1
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.where(_quartile(sizes / errors) <= 1, 0.0, high)

    def reach(self, time: float) -> bool:
        """Return whether a time is within a factor of ``exp(BEYOND)`` of the range of the controls' times."""
        return self._range[0] - BEYOND <= time <= self._range[1] + BEYOND

    def error(self, time: float, error: float) -> float:
        """Return the error of a difference at this logarithm of seconds, with the spread between files."""
        return math.hypot(error, float(np.interp(time, self._times, self._spreads)))


def _quartile(values: np.ndarray) -> np.ndarray:
    at = 3 * values.shape[-1] // 4
    return np.partition(values, at, axis=-1)[..., at]


class Evidence:
    """The visits of several files, and the differences of a point between them that occur by chance.

    The spread between visits is that of ``noise``, with one prior for all files. The rows of all ``frames``, from
    ``analysis.measurements``, are numbered in this order; ``offsets`` has the number of the first row of each.

    Where the ``libraries`` of the files differ, baselines may have changed as well: then their level is not removed,
    and all of their differences count as chance. None if the devices differ: there are no controls.
    """

    def __init__(
        self, frames: Sequence[pd.DataFrame], taken: Sequence[pd.DataFrame], libraries: Sequence[Hashable] | None
    ):
        lengths = list(map(len, frames))
        self.offsets = [0, *itertools.accumulate(lengths)][:-1]
        self.file = np.repeat(np.arange(len(frames)), lengths)
        parts = zip(taken, self.offsets, strict=True)
        taken = pd.concat([each.assign(measurement=each["measurement"] + first) for each, first in parts])
        taken = taken.reset_index(drop=True)
        both = pd.concat([frame.assign(file=i) for i, frame in enumerate(frames)], ignore_index=True)
        self._raw = visits.gathered(taken["measurement"].to_numpy(), taken["log"].to_numpy(), len(both)).to_numpy()
        taken["log"] -= _levels(taken, both)
        names = {name for each in OPERATIONS.values() for name in (*each.scalars, *each.dimensions)}
        added = sorted(name for name in names if name in both)
        self.known = visits.priors(both, taken, visits.alike(both, added, "file", "machine"))
        found = visits.gathered(taken["measurement"].to_numpy(), taken["log"].to_numpy(), len(both))
        self.count, self.centre = (found[name].to_numpy() for name in ("count", "median"))
        self._freedom = np.maximum(self.count - 1, 0)
        self._squares = np.nan_to_num(found["var"].to_numpy()) * self._freedom
        self._parts = noise.median_spread(self.count) ** 2
        self.device = both["device"].to_numpy()
        self._own = (both["baseline"] == 0).to_numpy()
        self._contrasts = self._contrasted(taken)
        self.alone, self.tails, self.controls = map(functools.cache, (self._alone, self._tails, self._controls))
        self.chances = functools.cache(self._chances)
        self._work = (both["operation"] + " " + both["contender_algorithm"]).to_numpy()
        self._kinds = visits.alike(both, added)
        self._libraries = libraries
        right = [frame[(frame["passed"] == 1) & ~frame["superseded"]] for frame in frames]
        beside = [frame[(frame["baseline"] == 1) & ~analysis.is_own(frame)] for frame in right]
        self._rows = [  # of each file, the row of each baseline beside a variant
            dict(zip(zip(key, frame["contender"], strict=True), frame.index + first, strict=True))
            for key, frame, first in zip(keys_of(beside), beside, self.offsets, strict=True)
            if libraries is not None
        ]

    def _contrasted(self, taken: pd.DataFrame) -> pd.DataFrame:
        """Return the difference of each measurement between its first visit and the others, in errors of the prior."""
        at = taken["measurement"].to_numpy()
        others = taken["visit"] != taken.groupby("measurement")["visit"].transform("first")
        parts = taken["log"].groupby([at, others]).agg(["median", "size"]).unstack()
        parts = parts[parts.notna().all(axis=1)] if parts.shape[1] == 4 else parts.iloc[:0]
        rows = parts.index.to_numpy(int)
        if not len(rows):
            return pd.DataFrame({"row": rows, "size": np.empty(0)})
        found = np.abs(parts["median"].to_numpy() @ [1.0, -1.0])
        spreads = (noise.median_spread(parts["size"].to_numpy(int)) ** 2).sum(axis=1)
        for device in dict.fromkeys(self.device[rows]):
            here = self.device[rows] == device
            # those by the visits of a measurement itself would hide its states
            variance, _ = self.known.get(device, noise.UNKNOWN).at(self.centre[rows[here]])
            found[here] /= np.sqrt(np.maximum(variance, noise.LEAST**2) * spreads[here])
        return pd.DataFrame({"row": rows, "size": found})[self._own[rows]]

    def _alone(self, device: str, controls: Controls) -> np.ndarray:
        """Return which rows of a device have states that no control has."""
        work = pd.unique(self._work[np.isin(self._kinds, controls.kinds)])  # isin compares objects with each of them
        return (self.device == device) & (not DEVICES[device].accelerator or ~np.isin(self._work, work))

    def _tails(self, device: str, controls: Controls) -> Chance | None:
        """Return the chance of differences of points that are ``alone`` by their visits; None if too few are known."""
        sizes = self._contrasts["size"].to_numpy()[self.alone(device, controls)[self._contrasts["row"]]]
        return Chance(sizes, np.ones(len(sizes))) if len(sizes) > CONTROLS else None

    def pairs(self, before: Sequence[int], after: Sequence[int], device: str) -> np.ndarray:
        """Return the rows of the baselines on a device that all of these files have, a column for each file."""
        rows = [self._rows[i] for i in (*before, *after)] if self._rows else [{}]
        shared = [[each[key] for each in rows] for key in rows[0] if all(key in each for each in rows[1:])]
        found = np.array(shared, int).reshape(len(shared), len(rows))
        whole = np.isfinite(self.centre[found]).all(axis=1) & (self.device[found] == device).all(axis=1)
        return found[whole]

    def _controls(self, before: tuple[int, ...], after: tuple[int, ...], device: str) -> Controls | None:
        """Return the controls between two sets of files on a device; None with fewer than ``CONTROLS``."""
        rows = self.pairs(before, after, device)
        if len(rows) <= CONTROLS:
            return None
        differences, errors = self.differences(rows[:, : len(before)], rows[:, len(before) :], device)
        same = len({self._libraries[i] for i in (*before, *after)}) == 1
        return Controls(self.centre[rows].mean(axis=1), differences, errors, self._kinds[rows[:, 0]], same)

    def differences(self, first: np.ndarray, second: np.ndarray, device: str) -> tuple[np.ndarray, np.ndarray]:
        """Return log ratios of measurements, by the rows of all files that each averages, and the errors by visits."""
        centres = [self.centre[at].mean(axis=1) for at in (first, second)]
        both = np.concatenate([first, second], axis=1)
        freedom = self._freedom[both].sum(axis=1)
        variance = self._squares[both].sum(axis=1) / np.maximum(freedom, 1)
        prior = self.known.get(device, noise.UNKNOWN)
        variance, _ = prior.moderated(np.nan_to_num((centres[0] + centres[1]) / 2), variance, freedom)
        spreads = sum(self._parts[at].sum(axis=1) / at.shape[1] ** 2 for at in (first, second))
        return centres[0] - centres[1], np.sqrt(variance * spreads)

    def change(self, before: Sequence[int], after: Sequence[int], share: float = ALPHA) -> Change:
        """Compare rows of all files by the means of their logarithms; ``share`` is the significance level."""
        found = self.chances(tuple(before), tuple(after))
        if isinstance(found, Change):
            return found
        log, chances = found
        width = max(chance.critical(share) * each for chance, each in chances)
        return judged(log, width, max(chance.outside(abs(log) / each) for chance, each in chances))

    def _chances(
        self, before: Sequence[int], after: Sequence[int]
    ) -> Change | tuple[float, list[tuple[Chance, float]]]:
        """Return the log ratio of rows, and the chances of it with its errors; a change if there is no test of it."""
        rows = [*before, *after]
        if len(rows) == 2 and np.array_equal(*self._raw[rows], equal_nan=True) and self.count[rows[0]]:
            return Change(1.0, 1.0, 1.0, 1.0, verdict="same")  # the same times
        device = self.device[rows[0]]
        (log,), (error,) = self.differences(np.array([before]), np.array([after]), device)
        files = (tuple(self.file[list(each)]) for each in (before, after))
        controls = self.controls(*files, device) if math.isfinite(log) else None
        if controls is None:
            return Change(math.exp(log))
        time = float(self.centre[rows].mean())
        chances = [(controls.chance, controls.error(time, error))]
        if self.alone(device, controls)[rows[0]]:
            chances.append((self.tails(device, controls), error))
        if chances[-1][0] is None or not controls.reach(time):
            return Change(math.exp(log))
        return log - controls.level, chances

    def spread(self, device: str) -> float:
        """Return the median spread between visits on a device; NaN if unknown."""
        prior = self.known.get(device, noise.UNKNOWN)
        return float(np.median(np.sqrt(prior.variances))) if prior.known else math.nan

    def notes(self) -> list[str]:
        """Return sentences about the noise of each device, from each file and the next one."""
        found = []
        for device in dict.fromkeys(self.device):
            title, spread = DEVICES[device].title, self.spread(device)
            if not math.isnan(spread):
                several = (self.count[self.device == device] > 1).any()
                what = "visits" if several else "times of a library beside several kernels of a visit"
                found.append(f"{title}: {what} scatter by {percent(spread)} (median)")
            steps = [((i,), (i + 1,)) for i in range(len(self.offsets) - 1)]
            known = [each for step in steps if (each := self.controls(*step, device))]
            if not known:
                most = max((len(self.pairs(*step, device)) for step in steps), default=0)
                why = f"{plural(most, 'baseline')} beside variants; more than {CONTROLS} are needed"
                why = why if self._rows else "other devices or caches"
                found.append(f"{title}: no verdicts: these files have too few unchanged points to compare with ({why})")
                continue
            drift = float(np.median([each.drift for each in known]))
            text = f"{title}: the unchanged baselines differ by {percent(drift)} between the files"
            if len(known) == 1 and abs(level := known[0].level) > 0.001:
                less = "less" if level > 0 else "more"
                text += f", and all take {percent(abs(math.expm1(-level)))} {less} time in the second one (removed)"
            if self.alone(device, known[0]).any() and self.tails(device, known[0]) is None:
                what = "links, exchanges and operations without a library" if DEVICES[device].accelerator else "points"
                text += f"; too many {what} have one visit, so that none is called faster, slower or same"
            if max(0.0 if math.isnan(spread) else spread, drift) > visits.NOISY:
                text += f"; above {100 * visits.NOISY:.0f} % this machine is too noisy to detect small changes"
            found.append(text)
        return found


def _levels(taken: pd.DataFrame, frame: pd.DataFrame) -> np.ndarray:
    """Return the state that all points of a visit share, for each visit: the median difference from their own medians.

    It is 0 if fewer than ``CONTROLS`` points of a job have several visits.
    """
    at = taken["measurement"].to_numpy()
    logs = taken.groupby("measurement")["log"]
    differences = (taken["log"] - logs.transform("median")).where(logs.transform("size") > 1)
    levels = differences.groupby([frame["file"].to_numpy()[at], frame["run"].to_numpy()[at], taken["visit"]])
    return levels.transform("median").where(levels.transform("count") >= CONTROLS, 0.0).to_numpy()


def keys_of(frames: Sequence[pd.DataFrame], by_machine: bool = False) -> list[list[int]]:
    """Number the points of several files together, by machine too if ``by_machine``, or if one file has several."""
    scalars = {name for operation in OPERATIONS.values() for name in operation.scalars}
    names = [name for name in IDENTITY if not name.startswith("contender")]
    names = list(dict.fromkeys([*names, *dimensions(), *sorted(scalars)]))
    rows = [frame.reindex(columns=[*names, "machine"]) for frame in frames]
    if by_machine or any(each.duplicated(names).any() for each in rows):
        names.append("machine")
    numbers = pd.concat(rows).groupby(names, dropna=False, sort=False).ngroup().to_numpy()
    return [each.tolist() for each in np.split(numbers, np.cumsum([len(each) for each in rows])[:-1])]
