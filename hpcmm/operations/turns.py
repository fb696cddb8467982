"""Choose the fastest of some candidates by trials that take turns."""

import functools
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from hpcmm.model import DeviceError

FEWEST, MOST = 4, 400  # rounds, by default; an even number, so that a drift within the rounds cancels
SECONDS = 0.5  # of runs in turns, after which there are no more than the fewest rounds
LOOK = 8  # rounds after which the times are judged first, then after half as many more, and so on
TOLERANCE = 0.003  # relative time by which a candidate that was dropped, or not chosen, may be faster
ERRORS = 3  # standard errors that count as certain
# From this many seconds a run on, the power of the candidate itself may lower the clock: it then runs alone for so many
# seconds before it counts. In turns of single runs all have the clock of their mean power, and a candidate that needs
# more than others looked up to 15 % faster than it is.
LONG, ALONE = 1e-3, 0.1
ROUNDS_ALONE, NEAR = 3, 0.05  # rounds of such turns; relative time behind the fastest after which one leaves


def fastest(seconds: Callable[[int], float], count: int, most: int = MOST) -> int:
    """Return the number of the fastest of ``count`` candidates; ``seconds`` runs the candidate of a number once.

    Each candidate has a run that is not counted, because it may load a kernel. Then they take turns, in alternating
    order. A candidate leaves when it is certainly not the fastest by ``TOLERANCE``; the last one is chosen. If the runs
    have taken ``SECONDS``, or after ``most`` rounds, it is the one with the least time. There are at least ``FEWEST``
    rounds. Long runs have turns of several runs.

    A candidate whose first run raises DeviceError is dropped; if all do, the error is raised.
    """
    able, failure = [], None
    for number in range(count):
        try:
            seconds(number)
            able.append(number)
        except DeviceError as error:
            failure = error
    if failure and not able:
        raise failure
    if len(able) > 1 and min(map(seconds, able)) >= LONG:
        return fastest_alone(seconds, able)
    left, times, spent, look = np.array(able), np.empty((0, len(able))), 0.0, LOOK
    while len(left) > 1 and (len(times) < FEWEST or (spent < SECONDS and len(times) < most)):
        turn = np.empty(len(left))
        for place in range(len(left)) if len(times) % 2 else reversed(range(len(left))):
            turn[place] = seconds(int(left[place]))
        times, spent = np.vstack([times, turn]), spent + float(turn.sum())
        if len(times) == look:
            stays, look = could_be_fastest(times), look * 3 // 2
            left, times = left[stays], times[:, stays]
    return int(left[np.argmin(middle(relative(times))[0])]) if len(left) > 1 else int(left[0])


def fastest_alone(seconds: Callable[[int], float], candidates: Sequence[int]) -> int:
    """Return the fastest candidate. In a turn, each candidate runs several times in a row."""
    left = list(candidates)
    turns: dict[int, list[float]] = {number: [] for number in left}
    for _ in range(ROUNDS_ALONE):
        for number in left:
            turns[number].append(alone(functools.partial(seconds, number)))
        middles = {number: statistics.median(turns[number]) for number in left}
        left = [number for number in left if middles[number] <= (1 + NEAR) * min(middles.values())]
    return min(left, key=middles.__getitem__)


def alone(seconds: Callable[[], float]) -> float:
    """Return the seconds of a run, by the last half of the runs of a turn: they have the clock of its own power."""
    times = [seconds()]
    while sum(times) < ALONE:
        times.append(seconds())
    return statistics.median(times[len(times) // 2 :])


def could_be_fastest(times: np.ndarray) -> np.ndarray:
    """Return whether each column may be faster than the best one by more than ``TOLERANCE``; true for the best one."""
    logs = relative(times)
    best = int(np.argmin(middle(logs)[0]))
    behind, error = middle(logs - logs[:, [best]])
    stays = behind - ERRORS * error < -TOLERANCE
    stays[best] = True
    return stays


def relative(times: np.ndarray) -> np.ndarray:
    """Return the logarithms of times over the geometric mean of their round: a drift of the clock moves a round."""
    logs = np.log(times)
    return logs - logs.mean(axis=1, keepdims=True)


def middle(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the middle half of each column, and its standard error (Yuen, Biometrika 61, 1974).

    Of three values it is the median. Of many it is not: short kernels alternate between two states, and their median is
    one of the two, by chance.
    """
    count = len(values)
    cut = max(1, count // 4)
    kept = np.sort(values, axis=0)[cut : count - cut]
    spread = np.clip(values, kept[0], kept[-1]).std(axis=0, ddof=1)
    return kept.mean(axis=0), spread / (1 - 2 * cut / count) / math.sqrt(count)
