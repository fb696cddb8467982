"""How long each algorithm should take: latencies and rates that were measured, put through its schedule.

An amount of work or of bytes takes ``latency + amount * per_unit`` (the alpha-beta model). What is predicted for
more ranks than were measured holds for links of the kind that was measured, which those between nodes are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2

import numpy as np

from hpcmm.parallel.schedules import block_rows, divisions, grid, panels, panels_of, partners, runs, tilings


@dataclass(frozen=True)
class Line:
    """Seconds of an amount."""

    latency: float
    per_unit: float

    def __call__(self, amount: float) -> float:
        return self.latency + amount * self.per_unit if amount else 0.0


def fit(amounts: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line with the least relative errors, in squares, whose latency is not negative.

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
    return (
        Line(round(float(latency), 12), float(f"{per_unit:.12g}")) if min(latency, per_unit) >= 0 else Line(0.0, slope)
    )


@dataclass(frozen=True)
class Machine:
    """What one rank does in which time while all others do the same.

    Parameters
    ----------
    local : Line
        Of floating-point operations of a local product, or of elements of a local reduction.
    exchange : Line, optional
        Of bytes that arrive from one other rank while as many leave.
    moves : mapping of str to Line
        Of bytes in the phases of the textbook's call, by their names: what ``moved`` counts.
    doubling : float, optional
        Seconds of an all-reduce for each doubling of the ranks; NaN where none was measured.
    """

    local: Line
    exchange: Line = Line(0.0, 0.0)
    moves: Mapping[str, Line] = field(default_factory=dict)
    doubling: float = np.nan


def moved(phase: str, shape: Sequence[int], itemsize: int, ranks: int) -> int:
    """Bytes that a phase of the textbook's product moves.

    Between the ranks it is what leaves rank 0 or arrives there, once for each other rank: on one node MPI copies
    through one memory, whatever tree it takes. Up to a device and down it is one rank's share.
    """
    m, n, k = shape
    _, rows = block_rows(m, ranks)[0]
    away = m - rows  # rank 0's own rows stay in place
    elements = {
        "scatter": away * k + away * n,
        "broadcast": (ranks - 1) * k * n,
        "upload": rows * k + k * n + rows * n,
        "download": rows * n,
        "gather": away * n,
    }
    return elements[phase] * itemsize


def predict(algorithm: str, kind: str, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Seconds of a product or reduction on the rank with the largest share; NaN where the model does not say.

    Parameters
    ----------
    algorithm : str
    kind : {"kernel", "call"}
    shape : sequence of int
        m, n, k, or the length of a vector.
    itemsize : int
        Bytes of an element.
    ranks : int
    machine : Machine
    """
    if algorithm == "all_reduce":
        _, elements = block_rows(shape[0], ranks)[0]
        return machine.local(elements) + (log2(ranks) * machine.doubling if ranks > 1 else 0.0)
    m, n, k = shape
    _, rows = block_rows(m, ranks)[0]
    _, terms = block_rows(k, ranks)[0]
    product, exchange = machine.local, machine.exchange
    match algorithm, kind:
        case "scatter", "kernel":
            return product(2 * rows * n * k)
        case "scatter", "call" if machine.moves or ranks == 1:
            moves = sum(line(moved(phase, shape, itemsize, ranks)) for phase, line in machine.moves.items())
            return moves + product(2 * rows * n * k)
        case "resident", "kernel":
            return _resident(shape, itemsize, ranks, machine)
        case "ring", "kernel":
            step = product(2 * rows * n * terms)
            return step + (ranks - 1) * max(step, exchange(terms * n * itemsize))
        case "summa", "kernel":
            return _summa(shape, itemsize, ranks, machine)
        case "staged", "call" if {"upload", "download"} <= set(machine.moves):
            return _staged(shape, itemsize, ranks, machine)
    return np.nan


def _resident(shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """The division that ends first: a group is multiplied once it is there, in a product a run of rows."""
    m, n, k = shape
    (_, rows), (_, terms) = block_rows(m, ranks)[0], block_rows(k, ranks)[0]
    exchange, product = machine.exchange(terms * n * itemsize), machine.local
    order = [0, *(source for source, _ in partners(0, ranks))]
    ends = []
    for lengths in divisions(ranks):
        end, done = 0.0, 0
        for length in lengths:
            group = order[done : done + length]
            done += length
            work = length * 2 * rows * n * terms * product.per_unit + len(runs(group)) * product.latency
            end = max(end, (done - 1) * exchange) + work
        ends.append(end)
    return min(ends)


def _summa(shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """The steps of the slowest in the first row: a product takes place once its panels are there.

    Meanwhile the next ones arrive.
    """
    m, n, k = shape
    of_rows, of_columns = grid(ranks)
    rows, columns = block_rows(m, of_rows)[0][1], block_rows(n, of_columns)[0][1]
    cut, slowest = panels(k, of_rows, of_columns), 0.0
    for column in range(of_columns):
        done = before = arrived = 0.0
        for panel in panels_of(cut, of_rows, of_columns, 0, column):
            away = (panel.column != column) * rows + (panel.row != 0) * columns
            # its buffer is free once the product before the last is done
            arrived = max(arrived, before) + machine.exchange(panel.terms * away * itemsize)
            before, done = done, max(done, arrived) + machine.local(2 * rows * columns * panel.terms)
        slowest = max(slowest, done)
    return slowest


def _staged(shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """The tiling that ends first: of uploads, gathers, products and downloads each does one thing at a time."""
    m, n, k = shape
    _, terms = block_rows(k, ranks)[0]
    up, down, ends = machine.moves["upload"], machine.moves["download"], []
    for tiling in tilings(m, n, ranks).values():
        uploaded = gathered = multiplied = downloaded = 0.0
        for matrix, (_, count), tiles in tiling.arrivals():
            uploaded += up(count * (k if matrix == "A" else terms) * itemsize)
            if matrix == "B":
                gathered = max(gathered, uploaded) + (ranks - 1) * machine.exchange(terms * count * itemsize)
            for (_, height), (_, width) in tiles:
                uploaded += up(height * width * itemsize)
                multiplied = max(multiplied, gathered, uploaded) + machine.local(2 * height * width * k)
                downloaded = max(downloaded, multiplied) + down(height * width * itemsize)
        ends.append(downloaded)
    return min(ends)
