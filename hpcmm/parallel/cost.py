"""The cost model: measured latencies and rates, from which each algorithm's module predicts its time.

An amount of work or of bytes takes ``latency + amount * per_unit`` (the alpha-beta model). A prediction for more ranks
than were measured assumes links of the same kind; links between nodes differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpcmm.parallel.schedules import block_row


@dataclass(frozen=True)
class Line:
    """Seconds as a function of an amount: ``latency + amount * per_unit``, and 0 for nothing."""

    latency: float
    per_unit: float

    def __call__(self, amount: float) -> float:
        return self.latency + amount * self.per_unit if amount else 0.0


def fit(amounts: Sequence[float], seconds: Sequence[float], most: float = math.inf) -> Line:
    """Fit a line by least squares of the relative errors, with a latency that is not negative and at most ``most``.

    >>> fit([1, 2, 4], [3.0, 5.0, 9.0])
    Line(latency=1.0, per_unit=2.0)
    >>> fit([10.0], [5.0])
    Line(latency=0.0, per_unit=0.5)
    """
    x, y = np.asarray(amounts, float), np.asarray(seconds, float)
    slope = float(np.sum(x / y) / np.sum((x / y) ** 2))
    if len(set(x)) < 2:
        return Line(0.0, slope)
    (latency, per_unit), *_ = np.linalg.lstsq(np.stack([1 / y, x / y], axis=1), np.ones(len(x)), rcond=None)
    if latency > most:
        return Line(float(most), float(np.sum(x / y * (1 - most / y)) / np.sum((x / y) ** 2)))
    return (
        Line(round(float(latency), 12), float(f"{per_unit:.12g}")) if min(latency, per_unit) >= 0 else Line(0.0, slope)
    )


@dataclass(frozen=True)
class Machine:
    """The lines of one rank while all ranks do the same work."""

    local: Line  # over the floating-point operations of a local product, or the elements of a local reduction
    exchange: Line = Line(0.0, 0.0)  # over the bytes received from one other rank while as many are sent
    # By phase of the textbook algorithm, over the bytes that ``moved`` returns
    moves: Mapping[str, Line] = field(default_factory=dict)
    # ``combine(ranks)`` returns the seconds that combining the results of several ranks takes; None if not measured
    combine: Callable[[int], float] | None = None


def moved(phase: str, shape: Sequence[int], itemsize: int, ranks: int) -> int:
    """Return the bytes that a phase of the textbook product moves.

    Between ranks, these are the bytes that rank 0 sends or receives, once for each other rank: on one node MPI copies
    through one memory, whatever tree it uses. To and from the device, they are one rank's share.
    """
    m, n, k = shape
    _, rows = block_row(m, ranks, 0)
    away = m - rows  # rank 0's own rows stay in place
    elements = {
        "scatter": away * k + away * n,
        "broadcast": (ranks - 1) * k * n,
        "upload": rows * k + k * n + rows * n,
        "download": rows * n,
        "gather": away * n,
    }
    return elements[phase] * itemsize
